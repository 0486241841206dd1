"""Makes a model's inputs from its description: dtype, shape, a seeded generator, and what the user overrode.

The same seed gives the same inputs on every device and every run. Sizes that the model leaves open are guessed by name
and said (`describe`), never hidden: a duel on the wrong sequence length is a wrong answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct

from turnout.errors import ArtefactError, ConfigError, ModelError
from turnout.pools.base import Tensors, TensorSpec

NUMPY_TYPES = {
    "FP16": "float16", "FP32": "float32", "FP64": "float64", "BOOL": "bool", "BYTES": "object",
    "INT8": "int8", "INT16": "int16", "INT32": "int32", "INT64": "int64",
    "UINT8": "uint8", "UINT16": "uint16", "UINT32": "uint32", "UINT64": "uint64",
}  # fmt: skip
"""Open Inference Protocol's datatype -> numpy's name."""

OPEN_SIZES = {"height": 224, "width": 224, "chan": 3, "seq": 128, "len": 128, "token": 128}
"""Guess of an open size by a part of its name; `OTHER_SIZE` where none fits."""

OTHER_SIZE = 512

MOST_SIZE = 2**31 - 1
"""Of one dimension: what is beyond it is a slip of the finger."""

SCALARS = {"sr": 16_000, "sample_rate": 16_000, "sampling_rate": 16_000}
"""Inputs whose name says their value."""

MOST_TOKEN = 100
"""Random integers stay below this unless the model's own table is known to be larger or smaller: an index beyond an
embedding's rows would crash the run."""

Maker = Callable[[int], dict[str, np.ndarray]]


class Override(Struct, frozen=True, kw_only=True):
    """What `--input NAME=[SHAPE][:DTYPE][@VALUE]` says: `N` in a shape stands for the batch."""

    shape: tuple[int | str, ...] | None = None
    dtype: str | None = None
    value: float | None = None


def parse_override(text: str) -> tuple[str, Override]:
    """Read one `NAME=[SHAPE][:DTYPE][@VALUE]`, such as `input=Nx576:float32` or `sr=@16000`.

    Raises:
        ConfigError: it does not have that form.
    """
    name, separator, rest = text.partition("=")
    rest, _, value = rest.partition("@")
    shape, _, dtype = rest.partition(":")
    try:
        sizes = tuple(part if part == "N" else _size(part) for part in shape.split("x")) if shape else None
        override = Override(
            shape=sizes, dtype=str(np.dtype(dtype)) if dtype else None, value=float(value) if value else None
        )
    except (ValueError, TypeError):
        override = None
    if override is None or not (name and separator):
        raise ConfigError(
            f"--input {text!r} is not NAME=[SHAPE][:DTYPE][@VALUE], such as input=Nx576:float32 or sr=@16000"
        )
    return name, override


def _size(text: str) -> int:
    """One size of a shape; ValueError if it is none."""
    size = int(text)
    if not 0 <= size <= MOST_SIZE:
        raise ValueError
    return size


def maker(
    specs: Sequence[TensorSpec],
    *,
    seed: int,
    overrides: Mapping[str, Override],
    dims: Mapping[str, int],
    limits: Mapping[str, int],
) -> tuple[Maker, dict[str, str]]:
    """A function from batch size to inputs, and what the inputs are, in words.

    `dims` gives values to open sizes by their symbol; `limits` bounds integer inputs (exclusive).

    Raises:
        ConfigError: an override or dim names nothing in the model.
    """
    _refuse_unknown("--input", overrides, [spec.name for spec in specs])
    _refuse_unknown("--dim", dims, [symbol for spec in specs for symbol in spec.symbols if symbol])
    plans = [_plan(spec, overrides.get(spec.name, Override()), dims) for spec in specs]

    def make(items: int) -> dict[str, np.ndarray]:
        rng = np.random.default_rng([seed, items])
        return {plan.name: _tensor(plan, items, rng, limits.get(plan.name, MOST_TOKEN)) for plan in plans}

    return make, {plan.name: plan.words for plan in plans}


