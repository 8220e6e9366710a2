"""``import gzarr`` is enough to reach each integration."""

from __future__ import annotations

import subprocess
import sys

import pytest

import gzarr


@pytest.mark.parametrize("name", ["dask", "jax", "torch", "xarray", "zarr"])
def test_a_module_is_imported_when_it_is_named(name: str) -> None:
    pytest.importorskip(name)
    program = f"import gzarr; print(gzarr.integrations.{name}.__name__, '{name}' in dir(gzarr.integrations))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (f"gzarr.integrations.{name} True\n", "")


def test_others_do_not_exist() -> None:
    with pytest.raises(AttributeError, match=r"'gzarr\.integrations' has no attribute 'torchvision'"):
        gzarr.integrations.torchvision


def test_a_library_that_is_missing() -> None:
    program = """
import sys
sys.modules["zarr"] = None
import gzarr
try:
    gzarr.integrations.zarr
except gzarr.ArgumentError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("zarr-python is not installed: pip install zarr\n", "")
