"""The bytes of a file that may be packed: gzip or bzip2, and within it, or alone, a tar of one file."""

from __future__ import annotations

import bz2
import gzip
import io
import tarfile
import zlib
from pathlib import Path

from turnout.errors import ArtefactError

MOST_BYTES = 4 << 30
"""Of the unpacked content: more is not a trace that can be simulated, or was made to fill the memory."""


def unpacked(path: Path, most: int = MOST_BYTES) -> bytes:
    """The content, or its first `most` bytes.

    Raises:
        ArtefactError: the file cannot be read, or is damaged.
    """
    try:
        with path.open("rb") as file:
            magic = file.read(3)
            file.seek(0)
            stream: io.BufferedIOBase = file
            if magic[:2] == b"\x1f\x8b":
                stream = gzip.GzipFile(fileobj=file)
            elif magic == b"BZh":
                stream = bz2.BZ2File(file)
            return _member(path, stream, most)
    except (EOFError, gzip.BadGzipFile, zlib.error, tarfile.TarError) as error:
        raise ArtefactError(f"{path} is damaged or cut short: {error}") from error
    except OSError as error:
        raise ArtefactError(f"cannot read {path}: {error.strerror or error}") from error


def _member(path: Path, stream: io.BufferedIOBase, most: int) -> bytes:
    """What the stream has, or the one file of the tar in it."""
    head = stream.read(512)
    if head[257:262] != b"ustar":
        return head + stream.read(max(most - len(head), 0))
    stream.seek(0)
    with tarfile.open(fileobj=stream, mode="r|") as tar:
        content = None
        for member in tar:
            if not member.isfile() or Path(member.name).name.startswith("._"):  # macOS' companions
                continue
            if content is not None:
                raise ArtefactError(f"{path} is a tar of several files: unpack the one that is meant")
            file = tar.extractfile(member)
            assert file is not None
            content = file.read(most)
    if content is None:
        raise ArtefactError(f"{path} is a tar without a file in it")
    return content
