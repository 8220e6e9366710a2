"""Translation of CuPy's errors into gzarr's."""

from __future__ import annotations

from typing import Any, Final

from ...errors import DeviceError
from ...installing import COMMANDS
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

    __slots__ = ("_absent", "_device", "_failures", "_no_compiler", "_no_room", "lost")

    def __init__(self, device: str) -> None:
        import cupy
        from cuda.pathfinder import DynamicLibNotFoundError

        self._device = device
        self._no_room = cupy.cuda.memory.OutOfMemoryError
        self._failures = cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError
        # CuPy finds NVRTC when it has a kernel to compile, not before.
        self._absent = DynamicLibNotFoundError
        self._no_compiler = DynamicLibNotFoundError, cupy.cuda.nvrtc.NVRTCError, cupy.cuda.compiler.CompileException
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
        if isinstance(error, self._no_compiler):
            return no_compiler(error)
        if not isinstance(error, self._failures):
            return None
        if self.lost is None and error.status in LASTING:
            self.lost = Loss(self._device, str(error))
        return DeviceError(f"CUDA failed: {error}") if self.lost is None else self.lost.error()

    def is_lack_of_compiler(self, error: BaseException | None) -> bool:
        """Return whether NVRTC was not found, and no other library, such as one that a caller's function needs."""
        return isinstance(error, self._absent) and "nvrtc" in str(error)


def no_compiler(error: BaseException) -> DeviceError:
    """Return gzarr's error for a kernel that CuPy cannot compile."""
    import cupy

    command = COMMANDS.get(f"cuda{cupy.cuda.runtime.runtimeGetVersion() // 1000}", COMMANDS["cuda13"])
    reason = str(error).strip().partition("\n")[0]
    return DeviceError(
        f"CuPy cannot compile a kernel, as it does to copy from and to views and to convert elements: {reason}; "
        f"{command} installs the compiler (NVRTC) and CUDA's headers"
    )
