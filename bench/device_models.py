"""Puts the models of bench/device.sh into a folder: two bundled in packages, an MLP and a convolution built here.

Prints one line per model: name and path. A package that is not installed is said on stderr and left out.
"""

from __future__ import annotations

import itertools
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

Shape = list[str | int | None]

BUNDLED = {"magika": ("magika", "models/*/model.onnx"), "silero-vad": ("silero_vad", "data/silero_vad.onnx")}


def main(folder: Path) -> None:
    """Find or build every model."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (package, pattern) in BUNDLED.items():
        spec = find_spec(package)
        found = sorted(Path(spec.origin).parent.glob(pattern)) if spec is not None and spec.origin else []
        if found:
            print(name, found[0])
        else:
            print(f"no {name}: the package {package} is not installed", file=sys.stderr)
    print("mlp", build_mlp(folder / "mlp.onnx"))
    print("convolution", build_convolution(folder / "convolution.onnx"))


def build_mlp(path: Path, sizes: tuple[int, ...] = (256, 1024, 1024, 1024, 10)) -> Path:
    """Gemm and Relu layers on [n, 256]: a model that is all matrix products."""
    rng, nodes, weights, value = np.random.default_rng(0), [], [], "x"
    for layer, (rows, columns) in enumerate(itertools.pairwise(sizes)):
        weight = rng.standard_normal((rows, columns)).astype(np.float32) / np.float32(rows**0.5)
        weights.append(numpy_helper.from_array(weight, f"w{layer}"))
        nodes.append(helper.make_node("MatMul", [value, f"w{layer}"], [f"h{layer}"]))
        nodes.append(helper.make_node("Relu", [f"h{layer}"], [value := f"y{layer}"]))
    return write(path, nodes, weights, (["n", sizes[0]], value, ["n", sizes[-1]]))


def build_convolution(path: Path, channels: tuple[int, ...] = (3, 32, 64, 128)) -> Path:
    """Strided 3x3 convolutions on [n, 3, 64, 64], then an average: a small image model."""
    rng, nodes, weights, value = np.random.default_rng(1), [], [], "x"
    for layer, (inner, outer) in enumerate(itertools.pairwise(channels)):
        weight = rng.standard_normal((outer, inner, 3, 3)).astype(np.float32) / np.float32((9 * inner) ** 0.5)
        weights.append(numpy_helper.from_array(weight, f"w{layer}"))
        nodes.append(helper.make_node("Conv", [value, f"w{layer}"], [f"h{layer}"], strides=[2, 2], pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"h{layer}"], [value := f"y{layer}"]))
    nodes.append(helper.make_node("GlobalAveragePool", [value], ["pooled"]))
    return write(path, nodes, weights, (["n", channels[0], 64, 64], "pooled", ["n", channels[-1], 1, 1]))


def write(path: Path, nodes: list[Any], weights: list[Any], ends: tuple[Shape, str, Shape]) -> Path:
    """Save one graph from "x"; `ends` are its shape, the output's name and the output's shape."""
    shape_in, output, shape_out = ends
    graph = helper.make_graph(
        nodes,
        path.stem,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape_in)],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape_out)],
        weights,
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


if __name__ == "__main__":
    main(Path(sys.argv[1]))
