"""Write bands with the GDAL in rasterio, for ``ci/interop gdal-rasterio``: ``SCRIPT DIRECTORY``.

In version 2 it writes the text of an option unchanged, where numcodecs has a boolean.
"""

import sys
import warnings
from pathlib import Path

import rasterio
from golden_archive import CHUNKS, SHAPE, sample, save_expected

NUMBERS = sample("<i4")


def cases():
    """Yield name, values and creation options."""
    for name in ("none", "gzip", "blosc"):
        yield name, NUMBERS, {"COMPRESS": name.upper()}
    yield "zstd", NUMBERS, {"COMPRESS": "ZSTD"}
    for i, checksum in enumerate(("NO", "YES", "no", "Off", "true", "1")):
        yield f"zstd-{i}", NUMBERS, {"COMPRESS": "ZSTD", "ZSTD_CHECKSUM": checksum}
    yield "float32", sample("<f4"), {"COMPRESS": "ZSTD"}


def main():
    """Write a hierarchy of each version, whose arrays are written as bands."""
    warnings.simplefilter("ignore")
    directory = Path(sys.argv[1])
    for zarr_format in (2, 3):
        for name, values, options in cases():
            path = directory / f"v{zarr_format}-{name}"
            path.parent.mkdir(parents=True, exist_ok=True)
            size = {"height": SHAPE[0], "width": SHAPE[1], "count": 1, "dtype": values.dtype, "nodata": 7}
            options = {**options, "FORMAT": f"ZARR_V{zarr_format}", "BLOCKSIZE": f"{CHUNKS[0]},{CHUNKS[1]}"}
            with rasterio.open(str(path), "w", driver="Zarr", **size, **options) as band:
                band.write(values, 1)
            with rasterio.open(str(path)) as band:
                save_expected(directory, f"{path.name}/{path.name}", band.read(1))


if __name__ == "__main__":
    main()
