"""What a policy needs is asked for when it is loaded, never in the middle of a run."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

from turnout import policies
from turnout.errors import ExtraMissingError

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", ["turnout", "kairos"])
def test_without_scipy_a_policy_that_matches_is_refused_at_once(monkeypatch, name):
    """The message names the package and the extra that brings it."""
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(ExtraMissingError, match=r"turnout, which is the default.*scipy.*\[match\]"):
        policies.load(name, {})
    assert policies.load("earliest", {})


def test_the_gateway_brings_what_its_default_policy_needs():
    """The extras of `turnout serve` and of the demo have scipy in them, as the extra named in the message has."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert all(any(need.startswith("scipy") for need in extras[name]) for name in ("serve", "match"))
    assert "serve" in extras["demo"][0]
