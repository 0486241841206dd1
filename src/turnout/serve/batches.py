"""From requests' tensors to a batch's, and from its outputs back to each request's rows.

A batch is a sequence of parts (rows of a request). Those whose other dimensions and shared inputs agree are joined
along the batch axis, with one copy; where they disagree (texts of two lengths, two sampling rates) the batch becomes
several runs on the same replica, so that merging never changes an answer. A run of a single whole request is passed
through as it is. Pure: tensors in, tensors out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct, field

from turnout.core.events import Part, Piece
from turnout.errors import ModelError
from turnout.pools.base import TensorSpec

Tensors = Mapping[str, np.ndarray]


class Place(Struct, frozen=True):
    """Where a part lies: items `offset`… of run number `run`."""

    run: int
    offset: int
    items: int


class Batch(Struct, kw_only=True):
    """A batch on its way. `starts[i]` is where part i begins in the batch as a whole, `places[i]` where in its run.

    `owed` are the requests that still need rows of it; `outputs` come when it is done.
    """

    model: str
    replica: str
    starts: list[int]
    places: list[Place]
    run_items: list[int]
    owed: set[int]
    outputs: Sequence[Tensors] = field(default_factory=list)


def gather(
    model: str,
    replica: str,
    parts: Sequence[Part],
    requests: Mapping[int, Tensors],
    specs: Sequence[TensorSpec],
) -> tuple[Batch, tuple[Tensors, ...]]:
    """Join `parts` of `requests` (tensors by rid) into runs."""
    groups: dict[tuple[object, ...], list[Tensors]] = {}
    order: list[tuple[object, ...]] = []
    starts, places, run_items, start = [], [], [], 0
    for part in parts:
        rows = {spec.name: _rows(requests[part.rid][spec.name], spec, part) for spec in specs}
        key = _signature(rows, specs) if len(parts) > 1 else ()
        if key not in groups:
            groups[key] = []
            order.append(key)
            run_items.append(0)
        run = order.index(key)
        groups[key].append(rows)
        starts.append(start)
        places.append(Place(run, run_items[run], part.items))
        run_items[run] += part.items
        start += part.items
    batch = Batch(
        model=model,
        replica=replica,
        starts=starts,
        places=places,
        run_items=run_items,
        owed={part.rid for part in parts},
    )
    return batch, tuple(_join(groups[key], specs) for key in order)


def _rows(tensor: np.ndarray, spec: TensorSpec, part: Part) -> np.ndarray:
    """The rows of a part: a view of its request's tensor."""
    axis = spec.batch_axis
    if axis is None or tensor.shape[axis] == part.items:
        return tensor
    return tensor[(slice(None),) * axis + (slice(part.start, part.start + part.items),)]


def _signature(rows: Tensors, specs: Sequence[TensorSpec]) -> tuple[object, ...]:
    """Equal for parts that can share a run: the dimensions beside the batch axis, and shared inputs by value."""
    key: list[object] = []
    for spec in specs:
        tensor, axis = rows[spec.name], spec.batch_axis
        if axis is None:
            key.append((tensor.shape, tensor.tobytes() if tensor.dtype != object else tuple(tensor.reshape(-1))))
        else:
            key.append(tensor.shape[:axis] + tensor.shape[axis + 1 :])
    return tuple(key)


def _join(group: Sequence[Tensors], specs: Sequence[TensorSpec]) -> Tensors:
    """One run's inputs."""
    if len(group) == 1:  # runtimes take memory only as aligned as malloc gives it; a request's bytes may lie anyhow
        return {name: t if t.flags.aligned else t.copy() for name, t in group[0].items()}
    return {
        spec.name: (
            group[0][spec.name]
            if spec.batch_axis is None
            else np.concatenate([rows[spec.name] for rows in group], axis=spec.batch_axis)
        )
        for spec in specs
    }


def assemble(
    pieces: Sequence[Piece], batches: Mapping[int, Batch], specs: Sequence[TensorSpec], names: Sequence[str]
) -> dict[str, np.ndarray]:
    """A request's outputs `names` from the batches its pieces lie in.

    Raises:
        ModelError: an output does not have a row for every item, so rows cannot be told apart.
    """
    by_name = {spec.name: spec for spec in specs}
    return {name: _output(pieces, batches, by_name[name]) for name in names}


def _output(pieces: Sequence[Piece], batches: Mapping[int, Batch], spec: TensorSpec) -> np.ndarray:
    """One output of one request."""
    found = []
    for piece in pieces:
        batch = batches[piece.batch]
        index = bisect_right(batch.starts, piece.offset) - 1
        place = batch.places[index]
        tensor = batch.outputs[place.run][spec.name]
        if len(pieces) == 1 and batch.run_items[place.run] == piece.items:
            return tensor  # the run was this request and nothing else
        first = place.offset + piece.offset - batch.starts[index]
        found.append(_slice(tensor, spec, batch, place.run, slice(first, first + piece.items)))
    if len(found) == 1 or spec.batch_axis is None:
        return found[0]
    return np.concatenate(found, axis=spec.batch_axis)


def _slice(tensor: np.ndarray, spec: TensorSpec, batch: Batch, run: int, rows: slice) -> np.ndarray:
    """Rows of one run's output; the whole of an output that the batch shares."""
    axis = spec.batch_axis
    if axis is None:
        return tensor
    items = batch.run_items[run]
    if tensor.ndim <= axis or tensor.shape[axis] != items:
        raise ModelError(
            f"output {spec.name} of {batch.model} has shape {list(tensor.shape)} for {items} items, so its rows cannot "
            "be told apart: set mergeable = false for this model"
        )
    return tensor[(slice(None),) * axis + (rows,)]
