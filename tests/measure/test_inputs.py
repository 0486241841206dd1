"""Inputs follow the model's description and the user's word, and the same seed gives the same inputs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.errors import ArtefactError, ConfigError, ModelError
from turnout.measure import inputs, parity
from turnout.pools.base import TensorSpec

VAD = (
    TensorSpec(name="input", datatype="FP32", shape=(-1, -1), batch_axis=0, symbols=("", "")),
    TensorSpec(name="state", datatype="FP32", shape=(2, -1, 128), batch_axis=1, symbols=("", "", "")),
    TensorSpec(name="sr", datatype="INT64", shape=(), batch_axis=None),
)
IDS = (TensorSpec(name="ids", datatype="INT32", shape=(-1, -1), batch_axis=0, symbols=("batch", "sequence_length")),)


def made(specs, items, **more):
    """The inputs for a batch, with nothing overridden unless given."""
    given_ = {"seed": 0, "overrides": {}, "dims": {}, "limits": {}}
    make, _ = inputs.maker(specs, **(given_ | more))
    return make(items)


def test_a_stateful_model_with_nameless_sizes_gets_its_inputs():
    """The batch runs along each input's own axis, open sizes are guessed, a sampling rate has a sane value."""
    tensors = made(VAD, 3)
    assert tensors["input"].shape == (3, 512)
    assert tensors["state"].shape == (2, 3, 128)
    assert tensors["sr"] == 16_000
    assert {k: v.dtype.name for k, v in tensors.items()} == {"input": "float32", "state": "float32", "sr": "int64"}


def test_the_users_word_is_final():
    """Shapes, types, values and named sizes override every guess."""
    overrides = dict([inputs.parse_override("input=Nx576:float64"), inputs.parse_override("sr=@8000")])
    tensors = made(VAD, 2, overrides=overrides)
    assert (tensors["input"].shape, tensors["input"].dtype.name) == ((2, 576), "float64")
    assert tensors["sr"] == 8000
    assert made(IDS, 2, dims={"sequence_length": 9})["ids"].shape == (2, 9)


def test_ids_stay_within_their_table():
    """Random integers stay below the rows of the embedding that they look up."""
    assert made(IDS, 64, limits={"ids": 7})["ids"].max() == 6


@pytest.mark.parametrize("text", ["input", "=3", "x=axb", "x=3:nothing", "x=@one", "x=1.5", "x=Nx-5", f"x=Nx{10**30}"])
def test_a_malformed_override_is_refused(text):
    """The message shows the form."""
    with pytest.raises(ConfigError, match="NAME="):
        inputs.parse_override(text)


def test_a_name_that_the_model_lacks_is_refused():
    """A misspelt input or size is no silent guess; the message lists what there is."""
    with pytest.raises(ConfigError, match="names inptu, and the model has: input, state, sr"):
        made(VAD, 1, overrides={"inptu": inputs.Override()})
    with pytest.raises(ConfigError, match="--dim names seq"):
        made(IDS, 1, dims={"seq": 3})


@given(st.integers(1, 40), st.integers(0, 2**31))
def test_the_same_seed_gives_the_same_inputs(items, seed):
    """Two makers with one seed agree, so every device sees the same numbers."""
    first, second = made(VAD, items, seed=seed), made(VAD, items, seed=seed)
    assert all((first[name] == second[name]).all() for name in first)


@pytest.mark.parametrize("datatype", sorted(inputs.NUMPY_TYPES))
def test_every_datatype_can_be_made(datatype):
    """Each datatype of the protocol has inputs of its numpy type."""
    spec = TensorSpec(name="x", datatype=datatype, shape=(-1, 2), symbols=("n", ""))
    assert made((spec,), 3)["x"].dtype == np.dtype(inputs.NUMPY_TYPES[datatype])


def test_inputs_from_a_file_are_repeated_to_the_batch(tmp_path):
    """Real rows fill any batch size along each input's own axis; what is shared stays as it is."""
    path = tmp_path / "in.npz"
    np.savez(path, input=np.arange(6.0).reshape(2, 3), state=np.zeros((2, 2, 128)), sr=np.array(8000))
    make, words = inputs.from_file(path, VAD)
    assert make(5)["input"][:, 0].tolist() == [0, 3, 0, 3, 0]
    assert make(5)["state"].shape == (2, 5, 128)
    assert make(1)["sr"] == 8000
    assert "in.npz" in words["input"]


def test_a_file_that_does_not_fit_is_refused(tmp_path):
    """Missing, damaged, or with other names than the model's: each says so."""
    with pytest.raises(ArtefactError):
        inputs.from_file(tmp_path / "none.npz", VAD)
    (tmp_path / "bad.npz").write_bytes(b"PK\x03\x04 cut")
    with pytest.raises(ArtefactError):
        inputs.from_file(tmp_path / "bad.npz", VAD)
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    with pytest.raises(ModelError, match=r"has the arrays \['x'\]"):
        inputs.from_file(tmp_path / "other.npz", VAD)


def test_outputs_that_are_not_numbers_have_no_parity():
    """A NaN or an infinity in the reference is refused, in another contender it is a disagreement."""
    fine, broken = {"y": np.array([[1.0, 2.0]])}, {"y": np.array([[1.0, np.nan]])}
    parity.require_finite(fine)
    with pytest.raises(ModelError, match="not finite"):
        parity.require_finite(broken)
    found = parity.compare(broken, fine, "fp32")
    assert not found.ok
    assert np.isfinite(found.worst)


@given(st.floats(-1e3, 1e3), st.floats(0, 1e-2))
def test_parity_is_the_stated_tolerance(value, error):
    """Outputs agree exactly when |x - y| <= atol + rtol |y| with the tolerance that is reported."""
    wanted = {"y": np.array([[value, 1.0]])}
    got = {"y": wanted["y"] + error}
    found = parity.compare(got, wanted, "fp32")
    bound = found.atol + found.rtol * np.abs(wanted["y"])
    assert found.ok == bool((np.abs(got["y"] - wanted["y"]) <= bound).all())


def test_other_shapes_names_or_labels_disagree():
    """Outputs that cannot be compared number by number agree only if they are equal."""
    wanted = {"y": np.zeros((2, 2))}
    assert not parity.compare({"y": np.zeros((2, 3))}, wanted, "fp32").ok
    assert not parity.compare({"z": np.zeros((2, 2))}, wanted, "fp32").ok
    words = {"y": np.array(["cat", "dog"], dtype=object)}
    assert parity.compare(words, words, "fp32").ok
    assert not parity.compare({"y": np.array(["cat", "cow"], dtype=object)}, words, "fp32").ok
