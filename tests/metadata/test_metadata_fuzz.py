"""Damaged documents: whatever they contain, only gzarr's exceptions are raised, and soon."""

import copy
import json
import math
import time
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gzarr.documents.json import load_document
from gzarr.dtypes import fill_value
from gzarr.errors import GzarrError
from gzarr.metadata.v2 import parse as v2
from gzarr.metadata.v3 import parse as v3

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

SECONDS = 2.5  # time box of each test below
LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}
ARRAY = {
    "zarr_format": 3,
    "node_type": "array",
    "shape": [100, 60],
    "data_type": "float32",
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [20, 30]}},
    "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
    "fill_value": "NaN",
    "codecs": [
        {"name": "transpose", "configuration": {"order": [1, 0]}},
        {"name": "numcodecs.delta", "configuration": {"dtype": "<f4", "astype": "<f4"}},
        {
            "name": "sharding_indexed",
            "configuration": {
                "chunk_shape": [15, 10],
                "codecs": [
                    LITTLE,
                    {
                        "name": "blosc",
                        "configuration": {
                            "cname": "lz4",
                            "clevel": 5,
                            "shuffle": "shuffle",
                            "typesize": 4,
                            "blocksize": 0,
                        },
                    },
                    {"name": "zstd", "configuration": {"level": 3, "checksum": True}},
                    {
                        "name": "numcodecs.lzma",
                        "configuration": {"format": 1, "check": -1, "preset": 1, "filters": None},
                    },
                ],
                "index_codecs": [LITTLE, {"name": "crc32c"}],
                "index_location": "end",
            },
        },
    ],
    "attributes": {"a": [1, {"b": None}]},
    "dimension_names": ["y", None],
    "storage_transformers": [],
}
STRUCT = {
    **ARRAY,
    "data_type": {
        "name": "struct",
        "configuration": {
            "fields": [
                {
                    "name": "t",
                    "data_type": {"name": "numpy.datetime64", "configuration": {"unit": "ns", "scale_factor": 1}},
                },
                ["s", {"name": "fixed_length_utf32", "configuration": {"length_bytes": 8}}],
                {"name": "r", "data_type": "r16"},
            ]
        },
    },
    "fill_value": {"t": "NaT", "s": "ab", "r": [1, 2]},
    "codecs": ["bytes", {"name": "gzip", "configuration": {"level": 1}}],
}
GROUP = {
    "zarr_format": 3,
    "node_type": "group",
    "attributes": {},
    "consolidated_metadata": {
        "kind": "inline",
        "must_understand": False,
        "metadata": {
            "a": {
                "zarr_format": 3,
                "node_type": "group",
                "consolidated_metadata": {"kind": "inline", "must_understand": False, "metadata": {"b": ARRAY}},
            },
            "a/c": STRUCT,
        },
    },
}
ZARRAY = {
    "zarr_format": 2,
    "shape": [100, 60],
    "chunks": [20, 30],
    "dtype": ">f4",
    "compressor": {"id": "blosc", "cname": "zstd", "clevel": 5, "shuffle": 2, "blocksize": 0},
    "fill_value": "Infinity",
    "order": "F",
    "filters": [
        {"id": "fixedscaleoffset", "offset": 1, "scale": 10, "dtype": ">f4", "astype": "<i2"},
        {"id": "delta", "dtype": "<i2", "astype": "<i2"},
        {"id": "shuffle", "elementsize": 2},
        {"id": "crc32"},
    ],
    "dimension_separator": "/",
}
ZSTRUCT = {
    **ZARRAY,
    "dtype": [["a", "<i4"], ["b", [["c", ">M8[ns]"], ["d", "|S3", [2, 2]]]], ["u", "<U2"]],
    "filters": None,
    "compressor": {"id": "lzma", "format": 3, "check": -1, "preset": None, "filters": [{"id": 33, "preset": 1}]},
    "fill_value": "A" * 43 + "=",
}
ZOBJECT = {
    **ZARRAY,
    "dtype": "|O",
    "fill_value": 0,
    "filters": [
        {"id": "categorize", "labels": ["a", "b"], "dtype": "|O", "astype": "|u1"},
        {"id": "json2", "strict": True},
    ],
    "compressor": {"id": "zstd", "level": 1},
}
ZMETADATA = {
    "zarr_consolidated_format": 1,
    "metadata": {
        ".zgroup": {"zarr_format": 2},
        ".zattrs": {"k": 1},
        "a/.zarray": ZARRAY,
        "a/.zattrs": {"_ARRAY_DIMENSIONS": ["y", "x"]},
        "b/c/.zarray": ZSTRUCT,
    },
}
DOCUMENTS = [ARRAY, STRUCT, GROUP, ZARRAY, ZSTRUCT, ZOBJECT, ZMETADATA]
PARSERS = [
    v3.parse_node,
    v3.parse_array,
    v3.parse_group,
    v2.parse_array,
    v2.parse_group,
    v2.parse_consolidated,
    lambda document: v2.parse_array(copy.deepcopy(ZARRAY), document),
]


def deep(n):
    value = []
    for _ in range(n):
        value = [value]
    return value


