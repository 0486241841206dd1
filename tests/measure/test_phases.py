"""Time is counted once, under the operator that spent it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.graphs import embedding
from turnout.measure import phases
from turnout.measure.artefact import Branching


def event(operator, start_us, dur_us):
    """A node event as ONNX Runtime's profile has it."""
    return {
        "cat": "Node",
        "name": f"{operator}_kernel_time",
        "ts": start_us,
        "dur": dur_us,
        "args": {"op_name": operator},
    }


def run(start_us, dur_us):
    """A run's own event."""
    return {"cat": "Session", "name": "model_run", "ts": start_us, "dur": dur_us, "args": {}}


def test_a_subgraphs_time_is_not_counted_twice():
    """An If of 100 µs that holds a Conv of 70 and an If of 20 with a Gather of 5 spent 10 + 15 itself."""
    events = [
        run(0, 10),
        event("Conv", 1, 5),
        run(20, 200),
        event("If", 30, 100),
        event("Conv", 35, 70),
        event("If", 106, 20),
        event("Gather", 110, 5),
        event("Relu", 140, 8),
    ]
    assert phases.exclusive_us(events) == {"If": 25, "Conv": 70, "Gather": 5, "Relu": 8}


@given(st.dictionaries(st.sampled_from(["If", "Conv", "Gather", "Add", "TopK"]), st.floats(0, 1e6), min_size=1))
def test_shares_are_shares(times):
    """The branching share is that of the branching operators, and lies between 0 and 1."""
    split = phases.split(times, phases.BRANCHING, "test")
    total = sum(times.values()) or 1.0
    expected = sum(t for name, t in times.items() if name in phases.BRANCHING) / total
    assert split.share == pytest.approx(expected)
    assert 0.0 <= split.share <= 1.0 + 1e-9


def test_a_models_lookups_are_found_in_its_profile(tmp_path):
    """ONNX Runtime's real profile of an embedding names its Gather."""
    import numpy as np

    split = phases.of_onnx(embedding(tmp_path / "e.onnx"), {"ids": np.zeros((4, 8), np.int32)}, 1)
    assert "Gather" in split.operators
    assert 0.0 < split.share < 1.0


def test_python_is_told_from_tensor_work():
    """A loop in Python is named; a product of matrices is not Python's."""
    import numpy as np

    matrix = np.ones((300, 300))

    def loop():
        return sum(i * i for i in range(20_000))

    assert phases.of_function(loop, "loop").share > 0.9
    assert (
        phases.of_function(
            lambda: [matrix @ matrix for _ in range(3)] and np.linalg.inv(matrix + np.eye(300)), "dot"
        ).share
        < 0.9
    )


def test_a_request_is_its_parts_by_their_time():
    """Half the time in Python ends makes their branching count half."""
    none = Branching(share=0.0, operators={}, tensor={"Conv": 1.0}, source="a")
    python = Branching(share=1.0, operators={"f": 1.0}, tensor={}, source="b")
    whole = phases.combine(none, {"pre": (1.0, python)}, 1.0)
    assert whole.share == 0.5
    assert whole.operators == {"pre: f": 0.5}
    assert whole.tensor == {"Conv": 0.5}
