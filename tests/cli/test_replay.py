"""`turnout replay` as it is typed: proven, different, or refused."""

from __future__ import annotations

import pytest

from tests.cli.commands import turnout

LOG_LINES = [
    '{"type":"configured","at_s":0,"fleet":{"pools":[]},"models":[],"policy":"turnout"}',
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
        ([LOG_LINES[0].replace("turnout", "best")], [], 2, "no policy is called 'best'; there are: turnout"),
        (LOG_LINES, ["--policy", "best"], 2, "no policy is called 'best'; there are: turnout"),
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
