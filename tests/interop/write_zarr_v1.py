"""Write ``tests/golden/v1/zarr-python-1.1.0.tar.xz``: version 1 arrays of zarr-python 1.1.0, and their expected values.

Runs in an environment of its own, on Python 3.11::

    pip install 'setuptools<60' wheel 'cython<3' 'numpy==1.26.4' fasteners
    CFLAGS="-fcommon -w" pip install --no-build-isolation --no-deps --no-binary zarr 'zarr==1.1.0'
    python tests/interop/write_zarr_v1.py

The archive has one directory per store, and ``expected/NAME.npy`` as zarr-python 1.1.0 itself reads each store.
"""

import collections
import collections.abc
import io
import lzma
import tarfile
from pathlib import Path

import numpy as np

collections.MutableMapping = collections.abc.MutableMapping  # gone since Python 3.10
import zarr  # noqa: E402

TARGET = Path(__file__).parent.parent / "golden" / "v1" / "zarr-python-1.1.0.tar.xz"
SHAPE, CHUNKS = (37, 29), (20, 16)
NUMBERS = (np.arange(37 * 29).reshape(SHAPE) // 3).astype("<i4")
RAW_FILTERS = [{"id": lzma.FILTER_DELTA, "dist": 4}, {"id": lzma.FILTER_LZMA2, "preset": 1}]


def cases():
    """Yield name, values and arguments of ``init_store``."""
    compressors = {
        "none": ("none", None),
        "default": ("default", None),
        "zlib": ("zlib", 1),
        "gzip": ("gzip", 9),
        "bz2": ("bz2", 1),
        "lzma": ("lzma", None),
        "lzma-alone": ("lzma", {"format": lzma.FORMAT_ALONE, "preset": 2}),
        "lzma-raw": ("lzma", {"format": lzma.FORMAT_RAW, "filters": RAW_FILTERS}),
        "lzma-filters": ("lzma", {"check": lzma.CHECK_CRC32, "filters": RAW_FILTERS}),
    }
    for cname in ("blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd"):
        for shuffle in (0, 1, 2):
            compressors[f"blosc-{cname}-{shuffle}"] = (
                "blosc",
                {"cname": cname, "clevel": 1 + 3 * shuffle, "shuffle": shuffle},
            )
    for name, (compression, options) in compressors.items():
        for order in "CF":
            arguments = {"compression": compression, "compression_opts": options, "order": order}
            yield f"{name}-{order}", NUMBERS, {"chunks": CHUNKS, **arguments}
    line = np.arange(10)
    yield "bool", line % 3 == 0, {"chunks": (4,), "fill_value": True}
    yield "big-endian", line.astype(">i2"), {"chunks": (4,), "fill_value": -5, "compression": "zlib"}
    yield "float-nan", line.astype("<f8") / 3, {"chunks": (4,), "fill_value": float("nan")}
    yield "float-infinity", line.astype("<f4"), {"chunks": (4,), "fill_value": float("-inf")}
    yield "half", line.astype("<f2"), {"chunks": (4,), "fill_value": 1.5}
    yield "complex", (line + 1j).astype("<c16"), {"chunks": (4,), "fill_value": 1.0}
    yield "bytes", np.array([b"a", b"bc", b"def"] * 3), {"chunks": (4,), "fill_value": "abc"}
    yield "text", np.array(["a", "né", "def"] * 3), {"chunks": (4,), "fill_value": "ab", "compression": "bz2"}
    yield "time", line.astype("<M8[D]"), {"chunks": (4,), "fill_value": 5}
    yield "cube", np.arange(60, dtype="<u2").reshape(3, 4, 5), {"chunks": (2, 3, 2), "order": "F", "fill_value": 7}
    yield "uint8", line.astype("u1"), {"chunks": (20,), "compression": "none", "fill_value": 0}


def write(store, values, arguments):
    """Write all of an array except its last chunk, unless that is undefined; return the array as read back."""
    zarr.init_store(store, shape=values.shape, dtype=values.dtype, **arguments)
    array = zarr.Array(store)
    if arguments.get("fill_value") is None:
        array[...] = values
    else:
        array[: arguments["chunks"][0]] = values[: arguments["chunks"][0]]
    array.attrs["units"] = "m"
    array.attrs["_ARRAY_DIMENSIONS"] = [f"d{i}" for i in range(values.ndim)]
    return array[...]


def structured(store):
    """Write records: zarr-python 1.1.0 assigns only whole chunks of them."""
    values = np.array([(i, b"x" * (i % 3), i / 2) for i in range(8)], [("i", "<i2"), ("s", "|S3"), ("f", ">f4")])
    zarr.init_store(store, shape=(8,), chunks=(4,), dtype=values.dtype, compression="zlib")
    array = zarr.Array(store)
    array[...] = values
    return array[...]


def main():
    """Write the archive."""
    stores, expected = {}, {}
    for name, values, arguments in cases():
        stores[name] = {}
        expected[name] = write(stores[name], values, arguments)
    stores["structured"] = {}
    expected["structured"] = structured(stores["structured"])
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(TARGET, "w:xz") as archive:
        for name, store in stores.items():
            for key, value in sorted(store.items()):
                add(archive, f"{name}/{key}", bytes(value))
            buffer = io.BytesIO()
            np.save(buffer, expected[name])
            add(archive, f"expected/{name}.npy", buffer.getvalue())


def add(archive, name, data):
    """Add a file without a date or an owner, so that the same data give the same archive."""
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    archive.addfile(entry, io.BytesIO(data))


if __name__ == "__main__":
    main()
