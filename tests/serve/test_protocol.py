"""The codec: every datatype in both forms, and every way in which a body can be wrong."""

import contextlib
import json
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from turnout.errors import RequestError
from turnout.pools.base import TensorSpec
from turnout.serve import protocol
from turnout.serve.protocol import DTYPES, Wanted, decode, encode

NUMBERS = [name for name in DTYPES if name != "BYTES"]
X = TensorSpec(name="x", datatype="FP32", shape=(-1, 2))
Y = TensorSpec(name="y", datatype="FP32", shape=(-1, 2))


def body(document, *raw):
    """A request body and the length of its JSON."""
    text = json.dumps(document).encode()
    return b"".join([text, *raw]), len(text)


def tensor(**changes):
    """One input x, with changes; None takes a key away."""
    entry = {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1.0, 2.0]} | changes
    return {key: value for key, value in entry.items() if value is not None}


def arrays(datatype, shape):
    """Arrays of a datatype, as JSON can carry them."""
    if datatype == "BYTES":
        texts = npst.arrays(object, shape, elements=st.text(max_size=5).map(str.encode), fill=st.nothing())
        return texts.filter(lambda array: all(isinstance(e, bytes) for e in array.reshape(-1)))
    options = {"allow_nan": False, "allow_infinity": False} if datatype.startswith("FP") else {}
    return npst.arrays(DTYPES[datatype], shape, elements=npst.from_dtype(DTYPES[datatype], **options))


@given(st.data(), st.sampled_from([*DTYPES]), st.booleans(), st.booleans())
def test_a_tensor_comes_back_as_it_went(data, datatype, binary_in, binary_out):
    """Encoding and decoding is the identity, in every mix of JSON and binary."""
    if datatype == "FP16":
        binary_in = binary_out = True
    shape = data.draw(st.tuples(st.integers(1, 4), st.integers(0, 3)))
    array = data.draw(arrays(datatype, shape))
    spec = TensorSpec(name="x", datatype=datatype, shape=(-1, shape[1]))
    sent, json_bytes = encode("m", "", [Wanted("x", binary_in)], {"x": array}, [spec])
    answer = json.loads(sent[:json_bytes])
    request = {"inputs": answer["outputs"], "parameters": {"binary_data_output": binary_out}}
    text = json.dumps(request).encode()
    raw = sent[json_bytes:] if json_bytes else b""
    call = decode(text + raw, len(text) if raw or binary_in else None, [spec], [spec])
    assert call.tensors["x"].shape == array.shape
    assert call.tensors["x"].dtype == array.dtype
    assert np.array_equal(call.tensors["x"], array)
    assert call.wanted == (Wanted("x", binary_out),)
    assert call.items == shape[0]


@pytest.mark.parametrize("data", [[1.0, 2.0, 3.0, 4.0], [[1.0, 2.0], [3, 4]], [[1, 2], [3, 4]]])
def test_data_is_flat_or_nested(data):
    """Both forms of the specification are taken."""
    raw, _ = body({"inputs": [tensor(shape=[2, 2], data=data)]})
    assert decode(raw, None, [X], [Y]).tensors["x"].tolist() == [[1, 2], [3, 4]]


WRONG = {
    "is not JSON": b"{",
    "NaN and Infinity have no JSON form": b'{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[NaN,1]}]}',
    "missing required field `inputs`": b"{}",
    "missing: input x": b'{"inputs":[]}',
}


@pytest.mark.parametrize(("said", "raw"), WRONG.items(), ids=[*WRONG])
def test_bodies_that_are_no_request(said, raw):
    """The message says what is wrong."""
    with pytest.raises(RequestError, match=said):
        decode(raw, None, [X], [Y])


