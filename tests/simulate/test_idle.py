"""An objective that an idle fleet misses is refused with the smallest that it can meet; one that it meets is not."""

from __future__ import annotations

import pytest

from tests.fleets import configured, pool
from turnout.core.latency import line
from turnout.core.trace import make
from turnout.core.workload import Slo
from turnout.errors import CheckFailedError
from turnout.simulate.idle import check_idle, idle_s, least_deadline_s

NOISY = line(0.0, 0.001, (0.9,) * 50 + (1.1,) * 50)


def fleet(deadline_s, attainment=0.9, **changes):
    """One replica that takes a millisecond per item, at most 64 of them."""
    return configured(
        pool("cpu", replicas=1, **changes),
        latency={"cpu": NOISY},
        workload={"slo": Slo(deadline_s=deadline_s, attainment=attainment)},
    )


def sizes(*items):
    """Requests of these sizes."""
    return make(range(len(items)), items, "x", "m")


def test_seconds_of_each_request_alone():
    """A millisecond per item, in halves where they may be cut, and for ever where no pool takes it."""
    assert idle_s(fleet(0.050), sizes(40, 1, 100)).tolist() == pytest.approx([0.040, 0.001, float("inf")])
    assert idle_s(fleet(0.050), sizes(41, 100), {"m": 2}).tolist() == pytest.approx([0.021, 0.050])


def test_what_idle_machines_meet_is_let_through():
    """Ten per cent may be missed, and ten per cent are too slow."""
    check_idle(fleet(0.050), sizes(*[40] * 9, 60))


def test_what_they_miss_is_refused_with_the_least_deadline():
    """Two of ten take 60 ms: the least deadline for 90 % is that of the ninth, at the tail of its service time."""
    trace = sizes(*[40] * 8, 60, 61)
    with pytest.raises(CheckFailedError, match=r"20\.0% of the requests take .* 10\.0% may; .* 66 ms"):
        check_idle(fleet(0.050), trace)
    least_s = least_deadline_s(fleet(0.050), trace, "m")
    assert least_s == pytest.approx(0.066)
    check_idle(fleet(least_s), trace)


def test_splitting_helps():
    """In two parts the same requests are feasible, and the least deadline is half as long."""
    trace = sizes(*[60] * 10)
    with pytest.raises(CheckFailedError, match="even idle"):
        check_idle(fleet(0.050), trace)
    check_idle(fleet(0.050), trace, 2)
    check_idle(fleet(0.050), trace, {"m": 2})
    with pytest.raises(CheckFailedError, match="split into up to 2 parts"):
        check_idle(fleet(0.020), trace, {"m": 2})
    assert least_deadline_s(fleet(0.050), trace, "m", 2) == pytest.approx(0.033)


def test_what_no_pool_takes_has_no_deadline():
    """Requests beyond every pool's largest batch are said to be that."""
    with pytest.raises(CheckFailedError, match=r"no deadline is long enough, as 50\.0% of them are larger"):
        check_idle(fleet(1.0), sizes(65, 1))


def test_deadlines_of_the_trace_are_what_counts():
    """A trace with deadlines of its own is held against those."""
    trace = make(range(2), [40, 40], "x", "m", [0.030, 0.030])
    with pytest.raises(CheckFailedError, match=r"100\.0% of the requests"):
        check_idle(fleet(1.0), trace)


def test_a_pool_that_may_not_be_used_does_not_count():
    """One whose outputs disagree with the reference takes nothing."""
    with pytest.raises(CheckFailedError, match="no deadline is long enough"):
        check_idle(fleet(1.0, parity_ok=False), sizes(1, 1))
