"""Write stores of versions 2 and 3 with tensorstore, for ``ci/interop tensorstore``: ``SCRIPT DIRECTORY``."""

import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import tensorstore as ts
from golden_archive import CHUNKS, SHAPE, sample, save_expected

NUMBERS = sample("<i4")
PLAIN = ("b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16")
FILLS = {"b": True, "i": -3, "u": 250, "f": "NaN", "c": [1.0, -2.0]}
#: Types that NumPy has not, with their bits.
EXTENSIONS = {
    "bfloat16": 16,
    "float8_e3m4": 8,
    "float8_e4m3b11fnuz": 8,
    "float8_e4m3fn": 8,
    "float8_e4m3fnuz": 8,
    "float8_e5m2": 8,
    "float8_e5m2fnuz": 8,
    "float4_e2m1fn": 4,
    "int2": 2,
    "int4": 4,
}


def codec(name, **configuration):
    """Return the JSON of a codec."""
    return {"name": name, "configuration": configuration}


def patterns(name):
    """Return elements of an extension type: every bit pattern, or as many as fit."""
    dtype, bits = np.dtype(getattr(ml_dtypes, name)), EXTENSIONS[name]
    steps = np.arange(35)
    if bits == 16:
        return (steps * 1873).astype("<u2").view(dtype).reshape(SHAPE)
    if name.startswith("int"):
        return (steps % 2**bits - 2 ** (bits - 1)).astype("i1").astype(dtype).reshape(SHAPE)
    return (steps * (1 if bits == 4 else 37) % 2**bits).astype("u1").view(dtype).reshape(SHAPE)


def cases_v2():
    """Yield path, values and the members of a document."""
    compressors = {
        "none": None,
        "zlib": {"id": "zlib", "level": 5},
        "gzip": {"id": "gzip", "level": 5},
        "bz2": {"id": "bz2", "level": 5},
        "zstd": {"id": "zstd", "level": 5},
    }
    for name in ("blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd"):
        for shuffle in (-1, 0, 1, 2):
            compressors[f"blosc-{name}-{shuffle}"] = {
                "id": "blosc",
                "cname": name,
                "clevel": 5,
                "shuffle": shuffle,
                "blocksize": 0,
            }
    for name, compressor in compressors.items():
        if "snappy" in name:
            continue
        for order in "CF":
            yield f"codecs/{name}/{order}", NUMBERS, {"compressor": compressor, "order": order}
    yield "keys/slashes", NUMBERS, {"dimension_separator": "/"}
    yield "keys/scalar", np.array(7, "<i4"), {"fill_value": None}
    for name in PLAIN:
        for order in "|" if name[1:] == "1" else "<>":
            dtype = np.dtype(order + name)
            yield f"types/{dtype.name}{'-big' * (order == '>')}", sample(dtype), {"fill_value": FILLS[dtype.kind]}
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "int4"):
        yield f"types/{name}", patterns(name), {"dtype": name, "fill_value": 1}


