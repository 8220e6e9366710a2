"""Write everything that gzarr can write, for ``ci/golden``: ``SCRIPT DIRECTORY``.

What is expected is what was given to gzarr: values that lossy codecs keep exactly, and levels of images that are made
here by NumPy. So nothing that gzarr reads is compared with what gzarr read.
"""

import sys
import warnings
from pathlib import Path

import ml_dtypes
import numpy as np
from golden_archive import CHUNKS, SHAPE, byte_strings, objects, sample, save_expected, texts

import gzarr

NUMBERS = sample("<i4")
#: Small numbers with few bits, which filters with losses keep.
COARSE = (np.arange(35, dtype="<f4").reshape(SHAPE) - 8) / 4
#: Compresses well, in several blocks.
SMOOTH = (np.add.outer(np.arange(96), np.arange(200)) // 3).astype("<u2")
RECORDS = np.dtype([("i", "<i2"), ("s", "S3"), ("f", "<f8")])
NESTED = np.dtype([("p", [("x", "<f4"), ("y", "<f4")]), ("v", "<i2", (2,))])
PLAIN = ("b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16")
FILLS = {"b": True, "i": -3, "u": 250, "f": float("nan"), "c": 1 - 2j}
TIMES = ("M8[D]", "M8[ns]", "M8[10us]", "m8[s]", "m8[ms]")
#: Of ml_dtypes, by the number of bits of an element.
FLOATS = {
    "bfloat16": 16, "float8_e3m4": 8, "float8_e4m3": 8, "float8_e4m3b11fnuz": 8, "float8_e4m3fn": 8,
    "float8_e4m3fnuz": 8, "float8_e5m2": 8, "float8_e5m2fnuz": 8, "float8_e8m0fnu": 8, "float6_e2m3fn": 6,
    "float6_e3m2fn": 6, "float4_e2m1fn": 4,
}  # fmt: skip
INTEGERS = {"int4": -8, "uint4": 0, "int2": -2, "uint2": 0}
BLOSC = [
    (name, shuffle)
    for name in ("blosclz", "lz4", "lz4hc", "zlib", "zstd")
    for shuffle in ("noshuffle", "shuffle", "bitshuffle")
]


def codec(name, **configuration):
    """Return a codec as in a document of version 3."""
    return {"name": name, "configuration": configuration} if configuration else {"name": name}


LITTLE = codec("bytes", endian="little")


def small_numbers(name):
    """Return elements of a type of ml_dtypes, of every kind that it has."""
    dtype = np.dtype(getattr(ml_dtypes, name))
    steps = np.arange(35).reshape(SHAPE)
    if name in INTEGERS:
        low = INTEGERS[name]
        return (low + steps % (2 ** int(name[-1]))).astype("i1").astype(dtype)
    stored = "<u2" if FLOATS[name] == 16 else "u1"
    return (steps * 1871 % 2 ** FLOATS[name]).astype(stored).view(dtype)


def types(orders):
    """Yield path, values and arguments of ``create_array`` for the types of NumPy."""
    for name in PLAIN:
        for order in "<" if name[1:] == "1" else orders:
            dtype = np.dtype(order + name)
            yield f"types/{dtype.name}{'-big' * (order == '>')}", sample(dtype), {"fill_value": FILLS[dtype.kind]}
    for name in TIMES:
        yield f"types/{np.dtype(name)}", sample(name), {"fill_value": np.array("NaT", name)[()]}
    yield "types/bytes", sample("S5"), {"fill_value": b"fill"}
    yield "types/text", sample("<U4"), {"fill_value": "fül"}
    yield "types/raw", sample("V3"), {"fill_value": np.void(b"abc")}
    yield "types/records", sample(RECORDS), {"fill_value": np.array((-1, b"ab", np.inf), RECORDS)[()]}
    yield "types/string", texts(), {"dtype": str, "fill_value": "fill"}


def cases_v1():
    """Yield name, values and arguments; version 1 has no groups, so each is a store."""
    compressors = {
        "none": None,
        "zlib": {"id": "zlib", "level": 3},
        "bz2": {"id": "bz2", "level": 1},
        "lzma": {"id": "lzma", "preset": 1},
        **{
            f"blosc-{name}": {"id": "blosc", "cname": name, "clevel": 5, "shuffle": 1}
            for name in ("blosclz", "lz4", "lz4hc", "zlib", "zstd")
        },
    }
    for name, compressor in compressors.items():
        # Other compressors say nothing of the order.
        for order in "CF" if name.startswith("blosc") else "C":
            yield f"v1-{name}-{order}", NUMBERS, {"compressors": compressor, "order": order}
    for name in ("b1", "u1", "<i2", ">i4", "<f8", "<c16", "<M8[ns]", "S5", "<U4"):
        yield f"v1-type-{np.dtype(name).str[1:].strip('[ns]')}", sample(name), {}
    yield "v1-records", sample(RECORDS), {}


def cases_v2():
    """Yield path, values and arguments."""
    compressors = {
        "none": None,
        "zlib": {"id": "zlib", "level": 3},
        "gzip": {"id": "gzip", "level": 3},
        "bz2": {"id": "bz2", "level": 1},
        "lzma": {"id": "lzma", "preset": 1},
        "lz4": {"id": "lz4", "acceleration": 1},
        "zstd": {"id": "zstd", "level": 3},
        "zstd-checksum": {"id": "zstd", "level": 3, "checksum": True},
    }
    for i, (name, shuffle) in enumerate(BLOSC):
        compressors[f"blosc-{name}-{shuffle}"] = {"id": "blosc", "cname": name, "clevel": 5, "shuffle": i % 3}
    for name, compressor in compressors.items():
        for order in "CF":
            yield f"codecs/{name}/{order}", NUMBERS, {"compressors": compressor, "order": order}
    for name in ("zlib", "zstd", "lz4", "blosc-lz4-shuffle", "blosc-zstd-bitshuffle"):
        yield f"larger/{name}", SMOOTH, {"compressors": compressors[name], "chunks": (64, 128)}
    filters = {
        "adler32": [{"id": "adler32"}],
        "astype": [{"id": "astype", "encode_dtype": "<i8", "decode_dtype": "<i4"}],
        "base64": [{"id": "base64"}],
        "crc32": [{"id": "crc32"}],
        "crc32c": [{"id": "crc32c"}],
        "delta": [{"id": "delta", "dtype": "<i4", "astype": "<i8"}],
        "fixedscaleoffset": [{"id": "fixedscaleoffset", "offset": 7, "scale": 2, "dtype": "<i4", "astype": "<i8"}],
        "fletcher32": [{"id": "fletcher32"}],
        "jenkins": [{"id": "jenkins_lookup3"}],
        "pcodec": [{"id": "pcodec", "level": 4}],
        "shuffle": [{"id": "shuffle", "elementsize": 4}],
        "two": [{"id": "delta", "dtype": "<i4"}, {"id": "shuffle", "elementsize": 4}],
    }
    for name, chain in filters.items():
        values = NUMBERS // 16 if name == "fixedscaleoffset" else NUMBERS
        compressor = None if name == "pcodec" else {"id": "zlib", "level": 1}
        yield f"filters/{name}", values, {"filters": chain, "compressors": compressor}
    yield "filters/bitround", COARSE, {"filters": [{"id": "bitround", "keepbits": 8}]}
    yield "filters/quantize", COARSE, {"filters": [{"id": "quantize", "digits": 2, "dtype": "<f4"}]}
    yield "filters/packbits", sample("b1"), {"filters": [{"id": "packbits"}], "compressors": None}
    zfp = {"id": "zfpy", "mode": 4, "tolerance": 0.0}
    yield "filters/zfpy", COARSE.astype("<f8"), {"filters": [zfp], "compressors": None}
    slashes = {"name": "v2", "separator": "/"}
    yield "keys/slashes", NUMBERS, {"chunk_key_encoding": slashes}
    yield "keys/slashes-scalar", np.array(7, "<i4"), {"chunk_key_encoding": slashes}
    yield "keys/scalar", np.array(7, "<i4"), {}
    yield from types("<>")
    yield "types/nested", sample(NESTED), {}
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "int4"):
        yield f"types/{name}", small_numbers(name), {}
    mixed = objects([None, True, -1, 2.5, "né", [1, ["x"]], {"a": None}] * 5, SHAPE)
    yield "objects/json2", mixed, {"dtype": object, "filters": [{"id": "json2"}]}
    yield "objects/msgpack2", mixed, {"dtype": object, "filters": [{"id": "msgpack2"}]}
    yield "objects/vlen-bytes", byte_strings(), {"dtype": object, "filters": [{"id": "vlen-bytes"}]}
    arrays = objects([np.arange(i % 4, dtype="<i8") for i in range(35)], SHAPE)
    yield "objects/vlen-array", arrays, {"dtype": object, "filters": [{"id": "vlen-array", "dtype": "<i8"}]}
    words = objects(["a", "bb", "", "né", "bb"] * 7, SHAPE)
    labels = {"id": "categorize", "labels": ["a", "bb", "né"], "dtype": "|O", "astype": "|u1"}
    yield "objects/categorize", words, {"dtype": object, "filters": [labels]}
    yield "no-fill", NUMBERS, {"fill_value": None}


