"""What holds of every shipped policy."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from msgspec.structs import replace

from tests.policies.views import TWO, requests, shown
from turnout import policies
from turnout.errors import ConfigError

PARAMS = {"pinned": {"pools": ["gpu"]}}


@pytest.mark.parametrize("name", sorted(policies.POLICIES))
def test_policies_are_pure(name):
    """Deciding twice on the same view gives the same choices and leaves the view as it was."""
    decide = policies.load(name, PARAMS.get(name, {}))
    seen = shown(TWO, requests([1, 5, 30, 60]))
    before = copy.copy(seen.waiting), copy.copy(seen.replicas)
    first, second = (decide(seen, None, np.random.default_rng(1)) for _ in range(2))
    assert first == second
    assert (seen.waiting, seen.replicas) == before


def test_an_unknown_policy_or_parameter_is_said_with_what_there_is():
    """The message lists the policies, or the parameters."""
    with pytest.raises(ConfigError, match="there are: turnout"):
        policies.load("fastest", {})
    with pytest.raises(ConfigError, match="its parameters are: items"):
        policies.load("threshold", {"size": 3})


@pytest.mark.parametrize("name", sorted(policies.POLICIES))
def test_a_tick_without_a_free_slot_does_not_look_at_the_queue(name):
    """Under overload that is the usual tick, and a long queue must not make it dear."""

    class Untouched(tuple):
        __slots__ = ()

        def __iter__(self):
            raise AssertionError("the queue was read")

    seen = shown(TWO, requests([1]))
    busy = tuple(replace(r, slots_left=0) for r in seen.replicas)
    seen = replace(seen, waiting=Untouched(seen.waiting), replicas=busy)
    choices, _ = policies.load(name, PARAMS.get(name, {}))(seen, None, np.random.default_rng(0))
    assert choices == []