def cases_v3():
    """Yield path, values and the members of a document."""
    little, big = codec("bytes", endian="little"), codec("bytes", endian="big")
    chains = {
        "none": [little],
        "big-endian": [big],
        "gzip": [little, codec("gzip", level=5)],
        "zstd": [little, codec("zstd", level=5, checksum=False)],
        "zstd-checksum": [little, codec("zstd", level=5, checksum=True)],
        "crc32c": [big, {"name": "crc32c"}],
        "transpose": [codec("transpose", order=[1, 0]), little],
        "two-transposes": [codec("transpose", order=[1, 0]), codec("transpose", order=[1, 0]), little],
        "zstd-crc32c": [little, codec("zstd", level=1), {"name": "crc32c"}],
    }
    for name in ("blosclz", "lz4", "lz4hc", "zlib", "zstd"):
        for shuffle in ("noshuffle", "shuffle", "bitshuffle"):
            blosc = codec("blosc", cname=name, clevel=5, shuffle=shuffle, typesize=4, blocksize=0)
            chains[f"blosc-{name}-{shuffle}"] = [little, blosc]
    for name, chain in chains.items():
        yield f"codecs/{name}", NUMBERS, {"codecs": chain}
    index = [little, {"name": "crc32c"}]
    zstd = [little, codec("zstd", level=1)]
    nested = codec("sharding_indexed", chunk_shape=[1, 3], codecs=zstd, index_codecs=index)
    shards = {
        "end": {"codecs": zstd},
        "start": {"codecs": zstd, "index_location": "start"},
        "no-checksum": {"codecs": [big], "index_codecs": [little]},
        "big-endian-index": {"codecs": [little], "index_codecs": [big, {"name": "crc32c"}]},
        "inner-checksum": {"codecs": [little, {"name": "crc32c"}], "index_location": "start"},
        "inner-transpose": {"codecs": [codec("transpose", order=[1, 0]), little]},
        "nested": {"codecs": [nested]},
    }
    for name, given in shards.items():
        sharding = codec("sharding_indexed", **{"chunk_shape": [2, 3], "index_codecs": index, **given})
        yield f"sharded/{name}", NUMBERS, {"codecs": [sharding]}
        # Inner chunks that are absent.
        yield f"sharded/{name}-partly", NUMBERS[:3], {"codecs": [sharding], "fill_value": -9}
    outer = [codec("transpose", order=[1, 0]), codec("sharding_indexed", chunk_shape=[3, 2], codecs=zstd)]
    yield "sharded/transposed", NUMBERS, {"codecs": outer}
    yield "keys/dots", NUMBERS, {"chunk_key_encoding": codec("default", separator=".")}
    yield "keys/v2", NUMBERS, {"chunk_key_encoding": codec("v2", separator=".")}
    yield "keys/scalar", np.array(7, "<i4"), {"fill_value": 1}
    for name in PLAIN:
        dtype = np.dtype(name)
        for endian in ("little", "big"):
            chain = [codec("bytes", endian=endian), codec("zstd", level=1)]
            members = {"fill_value": FILLS[dtype.kind], "codecs": chain}
            yield f"types/{dtype.name}-{endian}", sample(dtype)[:4], members
    for name, bits in EXTENSIONS.items():
        for endian in ("little", "big") if bits > 8 else ("little",):
            chain = [codec("bytes", endian=endian), codec("zstd", level=1)]
            yield f"types/{name}-{endian}", patterns(name)[:4], {"data_type": name, "fill_value": 1, "codecs": chain}


def document_v2(values, members):
    """Return an array's metadata."""
    return {
        "zarr_format": 2,
        "shape": SHAPE if values.ndim else [],
        "chunks": CHUNKS[: values.ndim],
        "dtype": values.dtype.str,
        "compressor": {"id": "zlib", "level": 1},
        "filters": None,
        "order": "C",
        "fill_value": None,
        **members,
    }


def document_v3(values, members):
    """Return an array's metadata."""
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": SHAPE if values.ndim else [],
        "data_type": values.dtype.name,
        "chunk_grid": codec("regular", chunk_shape=CHUNKS[: values.ndim]),
        "chunk_key_encoding": codec("default", separator="/"),
        "fill_value": 0,
        "attributes": {"units": "m"},
        "dimension_names": ["y", None][: values.ndim],
        **members,
    }


def main():
    """Write both hierarchies; in some arrays only the first rows are written, and the rest is absent."""
    directory = Path(sys.argv[1])
    for store, driver, cases, document in (
        ("v2", "zarr", cases_v2, document_v2),
        ("v3", "zarr3", cases_v3, document_v3),
    ):
        for path, values, members in cases():
            where = {"driver": "file", "path": f"{directory / store / path}/"}
            spec = {"driver": driver, "kvstore": where, "metadata": document(values, members)}
            array = ts.open(spec, create=True).result()
            part = array[: len(values)] if values.ndim else array
            part.write(values).result()
            again = ts.open({"driver": driver, "kvstore": where}).result()
            save_expected(directory, f"{store}/{path}", again.read().result())


if __name__ == "__main__":
    main()
