"""A CUDA device: CuPy for memory, streams, copies and launches, nvCOMP for frames."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from gzarr_kernels.operations import ALGORITHMS

from ...errors import ArgumentError, DeviceError
from ...guarded import Lock
from ...reasons import pass_on
from . import kvikio_files, machine_code, nvcomp, nvcomp_compress, streams
from .cupy_errors import CupyErrors
from .cupy_streams import PER_THREAD, CupyEvent, CupyStream, is_own_thread, of_caller
from .driver import LOST, is_lost
from .own_streams import OwnStream, knows_streams

if TYPE_CHECKING:
    import numpy.typing as npt

    from .device_protocol import Compressor, Decompressor, DirectFiles
    from .loss import Loss

#: ``kDLCUDA`` and ``kDLCUDAManaged``.
_DLPACK_CUDA: Final = (2, 13)
#: CuPy's device of the default streams, and of those that other libraries have made.
_UNKNOWN: Final = -1
#: ``cudaErrorDevicesUnavailable``.
_UNAVAILABLE: Final = 46


class _StreamAt:
    """A stream address in the form that CuPy accepts."""

    def __init__(self, address: int) -> None:
        self._address = address

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._address


class CupyDevice:
    """One CUDA device; see :class:`gzarr.engines.cuda.device_protocol.Device` for its methods.

    CUDA is initialised when this first becomes a thread's device; until then, the process may be forked.

    Parameters
    ----------
    ordinal
        CUDA's number of the device.
    """

    def __init__(self, ordinal: int) -> None:
        self.ordinal = ordinal
        self.name: str = f"cuda:{ordinal}"
        self._errors = CupyErrors(self.name)
        # The process that has used the device; 0 for none yet.
        self._pid = 0
        # By kernel and bytes per word.
        self._functions: dict[tuple[Any, int], int] = {}
        self._loading = Lock()
        self._decompressors: dict[str, Decompressor] = {}
        self._compressors: dict[str, Compressor] = {}

    def __enter__(self) -> CupyDevice:
        if os.getpid() != self._pid:
            self._start()
        import cupy

        with self._errors:
            # To go back to the thread's previous device makes a context there if there is none: hundreds of MiB of a
            # GPU that may be another process's. A thread of gzarr's stays where it first works.
            if is_own_thread() and not cupy.cuda.driver.ctxGetCurrent():
                cupy.cuda.runtime.setDevice(self.ordinal)
            cupy.cuda.Device(self.ordinal).__enter__()
            try:
                # If the device is the first one, CuPy does nothing in a new thread, which then has no context. CUDA's
                # runtime makes one when it needs it; kvikio, which calls the driver, would find none.
                cupy.cuda.runtime.setDevice(self.ordinal)
            except BaseException:
                cupy.cuda.Device(self.ordinal).__exit__()
                raise
        return self

    def __exit__(self, *exc: object) -> None:
        import cupy

        try:
            # On a lost device too: the thread's previous device need not be lost.
            cupy.cuda.Device(self.ordinal).__exit__(*exc)
        except RuntimeError as error:
            # The previous device is another process's alone: the thread has nothing there, and can have nothing.
            if getattr(error, "status", None) == _UNAVAILABLE:
                return
            ours = self._errors.failure(error)
            if ours is None:
                raise
            # If an error is being raised already, that one matters.
            if not exc or exc[0] is None:
                raise ours from error

    @property
    def lost(self) -> Loss | None:
        """Why the device cannot be used any more, or None."""
        return self._errors.lost

    def _start(self) -> None:
        """Initialise CUDA in this process."""
        # Several threads may be first at once.
        if self._pid not in (0, os.getpid()) or is_lost():
            raise DeviceError(f"{self.name} cannot be used: {LOST}")
        try:
            import cupy

            have = cupy.cuda.runtime.getDeviceCount()
        except Exception as error:  # CuPy, or a library it loads
            pass_on(error)
            raise DeviceError(
                f'{self.name} cannot be used: {error}; run "gzarr doctor" for details, or open with device="cpu"'
            ) from error
        if self.ordinal >= have:
            raise DeviceError(f"there is no device '{self.name}': CUDA sees {have}, numbered from 0")
        self._pid = os.getpid()

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any], stream: Any) -> Any:
        """Return a new array from CuPy's current allocator."""
        import cupy

        with self._errors, stream:
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
        with self._errors, stream:
            if hasattr(value, "__dlpack_device__"):
                kind, ordinal = value.__dlpack_device__()
                return cupy.from_dlpack(value) if kind in _DLPACK_CUDA and ordinal == self.ordinal else None
            if hasattr(value, "__cuda_array_interface__"):
                found = cupy.asarray(value)
                return found if self.is_array(found) else None
        return None

    def converted(self, array: Any, dtype: np.dtype[Any], stream: Any) -> Any:
        """Return a new array."""
        with self._errors, stream:
            return array.astype(dtype)

    def broadcast(self, array: Any, shape: tuple[int, ...]) -> Any:
        """Return a view with strides of 0."""
        import cupy

        return cupy.broadcast_to(array, shape)

    def to_host(self, array: Any, stream: Any) -> npt.NDArray[Any]:
        """Return a copy."""
        # CuPy makes the array contiguous on the current stream.
        with self._errors, stream:
            host: npt.NDArray[Any] = array.get(stream=stream.cupy)
        return host

    def allocate(self, nbytes: int, stream: Any) -> Any:
        """Return uint8 memory; on streams of gzarr's own, from an allocator that knows streams."""
        return self.empty((nbytes,), np.dtype(np.uint8), stream)

    def free_cached(self, stream: Any) -> None:
        """Free the blocks that CuPy's pools keep for a stream: the default one, and that of its current allocator."""
        import cupy

        with self._errors:
            for pool in {cupy.get_default_memory_pool(), _current_pool()}:
                pool.free_all_blocks(stream.cupy)

    def pinned(self, nbytes: int) -> npt.NDArray[np.uint8]:
        """Return page-locked memory."""
        import cupy

        with self._errors:
            # Not from CuPy's pool, which rounds up to powers of two and keeps the memory.
            memory = cupy.cuda.PinnedMemoryPointer(cupy.cuda.PinnedMemory(max(nbytes, 1)), 0)
        return np.frombuffer(memory, np.uint8, nbytes)

    def address(self, array: Any) -> int:
        """Return the device address of the first element."""
        return int(array.data.ptr)

    def shaped(self, memory: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
        """Return contiguous memory as an array."""
        return memory.view(dtype).reshape(shape)

    def flat(self, array: Any) -> tuple[Any, int]:
        """Return the memory from the lowest to the highest byte, and the offset of the first element in it."""
        import cupy

        spans = [(n - 1) * stride for n, stride in zip(array.shape, array.strides, strict=True)]
        below = -sum(span for span in spans if span < 0)
        nbytes = below + sum(span for span in spans if span > 0) + array.itemsize if array.size else 0
        start = cupy.cuda.MemoryPointer(array.data.mem, array.data.ptr - array.data.mem.ptr - below)
        return cupy.ndarray((nbytes,), np.uint8, start), below

    def stream(self) -> OwnStream:
        """Return a new non-blocking stream."""
        import cupy

        with self._errors:
            return OwnStream(cupy.cuda.Stream(non_blocking=True), self._errors)

    def current_stream(self) -> CupyStream:
        """Return CuPy's current stream."""
        import cupy

        with self._errors:
            return of_caller(cupy.cuda.get_current_stream(), self._errors)

    def as_stream(self, stream: Any) -> CupyStream:
        """Return a caller's stream as a CupyStream."""
        import cupy

        if isinstance(stream, CupyStream):
            return stream
        if stream is None:
            found = self.current_stream().cupy
        elif isinstance(stream, (cupy.cuda.Stream, cupy.cuda.ExternalStream)):
            found = stream
        else:
            # By its address: the object would keep that of the other library, which may be what holds the stream.
            found = self._imported(int(self._imported(stream).ptr))
            # The default streams of all devices have the same addresses.
            named = getattr(stream, "device_index", None)
            if found.ptr <= PER_THREAD and isinstance(named, int) and named != self.ordinal:
                raise _of_another_device(named, self.name)
        self._check_stream(found)
        if found.device_id == _UNKNOWN:
            found = streams.kept(self.name, found)
        return of_caller(found, self._errors)

    def _imported(self, stream: Any) -> Any:
        """Return a stream of another library, or an address, as a stream of CuPy's."""
        import cupy

        # Streams of PyTorch versions without the protocol, and addresses.
        address = getattr(stream, "cuda_stream", stream)
        if isinstance(address, int) and not isinstance(address, bool) and 0 <= address < 1 << 63:
            stream = _StreamAt(address)
        if hasattr(stream, "__cuda_stream__"):
            try:
                with self._errors:
                    return cupy.cuda.Stream.from_external(stream)
            except (TypeError, OverflowError) as error:
                raise ArgumentError(f"stream {stream!r} cannot be used: {error}") from None
        raise ArgumentError(
            f"stream must be a CuPy or PyTorch stream, an object with __cuda_stream__, or an address, not {stream!r}"
        )

    def _check_stream(self, stream: Any) -> None:
        """Refuse a caller's stream for which nothing on this device can wait; the device is current."""
        from cupy.cuda import driver, runtime

        ordinal = stream.device_id
        if ordinal not in (_UNKNOWN, self.ordinal):
            raise _of_another_device(ordinal, self.name)
        if stream.ptr < PER_THREAD:
            return
        with self._errors:
            try:
                capturing = runtime.streamIsCapturing(stream.ptr)
            except runtime.CUDARuntimeError:
                raise
            except RuntimeError:  # a capture that has failed, and was not ended
                capturing = True
            if capturing:
                raise ArgumentError(
                    "stream is being captured into a CUDA graph, and reads and writes wait on the host: make them "
                    "before or after the capture, or on another stream"
                )
            if stream.ptr == PER_THREAD or ordinal != _UNKNOWN:
                return
            here, there = driver.ctxGetCurrent(), driver.streamGetCtx(stream.ptr)
            if there == here:
                return
            driver.ctxSetCurrent(there)
            try:
                ordinal = driver.ctxGetDevice()
            finally:
                driver.ctxSetCurrent(here)
        if ordinal != self.ordinal:
            raise _of_another_device(ordinal, self.name)

    def event(self) -> CupyEvent:
        """Return a new event without timing."""
        import cupy

        with self._errors:
            made = cupy.cuda.Event(disable_timing=True)
            return CupyEvent(made, self._errors, cupy.cuda.driver.ctxGetCurrent())

    def copy_in(self, target: Any, source: npt.NDArray[Any], stream: Any) -> None:
        """Enqueue a copy to the device."""
        self._copy(target.data.ptr, source.ctypes.data, source.nbytes, "memcpyHostToDevice", stream)

    def copy_out(self, target: npt.NDArray[Any], source: Any, stream: Any) -> None:
        """Enqueue a copy to the host."""
        self._copy(target.ctypes.data, source.data.ptr, target.nbytes, "memcpyDeviceToHost", stream)

    def _copy(self, target: int, source: int, nbytes: int, kind: str, stream: Any) -> None:
        from cupy.cuda import runtime

        if nbytes:
            with self._errors:
                runtime.memcpyAsync(target, source, nbytes, getattr(runtime, kind), stream.ptr)

    def copy_array(self, target: Any, source: Any, stream: Any) -> None:
        """Enqueue a copy from one device array to another."""
        with self._errors, stream:
            target[...] = source

    def launch(self, kernel: Any, blocks: int, threads: int, stream: Any, *arguments: int, word: int = 0) -> None:
        """Enqueue a kernel, compiled before its first launch."""
        function = self._functions.get((kernel, word)) or self._function(kernel, word)
        n = len(arguments)
        # CUDA takes the address of each argument and copies the 8 bytes there.
        passed = (ctypes.c_int64 * (2 * n))(*arguments)
        first = ctypes.addressof(passed)
        passed[n:] = list(range(first, first + 8 * n, 8))
        with self._errors:
            self._launch_kernel(function, blocks, 1, 1, threads, 1, 1, 0, stream.ptr, first + 8 * n, 0)

    def _launch_kernel(self, *arguments: int) -> None:
        """Call ``cuLaunchKernel``, looked up at the first call: CuPy is imported by then."""
        from cupy.cuda import driver

        self._launch_kernel = driver.launchKernel  # type: ignore[method-assign]
        driver.launchKernel(*arguments)

    def _function(self, kernel: Any, word: int) -> int:
        """Return the driver's handle for a kernel."""
        import cupy
        from cupy.cuda import driver

        with self._loading:
            known = self._functions.get((kernel, word))
            if known is not None:
                return known
            with self._errors:
                capability = cupy.cuda.Device(self.ordinal).compute_capability
            program = machine_code.load(kernel, word, (int(capability[:-1]), int(capability[-1])))
            with self._errors:
                # Kept as long as the process lives, like CuPy's own kernels.
                module = driver.moduleLoadData(program.image)
                function: int = driver.moduleGetFunction(module, program.entry)
            self._functions[kernel, word] = function
            return function

    def decompressor(self, algorithm: str) -> Decompressor | None:
        """Return nvCOMP's decoder for an algorithm."""
        if algorithm not in ALGORITHMS:
            return None
        if algorithm not in self._decompressors:
            self._decompressors[algorithm] = nvcomp.NvcompDecompressor(algorithm)
        return self._decompressors[algorithm]

    def compressor(self, algorithm: str) -> Compressor | None:
        """Return nvCOMP's encoder for an algorithm."""
        if algorithm not in ALGORITHMS:
            return None
        if algorithm not in self._compressors:
            self._compressors[algorithm] = nvcomp_compress.NvcompCompressor(algorithm)
        return self._compressors[algorithm]

    def direct_files(self) -> DirectFiles | None:
        """Return kvikio's files if GPUDirect Storage is available. Without kvikio, CUDA is not initialised."""
        if not kvikio_files.is_installed():
            return None
        with self:
            return kvikio_files.if_available()

    def free_bytes(self) -> int:
        """Return the free memory of CUDA and CuPy's pool, at most what the pool's limit leaves."""
        import cupy

        with self, self._errors:
            pool = _current_pool()
            free = int(cupy.cuda.runtime.memGetInfo()[0]) + int(pool.free_bytes())
            # Of ``set_limit`` or ``CUPY_GPU_MEMORY_LIMIT``; 0 for none. At the limit, the pool frees what it keeps.
            limit = int(pool.get_limit())
            return min(free, max(limit - int(pool.used_bytes()), 0)) if limit else free


def _current_pool() -> Any:
    """Return the pool that CuPy's current allocator is of; of another allocator, it is taken to be the default one.

    That is also where memory of gzarr's own streams is from, if the allocator knows no streams. Another one is
    ``cupy.cuda.MemoryAsyncPool``: what it calls a limit is what CUDA keeps for it, not the most it has.
    """
    import cupy

    allocator = cupy.cuda.get_allocator()
    pool = getattr(allocator, "__self__", None)
    if isinstance(pool, cupy.cuda.MemoryPool) and knows_streams(allocator):
        return pool
    return cupy.get_default_memory_pool()


def _of_another_device(ordinal: int, name: str) -> ArgumentError:
    return ArgumentError(f"stream belongs to cuda:{ordinal}; the array is on {name}")
