"""A device that this process has lost: errors of CUDA after which nothing works any more, and what users are told.

Where a kernel does what it must not, as a decoder may on corrupt bytes, CUDA ends the process's use of the device:
every call returns the same error from then on. Nobody can tell any more which chunk it was, only which ones were being
decoded then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from ...errors import DeviceError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    IntArray = npt.NDArray[np.int64]

#: Codes of ``cudaError_t``, and the same ones of the driver's ``CUresult``, of which CUDA 13's ``driver_types.h`` says
#: that the process has to be started anew (contained, illegal address, launch timeout, assert, hardware stack, illegal
#: instruction, misaligned address, invalid address space, invalid pc, launch failure, tensor memory leak, MPS client
#: terminated, external device); and what is as good as that: failures of memory (214) and NVLink (220), and "unknown".
LASTING: Final = frozenset({214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911, 999})
#: Chunks that a message names of a read or write, and reads and writes that it names, at most.
MOST_CHUNKS: Final = 12
MOST_NODES: Final = 4


class Loss:
    """Why a device cannot be used any more, and what it was doing.

    Parameters
    ----------
    device
        Its name.
    cause
        CUDA's error, in its words.
    """

    def __init__(self, device: str, cause: str) -> None:
        self._device = device
        self._cause = cause
        self._doing: list[str] = []

    def note(self, what: str, chunks: IntArray) -> None:
        """Remember what was done with some chunks on the device then.

        Parameters
        ----------
        what
            For example ``"reading array '/a'"``.
        chunks
            int64 ``(n, ndim)``, their coordinates in the grid; none if ``n`` is 0.
        """
        if not len(chunks) or len(self._doing) == MOST_NODES:
            return
        named = ", ".join(str(tuple(chunk)) for chunk in chunks[:MOST_CHUNKS].tolist())
        more = f" and {len(chunks) - MOST_CHUNKS} more" if len(chunks) > MOST_CHUNKS else ""
        self._doing.append(f"{what}, chunk{'s' if len(chunks) > 1 else ''} {named}{more}")

    def error(self) -> DeviceError:
        """Return what every use of the device raises from now on."""
        doing = f" while it was {'; '.join(self._doing)}" if self._doing else ""
        return DeviceError(
            f"{self._device} was lost{doing}: {self._cause}. No CUDA call on it succeeds in this process any more: "
            'restart the process; device="cpu" still reads. If a chunk is damaged, "gzarr verify PATH" finds it, and '
            'reading with verify="cpu" or decode="cpu" raises an error that names it instead'
        )


class MayBeLost(Protocol):
    """What a device says of its loss."""

    @property
    def lost(self) -> Loss | None:
        """Why the device cannot be used any more, or None if it can."""


def explain(device: MayBeLost, error: BaseException, what: str, chunks: IntArray) -> None:
    """Raise, in place of a device's error, one that names the chunks that were on it when it was lost.

    Parameters
    ----------
    device
        Does nothing if it is not lost.
    error
        On its way to the caller; any but a DeviceError stays what it is.
    what, chunks
        As for :meth:`Loss.note`.
    """
    lost = device.lost
    if lost is None:
        return
    lost.note(what, chunks)
    if isinstance(error, DeviceError):
        raise lost.error() from error.__cause__ or error
