"""The habits of the code base as tests: what would otherwise be a line in a style guide that nobody rereads."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60
REFUSED_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "v2"}
HEAVY = {"onnxruntime", "torch", "ray", "starlette", "uvicorn", "plotly", "scipy", "pydantic"}
# What import-linter cannot see, as it comes built in or through numpy.
IMPURE_CALL = re.compile(
    r"open|print|input|exec|eval|(np|numpy)\.(load|save|fromfile|random\.(?!Generator|default_rng).*)"
)
UNSEEDED = re.compile(r"(np|numpy)\.random\.default_rng\(\)")
# Written so that this file does not match itself.
INDEX_HOST = re.compile(r"(?:pypi|pythonhosted|npmjs|debian)\.(?:org|com|net)")
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:work|root|home)/\w")


def tracked(*patterns: str) -> list[Path]:
    """List the files that git tracks, or would: neither ignored nor deleted."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    return [path for name in sorted(set(names)) if (path := ROOT / name).is_file()]


PYTHON = tracked("*.py")
CORE = [path for path in PYTHON if path.is_relative_to(ROOT / "src/turnout/core")]


def name(path: Path) -> str:
    """Name a parametrised case after its file."""
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", PYTHON, ids=name)
def test_files_and_functions_are_short(path):
    """A file is at most 500 lines long and a function at most 60, its docstring included."""
    source = path.read_text()
    lines = len(source.splitlines())
    assert lines <= MAX_FILE_LINES, f"{path}: {lines} lines; split it by what it does"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= MAX_FUNCTION_LINES, f"{path}:{node.lineno}: {node.name} has {length} lines"


def test_modules_are_named_after_what_they_hold():
    """No module is a drawer: names that say nothing are refused."""
    drawers = [path for path in PYTHON if REFUSED_NAMES & {*path.with_suffix("").relative_to(ROOT).parts}]
    assert not drawers


def test_importing_turnout_loads_no_framework():
    """`import turnout`, and the whole core with it, loads numpy and msgspec and nothing heavier."""
    modules = ["turnout", *("turnout.core." + path.stem for path in CORE if path.stem != "__init__")]
    program = f"import {', '.join(modules)}, sys; print(*sorted({HEAVY} & {{*sys.modules}}))"
    loaded = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    assert not loaded


@pytest.mark.parametrize("path", CORE, ids=name)
def test_the_core_calls_nothing_impure(path):
    """The core opens and prints nothing, and draws only from a generator it was given or seeded by its caller."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert not IMPURE_CALL.fullmatch(called), f"{path}:{node.lineno}: {called}()"
            assert not UNSEEDED.fullmatch(ast.unparse(node)), f"{path}:{node.lineno}: a generator without a seed"


def test_imports_go_down():
    """The contracts of pyproject.toml hold: layers, a pure core, one home for each framework."""
    linter = Path(sys.executable).with_name("lint-imports")
    result = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_no_file_names_this_workplace():
    """No tracked file names a package index or a folder of the machine it was written on."""
    found = []
    for path in tracked():
        try:
            lines = path.read_text().splitlines()
        except UnicodeDecodeError:  # not text
            continue
        found += [
            f"{name(path)}:{number}: {match[0]}"
            for number, line in enumerate(lines, 1)
            if (match := INDEX_HOST.search(line) or MACHINE_PATH.search(line))
        ]
    assert not found


@pytest.mark.parametrize("path", tracked("constraints/*.txt"), ids=name)
def test_pins_are_hashed_and_name_no_index(path):
    """Every pin has a hash, and no option or address says where packages come from."""
    text = path.read_text()
    assert not re.search(r"https?:|^\s*-(?!-hash)|--(?!hash=sha256:)", text, re.MULTILINE)
    assert all("--hash=sha256:" in pin for pin in re.split(r"\n(?=\S)", text.strip()))
