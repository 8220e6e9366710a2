"""Write stores of versions 2 and 3 with zarr-python 3, for ``ci/interop zarr-python-3``: ``SCRIPT DIRECTORY``."""

import sys
import warnings
from pathlib import Path

import numcodecs
import numpy as np
import zarr
from golden_archive import CHUNKS, byte_strings, sample, save_expected, texts
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, ShardingCodec, TransposeCodec, ZstdCodec
from zarr.codecs import numcodecs as adapted
from zarr.dtype import VariableLengthBytes, VariableLengthUTF8

NUMBERS = sample("<i4")
RECORDS = np.dtype([("i", "<i2"), ("s", "S3"), ("f", "<f8")])
PLAIN = ("b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16")
FILLS = {"b": True, "i": -3, "u": 250, "f": float("nan"), "c": 1 - 2j}
TIMES = ("M8[D]", "M8[ns]", "M8[10us]", "m8[s]", "m8[ms]")


def cases_v2():
    """Yield path, values and arguments of ``create_array``."""
    compressors = {
        "none": None,
        "zlib": numcodecs.Zlib(3),
        "gzip": numcodecs.GZip(3),
        "bz2": numcodecs.BZ2(1),
        "lzma": numcodecs.LZMA(preset=1),
        "lz4": numcodecs.LZ4(),
        "zstd": numcodecs.Zstd(3),
        "zstd-checksum": numcodecs.Zstd(3, checksum=True),
        "blosc-lz4": numcodecs.Blosc("lz4", 5, 1),
        "blosc-zstd": numcodecs.Blosc("zstd", 5, 2),
    }
    for name, compressor in compressors.items():
        for order in "CF":
            yield f"codecs/{name}/{order}", NUMBERS, {"compressors": compressor, "order": order}
    filters = {
        "delta": [numcodecs.Delta("<i4", "<i8")],
        "shuffle": [numcodecs.Shuffle(4)],
        "fixedscaleoffset": [numcodecs.FixedScaleOffset(offset=7, scale=2, dtype="<i4", astype="<i8")],
        "crc32": [numcodecs.CRC32()],
        "two": [numcodecs.Delta("<i4"), numcodecs.Shuffle(4)],
    }
    for name, chain in filters.items():
        values = NUMBERS // 16 if name == "fixedscaleoffset" else NUMBERS
        yield f"filters/{name}", values, {"filters": chain, "compressors": numcodecs.Zlib(1)}
    slashes = {"name": "v2", "separator": "/"}
    yield "keys/slashes", NUMBERS, {"chunk_key_encoding": slashes}
    yield "keys/slashes-scalar", np.array(7, "<i4"), {"chunk_key_encoding": slashes}
    for name in PLAIN:
        for order in "<" if name[1:] == "1" else "<>":
            dtype = np.dtype(order + name)
            yield f"types/{dtype.name}{'-big' * (order == '>')}", sample(dtype), {"fill_value": FILLS[dtype.kind]}
    for name in TIMES:
        yield f"types/{np.dtype(name)}", sample(name), {"fill_value": np.array(77, name)[()]}
    yield "types/bytes", sample("S5"), {"fill_value": b"fill"}
    yield "types/text", sample("<U4"), {"fill_value": "fül"}
    yield "types/raw", sample("V3"), {"fill_value": np.void(b"abc")}
    yield "types/records", sample(RECORDS), {"fill_value": np.array((-1, b"ab", np.inf), RECORDS)[()]}
    yield "types/string", texts(), {"dtype": VariableLengthUTF8(), "fill_value": "fill"}
    yield "types/variable-bytes", byte_strings(), {"dtype": VariableLengthBytes(), "fill_value": b"fill"}
    yield "no-fill", NUMBERS, {"fill_value": None}


def sharded(*codecs, inner=(2, 2), **options):
    """Return arguments for shards."""
    sharding = ShardingCodec(chunk_shape=inner, codecs=codecs, **options)
    return {"chunks": (4, 4), "filters": (), "compressors": (), "serializer": sharding}


