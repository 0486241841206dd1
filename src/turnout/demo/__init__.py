"""`turnout demo`: the whole of Turnout on one machine in two minutes, on real input, with nothing downloaded.

    here        this machine: duel, gateway under bursty load, a killed replica, prediction beside fact, replay
    elsewhere   published T4 and CPU measurements through the same router, policies side by side
    advice      what to rent at that traffic, where the answer flips, and what would flip it
    files, load real files as input; the open-loop client
    live        the gateway and the client as processes
    story       the result in words and tables, each with its origin
    text, page  the story in a terminal, and as one HTML page

Every figure says whether it was measured here, measured elsewhere, or modelled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path

from msgspec import Struct

from turnout import store
from turnout.demo import advice, elsewhere, here

SECONDS = 20.0
"""Length of the live traffic."""

DUEL_BUDGET_S = 20.0
MODEL = "wnd"
RATE_QPS = 80.0
CONTEST_RATE_QPS = 1700.0
"""Near what the fleet can do: well below that several policies answer all in time."""

CONTEST_FLEET = (9, 2)
"""r5n.large and g4dn.xlarge, as in the published study."""


class Demo(Struct, frozen=True, kw_only=True):
    """Everything the demo found."""

    date: str
    here: here.Here
    contest: elsewhere.Contest
    advice: advice.Advice


def run(
    folder: Path,
    *,
    now: datetime,
    environ: Mapping[str, str],
    progress: Callable[[str, float], None],
    seconds: float = SECONDS,
    duel_budget_s: float = DUEL_BUDGET_S,
    queries: int = 2000,
) -> Demo:
    """Run all three parts; artefacts and the report go into `folder`.

    Raises:
        CheckFailedError: a request was lost or the log did not replay: a fault in Turnout.
        ExtraMissingError: a package of the demo is not installed.
    """
    from turnout.demo import page

    folder.mkdir(parents=True, exist_ok=True)
    first = here.run(folder, seconds=seconds, budget_s=duel_budget_s, now=now, environ=environ, progress=progress)
    progress("published GPU: policies side by side", 0.0)
    deadline_s = elsewhere.DEADLINES_S[MODEL]
    busy = elsewhere.Setting(model=MODEL, deadline_s=deadline_s, rate_qps=CONTEST_RATE_QPS, count=queries)
    contest = elsewhere.contest(busy, *CONTEST_FLEET)
    calm = elsewhere.Setting(model=MODEL, deadline_s=deadline_s, rate_qps=RATE_QPS, count=queries)
    demo = Demo(
        date=now.isoformat(timespec="seconds"), here=first, contest=contest, advice=advice.advise(calm, progress)
    )
    store.save(demo, folder / "demo.json")
    store.write_bytes(page.render(demo).encode(), folder / "report.html")
    return demo
