"""The verb from the command line: the example of docs/regret.md, and flags that do not fit together."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from turnout.cli import app
from turnout.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples/access.jsonl"
ASKED = ["--from", str(EXAMPLE), "--price", "gpu=0.526,cpu=0.17", "--slo-ms", "150"]


def called(*flags):
    """Run the command as the program would, raising what it raises."""
    app(["regret", *flags], exit_on_error=False, result_action="return_value")


def test_the_worked_example(capsys):
    """Its figures are those of docs/regret.md: the model is close, and a smaller fleet meets what the rule misses."""
    called(*ASKED, "--json")
    body = json.loads(capsys.readouterr().out)["body"]
    page = (ROOT / "docs/regret.md").read_text(encoding="utf-8")
    assert body["calibration"]["trusted"]
    assert not body["theirs"]["meets"]
    for line in body["verdict"]:
        assert line in page


def test_the_table_and_the_files(capsys, tmp_path):
    """The table names every line with its origin, and what was written goes to stderr."""
    called(*ASKED, "--out", str(tmp_path))
    out, err = capsys.readouterr()
    for words in ("yours, as measured", "best fleet", "bound", "modelled", "Calibration: close"):
        assert words in out
    assert f"Wrote {tmp_path / 'regret.json'}" in err


def test_the_example_is_what_its_program_writes(tmp_path):
    """examples/access.jsonl is synthetic, and exactly what the program beside it makes."""
    done = tmp_path / "access.jsonl"
    subprocess.run([sys.executable, ROOT / "examples/access_log.py", done], check=True)
    assert done.read_bytes() == EXAMPLE.read_bytes()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], "say what you run: .*for each backend in the log .*cpu-0"),
        (["--price", "gpu"], "--price 'gpu' is not NAME=VALUE"),
        (["--price", "gpu=free"], "'free' is not an amount in dollars"),
        (["--price", "gpu=1,cpu=1", "--fleet", "gpu=many"], "'many' is not a number of replicas"),
        (["--price", "gpu=1,cpu=1"], "add --slo-ms"),
        (["--fleet", "a.toml", "--price", "gpu=1"], "--fleet FILE says all"),
        (["--fleet", "a.toml"], "cannot read the config a.toml"),
        (["--price", "gpu=1", "--slo-ms", "0"], "--slo-ms 0 is not positive"),
        (["--price", "gpu=1", "--attainment", "99"], "--attainment 99 is not above 0 and at most 1"),
        (["--price", "gpu=1", "--map", "speed=x"], "--map 'speed=x' is not ROLE=COLUMN"),
    ],
)
def test_flags_that_do_not_fit(flags, said):
    """Each is refused before anything runs, with what to write instead."""
    with pytest.raises(ConfigError, match=said):
        called("--from", str(EXAMPLE), *flags)


def test_a_turnout_log_needs_no_fleet(tmp_path):
    """What was run is in it, so saying it again is refused."""
    with pytest.raises(ConfigError, match="leave out --fleet, --published and --price"):
        called("--from", str(tmp_path), "--price", "gpu=1")
