"""Write constraints/*.txt from pyproject.toml: `python3 scripts/lock.py`, after any change of a dependency.

Resolves for every supported Python and platform at once and pins by hash. The files name no package index, so the
same pins serve whoever installs through a mirror. uv comes into a temporary environment and leaves with it.
Existing pins are kept where they still fit; `--upgrade` takes the newest of everything.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FLAGS = (
    *("--universal", "--python-version", "3.11", "--generate-hashes", "--quiet"),
    *("--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links"),
)
# file -> what it pins; the others follow `dev`, so that one environment can hold several
LOCKS = {
    "dev": "pyproject.toml --extra demo --extra parquet --group build --group test --group bench --group lint",
    "demo": "pyproject.toml --extra demo --group build -c constraints/dev.txt",
    "models": "--no-deps --group models -c constraints/dev.txt",
    "heavy": "--no-deps --group heavy -c constraints/dev.txt",
    "webgpu": "pyproject.toml --extra serve --extra report --extra match"
    " --group build --group test --group webgpu -c constraints/dev.txt",
}


def main() -> None:
    """Compile each file of `LOCKS` in order."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder, "bin", "python"))
        subprocess.run([python, "-m", "pip", "install", "--quiet", "uv"], check=True)
        for name, what in LOCKS.items():
            target = f"constraints/{name}.txt"
            command = [python, "-m", "uv", "pip", "compile", *what.split(), *FLAGS, "-o", target, *sys.argv[1:]]
            subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
            pins = sum(not line.startswith(" ") for line in (ROOT / target).read_text().splitlines())
            print(f"{target}: {pins} pins")


if __name__ == "__main__":
    main()
