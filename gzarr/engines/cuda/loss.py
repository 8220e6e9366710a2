"""A device that this process has lost: CUDA errors after which nothing works any more, and the message for users.

If a kernel does something illegal, as a decoder may on corrupt bytes, CUDA ends the process's use of the device: every
later call returns the same error. It is then impossible to tell which chunk was at fault, only which ones were being
decoded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from ...errors import DeviceError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    IntArray = npt.NDArray[np.int64]

#: Codes of ``cudaError_t``, identical in the driver's ``CUresult``, after which the process has to be restarted
#: according to CUDA 13's ``driver_types.h`` (contained, illegal address, launch timeout, assert, hardware stack,
#: illegal instruction, misaligned address, invalid address space, invalid pc, launch failure, tensor memory leak, MPS
#: client terminated, external device); and as lasting in practice: failures of memory (214) and NVLink (220), and
#: "unknown".
LASTING: Final = frozenset({214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911, 999})
#: A message names at most this many chunks of a read or write, and at most this many reads and writes.
MAX_NAMED_CHUNKS: Final = 12
MAX_NAMED_OPERATIONS: Final = 4


class Loss:
    """Why a device cannot be used any more, and what it was doing.

    Parameters
    ----------
    device
        Name of the device.
    cause
        CUDA's error message.
    """

    def __init__(self, device: str, cause: str) -> None:
        self._device = device
        self._cause = cause
        self._doing: list[str] = []

    def note(self, what: str, chunks: IntArray) -> None:
        """Remember what the device was doing with some chunks.

        Parameters
        ----------
        what
            For example ``"reading array '/a'"``.
        chunks
            int64 ``(n, ndim)``, chunk coordinates in the grid; nothing is noted if ``n`` is 0.
        """
        if not len(chunks) or len(self._doing) == MAX_NAMED_OPERATIONS:
            return
        named = ", ".join(str(tuple(chunk)) for chunk in chunks[:MAX_NAMED_CHUNKS].tolist())
        more = f" and {len(chunks) - MAX_NAMED_CHUNKS} more" if len(chunks) > MAX_NAMED_CHUNKS else ""
        self._doing.append(f"{what}, chunk{'s' if len(chunks) > 1 else ''} {named}{more}")

    def error(self) -> DeviceError:
        """Return the error that every use of the device raises from now on."""
        doing = f" while it was {'; '.join(self._doing)}" if self._doing else ""
        return DeviceError(
            f"{self._device} was lost{doing}: {self._cause}. No CUDA call on it succeeds in this process any more: "
            'restart the process; device="cpu" still works. If a chunk is damaged, "gzarr verify PATH" finds it, and '
            'reading with verify="cpu" or decode="cpu" raises an error that names it instead'
        )


class MayBeLost(Protocol):
    """A device that this process may have lost."""

    @property
    def lost(self) -> Loss | None:
        """Why the device cannot be used any more, or None if it can."""


def explain(device: MayBeLost, error: BaseException, what: str, chunks: IntArray) -> None:
    """Replace the error of a lost device by one that names the chunks that were on it.

    Returns if the device is not lost, or if ``error`` is not a DeviceError.

    Parameters
    ----------
    device
        The device.
    error
        Error that is being raised.
    what, chunks
        As for :meth:`Loss.note`.
    """
    lost = device.lost
    if lost is None:
        return
    lost.note(what, chunks)
    if isinstance(error, DeviceError):
        raise lost.error() from error.__cause__ or error