def cases_draft():
    """Yield path, values and arguments for the draft of 2022."""
    compressors = {
        "none": None,
        "gzip": codec("gzip", level=2),
        "zlib": {"id": "zlib", "level": 1},
        "bz2": {"id": "bz2", "level": 1},
        "lzma": {"id": "lzma", "preset": 1},
        "lz4": {"id": "lz4", "acceleration": 1},
        "zstd": {"id": "zstd", "level": 1},
        "blosc": {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1},
    }
    for name, compressor in compressors.items():
        for order in "CF":
            yield f"codecs/{name}/{order}", NUMBERS, {"compressors": compressor, "order": order}
    for name in PLAIN:
        if name not in ("c8", "c16"):
            yield f"types/{np.dtype(name).name}", sample(f"<{name}" if name[1:] != "1" else name), {}


def sharded(*codecs, inner=(2, 2), **options):
    """Return arguments for shards."""
    index = options.pop("index_codecs", [LITTLE, codec("crc32c")])
    chain = [codec("sharding_indexed", chunk_shape=list(inner), codecs=list(codecs), index_codecs=index, **options)]
    return {"chunks": (4, 4), "codecs": chain}


def cases_v3():
    """Yield path, values and arguments."""
    zstd, crc = codec("zstd", level=1, checksum=False), codec("crc32c")
    chains = {
        "none": [],
        "gzip": [codec("gzip", level=2)],
        "zstd": [zstd],
        "zstd-checksum": [codec("zstd", level=1, checksum=True)],
        "crc32c": [crc],
        "zstd-crc32c": [zstd, crc],
        "gzip-zstd": [codec("gzip", level=1), zstd],
    }
    for name, shuffle in BLOSC:
        blosc = codec("blosc", cname=name, clevel=5, shuffle=shuffle, typesize=4, blocksize=0)
        chains[f"blosc-{name}-{shuffle}"] = [blosc]
    for name, chain in chains.items():
        yield f"codecs/{name}", NUMBERS, {"codecs": [LITTLE, *chain]}
    for name in ("gzip", "zstd", "blosc-lz4-bitshuffle", "blosc-zstd-shuffle"):
        yield f"larger/{name}", SMOOTH, {"codecs": [LITTLE, *chains[name]], "chunks": (64, 128)}
    yield "larger/sharded", SMOOTH, {"chunks": (16, 50), "shards": (48, 100)}
    yield "larger/auto", SMOOTH, {"chunks": "auto"}
    yield "codecs/big-endian", NUMBERS, {"codecs": [codec("bytes", endian="big")]}
    yield "codecs/transpose", NUMBERS, {"codecs": [codec("transpose", order=[1, 0]), LITTLE]}
    yield "codecs/bitround", COARSE, {"codecs": [codec("bitround", keepbits=8), LITTLE, zstd]}
    yield "codecs/cast-value", COARSE * 4, {"codecs": [codec("cast_value", data_type="int16"), LITTLE]}
    yield "codecs/scale-offset", COARSE, {"codecs": [codec("scale_offset", offset=-2.0, scale=4.0), LITTLE]}
    yield "codecs/packbits", sample("b1"), {"codecs": [codec("packbits")]}
    yield "codecs/reshape", NUMBERS, {"codecs": [codec("reshape", shape=[12]), LITTLE]}
    yield "codecs/zfp", COARSE, {"codecs": [codec("zfp", mode="reversible")]}
    adapted = {
        "adler32": [codec("numcodecs.adler32")],
        "bz2": [codec("numcodecs.bz2", level=1)],
        "crc32": [codec("numcodecs.crc32")],
        "fletcher32": [codec("numcodecs.fletcher32")],
        "jenkins": [codec("numcodecs.jenkins_lookup3")],
        "lz4": [codec("numcodecs.lz4", acceleration=1)],
        "lzma": [codec("numcodecs.lzma", preset=1)],
        "shuffle": [codec("numcodecs.shuffle", elementsize=4)],
        "zlib": [codec("numcodecs.zlib", level=1)],
    }
    for name, chain in adapted.items():
        yield f"numcodecs/{name}", NUMBERS, {"codecs": [LITTLE, *chain]}
    filters = {
        "delta": codec("numcodecs.delta", dtype="<i4"),
        "astype": codec("numcodecs.astype", encode_dtype="<i8", decode_dtype="<i4"),
        "fixedscaleoffset": codec("numcodecs.fixedscaleoffset", offset=7, scale=2, dtype="<i4", astype="<i8"),
    }
    for name, first in filters.items():
        values = NUMBERS // 16 if name == "fixedscaleoffset" else NUMBERS
        yield f"numcodecs/{name}", values, {"codecs": [first, LITTLE]}
    yield "numcodecs/packbits", sample("b1"), {"codecs": [codec("numcodecs.packbits"), codec("bytes")]}
    yield "numcodecs/quantize", COARSE, {"codecs": [codec("numcodecs.quantize", digits=2, dtype="<f4"), LITTLE]}
    yield "numcodecs/pcodec", NUMBERS, {"codecs": [codec("numcodecs.pcodec", level=4)]}
    yield "numcodecs/zfpy", COARSE, {"codecs": [codec("numcodecs.zfpy", mode=4, tolerance=0.0)]}
    yield "sharded/end", NUMBERS, sharded(LITTLE, zstd)
    yield "sharded/start", NUMBERS, sharded(LITTLE, zstd, index_location="start")
    yield "sharded/no-checksum", NUMBERS, sharded(LITTLE, index_codecs=[LITTLE])
    yield "sharded/transpose", NUMBERS, sharded(codec("transpose", order=[1, 0]), codec("bytes", endian="big"), crc)
    outer = sharded(LITTLE)
    yield "sharded/compressed", NUMBERS, {**outer, "codecs": [*outer["codecs"], codec("gzip", level=1)]}
    nested = sharded(LITTLE, zstd, inner=(1, 2))["codecs"]
    yield "sharded/nested", NUMBERS, sharded(*nested)
    yield "sharded/string", texts(), {"shards": (4, 4), "chunks": (2, 2), "dtype": str, "fill_value": "fill"}
    yield "grids/rectilinear", NUMBERS, {"chunks": ([1, 4, 2], [3, 2])}
    yield "grids/rectilinear-runs", NUMBERS, {"chunks": ([[2, 3], 1], 3)}
    yield "grids/rectilinear-shards", NUMBERS, {"chunks": (1, 2), "shards": ([2, 5], [4, 2])}
    yield "grids/one-chunk", NUMBERS, {"chunks": -1}
    yield "grids/empty", np.empty((0, 5), "<i4"), {"chunks": (4, 3)}
    yield "keys/v2", NUMBERS, {"chunk_key_encoding": {"name": "v2", "separator": "."}}
    yield "keys/v2-slashes", NUMBERS, {"chunk_key_encoding": {"name": "v2", "separator": "/"}}
    yield "keys/dots", NUMBERS, {"chunk_key_encoding": {"name": "default", "separator": "."}}
    yield "keys/scalar", np.array(7, "<i4"), {}
    yield "keys/v2-scalar", np.array(7, "<i4"), {"chunk_key_encoding": {"name": "v2", "separator": "."}}
    yield from types("<>")
    yield "types/variable-bytes", byte_strings(), {"dtype": bytes, "fill_value": b"fill"}
    for name in (*FLOATS, *INTEGERS):
        yield f"types/{name}", small_numbers(name), {"dtype": name}


