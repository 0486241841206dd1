"""A demo that is interrupted leaves no process behind, no half of a file, and no traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.gateways import eventually

pytest.importorskip("onnxruntime")
pytest.importorskip("uvicorn")
pytest.importorskip("magika")

SHORT = """
import turnout.demo
turnout.demo.run.__kwdefaults__.update(seconds=60.0, duel_budget_s=0.5)
from turnout.cli import main
main(["demo", "--out", "out"])
"""
"""The command with less to measure, and more than enough traffic to be interrupted in."""


def family(mark):
    """Command lines of all living processes that were started with this mark in their environment."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes() and b") Z" not in (folder / "stat").read_bytes():
                found[int(folder.name)] = (folder / "cmdline").read_bytes()
        except OSError:  # it is gone, or not ours
            continue
    return found


@pytest.mark.parametrize(
    ("number", "code", "whole_group", "reached"),
    [
        (signal.SIGINT, 130, False, b"turnout.pools.worker"),
        (signal.SIGINT, 130, True, b"turnout.demo.load"),
        (signal.SIGTERM, 143, False, b"turnout.demo.load"),
    ],
    ids=["while the gateway loads", "Ctrl-C under traffic", "SIGTERM under traffic"],
)
def test_an_interrupt_ends_everything(tmp_path, number, code, whole_group, reached):
    """Gateway, workers and client end with the demo, whether it alone gets the signal or its whole group."""
    mark = f"MARK={tmp_path.name}-{number}".encode()
    name, _, value = mark.decode().partition("=")
    command = [sys.executable, "-c", SHORT]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env={**os.environ, name: value},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            eventually(lambda: any(reached in line for line in family(mark).values()) or process.poll() is not None)
            assert process.poll() is None, process.stderr.read()
            (os.killpg if whole_group else os.kill)(process.pid, number)
            stdout, stderr = process.communicate(timeout=30)
            left = family(mark)
        finally:
            for pid in family(mark):
                os.kill(pid, signal.SIGKILL)
    assert not left
    assert (process.returncode, stdout) == (code, "")
    assert stderr == f"turnout: {'interrupted' if number == signal.SIGINT else 'terminated'}\n"
    assert not list(tmp_path.rglob("*.part"))
    for path in tmp_path.rglob("*.json"):
        msgspec.json.decode(path.read_bytes())
