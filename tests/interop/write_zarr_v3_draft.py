"""Write ``tests/golden/v3_draft/zarr-python-2.18.7.tar.xz``: its experimental version 3, and the expected values.

Runs in an environment of its own, on Python 3.11::

    pip install 'zarr==2.18.7' 'numcodecs==0.15.2' 'numpy==1.26.4' pytest
    python tests/interop/write_zarr_v3_draft.py

(To read a storage transformer, zarr-python imports its tests, and thus pytest.)

The archive has the directories ``hierarchy`` (groups and arrays), ``root-array`` (an array without a name) and
``expected`` with ``NODE.npy`` for each array, as zarr-python 2.18.7 itself reads it.
"""

import io
import os
import tarfile
import warnings
from pathlib import Path

os.environ["ZARR_V3_EXPERIMENTAL_API"] = "1"
os.environ["ZARR_V3_SHARDING"] = "1"

import numcodecs
import numpy as np
import zarr
from zarr._storage.v3_storage_transformers import ShardingStorageTransformer

TARGET = Path(__file__).parent.parent / "golden" / "v3_draft" / "zarr-python-2.18.7.tar.xz"
NUMBERS = (np.arange(37 * 29).reshape(37, 29) // 3).astype("<i4")
LINE = np.arange(10)


def sharding(*chunks_per_shard):
    """Return the storage transformer."""
    return [ShardingStorageTransformer("indexed", chunks_per_shard=chunks_per_shard)]


def arrays():
    """Yield path, values and arguments of ``zarr.create``."""
    compressors = {
        "none": None,
        "gzip": numcodecs.GZip(2),
        "zlib": numcodecs.Zlib(2),
        "bz2": numcodecs.BZ2(1),
        "lz4": numcodecs.LZ4(),
        "lzma": numcodecs.LZMA(preset=1),
        "zstd": numcodecs.Zstd(3),
        "blosc": numcodecs.Blosc("zstd", 5, numcodecs.Blosc.BITSHUFFLE),
    }
    for name, compressor in compressors.items():
        for order in "CF":
            yield f"codecs/{name}/{order}", NUMBERS, {"chunks": (20, 16), "compressor": compressor, "order": order}
    filters = [numcodecs.Delta("<i4"), numcodecs.Shuffle(4)]
    yield "filtered", NUMBERS, {"chunks": (20, 16), "filters": filters}
    yield "dots", NUMBERS, {"chunks": (20, 16), "dimension_separator": "."}
    for order in "CF":
        gzip = numcodecs.GZip(1)
        yield (
            f"sharded/{order}",
            NUMBERS,
            {"chunks": (5, 4), "storage_transformers": sharding(3, 2), "compressor": gzip, "order": order},
        )
    yield (
        "sharded/dots",
        NUMBERS,
        {"chunks": (5, 29), "storage_transformers": sharding(2, 1), "dimension_separator": "."},
    )
    yield "sharded/line", LINE.astype("<f4"), {"chunks": (2,), "storage_transformers": sharding(3), "compressor": None}
    yield "sharded/scalar", np.array(7.5), {"storage_transformers": sharding(1)}
    yield "scalar", np.array(-3, "<i2"), {}
    yield "types/bool", LINE % 3 == 0, {"chunks": (4,), "fill_value": True}
    yield "types/int8", LINE.astype("i1"), {"chunks": (4,), "fill_value": -1}
    yield "types/uint8", LINE.astype("u1"), {"chunks": (4,), "fill_value": 255}
    yield "types/big", LINE.astype(">u4"), {"chunks": (4,), "fill_value": 2**32 - 1}
    yield "types/nan", LINE.astype("<f8"), {"chunks": (4,), "fill_value": float("nan")}
    yield "types/infinity", LINE.astype("<f2"), {"chunks": (4,), "fill_value": float("-inf")}
    yield "types/complex", (LINE + 1j).astype("<c8"), {"chunks": (4,), "fill_value": 1 - 2j}
    yield "types/time", LINE.astype("<M8[ns]"), {"chunks": (4,), "fill_value": np.datetime64(5, "ns")}
    yield "types/bytes", np.array([b"a", b"bc", b"def"] * 3), {"chunks": (4,), "fill_value": b"abc"}
    yield "types/text", np.array(["a", "né", "def"] * 3), {"chunks": (4,), "fill_value": "ab"}
    yield "types/null", LINE.astype("<i8"), {"chunks": (4,), "fill_value": None}
    records = np.array([(i, b"x" * (i % 3), i / 2) for i in range(8)], [("i", "<i2"), ("s", "|S3"), ("f", ">f4")])
    yield "types/records", records, {"chunks": (4,), "fill_value": records[3]}
    words = np.array(["a", "né", "", "word"] * 2, object)
    yield "types/words", words, {"chunks": (4,), "object_codec": numcodecs.VLenUTF8(), "fill_value": "none"}


def save(values):
    """Return an ``.npy`` file."""
    buffer = io.BytesIO()
    np.save(buffer, values.astype(str) if values.dtype.hasobject else values)
    return buffer.getvalue()


def add(archive, name, data):
    """Add a file without a date or an owner, so that the same data give the same archive."""
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    archive.addfile(entry, io.BytesIO(data))


def main():
    """Write the archive."""
    warnings.simplefilter("ignore")
    store, root_store, expected = zarr.KVStoreV3({}), zarr.KVStoreV3({}), {}
    root = zarr.group(store, zarr_version=3)
    root.attrs["title"] = "golden"
    root.create_group("types").attrs["kind"] = "group"
    for path, values, arguments in arrays():
        array = zarr.create(values.shape, dtype=values.dtype, store=store, path=path, zarr_version=3, **arguments)
        # Where there is a fill value, the last chunk is left out.
        part = slice(0, 8) if "fill_value" in arguments and arguments["fill_value"] is not None else ...
        array[part] = values[part]
        array.attrs["_ARRAY_DIMENSIONS"] = [f"d{i}" for i in range(values.ndim)]
        expected[path] = array[...]
    zarr.consolidate_metadata(store, path="")
    zarr.storage.init_array(root_store, NUMBERS.shape, chunks=(20, 16), dtype="<i4", fill_value=-1)
    array = zarr.Array(root_store, zarr_version=3)
    array[:20] = NUMBERS[:20]
    expected["root-array"] = array[...]
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(TARGET, "w:xz") as archive:
        for name, files in (("hierarchy", store), ("root-array", root_store)):
            for key in sorted(files):
                add(archive, f"{name}/{key}", bytes(files[key]))
        for name, values in expected.items():
            add(archive, f"expected/{name}.npy", save(values))


if __name__ == "__main__":
    main()
