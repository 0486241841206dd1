"""Traces from files: told by content, exact, and refused with their line where they are wrong."""

from __future__ import annotations

import bz2
import gzip
import io
import tarfile
import time
from pathlib import Path

import numpy as np
import pytest

from tests.fleets import arrived
from turnout.errors import ArtefactError, ConfigError
from turnout.traces import files
from turnout.traces.laws import Fixed, Kairos

PUBLIC = Path(__file__).resolve().parents[3] / "shared/data/traces"
needs_public = pytest.mark.skipif(not PUBLIC.is_dir(), reason="the public traces are not beside this repository")

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
ROWS = ("2023-11-16 18:17:03.9799600,4808,10", "2023-11-16 18:17:04.0319600,3180,8")
MOONCAKE = '{"timestamp": 27, "input_length": 5, "output_length": 2, "hash_ids": [1]}\n'


def written(folder, content, name="trace"):
    """A file with this content."""
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def tarred(*contents):
    """A tar of these files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for number, content in enumerate(contents):
            info = tarfile.TarInfo(f"part{number}.txt")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


PACKS = {
    "plain": bytes,
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "tar": tarred,
    "tbz2": lambda content: bz2.compress(tarred(content)),
}


def test_azure_rows_become_requests(tmp_path):
    """CRLF, no newline at the end, times of 100 ns: seconds since the first row, and tokens as items."""
    path = written(tmp_path, AZURE + "\r\n".join(ROWS))
    trace = files.read(path, model="llm")
    assert trace.at_s == pytest.approx([0.0, 0.052])
    assert trace.items.tolist() == [4808, 3180]
    assert trace.models == ("llm",)
    assert files.read(path, items="out").items.tolist() == [10, 8]
    assert files.read(path, sizes=Fixed(items=3)).items.tolist() == [3, 3]


def test_mooncake_rows_become_requests(tmp_path):
    """Milliseconds become seconds from the first row on; also packed, and whatever the name."""
    path = written(tmp_path, gzip.compress((MOONCAKE + MOONCAKE.replace("27", "1027")).encode()), "x.csv")
    trace = files.read(path)
    assert trace.at_s.tolist() == [0.0, 1.0]
    assert trace.items.tolist() == [5, 5]
    assert files.read(path, items="out").items.tolist() == [2, 2]


@pytest.mark.parametrize("pack", PACKS.values(), ids=PACKS)
def test_counts_are_spread_within_their_second(tmp_path, pack):
    """As many requests in each second as were counted, at moments that are the seed's."""
    path = written(tmp_path, pack(b"3 0 2\n4"))
    trace = files.read(path, sizes=Kairos(), seed=5)
    assert np.bincount(trace.at_s.astype(int)).tolist() == [3, 0, 2, 4]
    assert (np.diff(trace.at_s) >= 0.0).all()
    again, other = files.read(path, sizes=Kairos(), seed=5), files.read(path, sizes=Kairos(), seed=6)
    assert (again.at_s == trace.at_s).all()
    assert (again.items == trace.items).all()
    assert (other.at_s != trace.at_s).any()


