"""Limits for a test run on a GPU: it ends in time, and a lost context is blamed on the test that lost it."""

from __future__ import annotations

import importlib
import os
import time
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

#: What a machine with a GPU and no network may lack: modules of tests that import it are skipped there.
OPTIONAL = frozenset({
    "cast_value_rs", "cramjam", "dask", "hypothesis", "imagecodecs", "ml_dtypes", "msgpack", "pcodec", "tensorstore",
    "torch", "zarr", "zarrs", "zfpy",
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
        except Exception as error:  # whatever the driver, CuPy or a package that is missing says
            return str(error)
        return ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Skip a test that can't, or must not, run any more."""
        if time.monotonic() > self._deadline:
            pytest.skip("out of time")
        if self._lost:
            pytest.skip(self._lost)
        # Where no test ever had a context, none is lost: each test says what is missing.
        self._worked = self._worked or not self._error()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Check whether a failed test has lost the context."""
        if report.failed and self._worked and not self._lost and (error := self._error()):
            self._lost = f"CUDA's context is lost since {report.nodeid}: {error}"
