"""Artefacts on disk: the only module that opens what Turnout writes (profiles, duels, plans, traces).

An artefact is one JSON document in an envelope: `schema_version`, `kind`, `body`. The kind is the name of the struct
in lower case, so a plan is never read as a profile. It does not know the structs themselves: the caller names the type.
Rules: a write is atomic, so that a reader (or an interrupt at any moment) finds the old artefact or the new one and
never half of one; a read that fails says what is wrong with which file and what to do.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from turnout.errors import ArtefactError, ExtraMissingError

SCHEMA_VERSION = 1
"""Goes up when an old reader would misread a new artefact; older versions stay readable."""

Artefact = TypeVar("Artefact", bound=Struct)


class _Envelope(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What stands around every artefact; the body is decoded only once kind and version are known to fit."""

    schema_version: int
    kind: str
    body: msgspec.Raw


def encode(artefact: Struct) -> bytes:
    """The artefact as the JSON document that `save` writes, ending in a newline."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "kind": _kind(type(artefact)),
        "body": msgspec.Raw(msgspec.json.encode(artefact)),
    }
    return msgspec.json.encode(document) + b"\n"


def save(artefact: Struct, path: Path) -> None:
    """Write `artefact` to `path` atomically, making its folder where needed.

    Raises:
        ArtefactError: the folder cannot be made or written.
    """
    write_bytes(encode(artefact), path)


def save_reported(artefact: Artefact, folder: Path, name: str, render: Callable[[Artefact], str]) -> list[Path]:
    """Write `name` and, where plotly is installed for `render`, report.html into `folder`; returns the paths.

    Raises:
        ArtefactError: the folder cannot be written.
    """
    paths = [folder / name]
    save(artefact, paths[0])
    try:
        page = render(artefact)
    except ExtraMissingError:
        return paths
    paths.append(folder / "report.html")
    write_bytes(page.encode(), paths[-1])
    return paths


def write_bytes(content: bytes, path: Path) -> None:
    """Replace the file at `path` by `content` in one step: a temporary file beside it, synced, then renamed.

    Raises:
        ArtefactError: the folder cannot be made or written.
    """
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)  # mkstemp's 0600 would keep an artefact from colleagues
        Path(temporary).replace(path)
        _sync_folder(path.parent)
    except BaseException as error:
        if temporary:
            with suppress(OSError):
                Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise ArtefactError(f"cannot write {path}: {error.strerror or error}") from error
        raise


def load(path: Path, kind: type[Artefact]) -> Artefact:
    """Read the artefact of struct type `kind` at `path`.

    Raises:
        ArtefactError: missing, empty, cut short, of another kind, of a newer schema, or not of the struct's shape.
    """
    content = _read(path)
    if not content.strip():
        raise ArtefactError(f"{path} is empty: write it again")
    envelope = _decode(content, _Envelope, path)
    if envelope.schema_version > SCHEMA_VERSION:
        raise ArtefactError(
            f"{path} has schema {envelope.schema_version}, and this Turnout reads up to {SCHEMA_VERSION}: upgrade"
        )
    if envelope.kind != _kind(kind):
        raise ArtefactError(f"{path} is a {envelope.kind}, and a {_kind(kind)} is needed here")
    artefact: Artefact = _decode(bytes(envelope.body), kind, path)
    return artefact


def _read(path: Path) -> bytes:
    """The bytes of the file at `path`."""
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise ArtefactError(f"{path} does not exist") from error
    except OSError as error:
        raise ArtefactError(f"cannot read {path}: {error.strerror or error}") from error


def _decode(content: bytes, kind: type[Any], path: Path) -> Any:
    """Decode JSON into `kind`, telling a damaged file from one of another shape."""
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.ValidationError as error:
        raise ArtefactError(f"{path} is no artefact of Turnout's, or not of this version: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ArtefactError(f"{path} is damaged or cut short: {error}") from error


def _kind(kind: type[Any]) -> str:
    """The name under which artefacts of this struct are stored."""
    return str(kind.__name__).lower()


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable; some file systems refuse it, and the artefact is whole all the same."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
