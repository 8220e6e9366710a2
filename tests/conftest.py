"""What all tests share: compiled kernels, loaded before any test's own time starts."""

from __future__ import annotations

import os

# The CUDA kernels run in Numba's simulator; Numba looks when it is imported.
os.environ["NUMBA_ENABLE_CUDASIM"] = "1"

import pytest

from gzarr.engines import kernels


@pytest.fixture(scope="session", autouse=True)
def _kernels_are_compiled() -> None:
    kernels.load()
