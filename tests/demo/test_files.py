"""Real files become the model's inputs as the model was trained on them."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from turnout.demo import files


@given(st.binary(max_size=5000))
def test_features_are_the_ends_of_a_file_without_white_space(content):
    """1,024 bytes from the front and from the back, padded with 256 behind and before."""
    row = files.features(content[:4096], content[-4096:])
    assert row.shape == (2048,)
    assert row.dtype == np.int32
    front, back = content[:4096].lstrip()[:1024], content[-4096:].rstrip()[-1024:]
    assert bytes(row[: len(front)].astype(np.uint8)) == front
    assert bytes(row[2048 - len(back) :].astype(np.uint8)) == back
    assert set(row[len(front) : 1024]) <= {256}
    assert set(row[1024 : 2048 - len(back)]) <= {256}


def test_files_that_say_nothing_are_left_out(tmp_path):
    """Too small or unreadable is None, and not a row of padding."""
    (tmp_path / "tiny").write_bytes(b"ab")
    (tmp_path / "fine").write_bytes(b"import os\n" * 10)
    assert files.read(tmp_path / "tiny") is None
    assert files.read(tmp_path / "gone") is None
    assert files.read(tmp_path / "fine") is not None


def test_a_sample_is_the_same_for_the_same_seed():
    """Real files of this disk, in an order that the seed decides."""
    assert np.array_equal(files.sample(16, seed=1), files.sample(16, seed=1))


def test_the_model_knows_its_classes():
    """One name per output of the model."""
    assert len(files.labels()) == 214
    assert "python" in files.labels()
