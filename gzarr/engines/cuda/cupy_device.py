"""A CUDA device, by CuPy (memory, streams, copies, launches), numba-cuda (kernels) and nvCOMP (batches of frames)."""

from __future__ import annotations

import ctypes
import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ...errors import ArgumentError, DeviceError
from . import kvikio_files, machine_code, nvcomp, nvcomp_compress

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from .device import Compressor, Decompressor, DirectFiles

#: ``kDLCUDA``.
_DLPACK_CUDA: Final = 2


@contextmanager
def _our_errors() -> Iterator[None]:
    import cupy

    try:
        yield
    except cupy.cuda.memory.OutOfMemoryError as error:
        raise MemoryError(f"the device has no room: {error}") from error
    except (cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError) as error:
        raise DeviceError(f"CUDA failed: {error}") from error


class _StreamAt:
    """A stream by its address, for CuPy."""

    def __init__(self, address: int) -> None:
        self._address = address

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._address


class CupyDevice:
    """One CUDA device; see :class:`gzarr.engines.cuda.device.Device` for its methods.

    Parameters
    ----------
    ordinal
        Which.

    Raises
    ------
    DeviceError
        If there is no such device.
    """

    def __init__(self, ordinal: int) -> None:
        import cupy

        with _our_errors():
            have = cupy.cuda.runtime.getDeviceCount()
            if ordinal >= have:
                raise DeviceError(f"there is no device 'cuda:{ordinal}': CUDA sees {have}, counted from 0")
        self.ordinal = ordinal
        self.name = f"cuda:{ordinal}"
        self._pid = os.getpid()
        # By kernel and bytes of a word.
        self._functions: dict[tuple[Any, int], int] = {}
        self._loading = threading.Lock()
        self._decompressors: dict[str, Decompressor] = {}
        self._compressors: dict[str, Compressor] = {}

    def __enter__(self) -> CupyDevice:
        import cupy

        if os.getpid() != self._pid:
            raise DeviceError(
                'CUDA cannot be used in a process that was forked after its first use; start processes by "spawn"'
            )
        with _our_errors():
            cupy.cuda.Device(self.ordinal).__enter__()
            # CuPy leaves a new thread as it is if it wants the first device: without a context. CUDA's runtime makes
            # one when it needs it; kvikio, which calls the driver, would find none.
            cupy.cuda.runtime.setDevice(self.ordinal)
        return self

    def __exit__(self, *exc: object) -> None:
        import cupy

        cupy.cuda.Device(self.ordinal).__exit__(*exc)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any], stream: Any) -> Any:
        """Return a new array of CuPy's current allocator."""
        import cupy

        with _our_errors(), stream:
            return cupy.empty(shape, dtype)

    def is_array(self, value: Any) -> bool:
        """Return whether a value is a CuPy array of this device."""
        import cupy

        return isinstance(value, cupy.ndarray) and value.device.id == self.ordinal

    def as_array(self, value: Any, stream: Any) -> Any:
        """Return a CuPy array of the same memory."""
        import cupy

        if isinstance(value, cupy.ndarray):
            return value if self.is_array(value) else None
        with _our_errors(), stream:
            if hasattr(value, "__dlpack_device__"):
                kind, ordinal = value.__dlpack_device__()
                return cupy.from_dlpack(value) if (kind, ordinal) == (_DLPACK_CUDA, self.ordinal) else None
            if hasattr(value, "__cuda_array_interface__"):
                found = cupy.asarray(value)
                return found if self.is_array(found) else None
        return None

    def converted(self, array: Any, dtype: np.dtype[Any], stream: Any) -> Any:
        """Return a new array."""
        with _our_errors(), stream:
            return array.astype(dtype)

    def broadcast(self, array: Any, shape: tuple[int, ...]) -> Any:
        """Return a view with strides of 0."""
        import cupy

        return cupy.broadcast_to(array, shape)

    def to_host(self, array: Any, stream: Any) -> npt.NDArray[Any]:
        """Return a copy."""
        # What is not contiguous is made so on the current stream.
        with _our_errors(), stream:
            host: npt.NDArray[Any] = array.get(stream=stream)
        return host

    def allocate(self, nbytes: int, stream: Any) -> Any:
        """Return uint8 memory of CuPy's current allocator."""
        return self.empty((nbytes,), np.dtype(np.uint8), stream)

    def free_cached(self, stream: Any) -> None:
        """Free the blocks that CuPy's default pool keeps for a stream."""
        import cupy

        with _our_errors():
            cupy.get_default_memory_pool().free_all_blocks(stream)

    def pinned(self, nbytes: int) -> npt.NDArray[np.uint8]:
        """Return page-locked memory."""
        import cupy

        with _our_errors():
            # Not of CuPy's pool, which takes powers of two and keeps them until all of it is freed.
            memory = cupy.cuda.PinnedMemoryPointer(cupy.cuda.PinnedMemory(max(nbytes, 1)), 0)
        return np.frombuffer(memory, np.uint8, nbytes)

    def address(self, array: Any) -> int:
        """Return the device address of the first element."""
        return int(array.data.ptr)

    def shaped(self, memory: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
        """Return contiguous memory as an array."""
        return memory.view(dtype).reshape(shape)

    def flat(self, array: Any) -> tuple[Any, int]:
        """Return the memory from the lowest to the highest byte, and where in it the first element is."""
        import cupy

        spans = [(n - 1) * stride for n, stride in zip(array.shape, array.strides, strict=True)]
        below = -sum(span for span in spans if span < 0)
        nbytes = below + sum(span for span in spans if span > 0) + array.itemsize if array.size else 0
        start = cupy.cuda.MemoryPointer(array.data.mem, array.data.ptr - array.data.mem.ptr - below)
        return cupy.ndarray((nbytes,), np.uint8, start), below

    def stream(self) -> Any:
        """Return a new non-blocking stream."""
        import cupy

        with _our_errors():
            return cupy.cuda.Stream(non_blocking=True)

    def current_stream(self) -> Any:
        """Return CuPy's current stream."""
        import cupy

        return cupy.cuda.get_current_stream()

    def as_stream(self, stream: Any) -> Any:
        """Return a caller's stream as one of CuPy's."""
        import cupy

        if stream is None:
            return self.current_stream()
        if isinstance(stream, (cupy.cuda.Stream, cupy.cuda.ExternalStream)):
            return stream
        # PyTorch's of before the protocol, and addresses.
        address = getattr(stream, "cuda_stream", stream)
        if isinstance(address, int) and not isinstance(address, bool) and address >= 0:
            stream = _StreamAt(address)
        if hasattr(stream, "__cuda_stream__"):
            try:
                return cupy.cuda.Stream.from_external(stream)
            except TypeError as error:
                raise ArgumentError(f"stream {stream!r} cannot be used: {error}") from None
        raise ArgumentError(
            f"stream must be a stream of CuPy or PyTorch, have __cuda_stream__, or be an address, not {stream!r}"
        )

    def event(self) -> Any:
        """Return a new event without a clock."""
        import cupy

        with _our_errors():
            return cupy.cuda.Event(disable_timing=True)

    def copy_in(self, target: Any, source: npt.NDArray[Any], stream: Any) -> None:
        """Enqueue a copy to the device."""
        self._copy(target.data.ptr, source.ctypes.data, source.nbytes, "memcpyHostToDevice", stream)

    def copy_out(self, target: npt.NDArray[Any], source: Any, stream: Any) -> None:
        """Enqueue a copy to the host."""
        self._copy(target.ctypes.data, source.data.ptr, target.nbytes, "memcpyDeviceToHost", stream)

    def _copy(self, target: int, source: int, nbytes: int, kind: str, stream: Any) -> None:
        from cupy.cuda import runtime

        if nbytes:
            with _our_errors():
                runtime.memcpyAsync(target, source, nbytes, getattr(runtime, kind), stream.ptr)

    def copy_array(self, target: Any, source: Any, stream: Any) -> None:
        """Enqueue a copy of an array on the device."""
        with _our_errors(), stream:
            target[...] = source

    def launch(self, kernel: Any, blocks: int, threads: int, stream: Any, *arguments: int, word: int = 0) -> None:
        """Enqueue a kernel, compiled before its first launch."""
        function = self._functions.get((kernel, word)) or self._function(kernel, word)
        n = len(arguments)
        # CUDA takes the address of each argument, and copies the 8 bytes there.
        passed = (ctypes.c_int64 * (2 * n))(*arguments)
        first = ctypes.addressof(passed)
        passed[n:] = list(range(first, first + 8 * n, 8))
        with _our_errors():
            self._launch_kernel(function, blocks, 1, 1, threads, 1, 1, 0, stream.ptr, first + 8 * n, 0)

    def _launch_kernel(self, *arguments: int) -> None:
        """Call ``cuLaunchKernel``; found at the first call, since CuPy is imported then."""
        from cupy.cuda import driver

        self._launch_kernel = driver.launchKernel  # type: ignore[method-assign]
        driver.launchKernel(*arguments)

    def _function(self, kernel: Any, word: int) -> int:
        """Return the driver's handle of a kernel."""
        import cupy
        from cupy.cuda import driver

        with self._loading:
            known = self._functions.get((kernel, word))
            if known is not None:
                return known
            with _our_errors():
                capability = cupy.cuda.Device(self.ordinal).compute_capability
            program = machine_code.load(kernel, word, (int(capability[:-1]), int(capability[-1])))
            with _our_errors():
                # For as long as the process lives, as CuPy's own kernels.
                module = driver.moduleLoadData(program.image)
                function: int = driver.moduleGetFunction(module, program.entry)
            self._functions[kernel, word] = function
            return function

    def decompressor(self, algorithm: str) -> Decompressor | None:
        """Return nvCOMP's decoder of an algorithm."""
        if algorithm not in nvcomp.ALGORITHMS:
            return None
        if algorithm not in self._decompressors:
            self._decompressors[algorithm] = nvcomp.NvcompDecompressor(algorithm)
        return self._decompressors[algorithm]

    def compressor(self, algorithm: str) -> Compressor | None:
        """Return nvCOMP's encoder of an algorithm."""
        if algorithm not in nvcomp_compress.ALGORITHMS:
            return None
        if algorithm not in self._compressors:
            self._compressors[algorithm] = nvcomp_compress.NvcompCompressor(algorithm)
        return self._compressors[algorithm]

    def direct_files(self) -> DirectFiles | None:
        """Return kvikio where GPUDirect Storage is."""
        return kvikio_files.if_available()

    def free_bytes(self) -> int:
        """Return the memory that CUDA and CuPy's pool have free."""
        import cupy

        with self, _our_errors():
            return int(cupy.cuda.runtime.memGetInfo()[0]) + int(cupy.get_default_memory_pool().free_bytes())
