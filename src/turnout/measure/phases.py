"""Where the time goes inside a model: the share of branching and index work, with the operators named.

For ONNX it reads ONNX Runtime's session profile; an operator with a subgraph (If, Loop) contains the events of its
nodes, so times are taken exclusive of what they contain. For Python functions it reads cProfile: time in code that is
neither numpy's, torch's nor a runtime's is "non-tensor Python". Profiled runs are slower, and never samples.
"""

from __future__ import annotations

import cProfile
import json
import pstats
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from turnout.measure.artefact import Branching
from turnout.pools import loader
from turnout.pools.base import Tensors

CONTROL = {"If", "Loop", "Scan", "SequenceMap"}
TREES = {"TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor", "SVMClassifier", "SVMRegressor"}
INDEXED = {
    "Gather", "GatherElements", "GatherND", "Scatter", "ScatterElements", "ScatterND", "NonZero", "TopK", "Unique",
    "Compress", "NonMaxSuppression", "LabelEncoder", "CategoryMapper", "TfIdfVectorizer", "StringNormalizer",
}  # fmt: skip
BRANCHING = CONTROL | TREES | INDEXED
"""Operators that follow data instead of streaming it."""

TENSOR_PACKAGES = ("numpy", "torch", "onnxruntime", "scipy", "jax", "cupy")
"""Python packages whose time is tensor work."""

OWN = Path(__file__).parents[1]
"""Turnout's own folder: what its harness takes is nobody's work."""

BUILT_IN = re.compile(r"<(?:built-in )?method (?:builtins\.)?(.*)>")

MOST_NAMED = 8
"""Operators named of each sort."""

SMALLEST_SHARE = 0.005
"""Operators below this share are not named."""

RUNS = 5
"""Profiled runs after the first, which is dropped: it allocates."""


def of_onnx(source: str, feeds: Tensors, threads: int) -> Branching:
    """Profile the model on the CPU on `feeds` and split its time."""
    with tempfile.TemporaryDirectory(prefix="turnout-profile-") as folder:
        model: Any = loader("onnx")(source, "cpu", {"threads": threads, "profile_prefix": f"{folder}/ort"})
        for _ in range(RUNS + 1):
            model.run(feeds)
        events = json.loads(model.end_profiling().read_text())
        model.close()
    return split(exclusive_us(events), BRANCHING, "ONNX Runtime's session profile, CPU")


def of_function(call: Callable[[], object], name: str) -> Branching:
    """Profile a Python call and split its time into tensor packages and everything else."""
    call()
    recorder = cProfile.Profile()
    for _ in range(RUNS):
        recorder.runcall(call)
    times: Counter[str] = Counter()
    python = set()
    for (path, _, function), (_, _, own_s, _, _) in pstats.Stats(recorder).stats.items():  # type: ignore[attr-defined]
        if Path(path).is_relative_to(OWN):
            continue
        short = BUILT_IN.sub(r"\1", function) if path == "~" else f"{Path(path).stem}.{function}"
        times[short] += own_s
        if not any(package in path or package in function for package in TENSOR_PACKAGES):
            python.add(short)
    return split(times, python, f"cProfile of {name}")


def exclusive_us(events: list[dict[str, Any]]) -> Counter[str]:
    """Microseconds per operator after the first run, less what nested events took."""
    runs = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if e["name"] == "model_run")
    warm_us = runs[0][1] if len(runs) > 1 else 0
    nodes = [e for e in events if e["cat"] == "Node" and e["name"].endswith("_kernel_time") and e["ts"] >= warm_us]
    times: Counter[str] = Counter()
    open_events: list[dict[str, Any]] = []
    for event in sorted(nodes, key=lambda e: (e["ts"], -e["dur"])):
        while open_events and event["ts"] >= open_events[-1]["ts"] + open_events[-1]["dur"]:
            open_events.pop()
        if open_events:
            times[open_events[-1]["args"]["op_name"]] -= event["dur"]
        times[event["args"]["op_name"]] += event["dur"]
        open_events.append(event)
    return Counter({name: max(us, 0) for name, us in times.items()})


def split(times: Mapping[str, float], branching: set[str], source: str) -> Branching:
    """Shares of the total, the branching operators apart from the others; only the largest are named."""
    total = sum(times.values()) or 1.0
    shares = [(name, spent / total) for name, spent in times.items()]
    return Branching(
        share=sum(share for name, share in shares if name in branching),
        operators=_largest([pair for pair in shares if pair[0] in branching]),
        tensor=_largest([pair for pair in shares if pair[0] not in branching]),
        source=source,
    )


def _largest(shares: Iterable[tuple[str, float]]) -> dict[str, float]:
    """The shares worth naming, largest first."""
    ordered = sorted((pair for pair in shares if pair[1] >= SMALLEST_SHARE), key=lambda pair: -pair[1])
    return dict(ordered[:MOST_NAMED])


def combine(model: Branching, ends: Mapping[str, tuple[float, Branching]], model_s: float) -> Branching:
    """The branching of a whole request: `ends` has seconds and split of "pre" and "post"."""
    total_s = model_s + sum(seconds for seconds, _ in ends.values())
    parts = {"": (model_s, model), **ends}
    operators: dict[str, float] = {}
    tensor: dict[str, float] = {}
    for end, (seconds, part) in parts.items():
        for shares, into in ((part.operators, operators), (part.tensor, tensor)):
            into.update({f"{end}: {name}" if end else name: s * seconds / total_s for name, s in shares.items()})
    share = sum(part.share * seconds for seconds, part in parts.values()) / total_s
    return Branching(
        share=share,
        operators=_largest(operators.items()),
        tensor=_largest(tensor.items()),
        source="; ".join(dict.fromkeys(part.source for _, part in parts.values())),
    )
