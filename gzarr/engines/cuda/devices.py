"""The CUDA devices of this machine, and whether they can be used; does not initialise CUDA."""

from __future__ import annotations

import importlib.util
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gzarr_kernels.device import ptx

from ...errors import DeviceError
from ...guarded import ForkSafeLock
from ...installing import COMMANDS
from . import driver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .device_protocol import Device

#: Module and name of each package that has to be installed.
_PARTS = (("cupy", "CuPy"), ("nvidia.libnvcomp", "nvCOMP"))

# A fork waits for a device that is being created: the child would inherit half of it.
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
        If there is no such device, a package that it needs is missing, or CUDA was in use before this process was
        forked.
    """
    ordinal = int(name.removeprefix("cuda:"))
    _refuse_lost()
    with _lock.lock:
        device = _devices.get(ordinal)
        if device is None:
            if _make is None:
                _refuse_absent(ordinal)
                device = _made(ordinal)
            else:
                device = _make(ordinal)
            # The handler of a signal may have come in between and made one, which is in use.
            device = _devices.setdefault(ordinal, device)
        return device


def _made(ordinal: int) -> Device:
    from .cupy_device import CupyDevice

    try:
        return CupyDevice(ordinal)
    except Exception as error:  # CuPy, or a library it loads
        raise _cupy_error(error) from error


def available() -> bool:
    """Return whether there is a usable device with all packages it needs; looks once per process.

    Warns, once, if a fork is the only obstacle.
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
    """Return whether no device can be used because CUDA was initialised before this process was forked."""
    return _make is None and driver.is_lost()


def warn_of_loss() -> None:
    """Warn, once per process, that ``device="auto"`` means the CPU, although there is a device."""
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(f'device="auto" is the CPU here: {driver.LOST}', RuntimeWarning, stacklevel=3)


def current() -> str:
    """Return CuPy's current device, ``"cuda:N"``; does not initialise CUDA.

    Raises
    ------
    DeviceError
        If a package is missing, with how to install it, or if CUDA was in use before this process was forked.
    """
    missing = missing_parts()
    if missing:
        raise DeviceError(f'no CUDA device can be used: {"; ".join(missing)}; or use device="cpu"')
    _refuse_lost()
    if not driver.is_initialised():
        # Choosing another device would have initialised CUDA.
        return "cuda:0"
    try:
        import cupy

        return f"cuda:{cupy.cuda.Device().id}"
    except Exception as error:  # CuPy, or a library it loads
        raise _cupy_error(error) from error


def missing_parts() -> list[str]:
    """Return what this machine lacks to use a GPU, each with how to get it; does not initialise CUDA."""
    global _complete
    # To look again takes longer than to hand a batch over.
    if _make is not None or _complete:
        return []
    found = [
        f"{title} is not installed ({COMMANDS['cuda13']}, or 'gzarr[cuda12]' for a driver of CUDA 12)"
        for module, title in _PARTS
        if not _has(module)
    ]
    # Without CuPy, nothing needs to be read to know that there is no device.
    if not found and not ptx.programs() and not _has("numba_cuda"):
        found.append(
            "this installation has no compiled device kernels, and numba-cuda, which would compile them, is not "
            f"installed ({COMMANDS['numba-cuda-cu13']}, or '[cu12]' for a driver of CUDA 12)"
        )
    if not found and not _visible_devices().count:
        found.append("no NVIDIA driver, or no GPU that it sees (check with nvidia-smi)")
    if not found:
        _complete = True
    return found


def _cupy_error(error: Exception) -> DeviceError:
    return DeviceError(f'CuPy cannot be used: {error}; run "gzarr doctor" for details, or use device="cpu"')


def _has(module: str) -> bool:
    names = module.split(".")
    # To look for a module imports its package. Each call would begin to import one that is not there, and a child that
    # is forked meanwhile would wait for that import for ever.
    packages = (".".join(names[:count]) for count in range(1, len(names) + 1))
    try:
        return all(importlib.util.find_spec(name) is not None for name in packages)
    except ModuleNotFoundError:
        return False


def _visible_devices() -> driver.Visible:
    """Return how many devices there are; looks once per process."""
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
        raise DeviceError(f"there is no device 'cuda:{ordinal}': CUDA sees {have.count}, numbered from 0")


@contextmanager
def use(factory: Callable[[int], Device]) -> Iterator[None]:
    """Create devices with another function inside a ``with`` statement; for tests only."""
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
