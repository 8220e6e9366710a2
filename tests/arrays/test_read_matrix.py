"""Every encoding read by every engine from both stores, compared bit by bit with zarr-python and tensorstore."""

from __future__ import annotations

import base64
import itertools
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numcodecs
import numpy as np
import pytest
import tensorstore as ts
import zarr
from support.devices import ENGINES, holds, over
from support.zarr_arrays import BIG, CRC32C, LITTLE, blosc3, codec, in_memory, same, sample, shard, v2, v3, write

import gzarr

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.devices import TestedDevice

SHUFFLES = ("noshuffle", "shuffle", "bitshuffle")
#: Filters of numcodecs that the compiled loop undoes, by the names of cases here.
COMPILED = ("astype", "bitround", "delta", "fletcher32", "offset", "packbits", "quantize")
COMPRESSORS = ("lz4", "lz4hc", "zstd", "zlib", "blosclz")


@dataclass(frozen=True)
class Case:
    """An array of one encoding.

    ``path`` is the engine and, if given, the labels expected in ``decode_path``; ``tensorstore`` tells whether that
    library reads the case; for ``lossy`` codecs the expected result is what zarr-python reads, not the written data.
    zarr-python 3.1 knows neither transposed shards with different sides (written by tensorstore), nor v2 arrays with
    objects other than text and bytes or with fields that are arrays (written with numcodecs' codecs).
    """

    name: str
    document: dict[str, Any]
    data: np.ndarray[Any, Any]
    path: str = "cpu-native"
    tensorstore: bool = True
    lossy: bool = False
    allow_pickle: bool = False
    zarr_python: bool = True

    def __repr__(self) -> str:
        return self.name


# -- encodings


def blosc2(cname: str, shuffle: int, clevel: int = 5, blocksize: int = 0) -> dict[str, Any]:
    return {"id": "blosc", "cname": cname, "clevel": clevel, "shuffle": shuffle, "blocksize": blocksize}


def blosc_cases() -> Iterator[Case]:
    # 37 × 29 × 2 bytes are no multiple of a block, nor of 8 elements.
    shape, chunks = (61, 50), (37, 29)
    data = sample(shape, "u2")
    for cname, (i, shuffle) in itertools.product(COMPRESSORS, enumerate(SHUFFLES)):
        codecs = [LITTLE, blosc3(cname, shuffle, 2)]
        labels = f"cpu-native: blosc({cname}, {shuffle}" if shuffle != "noshuffle" else f"cpu-native: blosc({cname}"
        yield Case(f"v3-blosc-{cname}-{shuffle}", v3(shape, chunks, "uint16", codecs), data, labels)
        codecs = [LITTLE, blosc3(cname, shuffle, 2, blocksize=256)]
        yield Case(f"v3-blosc-{cname}-{shuffle}-blocks", v3(shape, chunks, "uint16", codecs), data, labels)
        document = v2(shape, chunks, "<u2", blosc2(cname, i, blocksize=512))
        yield Case(f"v2-blosc-{cname}-{shuffle}-blocks", document, data, labels)
    for typesize, cname in itertools.product((1, 2, 3, 5, 8, 16, 255), ("lz4", "zstd")):
        for shuffle in SHUFFLES:
            document = v3(shape, chunks, "uint16", [LITTLE, blosc3(cname, shuffle, typesize, blocksize=512)])
            yield Case(f"v3-blosc-{cname}-{shuffle}-typesize{typesize}", document, data)
    noise = np.random.default_rng(1).integers(0, 256, shape).astype("u1")
    for clevel, shuffle in itertools.product((0, 1, 9), SHUFFLES):
        document = v3(shape, chunks, "uint8", [LITTLE, blosc3("lz4", shuffle, 1, clevel)])
        yield Case(f"v3-blosc-noise-{shuffle}-level{clevel}", document, noise)
    for name, cname, shuffle in itertools.product(("float32", "float64", "complex128"), ("lz4", "zstd"), SHUFFLES):
        size = np.dtype(name).itemsize
        codecs = [LITTLE, blosc3(cname, shuffle, size, blocksize=1024)]
        document = v3((900,), (700,), name, codecs, [0.0, 0.0] if name[0] == "c" else 0.0)
        yield Case(f"v3-blosc-{cname}-{shuffle}-{name}", document, sample((900,), name))
    # Blocks that are split into streams are 64 KiB or more; here are four, the last one short.
    for dtype, cname, shuffle in itertools.product(("uint16", "int32", "float64"), COMPRESSORS, SHUFFLES):
        size = np.dtype(dtype).itemsize
        n, chunk = 230_001 // size, 200_003 // size
        document = v3((n,), (chunk,), dtype, [LITTLE, blosc3(cname, shuffle, size, 1, 65536)])
        yield Case(f"v3-blosc-{cname}-{shuffle}-{dtype}-streams", document, sample((n,), dtype))
    # Tails: every length of a last block modulo 8 elements.
    for n, shuffle in itertools.product((1, 3, 7, 8, 9, 15, 17, 31, 33, 130, 131, 257), ("shuffle", "bitshuffle")):
        document = v3((2 * n + 1,), (n,), "int64", [LITTLE, blosc3("lz4", shuffle, 8, blocksize=128)])
        yield Case(f"v3-blosc-{shuffle}-{n}-elements", document, sample((2 * n + 1,), "i8"))