WRONG_INPUTS = [
    ("no input 'z'; it has: x", [tensor(name="z")]),
    ("given twice", [tensor(), tensor()]),
    ("is FP32, and the request has INT8", [tensor(datatype="INT8")]),
    ("is FP32, and the request has FLOAT", [tensor(datatype="FLOAT")]),
    ("negative dimension", [tensor(shape=[-1, 2])]),
    (r"has shape \[-1, 2\], and the request has \[1, 3\]", [tensor(shape=[1, 3])]),
    (r"has shape \[-1, 2\], and the request has \[2\]", [tensor(shape=[2])]),
    ("takes 4611686018427387904 values", [tensor(shape=[2**61, 2])]),
    ("takes 2 values", [tensor(data=[1.0])]),
    ("has no data", [tensor(data=None)]),
    ("not of equal lengths", [tensor(shape=[2, 2], data=[[1.0, 2.0], [3.0]])]),
    ("takes 4 values", [tensor(shape=[2, 2], data=[[1.0], [2.0]])]),
    ("nested 2 deep", [tensor(data=[[[1.0, 2.0]]])]),
    ("Expected `float`", [tensor(data=["1", 2.0])]),
    ("Expected `float`", [tensor(data=[None, 2.0])]),
    ("out of the range of FP32", [tensor(data=[1e300, 2.0])]),
    ("disagree|no items", [tensor(shape=[0, 2], data=[])]),
    ("binary bytes, and 0 are left", [tensor(data=None, parameters={"binary_data_size": 8})]),
    ("both data and binary_data_size", [tensor(parameters={"binary_data_size": 8})]),
    ("whole number from 0", [tensor(data=None, parameters={"binary_data_size": -8})]),
    ("whole number from 0", [tensor(data=None, parameters={"binary_data_size": True})]),
    ("shared memory", [tensor(parameters={"shared_memory_region": "r"})]),
    ("not an inference request", [tensor(shape=["1", 2])]),
    ("takes 2361183241434822606848 values", [tensor(shape=[2**70, 2])]),
]


@pytest.mark.parametrize(("said", "inputs"), WRONG_INPUTS)
def test_inputs_that_do_not_fit(said, inputs):
    """Names, datatypes, shapes and sizes are checked, each with its own message."""
    raw, _ = body({"inputs": inputs})
    with pytest.raises(RequestError, match=said):
        decode(raw, None, [X], [Y])


@pytest.mark.parametrize(
    ("datatype", "value"),
    [("INT8", 128), ("UINT8", -1), ("INT64", 2**63), ("UINT64", 2**64), ("BOOL", 1), ("INT32", 1.5), ("BYTES", 3)],
)
def test_values_out_of_range(datatype, value):
    """A value that its datatype cannot hold is refused, never wrapped."""
    raw, _ = body({"inputs": [tensor(shape=[1], datatype=datatype, data=[value])]})
    with pytest.raises(RequestError, match="input x"):
        decode(raw, None, [TensorSpec(name="x", datatype=datatype, shape=(-1,))], [Y])


WRONG_BINARY = [
    ("takes 8 bytes, and binary_data_size is 4", 4, b"\0" * 4),
    ("says 8 binary bytes, and 7 are left", 8, b"\0" * 7),
    ("1 bytes of the body belong to no input", 8, b"\0" * 9),
]


@pytest.mark.parametrize(("said", "size", "raw"), WRONG_BINARY)
def test_binary_sizes_that_do_not_fit(said, size, raw):
    """Declared sizes are compared with the shape and with what is there."""
    sent, json_bytes = body({"inputs": [tensor(data=None, parameters={"binary_data_size": size})]}, raw)
    with pytest.raises(RequestError, match=said):
        decode(sent, json_bytes, [X], [Y])


@pytest.mark.parametrize(
    ("said", "raw"),
    [
        ("says 9 bytes, and 1 are left", struct.pack("<I", 9) + b"a"),
        ("too few for a length", b"\0\0"),
        ("there are 2 elements, and the shape says 1", struct.pack("<I", 0) * 2),
    ],
)
def test_binary_strings_that_do_not_fit(said, raw):
    """The lengths inside a BYTES tensor never reach beyond it."""
    entry = tensor(shape=[1], datatype="BYTES", data=None, parameters={"binary_data_size": len(raw)})
    sent, json_bytes = body({"inputs": [entry]}, raw)
    with pytest.raises(RequestError, match=said):
        decode(sent, json_bytes, [TensorSpec(name="x", datatype="BYTES", shape=(-1,))], [Y])


def test_a_json_length_beyond_the_body():
    """The header that says where JSON ends is checked too."""
    with pytest.raises(RequestError, match="is 9, and the body has 2 bytes"):
        decode(b"{}", 9, [X], [Y])


def test_a_boolean_byte_is_0_or_1():
    """Numpy would take any byte for true."""
    sent, json_bytes = body(
        {"inputs": [tensor(shape=[1], datatype="BOOL", data=None, parameters={"binary_data_size": 1})]}, b"\2"
    )
    with pytest.raises(RequestError, match="one byte of 0 or 1"):
        decode(sent, json_bytes, [TensorSpec(name="x", datatype="BOOL", shape=(-1,))], [Y])