def cases_v3():
    """Yield path, values and arguments of ``create_array``."""
    compressors = {
        "none": (),
        "gzip": GzipCodec(level=2),
        "zstd": ZstdCodec(level=1),
        "zstd-checksum": ZstdCodec(level=1, checksum=True),
        "crc32c": Crc32cCodec(),
        "zstd-crc32c": (ZstdCodec(level=1), Crc32cCodec()),
        "gzip-zstd": (GzipCodec(level=1), ZstdCodec(level=1)),
    }
    for name in ("blosclz", "lz4", "lz4hc", "zlib", "zstd"):
        for shuffle in ("noshuffle", "shuffle", "bitshuffle"):
            compressors[f"blosc-{name}-{shuffle}"] = BloscCodec(cname=name, clevel=5, shuffle=shuffle, typesize=4)
    for name, compressor in compressors.items():
        yield f"codecs/{name}", NUMBERS, {"compressors": compressor}
    yield "codecs/big-endian", NUMBERS, {"serializer": BytesCodec(endian="big")}
    yield "codecs/transpose", NUMBERS, {"filters": TransposeCodec(order=(1, 0))}
    with_numcodecs = {
        "adler32": (None, adapted.Adler32()),
        "bz2": (None, adapted.BZ2(level=1)),
        "crc32": (None, adapted.CRC32()),
        "fletcher32": (None, adapted.Fletcher32()),
        "jenkins": (None, adapted.JenkinsLookup3()),
        "lz4": (None, adapted.LZ4(acceleration=1)),
        "lzma": (None, adapted.LZMA(preset=1)),
        "shuffle": (None, adapted.Shuffle(elementsize=4)),
        "zlib": (None, adapted.Zlib(level=1)),
        "zstd": (None, adapted.Zstd(level=1)),
        "blosc": (None, adapted.Blosc(cname="zstd", clevel=1, shuffle=1)),
        "gzip": (None, adapted.GZip(level=1)),
        "delta": (adapted.Delta(dtype="<i4"), ()),
        "fixedscaleoffset": (adapted.FixedScaleOffset(offset=7, scale=2, dtype="<i4", astype="<i8"), ()),
        "astype": (adapted.AsType(encode_dtype="<i8", decode_dtype="<i4"), ()),
    }
    for name, (filters, compressor) in with_numcodecs.items():
        arguments = {} if filters is None else {"filters": filters}
        values = NUMBERS // 16 if name == "fixedscaleoffset" else NUMBERS
        yield f"numcodecs/{name}", values, {"compressors": compressor, **arguments}
    yield "numcodecs/packbits", sample("b1"), {"filters": adapted.PackBits(), "compressors": ()}
    finite = np.where(np.isfinite(sample("<f4")), sample("<f4"), 1)
    yield "numcodecs/bitround", finite, {"filters": adapted.BitRound(keepbits=5)}
    yield "numcodecs/quantize", finite, {"filters": adapted.Quantize(digits=2, dtype="<f4")}
    zstd, little = ZstdCodec(level=0), BytesCodec()
    yield "sharded/end", NUMBERS, sharded(little, zstd)
    yield "sharded/start", NUMBERS, sharded(little, zstd, index_location="start")
    yield "sharded/no-checksum", NUMBERS, sharded(little, index_codecs=(little,))
    yield "sharded/transpose", NUMBERS, sharded(TransposeCodec(order=(1, 0)), BytesCodec(endian="big"), Crc32cCodec())
    yield "sharded/compressed", NUMBERS, {**sharded(little), "compressors": GzipCodec(level=1)}
    nested = ShardingCodec(chunk_shape=(1, 2), codecs=(little, zstd))
    yield "sharded/nested", NUMBERS, sharded(nested)
    yield "sharded/string", texts(), {"shards": (4, 4), "chunks": (2, 2), "dtype": VariableLengthUTF8()}
    yield "keys/v2", NUMBERS, {"chunk_key_encoding": {"name": "v2", "separator": "."}}
    yield "keys/v2-slashes", NUMBERS, {"chunk_key_encoding": {"name": "v2", "separator": "/"}}
    yield "keys/dots", NUMBERS, {"chunk_key_encoding": {"name": "default", "separator": "."}}
    yield "keys/scalar", np.array(7, "<i4"), {}
    yield "keys/v2-scalar", np.array(7, "<i4"), {"chunk_key_encoding": {"name": "v2", "separator": "."}}
    for name in PLAIN:
        yield f"types/{np.dtype(name).name}", sample(name), {"fill_value": FILLS[np.dtype(name).kind]}
    for name in TIMES:
        yield f"types/{np.dtype(name)}", sample(name), {"fill_value": np.array("NaT", name)[()]}
    yield "types/bytes", sample("S5"), {"fill_value": b"fill"}
    yield "types/text", sample("<U4"), {"fill_value": "fül"}
    yield "types/raw", sample("V3"), {"fill_value": np.void(b"abc")}
    yield "types/records", sample(RECORDS), {"fill_value": np.array((-1, b"ab", np.inf), RECORDS)[()]}
    yield "types/string", texts(), {"dtype": VariableLengthUTF8(), "fill_value": "fill"}
    yield "types/variable-bytes", byte_strings(), {"dtype": VariableLengthBytes(), "fill_value": b"fill"}


def write(directory, store, zarr_format, cases):
    """Write a hierarchy; for arrays with their own fill value, all but the last row of chunks."""
    directory = Path(directory)
    root = zarr.open_group(str(directory / store), mode="w", zarr_format=zarr_format, attributes={"title": "golden"})
    for path, values, given in cases:
        arguments = {"chunks": CHUNKS[: values.ndim], "dtype": values.dtype, "fill_value": 0, **given}
        if arguments["dtype"] is not values.dtype and "fill_value" not in given:
            del arguments["fill_value"]
        if zarr_format == 3 and values.ndim:
            arguments["dimension_names"] = ["y", None]
        array = root.create_array(path, shape=values.shape, attributes={"units": "m"}, **arguments)
        array[() if not values.ndim else slice(0, 4 if "fill_value" in given else None)] = (
            values[:4] if values.ndim and "fill_value" in given else values
        )
    zarr.consolidate_metadata(str(directory / store), zarr_format=zarr_format)
    root = zarr.open_group(str(directory / store), mode="r", zarr_format=zarr_format)
    for path, array in root.members(max_depth=None):
        if isinstance(array, zarr.Array):
            save_expected(directory, f"{store}/{path}", array[...])


def main():
    """Write both hierarchies."""
    warnings.simplefilter("ignore")
    directory = Path(sys.argv[1])
    write(directory, "v2", 2, cases_v2())
    write(directory, "v3", 3, cases_v3())


if __name__ == "__main__":
    main()
