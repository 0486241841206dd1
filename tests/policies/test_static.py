"""The rule of thumb: its numbers and their order are those of its page, and load plays no part."""

from __future__ import annotations

import pytest

from tests.policies.views import TWO, choices, pools_of, replica, request, shown

POOLS = {"cpu": {"max_items": 512}, "gpu": {"max_items": 512}}
LARGE_MODEL = 10_000_000_001

RULES = [
    # items, time until due, weights, side
    (7, 0.5, LARGE_MODEL, "cpu"),  # below 8, before all else
    (8, 0.5, LARGE_MODEL, "gpu"),
    (256, 0.5, 0, "cpu"),
    (257, 0.5, 0, "gpu"),  # above 256, whatever follows
    (257, 0.049, 0, "gpu"),
    (100, 0.049, LARGE_MODEL, "cpu"),  # a tight deadline comes before the weights
    (100, 0.050, LARGE_MODEL, "gpu"),
    (100, 0.5, LARGE_MODEL - 1, "cpu"),  # 10 billion is not over 10 billion
]


@pytest.mark.parametrize(("items", "due_s", "weights", "side"), RULES)
def test_size_then_deadline_then_weights(items, due_s, weights, side):
    """Each row is one edge of the rule."""
    view = shown(TWO, [request(0, items, due_s)], slo_s=due_s, pools=POOLS, models={"m": {"weights": weights}})
    assert pools_of(choices("static", view)) == {0: {side}}


def test_load_plays_no_part():
    """The CPU is busy for longer than there is time, and the GPU idle: it stays where it is."""
    lanes = [replica("cpu", free_s=1.0, slots=0), replica("gpu")]
    assert pools_of(choices("static", shown(TWO, [request(0, 7)], lanes))) == {}


def test_the_numbers_are_parameters():
    """All four of them."""
    view = shown(TWO, [request(0, 20, 0.5)], slo_s=0.5, pools=POOLS, models={"m": {"weights": 5}})
    assert pools_of(choices("static", view, large=19)) == {0: {"gpu"}}
    assert pools_of(choices("static", view, weights=4)) == {0: {"gpu"}}
    assert pools_of(choices("static", view, weights=4, small=21)) == {0: {"cpu"}}
    assert pools_of(choices("static", view, weights=4, tight_s=0.6)) == {0: {"cpu"}}
