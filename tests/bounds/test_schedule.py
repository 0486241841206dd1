"""The check of schedules counts misses by the rules and refuses what breaks one."""

from __future__ import annotations

import numpy as np
import pytest

from turnout.bounds.schedule import Batch, Instance, missed
from turnout.core.events import Part


def instance(**changes):
    """Three requests of 2 items on two machines, whose batches of m items take m seconds."""
    fields = {
        "at_s": np.array([0.0, 0.0, 1.0]),
        "items": np.array([2, 2, 2]),
        "deadline_s": np.array([3.0, 4.0, 3.0]),
        "replicas": (2,),
        "seconds": (np.arange(5.0)[None, :],),
        "merge": True,
        "max_parts": 2,
    }
    return Instance(**{**fields, **changes})


def batch(machine, start_s, *parts):
    """A batch of (rid, start, items)."""
    return Batch(machine=machine, start_s=start_s, parts=tuple(Part(*part) for part in parts))


def test_what_is_whole_and_in_time_is_met():
    """Request 0 is whole by 3 s, 1 lacks an item, 2 is late."""
    schedule = [
        batch(0, 0.0, (0, 0, 1)),
        batch(0, 1.0, (0, 1, 1), (1, 0, 1)),
        batch(1, 3.0, (2, 0, 2)),
    ]
    assert missed(instance(), schedule).tolist() == [1, 2]
    assert missed(instance(), []).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        ([batch(0, 0.0, (0, 0, 2)), batch(0, 1.9, (1, 0, 2))], "machine 0 is busy"),
        ([batch(0, 0.9, (2, 0, 2))], "request 2 has not arrived"),
        ([batch(0, 0.0, (0, 0, 2), (1, 0, 2), (1, 0, 1))], "between 1 and 4 items"),
        ([batch(0, 0.0)], "between 1 and 4 items"),
        ([batch(0, 0.0, (0, 0, 3))], "request 0 has no items 0"),
        ([batch(0, 0.0, (0, 0, 2)), batch(1, 0.0, (0, 1, 1))], "item 1 of request 0 is run twice"),
    ],
)
def test_what_breaks_a_rule_is_refused(schedule, words):
    """Each rule, with the words that say which."""
    with pytest.raises(ValueError, match=words):
        missed(instance(), schedule)


def test_merging_and_splitting_need_leave():
    """Without it, a shared batch and a cut request are refused."""
    with pytest.raises(ValueError, match="must not share"):
        missed(instance(merge=False), [batch(0, 0.0, (0, 0, 2), (1, 0, 2))])
    with pytest.raises(ValueError, match="cut into 2 parts"):
        missed(instance(max_parts=1), [batch(0, 0.0, (0, 0, 1)), batch(1, 0.0, (0, 1, 1))])


def test_work_is_what_the_tables_say():
    """Alone a request takes its row's seconds, and cannot be where it is too large or late; shared, the best rate."""
    lucky = instance(
        items=np.array([1, 2, 4]),
        seconds=(np.array([[0.0, 1.0, 2.0, 3.5], [0.0, 2.0, 5.0, 9.0]]),),
        luck=lambda rid, start: rid % 2,
    )
    assert lucky.alone_s()[:, 0].tolist() == [1.0, np.inf, np.inf]
    assert lucky.shared_s()[:, 0].tolist() == [1.0, 2.0, 4.0]
    assert lucky.max_items == (3,)
    assert lucky.machines == (0, 0)
