"""Translation of CuPy's errors into gzarr's."""

from __future__ import annotations

from typing import Any, Final

from ...errors import DeviceError
from .loss import LASTING, Loss

#: ``cudaErrorMemoryAllocation`` and ``CUDA_ERROR_OUT_OF_MEMORY``.
OUT_OF_MEMORY: Final = 2


class CupyErrors:
    """Context manager around calls of CuPy: translates its errors, and remembers those that end the use of the device.

    It may be nested, and used by any number of threads.

    Parameters
    ----------
    device
        Name of the device.

    Attributes
    ----------
    lost
        Set by the first error after which CUDA does nothing more on the device. From then on, entering raises, and
        CUDA is not called.
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
            raise MemoryError(f"the device is out of memory: {error}") from error
        # From page-locked memory, streams, events and machine code, which do not come from CuPy's pool.
        if isinstance(error, self._failures) and error.status == OUT_OF_MEMORY:
            raise MemoryError(f"CUDA is out of memory: {error}") from error
        ours = self.failure(error)
        if ours is not None:
            raise ours from error

    def failure(self, error: Any) -> DeviceError | None:
        """Return gzarr's error for one of CUDA's, remembered if it is lasting; None for any other error."""
        if not isinstance(error, self._failures):
            return None
        if self.lost is None and error.status in LASTING:
            self.lost = Loss(self._device, str(error))
        return DeviceError(f"CUDA failed: {error}") if self.lost is None else self.lost.error()
