"""The optimum is right where it can be seen by hand, and refuses what it cannot do."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings

from tests.bounds.instances import cases
from turnout.bounds.exact import exact
from turnout.bounds.schedule import Instance, missed


def instance(items, at_s=None, deadline_s=3.0, machines=1, **changes):
    """Batches of m items take 1 + m seconds."""
    n = len(items)
    return Instance(
        at_s=np.zeros(n) if at_s is None else np.array(at_s),
        items=np.array(items),
        deadline_s=np.full(n, deadline_s),
        replicas=(machines,),
        seconds=((1.0 + np.arange(9.0))[None, :],),
        **changes,
    )


def by_trying_all(case):
    """Fewest misses without merging: every assignment of every order of the requests."""
    whole = case.instance()
    work_s, due_s, machines = whole.alone_s(), whole.due_s, whole.machines
    fewest = len(whole)
    for order in permutations(range(len(whole))):
        for chosen in product(range(-1, len(machines)), repeat=len(whole)):
            free_s = [0.0] * len(machines)
            misses = 0
            for rid in order:
                if chosen[rid] < 0:
                    misses += 1
                    continue
                end_s = max(free_s[chosen[rid]], whole.at_s[rid]) + work_s[rid, machines[chosen[rid]]]
                free_s[chosen[rid]] = end_s
                misses += end_s > due_s[rid]
            fewest = min(fewest, misses)
    return fewest


@given(cases(most=4))
@settings(max_examples=25, deadline=None)
def test_it_is_what_trying_everything_finds(case):
    """Without merging, against all orders and assignments."""
    if not case.merge:
        assert exact(case.instance()).misses == by_trying_all(case)


def test_merging_and_splitting_help_as_they_should():
    """Two of one item take 4 s apart and 3 s together; one of four takes 5 s whole and 3 s on two machines."""
    assert exact(instance([1, 1])).misses == 1
    assert exact(instance([1, 1], merge=True)).misses == 0
    assert exact(instance([4], machines=2)).misses == 1
    split = instance([4], machines=2, merge=True, max_parts=4)
    assert exact(split).misses == 0
    assert len(missed(split, exact(split).schedule)) == 0


def test_the_luckiest_leads():
    """A batch takes the row of its leader; who knows all rows lets the quickest lead."""
    tables = (np.array([[0.0, 9.0, 9.0], [0.0, 9.0, 2.0]]),)
    both = Instance(
        at_s=np.zeros(2),
        items=np.ones(2, dtype=np.int64),
        deadline_s=np.full(2, 3.0),
        replicas=(1,),
        seconds=tables,
        luck=lambda rid, start: rid,
        merge=True,
    )
    found = exact(both)
    assert found.misses == 0
    assert found.schedule[0].parts[0].rid == 1


def test_what_is_too_large_is_refused():
    """Eleven requests, and cuts that are fewer than the items."""
    with pytest.raises(ValueError, match="11 units are too many"):
        exact(instance([1] * 11))
    with pytest.raises(ValueError, match="not exact"):
        exact(instance([3], max_parts=2))
