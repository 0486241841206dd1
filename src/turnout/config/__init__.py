"""TOML, TURNOUT_* variables and flags to frozen values; later ones win in that order.

Everything wrong is said at once, each fault with its path in the file and, where a name is unknown, the one that was
probably meant. Paths in a file are relative to it. An environment variable names a field of a table with two
underscores: TURNOUT_GATEWAY__PORT=9000. `load` only reads; `resolve` then opens the profiles that a config names.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

import pydantic
from pydantic import BaseModel

from turnout.config.resolved import Resolved, Weights, listed, resolve, resolve_pools
from turnout.config.schema import Config, PoolConfig, PoolsConfig, meant
from turnout.errors import ConfigError

__all__ = ["Config", "PoolConfig", "Resolved", "Weights", "load", "load_pools", "resolve", "resolve_pools"]

Whole = TypeVar("Whole", bound=BaseModel)

PREFIX = "TURNOUT_"
SECTIONS = ("gateway", "policy", "limits")
"""Tables that variables can reach; models and pools are lists."""
OTHERS = frozenset({"TURNOUT_TRACEBACK"})
"""Variables that are read elsewhere (`cli`)."""


def load(path: Path, environ: Mapping[str, str], overrides: Mapping[str, Any] | None = None) -> Config:
    """Read a config file; `overrides` maps dotted names ("gateway.port") to values, as flags give them.

    Raises:
        ConfigError: anything is wrong with any of them; the message lists every fault.
    """
    values = _read(path)
    faults: list[str] = []
    _apply_environ(values, environ, faults)
    for name, value in (overrides or {}).items():
        _put(values, name.split("."), value)
    _set_log(values, path.parent)
    return _validated(Config, values, path, faults)


def load_pools(path: Path) -> tuple[PoolConfig, ...]:
    """Read a file that has nothing but `[[pools]]`: what `turnout replay --add` tries beside a recorded fleet.

    Raises:
        ConfigError: as in `load`.
    """
    return _validated(PoolsConfig, _read(path), path, []).pools


def _read(path: Path) -> dict[str, Any]:
    """The file as plain values."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the config {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error


def _validated(kind: type[Whole], values: dict[str, Any], path: Path, faults: list[str]) -> Whole:
    """The values as `kind`; every fault, and those found before, in one error."""
    try:
        config = kind.model_validate(_relative(values, path.parent))
    except pydantic.ValidationError as error:
        faults += _faults(error, kind)
    else:
        if not faults:
            return config
    raise ConfigError(listed(f"{path} is wrong", faults))


# ---- from files, variables and flags ---------------------------------------------------------------------------------


def _apply_environ(values: dict[str, Any], environ: Mapping[str, str], faults: list[str]) -> None:
    """Lay TURNOUT_* variables over the file."""
    known = {
        f"{PREFIX}{section.upper()}__{field.upper()}": (section, field)
        for section in SECTIONS
        for field in _fields(Config.model_fields[section].annotation)
    }
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in OTHERS:
            continue
        if name in known:
            _put(values, list(known[name]), _scalar(environ[name]))
        else:
            faults.append(f"{name} (environment): there is no such setting{meant(name, list(known))}")


def _scalar(text: str) -> Any:
    """A variable's value as TOML reads it, or else as text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _put(values: dict[str, Any], path: list[str], value: Any) -> None:
    """Set a value in nested tables; what is in the way of a table is left for validation to complain of."""
    table = values
    for key in path[:-1]:
        inner = table.setdefault(key, {})
        if not isinstance(inner, dict):
            return
        table = inner
    table[path[-1]] = value


def _set_log(values: dict[str, Any], folder: Path) -> None:
    """The log's folder, also where the file does not name it, is relative to the config file's."""
    gateway = values.setdefault("gateway", {})
    if isinstance(gateway, dict):
        log = gateway.get("log", "log")
        if isinstance(log, str):
            gateway["log"] = str((folder / log).resolve()) if log else None


def _relative(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Make paths absolute: they are relative to the config file's folder."""
    for model in _tables(values.get("models")):
        path = model.get("path")
        if isinstance(path, str) and path and (":" not in path or (folder / path).exists()):
            model["path"] = str(folder / path)
    for pool in _tables(values.get("pools")):
        profiles = pool.get("profile")
        if isinstance(profiles, dict):
            pool["profile"] = {k: str(folder / v) if isinstance(v, str) else v for k, v in profiles.items()}
    return values


def _tables(value: Any) -> list[dict[str, Any]]:
    """The tables in a value that should be a list of them."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


# ---- faults ----------------------------------------------------------------------------------------------------------


def _faults(error: pydantic.ValidationError, whole: type[BaseModel]) -> list[str]:
    """Every fault of a file that should be a `whole`, in words: path, what is wrong, what was probably meant."""
    faults = []
    entries = error.errors(include_url=False)
    for entry in entries:
        path = entry["loc"]
        inside = [other["loc"] for other in entries if len(other["loc"]) > len(path)]
        if entry["type"] == "too_short" and any(loc[: len(path)] == path for loc in inside):
            continue  # it is only short of the entries that are wrong themselves
        where = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).lstrip(".")
        message = entry["msg"][:1].lower() + entry["msg"][1:]
        if entry["type"] == "value_error" and not path:
            faults += str(entry["ctx"]["error"]).splitlines()
            continue
        if entry["type"] == "extra_forbidden":
            message = f"there is no such key{meant(str(path[-1]), _siblings(whole, path[:-1]))}"
        elif entry["type"] == "missing":
            message = "is missing"
        faults.append(f"{where}: {message}")
    return faults


def _siblings(whole: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    """The keys of the table at `path` in a `whole`."""
    kind: Any = whole
    for key in path:
        if isinstance(key, int):
            continue
        fields = _fields(kind)
        kind = fields[key].annotation if key in fields else None
    return list(_fields(kind))


def _fields(kind: Any) -> dict[str, Any]:
    """The fields of a section, seen through tuple[…] and … | None."""
    for candidate in (kind, *get_args(kind)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return dict(candidate.model_fields)
    return {}
