"""An access log as columns, in order of arrival: what was asked, and what became of it. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

TimeIs = Literal["start", "end"]

NONE = -1
"""Index of a row that names no backend: the proxy answered by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessLog:
    """`n` requests in order of arrival. All columns are (n,).

    `at_s` are seconds since the first arrival, which was at `epoch_s` on the log's own clock. `items` is at least 1.
    `latency_s` is what the client saw, NaN where a row that failed has none. `ok` is that the request was answered: not
    refused, and no server error. `backend` is an index into `backends`, `NONE` where there is none. `service_s` is what
    the backend worked on it, without any queue; NaN where the row does not say, None where no row does. `model` is an
    index into `models`.

    `coarse` is that times were whole seconds, so that the order within one is not known.

    `format` is what the file was taken for, `columns` how its columns were read (role -> words), `skipped` how many bad
    rows were left out; `notes` are the guesses that were made, for whoever reads a result.
    """

    source: str
    format: str
    epoch_s: float
    at_s: Floats
    items: Ints
    latency_s: Floats
    ok: Bools
    backend: Ints
    backends: tuple[str, ...]
    service_s: Floats | None
    model: Ints
    models: tuple[str, ...]
    time_is: TimeIs
    coarse: bool
    columns: dict[str, str]
    skipped: int
    notes: tuple[str, ...]

    def __len__(self) -> int:
        """Number of requests."""
        return len(self.at_s)

    def part(self, first: int, last: int) -> AccessLog:
        """Rows `first` to `last` - 1, with their times as they are."""
        rows = slice(first, last)
        return AccessLog(
            source=self.source,
            format=self.format,
            epoch_s=self.epoch_s,
            at_s=self.at_s[rows],
            items=self.items[rows],
            latency_s=self.latency_s[rows],
            ok=self.ok[rows],
            backend=self.backend[rows],
            backends=self.backends,
            service_s=None if self.service_s is None else self.service_s[rows],
            model=self.model[rows],
            models=self.models,
            time_is=self.time_is,
            coarse=self.coarse,
            columns=self.columns,
            skipped=self.skipped,
            notes=self.notes,
        )
