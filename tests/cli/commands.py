"""The command as a process of its own, as a script would run it."""

from __future__ import annotations

import os
import subprocess
import sys

COMMAND = [sys.executable, "-m", "turnout"]
SHORT = ["--batch", "1,4", "--budget-s", "1", "--devices", "cpu"]
"""Flags of a short duel."""


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
