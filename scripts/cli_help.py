"""Write what `--help` says, of the command and of every verb, to docs/cli_help.txt: `python scripts/cli_help.py`.

`tests/test_docs.py` compares the two, so that no flag comes, goes or changes unseen.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs/cli_help.txt"
SETTINGS = {"COLUMNS": "100", "NO_COLOR": "1", "PYTHONUTF8": "1"}


def verbs() -> list[str]:
    """The commands of the command line, in its order."""
    from turnout.cli import app

    return [name for name in app if not name.startswith("-")]


def rendered() -> str:
    """The whole page."""
    return "".join(_section(arguments) for arguments in ([], *([verb] for verb in verbs())))


def _section(arguments: list[str]) -> str:
    """One command line and what it prints."""
    command = [sys.executable, "-m", "turnout", *arguments, "--help"]
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("FORCE_", "TURNOUT_"))}
    done = subprocess.run(command, env=environ | SETTINGS, check=True, capture_output=True, text=True, encoding="utf-8")
    lines = "\n".join(line.rstrip() for line in done.stdout.strip().splitlines())
    return f"$ {' '.join(['turnout', *arguments, '--help'])}\n\n{lines}\n\n"


if __name__ == "__main__":
    PAGE.write_text(rendered(), encoding="utf-8")
