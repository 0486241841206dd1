"""Set up what one of Turnout's jobs needs, then run it: `python3 scripts/bootstrap.py JOB [ARGUMENTS]`.

    demo         .venv with what the demo needs, then `turnout demo`
    test         adds the test tools, then pytest without the heavy tests
    lint         ruff, the types, the import rules
    test-heavy   adds torch, and .venv-webgpu with a software GPU (Debian's chromium has one), then the heavy tests
    setup        only makes .venv, with everything but the heavy part

Standard library only, and readable by an old Python, so that a wrong one gets a message and not a syntax error.
Running it again costs nothing: each step leaves a stamp, the hash of what it read. Every package is pinned by
hash in constraints/, except torch, whose build differs between machines.
"""

from __future__ import annotations

import ctypes.util
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ((3, 11), (3, 12), (3, 13))
TORCH = "torch==2.13.0"
# A step is the arguments of one `pip install`. Lists of one environment extend each other: a step's place is its name.
HASHED = ("--require-hashes", "-r")
BARE = ("--no-deps", *HASHED)
EDITABLE = ("--no-deps", "--no-build-isolation", "-e", ".")
DEMO = ((*HASHED, "constraints/demo.txt"), (*BARE, "constraints/models.txt"), EDITABLE)
DEV = (*DEMO, (*HASHED, "constraints/dev.txt"))
HEAVY = (*DEV, (TORCH,), (*BARE, "constraints/heavy.txt"))
WEBGPU = ((*HASHED, "constraints/webgpu.txt"), (*BARE, "constraints/models.txt"), EDITABLE)


class SetupError(Exception):
    """Setting up cannot go on; the message says what to do."""


