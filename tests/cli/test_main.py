"""The command line as a whole: quick help, one message per error, exit codes of signals."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.commands import COMMAND, SHORT, turnout


def test_help_is_quick_and_loads_no_framework(tmp_path):
    """`turnout --help` answers within 0.6 s on a quiet machine, since no verb's modules are loaded."""
    program = (
        "import sys, turnout.cli; print(*sorted({'numpy', 'onnxruntime', 'torch', 'plotly', 'onnx'} & {*sys.modules}))"
    )
    loaded = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    assert loaded == []
    assert "measure" in turnout("--help", cwd=tmp_path).stdout


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
