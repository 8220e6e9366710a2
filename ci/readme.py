"""Run the first example of README.md: ``readme.py README``, with a Python that has gzarr and zarr-python.

It is run as it stands, up to the lines that need a GPU, on an array of zarr-python, which also reads what is written.
The other examples need large packages: the tests of the documentation run them.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import zarr


def main() -> int:
    """Run the example, and compare what it reads and writes."""
    example, *_ = re.findall(r"```python\n(.*?)```", Path(sys.argv[1]).read_text(), re.DOTALL)
    host, line, _ = example.partition("g = gzarr.open_array")
    if not line:
        raise SystemExit("error: the example no longer has a line for a GPU; where does it end?")
    warnings.simplefilter("error")
    data = np.arange(200 * 4 * 5, dtype="u2").reshape(200, 4, 5)
    fields = np.random.default_rng(1).random((2, 721, 1440), "f4")
    names = {"buffer": np.empty((64, 4, 5), "u2"), "fields": fields}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        zarr.create_array("volume.zarr", data=data, chunks=(64, 4, 5))
        exec(host, names)
        np.testing.assert_array_equal(names["x"], data[100:200, ::2, -1])
        np.testing.assert_array_equal(names["buffer"], data[:64])
        np.testing.assert_array_equal(zarr.open_array("new.zarr", mode="r")[...], fields)
        os.chdir("/")
    print("the first example of README.md: works")
    return 0


if __name__ == "__main__":
    sys.exit(main())
