"""The command line as a person or a script meets it: streams, exit codes, one message per error."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.graphs import logarithm, mlp
from turnout import measure, store

COMMAND = [sys.executable, "-m", "turnout"]
SHORT = ["--batch", "1,4", "--budget-s", "1", "--devices", "cpu"]


def turnout(*arguments, cwd, **environ):
    """Run the command in a folder of its own."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def model(tmp_path):
    """Path of a small MLP."""
    return mlp(tmp_path / "mlp.onnx")


def test_help_is_quick_and_loads_no_framework(tmp_path):
    """`turnout --help` answers within 0.6 s on a quiet machine, since no verb's modules are loaded."""
    program = (
        "import sys, turnout.cli; print(*sorted({'numpy', 'onnxruntime', 'torch', 'plotly', 'onnx'} & {*sys.modules}))"
    )
    loaded = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    assert loaded == []
    assert "measure" in turnout("--help", cwd=tmp_path).stdout


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
        (["mlp.onnx", "--batch", "one"], 2, "--batch 'one'"),
        (["mlp.onnx", "--batch", "0"], 2, "at least 1"),
        (["mlp.onnx", "--input", "wrong=Nx16:float32"], 2, "--input names wrong"),
        (["mlp.onnx", "--input", "x=Nx15"], 2, "does not run on these inputs"),
        (["mlp.onnx", "--inputs", "none.npz"], 2, "cannot read inputs"),
        (["mlp.onnx", "--dim", "n"], 2, "SYMBOL=SIZE"),
        (["mlp.onnx", "--price", "cpu=free"], 2, "DEVICE=DOLLARS_PER_HOUR"),
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


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_leaves_the_old_artefact_or_the_new_one(tmp_path, model, number, code):
    """A duel that is killed while it runs exits as shells expect, and what was there before is whole."""
    out = tmp_path / "o"
    turnout("measure", model, *SHORT, "--out", out, cwd=tmp_path)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    (tmp_path / "busy.py").write_text(
        "from pathlib import Path\n\ndef work(items):\n    Path('started').touch()\n    return sum(range(10_000))\n"
    )
    command = [
        *COMMAND,
        "measure",
        "busy:work",
        "--budget-s",
        "30",
        "--batch",
        "1",
        "--out",
        str(out),
        "--pre",
        "busy:work",
    ]
    with subprocess.Popen(command[:-2], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        while not (tmp_path / "started").exists():
            time.sleep(0.01)  # the process says that it runs; there is nothing else to wait on
            assert process.poll() is None
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == code
    assert stdout == b""
    assert b"Traceback" not in stderr
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    assert not list(Path(out).rglob("*.part"))
