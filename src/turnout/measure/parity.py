"""Do two runs of one model on the same inputs agree? The tolerance is stated with the answer.

Float32 on another device reorders sums; int8 rounds on purpose and gets a wider, also stated, tolerance.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np

from turnout.core.profile import Parity
from turnout.errors import ModelError
from turnout.pools.base import Tensors

TOLERANCES = {"fp32": (1e-4, 1e-3), "int8": (2e-2, 1e-2)}
"""Precision -> (atol as a share of the output's largest magnitude, rtol)."""

HUGE = sys.float_info.max
"""Stands for an infinite disagreement: JSON has no infinity."""


def require_finite(outputs: Tensors) -> None:
    """Refuse a reference that no other run could be compared with.

    Raises:
        ModelError: an output of the reference has a NaN or an infinity.
    """
    for name, array in outputs.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ModelError(
                f"output {name} of the CPU reference is not finite on these inputs, so nothing can be compared with "
                "it; give real inputs with --inputs FILE.npz"
            )


def compare(outputs: Tensors, reference: Tensors, precision: str) -> Parity:
    """Compare all outputs of one batch with the reference's."""
    scale, rtol = TOLERANCES[precision]
    worst = max_abs = atol = 0.0
    notes = []
    if set(outputs) != set(reference):
        return Parity(ok=False, worst=HUGE, max_abs=HUGE, atol=0.0, rtol=rtol, note="Other outputs than the reference.")
    for name, wanted in reference.items():
        got = outputs[name]
        if got.shape != wanted.shape or wanted.dtype.kind not in "fiub":
            same = got.shape == wanted.shape and bool((got == wanted).all())
            worst, max_abs = (worst, max_abs) if same else (HUGE, HUGE)
            continue
        x, y = got.astype(np.float64), wanted.astype(np.float64)
        bound = scale * float(np.abs(y).max(initial=0.0)) or sys.float_info.epsilon
        distance = np.nan_to_num(np.abs(x - y), nan=HUGE, posinf=HUGE)
        atol = max(atol, bound)
        max_abs = max(max_abs, float(distance.max(initial=0.0)))
        with np.errstate(over="ignore"):
            worst = max(worst, min(float((distance / (bound + rtol * np.abs(y))).max(initial=0.0)), HUGE))
        if y.ndim == 2 and y.shape[1] > 1:
            agree = float((x.argmax(-1) == y.argmax(-1)).mean())
            notes.append(f"Largest entry of {name} agrees in {agree:.1%} of rows.")
    return Parity(ok=worst <= 1.0, worst=worst, max_abs=max_abs, atol=atol, rtol=rtol, note=" ".join(notes))


def merge(found: Sequence[Parity]) -> Parity:
    """The worst over several batch sizes."""
    return max(found, key=lambda parity: parity.worst)
