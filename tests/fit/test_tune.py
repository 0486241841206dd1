"""Parameters are chosen by what they are worth, and recommended only if they help every time."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.fit.logs import write_log
from tests.fleets import configured
from turnout import policies, simulate
from turnout.fit import recorded
from turnout.fit.tune import Tuner, improves, worth


def summary(attainment, cost=1.0):
    """A simulation that came to this."""
    base = simulate.run(configured(), (), {}, policies.load)
    return replace(base, attainment=attainment, usd_per_million_met=cost)


def test_attainment_counts_up_to_the_goal_and_then_dollars():
    """Below the goal more requests in time are worth more; above it the cheaper is."""
    assert worth(summary(0.98, 5.0), 0.99) > worth(summary(0.97, 1.0), 0.99)
    assert worth(summary(0.992, 1.0), 0.99) > worth(summary(0.999, 2.0), 0.99)
    assert worth(summary(0.0, 1.0), 0.99) > worth(replace(summary(0.0), usd_per_million_met=None), 0.99)


@pytest.mark.parametrize(
    ("attainment", "cost", "better"),
    [(0.96, 1.0, True), (0.95, 0.9, True), (0.9499, 0.5, False), (0.9501, 1.0, False), (0.95, 0.995, False)],
)
def test_an_improvement_is_clear(attainment, cost, better):
    """More in time, or cheaper with no fewer in time; a hair of either is none."""
    assert improves(summary(0.95, 1.0), summary(attainment, cost)) == better


@pytest.mark.parametrize(("good_seeds", "helps"), [({0, 1, 2}, True), ({0, 2}, False)])
def test_parameters_have_to_help_with_every_seed(tmp_path, good_seeds, helps):
    """One simulation in which the new parameters do not help is enough to keep the old ones."""
    run = recorded.read(write_log(tmp_path))

    def stub(head, *rest, **more):
        new = head.params == {"items": 7}
        return summary(0.99 if new and head.seed in good_seeds else 0.9)

    change = Tuner(policies.load, stub).compare(run.held_out, {}, {"items": 7})
    assert change.params_help == helps
    assert change.recommended.attainment == pytest.approx(0.99 if helps else 0.9)


def test_a_policy_without_a_grid_keeps_its_parameters(tmp_path):
    """Nothing is simulated where there is nothing to choose from."""
    run = recorded.read(write_log(tmp_path))

    def never(*rest, **more):
        raise AssertionError

    tuning = Tuner(policies.load, never).tune(run.fitting, {}, {})
    assert (tuning.best, tuning.trials) == (run.configured.params, ())
