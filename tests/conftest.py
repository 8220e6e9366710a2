"""What all tests share: which device CUDA means, and compiled kernels, loaded before any test's own time starts.

Numba decides when it is imported whether CUDA kernels run on a GPU or in its simulator, so one process of tests has one
or the other: the simulator, unless ``GZARR_TEST_GPU=1``. A GPU that happens to be there changes nothing by itself.
``GZARR_TEST_GPU=1 pytest -m gpu`` runs on it what is marked so.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

ON_GPU = os.environ.get("GZARR_TEST_GPU", "0") not in ("", "0")
# Before anything imports Numba; workers of pytest-xdist inherit it.
os.environ["NUMBA_ENABLE_CUDASIM"] = "0" if ON_GPU else "1"

import devices  # noqa: E402

from gzarr.engines import kernels  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator


def pytest_configure(config: pytest.Config) -> None:
    if config.option.markexpr.strip() == "gpu" and not ON_GPU:
        raise pytest.UsageError("tests on a GPU need GZARR_TEST_GPU=1: without it, CUDA is simulated")


@pytest.fixture(scope="session", autouse=True)
def _kernels_are_compiled() -> None:
    kernels.load()


@pytest.fixture(params=devices.KINDS)
def device(request: pytest.FixtureRequest) -> Iterator[devices.TestedDevice]:
    """Each device that a read can be on."""
    with devices.use(request.param) as tested:
        yield tested


@pytest.fixture(scope="module", params=["simulator", "ir"])
def launcher(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each way to run a device kernel without a GPU: in the simulator, and as it is compiled for one."""
    import device_arena

    with device_arena.launched_by(request.param):
        yield