def write_array(store, path, values, given, zarr_format):
    """Write an array; with its own fill value, all but the last rows. Return what it holds."""
    arguments = {"chunks": CHUNKS[: values.ndim], "dtype": values.dtype, **given}
    if zarr_format == 3 and values.ndim == 2:
        arguments["dimension_names"] = ["y", None]
    # Version 1 has no names of nodes.
    array = gzarr.create_array(
        str(store), path=path, shape=values.shape, zarr_format=zarr_format, attributes={"units": "m"}, device="cpu",
        **arguments,
    )  # fmt: skip
    if given.get("fill_value") is None:
        array[...] = values
        return values
    array[:4] = values[:4]
    held = values.copy()
    if values.dtype.hasobject:
        for place in np.ndindex(values.shape):
            held[place] = held[place] if place[0] < 4 else given["fill_value"]
    else:
        held[4:] = np.array(given["fill_value"], values.dtype)
    return held


def write_hierarchy(directory, store, zarr_format, cases):
    """Write a hierarchy with consolidated metadata, and what it holds."""
    target = Path(directory) / store
    gzarr.create_group(str(target), zarr_format=zarr_format, attributes={"title": "golden"}, device="cpu")
    for path, values, given in cases:
        save_expected(directory, f"{store}/{path}", write_array(target, path, values, given, zarr_format))
    if zarr_format != "3-draft-2022":
        gzarr.consolidate_metadata(str(target))


