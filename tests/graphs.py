"""Small ONNX models that tests build on the spot."""

import itertools

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save


def write(path, nodes, inputs, outputs, weights=()):
    """Save a graph; `inputs` and `outputs` are (name, shape) in float32 or (name, shape, type)."""

    def values(described):
        return [
            helper.make_tensor_value_info(name, kind[0] if kind else TensorProto.FLOAT, shape)
            for name, shape, *kind in described
        ]

    graph = helper.make_graph(
        nodes, "g", values(inputs), values(outputs), [numpy_helper.from_array(w, n) for n, w in weights]
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return str(path)


def mlp(path, sizes=(16, 32, 4)):
    """MatMul and Relu layers on [n, sizes[0]]."""
    rng, nodes, weights, value = np.random.default_rng(0), [], [], "x"
    for layer, (rows, columns) in enumerate(itertools.pairwise(sizes)):
        weights.append((f"w{layer}", rng.standard_normal((rows, columns)).astype(np.float32) / np.float32(rows**0.5)))
        nodes.append(helper.make_node("MatMul", [value, f"w{layer}"], [f"h{layer}"]))
        nodes.append(helper.make_node("Relu", [f"h{layer}"], [value := f"y{layer}"]))
    return write(path, nodes[:-1], [("x", ["n", sizes[0]])], [(f"h{len(sizes) - 2}", ["n", sizes[-1]])], weights)


def embedding(path, rows=7):
    """Token ids [batch, sequence_length] through a table of `rows`: an id beyond it fails the run."""
    table = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)
    nodes = [
        helper.make_node("Cast", ["ids"], ["wide"], to=TensorProto.INT64),
        helper.make_node("Gather", ["table", "wide"], ["rows"]),
        helper.make_node("ReduceMean", ["rows"], ["y"], axes=[1], keepdims=0),
    ]
    ids = ("ids", ["batch", "sequence_length"], TensorProto.INT32)
    return write(path, nodes, [ids], [("y", ["batch", 4])], [("table", table)])


def logarithm(path):
    """Log of the input: not a number for half of all random ones."""
    return write(path, [helper.make_node("Log", ["x"], ["y"])], [("x", ["n", 8])], [("y", ["n", 8])])


def rounding(path):
    """MatMul with weights of very unequal size: dynamic int8 rounds the small ones away."""
    weight = np.full((64, 8), 1e-3, dtype=np.float32)
    weight[0, :] = 100.0
    nodes = [helper.make_node("Mul", ["x", "mask"], ["kept"]), helper.make_node("MatMul", ["kept", "w"], ["y"])]
    mask = np.concatenate([np.zeros(1, np.float32), np.ones(63, np.float32)])
    return write(path, nodes, [("x", ["n", 64])], [("y", ["n", 8])], [("w", weight), ("mask", mask)])
