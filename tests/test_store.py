"""Artefacts come back as they were written, and whatever is wrong with a file is said."""

from __future__ import annotations

import json
import math
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout import store
from turnout.core.profile import Parity, Profile, Provenance, Samples
from turnout.errors import ArtefactError

SECONDS = st.floats(min_value=1e-9, max_value=1e6)
SAMPLES = st.builds(
    Samples,
    items=st.integers(1, 4096),
    service_s=st.lists(SECONDS, min_size=1, max_size=5).map(tuple),
    copy_in_s=st.just(()),
    compute_s=st.just(()),
    copy_out_s=st.just(()),
    peak_bytes=st.none() | st.integers(0, 2**40),
)


ONE = (Samples(items=1, service_s=(0.5,)),)


def profile(samples=ONE, model="m"):
    """Build a profile that was measured in a test."""
    return Profile(
        model=model,
        model_digest="d",
        device="cpu",
        device_key="k",
        variant="fp32",
        provenance=Provenance(kind="measured", source="test", date="2026-01-01", hardware="h"),
        samples=samples,
    )


@given(samples=st.lists(SAMPLES, min_size=1, max_size=3).map(tuple), model=st.text())
def test_whatever_is_saved_is_loaded_unchanged(tmp_path_factory, samples, model):
    """Load is the inverse of save, for any float and any name."""
    path = tmp_path_factory.mktemp("store") / "p.json"
    original = profile(samples, model)
    store.save(original, path)
    assert store.load(path, Profile) == original


@given(cut=st.integers(0, 400))
def test_no_prefix_of_an_artefact_is_accepted(tmp_path_factory, cut):
    """A truncated file is refused wherever the cut falls."""
    path = tmp_path_factory.mktemp("store") / "p.json"
    whole = store.encode(profile())
    path.write_bytes(whole[: min(cut, len(whole) - 2)])
    with pytest.raises(ArtefactError):
        store.load(path, Profile)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"  \n", "is empty"),
        (b'{"schema_version":1,', "cut short"),
        (b"\xff\xfe", "damaged"),
        (b"[1,2]", "no artefact"),
        (b'{"schema_version":99,"kind":"profile","body":{}}', "upgrade"),
        (b'{"schema_version":1,"kind":"plan","body":{}}', "is a plan, and a profile is needed"),
        (b'{"schema_version":1,"kind":"profile","body":{"model":3}}', "no artefact"),
    ],
)
def test_a_damaged_file_says_what_is_wrong(tmp_path, content, says):
    """Each way of being wrong has its own message, and the message names the file."""
    path = tmp_path / "p.json"
    path.write_bytes(content)
    with pytest.raises(ArtefactError, match=says) as caught:
        store.load(path, Profile)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_an_artefact_error(tmp_path):
    """No traceback of FileNotFoundError reaches a person."""
    with pytest.raises(ArtefactError, match="does not exist"):
        store.load(tmp_path / "none.json", Profile)


def test_a_folder_in_place_of_the_file_is_an_artefact_error(tmp_path):
    """Reading a folder, or writing where a file stands for a folder, says so."""
    with pytest.raises(ArtefactError, match="cannot read"):
        store.load(tmp_path, Profile)
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtefactError, match="cannot write"):
        store.save(profile(), tmp_path / "file" / "p.json")


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_an_interrupt_leaves_the_old_artefact_and_no_rest(tmp_path, monkeypatch, step):
    """SIGINT between any two steps of a write leaves the old file whole and no temporary one."""
    path = tmp_path / "p.json"
    store.save(profile(model="old"), path)

    def interrupt(*_args, **_more):
        raise KeyboardInterrupt

    target = os if step == "fsync" else store.Path
    monkeypatch.setattr(target, step, interrupt)
    with pytest.raises(KeyboardInterrupt):
        store.save(profile(model="new"), path)
    monkeypatch.undo()
    assert store.load(path, Profile).model == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_envelope_is_plain_json_with_version_and_kind(tmp_path):
    """Other tools can read an artefact: the envelope is the documented one."""
    path = tmp_path / "deep" / "p.json"
    store.save(profile(), path)
    document = json.loads(path.read_text())
    assert (document["schema_version"], document["kind"]) == (store.SCHEMA_VERSION, "profile")
    assert document["body"]["model"] == "m"
    assert path.stat().st_mode & 0o044


def test_an_infinite_figure_cannot_hide_in_an_artefact(tmp_path):
    """JSON has no infinity: what would be stored as null is refused on reading, not read as a number."""
    parity = Parity(ok=False, worst=math.inf, max_abs=math.inf, atol=0.0, rtol=0.0)
    store.save(parity, tmp_path / "p.json")
    with pytest.raises(ArtefactError):
        store.load(tmp_path / "p.json", Parity)
