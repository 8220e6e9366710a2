"""Write stores of version 2 with zarr-python 2, for ``ci/interop zarr-python-2``: ``SCRIPT DIRECTORY``."""

import sys
import warnings
from pathlib import Path

import numcodecs
import numcodecs.zfpy
import numpy as np
import zarr
from golden_archive import CHUNKS, SHAPE, byte_strings, objects, sample, save_expected, texts

NUMBERS = sample("<i4")
FLOATS = (np.arange(35).reshape(SHAPE) / 3).astype("<f4")
PLAIN = ("b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16")
FILLS = {"b": True, "i": -3, "u": 250, "f": float("nan"), "c": 1 - 2j}
NESTED = np.dtype([("a", "<i2"), ("b", [("c", ">f4"), ("d", "S2", (2,))])])


def with_compressors():
    """Yield path, values and arguments of ``create_dataset`` for each compressor."""
    compressors = {
        "none": None,
        "zlib": numcodecs.Zlib(9),
        "gzip": numcodecs.GZip(9),
        "bz2": numcodecs.BZ2(9),
        "lzma": numcodecs.LZMA(),
        "lzma-raw": numcodecs.LZMA(format=3, filters=[{"id": 3, "dist": 4}, {"id": 33, "preset": 1}]),
        "lz4": numcodecs.LZ4(4),
        "zstd": numcodecs.Zstd(19),
        "pcodec": numcodecs.PCodec(),
    }
    for name in ("blosclz", "lz4", "lz4hc", "zlib", "zstd"):
        for shuffle in (0, 1, 2):
            compressors[f"blosc-{name}-{shuffle}"] = numcodecs.Blosc(name, 5, shuffle)
    for name, compressor in compressors.items():
        for order in "C" if name == "pcodec" else "CF":
            yield f"codecs/{name}/{order}", NUMBERS, {"compressor": compressor, "order": order}
    for dtype in ("<f4", "<f8", ">i2", "|u1"):
        for name in ("zstd", "blosc-lz4-1", "blosc-zstd-2", "lz4", "gzip"):
            yield f"typed/{name}/{np.dtype(dtype)}", sample(dtype), {"compressor": compressors[name]}
    # Larger than a block of Blosc's, and than what its encoder leaves as it is.
    long = np.arange(70000, dtype="<u2") // 3
    yield "blocks/lz4", long, {"chunks": (40000,), "compressor": numcodecs.Blosc("lz4", 1, 1, 8192)}
    yield "blocks/zstd", long, {"chunks": (40000,), "compressor": numcodecs.Blosc("zstd", 1, 2, 8192)}


def with_filters():
    """Yield path, values and arguments for each filter."""
    filters = {
        "adler32": (NUMBERS, [numcodecs.Adler32()]),
        "astype": (NUMBERS, [numcodecs.AsType("<i8", "<i4")]),
        "base64": (NUMBERS, [numcodecs.Base64()]),
        "bitround": (FLOATS, [numcodecs.BitRound(6)]),
        "crc32": (NUMBERS, [numcodecs.CRC32()]),
        "crc32-end": (NUMBERS, [numcodecs.CRC32(location="end")]),
        "crc32c": (NUMBERS, [numcodecs.checksum32.CRC32C()]),
        "delta": (NUMBERS, [numcodecs.Delta("<i4")]),
        "delta-narrow": (np.arange(35, dtype="<i8").reshape(SHAPE), [numcodecs.Delta("<i8", "<i1")]),
        "fixedscaleoffset": (FLOATS, [numcodecs.FixedScaleOffset(1, 100, "<f4", "<i2")]),
        "fletcher32": (NUMBERS, [numcodecs.Fletcher32()]),
        "jenkins": (NUMBERS, [numcodecs.JenkinsLookup3()]),
        "packbits": (sample("b1"), [numcodecs.PackBits()]),
        "quantize": (FLOATS, [numcodecs.Quantize(2, "<f4", "<f2")]),
        "shuffle": (NUMBERS, [numcodecs.Shuffle(4)]),
        "two": (NUMBERS, [numcodecs.Delta("<i4"), numcodecs.Shuffle(4)]),
    }
    for name, (values, chain) in filters.items():
        yield f"filters/{name}", values, {"filters": chain, "compressor": numcodecs.Zlib(1)}
        yield f"filters/{name}-alone", values, {"filters": chain, "compressor": None}
    yield "filters/zfpy", FLOATS, {"compressor": numcodecs.zfpy.ZFPY(mode=4, tolerance=0.001)}
    labels = np.array(["red", "green", "red", "blue", "green"] * 7).reshape(SHAPE)
    categorize = numcodecs.Categorize(["red", "green", "blue"], labels.dtype)
    yield "filters/categorize", labels, {"filters": [categorize]}


