"""Real files of this disk as input for `magika`'s model, which tells a file's type from its first and last bytes.

Files are read and never leave this machine. The features are those the model was trained on: 1,024 bytes from the
front and 1,024 from the back, white space stripped, 256 where a file is shorter.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import msgspec
import numpy as np

from turnout.errors import ExtraMissingError, ModelError

BLOCK_BYTES, EDGE_BYTES, PADDING = 4096, 1024, 256
MODEL = Path("models/standard_v3_3")


def model_folder() -> Path:
    """Where the `magika` package keeps its model, found without importing the package.

    Raises:
        ExtraMissingError: the package is not installed.
    """
    spec = find_spec("magika")
    if spec is None or not spec.submodule_search_locations:
        raise ExtraMissingError("magika", "demo", "the demo")
    return Path(spec.submodule_search_locations[0]) / MODEL


def labels() -> list[str]:
    """The model's classes, in the order of its output."""
    config = msgspec.json.decode((model_folder() / "config.min.json").read_bytes())
    names: list[str] = config["target_labels_space"]
    return names


def features(content_start: bytes, content_end: bytes) -> np.ndarray:
    """One row of input, int32 [2048], from the first and last (at most) 4,096 bytes of a file."""
    row = np.full(2 * EDGE_BYTES, PADDING, np.int32)
    front = content_start.lstrip()[:EDGE_BYTES]
    back = content_end.rstrip()[-EDGE_BYTES:]
    row[: len(front)] = np.frombuffer(front, np.uint8)
    if back:
        row[-len(back) :] = np.frombuffer(back, np.uint8)
    return row


def read(path: Path) -> np.ndarray | None:
    """The features of one file, or None if it cannot be read or is too small to tell anything."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            start = file.read(BLOCK_BYTES)
            file.seek(max(size - BLOCK_BYTES, 0))
            end = file.read(BLOCK_BYTES)
    except OSError:
        return None
    return features(start, end) if len(start) >= 8 else None


def sample(count: int, seed: int) -> np.ndarray:
    """Features of `count` files of this disk, int32 [count, 2048]: here, Python's library, and what programs share.

    Raises:
        ModelError: no files can be read at all.
    """
    paths = sorted({path for root in roots() for path in _walk(root, 4 * count)})
    order = np.random.default_rng(seed).permutation(len(paths))
    rows = []
    for i in order:
        row = read(paths[i])
        if row is not None:
            rows.append(row)
        if len(rows) == count:
            break
    if not rows:
        raise ModelError(f"no readable files under {', '.join(map(str, roots()))}: nothing to run the demo on")
    return np.stack([rows[i % len(rows)] for i in range(count)])


def roots() -> list[Path]:
    """Folders with files of many types."""
    candidates = [
        Path.cwd(),
        Path(os.__file__).parent,
        Path(sys.prefix) / "share",
        Path("/usr/share"),
        Path("/usr/bin"),
    ]
    return [path for path in candidates if path.is_dir()]


def _walk(root: Path, limit: int) -> Iterator[Path]:
    """Up to `limit` plain files under `root`, a few per folder so that no folder fills the sample."""
    found = 0
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        for name in sorted(names)[:8]:
            path = Path(folder, name)
            if path.is_file() and not path.is_symlink():
                yield path
                found += 1
        if found >= limit:
            return
