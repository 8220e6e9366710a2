"""The CUDA devices of this machine: which there are, and whether they can be used, without initialising CUDA."""

from __future__ import annotations

import importlib.util
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...errors import DeviceError
from ..forks import ForkSafeLock
from . import driver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .device_protocol import Device

#: Module and name of what has to be installed.
_PARTS = (("cupy", "CuPy"), ("numba_cuda", "numba-cuda"), ("nvidia.libnvcomp", "nvCOMP"))

# A fork waits for a device being made: the child would inherit half of it.
_lock = ForkSafeLock()
_devices: dict[int, Device] = {}
_complete: bool | None = None
_visible: driver.Visible | None = None
_make: Callable[[int], Device] | None = None
_warned = False


def get_device(name: str) -> Device:
    """Return a device. CUDA is initialised when it is first used, not before.

    Parameters
    ----------
    name
        ``"cuda:N"``.

    Raises
    ------
    DeviceError
        If there is no such device, a part that it needs is missing, or CUDA was in use before this process was forked.
    """
    ordinal = int(name.removeprefix("cuda:"))
    _refuse_lost()
    with _lock.lock:
        if ordinal not in _devices:
            if _make is None:
                _refuse_absent(ordinal)
                _devices[ordinal] = _made(ordinal)
            else:
                _devices[ordinal] = _make(ordinal)
        return _devices[ordinal]


def _made(ordinal: int) -> Device:
    from .cupy_device import CupyDevice

    try:
        return CupyDevice(ordinal)
    except Exception as error:  # of CuPy, and of what it loads
        raise DeviceError(f'CuPy cannot be used: {error}; "gzarr doctor" tells more; or use device="cpu"') from error


def available() -> bool:
    """Return whether there is a device, and all that it needs; looks once a process.

    Says so, once, if only a fork stands against it.
    """
    global _complete
    if _make is not None:
        return True
    if _complete is None:
        _complete = not missing_parts()
    if not _complete:
        return False
    if is_lost():
        warn_of_loss()
        return False
    return True


def is_lost() -> bool:
    """Return whether there are devices, but none that can be used, since this process was forked after CUDA was."""
    return _make is None and driver.is_lost()


def warn_of_loss() -> None:
    """Warn, once a process, that what ``device="auto"`` has put on a device, or would, is read on the CPU."""
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(f'device="auto" is the CPU here: {driver.LOST}', RuntimeWarning, stacklevel=3)


def current() -> str:
    """Return the device that CuPy works on, ``"cuda:N"``; does not initialise CUDA.

    Raises
    ------
    DeviceError
        Saying which part is missing, and how to get it; or that CUDA was in use before this process was forked.
    """
    if _make is not None:
        return "cuda:0"
    missing = missing_parts()
    if missing:
        raise DeviceError(f'no CUDA device can be used: {"; ".join(missing)}; or use device="cpu"')
    _refuse_lost()
    if not driver.is_initialised():
        # Whoever chooses another device initialises CUDA.
        return "cuda:0"
    try:
        import cupy

        return f"cuda:{cupy.cuda.Device().id}"
    except Exception as error:  # of CuPy, and of what it loads
        raise DeviceError(f'CuPy cannot be used: {error}; "gzarr doctor" tells more; or use device="cpu"') from error


def missing_parts() -> list[str]:
    """Return what this machine lacks to read to a GPU, each with how to get it; does not initialise CUDA."""
    if _make is not None:
        return []
    found = [
        f"{title} is not installed (pip install 'gzarr[cuda13]', or 'gzarr[cuda12]' for a driver of CUDA 12)"
        for module, title in _PARTS
        if not _has(module)
    ]
    if not found and not _visible_devices().count:
        found.append("no NVIDIA driver, or no GPU that it sees (nvidia-smi tells)")
    return found


def _has(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _visible_devices() -> driver.Visible:
    """Return how many devices there are; looks once a process."""
    global _visible
    if _visible is None:
        _visible = driver.visible()
    return _visible


def _refuse_lost() -> None:
    if is_lost():
        raise DeviceError(f"no CUDA device can be used: {driver.LOST}")


def _refuse_absent(ordinal: int) -> None:
    have = _visible_devices()
    if have.exact and ordinal >= have.count:
        raise DeviceError(f"there is no device 'cuda:{ordinal}': CUDA sees {have.count}, counted from 0")


@contextmanager
def use(factory: Callable[[int], Device]) -> Iterator[None]:
    """Have devices made by another function for a while: tests do that, nothing else."""
    global _make
    before = _make
    with _lock.lock:
        _devices.clear()
        _make = factory
    try:
        yield
    finally:
        with _lock.lock:
            _devices.clear()
            _make = before