def v3_cases() -> Iterator[Case]:
    shape, chunks = (23, 19), (8, 10)
    data = sample(shape, "i4")
    zstd = codec("zstd", level=3, checksum=False)
    zstd_checksum = codec("zstd", level=1, checksum=True)
    gzip = codec("gzip", level=5)
    transpose = codec("transpose", order=[1, 0])
    blosc = blosc3("lz4", "shuffle", 4)
    chains: list[tuple[str, list[Any], str]] = [
        ("bytes-little", [LITTLE], "cpu-native: uncompressed"),
        ("bytes-big", [BIG], "cpu-native: bytes(big)"),
        ("zstd", [LITTLE, zstd], "cpu-native: zstd"),
        ("zstd-checksum", [BIG, zstd_checksum], "cpu-native: bytes(big) + zstd"),
        ("gzip", [LITTLE, gzip], "cpu-native: gzip"),
        ("gzip-0", [LITTLE, codec("gzip", level=0)], "cpu-native: gzip"),
        ("crc32c", [LITTLE, CRC32C], "cpu-native: crc32c"),
        ("crc32c-twice", [LITTLE, CRC32C, CRC32C], "cpu-native: crc32c + crc32c"),
        ("crc32c-zstd", [LITTLE, CRC32C, zstd], "cpu-native: crc32c + zstd"),
        ("zstd-crc32c", [LITTLE, zstd, CRC32C], "cpu-native: zstd + crc32c"),
        ("crc32c-gzip-crc32c", [BIG, CRC32C, gzip, CRC32C], "cpu-native: bytes(big) + crc32c + gzip + crc32c"),
        ("blosc-crc32c", [LITTLE, blosc, CRC32C], "cpu-native: blosc"),
        ("crc32c-blosc", [LITTLE, CRC32C, blosc], "cpu-native: crc32c + blosc"),
        ("transpose", [transpose, LITTLE], "cpu-native: transpose(1, 0)"),
        ("transpose-big-zstd", [transpose, BIG, zstd], "cpu-native: transpose(1, 0) + bytes(big) + zstd"),
        ("transpose-blosc", [transpose, LITTLE, blosc], "cpu-native: transpose(1, 0) + blosc"),
        (
            "transpose-twice",
            [transpose, transpose, LITTLE, zstd],
            "cpu-native: transpose(1, 0) + transpose(1, 0) + zstd",
        ),
        ("zstd-in-gzip", [LITTLE, zstd, gzip], "cpu-threads: zstd + gzip"),
    ]
    for name, codecs, path in chains:
        yield Case(f"v3-{name}", v3(shape, chunks, "int32", codecs), data, path)
    # (16, 20) shards of (8, 10) and (4, 5) chunks; the last row and column overhang.
    shards: list[tuple[str, list[Any], str]] = [
        ("end", [shard([8, 10], [LITTLE, zstd])], "cpu-native: sharding_indexed(8×10: zstd)"),
        ("start", [shard([8, 10], [LITTLE, zstd], "start")], "cpu-native: sharding_indexed(8×10: zstd)"),
        ("plain", [shard([8, 10], [BIG])], "cpu-native: sharding_indexed(8×10: bytes(big))"),
        ("crc32c", [shard([8, 10], [LITTLE, zstd, CRC32C])], "cpu-native: sharding_indexed(8×10: zstd + crc32c)"),
        (
            "index-no-crc32c",
            [shard([4, 5], [LITTLE, blosc], "end", [LITTLE])],
            "cpu-native: sharding_indexed(4×5: blosc",
        ),
        ("index-start-no-crc32c", [shard([4, 5], [LITTLE, gzip], "start", [LITTLE])], "cpu-native: sharding_indexed"),
        ("index-big", [shard([4, 5], [LITTLE, zstd], "end", [BIG, CRC32C])], "cpu-native: sharding_indexed"),
        (
            "transposed-inside",
            [shard([8, 5], [transpose, LITTLE, zstd])],
            "cpu-native: sharding_indexed(8×5: transpose",
        ),
        ("transposed-outside", [transpose, shard([10, 4], [LITTLE, zstd])], "cpu-native: sharding_indexed(4×10"),
        ("transposed-both", [transpose, shard([5, 8], [transpose, BIG, blosc])], "cpu-native: sharding_indexed(8×5"),
        (
            "nested",
            [shard([8, 10], [shard([4, 5], [LITTLE, zstd], "start")])],
            "cpu-native: sharding_indexed(8×10: sharding_indexed(4×5: zstd))",
        ),
        (
            "nested-transposed",
            [
                transpose,
                shard(
                    [10, 8],
                    [
                        transpose,
                        shard([4, 5], [LITTLE, blosc, CRC32C]),
                    ],
                ),
            ],
            "cpu-native: sharding_indexed(8×10: sharding_indexed(4×5",
        ),
        (
            "nested-thrice",
            [shard([16, 20], [shard([8, 10], [shard([2, 5], [LITTLE, gzip])], "start")])],
            "cpu-native: sharding_indexed(16×20: sharding_indexed(8×10: sharding_indexed(2×5: gzip)))",
        ),
        ("compressed", [shard([8, 10], [LITTLE, zstd]), gzip], "cpu-threads: sharding_indexed"),
        ("checked", [shard([8, 10], [LITTLE, zstd]), CRC32C], "cpu-threads: sharding_indexed"),
    ]
    for name, codecs, path in shards:
        document = v3(shape, (16, 20), "int32", codecs)
        turned = codecs[0] is transpose
        yield Case(f"v3-shard-{name}", document, data, path, turned or len(codecs) == 1, zarr_python=not turned)
    keys = [codec(name, separator=separator) for name in ("default", "v2") for separator in "./"]
    for key_encoding in [*keys, {"name": "default"}, {"name": "v2"}]:
        document = v3(shape, chunks, "int32", [LITTLE, zstd], keys=key_encoding)
        separator = key_encoding.get("configuration", {}).get("separator", "")
        yield Case(f"v3-keys-{key_encoding['name']}{separator}", document, data)
    # Filters of numcodecs under their v3 names; zarr-python warns that they are not in the specification.
    floats = np.linspace(-40, 40, 23 * 19).reshape(shape)
    other: list[tuple[str, str, list[Any], Any, bool]] = [
        ("bz2", "int32", [LITTLE, codec("numcodecs.bz2", level=5)], data, False),
        ("lzma", "int32", [LITTLE, codec("numcodecs.lzma", preset=1)], data, False),
        ("lz4", "int32", [LITTLE, codec("numcodecs.lz4", acceleration=1)], data, False),
        ("zlib", "int32", [LITTLE, codec("numcodecs.zlib", level=5)], data, False),
        ("shuffle", "int32", [LITTLE, codec("numcodecs.shuffle", elementsize=4), zstd], data, False),
        ("crc32", "int32", [LITTLE, codec("numcodecs.crc32")], data, False),
        ("adler32", "int32", [LITTLE, codec("numcodecs.adler32")], data, False),
        ("fletcher32", "int32", [LITTLE, codec("numcodecs.fletcher32")], data, False),
        ("jenkins", "int32", [LITTLE, codec("numcodecs.jenkins_lookup3")], data, False),
        ("delta", "int32", [codec("numcodecs.delta", dtype="<i4"), LITTLE, zstd], data, False),
        ("packbits", "bool", [codec("numcodecs.packbits"), LITTLE, zstd], data % 3 == 0, False),
        ("bitround", "float64", [codec("numcodecs.bitround", keepbits=10), LITTLE], floats, True),
        ("quantize", "float64", [codec("numcodecs.quantize", digits=2, dtype="<f8"), LITTLE], floats, True),
        (
            "offset",
            "float64",
            [codec("numcodecs.fixedscaleoffset", offset=0, scale=8, dtype="<f8", astype="<i2"), LITTLE],
            floats,
            True,
        ),
        (
            "astype",
            "float64",
            [codec("numcodecs.astype", encode_dtype="<f4", decode_dtype="<f8"), LITTLE],
            floats,
            True,
        ),
    ]
    for name, dtype, codecs, values, lossy in other:
        native = name in ("lz4", "zlib", "shuffle", *COMPILED)
        document = v3(shape, chunks, dtype, codecs, False if dtype == "bool" else 0)
        yield Case(f"v3-numcodecs-{name}", document, values, "cpu-native" if native else "cpu-threads", False, lossy)
    cube = sample((7, 9, 11), "f4")
    for order in itertools.permutations(range(3)):
        chain = [codec("transpose", order=list(order)), BIG, zstd]
        yield Case(f"v3-transpose-{order}", v3(cube.shape, (4, 5, 6), "float32", chain, 0.0), cube)
        inner = [[4, 6, 8][d] // 2 for d in order]
        chain = [codec("transpose", order=list(order)), shard(inner, [LITTLE, zstd])]
        document = v3(cube.shape, (4, 6, 8), "float32", chain, 0.0)
        yield Case(f"v3-transpose-{order}-shard", document, cube, zarr_python=False)
        chain = [shard([2, 3, 4], [codec("transpose", order=list(order)), LITTLE, zstd])]
        yield Case(f"v3-shard-transpose-{order}", v3(cube.shape, (4, 6, 8), "float32", chain, 0.0), cube)


def v2_cases() -> Iterator[Case]:
    shape, chunks = (23, 19), (8, 10)
    data = sample(shape, "i4")
    floats = np.linspace(900, 1100, 23 * 19).reshape(shape)
    compressors: list[tuple[str, dict[str, Any] | None, str, bool]] = [
        ("raw", None, "cpu-native: uncompressed", True),
        ("zlib", {"id": "zlib", "level": 5}, "cpu-native: zlib", True),
        ("gzip", {"id": "gzip", "level": 5}, "cpu-native: gzip", True),
        ("zstd", {"id": "zstd", "level": 3}, "cpu-native: zstd", True),
        ("lz4", {"id": "lz4", "acceleration": 1}, "cpu-native: lz4", False),
        ("blosc", blosc2("lz4", 1), "cpu-native: blosc(lz4, shuffle", True),
        ("blosc-auto", blosc2("zstd", -1), "cpu-native: blosc(zstd", True),
        ("bz2", {"id": "bz2", "level": 5}, "cpu-threads: bz2", True),
        ("lzma", {"id": "lzma", "preset": 1, "format": 1, "check": -1, "filters": None}, "cpu-threads: lzma", False),
    ]
    for name, compressor, path, peer in compressors:
        for order, separator in (("C", "."), ("F", "/")):
            labels = path if order == "C" else path.partition(":")[0]
            document = v2(shape, chunks, "<i4", compressor, order=order, separator=separator)
            yield Case(f"v2-{name}-{order}", document, data, labels, peer)
    yield Case("v2-big-endian-F", v2(shape, chunks, ">i4", {"id": "zstd", "level": 1}, order="F"), data)
    cube = sample((7, 9, 11), "f4")
    yield Case("v2-cube-F", v2(cube.shape, (4, 5, 6), ">f4", blosc2("lz4", 1), order="F"), cube)
    zlib = {"id": "zlib", "level": 1}
    filters: list[tuple[str, str, list[Any], Any, bool]] = [
        ("delta", "<i4", [{"id": "delta", "dtype": "<i4"}], data, False),
        ("delta-astype", "<i4", [{"id": "delta", "dtype": "<i4", "astype": "<i2"}], data % 100, False),
        ("shuffle", "<i4", [{"id": "shuffle", "elementsize": 4}], data, False),
        ("shuffle-3", "<i4", [{"id": "shuffle", "elementsize": 5}], data, False),
        ("crc32", "<i4", [{"id": "crc32"}], data, False),
        ("crc32c", "<i4", [{"id": "crc32c"}], data, False),
        ("adler32", "<i4", [{"id": "adler32"}], data, False),
        ("fletcher32", "<i4", [{"id": "fletcher32"}], data, False),
        ("jenkins", "<i4", [{"id": "jenkins_lookup3"}], data, False),
        (
            "offset",
            "<f8",
            [{"id": "fixedscaleoffset", "offset": 1000, "scale": 10, "dtype": "<f8", "astype": "<i2"}],
            floats,
            True,
        ),
        ("packbits", "|b1", [{"id": "packbits"}], data % 3 == 0, False),
        ("astype", "<f8", [{"id": "astype", "encode_dtype": "<f4", "decode_dtype": "<f8"}], floats, True),
        ("bitround", "<f8", [{"id": "bitround", "keepbits": 9}], floats, True),
        ("quantize", "<f8", [{"id": "quantize", "digits": 1, "dtype": "<f8", "astype": "<f4"}], floats, True),
        ("base64", "<i4", [{"id": "base64"}], data, False),
        ("delta-shuffle", "<i4", [{"id": "delta", "dtype": "<i4"}, {"id": "shuffle", "elementsize": 4}], data, False),
    ]
    for name, dtype, chain, values, lossy in filters:
        fill = False if dtype == "|b1" else 0
        compiled = name.partition("-")[0] in ("shuffle", "crc32c", *COMPILED)
        engine = "cpu-native" if compiled else "cpu-threads"
        for compressor in (None, zlib):
            suffix = "" if compressor is None else "-zlib"
            document = v2(shape, chunks, dtype, compressor, chain, fill=fill)
            yield Case(f"v2-filter-{name}{suffix}", document, values, engine, False, lossy)


STRUCTURED = np.dtype([("a", "<i4"), ("b", "<f8"), ("c", "S3")])
NESTED = np.dtype([("p", "<u2", (2, 3)), ("q", [("x", "<i2"), ("y", "<f4")])])


def dtype_cases() -> Iterator[Case]:
    shape, chunks = (13, 11), (5, 4)
    simple = ["?", "i1", "u1", *(f"{kind}{n}" for kind in "iu" for n in (2, 4, 8)), "f2", "f4", "f8", "c8", "c16"]
    compressors = [("raw", None), ("zlib", {"id": "zlib", "level": 1}), ("blosc", blosc2("lz4", 2))]
    for (name, compressor), dtype in itertools.product(compressors, simple):
        for order in "<>":
            stored = np.dtype(f"{order}{dtype}").str
            if stored[0] == "|" and order == ">":
                continue
            document = v2(shape, chunks, stored, compressor, fill=False if dtype == "?" else 0)
            if dtype[0] == "c":
                document["fill_value"] = [0.0, 0.0]
            yield Case(f"v2-{stored}-{name}", document, sample(shape, dtype))
    for name in (np.dtype(d).name for d in simple):
        fill: Any = False if name == "bool" else [0.0, 0.0] if name[0] == "c" else 0
        for endian in (LITTLE, BIG):
            codecs = [endian, codec("zstd", level=1, checksum=False)]
            kind = "big" if endian is BIG else "little"
            yield Case(f"v3-{name}-{kind}", v3(shape, chunks, name, codecs, fill), sample(shape, name))
    times = ["M8[ns]", "M8[D]", "M8[10us]", "m8[s]", "m8[ms]", "m8[5m]"]
    for dtype, order in itertools.product(["S1", "S5", "U1", "U4", "V3", "V8", *times], "<>"):
        stored = np.dtype(dtype).newbyteorder(order).str
        if order == ">" and stored[0] == "|":
            continue
        fill = "" if dtype[0] in "SU" else "AAAA" if dtype == "V3" else "AAAAAAAAAAA=" if dtype == "V8" else 0
        for name, compressor in compressors:
            document = v2(shape, chunks, stored, compressor, fill=fill)
            yield Case(f"v2-{stored}-{name}", document, sample(shape, dtype), tensorstore=False)
    named: list[tuple[Any, str, Any]] = [
        (codec("fixed_length_utf32", length_bytes=16), "U4", ""),
        (codec("null_terminated_bytes", length_bytes=5), "S5", ""),
        (codec("raw_bytes", length_bytes=6), "V6", "AAAAAAAA"),
        (codec("numpy.datetime64", unit="ms", scale_factor=10), "M8[10ms]", 0),
        (codec("numpy.timedelta64", unit="s", scale_factor=1), "m8[s]", 0),
    ]
    for data_type, dtype, fill in named:
        for endian in (LITTLE, BIG):
            document = v3(shape, chunks, data_type, [endian, blosc3("lz4", "shuffle", 4)], fill)
            name = f"v3-{dtype}-{endian['configuration']['endian']}"
            yield Case(name, document, sample(shape, dtype), tensorstore=False)
    for dtype in (STRUCTURED, NESTED):
        for (name, compressor), order in itertools.product(compressors, "CF"):
            document = v2(shape, chunks, fields(dtype), compressor, order=order, fill=None)
            name = f"v2-struct{len(dtype.names or ())}-{name}-{order}"
            yield Case(name, document, sample(shape, dtype), tensorstore=False, zarr_python=dtype is STRUCTURED)
    mixed = np.dtype([("a", ">i4"), ("b", "<f8"), ("c", ">U2")])
    document = v2(shape, chunks, fields(mixed), None, fill=None)
    data = sample(shape, mixed.newbyteorder("="))
    yield Case("v2-struct-mixed-endian", document, data, "cpu-threads", tensorstore=False)


def fields(dtype: np.dtype[Any]) -> list[Any]:
    items: list[Any] = []
    for name, *described in dtype.descr:
        kind = described[0] if isinstance(described[0], str) else [list(item) for item in described[0]]
        items.append([name, kind, *(list(shape) for shape in described[1:])])
    return items


def object_cases() -> Iterator[Case]:
    shape, chunks = (7, 5), (3, 4)
    n = 35
    text = np.array([["", "a", "héllo", "漢字", "x" * 300][i % 5] for i in range(n)], object).reshape(shape)
    raw = np.array([b"\x00\xff" * (i % 4) for i in range(n)], object).reshape(shape)
    things = np.empty(n, object)
    things[:] = [[i, 1.5, None, "s", {"k": [i]}, True][i % 6] for i in range(n)]
    things = things.reshape(shape)
    options = {"encoding": "utf-8", "strict": True, "allow_nan": True}
    kinds: list[tuple[str, dict[str, Any], Any, Any]] = [
        ("vlen-utf8", {"id": "vlen-utf8"}, text, ""),
        ("vlen-bytes", {"id": "vlen-bytes"}, raw, ""),
        ("json2", {"id": "json2", **options}, things, None),
        ("json2-text", {"id": "json2", **options}, text, None),
        ("msgpack2", {"id": "msgpack2", "raw": False}, things, None),
        ("pickle", {"id": "pickle", "protocol": 5}, things, None),
    ]
    for (name, codec_, values, fill), order in itertools.product(kinds, "CF"):
        # These hold the shape of what they were given, and say nothing of its order.
        if order == "F" and name in ("json2", "json2-text", "msgpack2"):
            continue
        for compressor in (None, {"id": "zstd", "level": 1}):
            document = v2(shape, chunks, "|O", compressor, [codec_], order, fill)
            suffix = "" if compressor is None else "-zstd"
            known = name.startswith("vlen-")
            title = f"v2-{name}-{order}{suffix}"
            yield Case(title, document, values, "cpu-threads", False, False, name == "pickle", known)
    zstd = codec("zstd", level=1, checksum=False)
    strings = {"name": "vlen-utf8"}
    yield Case("v3-string", v3(shape, chunks, "string", [strings, zstd], ""), text, "cpu-threads", False)
    chain = [shard([1, 2], [strings, zstd])]
    yield Case("v3-string-shard", v3(shape, (3, 4), "string", chain, ""), text, "cpu-threads", False)
    document = v3(shape, chunks, "variable_length_bytes", [{"name": "vlen-bytes"}, zstd], "")
    yield Case("v3-bytes", document, raw, "cpu-threads", False)


def shape_cases() -> Iterator[Case]:
    shapes: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
        ((), ()),
        ((1,), (1,)),
        ((1,), (10,)),
        ((10,), (1,)),
        ((17,), (5,)),
        ((0,), (3,)),
        ((5, 0, 3), (2, 1, 2)),
        ((3, 4), (10, 20)),
        ((1, 1, 1), (1, 1, 1)),
        ((6, 5, 7), (1, 1, 1)),
        ((5, 6, 7, 4), (2, 3, 4, 4)),
        ((3, 4, 3, 5, 2), (2, 2, 2, 3, 2)),
        ((64, 3), (1, 3)),
        ((3, 64), (3, 1)),
    ]
    for shape, chunks in shapes:
        for name, codecs in (
            ("raw", [LITTLE]),
            ("blosc", [LITTLE, blosc3("lz4", "bitshuffle", 4)]),
            ("shard", [shard([1, *chunks[1:]], [BIG, codec("gzip", level=1)])]),
        ):
            if name == "shard" and not shape:
                continue
            label = "×".join(map(str, shape)) or "0d"
            blocks = "×".join(map(str, chunks))
            document = v3(shape, chunks, "float32", codecs, 0.0)
            yield Case(f"v3-{name}-{label}-by-{blocks}", document, sample(shape, "f4"))
        document = v2(shape, chunks, "<f4", {"id": "zlib", "level": 1}, order="F")
        yield Case(f"v2-F-{label}-by-{blocks}", document, sample(shape, "f4"))


