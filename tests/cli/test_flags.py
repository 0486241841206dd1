"""Values of flags: read as they are written, or refused with the flag and the text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.cli import flags
from turnout.errors import ConfigError

NAMES = st.from_regex(r"[a-z0-9.*-]+", fullmatch=True)


@given(st.lists(st.tuples(NAMES, NAMES), max_size=5), st.integers(0, 5))
def test_pairs_come_in_one_flag_or_several(wanted, at):
    """Joined by commas or given apart, they are the same in the same order; a value may hold a =."""
    texts = [f"{name}={value}=" for name, value in wanted]
    given_ = [",".join(part) for part in (texts[:at], texts[at:]) if part]
    assert flags.pairs("--map", given_) == [(name, f"{value}=") for name, value in wanted]


def test_counts_and_prices():
    """Whole replicas, and dollars with or without a leading zero."""
    assert flags.counts("--fleet", ("gpu=2,cpu=9",)) == {"gpu": 2, "cpu": 9}
    assert flags.prices(("gpu=.5", " cpu=0.17 ")) == {"gpu": 0.5, "cpu": 0.17}


def test_an_objective_has_what_was_given():
    """Milliseconds become seconds; what was not said is not in it."""
    assert flags.objective(150.0, None) == {"deadline_s": 0.15}
    assert flags.objective(None, 0.9) == {"attainment": 0.9}
    assert flags.objective(None, None) == {}


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: flags.pairs("--map", ["a=b,c"]), "--map 'c' is not NAME=VALUE"),
        (lambda: flags.counts("--fleet", ["cpu=-1"]), "--fleet: '-1' is not a number of replicas"),
        (lambda: flags.prices(["cpu=1e3"]), "--price: '1e3' is not an amount in dollars an hour"),
        (lambda: flags.amount("--mix", "nan", "a share"), "--mix: 'nan' is not a share"),
        (lambda: flags.objective(0.0, None), "--slo-ms 0 is not positive"),
        (lambda: flags.objective(float("nan"), None), "--slo-ms nan is not positive"),
        (lambda: flags.objective(float("inf"), None), "--slo-ms inf is not positive"),
        (lambda: flags.objective(None, 1.5), "--attainment 1.5 is not above 0 and at most 1"),
        (lambda: flags.toml("--params", "items ="), "--params 'items =' is not TOML"),
    ],
)
def test_what_a_flag_does_not_take(call, said):
    """The message has the flag and the text."""
    with pytest.raises(ConfigError) as raised:
        call()
    assert said in str(raised.value)
