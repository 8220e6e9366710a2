"""What the engine needs from a device: memory, streams, kernels, batched decoders and encoders.

:class:`gzarr.engines.cuda.cupy_device.CupyDevice` is the one implementation; tests watch its calls. The rest of the
engine knows nothing of CuPy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from .loss import Loss


class Event(Protocol):
    """A point in a stream."""

    @property
    def done(self) -> bool:
        """Whether the stream has passed it; does not wait. True if it was never recorded."""

    def synchronize(self) -> None:
        """Wait on the host until the stream has passed it."""


class Stream(Protocol):
    """Work that runs asynchronously and in order.

    The parameters of its methods are what its own device has made, or has returned for a caller's stream. CUDA calls
    of a stream and its events raise DeviceError if they fail.
    """

    def record(self, event: Any) -> Event:
        """Record an event after everything enqueued so far, in place of what it was recorded after before.

        Returns
        -------
        ``event``; never None, so that what waits for it is not left out.
        """

    def wait_event(self, event: Any) -> None:
        """Make everything enqueued from now on wait for an event.

        What counts is the event's last record before this call; an event that was never recorded is not waited for.
        """

    def synchronize(self) -> None:
        """Wait on the host until everything enqueued has run."""

    def __enter__(self) -> Any:
        """Make it the current stream of the calling thread, for functions of the caller's library."""

    def __exit__(self, *exc: object) -> None:
        """Make the stream that was current before the current one again."""


@dataclass(frozen=True, slots=True)
class CoderBatch:
    """A batch of independent frames; every address is one of device memory.

    Attributes
    ----------
    frames, largest
        Number of frames; bytes of the largest, decoded.
    sources, source_nbytes
        int64 ``(frames,)`` each: address and size of each frame, compressed if it is to be decoded.
    targets
        int64 ``(frames,)``, address of the memory for each result.
    produced
        int64 ``(frames,)``, written: bytes of each result.
    statuses
        int32 ``(frames,)``, written: 0 for success.
    temp, temp_nbytes
        Address and bytes of the scratch.
    target_nbytes
        For decoding, int64 ``(frames,)``: size of the memory for each result. For encoding 0; each has
        ``max_encoded_nbytes(largest)`` bytes.
    """

    frames: int
    largest: int
    sources: int
    source_nbytes: int
    targets: int
    produced: int
    statuses: int
    temp: int
    temp_nbytes: int
    target_nbytes: int = 0


class Decompressor(Protocol):
    """Decodes a batch of independent frames on the device: one algorithm of nvCOMP.

    A corrupt frame is not always reported by its status: all algorithms but LZ4 have undefined behaviour for it.

    Attributes
    ----------
    input_alignment, output_alignment, temp_alignment
        Alignment of each compressed frame, each decoded frame, and the scratch, in bytes.
    max_frame_bytes
        Bytes of the largest frame, encoded or decoded.
    """

    input_alignment: int
    output_alignment: int
    temp_alignment: int
    max_frame_bytes: int

    def temp_nbytes(self, frames: int, largest: int, total: int) -> int:
        """Return the bytes of scratch for a batch.

        Parameters
        ----------
        frames
            Number of frames.
        largest, total
            Decoded bytes of the largest frame, and of all frames.
        """

    def run(self, stream: Any, batch: CoderBatch) -> None:
        """Enqueue the decoding of one batch.

        Raises
        ------
        DeviceError
            If the batch cannot be enqueued.
        """


class Compressor(Protocol):
    """Encodes a batch of independent frames on the device: one algorithm of nvCOMP.

    Attributes
    ----------
    input_alignment, output_alignment, temp_alignment
        Alignment of each frame before and after compression, and of the scratch, in bytes.
    max_frame_bytes
        Bytes of the largest frame before compression.
    """

    input_alignment: int
    output_alignment: int
    temp_alignment: int
    max_frame_bytes: int

    def temp_nbytes(self, frames: int, largest: int, total: int) -> int:
        """Return the bytes of scratch for a batch.

        Parameters
        ----------
        frames
            Number of frames.
        largest, total
            Uncompressed bytes of the largest frame, and of all frames.
        """

    def max_encoded_nbytes(self, largest: int) -> int:
        """Return the most bytes that a compressed frame takes, for frames of at most ``largest`` bytes."""

    def run(self, stream: Any, batch: CoderBatch) -> None:
        """Enqueue the encoding of one batch.

        Raises
        ------
        DeviceError
            If the batch cannot be enqueued.
        """


class DirectFile(Protocol):
    """An open file; many threads may read from it at once."""

    def size(self) -> int:
        """Return its size in bytes."""

    def read(self, target: Any, offset: int) -> int:
        """Fill uint8 device memory ``(n,)`` with the file's bytes from ``offset`` on; blocks until they are there.

        The calling thread's current device must be that of the memory. Reads are not ordered with any stream: no
        enqueued work may use the memory.

        Returns
        -------
        Bytes read: fewer than ``n`` at the end of the file.

        Raises
        ------
        DeviceError
            If the file cannot be read.
        """

    def close(self) -> None:
        """Close the file; no read may be in progress."""


