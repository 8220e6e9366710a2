"""Choice of the device that an array is read to: an argument of a call, never a process-wide setting."""

from __future__ import annotations

import re

from ..documents.json import quote
from ..engines.cuda import devices
from ..errors import ArgumentError

_CUDA = re.compile(r"cuda(:(0|[1-9][0-9]{0,3}))?")


def resolve_device(device: str) -> str:
    """Resolve ``device`` on this machine.

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
        If the CUDA device cannot be used. The message says which part is missing.
    """
    if isinstance(device, str):
        if device == "cpu":
            return "cpu"
        if device == "auto":
            return devices.current() if devices.available() else "cpu"
        if _CUDA.fullmatch(device):
            current = devices.current()
            return current if device == "cuda" else devices.get_device(device).name
    raise ArgumentError(f'device must be "auto", "cpu", "cuda" or "cuda:N", not {quote(device)}')
