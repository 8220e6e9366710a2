"""Write N5 with z5py, for ``ci/interop n5``: ``SCRIPT DIRECTORY``."""

import sys
from pathlib import Path

import numpy as np
import z5py
from golden_archive import CHUNKS, sample, save_expected

TYPES = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8")


def arrays():
    """Yield path, values, shape of a chunk, and options of the compressor."""
    compressors = {
        "raw": {},
        "gzip": {"level": 9},
        "bzip2": {},
        "xz": {},
        "lz4": {},
        "zstd": {"level": 9},
        "blosc-lz4": {"compression": "blosc", "codec": "lz4", "shuffle": 1},
        "blosc-zstd": {"compression": "blosc", "codec": "zstd", "shuffle": 2},
    }
    for name, options in compressors.items():
        yield f"codecs/{name}", sample("<i4"), CHUNKS, {"compression": name, **options}
    for name in TYPES:
        yield f"types/{np.dtype(name).name}", sample(f"<{name}"), CHUNKS, {"compression": "gzip"}
    yield "shapes/line", np.arange(11, dtype="<u2"), (4,), {"compression": "lz4"}
    yield "shapes/cube", sample("<u2", (3, 4, 5)), (2, 3, 2), {"compression": "gzip"}
    yield "shapes/sparse", sample("<i4"), CHUNKS, {"compression": "gzip"}


def main():
    """Write the hierarchy."""
    directory = Path(sys.argv[1])
    directory.mkdir()
    root = z5py.File(str(directory / "z5"), "w", use_zarr_format=False)
    root.attrs["title"] = "golden"
    for path, values, chunks, options in arrays():
        array = root.create_dataset(path, shape=values.shape, chunks=chunks, dtype=values.dtype.name, **options)
        part = slice(0, 4) if path.endswith("sparse") else slice(None)
        array[part] = values[part]
        array.attrs["unit"] = "nm"
        save_expected(directory, f"z5/{path}", array[:])


if __name__ == "__main__":
    main()
