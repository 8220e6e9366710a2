"""The CUDA devices of this machine."""

from __future__ import annotations

import importlib.util
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ...errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .device import Device

#: Module and name of what has to be installed.
_PARTS = (("cupy", "CuPy"), ("numba_cuda", "numba-cuda"), ("nvidia.libnvcomp", "nvCOMP"))

_lock = threading.Lock()
_devices: dict[int, Device] = {}
_count: int | None = None
_make: Callable[[int], Device] | None = None


def get_device(name: str) -> Device:
    """Return a device.

    Parameters
    ----------
    name
        ``"cuda:N"``.

    Raises
    ------
    DeviceError
        If there is no such device, or a part that it needs is missing.
    """
    ordinal = int(name.removeprefix("cuda:"))
    with _lock:
        if ordinal not in _devices:
            if _make is None:
                from .cupy_device import CupyDevice

                _devices[ordinal] = CupyDevice(ordinal)
            else:
                _devices[ordinal] = _make(ordinal)
        return _devices[ordinal]


def available() -> bool:
    """Return whether there is a device, and all that it needs; looks once a process."""
    global _count
    if _count is None:
        _count = 0 if missing_parts() else _device_count()
    return _count > 0


def current() -> str:
    """Return the device that CuPy works on, ``"cuda:N"``.

    Raises
    ------
    DeviceError
        Saying which part is missing, and how to get it.
    """
    if _make is not None:
        return "cuda:0"
    missing = missing_parts()
    if missing:
        raise DeviceError(f'no CUDA device can be used: {"; ".join(missing)}; or use device="cpu"')
    try:
        import cupy

        return f"cuda:{cupy.cuda.Device().id}"
    except Exception as error:  # of CuPy, and of what it loads
        raise DeviceError(f'CuPy cannot be used: {error}; "gzarr doctor" tells more; or use device="cpu"') from error


def missing_parts() -> list[str]:
    """Return what this machine lacks to read to a GPU, each with how to get it."""
    if _make is not None:
        return []
    found = [
        f"{title} is not installed (pip install 'gzarr[cuda13]', or 'gzarr[cuda12]' for a driver of CUDA 12)"
        for module, title in _PARTS
        if not _has(module)
    ]
    if not found and not _device_count():
        found.append("no NVIDIA driver, or no GPU that it sees (nvidia-smi tells)")
    return found


def _has(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _device_count() -> int:
    import ctypes

    # Importing CuPy takes most of a second; where there is no driver, that is for nothing.
    try:
        driver: Any = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int()
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value


@contextmanager
def use(factory: Callable[[int], Device]) -> Iterator[None]:
    """Have devices made by another function for a while: tests do that, nothing else."""
    global _make, _count
    before = _make, _count
    with _lock:
        _devices.clear()
        _make, _count = factory, 1
    try:
        yield
    finally:
        with _lock:
            _devices.clear()
            _make, _count = before
