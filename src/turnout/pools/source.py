"""What a model is made of, as a digest: so that a profile is never used for other weights than it was measured on."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path


def digest(source: str) -> str:
    """SHA-256 of a model file and of the external data beside it; of the source file for `module:function`; else ""."""
    path = Path(source)
    if not path.is_file():
        spec = None
        with suppress(ImportError, ValueError):  # no such module, or not a module's name at all
            spec = find_spec(source.partition(":")[0])
        if spec is None or not spec.origin or not Path(spec.origin).is_file():
            return ""
        path = Path(spec.origin)
    sha = hashlib.sha256(path.read_bytes())
    for name in (f"{path.name}.data", f"{path.name}_data"):
        if (beside := path.with_name(name)).is_file():
            sha.update(beside.read_bytes())
    return f"sha256:{sha.hexdigest()}"
