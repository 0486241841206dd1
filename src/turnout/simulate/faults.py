"""What breaks in a simulation, and when: read from texts, and turned into events and slower service times.

    lost:gpu-0@30             the replica is gone from second 30 on, and every batch on it
    lost:gpu-0@30,back=60     the same; it starts again at once, and is up from second 60 on (its cold start)
    slow:gpu-0@30-60,factor=3 batches that begin on this one replica in those seconds take three times as long
    drift:gpu@30,factor=2     all batches of the pool that begin at second 30 or later take twice as long
    cold:gpu-0,start_s=600    the replica only begins to start at second 0, and is up from second 600 on

Seconds are those of the trace. The policy is told of losses and starts, as a supervisor would tell it; that a replica
or a pool is slow it has to find out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from turnout.core import events as ev
from turnout.core.events import Event
from turnout.core.fleet import Fleet
from turnout.errors import ConfigError
from turnout.simulate import Slow
from turnout.simulate.draws import Draw, drift

FORMS = "lost:gpu-0@30, lost:gpu-0@30,back=60, slow:gpu-0@30-60,factor=3, drift:gpu@30,factor=2, cold:gpu-0,start_s=600"
"""One example of each, for messages."""

_SECONDS = r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+"


class Lost(Struct, frozen=True, kw_only=True, tag="lost"):
    """A replica that is gone from `at_s` on; it comes back at `back_s`, or never."""

    replica: str
    at_s: float
    back_s: float | None = None


class SlowReplica(Struct, frozen=True, kw_only=True, tag="slow"):
    """A replica on which batches that begin from `from_s` to `until_s` take `factor` times as long."""

    replica: str
    from_s: float
    until_s: float
    factor: float


class Drifted(Struct, frozen=True, kw_only=True, tag="drift"):
    """A pool on which batches that begin from `from_s` on take `factor` times as long."""

    pool: str
    from_s: float
    factor: float


class Cold(Struct, frozen=True, kw_only=True, tag="cold"):
    """A replica that is starting at the beginning, and up from `start_s` on."""

    replica: str
    start_s: float


Fault = Lost | SlowReplica | Drifted | Cold


def parse(text: str, fleet: Fleet) -> Fault:
    """One fault of a replica or pool of `fleet`.

    Raises:
        ConfigError: the text is none of the forms, or names what is not in the fleet.
    """
    kind, _, said = text.partition(":")
    form = _FORMS.get(kind)
    found = form.fullmatch(said) if form else None
    if found is None:
        raise ConfigError(f"--fault {text!r} is none of: {FORMS}")
    name, numbers = found[1], [None if part is None else float(part) for part in found.groups()[1:]]
    known = [p.name for p in fleet.pools] if kind == "drift" else _replicas(fleet)
    if name not in known:
        raise ConfigError(f"--fault {text!r}: there is no {name!r}; there are: {', '.join(known)}")
    fault = _fault(kind, name, numbers)
    _check(text, fault)
    return fault


_FORMS = {
    "lost": re.compile(rf"([^@,]+)@({_SECONDS})(?:,back=({_SECONDS}))?"),
    "slow": re.compile(rf"([^@,]+)@({_SECONDS})-({_SECONDS}),factor=({_SECONDS})"),
    "drift": re.compile(rf"([^@,]+)@({_SECONDS}),factor=({_SECONDS})"),
    "cold": re.compile(rf"([^@,]+),start_s=({_SECONDS})"),
}


def _fault(kind: str, name: str, numbers: Sequence[float | None]) -> Fault:
    first, *others = (0.0 if number is None else number for number in numbers)
    if kind == "lost":
        return Lost(replica=name, at_s=first, back_s=numbers[1])
    if kind == "slow":
        return SlowReplica(replica=name, from_s=first, until_s=others[0], factor=others[1])
    if kind == "drift":
        return Drifted(pool=name, from_s=first, factor=others[0])
    return Cold(replica=name, start_s=first)


def _check(text: str, fault: Fault) -> None:
    """The order of times, and factors that leave some time to take."""
    if isinstance(fault, Lost) and fault.back_s is not None and fault.back_s < fault.at_s:
        raise ConfigError(f"--fault {text!r}: it comes back before it is lost")
    if isinstance(fault, SlowReplica) and fault.until_s <= fault.from_s:
        raise ConfigError(f"--fault {text!r}: the slow time ends before it begins")
    if isinstance(fault, SlowReplica | Drifted) and fault.factor <= 0.0:
        raise ConfigError(f"--fault {text!r}: the factor is not above 0")


def _replicas(fleet: Fleet) -> list[str]:
    return [f"{pool.name}-{i}" for pool in fleet.pools for i in range(pool.replicas)]


def text(fault: Fault) -> str:
    """The fault as `parse` reads it."""
    if isinstance(fault, Lost):
        back = "" if fault.back_s is None else f",back={fault.back_s:g}"
        return f"lost:{fault.replica}@{fault.at_s:g}{back}"
    if isinstance(fault, SlowReplica):
        return f"slow:{fault.replica}@{fault.from_s:g}-{fault.until_s:g},factor={fault.factor:g}"
    if isinstance(fault, Drifted):
        return f"drift:{fault.pool}@{fault.from_s:g},factor={fault.factor:g}"
    return f"cold:{fault.replica},start_s={fault.start_s:g}"


def spans(fault: Fault) -> tuple[float, float | None]:
    """The seconds from which and until which it lasts; None if it does to the end."""
    if isinstance(fault, Lost):
        return fault.at_s, fault.back_s
    if isinstance(fault, SlowReplica):
        return fault.from_s, fault.until_s
    if isinstance(fault, Drifted):
        return fault.from_s, None
    return 0.0, fault.start_s


# ---- into a simulation -----------------------------------------------------------------------------------------------


def events(faults: Sequence[Fault], fleet: Fleet, at_s: float = 0.0) -> list[Event]:
    """Losses and starts as `simulate.run` takes them; `at_s` is when the run begins."""
    pool_of = {f"{pool.name}-{i}": pool.name for pool in fleet.pools for i in range(pool.replicas)}
    found: list[Event] = []
    for fault in faults:
        if isinstance(fault, Lost):
            found.append(ev.ReplicaDown(at_s=fault.at_s, replica=fault.replica, why="lost"))
        if isinstance(fault, Lost | Cold):
            begin_s, up_s = spans(fault) if isinstance(fault, Lost) else (at_s, fault.start_s)
            if up_s is not None:
                pool = pool_of[fault.replica]
                found.append(ev.ReplicaStarting(at_s=begin_s, replica=fault.replica, pool=pool, ready_s=up_s))
                found.append(ev.ReplicaUp(at_s=up_s, replica=fault.replica, pool=pool))
    return found


def slow(faults: Sequence[Fault]) -> Slow | None:
    """How much slower each replica is at a time; None if none ever is."""
    spells: dict[str, list[SlowReplica]] = {}
    for fault in faults:
        if isinstance(fault, SlowReplica):
            spells.setdefault(fault.replica, []).append(fault)
    if not spells:
        return None

    def factor(replica: str, now_s: float) -> float:
        product = 1.0
        for spell in spells.get(replica, ()):
            if spell.from_s <= now_s < spell.until_s:
                product *= spell.factor
        return product

    return factor


def drifted(draw: Draw, pool: str, faults: Sequence[Fault]) -> Draw:
    """`draw` of a model on `pool`, with every drift of that pool."""
    for fault in faults:
        if isinstance(fault, Drifted) and fault.pool == pool:
            draw = drift(draw, fault.factor, fault.from_s)
    return draw