class _Plan(Struct, frozen=True, kw_only=True):
    """One input, decided: sizes (`N` is the batch), numpy type and constant value."""

    name: str
    sizes: tuple[int | str, ...]
    dtype: str
    value: float | None

    @property
    def words(self) -> str:
        """The input as the report shows it."""
        shape = "x".join(str(size) for size in self.sizes) or "scalar"
        return f"{shape} {self.dtype}" + (f" = {self.value:g}" if self.value is not None else " random")


def _plan(spec: TensorSpec, override: Override, dims: Mapping[str, int]) -> _Plan:
    """Decide one input from its description, the guesses and the override."""
    sizes: list[int | str] = []
    for axis, size in enumerate(spec.shape):
        symbol = spec.symbols[axis] if spec.symbols else ""
        if axis == spec.batch_axis:
            sizes.append("N")
        elif size > 0:
            sizes.append(size)
        else:
            sizes.append(dims.get(symbol, _guess(symbol)))
    value = override.value
    if value is None and not sizes:
        value = SCALARS.get(spec.name.lower())
    return _Plan(
        name=spec.name,
        sizes=override.shape if override.shape is not None else tuple(sizes),
        dtype=override.dtype or NUMPY_TYPES.get(spec.datatype, "float32"),
        value=value,
    )


def _guess(symbol: str) -> int:
    """A value for an open size, from its name."""
    return next((size for part, size in OPEN_SIZES.items() if part in symbol.lower()), OTHER_SIZE)


def _tensor(plan: _Plan, items: int, rng: np.random.Generator, limit: int) -> np.ndarray:
    """One input for a batch of `items`."""
    shape = tuple(items if size == "N" else int(size) for size in plan.sizes)
    kind = np.dtype(plan.dtype)
    if plan.value is not None:
        return np.full(shape, plan.value, dtype=kind)
    if kind.kind in "iu":
        return rng.integers(0, min(limit, np.iinfo(kind).max), shape).astype(kind)
    if kind.kind == "b":
        return rng.integers(0, 2, shape).astype(kind)
    if kind.kind == "O":
        return np.array([f"text {n}" for n in rng.integers(0, 1000, shape).flat], dtype=object).reshape(shape)
    return rng.standard_normal(shape).astype(kind)


def from_file(path: Path, specs: Sequence[TensorSpec]) -> tuple[Maker, dict[str, str]]:
    """Inputs from an .npz of one array per input, repeated or cut along the batch axis to the size asked for.

    Raises:
        ArtefactError: the file is missing or not an .npz.
        ModelError: its names are not those of the model.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except OSError as error:
        raise ArtefactError(f"cannot read inputs from {path}: {error.strerror or error}") from error
    except Exception as error:  # numpy and zipfile share no base of errors, and numpy's own words advise to unpickle
        raise ArtefactError(f"{path} is no .npz of plain arrays, as numpy.savez writes it, or it is damaged") from error
    wanted = [spec.name for spec in specs]
    if sorted(arrays) != sorted(wanted):
        raise ModelError(f"{path} has the arrays {sorted(arrays)}, and the model's inputs are {sorted(wanted)}")
    axes = {spec.name: spec.batch_axis for spec in specs}

    def make(items: int) -> dict[str, np.ndarray]:
        return {name: _fit(array, axes[name], items) for name, array in arrays.items()}

    return make, {name: f"{array.dtype} {list(array.shape)} from {path.name}" for name, array in arrays.items()}


def _fit(array: np.ndarray, axis: int | None, items: int) -> np.ndarray:
    """Repeat or cut `array` along its batch axis to `items`."""
    if axis is None:
        return array
    return np.ascontiguousarray(np.take(array, np.arange(items) % array.shape[axis], axis=axis))


def item_bytes(tensors: Tensors, items: int) -> int:
    """Tensor bytes of one item, rounded up; strings count by their encoded length."""
    total = 0
    for array in tensors.values():
        total += sum(len(str(v).encode()) for v in array.flat) if array.dtype.kind == "O" else array.nbytes
    return -(-total // items)


def _refuse_unknown(flag: str, given: Mapping[str, object], known: Sequence[str]) -> None:
    """Refuse a flag that names something which the model does not have."""
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise ConfigError(f"{flag} names {', '.join(unknown)}, and the model has: {', '.join(known) or 'none'}")
