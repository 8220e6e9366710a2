"""What all tests share: compiled kernels, loaded before any test's own time starts."""

from __future__ import annotations

import pytest

from gzarr.engines import kernels


@pytest.fixture(scope="session", autouse=True)
def _kernels_are_compiled() -> None:
    kernels.load()