def halved(values):
    """Return every level of an image: half of y and x by the mean, to the nearest integer, halves to even."""
    levels = [values]
    while min(levels[-1].shape[-2:]) > 4:
        last = levels[-1].astype("f8")
        cells = last.reshape(*last.shape[:-2], last.shape[-2] // 2, 2, last.shape[-1] // 2, 2)
        levels.append(np.rint(cells.mean((-3, -1))).astype(values.dtype))
    return levels


def write_images(directory, version):
    """Write an image with labels, and a plate of two wells."""
    store = f"ome-{version}"
    target = str(Path(directory) / store)
    gzarr.create_group(target, zarr_format=3 if version == "0.5" else 2, device="cpu")
    count = 2 * 3 * 16 * 24
    image = (np.arange(count).reshape(2, 3, 16, 24) * 7919 % 4001).astype("<u2")
    options = {
        "scale": {"z": 2.0, "y": 0.5, "x": 0.25},
        "units": "micrometer",
        "version": version,
        "chunks": (1, 2, 8, 8),
        "levels": 3,
        "factors": {"y": 2, "x": 2},
    }
    gzarr.ome.create(target, image, path="image", axes="czyx", channels=["DAPI", "GFP"], name="golden", **options)
    labels = np.kron(np.arange(3 * 4 * 6).reshape(3, 4, 6), np.ones((1, 4, 4), int)).astype("<u4")
    gzarr.ome.create_labels(
        target, "nuclei", labels, path="image", axes="zyx", scale=options["scale"], units="micrometer",
        colors={1: (255, 0, 0, 255)},
    )  # fmt: skip
    for i, level in enumerate(halved(image)):
        save_expected(directory, f"{store}/image/{i}", level)
        # Every cell has one label.
        save_expected(directory, f"{store}/image/labels/nuclei/{i}", labels[:, :: 2**i, :: 2**i])
    gzarr.ome.create_plate(target, path="plate", rows="AB", columns=[1, 2], version=version)
    for row, column in (("A", 1), ("B", 2)):
        field = image[:, 0] + ord(row) + column
        gzarr.ome.create_field(
            target, row, column, field, path="plate", axes="cyx", chunks=(1, 8, 8), levels=3, factors={"y": 2, "x": 2}
        )
        for i, level in enumerate(halved(field)):
            save_expected(directory, f"{store}/plate/{row}/{column}/0/{i}", level)


def main():
    """Write all stores."""
    warnings.simplefilter("ignore")
    directory = Path(sys.argv[1])
    for name, values, given in cases_v1():
        save_expected(directory, name, write_array(directory / name, "", values, given, 1))
    write_hierarchy(directory, "v2", 2, cases_v2())
    write_hierarchy(directory, "v3-draft", "3-draft-2022", cases_draft())
    write_hierarchy(directory, "v3", 3, cases_v3())
    for version in ("0.4", "0.5"):
        write_images(directory, version)


if __name__ == "__main__":
    main()