def test_a_window_is_cut_out(tmp_path):
    """Only what arrives in these seconds, from second 0 on."""
    counts = written(tmp_path, "3 0 2 4")
    assert np.bincount(files.read(counts, sizes=Kairos(), window_s=(2, 4)).at_s.astype(int)).tolist() == [2, 4]
    rows = "".join(MOONCAKE.replace("27", str(ms)) for ms in (0, 1000, 2000, 3000))
    trace = files.read(written(tmp_path, rows), window_s=(1, 3))
    assert trace.at_s.tolist() == [0.0, 1.0]
    for content in ("3 0 2 4", rows):
        with pytest.raises(ArtefactError, match="nothing arrives in seconds 10 to 20"):
            files.read(written(tmp_path, content), sizes=Kairos(), window_s=(10, 20))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is empty"),
        (" \n", "is empty"),
        (AZURE, "a header and no requests"),
        (AZURE + ROWS[1] + "\n" + ROWS[0], "line 3: arrives 0.052 s before the line above it, a negative gap"),
        (AZURE + ROWS[0] + "\n1,2\n", "line 3 does not have the 3 values"),
        (AZURE + ROWS[0] + "\nyesterday,5,5", "line 3: 'yesterday' is not a time"),
        (AZURE + ROWS[0] + "\n2023-11-16 18:17:05,x,5", "line 3 has no whole number of at least 1 as ContextTokens"),
        (AZURE + ROWS[0] + "\n2023-11-16 18:17:05,0,5", "line 3 has no whole number"),
        (MOONCAKE + MOONCAKE.replace("27", "20"), "line 2: arrives 0.007 s before"),
        (MOONCAKE + "{", "line 2: "),
        (MOONCAKE + MOONCAKE.replace("27", '"x"'), "line 2: .*float"),
        (MOONCAKE + MOONCAKE.replace('"input_length": 5', '"input_length": 0'), "line 2 has no tokens as input_length"),
        ("1 2\n3 -4", "line 2: '-4' as the count of second 3"),
        ("1 2\n3 x", "line 2: 'x' as the count of second 3"),
        ("0 0 0", "nothing but zeros"),
        ("a,b\n1,2", "in no format that is known here: Azure.*Mooncake.*turnout serve"),
        (b"\x00\x01\x02", "in no format"),
        (gzip.compress(MOONCAKE.encode() * 99)[:60], "damaged or cut short"),
        (tarred(b"1 2", b"3 4"), "tar of several files"),
        (tarred(), "no format|empty|tar"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_with_its_line(tmp_path, content, said):
    """The file and the line are named, and what is wrong with it."""
    path = written(tmp_path, content)
    with pytest.raises(ArtefactError, match=said) as raised:
        files.read(path, sizes=Kairos() if content[:1] in {"1", "0", b"1"} else None)
    assert str(path) in str(raised.value)


def test_what_does_not_fit_together_is_refused(tmp_path):
    """Counts have no sizes; a trace of too many requests needs a window; a missing file is said to be missing."""
    with pytest.raises(ConfigError, match="give a size law"):
        files.read(written(tmp_path, "1 2 3"))
    with pytest.raises(ConfigError, match=r"has 30000000 requests .*give a window"):
        files.read(written(tmp_path, "10000000 " * 3), sizes=Kairos())
    with pytest.raises(ArtefactError, match="cannot read"):
        files.read(tmp_path / "absent")


def test_a_log_of_turnout_is_told_and_left_to_its_reader(tmp_path):
    """A folder, and a file that begins as the event log does, are such logs; their arrivals are handed in."""
    path = written(tmp_path, '{"type":"configured","at_s":0}\n')
    assert files.detect(path) == files.detect(tmp_path) == "turnout"
    with pytest.raises(ConfigError, match="turnout serve"):
        files.read(path)
    trace = files.of_arrivals([arrived(0, at_s=2.0, items=3), arrived(1, at_s=2.5, slack_s=0.1)], "a log")
    assert trace.at_s.tolist() == [0.0, 0.5]
    assert trace.items.tolist() == [3, 1]
    assert trace.models == ("m",)
    assert trace.deadline_s == pytest.approx([0.05, 0.1])
    with pytest.raises(ArtefactError, match="no requests"):
        files.of_arrivals([], "a log")
    with pytest.raises(ArtefactError, match="request 2 arrived before"):
        files.of_arrivals([arrived(0, at_s=2.0), arrived(1, at_s=1.0)], "a log")
    with pytest.raises(ArtefactError, match="request 1 was due before"):
        files.of_arrivals([arrived(0, slack_s=-1.0)], "a log")


def test_counts_are_a_law(tmp_path):
    """`counts:FILE` draws at the rates of a file's seconds; a file of anything else is refused."""
    path = written(tmp_path, "0 10 0 30")
    at_s = files.arrival_law(f"counts:{path}").draw(4000, 10.0, np.random.default_rng(0))
    assert np.bincount((at_s % 4).astype(int), minlength=4) / 4000 == pytest.approx([0.0, 0.25, 0.0, 0.75], abs=0.03)
    assert files.arrival_law("poisson").text == "poisson"
    with pytest.raises(ArtefactError, match="requests of each second"):
        files.arrival_law(f"counts:{written(tmp_path, MOONCAKE)}")


@needs_public
@pytest.mark.parametrize(
    ("name", "requests", "cv"),
    [("AzureLLMInferenceTrace_code_2023.csv", 8819, 13.2), ("AzureLLMInferenceTrace_conv_2023.csv", 19366, 1.09),
     ("mooncake_synthetic_trace.jsonl.gz", 3993, None)],
)  # fmt: skip
def test_public_traces_are_read_whole(name, requests, cv):
    """As many requests as their description says, with its coefficient of variation."""
    trace = files.read(PUBLIC / name)
    assert len(trace) == requests
    if cv is not None:
        gaps = np.diff(trace.at_s)
        assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.01)


@needs_public
def test_millions_of_seconds_do_not_take_minutes():
    """1.9 million counts are read, and a day of them spread, within seconds."""
    began = time.perf_counter()
    trace = files.read(PUBLIC / "twitter_per_second_ipa.txt.tbz2", sizes=Kairos(), window_s=(86_400, 172_800))
    assert len(trace) > 3_000_000
    assert time.perf_counter() - began < 30.0
