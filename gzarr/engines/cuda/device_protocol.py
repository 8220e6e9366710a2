"""What the engine needs of a device: memory, streams, kernels, batched decoders and encoders.

:class:`gzarr.engines.cuda.cupy_device.CupyDevice` is the real one; the tests bring a simulated one with the same
interface. Nothing else of the engine knows which it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from .loss import Loss


class Event(Protocol):
    """A point in a stream."""

    @property
    def done(self) -> bool:
        """Whether the stream has passed it; asks without waiting. True where it was never recorded."""

    def synchronize(self) -> None:
        """Wait on the host until the stream has passed it."""


class Stream(Protocol):
    """Work that runs in order; what is enqueued runs later (``cupy.cuda.Stream`` has this interface).

    What it and its events call of CUDA raises DeviceError if it fails.
    """

    def record(self, event: Any) -> Any:
        """Put an event behind everything enqueued so far."""

    def wait_event(self, event: Any) -> Any:
        """Let everything enqueued from now on wait for an event of another stream."""

    def synchronize(self) -> None:
        """Wait on the host until everything enqueued has run."""


class Decompressor(Protocol):
    """Decodes a batch of independent frames on the device: one algorithm of nvCOMP.

    Of a frame that does not decode, the status says so at best: all algorithms but LZ4 are undefined on corrupt bytes.

    Attributes
    ----------
    input_alignment, output_alignment, temp_alignment
        Of each compressed frame, each decoded frame, and the scratch, in bytes.
    max_frame_bytes
        Largest decoded frame.
    """

    input_alignment: int
    output_alignment: int
    temp_alignment: int
    max_frame_bytes: int

    def temp_nbytes(self, frames: int, largest: int, total: int) -> int:
        """Return the scratch that a batch takes: number of frames, bytes of the largest decoded, of all decoded."""

    def run(
        self,
        stream: Any,
        *,
        frames: int,
        largest: int,
        sources: int,
        source_nbytes: int,
        targets: int,
        target_nbytes: int,
        produced: int,
        statuses: int,
        temp: int,
        temp_nbytes: int,
    ) -> None:
        """Enqueue one batch; every address is one of device memory.

        Parameters
        ----------
        frames, largest
            Number of frames; bytes of the largest decoded.
        sources, source_nbytes, targets, target_nbytes
            int64 ``(frames,)`` each: address and size of each compressed frame and of the memory it decodes to.
        produced
            int64 ``(frames,)``, written: bytes that each frame gave.
        statuses
            int32 ``(frames,)``, written: 0 for success.
        temp, temp_nbytes
            Scratch.

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
        Of each frame before and after compression, and of the scratch, in bytes.
    max_frame_bytes
        Largest frame before compression.
    """

    input_alignment: int
    output_alignment: int
    temp_alignment: int
    max_frame_bytes: int

    def temp_nbytes(self, frames: int, largest: int, total: int) -> int:
        """Return the scratch that a batch takes: number of frames, bytes of the largest, bytes of all, uncompressed."""

    def max_encoded_nbytes(self, largest: int) -> int:
        """Return the most bytes that a frame takes of which that many, at most, are compressed."""

    def run(
        self,
        stream: Any,
        *,
        frames: int,
        largest: int,
        sources: int,
        source_nbytes: int,
        targets: int,
        produced: int,
        statuses: int,
        temp: int,
        temp_nbytes: int,
    ) -> None:
        """Enqueue one batch; every address is one of device memory.

        Parameters
        ----------
        frames, largest
            Number of frames; bytes of the largest, uncompressed.
        sources, source_nbytes, targets
            int64 ``(frames,)`` each: address and size of each frame, and address of ``max_encoded_nbytes(largest)``
            bytes for what it becomes.
        produced
            int64 ``(frames,)``, written: bytes that each frame became.
        statuses
            int32 ``(frames,)``, written: 0 for success.
        temp, temp_nbytes
            Scratch.

        Raises
        ------
        DeviceError
            If the batch cannot be enqueued.
        """


class DirectFile(Protocol):
    """An open file; many threads read from it at once."""

    def size(self) -> int:
        """Return its bytes."""

    def read(self, target: Any, offset: int) -> int:
        """Fill uint8 device memory ``(n,)`` from ``offset`` on; it is there when this returns.

        The calling thread's device must be that of the memory. This is in no order with any stream: nothing that is
        enqueued may use the memory.

        Returns
        -------
        Bytes that were read: fewer at the file's end.

        Raises
        ------
        DeviceError
            If it cannot be read.
        """

    def close(self) -> None:
        """Close it; nobody may be reading."""


class DirectFiles(Protocol):
    """Reads files into device memory, past host memory."""

    def open(self, path: str) -> DirectFile:
        """Open a file.

        Raises
        ------
        DeviceError
            If it cannot be opened, for whatever reason.
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
        """What ended this process's use of the device, or None.

        Once it is set, every method that would call CUDA raises a DeviceError, and so does entering the device.
        """

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any], stream: Any) -> Any:
        """Return a new C-contiguous array on the device for a caller (CuPy's allocator, in order with ``stream``).

        Raises
        ------
        MemoryError
            If the device has no room.
        """

    def is_array(self, value: Any) -> bool:
        """Return whether a value is an array of this device (``cupy.ndarray``) that the engine can write to."""

    def as_array(self, value: Any, stream: Any) -> Any:
        """Return a value that is on this device as an array of its library, without a copy; None if it is not.

        Takes what exports ``__dlpack__`` or ``__cuda_array_interface__``; it is there when ``stream`` has run what is
        enqueued then.
        """

    def converted(self, array: Any, dtype: np.dtype[Any], stream: Any) -> Any:
        """Return a new array of another type."""

    def broadcast(self, array: Any, shape: tuple[int, ...]) -> Any:
        """Return a view of another shape, as ``numpy.broadcast_to``; ValueError if there is none."""

    def to_host(self, array: Any, stream: Any) -> npt.NDArray[Any]:
        """Return a copy in host memory of what an array of any strides holds when ``stream`` has run."""

    def allocate(self, nbytes: int, stream: Any) -> Any:
        """Return uint8 device memory ``(nbytes,)``, aligned to 256 bytes.

        It goes back when it is let go of, in order with ``stream``.
        """

    def free_cached(self, stream: Any) -> None:
        """Give the driver back what the allocator keeps of a stream's memory; the stream must have run."""

    def pinned(self, nbytes: int) -> npt.NDArray[np.uint8]:
        """Return page-locked host memory, aligned to 64 bytes at least; it goes back when it is let go of."""

    def address(self, array: Any) -> int:
        """Return the device address of an array's first element."""

    def shaped(self, memory: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
        """Return contiguous uint8 device memory as an array."""

    def flat(self, array: Any) -> tuple[Any, int]:
        """Return the memory of a device array of any strides, from its lowest to its highest byte.

        Returns
        -------
        1-d uint8 device memory, and the offset of the array's first element in it.
        """

    def stream(self) -> Any:
        """Return a new stream, which does not wait for the default one."""

    def current_stream(self) -> Any:
        """Return the stream that the caller's library works on now."""

    def as_stream(self, stream: Any) -> Any:
        """Return a caller's stream: of CuPy or PyTorch, anything with ``__cuda_stream__``, or an address.

        Raises
        ------
        ArgumentError
            If it is none of these.
        """

    def event(self) -> Any:
        """Return a new event."""

    def copy_in(self, target: Any, source: npt.NDArray[Any], stream: Any) -> None:
        """Enqueue a copy from page-locked memory to contiguous device memory of the same number of bytes."""

    def copy_out(self, target: npt.NDArray[Any], source: Any, stream: Any) -> None:
        """Enqueue a copy from contiguous device memory to page-locked memory of the same number of bytes."""

    def copy_array(self, target: Any, source: Any, stream: Any) -> None:
        """Enqueue ``target[...] = source`` for device arrays of one shape and type, any strides."""

    def launch(self, kernel: Any, blocks: int, threads: int, stream: Any, *arguments: int, word: int = 0) -> None:
        """Enqueue a kernel of ``gzarr_kernels.device``.

        Parameters
        ----------
        kernel, blocks, threads, stream
            What, how many of it, and where.
        arguments
            Addresses of device memory, aligned to the elements that the kernel takes it for, and integers.
        word
            Bytes of the words of a kernel that takes memory in words.

        Raises
        ------
        DeviceError
            If it cannot be compiled or enqueued.
        """

    def decompressor(self, algorithm: str) -> Decompressor | None:
        """Return the decoder of an algorithm, or None if there is none.

        Parameters
        ----------
        algorithm
            ``"zstd"``, ``"lz4"``, ``"snappy"``, ``"deflate"`` or ``"gdeflate"``.
        """

    def compressor(self, algorithm: str) -> Compressor | None:
        """Return the encoder of an algorithm, or None if there is none; algorithms as for :meth:`decompressor`."""

    def direct_files(self) -> DirectFiles | None:
        """Return what reads files into device memory past host memory, or None if nothing here does."""

    def free_bytes(self) -> int:
        """Return the device memory that an allocation could have now."""

    def __enter__(self) -> Any:
        """Make this the calling thread's device."""

    def __exit__(self, *exc: object) -> None:
        """Restore what it was."""