def main() -> int:
    """Run the job that the command line names; return its exit code."""
    jobs = {"demo": demo, "test": test, "lint": lint, "test-heavy": test_heavy, "setup": setup}
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in jobs:
        print(__doc__, file=sys.stderr)
        return 2
    os.chdir(ROOT)
    try:
        return jobs[name](sys.argv[2:])
    except SetupError as error:
        print(f"bootstrap: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def demo(arguments: list[str]) -> int:
    """Run `turnout demo`."""
    return run(environment(".venv", DEMO) / "turnout", "demo", *arguments)


def test(arguments: list[str]) -> int:
    """Run the tests that need nothing special."""
    return run(environment(".venv", DEV) / "pytest", *arguments)


def lint(_: list[str]) -> int:
    """Run every static check, and fail if one does."""
    tools = environment(".venv", DEV)
    checks = ("ruff check .", "ruff format --check .", "mypy", "lint-imports")
    codes = [run(tools / tool, *rest) for tool, *rest in map(str.split, checks)]
    return max(codes)


def test_heavy(arguments: list[str]) -> int:
    """Run the tests that need torch or a browser, then those that need a WebGPU adapter."""
    adapter = vulkan_adapter()
    torch_tools, webgpu_tools = environment(".venv", HEAVY), environment(".venv-webgpu", WEBGPU)
    here = run(torch_tools / "pytest", "-m", "(heavy or torch or browser) and not (webgpu or ray or gpu)", *arguments)
    there = run(webgpu_tools / "pytest", "-m", "webgpu", *arguments, env={**os.environ, **adapter})
    return here or there


def setup(_: list[str]) -> int:
    """Make .venv with all that the demo, the light tests and the static checks need."""
    print(f"bootstrap: ready in {environment('.venv', DEV)}")
    return 0


def environment(name: str, steps: tuple[tuple[str, ...], ...]) -> Path:
    """Bring the virtual environment `name` up to date with `steps`; return the folder of its programs."""
    home = ROOT / name
    python = home / "bin" / "python"
    if not sound(python):
        make_venv(home)
    for number, step in enumerate(steps):
        stamp, digest = home / "stamps" / str(number), fingerprint(step)
        if stamp.exists() and stamp.read_text() == digest:
            continue
        print(f"bootstrap: {name}: pip install {' '.join(step)}", file=sys.stderr)
        if run(python, "-m", "pip", "install", "-qq", "--disable-pip-version-check", *step) != 0:
            raise SetupError(
                f"pip could not install into {name}; its own message is above. Without a network, point pip at a"
                " mirror or a folder of wheels (PIP_INDEX_URL, PIP_FIND_LINKS) and run this again."
            )
        stamp.parent.mkdir(exist_ok=True)
        stamp.write_text(digest)
    return python.parent


def fingerprint(step: tuple[str, ...]) -> str:
    """Hash a step and the files it reads: its own list of pins, or pyproject.toml for the package itself."""
    names = [part for part in step if part.endswith(".txt")] or (["pyproject.toml"] if step is EDITABLE else [])
    parts = [repr(step).encode(), *((ROOT / name).read_bytes() for name in names)]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def make_venv(home: Path) -> None:
    """Make an empty virtual environment at `home`, in place of a broken or unfit one."""
    command = [find_python(), "-m", "venv", "--clear", str(home)]
    if run(*command) != 0:
        shutil.rmtree(home, ignore_errors=True)
        raise SetupError(
            f"{' '.join(command)} failed; its own message is above. Debian and Ubuntu keep the venv module"
            " apart: apt-get install python3-venv"
        )


def find_python() -> str:
    """Return an interpreter of a supported version: the running one if it is, else one on the PATH."""
    names = ["python{}.{}".format(*version) for version in PYTHONS]
    for candidate in (sys.executable, *filter(None, map(shutil.which, names))):
        if sound(Path(candidate), module="venv"):
            return candidate
    raise SetupError(
        "Turnout needs Python 3.11, 3.12 or 3.13; this is {}.{}, and none of {} on the PATH works."
        " Install one and run this again.".format(*sys.version_info[:2], ", ".join(names))
    )


def sound(python: Path, module: str = "pip") -> bool:
    """Say whether `python` runs, is of a supported version and has `module`."""
    program = f"import {module}, sys; sys.exit(sys.version_info[:2] not in {PYTHONS})"
    try:
        return subprocess.run([python, "-c", program], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def vulkan_adapter() -> dict[str, str]:
    """Return the variables that make Vulkan find an adapter: the caller's own, else chromium's software GPU."""
    chosen = {name: os.environ[name] for name in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES") if name in os.environ}
    if chosen:
        return chosen
    if not software_gpu() or not ctypes.util.find_library("vulkan"):
        apt_install("chromium", "libvulkan1")
    if not software_gpu():
        raise SetupError("chromium is installed but has no vk_swiftshader_icd.json; set VK_DRIVER_FILES to a driver.")
    return {"VK_DRIVER_FILES": software_gpu(), "VK_ICD_FILENAMES": software_gpu()}  # new loaders, old loaders


def software_gpu() -> str:
    """Return the path of SwiftShader's driver manifest, or nothing."""
    return str(next(Path("/usr/lib").glob("chromium*/vk_swiftshader_icd.json"), ""))


def apt_install(*packages: str) -> None:
    """Install Debian packages, or say why that cannot be done here."""
    what = " ".join(packages)
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise SetupError(
            f"the heavy tests need the Debian packages {what}; as root: apt-get install {what}."
            " On other systems set VK_DRIVER_FILES to the manifest of a Vulkan driver."
        )
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ("apt-get", "install", "-qq", "--no-install-recommends", *packages)
    if run("apt-get", "update", "-qq", env=quiet) != 0 or run(*install, env=quiet) != 0:
        raise SetupError(f"apt-get could not install {what}; its own message is above.")


def run(*command: object, env: dict[str, str] | None = None) -> int:
    """Run `command` with our input and output, and return its exit code."""
    sys.stdout.flush()
    return subprocess.run([str(part) for part in command], env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
