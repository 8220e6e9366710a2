"""Codecs that round values leave the indices of a sparse matrix as they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import gzarr

COLUMNS = np.array([7, 400, 300, 401, 499])
VALUES = np.array([3, 4.0625, 200.3, 1, 2], "f4")

BITROUND = {"name": "bitround", "configuration": {"keepbits": 3}}
CAST = {
    "name": "cast_value",
    "configuration": {"data_type": "uint8", "rounding": "nearest-even", "out_of_range": "clamp"},
}
QUANTIZE = {"name": "numcodecs.quantize", "configuration": {"digits": 1, "dtype": "<f4"}}
HALVES = {"name": "numcodecs.astype", "configuration": {"encode_dtype": "<f2", "decode_dtype": "<f4"}}
LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}


def shards(*codecs: dict[str, Any]) -> dict[str, Any]:
    """Return the codec of shards of chunks of 64 elements."""
    inside = {"chunk_shape": [64], "codecs": [*codecs, LITTLE], "index_codecs": [LITTLE, {"name": "crc32c"}]}
    return {"name": "sharding_indexed", "configuration": inside}


#: Codecs of a matrix; and those of its indices, None for the default ones.
CHAINS: dict[str, tuple[dict[str, Any], list[str] | None]] = {
    "bitround": ({"codecs": [BITROUND, "bytes", "zstd"]}, ["bytes", "zstd"]),
    "bitround in shards": ({"codecs": [BITROUND, "bytes"], "chunks": 64, "shards": 128}, ["bytes"]),
    "bitround of a shard": ({"codecs": shards(BITROUND), "chunks": 128}, None),
    "a shard without loss": ({"codecs": shards(), "chunks": 128}, ["bytes"]),
    "cast_value": ({"codecs": [CAST, "bytes", "zstd"]}, ["bytes", "zstd"]),
    "quantize": ({"codecs": [QUANTIZE, "bytes", "zstd"]}, ["bytes", "zstd"]),
    "astype": ({"codecs": [HALVES, "bytes"]}, ["bytes"]),
    "without loss only by itself": (
        {
            "codecs": [
                {"name": "cast_value", "configuration": {"data_type": "float64"}},
                {"name": "scale_offset", "configuration": {"offset": 5, "scale": 3}},
                "bytes",
            ]
        },
        ["cast_value(float64)", "bytes"],
    ),
    "codecs after one that rounds": (
        {
            "codecs": [
                {"name": "reshape", "configuration": {"shape": [-1, 8]}},
                BITROUND,
                {"name": "transpose", "configuration": {"order": [1, 0]}},
                "bytes",
            ]
        },
        ["reshape(-1, 8)", "transpose(1, 0)", "bytes"],
    ),
    "quantize in version 2": (
        {"codecs": [{"id": "quantize", "digits": 1, "dtype": "<f4"}, {"id": "zlib", "level": 1}], "zarr_format": 2},
        ["bytes", "zlib"],
    ),
    "bitround in version 2": ({"codecs": [{"id": "bitround", "keepbits": 3}], "zarr_format": 2}, None),
    "without loss": (
        {"codecs": [{"name": "numcodecs.delta", "configuration": {"dtype": "<i4"}}, "bytes", "zstd"], "dtype": "i4"},
        ["numcodecs.delta", "bytes", "zstd"],
    ),
    "codecs that need others": (
        {
            "codecs": [
                {"name": "reshape", "configuration": {"shape": [-1, 8]}},
                {"name": "transpose", "configuration": {"order": [1, 0]}},
                "bytes",
            ]
        },
        ["reshape(-1, 8)", "transpose(1, 0)", "bytes"],
    ),
}


def names(array: gzarr.Array) -> list[str]:
    codecs = array.metadata.codecs
    chain = getattr(codecs[0], "codecs", codecs)
    return [codec.label for codec in chain]


@pytest.mark.parametrize("case", CHAINS)
def test_indices_stay(case: str) -> None:
    layout, expected = CHAINS[case]
    store = gzarr.MemoryStore()
    values = np.rint(VALUES) if "dtype" in layout else VALUES
    m = gzarr.sparse.create(store, sp.csr_array((values, COLUMNS, [0, 5]), (1, 500)), device="cpu", **layout)
    found = m[:]
    np.testing.assert_array_equal(found.indices, COLUMNS)
    # The values are those of an array with these codecs.
    one: dict[str, Any] = {"dtype": "f4", "chunks": 1 << 15, **layout}
    alone = gzarr.create_array({}, shape=(5,), device="cpu", **one)
    alone[:] = values
    np.testing.assert_array_equal(found.data, alone[:])
    indices = gzarr.open_array(store, path="indices")
    if expected is None:
        assert indices.metadata.codecs == gzarr.create_array({}, shape=(5,), dtype="i4").metadata.codecs
    else:
        assert names(indices) == expected
