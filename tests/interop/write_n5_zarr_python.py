"""Write N5 with the stores of zarr-python 2, for ``ci/interop n5``: ``SCRIPT DIRECTORY``."""

import sys
import warnings
from pathlib import Path

import numcodecs
import numpy as np
import zarr
from golden_archive import CHUNKS, sample, save_expected
from zarr.n5 import N5FSStore, N5Store

NUMBERS = sample("<i4")
TYPES = ("b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8")
CUBE = sample("<u2", (3, 4, 5))


def arrays():
    """Yield path, values and arguments of ``create_dataset``."""
    compressors = {
        "none": None,
        "gzip": numcodecs.GZip(9),
        "zlib": numcodecs.Zlib(9),
        "bz2": numcodecs.BZ2(9),
        "xz": numcodecs.LZMA(),
        "lzma": numcodecs.LZMA(format=2),
        "lz4": numcodecs.LZ4(4),
        "zstd": numcodecs.Zstd(19),
    }
    for name in ("blosclz", "lz4", "lz4hc", "zlib", "zstd"):
        for shuffle in (-1, 0, 1, 2):
            compressors[f"blosc-{name}-{shuffle}"] = numcodecs.Blosc(name, 5, shuffle)
    for name, compressor in compressors.items():
        yield f"codecs/{name}", NUMBERS, {"compressor": compressor}
    for name in TYPES:
        yield f"types/{np.dtype(name).name}", sample(f"<{name}"), {"compressor": numcodecs.GZip(1)}
    yield "shapes/line", np.arange(11, dtype="<u2"), {"chunks": (4,)}
    yield "shapes/cube", CUBE, {"chunks": (2, 3, 2)}
    yield "shapes/large-chunk", NUMBERS, {"chunks": (20, 30)}
    yield "shapes/sparse", NUMBERS, {}


def main():
    """Write a hierarchy with each store."""
    warnings.simplefilter("ignore")
    directory = Path(sys.argv[1])
    for name, make in (("nested", N5Store), ("fsspec", N5FSStore)):
        root = zarr.group(make(str(directory / name)))
        root.attrs["title"] = "golden"
        written = {}
        for path, values, given in arrays():
            arguments = {"chunks": CHUNKS, "dtype": values.dtype, **given}
            array = root.create_dataset(path, shape=values.shape, **arguments)
            part = slice(0, 4) if path.endswith("sparse") else ...
            array[part] = values[part]
            array.attrs["unit"] = "nm"
            written[path] = array
        for path, array in written.items():
            save_expected(directory, f"{name}/{path}", array[...])


if __name__ == "__main__":
    main()
