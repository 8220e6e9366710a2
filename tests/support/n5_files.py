"""An independent writer of N5, by its specification: https://github.com/saalfeldlab/n5#file-system-specification.

Arrays are given with their axes as NumPy has them, the fastest last; N5 has them in reverse.
"""

from __future__ import annotations

import bz2
import gzip
import itertools
import json
import lzma
import struct
import zlib
from typing import TYPE_CHECKING, Any

import numcodecs
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

Store = dict[str, bytes]
#: Each compression, with parameters that are not the default ones.
COMPRESSIONS: dict[str, dict[str, Any]] = {
    "raw": {"type": "raw"},
    "gzip": {"type": "gzip", "level": 3, "useZlib": False},
    "gzip-default": {"type": "gzip", "level": -1},
    "zlib": {"type": "gzip", "level": 5, "useZlib": True},
    "bzip2": {"type": "bzip2", "blockSize": 2},
    "xz": {"type": "xz", "preset": 2},
    "lz4": {"type": "lz4", "blockSize": 1024},
    "blosc": {"type": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0, "nthreads": 1},
    "blosc-zstd": {"type": "blosc", "cname": "zstd", "clevel": 3, "shuffle": 2, "blocksize": 0, "typesize": 2},
    "zstd": {"type": "zstd", "level": 4},
}


def xxhash32(data: bytes, seed: int) -> int:
    """Return xxHash32: https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md."""
    one, two, three, four, five = 2654435761, 2246822519, 3266489917, 668265263, 374761393
    mask = 2**32 - 1

    def turned(value: int, bits: int) -> int:
        return (value << bits | value >> (32 - bits)) & mask

    lanes = [(seed + one + two) & mask, (seed + two) & mask, seed, (seed - one) & mask]
    at = 0
    while at + 16 <= len(data):
        for i, word in enumerate(struct.unpack_from("<4I", data, at)):
            lanes[i] = turned((lanes[i] + word * two) & mask, 13) * one & mask
        at += 16
    result = (seed + five) & mask
    if at:
        result = sum(turned(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & mask
    result = (result + len(data)) & mask
    while at + 4 <= len(data):
        (word,) = struct.unpack_from("<I", data, at)
        result = turned((result + word * three) & mask, 17) * four & mask
        at += 4
    for byte in data[at:]:
        result = turned((result + byte * five) & mask, 11) * one & mask
    result = (result ^ result >> 15) * two & mask
    result = (result ^ result >> 13) * three & mask
    return result ^ result >> 16


def lz4_blocks(data: bytes, block_size: int = 1 << 16, *, ends: bool = True) -> bytes:
    """Return the stream of lz4-java's ``LZ4BlockOutputStream``; every other block is stored, as random data is."""
    level = max((block_size - 1).bit_length() - 10, 0)
    stream = b""
    for number, begin in enumerate(range(0, len(data), block_size)):
        block = data[begin : begin + block_size]
        packed = numcodecs.LZ4().encode(block)[4:]
        is_stored = number % 2 == 1 or len(packed) >= len(block)
        body, method = (block, 0x10) if is_stored else (packed, 0x20)
        checksum = xxhash32(block, 0x9747B28C) & 0x0FFFFFFF
        stream += b"LZ4Block" + struct.pack("<BIII", method | level, len(body), len(block), checksum) + body
    return stream + (b"LZ4Block" + struct.pack("<BIII", 0x10 | level, 0, 0, 0)) * ends


def compressed(data: bytes, compression: Mapping[str, Any]) -> bytes:
    """Return the bytes of a block's elements as an encoder of N5 writes them."""
    name = compression["type"]
    level = compression.get("level", -1)
    makers: dict[str, Callable[[], bytes]] = {
        "raw": lambda: data,
        "gzip": lambda: gzip.compress(data, 6 if level < 0 else level),
        "bzip2": lambda: bz2.compress(data, compression.get("blockSize", 9)),
        "xz": lambda: lzma.compress(data, preset=compression.get("preset", 6)),
        "lz4": lambda: lz4_blocks(data, compression.get("blockSize", 1 << 16)),
        "blosc": lambda: numcodecs.Blosc(compression["cname"], compression["clevel"], compression["shuffle"]).encode(
            data
        ),
        "zstd": lambda: numcodecs.Zstd(level).encode(data),
    }
    if name == "gzip" and compression.get("useZlib"):
        return zlib.compress(data, level)
    return bytes(makers[name]())


def block(values: np.ndarray[Any, Any], compression: Mapping[str, Any], mode: int = 0) -> bytes:
    """Return a block: its header, and its elements."""
    sizes = values.shape[::-1]
    header = struct.pack(f">HH{len(sizes)}I", mode, len(sizes), *sizes)
    data = np.ascontiguousarray(values).astype(values.dtype.newbyteorder(">")).tobytes()
    return header + compressed(data, compression)


def write_array(
    store: Store,
    path: str,
    values: np.ndarray[Any, Any],
    blocks: tuple[int, ...],
    compression: Mapping[str, Any] | None = None,
    *,
    whole: bool = False,
    sparse: bool = False,
    version: str | None = None,
    **attributes: Any,
) -> None:
    """Write a dataset.

    Parameters
    ----------
    store, path
        Mapping of keys to bytes, and path of the dataset in it.
    values
        Elements.
    blocks
        Shape of a block, in NumPy's order of axes.
    compression
        Object of the document; None for raw.
    whole
        Whether blocks at the edges are as large as others, as zarr-python 2 wrote them, rather than cut.
    sparse
        Whether blocks of zeros are left out.
    version
        Version of N5 in the document.
    **attributes
        Attributes of users.
    """
    compression = {"type": "raw"} if compression is None else compression
    document = {
        **({} if version is None else {"n5": version}),
        "dimensions": list(values.shape[::-1]),
        "blockSize": list(blocks[::-1]),
        "dataType": values.dtype.name,
        "compression": dict(compression),
        **attributes,
    }
    prefix = f"{path}/" if path else ""
    store[f"{prefix}attributes.json"] = json.dumps(document).encode()
    for coords in itertools.product(*(range(-(-n // b)) for n, b in zip(values.shape, blocks, strict=True))):
        part = values[tuple(slice(i * b, (i + 1) * b) for i, b in zip(coords, blocks, strict=True))]
        if sparse and not part.any():
            continue
        if whole:
            part = np.pad(part, [(0, b - n) for b, n in zip(blocks, part.shape, strict=True)])
        store[prefix + "/".join(map(str, reversed(coords)))] = block(part, compression)


def write_group(store: Store, path: str, **attributes: Any) -> None:
    """Write the document of a group."""
    store[f"{path}/attributes.json" if path else "attributes.json"] = json.dumps(attributes).encode()


def write_files(store: Mapping[str, bytes], directory: Path) -> Path:
    """Write the values of a store to files, and return the directory."""
    for key, value in store.items():
        file = directory / key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(value)
    return directory
