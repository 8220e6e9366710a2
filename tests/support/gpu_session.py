"""Limits for a test run on a GPU: it ends in time, and a lost context is reported for the test that lost it."""

from __future__ import annotations

import importlib
import os
import time
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

#: Packages that a machine with a GPU and no network may lack: test modules that import them are skipped there.
OPTIONAL = frozenset({
    "accelerate", "cast_value_rs", "cramjam", "dask", "distributed", "fsspec", "grain", "h5py", "hypothesis",
    "icechunk", "imagecodecs", "jax", "jsonschema", "kerchunk", "ml_dtypes", "msgpack", "nbclient", "nbformat",
    "obstore", "pcodec", "pytorch_lightning", "scipy", "tensorstore", "torch", "upath", "xarray", "zarr", "zarrs",
    "zfpy",
})  # fmt: skip


def _synchronize() -> None:
    runtime: Any = importlib.import_module("cupy.cuda.runtime")
    runtime.deviceSynchronize()


class GpuSession:
    """A plugin that skips the remaining tests after a time limit, or after CUDA's context is lost.

    Parameters
    ----------
    seconds
        Time from now after which no test starts.
    synchronize
        Function that raises if the context is lost.
    """

    def __init__(self, seconds: float, synchronize: Callable[[], None] = _synchronize) -> None:
        self._deadline = time.monotonic() + seconds
        self._synchronize = synchronize
        self._worked = False
        self._lost = ""

    @classmethod
    def of_environment(cls) -> GpuSession:
        """Return a session that ends after ``GZARR_TEST_SECONDS``."""
        return cls(float(os.environ.get("GZARR_TEST_SECONDS", "inf")))

    def _error(self) -> str:
        try:
            self._synchronize()
        except Exception as error:  # any error of the driver, of CuPy or of a missing package
            return str(error)
        return ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Skip a test that can't, or must not, run any more."""
        if time.monotonic() > self._deadline:
            pytest.skip("out of time")
        if self._lost:
            pytest.skip(self._lost)
        # A context can only be lost if there was one. Otherwise each test reports what is missing.
        self._worked = self._worked or not self._error()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Check whether a failed test has lost the context."""
        if report.failed and self._worked and not self._lost and (error := self._error()):
            self._lost = f"CUDA's context is lost since {report.nodeid}: {error}"