CASES = [
    *blosc_cases(),
    *v3_cases(),
    *v2_cases(),
    *dtype_cases(),
    *object_cases(),
    *shape_cases(),
]


def test_names_of_cases_differ() -> None:
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize(("case", "device"), over(CASES, lambda case: case.data.dtype), indirect=["device"])
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning", "ignore:.*:zarr.errors.ZarrUserWarning")
def test_encoding(case: Case, device: TestedDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = case.data
    if case.zarr_python:
        written = np.asarray(write(tmp_path / "a", case.document, case.data)[...])
        if case.lossy:
            expected = written.astype(written.dtype.newbyteorder("="))
        else:
            same(expected, written, "zarr-python")
    elif case.tensorstore:
        by_tensorstore(tmp_path / "a", case.document, create=True).write(expected).result()
    else:
        by_numcodecs(tmp_path / "a", case.document, expected)
    if case.tensorstore:
        same(by_tensorstore(tmp_path / "a", case.document).read().result(), expected, "tensorstore")
    stores = (tmp_path / "a", in_memory(tmp_path / "a"))
    arrays = [gzarr.open_array(store, device=device.name, allow_pickle=case.allow_pickle) for store in stores]
    for array in arrays:
        assert array.decode_path.startswith("cuda" if device.is_cuda else case.path), array.decode_path
    if not device.is_cuda and case.path.startswith("cpu-native"):
        monkeypatch.setattr("gzarr.engines.kernels.available", frozenset)
        arrays.append(gzarr.open_array(tmp_path / "a", device="cpu"))
        assert arrays[-1].decode_path.startswith("cpu-threads: ")
    for array, selection in itertools.product(arrays, few_selections(expected.shape)):
        # The ellipsis keeps zero dimensions an array: an element may itself be a sequence.
        same(device.read(array, selection), expected[selection], (array.decode_path, array.store, selection))


def by_tensorstore(path: Path, document: dict[str, Any], create: bool = False) -> Any:
    spec = {"driver": "zarr3" if document["zarr_format"] == 3 else "zarr"}
    spec["kvstore"] = {"driver": "file", "path": f"{path}/"}
    return ts.open({**spec, **({"metadata": document} if create else {})}, open=not create, create=create).result()


def by_numcodecs(path: Path, document: dict[str, Any], data: np.ndarray[Any, Any]) -> None:
    """Write a v2 array according to the specification, chunk by chunk."""
    path.mkdir()
    (path / ".zarray").write_text(json.dumps(document))
    codecs = [numcodecs.get_codec(c) for c in [*(document["filters"] or ()), document["compressor"]] if c]
    chunks = document["chunks"]
    for coords in np.ndindex(*(-(-n // c) for n, c in zip(data.shape, chunks, strict=True))):
        box = data[tuple(slice(i * c, (i + 1) * c) for i, c in zip(coords, chunks, strict=True))]
        chunk = np.zeros(chunks, data.dtype, order=document["order"])
        chunk[tuple(slice(n) for n in box.shape)] = box
        value: Any = chunk
        for codec_ in codecs:
            value = codec_.encode(value)
        (path / ".".join(map(str, coords))).write_bytes(bytes(value) if codecs else chunk.tobytes(order="A"))


def few_selections(shape: tuple[int, ...]) -> list[Any]:
    if not shape or 0 in shape:
        return [...]
    box = tuple(slice(n // 3, n - n // 4) for n in shape)
    steps = tuple(slice(None, None, (-2, 3, -1)[d % 3]) for d in range(len(shape)))
    return [..., (*box, ...), (*steps, ...), (shape[0] // 2, ...), (..., shape[-1] - 1)]


# -- selections


SELECTED: list[tuple[str, tuple[int, ...], dict[str, Any]]] = []
GRIDS = [((), ()), ((47,), (10,)), ((17, 23), (5, 6)), ((9, 7, 11), (4, 7, 3)), ((3, 4, 3, 5, 2), (2, 3, 2, 4, 1))]
_blosc = blosc3("lz4", "shuffle", 4, blocksize=128)
for _shape, _chunks in GRIDS:
    _inner = [*_chunks[:-1], 1] if len(_chunks) < 3 else [*_chunks[:2], *(1 for _ in _chunks[2:-1]), _chunks[-1]]
    SELECTED += [
        (f"blosc-{len(_shape)}d", _shape, v3(_shape, _chunks, "int32", [LITTLE, _blosc])),
        (f"big-{len(_shape)}d", _shape, v3(_shape, _chunks, "int32", [BIG])),
        (f"order-F-{len(_shape)}d", _shape, v2(_shape, _chunks, "<i4", {"id": "zlib", "level": 1}, order="F")),
    ]
    if _shape:
        SELECTED.append((f"shard-{len(_shape)}d", _shape, v3(_shape, _chunks, "int32", [shard(_inner, [LITTLE])])))


def basic_selections(shape: tuple[int, ...]) -> list[Any]:
    """Return NumPy's basic selections, selections with one index array, and one with an index array per dimension."""
    k = len(shape)
    found: list[Any] = [..., (), (...,), None, (None, ...), (..., None), (None, ..., None)]
    if not k:
        return found
    n = shape[0]
    every = slice(None)
    found += [0, -1, n // 2, np.int32(1), (..., 0), (..., -1), (..., np.uint8(0), None), (0, None, ...)]
    for part in (
        slice(1, n - 1),
        slice(-n // 2, None),
        slice(None, -1),
        slice(None, None, 2),
        slice(1, None, 3),
        slice(None, None, 7),
        slice(None, None, n + 5),
        slice(None, None, -1),
        slice(-2, 0, -3),
        slice(None, 1, -2),
        slice(n // 2, n // 2),
        slice(5, 2),
        slice(n + 3, None),
        slice(-5 * n, 5 * n),
    ):
        found += [part, (..., part), (part, ...), (None, part)]
    found += [
        tuple(s // 2 for s in shape),
        tuple(-1 for _ in shape),
        tuple(slice(s // 4, s - s // 5) for s in shape),
        tuple(slice(None, None, -2) for _ in shape),
        tuple(slice(d % 2, None, d + 1) for d in range(k)),
        tuple(slice(s // 2, s // 2) for s in shape),
        tuple(d if d % 2 else slice(None, None, -1) for d in range(k)) if k > 1 else 2,
    ]
    rng = np.random.default_rng(7)
    for d in range(k):
        before, size = (every,) * d, shape[d]
        indices = rng.integers(-size, size, 9)
        found += [
            (*before, rng.random(size) < 0.5),
            (*before, np.zeros(size, bool)),
            (*before, rng.permutation(size)),
            (*before, indices, ...),
            (*before, indices.tolist()),
            (*before, indices.reshape(3, 3)),
            (*before, np.empty(0, np.int64)),
            (*before, np.array([size - 1], np.uint16)),
        ]
        if d:
            found += [(slice(None, None, -1), *before[1:], indices), (slice(1, None, 2), *before[1:], indices)]
    points = tuple(rng.integers(0, s, 12) for s in shape)
    found += [points, tuple(p.reshape(3, 4) for p in points), rng.random(shape) < 0.2]
    if k > 1:
        # An integer beside index arrays is one of them; several broadcast.
        found += [(0, *points[1:]), (points[0][:, None], *(p[None, :] for p in points[1:]))]
    return found


#: ENGINES, where the selections of CUDA in host memory take most of the time.
_SLOW_ON_CUDA = [
    *ENGINES[:2],
    pytest.param(*ENGINES[2].values, id=ENGINES[2].id, marks=[*ENGINES[2].marks, pytest.mark.slow]),
]


@pytest.mark.parametrize(("device", "threads"), _SLOW_ON_CUDA, indirect=["device"])
@pytest.mark.parametrize(("name", "shape", "document"), SELECTED, ids=[entry[0] for entry in SELECTED])
def test_selections(
    name: str,
    shape: tuple[int, ...],
    document: dict[str, Any],
    device: TestedDevice,
    threads: bool,
    tmp_path: Path,
    monkeypatch: Any,
) -> None:
    if threads:
        monkeypatch.setattr("gzarr.engines.kernels.available", frozenset)
    data = sample(shape, "i4")
    reference = write(tmp_path, document, data)
    array = device.open(tmp_path)
    assert array.decode_path.startswith("cuda" if device.is_cuda else "cpu-threads" if threads else "cpu-native")
    selections = basic_selections(shape)
    for i, selection in enumerate(selections):
        expected = data[selection]
        result = array[selection]
        same(device.to_numpy(result), expected, selection)
        if not device.is_cuda:
            assert isinstance(result, np.ndarray) == bool(expected.shape), selection
        assert not expected.shape or result.flags.c_contiguous, selection
        out = outs(expected, device)[i % 5]
        same(device.read(array, selection, out=out), expected, (selection, out.strides))
    for selection, expected in orthogonal(shape, data):
        same(device.read(array.oindex, selection), expected, selection)
    # What these mean does not depend on chunks, so zarr-python has one only, in memory.
    whole = zarr.array(data, chunks=tuple(max(n, 1) for n in shape), zarr_format=3)
    for selection in zarr_orthogonal(shape):
        same(device.read(array.oindex, selection), whole.oindex[selection], selection)
    for selection in vectors(shape):
        same(device.read(array.vindex, selection), whole.vindex[selection], selection)
        same(device.to_numpy(array.vindex[selection]), data[selection], selection)
    for selection in block_selections(array.metadata.grid_shape):
        same(device.read(array.blocks, selection), reference.blocks[selection], selection)


def outs(expected: np.ndarray[Any, Any], device: TestedDevice) -> list[Any]:
    """Return outputs of several memory layouts."""
    shape, dtype = expected.shape, expected.dtype
    spread = device.empty(tuple(2 * n for n in shape), dtype)[(*(slice(None, None, 2) for _ in shape), ...)]
    backward = device.empty(shape, dtype)[(*(slice(None, None, -1) for _ in shape), ...)]
    # A GPU has no records; elements lie apart in the last dimension of an array as well.
    apart = device.empty((*shape, 3), dtype)[..., 1] if device.is_cuda else np.zeros(shape, packed(dtype))["value"]
    return [device.empty(shape, dtype), device.empty(shape[::-1], dtype).T, spread, backward, apart]


def packed(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype([("pad", "u1"), ("value", dtype)])


def orthogonal(shape: tuple[int, ...], data: np.ndarray[Any, Any]) -> Iterator[tuple[Any, Any]]:
    """Yield orthogonal selections with their equivalents by ``np.ix_``."""
    rng = np.random.default_rng(11)
    for _ in range(12 if shape else 0):
        selection: list[Any] = []
        mesh = []
        for size in shape:
            kind = int(rng.integers(0, 5))
            entry: Any = (
                rng.integers(-size, size, 5),
                rng.random(size) < 0.6,
                slice(int(rng.integers(0, size)), None, int(rng.integers(1, 4))),
                slice(None, None, -int(rng.integers(1, 3))),
                rng.integers(0, size, 3).tolist(),
            )[kind]
            selection.append(entry)
            mesh.append(np.arange(size)[entry])
        yield tuple(selection), data[np.ix_(*mesh)]


def zarr_orthogonal(shape: tuple[int, ...]) -> list[Any]:
    """Return orthogonal selections that zarr-python supports."""
    if not shape:
        return []
    rng = np.random.default_rng(3)
    return [
        0,
        slice(1, None, 2),
        np.array([0, shape[0] - 1, 1]),
        rng.random(shape[0]) < 0.5,
        (..., np.array([shape[-1] - 1, 0])) if len(shape) > 1 else -1,
        tuple(np.unique(rng.integers(0, size, 4)) for size in shape),
        tuple(rng.integers(0, size, 4) for size in shape),
        (0, *(rng.random(size) < 0.5 for size in shape[1:])),
        tuple(rng.integers(0, size, 3) if d % 2 else slice(0, size, 2) for d, size in enumerate(shape)),
    ]


def vectors(shape: tuple[int, ...]) -> list[Any]:
    if not shape:
        return []
    rng = np.random.default_rng(5)
    points = tuple(rng.integers(0, size, 30) for size in shape)
    return [
        points,
        tuple(-1 - p for p in points),
        tuple(p.reshape(5, 6) for p in points),
        tuple(p[:0] for p in points),
        rng.random(shape) < 0.3,
        (points[0].reshape(5, 6), *(p[:6] for p in points[1:])),
        tuple(p.tolist() for p in points) if len(shape) > 1 else points,
    ]


def block_selections(grid: tuple[int, ...]) -> list[Any]:
    if not grid:
        return []
    return [0, -1, slice(None), slice(1, None), tuple(0 for _ in grid), tuple(-1 for _ in grid), (..., slice(0, 1))]


def test_whole_blocks_of_shards(device: TestedDevice, tmp_path: Path) -> None:
    data = sample((20, 20), "u2")
    reference = write(tmp_path, v3((20, 20), (8, 8), "uint16", [shard([4, 4], [LITTLE])]), data)
    array = device.open(tmp_path)
    assert (array.chunks, array.shards) == ((4, 4), (8, 8)) == (reference.chunks, reference.shards)
    same(device.read(array.blocks, (1, 2)), data[8:16, 16:])


# -- fields


@pytest.mark.parametrize(("device", "threads"), ENGINES, indirect=["device"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_fields(
    order: str, device: TestedDevice, threads: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if threads:
        monkeypatch.setattr("gzarr.engines.kernels.available", frozenset)
    for i, dtype in enumerate((STRUCTURED, NESTED, STRUCTURED.newbyteorder(">"))):
        data = sample((13, 11), dtype)
        if i == 2:
            data = sample((13, 11), STRUCTURED)
        path = tmp_path / str(i)
        document = v2((13, 11), (5, 4), fields(dtype), blosc2("lz4", 1), order=order, fill=None)
        by_numcodecs(path, document, data.astype(dtype))
        array = gzarr.open_array(path, device=device.name)
        for name in dtype.names or ():
            if device.is_cuda and not holds(dtype[name]):
                with pytest.raises(gzarr.DeviceError, match='device="cpu"'):
                    array[name]
                continue
            same(device.to_numpy(array[name]), data[name], name)
            same(device.read(array, (name, slice(3, 9), slice(None, None, -2))), data[name][3:9, ::-2], name)
            same(device.read(array, (slice(None, None, 3), 4, name)), data[name][::3, 4], name)
            same(device.read(array, ([5, 0, 5], name)), data[name][[5, 0, 5]], name)
            same(device.read(array.oindex, ([5, 0], [3, 2], name)), data[name][np.ix_([5, 0], [3, 2])], name)
            same(device.read(array.vindex, ([5, 0], [3, 2], name)), data[name][[5, 0], [3, 2]], name)
            turned = data[name].T if data[name].ndim == 2 else data[name]
            out = device.empty(turned.shape, turned.dtype)
            same(device.read(array, name, out=out.T if data[name].ndim == 2 else out), data[name], name)
        for wrong in ("nope", ("nope", 0), (*dtype.names[:2],)):
            with pytest.raises(gzarr.SelectionError, match="field"):
                array[wrong]


@pytest.mark.parametrize(("device", "threads"), ENGINES, indirect=["device"])
@pytest.mark.parametrize(
    "compressor", [None, blosc2("lz4", 1), {"id": "zlib", "level": 1}], ids=["raw", "blosc", "zlib"]
)
def test_fields_of_whole_and_absent_chunks(
    compressor: Any, device: TestedDevice, threads: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chunk whose box in the result is contiguous must not be decoded directly into it: its elements are larger."""
    if threads:
        monkeypatch.setattr("gzarr.engines.kernels.available", frozenset)
    data = sample((12,), STRUCTURED)
    fill = np.zeros((), STRUCTURED)
    for i, name in enumerate(STRUCTURED.names or ()):
        fill[name] = i + 1
    encoded = base64.b64encode(fill.tobytes()).decode()
    by_numcodecs(tmp_path / "a", v2((12,), (4,), fields(STRUCTURED), compressor, fill=encoded), data)
    (tmp_path / "a" / "1").unlink()
    data[4:8] = fill
    array = gzarr.open_array(tmp_path / "a", device=device.name)
    for name in STRUCTURED.names or ():
        if device.is_cuda and not holds(STRUCTURED[name]):
            continue
        same(device.read(array, name), data[name], name)
        same(device.read(array, (name, slice(2, None))), data[name][2:], name)


# -- absent chunks


FILLS: list[tuple[str, Any, Any]] = [
    ("|b1", "bool", True),
    ("<i2", "int16", -7),
    ("<u8", "uint64", 2**64 - 1),
    ("<f4", "float32", 1.5),
    ("<f8", "float64", "NaN"),
    ("<f8", "float64", "-Infinity"),
    ("<c8", "complex64", [1.0, "NaN"]),
]


@pytest.mark.parametrize(("device", "threads"), ENGINES, indirect=["device"])
@pytest.mark.parametrize(("v2_type", "v3_type", "fill"), FILLS, ids=[f"{entry[1]}-{entry[2]}" for entry in FILLS])
def test_absent_chunks(
    v2_type: str,
    v3_type: str,
    fill: Any,
    device: TestedDevice,
    threads: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if threads:
        monkeypatch.setattr("gzarr.engines.kernels.available", frozenset)
    shape, chunks = (20, 13), (4, 6)
    zstd = codec("zstd", level=1, checksum=False)
    documents = {
        "v3": v3(shape, chunks, v3_type, [BIG, zstd], fill),
        "shard": v3(shape, (8, 12), v3_type, [shard([4, 6], [LITTLE, zstd])], fill),
        "nested": v3(shape, (8, 12), v3_type, [shard([4, 6], [shard([2, 3], [LITTLE, zstd])])], fill),
        "v2-C": v2(shape, chunks, v2_type, {"id": "zlib", "level": 1}, fill=fill),
        "v2-F": v2(shape, chunks, v2_type.replace("<", ">"), None, order="F", fill=fill),
    }
    for name, document in documents.items():
        reference = write(tmp_path / name, document, None)
        reference[4:9, 1:7] = sample((5, 6), v2_type, 1)
        expected = reference[...]
        for store in (tmp_path / name, in_memory(tmp_path / name)):
            array = gzarr.open_array(store, device=device.name)
            same(device.to_numpy(array[...]), expected, name)
            same(array.fill_value, reference.fill_value, name)
            for selection in few_selections(shape):
                same(device.read(array, selection), expected[selection], (name, selection))
            same(device.read(array.vindex, ([0, 5, 19], [0, 3, 12])), expected[[0, 5, 19], [0, 3, 12]], name)
            out = device.empty(shape[::-1], expected.dtype.newbyteorder("=")).T
            same(device.read(array, out=out), expected, name)
            same(device.read(array, np.s_[5:8, 2:6], missing="error"), expected[5:8, 2:6], name)
            strict = gzarr.open_array(store, device=device.name, missing="error")
            same(device.read(strict, np.s_[5:8, 2:6]), expected[5:8, 2:6], name)
            same(device.read(strict, missing="fill"), expected, name)
            for read in (
                lambda a=strict: a[...],
                lambda a=strict: a.read(decode="cuda"),
                lambda a=array: a.read((0, 0), missing="error"),
            ):
                with pytest.raises(gzarr.MissingChunkError) as caught:
                    read()
                assert caught.value.chunk == (0, 0)
                assert caught.value.key in ("c/0/0", "0.0")
                assert caught.value.node == "/"
            with pytest.raises(gzarr.ArgumentError, match="missing"):
                array.read(missing="maybe")


@pytest.mark.parametrize("fill", [None, 0, 3])
def test_v2_without_fill_value(fill: Any, device: TestedDevice, tmp_path: Path) -> None:
    write(tmp_path, v2((5,), (2,), "<i4", None, fill=fill), None)
    array = device.open(tmp_path)
    assert array.fill_value == fill
    same(device.read(array), np.full(5, fill or 0, "i4"))


def test_absent_text(tmp_path: Path) -> None:
    document = v3((4,), (2,), "string", [{"name": "vlen-utf8"}], "gone")
    write(tmp_path, document, None)[:2] = np.array(["a", "b"], object)
    assert gzarr.open_array(tmp_path)[...].tolist() == ["a", "b", "gone", "gone"]


# -- out=


@pytest.fixture
def volume(device: TestedDevice, tmp_path: Path) -> tuple[gzarr.Array, np.ndarray[Any, Any]]:
    data = sample((20, 15, 12), "u2")
    write(tmp_path / "volume", v3(data.shape, (8, 6, 5), "uint16", [LITTLE, blosc3("lz4", "shuffle", 2)]), data)
    return device.open(tmp_path / "volume"), data


def test_wrong_outputs(device: TestedDevice, volume: tuple[gzarr.Array, np.ndarray[Any, Any]]) -> None:
    array, _ = volume
    wrong: list[tuple[Any, str]] = [
        (device.empty((20, 15, 11), "u2"), "shape"),
        (device.empty((20, 15, 12, 1), "u2"), "shape"),
        (device.empty((array.size,), "u2"), "shape"),
        (device.empty(array.shape, "i2"), "dtype"),
        (device.empty(array.shape, "f8"), "dtype"),
        (bytearray(array.nbytes), "cupy.ndarray" if device.is_cuda else "numpy.ndarray"),
        ([[0]], "cupy.ndarray" if device.is_cuda else "numpy.ndarray"),
    ]
    readonly = np.zeros(array.shape, "u2")
    readonly.flags.writeable = False
    if device.is_cuda:
        wrong.append((readonly, "cupy.ndarray"))
    else:
        wrong += [(readonly, "read-only"), (np.zeros(array.shape, ">u2"), "dtype")]
    for out, words in wrong:
        with pytest.raises(gzarr.OutputError, match=words):
            array.read(out=out)
        with pytest.raises(gzarr.OutputError, match=words):
            array.read_many([...], out=out[None] if hasattr(out, "dtype") else out)
    assert not readonly.any()


def test_nothing_is_read_into_a_wrong_output(device: TestedDevice, tmp_path: Path) -> None:
    write(tmp_path, v3((4,), (2,), "uint16", [LITTLE]), np.arange(4, dtype="u2"))
    (tmp_path / "c" / "0").write_bytes(b"corrupt")
    with pytest.raises(gzarr.OutputError):
        device.open(tmp_path).read(out=device.empty((3,), "u2"))


def test_one_output_for_many_reads(device: TestedDevice, volume: tuple[gzarr.Array, np.ndarray[Any, Any]]) -> None:
    array, data = volume
    out = device.empty((5, 15, 12), "u2")
    for begin in range(0, 16, 3):
        same(device.read(array, slice(begin, begin + 5), out=out), data[begin : begin + 5])
    around = np.zeros((22, 17, 14), "u2")
    whole = device.array(around)
    device.read(array, out=whole[1:-1, 1:-1, 1:-1])
    around[1:-1, 1:-1, 1:-1] = data
    same(device.to_numpy(whole), around)


# -- read_many


MANY_CODECS: dict[str, list[Any]] = {
    "blosc": [LITTLE, blosc3("zstd", "bitshuffle", 2, blocksize=256)],
    "raw": [LITTLE],
    "big": [codec("transpose", order=[2, 0, 1]), BIG],
    "shard": [shard([4, 3, 5], [LITTLE, codec("zstd", level=1, checksum=False)])],
}


@pytest.mark.parametrize(("device", "threads"), ENGINES, indirect=["device"])
@pytest.mark.parametrize("codecs", MANY_CODECS.values(), ids=MANY_CODECS.keys())
def test_read_many(
    codecs: list[Any], device: TestedDevice, threads: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if threads:
        monkeypatch.setattr("gzarr.engines.kernels.available", frozenset)
    data = sample((20, 15, 12), "u2")
    write(tmp_path, v3(data.shape, (8, 6, 5), "uint16", codecs), data)
    rng = np.random.default_rng(2)
    corners = np.stack([rng.integers(0, n - 5, 40) for n in data.shape], axis=1).tolist()
    windows = [tuple(slice(c, c + 5) for c in corner) for corner in corners]
    ragged = [*windows[:5], ..., 3, (slice(None), 0), (0, 0, 0), slice(5, 5), (slice(None, None, -3), 2), ([1, 9, 4],)]
    strided = [(slice(a, None, 4), slice(None, None, -2), 3) for a in range(4)]
    mixed = [(slice(0, 9, 2), 0), (slice(0, 5), 1), (slice(None, None, -4), 2), ([0, 19, 7, 7, 3], 3)]
    for store in (tmp_path, in_memory(tmp_path)):
        array = device.open(store)
        for selections in (windows, [windows[0]] * 7, strided, mixed, [0, 5, -1], [...], [slice(3, 3)] * 2):
            expected = np.stack([data[s] for s in selections])
            same(device.to_numpy(array.read_many(selections)), expected)
            for i, out in enumerate(outs(expected, device)):
                assert array.read_many(selections, out=out, decode=("cuda", "cpu")[i % 2]) is out
                same(device.to_numpy(out), expected)
        for decode in ("cuda", "cpu"):
            results = array.read_many(ragged, decode=decode)
            assert isinstance(results, list)
            for selection, result in zip(ragged, results, strict=True):
                same(device.to_numpy(result), data[selection], selection)
        for selections in (ragged, windows[:3], []):
            given = [device.empty(data[s].shape, "u2") for s in selections]
            assert array.read_many(selections, out=given) is given
            for selection, result in zip(selections, given, strict=True):
                same(device.to_numpy(result), data[selection], selection)
        with pytest.raises(gzarr.OutputError, match="2 arrays for 3 selections"):
            array.read_many(windows[:3], out=[device.empty((5, 5, 5), "u2")] * 2)
        with pytest.raises(gzarr.OutputError, match="shape"):
            array.read_many(windows[:1], out=[device.empty((5, 5, 4), "u2")])
        with pytest.raises(gzarr.OutputError, match="one shape"):
            array.read_many(ragged, out=device.empty((12, 5, 5, 5), "u2"))
        with pytest.raises(gzarr.OutputError, match="shape"):
            array.read_many(windows, out=device.empty((39, 5, 5, 5), "u2"))
        assert array.read_many([]) == []
        same(device.to_numpy(array.read_many(iter(windows[:3]))), np.stack([data[w] for w in windows[:3]]))


@pytest.mark.parametrize("wrong", [7, "abc", None])
def test_read_many_takes_a_sequence(wrong: Any, volume: tuple[gzarr.Array, np.ndarray[Any, Any]]) -> None:
    with pytest.raises(gzarr.ArgumentError, match="sequence"):
        volume[0].read_many(wrong)


# -- wrong selections


@pytest.mark.parametrize(
    "selection",
    [
        20,
        -21,
        (0, 0, 0, 0),
        (..., ...),
        1.5,
        "name",
        (slice(None), slice(None), 12),
        slice(None, None, 0),
        slice(0.5, 2),
        [20],
        [-21],
        [0.5],
        np.zeros(19, bool),
        np.zeros((20, 15, 11), bool),
        object(),
        {"a": 1},
    ],
)
def test_wrong_selections(selection: Any, volume: tuple[gzarr.Array, np.ndarray[Any, Any]]) -> None:
    array, _ = volume
    for read in (array.__getitem__, array.read, lambda s: array.read_many([s]), array.oindex.__getitem__):
        with pytest.raises(gzarr.SelectionError) as caught:
            read(selection)
        assert "(20, 15, 12)" in str(caught.value)


def test_zarr_python_reads_what_is_compared(tmp_path: Path) -> None:
    """The comparison can fail: both readers see a chunk changed by another writer."""
    data = sample((8, 8), "i4")
    write(tmp_path, v3((8, 8), (4, 4), "int32", [LITTLE]), data)
    chunk = tmp_path / "c" / "1" / "0"
    chunk.write_bytes(bytes(64))
    changed = data.copy()
    changed[4:, :4] = 0
    same(zarr.open_array(str(tmp_path))[...], changed)
    same(gzarr.open_array(tmp_path)[...], changed)
    with pytest.raises(AssertionError, match="differ"):
        same(gzarr.open_array(tmp_path)[...], data)
