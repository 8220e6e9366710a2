"""CuPy's errors, as ours."""

from __future__ import annotations

from typing import Any, Final

from ...errors import DeviceError
from .loss import LASTING, Loss

#: ``cudaErrorMemoryAllocation`` and ``CUDA_ERROR_OUT_OF_MEMORY``.
OUT_OF_MEMORY: Final = 2


class CupyErrors:
    """A ``with`` statement for what calls CuPy: its errors become ours, and lasting ones are remembered.

    Any number of threads may use it, also within each other.

    Parameters
    ----------
    device
        Name of the device.

    Attributes
    ----------
    lost
        Set by the first error after which CUDA does nothing more on the device. From then on the statement raises
        before CUDA is called.
    """

    __slots__ = ("_device", "_failures", "_no_room", "lost")

    def __init__(self, device: str) -> None:
        import cupy

        self._device = device
        self._no_room = cupy.cuda.memory.OutOfMemoryError
        self._failures = cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError
        self.lost: Loss | None = None

    def __enter__(self) -> None:
        if self.lost is not None:
            raise self.lost.error()

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None:
            return
        if isinstance(error, self._no_room):
            raise MemoryError(f"the device has no room: {error}") from error
        # Of page-locked memory, streams, events and machine code, which are not of CuPy's pool.
        if isinstance(error, self._failures) and error.status == OUT_OF_MEMORY:
            raise MemoryError(f"CUDA has no room: {error}") from error
        ours = self.failure(error)
        if ours is not None:
            raise ours from error

    def failure(self, error: Any) -> DeviceError | None:
        """Return our error for one of CUDA's, and remember it if it is for good; None for any other."""
        if not isinstance(error, self._failures):
            return None
        if self.lost is None and error.status in LASTING:
            self.lost = Loss(self._device, str(error))
        return DeviceError(f"CUDA failed: {error}") if self.lost is None else self.lost.error()
