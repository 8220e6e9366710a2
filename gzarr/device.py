"""Which device an array is read on: an argument of a call, never a switch of the process."""

from __future__ import annotations

import re

from .errors import ArgumentError, DeviceError

_CUDA = re.compile(r"cuda(:(0|[1-9][0-9]{0,3}))?")


def resolve_device(device: str) -> str:
    """Return the device that ``device`` means on this machine.

    Parameters
    ----------
    device
        ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:N"``. ``"auto"`` is the CPU in this release.

    Returns
    -------
    ``"cpu"``.

    Raises
    ------
    ArgumentError
        If ``device`` is none of these.
    DeviceError
        If it is a CUDA device: the CUDA engine is not part of this release.
    """
    if isinstance(device, str):
        if device in ("auto", "cpu"):
            return "cpu"
        if _CUDA.fullmatch(device):
            raise DeviceError(
                f'device={device!r}: the CUDA engine is not part of this release; use device="cpu" (or "auto")'
            )
    raise ArgumentError(f'device must be "auto", "cpu", "cuda" or "cuda:N", not {device!r}')
