"""PyInstaller's hook: what gzarr imports by name, its compiled kernels, and the libraries whose functions they call.

Source: "Understanding PyInstaller Hooks" in PyInstaller's manual.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import gzarr_kernels
from PyInstaller.utils.hooks import collect_dynamic_libs, collect_submodules, copy_metadata

_KERNELS = Path(gzarr_kernels.__file__).parent / "compiled_kernels"


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


# Packages whose libraries are loaded by path.
_packages = ["blosc2", "deflate", "google_crc32c", "numcodecs", *filter(_is_installed, ["nvidia.libnvcomp"])]
hiddenimports = [
    *collect_submodules("gzarr", filter=lambda name: not name.startswith("gzarr._pyinstaller")),
    *collect_submodules("gzarr_kernels"),
    *_packages,
]
binaries = [entry for package in _packages for entry in collect_dynamic_libs(package)]
# The metadata have the entry points by which xarray and zarr-python find gzarr.
datas = [*copy_metadata("gzarr"), *((str(file), f"gzarr_kernels/{_KERNELS.name}") for file in _KERNELS.glob("*"))]
# A program that uses these with gzarr imports them itself; some take gigabytes.
excludedimports = ["IPython", "cloudpickle", "dask", "distributed", "jax", "pandas", "torch", "xarray", "zarr", "zarrs"]
if _KERNELS.is_dir():
    # What would compile the kernels.
    excludedimports += ["llvmlite", "numba", "numba_cuda"]
