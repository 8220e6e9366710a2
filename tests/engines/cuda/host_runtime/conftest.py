"""The device in host memory, with a few kernels in C: nothing of gzarr."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support import cuda_on_host
from support.cuda_on_host import build

if TYPE_CHECKING:
    from collections.abc import Iterator

_HERE = Path(__file__).parent
_IMAGE = b"fill double_into past_the_end\0"


@pytest.fixture(scope="session")
def _installed() -> Iterator[cuda_on_host.HostCuda]:
    reason = cuda_on_host.why_not()
    if reason:
        pytest.skip(reason)
    cuda = cuda_on_host.install()
    yield cuda
    cuda.reset(visible=0)


@pytest.fixture(scope="session")
def _resolve(_installed: cuda_on_host.HostCuda) -> Any:
    api = Path(cuda_on_host.__file__).with_name("api.h")
    return ctypes.CDLL(str(build.built((_HERE / "kernels.c",), (api,), "kernels.so"))).resolve


@pytest.fixture
def cuda(_installed: cuda_on_host.HostCuda, _resolve: Any) -> Iterator[cuda_on_host.HostCuda]:
    """The runtime, as if just started; nothing may be left behind."""
    import cupy

    _installed.reset()
    _installed.set_resolver(_resolve)
    before = _installed.live()
    yield _installed
    _installed.clear_faults()
    _installed.drain(drop=True)
    _installed.reset()
    cupy.cuda.Device(0).use()
    for device in (0, 1):
        with cupy.cuda.Device(device):
            cupy.get_default_memory_pool().free_all_blocks()
    cupy.get_default_pinned_memory_pool().free_all_blocks()
    left = _installed.live() - before
    _installed.reset(visible=0)
    assert not left


class Kernels:
    """The kernels, loaded for a device."""

    def __init__(self, device: int = 0) -> None:
        import cupy
        from cupy.cuda import driver

        with cupy.cuda.Device(device):
            cupy.cuda.runtime.memGetInfo()
            module = driver.moduleLoadData(_IMAGE)
            self._functions = {
                name.decode(): driver.moduleGetFunction(module, name.decode()) for name in _IMAGE[:-1].split()
            }

    def launch(self, name: str, stream: Any, *arguments: int, block: int = 1, grid: int = 1) -> None:
        from cupy.cuda import driver

        n = len(arguments)
        passed = (ctypes.c_uint64 * (2 * n))(*arguments)
        first = ctypes.addressof(passed)
        passed[n:] = list(range(first, first + 8 * n, 8))
        driver.launchKernel(self._functions[name], grid, 1, 1, block, 1, 1, 0, stream.ptr, first + 8 * n, 0)
        # The launch has copied them.
        ctypes.memset(first, 0xFF, 16 * n)

    def fill(self, array: Any, value: int, stream: Any) -> None:
        self.launch("fill", stream, array.data.ptr, array.nbytes, value)

    def double_into(self, target: Any, source: Any, stream: Any) -> None:
        self.launch("double_into", stream, target.data.ptr, source.data.ptr, source.nbytes)


@pytest.fixture
def kernels(cuda: cuda_on_host.HostCuda) -> Kernels:
    return Kernels()


class Host:
    """Page-locked memory as an array."""

    def __init__(self, nbytes: int) -> None:
        from cupy.cuda import PinnedMemory, PinnedMemoryPointer

        self.array = np.frombuffer(PinnedMemoryPointer(PinnedMemory(nbytes), 0), np.uint8, nbytes)


@pytest.fixture
def pinned(cuda: cuda_on_host.HostCuda) -> Any:
    """Make page-locked memory of a size."""
    return lambda nbytes: Host(nbytes).array
