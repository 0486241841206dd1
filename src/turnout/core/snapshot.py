"""All that a router needs to go on, as one value: it heads every log segment but the first."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from numpy.random import Generator

from turnout.core.latency import CalibrationState
from turnout.core.ledger import Request
from turnout.core.policy import Waiting
from turnout.core.replicas import Batch, Replica
from turnout.core.standing import Standing


class GeneratorState(Struct, frozen=True, kw_only=True):
    """A PCG64 generator; its 128-bit integers are decimal strings, which JSON can carry."""

    state: str
    inc: str
    has_uint32: int
    uinteger: int


class Snapshot(Struct, kw_only=True):
    """The router's mutable state. `latest_start_s` runs beside `waiting`, None for "served however late"."""

    requests: list[Request]
    waiting: list[Waiting]
    latest_start_s: list[float | None]
    replicas: list[Replica]
    reported_s: dict[str, float]
    batches: list[Batch]
    next_batch: int
    calibrations: dict[str, dict[str, CalibrationState]]
    standings: dict[str, Standing]
    hedges_left: float
    closing_s: float | None
    wake_s: float | None
    policy_state: Any
    rng: GeneratorState


def save_generator(rng: Generator) -> GeneratorState:
    """The state of a PCG64 generator."""
    state = rng.bit_generator.state
    return GeneratorState(
        state=str(state["state"]["state"]),
        inc=str(state["state"]["inc"]),
        has_uint32=int(state["has_uint32"]),
        uinteger=int(state["uinteger"]),
    )


def restore_generator(rng: Generator, saved: GeneratorState) -> None:
    """Set a PCG64 generator to a saved state."""
    rng.bit_generator.state = {
        "bit_generator": "PCG64",
        "state": {"state": int(saved.state), "inc": int(saved.inc)},
        "has_uint32": saved.has_uint32,
        "uinteger": saved.uinteger,
    }
