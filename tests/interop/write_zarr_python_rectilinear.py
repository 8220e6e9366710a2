"""Write rectilinear grids with zarr-python 3.4, for ``ci/interop zarr-python-rectilinear``: ``SCRIPT DIRECTORY``."""

import sys
import warnings
from pathlib import Path

import numpy as np
import zarr
from golden_archive import sample, save_expected, texts
from zarr.codecs import BytesCodec, Crc32cCodec, GzipCodec, ShardingCodec, TransposeCodec, ZstdCodec
from zarr.dtype import VariableLengthUTF8

SHAPE = (14, 9)
NUMBERS = sample("<i4", SHAPE)
#: Lengths of shards, and the shape of the chunks in them.
EDGES, INNER = [[4, 6, 2, 2], [3, 6]], (2, 3)


def behind(sharding, *compressors, filters=()):
    """Return arguments for a sharding codec in a chain of several codecs."""
    return {"chunks": EDGES, "shards": None, "filters": filters, "serializer": sharding, "compressors": compressors}


def cases():
    """Yield path, values and arguments of ``create_array``."""
    little, zstd = BytesCodec(), ZstdCodec(level=1)
    yield "chunks/two", NUMBERS, {"chunks": EDGES, "shards": None}
    yield "chunks/one", NUMBERS, {"chunks": [[4, 6, 2, 2], 3], "shards": None}
    yield "shards/two", NUMBERS, {}
    yield "shards/one", NUMBERS, {"shards": [[4, 6, 2, 2], 6]}
    yield "shards/runs", NUMBERS, {"shards": [[2, 2, 2, 2, 2, 4], [6, 3]]}
    yield "shards/gzip", NUMBERS, {"compressors": GzipCodec(level=1)}
    yield "shards/start", NUMBERS, {"shards": {"shape": EDGES, "index_location": "start"}}
    for location in ("start", "end"):
        sharding = ShardingCodec(chunk_shape=INNER, codecs=(little, zstd), index_location=location)
        yield f"codecs/{location}", NUMBERS, behind(sharding)
    sharding = ShardingCodec(chunk_shape=INNER, codecs=(little,), index_codecs=(little,))
    yield "codecs/no-checksum", NUMBERS, behind(sharding)
    sharding = ShardingCodec(chunk_shape=INNER, codecs=(TransposeCodec(order=(1, 0)), BytesCodec(endian="big")))
    yield "codecs/big-transposed", NUMBERS, behind(sharding)
    sharding = ShardingCodec(chunk_shape=INNER, codecs=(little, Crc32cCodec()))
    yield "codecs/compressed", NUMBERS, behind(sharding, GzipCodec(level=1))
    nested = ShardingCodec(chunk_shape=(1, 3), codecs=(little, zstd))
    yield "codecs/nested", NUMBERS, behind(ShardingCodec(chunk_shape=INNER, codecs=(nested,)))
    # Chunks of one element are as they are in any order of the dimensions.
    sharding = ShardingCodec(chunk_shape=(1, 1), codecs=(little,))
    yield "codecs/transpose", NUMBERS, behind(sharding, filters=(TransposeCodec(order=(1, 0)),))
    for name in ("b1", "u1", "f2", "f8", "c8", "M8[s]", "S5"):
        values = sample(name, SHAPE)
        yield f"types/{values.dtype.name}", values, {"fill_value": values[2, 2]}
    yield "types/string", texts(SHAPE), {"dtype": VariableLengthUTF8(), "fill_value": "fill"}


def main():
    """Write a hierarchy; some arrays lack shards, and chunks in shards; one is enlarged, one shrunk."""
    warnings.simplefilter("ignore")
    zarr.config.set({"array.rectilinear_chunks": True})
    directory = Path(sys.argv[1])
    root = zarr.open_group(str(directory / "v3"), mode="w", zarr_format=3)
    for path, values, given in cases():
        arguments = {"chunks": INNER, "shards": EDGES, "dtype": values.dtype, "fill_value": -1, **given}
        array = root.create_array(path, shape=SHAPE, **arguments)
        if "fill_value" in given:
            array[1:3] = values[1:3]
            array[6:11, 6:] = values[6:11, 6:]
        else:
            array[...] = values
    for path, rows in (("resized/longer", 20), ("resized/shorter", 5)):
        array = root.create_array(path, shape=SHAPE, chunks=INNER, shards=EDGES, dtype="<i4", fill_value=-1)
        array[...] = NUMBERS
        array.resize((rows, SHAPE[1]))
        array[-2:] = 7
    root = zarr.open_group(str(directory / "v3"), mode="r")
    for path, array in root.members(max_depth=None):
        if isinstance(array, zarr.Array):
            save_expected(directory, f"v3/{path}", np.asarray(array[...]))


if __name__ == "__main__":
    main()
