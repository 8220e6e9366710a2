"""Shared parts of the tests of reading: metadata documents, data, zarr-python as the writer, and exact comparison."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr

if TYPE_CHECKING:
    from pathlib import Path

Json = dict[str, Any]


def codec(name: str, **configuration: Any) -> Json:
    return {"name": name, "configuration": configuration}


LITTLE = codec("bytes", endian="little")
BIG = codec("bytes", endian="big")
CRC32C = {"name": "crc32c"}


def blosc3(cname: str, shuffle: str, typesize: int, clevel: int = 5, blocksize: int = 0) -> Json:
    return codec("blosc", cname=cname, clevel=clevel, shuffle=shuffle, typesize=typesize, blocksize=blocksize)


def shard(chunk_shape: list[int], codecs: list[Json], location: str = "end", index: list[Json] | None = None) -> Json:
    return codec(
        "sharding_indexed",
        chunk_shape=chunk_shape,
        codecs=codecs,
        index_codecs=[LITTLE, CRC32C] if index is None else index,
        index_location=location,
    )


def v3(
    shape: tuple[int, ...],
    chunks: tuple[int, ...],
    data_type: Any,
    codecs: list[Json],
    fill: Any = 0,
    keys: Json | None = None,
) -> Json:
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(shape),
        "data_type": data_type,
        "chunk_grid": codec("regular", chunk_shape=list(chunks)),
        "chunk_key_encoding": codec("default", separator="/") if keys is None else keys,
        "fill_value": fill,
        "codecs": codecs,
    }


def v2(
    shape: tuple[int, ...],
    chunks: tuple[int, ...],
    dtype: Any,
    compressor: Json | None = None,
    filters: list[Json] | None = None,
    order: str = "C",
    fill: Any = 0,
    separator: str = ".",
) -> Json:
    return {
        "zarr_format": 2,
        "shape": list(shape),
        "chunks": list(chunks),
        "dtype": dtype,
        "compressor": compressor,
        "filters": filters,
        "order": order,
        "fill_value": fill,
        "dimension_separator": separator,
    }


def write(directory: Path, document: Json, data: np.ndarray[Any, Any] | None) -> zarr.Array[Any]:
    """Write the document, and let zarr-python write the chunks of ``data``."""
    directory.mkdir(parents=True, exist_ok=True)
    name = "zarr.json" if document["zarr_format"] == 3 else ".zarray"
    (directory / name).write_text(json.dumps(document))
    # Every written chunk is stored, even if it holds only fill values.
    config = {"write_empty_chunks": True}
    array = zarr.open_array(str(directory), mode="r+", zarr_format=document["zarr_format"], config=config)
    if data is not None:
        array[...] = data
    return array


def in_memory(directory: Path) -> dict[str, bytes]:
    """Return a store's files as a mapping from keys to bytes."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def sample(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> np.ndarray[Any, Any]:
    """Return data that compresses somewhat, so that containers hold compressed and raw streams."""
    dtype = np.dtype(dtype)
    rng = np.random.default_rng(seed)
    n = int(np.prod(shape))
    if dtype.fields is not None:
        result = np.zeros(shape, dtype)
        for i, name in enumerate(dtype.names or ()):
            base = dtype[name].base
            result[name] = sample((*shape, *dtype[name].shape), base, seed + i)
        return result
    steps = np.cumsum(rng.integers(-3, 5, n)) if n else np.zeros(0, np.int64)
    if dtype.kind == "b":
        flat = steps % 3 == 0
    elif dtype.kind in "iu":
        flat = (steps * 7).astype(dtype)
    elif dtype.kind == "f":
        flat = (steps / 8 + rng.random(n)).astype(dtype)
        flat[::97] = np.nan
        flat[1::101] = -0.0
    elif dtype.kind == "c":
        flat = (steps / 8 + 1j * rng.random(n)).astype(dtype)
    elif dtype.kind in "mM":
        flat = steps.astype("i8").view(dtype.newbyteorder("="))
        flat[::89] = np.array("NaT", dtype)
    elif dtype.kind == "S":
        flat = np.array([b"x" * (i % (dtype.itemsize + 1)) for i in steps], dtype)
    elif dtype.kind == "U":
        flat = np.array(["aé漢𝄞"[: i % 5] for i in steps], dtype)
    elif dtype.kind == "V":
        flat = rng.integers(0, 4, (n, dtype.itemsize)).astype("u1").view(dtype).reshape(n)
    else:
        raise TypeError(dtype)
    return flat.astype(dtype, copy=False).reshape(shape)


def same(actual: Any, expected: Any, what: Any = "") -> None:
    """Assert that two arrays (or scalars) have equal shapes, dtypes (except for byte order) and bits."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape, what
    if expected.dtype.hasobject or expected.dtype.kind == "T":
        assert actual.dtype.hasobject, what
        assert all(map(_equal, actual.ravel().tolist(), expected.ravel().tolist())), what
        return
    native = expected.dtype.newbyteorder("=")
    assert actual.dtype == native, what
    if actual.tobytes() != expected.astype(native).tobytes():
        different = np.argwhere(actual != expected)
        raise AssertionError(f"{what}: {len(different)} elements differ, first at {different[:1].tolist()}")


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.array_equal(a, b)
    return bool(type(a) is type(b) and (a == b or (a != a and b != b)))
