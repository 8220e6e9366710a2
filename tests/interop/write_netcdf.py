"""Write stores of version 2 with netCDF-C's NCZarr, for ``ci/interop netcdf``: ``SCRIPT DIRECTORY``.

In the ``nczarr`` mode with NCZarr's own attributes and keys, in the ``zarr`` mode without.
"""

import os
import sys
from pathlib import Path

import netCDF4
import numpy as np
from golden_archive import CHUNKS, SHAPE, sample, save_expected

NUMBERS = sample("<i4")
TYPES = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8")


def cases():
    """Yield path, values and arguments of ``createVariable``."""
    yield "none", NUMBERS, {}
    for level in (1, 9):
        yield f"zlib-{level}", NUMBERS, {"compression": "zlib", "complevel": level, "shuffle": False}
    for endian in ("little", "big"):
        for name in TYPES:
            if name[1] != "1" or endian == "little":
                dtype = np.dtype(name).newbyteorder(endian)
                yield f"types/{dtype.name}-{endian}", sample(dtype), {"endian": endian}
    yield "types/char", sample("S1"), {}
    yield "fill", NUMBERS, {"fill_value": -9}
    yield "nan-fill", sample("f4"), {"fill_value": np.nan}
    yield "line", NUMBERS[0], {}
    yield "scalar", np.array(7.5), {}
    yield "contiguous", NUMBERS, {"chunksizes": SHAPE}


def write(directory, cases):
    """Write a hierarchy for each mode."""
    directory = Path(directory).resolve()
    directory.mkdir(parents=True, exist_ok=True)
    os.chdir(directory)
    for store, mode in (("nczarr", "nczarr,file"), ("zarr", "zarr,file")):
        url = f"file://{directory / store}#mode={mode}"
        with netCDF4.Dataset(url, "w") as root:
            root.title = "golden"
            root.createDimension("y", SHAPE[0])
            root.createDimension("x", SHAPE[1])
            for path, values, given in cases:
                arguments = {"chunksizes": CHUNKS[: values.ndim] or None, **given}
                text_nbytes = arguments.pop("text_nbytes", None)
                dimensions = ("y", "x") if values.ndim == 2 else ("x",) * values.ndim
                variable = root.createVariable(path, str if text_nbytes else values.dtype, dimensions, **arguments)
                if text_nbytes:
                    variable.setncattr("_nczarr_maxstrlen", np.int32(text_nbytes))
                variable.set_auto_maskandscale(False)
                variable.units = "m"
                if "fill" in path:
                    variable[:4] = values[:4]
                else:
                    variable[...] = values
        with netCDF4.Dataset(url) as root:
            for path, _, given in cases:
                variable = root[path]
                variable.set_auto_maskandscale(False)
                # As Zarr, a scalar is an array of one element, and what netCDF reads as strings is of a fixed length.
                nbytes = given.get("text_nbytes", 1 if path == "types/char" else None)
                values = np.atleast_1d(variable[...])
                save_expected(directory, f"{store}/{path}", values.astype(f"S{nbytes}") if nbytes else values)


if __name__ == "__main__":
    write(sys.argv[1], list(cases()))
