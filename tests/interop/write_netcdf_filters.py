"""Write stores of version 2 with netCDF-C's filters, for ``ci/interop netcdf-filters``: ``SCRIPT DIRECTORY``.

Its shuffle states an element size of 0, which means that of the variable's type; for a string, that of a pointer.
"""

import sys

import numpy as np
from golden_archive import sample
from write_netcdf import NUMBERS, write

ZLIB = {"compression": "zlib", "complevel": 1}


def cases():
    """Yield path, values and arguments of ``createVariable``."""
    yield "shuffle", NUMBERS, {**ZLIB, "shuffle": True}
    yield "fletcher32", NUMBERS, {"fletcher32": True}
    yield "shuffle-fletcher32", NUMBERS, {**ZLIB, "shuffle": True, "fletcher32": True}
    yield "shuffle-fill", NUMBERS, {**ZLIB, "shuffle": True, "fill_value": -9}
    for name in ("i1", "u2", "i8", "f4", "f8"):
        yield f"types/{np.dtype(name).name}", sample(name), {**ZLIB, "shuffle": True}
    yield "types/int32-big", sample(">i4"), {**ZLIB, "shuffle": True, "endian": "big"}
    yield "types/char", sample("S1"), {**ZLIB, "shuffle": True}
    words = np.array([chr(97 + i % 26) * (i % 5) for i in range(NUMBERS.size)], object).reshape(NUMBERS.shape)
    # In chunks of 12, 5 bytes are no whole number of pointers.
    for nbytes in (5, 8):
        yield f"types/string-{nbytes}", words, {**ZLIB, "shuffle": True, "text_nbytes": nbytes}


if __name__ == "__main__":
    write(sys.argv[1], list(cases()))