class DirectFiles(Protocol):
    """Reads files into device memory, bypassing host memory."""

    def open(self, path: str) -> DirectFile:
        """Open a file.

        Raises
        ------
        DeviceError
            If the file cannot be opened, for whatever reason.
        """


class Device(Protocol):
    """One CUDA device.

    Attributes
    ----------
    name
        ``"cuda:0"``.
    ordinal
        ``0``.
    """

    name: str
    ordinal: int

    @property
    def lost(self) -> Loss | None:
        """Why this process cannot use the device any more, or None.

        Once it is set, every method that would call CUDA raises DeviceError, and so does entering the device.
        """

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any], stream: Any) -> Any:
        """Return a new C-contiguous device array for a caller (from CuPy's allocator, in order with ``stream``).

        Raises
        ------
        MemoryError
            If the device has no room.
        """

    def is_array(self, value: Any) -> bool:
        """Return whether a value is an array of this device (``cupy.ndarray``) that the engine can write to."""

    def as_array(self, value: Any, stream: Any) -> Any:
        """Return a value on this device as an array, without a copy; None if it is not on this device.

        Accepts objects with ``__dlpack__`` or ``__cuda_array_interface__``. The elements are valid for work that is
        enqueued on ``stream`` afterwards.
        """

    def converted(self, array: Any, dtype: np.dtype[Any], stream: Any) -> Any:
        """Return a new array of another type."""

    def broadcast(self, array: Any, shape: tuple[int, ...]) -> Any:
        """Return a view of another shape, like ``numpy.broadcast_to``; raises ValueError if there is none."""

    def to_host(self, array: Any, stream: Any) -> npt.NDArray[Any]:
        """Return a host copy of an array of any strides, made in order with ``stream``."""

    def allocate(self, nbytes: int, stream: Any) -> Any:
        """Return uint8 device memory ``(nbytes,)``, aligned to 256 bytes.

        It is freed with its last reference, in order with ``stream``.
        """

    def free_cached(self, stream: Any) -> None:
        """Return the free blocks that the allocator keeps for a stream to the driver; the stream must be idle."""

    def pinned(self, nbytes: int) -> npt.NDArray[np.uint8]:
        """Return page-locked host memory, aligned to at least 64 bytes; it is freed with its last reference."""

    def address(self, array: Any) -> int:
        """Return the device address of an array's first element."""

    def shaped(self, memory: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
        """Return contiguous uint8 device memory as an array."""

    def flat(self, array: Any) -> tuple[Any, int]:
        """Return the memory of a device array of any strides, from its lowest to its highest byte.

        Returns
        -------
        memory
            1-d uint8 device memory.
        offset
            Offset of the array's first element in it, in bytes.
        """

    def stream(self) -> Stream:
        """Return a new stream that does not synchronise with the default stream."""

    def current_stream(self) -> Stream:
        """Return the current stream of the caller's library."""

    def as_stream(self, stream: Any) -> Stream:
        """Return a caller's stream: a CuPy or PyTorch stream, an object with ``__cuda_stream__``, or an address.

        For None, it is the current stream of the caller's library; a stream of this device is returned as it is. The
        device is the calling thread's.

        Raises
        ------
        ArgumentError
            If ``stream`` is none of these, belongs to another device, or is being captured into a graph.
        """

    def event(self) -> Event:
        """Return a new event."""

    def copy_in(self, target: Any, source: npt.NDArray[Any], stream: Any) -> None:
        """Enqueue a copy from page-locked memory to contiguous device memory of the same number of bytes."""

    def copy_out(self, target: npt.NDArray[Any], source: Any, stream: Any) -> None:
        """Enqueue a copy from contiguous device memory to page-locked memory of the same number of bytes."""

    def copy_array(self, target: Any, source: Any, stream: Any) -> None:
        """Enqueue ``target[...] = source`` for device arrays of the same shape and type and any strides."""

    def launch(self, kernel: Any, blocks: int, threads: int, stream: Any, *arguments: int, word: int = 0) -> None:
        """Enqueue a kernel of ``gzarr_kernels.device``.

        Parameters
        ----------
        kernel, blocks, threads, stream
            Kernel, number of blocks, threads per block, and stream.
        arguments
            Addresses of device memory, aligned to the kernel's element type, and integers.
        word
            Bytes per word, for a kernel that addresses memory in words; otherwise 0.

        Raises
        ------
        DeviceError
            If the kernel cannot be compiled or enqueued.
        """

    def decompressor(self, algorithm: str) -> Decompressor | None:
        """Return the decoder for an algorithm, or None if there is none.

        Parameters
        ----------
        algorithm
            ``"zstd"``, ``"lz4"``, ``"snappy"``, ``"deflate"`` or ``"gdeflate"``.
        """

    def compressor(self, algorithm: str) -> Compressor | None:
        """Return the encoder for an algorithm, or None if there is none; algorithms as for :meth:`decompressor`."""

    def direct_files(self) -> DirectFiles | None:
        """Return the reader of files into device memory, or None if there is none here."""

    def free_bytes(self) -> int:
        """Return the bytes of device memory available to allocations now."""

    def __enter__(self) -> Any:
        """Make this the calling thread's device."""

    def __exit__(self, *exc: object) -> None:
        """Restore the thread's previous device."""
