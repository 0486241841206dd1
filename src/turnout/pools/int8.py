"""Makes the dynamic int8 variant of an ONNX model: weights quantised now, activations at run time.

Whether its answers are good enough is not decided here: `measure` compares them with float32 before anything is routed.

The trap it steps round: without VNNI instructions the CPU multiplies unsigned by signed bytes in saturating 16-bit
arithmetic, and signed weights lose up to 7.7 % (relative RMSE) where unsigned ones lose 1.1 %. So weights are unsigned,
and on such a CPU their range is reduced to 7 bits too. Source: measured, reference/ecosystem.md section 3.
"""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

from turnout.errors import ExtraMissingError, ModelError

VNNI_FLAGS = {"avx512_vnni", "avx_vnni", "amx_int8", "asimddp"}
"""CPU flags (x86; Arm's dot product last) that multiply bytes without saturating."""

QUANTISED = {"MatMulInteger", "DynamicQuantizeMatMul", "ConvInteger", "DynamicQuantizeLSTM", "QLinearMatMul"}
"""Operators that show that the quantiser found something to do."""


def has_vnni(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether this CPU multiplies bytes without saturating; False where nothing says so."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return False
    for line in lines:
        if line.startswith(("flags", "Features")):
            return bool(VNNI_FLAGS & set(line.split()))
    return False


def quantise(source: Path) -> bytes:
    """The serialised int8 variant of the ONNX model at `source`.

    Raises:
        ExtraMissingError: the package onnx is not installed.
        ModelError: the model has no operator that dynamic int8 covers, or the quantiser fails on it.
    """
    try:
        import onnx
        from onnxruntime.quantization import QuantType, quantize_dynamic
    except ImportError as missing:
        raise ExtraMissingError("onnx", "onnx", "the int8 variant") from missing
    with tempfile.TemporaryDirectory(prefix="turnout-int8-") as folder:
        target = Path(folder) / "int8.onnx"
        logging.disable(logging.WARNING)  # the quantiser advises on the root logger, with no way to decline
        try:
            quantize_dynamic(source, target, weight_type=QuantType.QUInt8, reduce_range=not has_vnni())
        except Exception as error:  # it raises whatever its passes raise
            raise ModelError(f"cannot quantise {source}: {error}") from error
        finally:
            logging.disable(logging.NOTSET)
        made = onnx.load(target)
        if not QUANTISED & {node.op_type for node in made.graph.node}:
            raise ModelError(f"{source.name} has no operator that dynamic int8 covers")
        return bytes(made.SerializeToString())
