"""Pinned: the named pools and no others."""

from __future__ import annotations

from tests.policies.views import TWO, choices, pools_of, replica, requests, shown


def test_whatever_else_is_idle():
    """Two requests share the only pool there is for them; when that is busy they wait."""
    assert pools_of(choices("pinned", shown(TWO, requests([1, 1])), pools=["gpu"])) == {0: {"gpu"}, 1: {"gpu"}}
    lanes = [replica("cpu"), replica("gpu", free_s=1.0, slots=0)]
    assert pools_of(choices("pinned", shown(TWO, requests([1]), lanes), pools=["gpu"])) == {}
