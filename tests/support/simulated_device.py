"""A CUDA device made of NumPy, with the real kernels compiled for the host: for tests of the engine without a GPU.

It is adversarial where a GPU may be. Streams are lazy: enqueued work runs when something waits for it, exactly up to
the point waited for, so that a missing dependency shows as wrong data. New memory is garbage, and released memory is
overwritten in stream order. Guards surround each allocation, which has exactly the alignment that the interface
guarantees. Undefined behaviour of a GPU raises :class:`SimulatedFault`.
"""

from __future__ import annotations

import bisect
import threading
import weakref
from collections import Counter, deque
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from gzarr_kernels.device.target import INTEGER, parameters
from support.kernel_ir_launch import launch
from support.simulated_decoders import ALGORITHMS, SimulatedDecompressor
from support.simulated_encoders import SimulatedCompressor
from support.simulated_faults import Calls, SimulatedFault
from support.simulated_streams import SimulatedEvent, SimulatedStream

from gzarr.errors import ArgumentError, DeviceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.files_past_host import FilesPastHost

    from gzarr.engines.cuda.loss import Loss

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

GARBAGE: Final = 0xA5
RELEASED: Final = 0x5A
_GUARD: Final = 0xC3
_GUARD_NBYTES: Final = 256


class DeviceArray(np.ndarray[Any, Any]):
    """Memory of a simulated device: the counterpart of ``cupy.ndarray``.

    As in CuPy, indexing gives arrays of zero dimensions, never scalars, and :meth:`get` copies to the host.
    """

    simulated: SimulatedDevice | None

    def __array_finalize__(self, other: Any) -> None:
        self.simulated = getattr(other, "simulated", None)

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        if isinstance(found, DeviceArray):
            return found
        return super().__getitem__((*key, ...) if isinstance(key, tuple) else (key, ...))

    def get(self) -> np.ndarray[Any, Any]:
        """Return a copy on the host, after the current stream has run."""
        assert self.simulated is not None
        self.simulated.current_stream().synchronize()
        return np.array(self, subok=False)

    def __dlpack__(self, **options: Any) -> Any:
        """Export the array after the current stream has run: CuPy makes the stream of who takes it wait."""
        assert self.simulated is not None
        self.simulated.current_stream().synchronize()
        return super().__dlpack__(**options)