@pytest.mark.parametrize(
    ("said", "outputs", "parameters"),
    [
        ("no output 'z'; it has: y", [{"name": "z"}], {}),
        ("asked for twice", [{"name": "y"}, {"name": "y"}], {}),
        ("classification is not supported", [{"name": "y", "parameters": {"classification": 3}}], {}),
        ("true or false", [{"name": "y", "parameters": {"binary_data": 1}}], {}),
        ("true or false", [], {"binary_data_output": "yes"}),
        ("whole number", [], {"timeout": -1}),
        ("whole number", [], {"timeout": 1.5}),
        ("whole number", [], {"priority": "high"}),
    ],
)
def test_outputs_and_parameters_that_do_not_fit(said, outputs, parameters):
    """What is asked for is checked before anything runs."""
    raw, _ = body({"inputs": [tensor()], "outputs": outputs, "parameters": parameters})
    with pytest.raises(RequestError, match=said):
        decode(raw, None, [X], [Y])


def test_half_floats_are_binary_only():
    """As input and as output, and said before anything runs."""
    half = TensorSpec(name="x", datatype="FP16", shape=(-1, 2))
    raw, _ = body({"inputs": [tensor(datatype="FP16")]})
    with pytest.raises(RequestError, match="FP16 has no JSON form"):
        decode(raw, None, [half], [Y])
    raw, _ = body({"inputs": [tensor()]})
    with pytest.raises(RequestError, match="ask for it as binary"):
        decode(raw, None, [X], [half])


@pytest.mark.parametrize(
    ("outputs", "binary"),
    [([], True), ([{"name": "y"}], True), ([{"name": "y", "parameters": {"binary_data": False}}], False)],
)
def test_the_request_wide_flag_holds_unless_an_output_says_otherwise(outputs, binary):
    """`binary_data_output` is honoured with a list of outputs too."""
    raw, _ = body({"inputs": [tensor()], "outputs": outputs, "parameters": {"binary_data_output": True}})
    assert decode(raw, None, [X], [Y]).wanted == (Wanted("y", binary),)


def test_timeout_and_priority():
    """The timeout is in microseconds, and 0 is none."""
    raw, _ = body({"id": "a", "inputs": [tensor()], "parameters": {"timeout": 1500, "priority": 2, "mine": "x"}})
    call = decode(raw, None, [X], [Y])
    assert (call.id, call.timeout_s, call.priority) == ("a", 0.0015, 2)
    raw, _ = body({"inputs": [tensor()], "parameters": {"timeout": 0}})
    assert decode(raw, None, [X], [Y]).timeout_s is None


def test_a_body_of_raw_bytes():
    """With a JSON length of 0 the body is the one input, and the outputs are binary."""
    call = decode(struct.pack("<2f", 1, 2), 0, [X], [Y])
    assert call.tensors["x"].tolist() == [[1, 2]]
    assert call.wanted == (Wanted("y", binary=True),)
    with pytest.raises(RequestError, match="takes 8 bytes"):
        decode(b"\0" * 9, 0, [X], [Y])
    with pytest.raises(RequestError, match="one input"):
        decode(b"", 0, [X, Y], [Y])


def test_inputs_must_agree_on_the_number_of_items():
    """Along each one's own batch axis."""
    state = TensorSpec(name="s", datatype="FP32", shape=(2, -1, 1), batch_axis=1)
    inputs = [tensor(), {"name": "s", "shape": [2, 2, 1], "datatype": "FP32", "data": [1, 2, 3, 4]}]
    raw, _ = body({"inputs": inputs})
    with pytest.raises(RequestError, match="x has 1, s has 2"):
        decode(raw, None, [X, state], [Y])


def test_outputs_that_json_cannot_say():
    """Never null in their place."""
    for values in ([np.nan, 0], [np.inf, 0]):
        with pytest.raises(RequestError, match="NaN or infinity"):
            encode("m", "", [Wanted("y", binary=False)], {"y": np.array([values], np.float32)}, [Y])
    text = TensorSpec(name="y", datatype="BYTES", shape=(-1,))
    with pytest.raises(RequestError, match="not text"):
        encode("m", "", [Wanted("y", binary=False)], {"y": np.array([b"\xff"], object)}, [text])


def test_an_output_of_another_type_is_sent_as_declared():
    """A backend that returns float64 for an FP32 output does not confuse the client."""
    sent, json_bytes = encode("m", "i", [Wanted("y", binary=True)], {"y": np.ones((1, 2))}, [Y])
    assert sent[json_bytes:] == struct.pack("<2f", 1, 1)
    assert json.loads(sent[:json_bytes])["id"] == "i"


@given(st.binary(max_size=200), st.one_of(st.none(), st.integers(0, 300)))
def test_no_body_breaks_the_decoder(raw, json_bytes):
    """Whatever comes is decoded or refused."""
    with contextlib.suppress(RequestError):
        protocol.decode(raw, json_bytes, [X], [Y])
