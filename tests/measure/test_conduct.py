"""A whole duel on small models: what comes out is complete, honest about what was left out, and repeatable."""

import sys
import types
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from tests.graphs import embedding, logarithm, mlp, write
from turnout import measure, store
from turnout.core.latency import fit
from turnout.core.profile import Profile
from turnout.errors import ConfigError, DeviceAbsentError, ModelError
from turnout.measure import machine
from turnout.pools import onnx

NOW = datetime(2026, 12, 1, tzinfo=UTC)


def run(model, **options):
    """Run a short duel."""
    chosen = {"sizes": (1, 4), "budget_s": 1.0, "devices": ("cpu",)} | options
    return measure.run(str(model), measure.Options(**chosen), now=NOW, environ={})


@pytest.fixture(scope="module")
def duel(tmp_path_factory):
    """A duel of a small MLP."""
    return run(mlp(tmp_path_factory.mktemp("duel") / "mlp.onnx"))


def test_a_duel_says_everything_behind_its_answer(duel):
    """Provenance, cold start, parity, placement, memory, prices and inputs are all in the artefact."""
    for entry in duel.entries:
        profile = entry.profile
        assert profile.provenance.kind == "measured"
        assert profile.provenance.date.startswith("2026-12-01")
        assert profile.provenance.versions["onnxruntime"]
        assert profile.model_digest.startswith("sha256:")
        assert profile.cold.load_s > 0.0
        assert [s.items for s in profile.samples] == [1, 4]
        assert all(s.peak_bytes is not None for s in profile.samples)
        assert set(profile.placement) == {onnx.CPU}
        assert profile.item_bytes_in == 64
        assert profile.item_bytes_out == 16
        assert fit(profile).mean_s(1) > 0.0
    assert duel.entries[0].profile.parity is None
    assert all(e.profile.parity is not None for e in duel.entries[1:])
    assert any("int8" in e.label for e in duel.entries)
    assert duel.prices[0].date
    assert duel.inputs == {"x": "Nx16 float32 random"}
    assert duel.verdict.headline.startswith("No accelerator")


def test_a_duel_survives_its_file_and_its_profiles_stand_alone(duel, tmp_path):
    """What `save` writes is read back unchanged, one profile per contender beside it, and the report is one file."""
    written = measure.save(duel, tmp_path)
    assert store.load(tmp_path / "duel.json", measure.Duel) == duel
    profiles = [store.load(path, Profile) for path in written if path.parent.name == "profiles"]
    assert profiles == list(duel.profiles)
    page = (tmp_path / "report.html").read_text()
    assert duel.verdict.headline in page


def test_tokens_stay_within_the_models_table(tmp_path):
    """A model with an embedding runs without a word from the user."""
    found = run(embedding(tmp_path / "e.onnx"), int8=False)
    assert found.inputs == {"ids": "Nx128 int32 random"}
    assert "Gather" in found.branching.operators


def test_a_fixed_batch_is_measured_as_it_is_and_said(tmp_path):
    """A model whose shapes are all fixed has one batch size, whatever was asked."""
    fixed = write(tmp_path / "f.onnx", [helper.make_node("Relu", ["x"], ["y"])], [("x", [1, 8])], [("y", [1, 8])])
    found = run(fixed, int8=False)
    assert {s.items for p in found.profiles for s in p.samples} == {1}
    assert any("fixed batch" in r.reason for r in found.refusals)


def test_outputs_that_are_not_numbers_stop_the_duel(tmp_path):
    """Nothing can agree with a reference of NaN, so nothing is recommended."""
    with pytest.raises(ModelError, match="not finite"):
        run(logarithm(tmp_path / "log.onnx"))


def test_a_named_device_is_demanded(tmp_path):
    """Naming an absent device is an error before anything is timed; an unknown name is another."""
    model = mlp(tmp_path / "m.onnx")
    absent = next(d for d in ("cuda", "webgpu") if d not in onnx.devices())
    with pytest.raises(DeviceAbsentError):
        run(model, devices=("cpu", absent))
    with pytest.raises(ConfigError, match="no device is called 'tpu'"):
        run(model, devices=("tpu",))


