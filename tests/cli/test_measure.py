"""`turnout measure` as it is typed: what works, and what is refused with one message."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commands import SHORT, turnout
from tests.graphs import logarithm
from turnout import measure, store


def test_measure_prints_an_answer_and_leaves_its_artefacts(tmp_path, model):
    """The verdict is on stdout, paths are on stderr, and the artefacts can be read again."""
    result = turnout("measure", model, *SHORT, cwd=tmp_path)
    assert result.returncode == 0
    assert result.stdout.startswith("No accelerator was measured")
    assert "cpu fp32 threads=1" in result.stdout
    assert "Wrote" in result.stderr
    duel = store.load(tmp_path / "out/measure/mlp/duel.json", measure.Duel)
    assert duel.verdict.headline[:20] in result.stdout


def test_json_is_one_document_with_a_version(tmp_path, model):
    """`--json` puts exactly one JSON document on stdout and nothing else."""
    result = turnout("measure", model, *SHORT, "--json", "--out", tmp_path / "o", cwd=tmp_path)
    document = json.loads(result.stdout)
    assert document["schema_version"] == store.SCHEMA_VERSION
    assert document["kind"] == "duel"
    assert document["body"]["verdict"]["headline"]


def test_the_users_own_function_is_found_in_the_working_directory(tmp_path):
    """`module:function` needs no installation: the folder one stands in is enough."""
    (tmp_path / "mine.py").write_text("def work(items):\n    return sum(range(100 * items))\n")
    result = turnout("measure", "mine:work", "--batch", "1,2", "--budget-s", "1", cwd=tmp_path)
    assert result.returncode == 0
    assert (tmp_path / "out/measure/mine-work/duel.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["none.onnx"], 2, "none.onnx is not a file"),
        (["bad.onnx"], 2, "ONNX Runtime cannot load"),
        (["log.onnx"], 2, "not finite"),
        (["cut.onnx"], 2, "ONNX Runtime cannot load cut.onnx"),
        (["empty.onnx"], 2, "ONNX Runtime cannot load empty.onnx"),
        (["mlp.onnx", "--batch", "one"], 2, "--batch 'one'"),
        (["mlp.onnx", "--budget-s", "nan"], 2, "--budget-s must be a number of seconds above 0"),
        (["mlp.onnx", "--seed", "-1"], 2, "--seed must be at least 0"),
        (["mlp.onnx", "--batch", "0"], 2, "at least 1"),
        (["mlp.onnx", "--input", "wrong=Nx16:float32"], 2, "--input names wrong"),
        (["mlp.onnx", "--input", "x=Nx15"], 2, "does not run on these inputs"),
        (["mlp.onnx", "--input", "x=Nx15"], 2, "(they were x Nx15 float32 random; --input, --dim and --inputs change"),
        (["mlp.onnx", "--inputs", "none.npz"], 2, "cannot read inputs"),
        (["mlp.onnx", "--inputs", "bad.onnx"], 2, "bad.onnx is no .npz of plain arrays"),
        (["mlp.onnx", "--input", "x=Nx-16"], 2, "--input 'x=Nx-16' is not NAME="),
        (["mlp.onnx", "--dim", "n"], 2, "SYMBOL=SIZE"),
        (["mlp.onnx", "--dim", "n=²"], 2, "SYMBOL=SIZE"),
        (["mlp.onnx", "--price", "cpu=free"], 2, "DEVICE=DOLLARS_PER_HOUR"),
        (["mlp.onnx", "--price", "gpu=0.5"], 2, "--price names gpu, and the devices are: cpu, cuda, webgpu"),
        (["mlp.onnx", "--pre", "mlp"], 2, "is not module:function"),
        (["no_such_module:f"], 2, "cannot import no_such_module"),
        (["mlp.onnx", "--devices", "tpu"], 2, "no device is called 'tpu'"),
        (["mlp.onnx", "--devices", "cpu,cuda"], 4, "CUDAExecutionProvider"),
        (["mlp.onnx", "--no-such-flag"], 2, "no-such-flag"),
        ([], 2, "MODEL"),
    ],
)
def test_what_is_wrong_is_one_message_and_a_code(tmp_path, model, arguments, code, says):
    """Every mistake has the exit code of its class and one message on stderr, with no traceback and no result."""
    (tmp_path / "bad.onnx").write_bytes(b"this is no model")
    (tmp_path / "cut.onnx").write_bytes(Path(model).read_bytes()[:200])
    (tmp_path / "empty.onnx").touch()
    logarithm(tmp_path / "log.onnx")
    if "cuda" in str(arguments) and "cuda" in __import__("turnout.pools.onnx", fromlist=["devices"]).devices():
        pytest.skip("CUDA is here")
    result = turnout("measure", *arguments, cwd=tmp_path)
    assert result.returncode == code
    assert says in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path, model):
    """A file in the place of the folder is said, not raised."""
    (tmp_path / "file").touch()
    result = turnout("measure", model, *SHORT, "--out", "file/deep", cwd=tmp_path)
    assert result.returncode == 2
    assert "cannot write" in result.stderr