# Strings that mean something somewhere.
WORDS = (
    *(
        "bytes",
        "zstd",
        "gzip",
        "blosc",
        "crc32c",
        "transpose",
        "sharding_indexed",
        "vlen-utf8",
        "numcodecs.pickle",
        "pickle",
    ),
    *("json2", "msgpack2", "vlen-array", "packbits", "bitround", "base64", "categorize", "numcodecs.zfpy", "astype"),
    *(
        "float64",
        "int8",
        "bool",
        "string",
        "complex64",
        "r8",
        "r0",
        "raw_bytes",
        "struct",
        "numpy.datetime64",
        "|O",
        "O",
    ),
    *(
        "<U0",
        "|S99999999999",
        "<M8[0ns]",
        "<f16",
        "|b1",
        ">c16",
        "NaN",
        "0x7fc00000",
        "NaT",
        "../x",
        "/",
        "\0",
        "é",
        "\ud800",
    ),
    *(
        "x" * 3000,
        "numcodecs." + "x" * 3000,
        "",
        "v2",
        "default",
        "regular",
        "C",
        "F",
        ".",
        "AAAA",
        "=" * 9,
        "inline",
        "group",
        "array",
        "start",
        "big",
    ),
)
values = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, 1, -1, 2, 3, 2**31, -(2**31) - 1, 2**63 - 1, 2**63, 2**64, -(2**70), 10**4400, 10**30]),
    st.sampled_from([0.5, -0.0, 1e308, math.nan, math.inf, -math.inf]),
    st.sampled_from(WORDS),
    st.sampled_from(
        [[], {}, [[]], [0], {"name": "bytes"}, {"id": "zlib"}, {"name": 1}, deep(100), {"must_understand": False}]
    ),
    st.sampled_from(
        [ARRAY["codecs"], ARRAY["codecs"][2], ZARRAY["filters"], ZSTRUCT["dtype"], STRUCT["data_type"], LITTLE]
    ),
)


def places(value, path=()):
    """Yield every path in a document."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in items:
        yield from places(child, (*path, key))


def damage(draw, document):
    path = draw(st.sampled_from(list(places(document))))
    if not path:
        return copy.deepcopy(draw(values))
    parent = document
    for key in path[:-1]:
        parent = parent[key]
    key, action = path[-1], draw(st.sampled_from(["remove", "replace", "negate", "nest", "repeat", "rename", "add"]))
    if action == "remove":
        del parent[key]
    elif action == "negate" and isinstance(parent[key], int | float):
        parent[key] = -parent[key]
    elif action == "nest":
        parent[key] = draw(st.sampled_from([[parent[key]], {"name": parent[key]}, {"x": parent[key]}]))
    elif action == "repeat" and isinstance(parent, list):
        parent.insert(key, copy.deepcopy(parent[key]))
    elif action == "rename" and isinstance(parent, dict):
        parent[draw(st.sampled_from(WORDS))] = parent.pop(key)
    elif action == "add" and isinstance(parent[key], dict):
        parent[key][draw(st.sampled_from(WORDS))] = copy.deepcopy(draw(values))
    else:
        parent[key] = copy.deepcopy(draw(values))
    return document


@st.composite
def damaged(draw):
    document = copy.deepcopy(draw(st.sampled_from(DOCUMENTS)))
    for _ in range(draw(st.integers(1, 4))):
        if isinstance(document, dict):
            document = damage(draw, document)
    return document


def attempt(parse, *arguments):
    """Call a parser; return its result, or None if it refuses as it should, soon and with a short message."""
    start = time.process_time()
    message = None
    try:
        return parse(*arguments)
    except GzarrError as error:
        message = str(error)
    finally:
        assert time.process_time() - start < 1
    assert 0 < len(message) < 2000
    return None


def check(document):
    for parse in PARSERS:
        result = attempt(parse, document)
        nodes = result if isinstance(result, Mapping) else getattr(result, "consolidated", None) or {"": result}
        for node in nodes.values():
            if hasattr(node, "codecs"):
                assert len(node.chunk_shape) == len(node.shape)
                assert math.prod(node.chunk_shape) * node.dtype.itemsize <= 2**40
                assert (
                    node.fill_value is None
                    or node.dtype.hasobject
                    or np.asarray(node.fill_value, node.dtype).shape == ()
                )
                assert all(isinstance(codec.label, str) and codec.to_json() for codec in node.codecs)
                to_json = fill_value.to_v2 if node.zarr_format == 2 else fill_value.to_v3
                json.dumps(to_json(node.fill_value, node.dtype), default=str)


def test_documents_are_good_before_they_are_damaged():
    assert v3.parse_array(ARRAY).codecs[2].chunk_shape == (15, 10)
    assert v3.parse_array(STRUCT).fill_value["s"] == "ab"
    assert len(v3.parse_group(GROUP).consolidated) == 3
    assert len(v2.parse_array(ZARRAY).codecs) == 7
    assert v2.parse_array(ZSTRUCT).dtype["b"]["d"].shape == (2, 2)
    assert set(v2.parse_consolidated(ZMETADATA)) == {"", "a", "b/c"}


BOX = settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck), database=None)


STARTED = {}


def in_time(test):
    """Return whether the test's time box is still open. Drawn examples must not depend on it."""
    return time.perf_counter() - STARTED.setdefault(test, time.perf_counter()) < SECONDS


@BOX
@given(damaged())
def test_damaged_documents(document):
    if in_time("documents"):
        check(document)


PIECES = (b"[" * 1500, b'{"a":' * 1500, b"1" * 5000, b"\xff", b'"a": 1, ', b"-", b"NaN", b"1e999", b",", b"}")


@st.composite
def damaged_text(draw):
    text = bytearray(json.dumps(draw(st.sampled_from(DOCUMENTS))).encode())
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text)))
        text[at : at + draw(st.integers(0, 12))] = draw(st.one_of(st.binary(max_size=3), st.sampled_from(PIECES)))
    return bytes(text)


@BOX
@given(damaged_text())
def test_damaged_text(text):
    """Bytes of documents cut, changed or doubled: duplicate keys, invalid UTF-8, half a document."""
    if in_time("text"):
        document = attempt(load_document, text, "zarr.json")
        if document is not None:
            check(document)