@pytest.mark.parametrize("options", [{"sizes": (0,)}, {"budget_s": 0.0}, {"threads": (0,)}, {"dims": {"zz": 3}}])
def test_numbers_out_of_range_are_refused(tmp_path, options):
    """Each with a message of its own."""
    with pytest.raises(ConfigError):
        run(mlp(tmp_path / "m.onnx"), **options)


def test_sizes_that_do_not_fit_the_budget_are_left_out_and_said(monkeypatch):
    """A contender too slow for the larger sizes is timed at the smaller ones, and the rest is in the refusals."""
    module = types.ModuleType("slow")
    module.work = lambda items: sum(i * i for i in range(20_000 * items))
    monkeypatch.setitem(sys.modules, "slow", module)
    found = run("slow:work", sizes=(1, 512), budget_s=0.5)
    assert {s.items for p in found.profiles for s in p.samples} == {1}
    assert any(r.items == 512 for r in found.refusals)


def test_the_whole_path_is_timed_when_its_ends_are_given(tmp_path, monkeypatch):
    """With pre and post the verdict has the model's share, and the inputs are those that pre makes."""
    module = types.ModuleType("ends")
    module.pre = lambda raw: {"x": np.array([[float(len(text))] * 16 for text in raw], dtype=np.float32)}
    module.pre.make_inputs = lambda items, _rng: ["some text"] * items
    module.post = lambda outputs: outputs["h1"].tolist()
    module.bad = lambda _raw: 3
    monkeypatch.setitem(sys.modules, "ends", module)
    model = mlp(tmp_path / "m.onnx")
    found = run(model, pre="ends:pre", post="ends:post", int8=False)
    share = found.verdict.path[0]
    assert 0.0 < share.model_share.mid < 1.0
    assert share.most_gain > 1.0
    assert "no device for the model can speed" in found.verdict.bottleneck
    assert set(found.path) == {"pre", "post"}
    with pytest.raises(ModelError, match="must return a dict"):
        run(model, pre="ends:bad")


def test_a_training_step_duels_like_a_model(monkeypatch):
    """A step with state is measured from a fresh start, with its Python named."""
    module = types.ModuleType("train")

    def step(_inputs):
        raise AssertionError

    def setup(_device):
        weights = np.zeros(4)

        def once(inputs):
            weights[:] -= 0.1 * (inputs["x"].T @ (inputs["x"] @ weights - 1.0)) / len(inputs["x"])
            return {"weights": weights.copy()}

        return once

    step.setup = setup
    step.make_inputs = lambda items, rng: {"x": rng.standard_normal((items, 4))}
    module.step = step
    monkeypatch.setitem(sys.modules, "train", module)
    found = run("train:step")
    assert found.entries[0].profile.model == "train:step"
    assert found.branching.source == "cProfile of train:step"


@given(st.text(alphabet="0123456789abcdef", min_size=12, max_size=40))
def test_the_commit_is_read_from_the_repository(tmp_path_factory, sha):
    """Detached, loose or packed: the head's commit is found without running git; elsewhere there is none."""
    root = tmp_path_factory.mktemp("repo")
    package = root / "src" / "turnout"
    assert machine.commit(package) == ""
    (root / ".git").mkdir()
    (root / ".git" / "HEAD").write_text(f"{sha}\n")
    assert machine.commit(package) == sha[:12]
    (root / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (root / ".git" / "packed-refs").write_text(f"# pack-refs\n{sha} refs/heads/main\n")
    assert machine.commit(package) == sha[:12]


def test_a_software_gpu_is_recognised(tmp_path):
    """By its driver's name, or because no GPU is in the machine."""
    (tmp_path / "dri").mkdir()
    (tmp_path / "dri" / "renderD128").touch()
    assert not machine.software_gpu({}, tmp_path)
    assert machine.software_gpu({"VK_ICD_FILENAMES": "/x/vk_swiftshader_icd.json"}, tmp_path)
    assert machine.software_gpu({}, tmp_path / "dri")