class _Memory:
    """One allocation, with guards around it."""

    __slots__ = ("_owner", "_raw", "address", "begin", "nbytes", "stream")

    def __init__(self, nbytes: int, alignment: int) -> None:
        self.nbytes = nbytes
        self.stream: SimulatedStream | None = None
        # Not an array: views would keep that one alive rather than the array that they are taken of.
        self._owner = bytearray(nbytes + 2 * _GUARD_NBYTES + 2 * alignment)
        raw = self._raw = np.frombuffer(self._owner, np.uint8)
        first = raw.ctypes.data + _GUARD_NBYTES
        # A multiple of the alignment, but not of twice the alignment.
        self.address = first + (alignment - first) % (2 * alignment)
        self.begin = self.address - raw.ctypes.data
        raw[self.begin - _GUARD_NBYTES : self.begin] = _GUARD
        raw[self.begin : self.begin + nbytes] = GARBAGE
        raw[self.begin + nbytes : self.begin + nbytes + _GUARD_NBYTES] = _GUARD

    def array(self, kind: type[np.ndarray[Any, Any]], shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Return an array of the whole allocation, which lives as long as this array; views keep the array alive."""
        return kind(shape, dtype, buffer=self._owner, offset=self.begin)

    def view(self, like: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return the elements of an array in this allocation, without keeping that array alive."""
        offset = self.begin + like.ctypes.data - self.address
        return np.ndarray(like.shape, like.dtype, buffer=self._owner, offset=offset, strides=like.strides)

    def bytes_at(self, address: int, nbytes: int) -> Bytes:
        begin = self.begin + address - self.address
        return self._raw[begin : begin + nbytes]

    def release(self) -> None:
        self._raw[self.begin : self.begin + self.nbytes] = RELEASED

    def is_intact(self) -> bool:
        end = self.begin + self.nbytes
        before, behind = self._raw[self.begin - _GUARD_NBYTES : self.begin], self._raw[end : end + _GUARD_NBYTES]
        return bool((before == _GUARD).all() and (behind == _GUARD).all())


class SimulatedDevice:
    """A device for :func:`gzarr.engines.cuda.devices.use`.

    Parameters
    ----------
    ordinal
        Number of the device, part of its name.
    eager
        Whether operations of the default stream run when they are enqueued, after those that they wait for. Otherwise
        results are complete when :meth:`DeviceArray.get` or another call has synchronized the stream.
    capacity
        Device memory in bytes.

    Attributes
    ----------
    counts
        Numbers of operations: ``"copy_in"``, ``"copy_out"``, ``"copy_array"``, ``"synchronize"``,
        ``"free_bytes"``; ``"launch NAME"`` per kernel; ``"batches ALGORITHM"`` and ``"frames ALGORITHM"``.
    held, peak
        Bytes of live device memory (without arrays of :meth:`empty`) and page-locked memory, and their maximum.
    pooled
        Bytes of released device memory that is kept, by the identity of the stream that can reuse it.
    direct
        Reader of files that bypasses host memory, if any.
    refuse
        Function of an algorithm and the position of a frame in its batch: whether the status of the frame is a failure.
    kills
        Function of an algorithm and a frame: whether decoding it kills the context.
    calls
        CUDA calls, to make some of them fail.
    given
        If a list, it collects the frames given to decoders: algorithm, encoded bytes, decoded size.
    """

    def __init__(self, ordinal: int = 0, *, eager: bool = True, capacity: int = 1 << 30) -> None:
        self.name = f"cuda:{ordinal}"
        self.ordinal = ordinal
        self.capacity = capacity
        self.counts: Counter[str] = Counter()
        self.calls = Calls(self.name)
        self.held = self.peak = 0
        self.pooled: Counter[int] = Counter()
        self.direct: FilesPastHost | None = None
        self.refuse: Callable[[str, int], bool] = lambda algorithm, frame: False
        self.kills: Callable[[str, bytes], bool] = lambda algorithm, frame: False
        self.given: list[tuple[str, bytes, int]] | None = None
        self.lock = threading.RLock()
        self._default = SimulatedStream(self, eager=eager)
        self._streams: weakref.WeakSet[SimulatedStream] = weakref.WeakSet([self._default])
        self._memories: dict[int, _Memory] = {}
        self._addresses: list[int] = []
        self._pinned: set[int] = set()
        self._on_device = 0
        # Filled when an array is released, which may happen in any thread, even while another thread holds the lock.
        self._released: deque[tuple[_Memory, str, Any]] = deque()
        self._thread = threading.local()
        self._failing = 0
        self._failing_kind = ""
        self._decompressors = {name: SimulatedDecompressor(self, algorithm) for name, algorithm in ALGORITHMS.items()}
        self._compressors: dict[str, SimulatedCompressor] = {}

    # -- for tests

    def fail_allocation(self, nth: int = 1, kind: str = "") -> None:
        """Make the ``nth`` allocation of a kind from now on fail: ``"result"``, ``"arena"``, ``"pinned"``."""
        self._failing, self._failing_kind = nth, kind

    def reset_peak(self) -> None:
        """Reset the maximum of held memory."""
        self.sweep()
        self.peak = self.held

    def finish(self) -> None:
        """Run all enqueued work, and check that nothing was written outside of any allocation."""
        for stream in tuple(self._streams):
            if not self.calls.dead:
                stream.synchronize()
        with self.lock:
            for memory in self._memories.values():
                self._check_guards(memory)

    # -- memory

    def _allocate(self, nbytes: int, kind: str, alignment: int) -> _Memory:
        if kind != "pinned":
            self._check_current()
        self.sweep()
        with self.calls.call("allocate"), self.lock:
            if self._failing and self._failing_kind in ("", kind):
                self._failing -= 1
                if not self._failing:
                    raise MemoryError(f"{self.name} was told to have no room")
            if kind != "pinned" and nbytes > self.capacity - self._on_device:
                raise MemoryError(f"{self.name} has no room for {nbytes} bytes")
            memory = _Memory(nbytes, alignment)
            self._memories[memory.address] = memory
            bisect.insort(self._addresses, memory.address)
            if kind == "pinned":
                self._pinned.add(memory.address)
            else:
                self._on_device += nbytes
            if kind != "result":
                self.held += nbytes
                self.peak = max(self.peak, self.held)
            return memory

    def _tie(self, memory: _Memory, array: Any, kind: str, stream: Any) -> None:
        memory.stream = stream
        finalizer = weakref.finalize(array, self._released.append, (memory, kind, stream))
        finalizer.atexit = False

    def sweep(self) -> None:
        """Reclaim released memory: count it at once, and overwrite it in stream order."""
        while self._released:
            with self.lock:
                try:
                    memory, kind, stream = self._released.popleft()
                except IndexError:
                    return
                if kind != "result":
                    self.held -= memory.nbytes
                if kind != "pinned":
                    self._on_device -= memory.nbytes
                if kind != "pinned":
                    self.pooled[id(stream)] += memory.nbytes
                if kind == "pinned" or self.calls.dead:
                    self._forget(memory)
                else:
                    stream.enqueue(partial(self._forget, memory))

    def _forget(self, memory: _Memory) -> None:
        memory.release()
        del self._memories[memory.address]
        self._addresses.remove(memory.address)
        self._pinned.discard(memory.address)
        self._check_guards(memory)

    def _check_guards(self, memory: _Memory) -> None:
        if not memory.is_intact():
            raise SimulatedFault(f"something was written outside of an allocation of {memory.nbytes} bytes")

    def _memory_of(self, address: int, nbytes: int) -> _Memory | None:
        with self.lock:
            i = bisect.bisect_right(self._addresses, address) - 1
            memory = self._memories[self._addresses[i]] if i >= 0 else None
        if memory is None or address + nbytes > memory.address + memory.nbytes:
            return None
        return memory

    def bytes_at(self, address: int, nbytes: int, alignment: int = 1) -> Bytes:
        """Return device memory at an address, which must be within one allocation."""
        if address % alignment:
            raise SimulatedFault(f"{address:#x} is not a multiple of {alignment}")
        memory = self._memory_of(address, nbytes)
        if memory is None or memory.address in self._pinned:
            raise SimulatedFault(f"{nbytes} bytes at {address:#x} are not device memory")
        return memory.bytes_at(address, nbytes)

    def _plain(self, array: Any, *, pinned: bool = False) -> np.ndarray[Any, Any]:
        """Return an array's elements for an operation, without keeping the array alive, as in CUDA."""
        if pinned == isinstance(array, DeviceArray):
            raise SimulatedFault(f"a {type(array).__name__} where {'page-locked' if pinned else 'device'} memory goes")
        if not array.size:
            return np.empty(array.shape, array.dtype)
        low, high = np.lib.array_utils.byte_bounds(array)
        memory = self._memory_of(low, high - low)
        if memory is None or (memory.address in self._pinned) != pinned:
            raise SimulatedFault(f"{high - low} bytes are not {'page-locked' if pinned else 'device'} memory")
        return memory.view(array)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any], stream: SimulatedStream) -> DeviceArray:
        dtype = np.dtype(dtype)
        known = dtype.name == "bfloat16" or (dtype.kind in "biufc" and dtype.itemsize <= 16)
        if not known or not dtype.isnative:
            raise TypeError(f"CuPy has no elements of type {dtype}")
        memory = self._allocate(int(np.prod(shape, dtype=object)) * dtype.itemsize, "result", 256)
        self.pooled[id(stream)] -= min(memory.nbytes, self.pooled[id(stream)])
        array: DeviceArray = memory.array(DeviceArray, shape, dtype)
        array.simulated = self
        self._tie(memory, array, "result", stream)
        return array

    def is_array(self, value: Any) -> bool:
        return isinstance(value, DeviceArray) and value.simulated is self

    def as_array(self, value: Any, stream: SimulatedStream) -> Any:
        if self.is_array(value):
            return value
        # Arrays of other libraries over the device's memory. Others, and numbers that NumPy lacks, are not found here.
        with suppress(BufferError, RuntimeError, AttributeError, TypeError):
            array = np.from_dlpack(value)
            if array.size and self._memory_of(array.ctypes.data, array.nbytes) is not None:
                found: DeviceArray = array.view(DeviceArray)
                found.simulated = self
                return found
        return None

    def converted(self, array: DeviceArray, dtype: np.dtype[Any], stream: SimulatedStream) -> DeviceArray:
        result = self.empty(array.shape, dtype, stream)
        self._enqueue(stream, partial(np.copyto, self._plain(result), self._plain(array), casting="unsafe"))
        return result

    def broadcast(self, array: DeviceArray, shape: tuple[int, ...]) -> DeviceArray:
        result = np.broadcast_to(array, shape, subok=True)
        assert isinstance(result, DeviceArray)
        return result

    def to_host(self, array: DeviceArray, stream: SimulatedStream) -> np.ndarray[Any, Any]:
        plain = self._plain(array)
        stream.synchronize()
        return np.array(plain)

    def allocate(self, nbytes: int, stream: SimulatedStream) -> DeviceArray:
        memory = self._allocate(nbytes, "arena", 256)
        self.pooled[id(stream)] -= min(nbytes, self.pooled[id(stream)])
        array: DeviceArray = memory.array(DeviceArray, (nbytes,), np.dtype(np.uint8))
        array.simulated = self
        self._tie(memory, array, "arena", stream)
        return array

    def free_cached(self, stream: SimulatedStream) -> None:
        self._check_current()
        with self.calls.call("free"):
            pending = stream.pending
        if pending:
            raise SimulatedFault("memory is freed that operations of a stream may still use")
        del self.pooled[id(stream)]

    def pinned(self, nbytes: int) -> Bytes:
        memory = self._allocate(nbytes, "pinned", 64)
        array: Bytes = memory.array(np.ndarray, (nbytes,), np.dtype(np.uint8))
        self._tie(memory, array, "pinned", None)
        return array

    def address(self, array: DeviceArray) -> int:
        return int(array.ctypes.data)

    def shaped(self, memory: DeviceArray, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
        return memory.view(dtype).reshape(shape)

    def flat(self, array: DeviceArray) -> tuple[DeviceArray, int]:
        low, high = np.lib.array_utils.byte_bounds(array)
        root = array
        while isinstance(root.base, DeviceArray):
            root = root.base
        begin = low - self.address(root)
        memory = DeviceArray((high - low,), np.dtype(np.uint8), buffer=root, offset=begin)
        memory.simulated = self
        return memory, self.address(array) - low

    def free_bytes(self) -> int:
        self.counts["free_bytes"] += 1
        self.sweep()
        return self.capacity - self._on_device

    # -- streams

    def streams_of_thread(self) -> list[SimulatedStream]:
        """Return the calling thread's stack of current streams, the current one last."""
        if not hasattr(self._thread, "streams"):
            self._thread.streams = []
        streams: list[SimulatedStream] = self._thread.streams
        return streams

    def stream(self) -> SimulatedStream:
        self._check_current()
        with self.calls.call("create"):
            stream = SimulatedStream(self)
        self._streams.add(stream)
        return stream

    def current_stream(self) -> SimulatedStream:
        streams = self.streams_of_thread()
        return streams[-1] if streams else self._default

    def as_stream(self, stream: Any) -> SimulatedStream:
        if stream is None:
            return self.current_stream()
        if not isinstance(stream, SimulatedStream):
            raise ArgumentError(f"stream must be a stream of the device, not {stream!r}")
        return stream

    def event(self) -> SimulatedEvent:
        self._check_current()
        with self.calls.call("create"):
            return SimulatedEvent(self)

    # -- enqueued work

    def _enqueue(self, stream: SimulatedStream, operation: Callable[[], None]) -> None:
        self._check_current()
        with self.calls.call("enqueue"):
            self.sweep()
            stream.enqueue(operation)

    def copy_in(self, target: DeviceArray, source: np.ndarray[Any, Any], stream: SimulatedStream) -> None:
        self._copy(self._plain(target), self._plain(source, pinned=True), stream)
        self.counts["copy_in"] += 1

    def copy_out(self, target: np.ndarray[Any, Any], source: DeviceArray, stream: SimulatedStream) -> None:
        self._copy(self._plain(target, pinned=True), self._plain(source), stream)
        self.counts["copy_out"] += 1

    def _copy(self, target: np.ndarray[Any, Any], source: np.ndarray[Any, Any], stream: SimulatedStream) -> None:
        if target.nbytes != source.nbytes or not (target.flags.c_contiguous and source.flags.c_contiguous):
            raise SimulatedFault("a copy between host and device is of one run of bytes on each side")
        into, from_ = target.reshape(-1).view(np.uint8), source.reshape(-1).view(np.uint8)
        self._enqueue(stream, partial(np.copyto, into, from_))

    def copy_array(self, target: DeviceArray, source: DeviceArray, stream: SimulatedStream) -> None:
        if target.shape != source.shape or target.dtype != source.dtype:
            raise SimulatedFault("a copy between device arrays is of one shape and type")
        self._enqueue(stream, partial(np.copyto, self._plain(target), self._plain(source)))
        self.counts["copy_array"] += 1

    def launch(
        self, kernel: Any, blocks: int, threads: int, stream: SimulatedStream, *arguments: int, word: int = 0
    ) -> None:
        if not (0 < blocks < 1 << 31 and 0 < threads <= 1024):
            raise SimulatedFault(f"a launch of {blocks} blocks of {threads} threads")
        kinds = parameters(kernel.py_func, word or 8)
        given = [self._argument(argument, kind) for argument, kind in zip(arguments, kinds, strict=True)]
        self._enqueue(stream, partial(launch, kernel, *given, blocks=blocks, threads=threads))
        self.counts[f"launch {kernel.py_func.__name__}"] += 1

    def _argument(self, argument: int, kind: str) -> Any:
        """Return an integer, or the device memory from an address on as elements of a kind."""
        if type(argument) is not int:
            raise SimulatedFault(f"kernels take addresses and integers, not {type(argument).__name__}")
        if kind == INTEGER:
            return argument
        dtype = np.dtype(kind)
        memory = self._memory_of(argument, 0)
        if memory is None or memory.address in self._pinned or argument % dtype.alignment:
            raise SimulatedFault(f"{argument:#x} is not device memory of {dtype}")
        nbytes = memory.address + memory.nbytes - argument
        return memory.bytes_at(argument, nbytes // dtype.itemsize * dtype.itemsize).view(dtype)

    def decompressor(self, algorithm: str) -> SimulatedDecompressor | None:
        return self._decompressors.get(algorithm)

    def compressor(self, algorithm: str) -> SimulatedCompressor | None:
        if algorithm not in ALGORITHMS:
            return None
        return self._compressors.setdefault(algorithm, SimulatedCompressor(self, algorithm))

    def enqueue_batch(self, stream: SimulatedStream, operation: Callable[[], None]) -> None:
        """Enqueue a decompressor's or compressor's batch."""
        if self.calls.dead and self.lost is None:
            # nvCOMP has separate status codes, without details.
            raise DeviceError("nvCOMP failed with status 1000")
        self._enqueue(stream, operation)

    def direct_files(self) -> FilesPastHost | None:
        return self.direct

    def free_memory_at(self, array: DeviceArray) -> Bytes:
        """Return device memory for access outside stream order: the work of its stream must have run."""
        self._check_current()
        memory = self._memory_of(self.address(array), array.nbytes)
        if memory is None or memory.stream is None or memory.stream.pending:
            raise SimulatedFault("a file is read into memory that operations of a stream may still use")
        return memory.bytes_at(self.address(array), array.nbytes)

    # -- the thread's device

    def _check_current(self) -> None:
        if not getattr(self._thread, "depth", 0):
            raise SimulatedFault(f"{self.name} is not the current device of this thread")

    @property
    def lost(self) -> Loss | None:
        return self.calls.lost

    def __enter__(self) -> SimulatedDevice:
        with self.calls.call("enter"):
            pass
        self._thread.depth = getattr(self._thread, "depth", 0) + 1
        return self

    def __exit__(self, *exc: object) -> None:
        self._thread.depth -= 1
