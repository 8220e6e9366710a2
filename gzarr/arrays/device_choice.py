"""Which device an array is read on: an argument of a call, never a switch of the process."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..engines.cuda import devices
from ..errors import ArgumentError

if TYPE_CHECKING:
    import numpy as np

_CUDA = re.compile(r"cuda(:(0|[1-9][0-9]{0,3}))?")
#: Elements that CuPy has, by kind and bytes.
_ON_DEVICE = {
    "b": (1,),
    "i": (1, 2, 4, 8),
    "u": (1, 2, 4, 8),
    "f": (2, 4, 8),
    "c": (8, 16),
}


def resolve_device(device: str) -> str:
    """Return the device that ``device`` means on this machine.

    Parameters
    ----------
    device
        ``"auto"`` (CUDA where it can be used, else the CPU), ``"cpu"``, ``"cuda"`` (CuPy's current device) or
        ``"cuda:N"``.

    Returns
    -------
    ``"cpu"`` or ``"cuda:N"``.

    Raises
    ------
    ArgumentError
        If ``device`` is none of these.
    DeviceError
        If it is a CUDA device that cannot be used; says which part is missing.
    """
    if isinstance(device, str):
        if device == "cpu":
            return "cpu"
        if device == "auto":
            return devices.current() if devices.available() else "cpu"
        if _CUDA.fullmatch(device):
            current = devices.current()
            return current if device == "cuda" else devices.get_device(device).name
    raise ArgumentError(f'device must be "auto", "cpu", "cuda" or "cuda:N", not {device!r}')


def is_on_device(dtype: np.dtype[Any]) -> bool:
    """Return whether CuPy has elements of a type."""
    # CuPy has ml_dtypes' bfloat16, but none of its smaller types.
    if dtype.name == "bfloat16":
        return dtype.isnative
    return dtype.itemsize in _ON_DEVICE.get(dtype.kind, ()) and dtype.isnative