def with_objects():
    """Yield path, values and arguments for codecs of Python objects."""
    lists = objects([[i, "é", None, {"k": i / 2}] for i in range(35)], SHAPE)
    arrays = objects([np.arange(i % 4, dtype="<i4") for i in range(35)], SHAPE)
    for name, values, codec in (
        ("vlen-utf8", texts(), numcodecs.VLenUTF8()),
        ("vlen-bytes", byte_strings(), numcodecs.VLenBytes()),
        ("vlen-array", arrays, numcodecs.VLenArray("<i4")),
        ("json2", lists, numcodecs.JSON()),
        ("msgpack2", lists, numcodecs.MsgPack()),
        ("categorize", texts(), numcodecs.Categorize(sorted(set(texts().ravel())), object)),
    ):
        orders = "CF" if name.startswith("vlen-u") else "C"
        for order in orders:
            yield f"objects/{name}/{order}", values, {"dtype": object, "object_codec": codec, "order": order}
    yield "objects/fill", texts(), {"dtype": object, "object_codec": numcodecs.VLenUTF8(), "fill_value": "fill"}


def with_types():
    """Yield path, values and arguments for each type, with a fill value of its own."""
    for name in PLAIN:
        for order in "<" if name[1:] == "1" else "<>":
            dtype = np.dtype(order + name)
            yield f"types/{dtype.name}{'-big' * (order == '>')}", sample(dtype), {"fill_value": FILLS[dtype.kind]}
    for name in ("M8[D]", ">M8[ns]", "M8[25s]", "m8[ms]", ">m8[h]"):
        yield f"types/{np.dtype(name).name}", sample(name), {"fill_value": np.array("NaT", name)[()]}
    yield "types/bytes", sample("S5"), {"fill_value": b"fill"}
    yield "types/text", sample("<U4"), {"fill_value": "fül"}
    yield "types/text-big", sample(">U4"), {"fill_value": ""}
    yield "types/raw", sample("V3"), {"fill_value": None}
    yield "types/nested", sample(NESTED), {"fill_value": None}
    yield "types/nested-order-f", sample(NESTED), {"fill_value": None, "order": "F"}
    flat = np.dtype([("a", "<i2"), ("b", "S3"), ("c", ">f8")])
    yield "types/records", sample(flat), {"fill_value": np.array((-1, b"ab", np.inf), flat)[()]}
    yield "no-fill", NUMBERS, {"fill_value": None}
    yield "infinite-fill", sample("<f4"), {"fill_value": float("-inf")}


def with_keys():
    """Yield path, values and arguments for keys, shapes and chunks."""
    yield "keys/slashes", NUMBERS, {"dimension_separator": "/"}
    yield "keys/dots", NUMBERS, {"dimension_separator": "."}
    yield "keys/scalar", np.array(7.5), {}
    yield "keys/scalar-slashes", np.array(7.5), {"dimension_separator": "/"}
    yield "keys/empty", np.zeros((0, 5), "<i4"), {}
    yield "keys/large-chunk", NUMBERS, {"chunks": (20, 30)}
    yield "keys/cube", sample("<u2", (3, 4, 5)), {"chunks": (2, 3, 2), "order": "F", "dimension_separator": "/"}


def main():
    """Write the hierarchy."""
    warnings.simplefilter("ignore")
    directory = Path(sys.argv[1])
    store = zarr.DirectoryStore(str(directory / "v2"))
    root = zarr.group(store)
    root.attrs["title"] = "golden"
    written = {}
    for cases in (with_compressors, with_filters, with_objects, with_types, with_keys):
        for path, values, given in cases():
            arguments = {"chunks": CHUNKS[: values.ndim], "dtype": values.dtype, **given}
            array = root.create_dataset(path, shape=values.shape, **arguments)
            # Where there is a fill value, the last row of chunks is left out.
            part = slice(0, 4) if given.get("fill_value") is not None else ...
            array[part] = values[part]
            array.attrs["_ARRAY_DIMENSIONS"] = [f"d{i}" for i in range(values.ndim)]
            written[path] = array
    zarr.consolidate_metadata(store)
    for path, array in written.items():
        save_expected(directory, f"v2/{path}", array[...])


if __name__ == "__main__":
    main()
