"""``import gzarr`` is enough to reach each integration."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import gzarr

if TYPE_CHECKING:
    from pathlib import Path


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


def test_zarr_python_2_has_no_pipelines(tmp_path: Path) -> None:
    (tmp_path / "zarr").mkdir()
    (tmp_path / "zarr/__init__.py").write_text("__version__ = '2.18.7'\n")
    program = f"""
import sys
from typing import TYPE_CHECKING
sys.path.insert(0, {str(tmp_path)!r})
import gzarr
try:
    gzarr.integrations.zarr.enable()
except gzarr.ArgumentError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    told = "codec pipelines are of zarr-python 3: pip install --upgrade zarr\n"
    assert (done.stdout, done.stderr) == (told, "")
