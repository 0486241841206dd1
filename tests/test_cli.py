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
from turnout.core.profile import Profile, Provenance, Samples

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


LOG_LINES = [
    '{"type":"configured","at_s":0,"fleet":{"pools":[]},"models":[],"policy":"cheapest"}',
    '{"type":"arrived","at_s":1,"rid":1,"model":"m","items":1,"deadline_s":2}',
    '{"type":"reject","rid":1,"reason":"unknown model","detail":"no model is called \'m\'"}',
]


@pytest.mark.parametrize(
    ("lines", "flags", "code", "says"),
    [
        (LOG_LINES, [], 0, "identical: 2 events, 1 actions"),
        (LOG_LINES[:2], [], 3, "DIFFERENT from log.jsonl, line 2"),
        ([], [], 2, "log.jsonl is empty"),
        (LOG_LINES[1:], [], 2, "the first record is Arrived"),
        ([*LOG_LINES, '{"type":'], [], 2, "--ignore-truncated-tail"),
        ([LOG_LINES[0], "{]", ""], [], 2, "log.jsonl, line 2: damaged"),
        ([LOG_LINES[0], LOG_LINES[1].replace("2}", "NaN}")], [], 2, "log.jsonl, line 2: damaged"),
        ([LOG_LINES[0].replace("cheapest", "best")], [], 2, "no policy is called 'best'; there are: cheapest"),
        (LOG_LINES, ["--policy", "best"], 2, "no policy is called 'best'; there are: cheapest"),
        (LOG_LINES, ["--add", "cpu"], 2, "--add 'cpu' is neither POOL=N"),
        (LOG_LINES, ["--add", "cpu=+-1"], 2, "--add 'cpu=+-1' is neither POOL=N"),
        (LOG_LINES, ["--add", "cpu=1", "--add", "cpu=2"], 2, "cannot add 3 replicas to pool 'cpu'"),
        (LOG_LINES, ["--add", "cpu=1"], 2, "cannot add 1 replicas to pool 'cpu'"),
        (LOG_LINES, ["--add", "none.toml"], 2, "cannot read the config none.toml"),
        (LOG_LINES[:1], ["--policy", "earliest"], 2, "has no requests in it"),
    ],
)
def test_what_replay_says_of_a_log(tmp_path, lines, flags, code, says):
    """Proven is 0, different is 3, and a log or a flag that is wrong is 2 with the file, the line and the remedy."""
    text = "\n".join(lines)
    (tmp_path / "log.jsonl").write_text(text + ("\n" if lines and not text.endswith('"type":') else ""))
    result = turnout("replay", "log.jsonl", *flags, cwd=tmp_path)
    assert (result.returncode, "Traceback" in result.stderr) == (code, False)
    assert says in (result.stderr if code == 2 else result.stdout)


SERVED = """
[gateway]
port = 0
log = ""
[[models]]
name = "mlp"
path = "mlp.onnx"
slo = { deadline_ms = 100 }
[[pools]]
name = "cpu"
models = ["mlp"]
profile = { mlp = "cpu.json" }
"""


@pytest.mark.parametrize(
    ("change", "profile", "says"),
    [
        (("port", "prot"), None, "gateway.prot: there is no such key; did you mean port?"),
        (("mlp.onnx", "none.onnx"), "", "none.onnx is not a file"),
        (("", ""), None, "pools[0].profile.mlp: cpu.json does not exist"),
        (("", ""), b"", "cpu.json is empty"),
        (("", ""), b'{"schema_version":1,"ki', "cpu.json is damaged or cut short"),
        (("", ""), b'{"schema_version":1,"kind":"profile","body":NaN}', "cpu.json is damaged"),
        (("", ""), "sha256:0", "was measured on other weights than those of mlp.onnx"),
        (('["mlp"]', '["mlp"]\nbackend = "onxx"'), "", "no backend is called 'onxx'"),
        (('["mlp"]', '["mlp"]\ndevice = "cuda"'), "", "cpu.json is of device cpu, and the pool is on cuda"),
    ],
)
def test_what_serve_refuses_before_it_serves(tmp_path, model, change, profile, says):
    """A config, model or profile that is wrong is said once, with exit code 2 and no word of a restart."""
    if isinstance(profile, str):
        store.save(made_up(profile), tmp_path / "cpu.json")
    elif profile is not None:
        (tmp_path / "cpu.json").write_bytes(profile)
    (tmp_path / "turnout.toml").write_text(SERVED.replace(*change, 1) if change[0] else SERVED)
    result = turnout("serve", "turnout.toml", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.count(says) == 1
    assert "starts again" not in result.stderr
    assert "Traceback" not in result.stderr


def made_up(digest):
    """A profile of two batch sizes."""
    provenance = Provenance(kind="modelled", source="made up for this test", date="", hardware="")
    samples = (Samples(items=1, service_s=(0.001,)), Samples(items=8, service_s=(0.002,)))
    return Profile(
        model="mlp",
        model_digest=digest,
        device="cpu",
        device_key="k",
        variant="fp32",
        provenance=provenance,
        samples=samples,
    )


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
