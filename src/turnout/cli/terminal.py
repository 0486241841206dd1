"""What every verb shows a person or a script: a line of progress, the answer, and where it was written."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

Progress = Callable[[str, float], None]
"""Called with what is being done, and the share that is done."""


@contextmanager
def progress() -> Iterator[Progress]:
    """Show a line of progress on stderr, only where a person watches it; it is gone at the end."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    bar = Bar(
        TextColumn("{task.description:<40}"),
        BarColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
        transient=True,
    )
    with bar:
        task = bar.add_task("starting", total=1.0)
        yield lambda what, share: bar.update(task, description=what, completed=share)


def answer(
    value: Any, show: Callable[[Any, Console], None], *, json: bool, written: Sequence[Path] = (), width: int = 140
) -> None:
    """Print `value` on stdout, as one JSON document or with `show`, and what was `written` on stderr.

    Where stdout is a file, tables are as wide as `width` columns, so that they are not torn.
    """
    if json:
        document(value)
    else:
        from rich.console import Console

        show(value, Console(width=None if sys.stdout.isatty() else width))
    for path in written:
        print(f"Wrote {path}", file=sys.stderr)


def document(value: Any) -> None:
    """Print one JSON document on stdout, in the envelope of every artefact."""
    from turnout import store

    sys.stdout.write(store.encode(value).decode())
