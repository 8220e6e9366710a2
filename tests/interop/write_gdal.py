"""Write stores of version 2 and of the draft of version 3 with GDAL, for ``ci/interop gdal``: ``SCRIPT DIRECTORY``.

Runs on the Python of Debian's ``python3-gdal``. There are no scalars: GDAL 3.6.2 crashes when it reads one.
"""

import itertools
import sys
from pathlib import Path

from golden_archive import CHUNKS, SHAPE, sample, save_expected
from osgeo import gdal

gdal.UseExceptions()

NUMBERS = sample("<i4")
TYPES = {
    "uint8": gdal.GDT_Byte,
    "int16": gdal.GDT_Int16,
    "uint16": gdal.GDT_UInt16,
    "int32": gdal.GDT_Int32,
    "uint32": gdal.GDT_UInt32,
    "int64": gdal.GDT_Int64,
    "uint64": gdal.GDT_UInt64,
    "float32": gdal.GDT_Float32,
    "float64": gdal.GDT_Float64,
    "complex64": gdal.GDT_CFloat32,
    "complex128": gdal.GDT_CFloat64,
}


def cases(zarr_format):
    """Yield name, values and creation options of an array."""
    compressors = {name: [f"COMPRESS={name.upper()}"] for name in ("none", "zlib", "gzip", "lzma", "zstd", "lz4")}
    for name in ("blosclz", "lz4", "lz4hc", "zlib", "zstd"):
        compressors[f"blosc-{name}"] = ["COMPRESS=BLOSC", f"BLOSC_CNAME={name}"]
    # GDAL writes the option that it is given into the document, as a string.
    for name, shuffle in itertools.product(("lz4", "zstd"), ("0", "2", "NONE", "BIT")):
        compressors[f"blosc-{name}-{shuffle.lower()}"] = [*compressors[f"blosc-{name}"], f"BLOSC_SHUFFLE={shuffle}"]
    for name, options in compressors.items():
        if zarr_format == 3 and name in ("zlib", "lzma", "zstd", "lz4"):
            continue
        for order in "C" if "blosc" in name else "CF":
            yield f"codec-{name}-{order}", NUMBERS, [*options, f"CHUNK_MEMORY_LAYOUT={order}"]
    if zarr_format == 2:
        yield "filter-delta", NUMBERS, ["COMPRESS=ZLIB", "FILTER=DELTA", "DELTA_DTYPE=<i4"]
        yield "keys-dots", NUMBERS, ["DIM_SEPARATOR=."]
    yield "keys-slashes", NUMBERS, ["DIM_SEPARATOR=/"]
    for name in TYPES:
        if zarr_format == 3 and name.startswith("complex"):
            continue
        yield f"type-{name}", sample(name), ["COMPRESS=GZIP"]


def main():
    """Write a hierarchy of each format."""
    directory = Path(sys.argv[1])
    for store, zarr_format in (("v2", 2), ("v3-draft", 3)):
        path = str(directory / store)
        directory.mkdir(parents=True, exist_ok=True)
        dataset = gdal.GetDriverByName("Zarr").CreateMultiDimensional(path, [], [f"FORMAT=ZARR_V{zarr_format}"])
        root = dataset.GetRootGroup()
        dimensions = [root.CreateDimension(name, None, None, size) for name, size in zip("yx", SHAPE, strict=True)]
        for name, values, options in cases(zarr_format):
            options = [*options, f"BLOCKSIZE={CHUNKS[0]},{CHUNKS[1]}"]
            kind = gdal.ExtendedDataType.Create(TYPES[values.dtype.name])
            array = root.CreateMDArray(name, dimensions, kind, options)
            array.SetUnit("m")
            if values.dtype.kind != "c":
                array.SetNoDataValueDouble(7)
            array.Write(values)
        # Closed when nothing refers to them.
        array = dimensions = root = dataset = None
        dataset = gdal.OpenEx(path, gdal.OF_MULTIDIM_RASTER)
        for name, _, _ in cases(zarr_format):
            save_expected(directory, f"{store}/{name}", dataset.GetRootGroup().OpenMDArray(name).ReadAsArray())


if __name__ == "__main__":
    main()
