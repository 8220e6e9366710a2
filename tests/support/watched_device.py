"""The device of CuPy over CUDA in host memory, with what tests look at: calls, memory that is held, failures."""

from __future__ import annotations

import ctypes
import threading
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from gzarr.engines.cuda.cupy_device import CupyDevice

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterator

    import numpy as np
    import numpy.typing as npt
    from support.cuda_on_host.whole import WholeCuda
    from support.files_past_host import FilesPastHost


class _Held:
    """Memory of the device that is held for as long as this is referenced."""

    __slots__ = ("_device", "_nbytes")

    def __init__(self, device: WatchedDevice, nbytes: int) -> None:
        self._device, self._nbytes = device, nbytes
        device.scratch += nbytes

    def __del__(self) -> None:
        self._device.scratch -= self._nbytes


#: A wait for a stream that is held back fails a test after this time.
_GATE_SECONDS: Final = 10.0


class Gate:
    """A point in a stream that the stream does not pass before it is told to; see :meth:`WatchedDevice.held_back`."""

    def __init__(self) -> None:
        self._opened, self._passed = threading.Event(), threading.Event()
        self._timer: threading.Timer | None = None
        self._late = False

    @property
    def passed(self) -> bool:
        """Whether the stream has passed it."""
        return self._passed.is_set()

    def open(self) -> None:
        """Let the stream run."""
        self._opened.set()

    def open_after(self, seconds: float) -> None:
        """Let the stream run some time from now, while the calling thread may wait for it."""
        self._timer = threading.Timer(seconds, self.open)
        self._timer.start()

    def wait(self) -> None:
        """Hold the stream back; called by the stream."""
        self._late = not self._opened.wait(_GATE_SECONDS)
        self._passed.set()

    def close(self) -> None:
        """Let the stream run, and check that nobody has waited for it until then."""
        self._opened.set()
        if self._timer is not None:
            self._timer.join()
        assert not self._late, "somebody waited for a stream that was held back"


class WatchedDevice(CupyDevice):
    """A device for :func:`gzarr.engines.cuda.devices.use`.

    Parameters
    ----------
    ordinal
        Number of the device.
    cuda
        What it runs on.

    Attributes
    ----------
    counts
        Calls by name: ``"copy_in"``, ``"copy_out"``, ``"copy_array"``, ``"free_bytes"``, ``"launch KERNEL"``; and what
        nvCOMP did: ``"batches zstd"``, ``"frames zstd"``, ``"encoded frames zstd"``.
    scratch
        Bytes of device memory that the engine holds besides results.
    peak
        Maximum of :attr:`held` since :meth:`reset_peak`.
    direct
        Reader of files past host memory, None for none.
    """

    def __init__(self, ordinal: int, cuda: WholeCuda) -> None:
        super().__init__(ordinal)
        self.cuda = cuda
        self.counts: Counter[str] = cuda.nvcomp.counts
        self.scratch = self.peak = 0
        # Streams that failed in earlier tests keep theirs.
        self._pinned_before = cuda.host.held(None)
        self.direct: FilesPastHost | None = None
        self._failing = 0
        self._failing_kind = ""
        self._thread = threading.local()

    # -- for tests

    @property
    def held(self) -> int:
        """Device and page-locked bytes that the engine holds besides results."""
        return self.scratch + max(self.cuda.host.held(None) - self._pinned_before, 0)

    def reset_peak(self) -> None:
        """Begin a new maximum."""
        self.peak = self.held

    @property
    def capacity(self) -> int:
        """Bytes of the device's memory."""
        return int(self.cuda.host.library.coh_capacity(self.ordinal))

    @capacity.setter
    def capacity(self, nbytes: int) -> None:
        self.cuda.host.set_capacity(nbytes, self.ordinal)

    @property
    def given(self) -> list[tuple[str, bytes, int]] | None:
        """If a list, it collects the frames given to decoders: algorithm, encoded bytes, decoded size."""
        return self.cuda.nvcomp.given

    @given.setter
    def given(self, frames: list[tuple[str, bytes, int]] | None) -> None:
        self.cuda.nvcomp.given = frames

    @property
    def refuse(self) -> Callable[[str, int], bool]:
        """Function of an algorithm and a frame's index: whether its decoder or encoder reports an error."""
        return self.cuda.nvcomp.refuse

    @refuse.setter
    def refuse(self, refuse: Callable[[str, int], bool]) -> None:
        self.cuda.nvcomp.refuse = refuse

    @property
    def kills(self) -> Callable[[str, bytes], bool]:
        """Function of an algorithm and a frame: whether decoding it ends the context."""
        return self.cuda.nvcomp.kills

    @kills.setter
    def kills(self, kills: Callable[[str, bytes], bool]) -> None:
        self.cuda.nvcomp.kills = kills

    @contextmanager
    def held_back(self, stream: Any) -> Iterator[Gate]:
        """Hold a stream back until the gate that this gives is opened, at the latest at the end of the block."""
        gate = Gate()
        self.cuda.enqueue(stream.cupy, gate.wait)
        try:
            yield gate
        finally:
            gate.close()

    def bytes_now(self, array: Any) -> bytes:
        """Return what is now in the memory of a contiguous array, whatever its streams have still to do."""
        return ctypes.string_at(array.data.ptr, array.nbytes)

    def fail_allocation(self, nth: int = 1, kind: str = "") -> None:
        """Make the ``nth`` allocation of a kind from now on fail: ``"result"``, ``"arena"``, ``"pinned"``."""
        self._failing, self._failing_kind = nth, kind

    # -- calls that are counted

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any], stream: Any) -> Any:
        kind = getattr(self._thread, "kind", "result")
        return self._allocated(kind, partial(super().empty, shape, dtype, stream))

    def allocate(self, nbytes: int, stream: Any) -> Any:
        self._thread.kind = "arena"
        try:
            array = super().allocate(nbytes, stream)
        finally:
            del self._thread.kind
        if nbytes:
            array.data.mem.held = _Held(self, nbytes)
            array.data.mem.stream = stream
        self.peak = max(self.peak, self.held)
        return array

    def pinned(self, nbytes: int) -> npt.NDArray[np.uint8]:
        array = self._allocated("pinned", partial(super().pinned, nbytes))
        self.peak = max(self.peak, self.held)
        return array

    def _allocated(self, kind: str, allocate: Callable[[], Any]) -> Any:
        """Allocate; if this is the allocation that is to fail, CUDA has no memory, and CuPy none of its own."""
        if self._failing and self._failing_kind in ("", kind):
            self._failing -= 1
            if not self._failing:
                import cupy

                cupy.get_default_memory_pool().free_all_blocks()
                self.cuda.host.fail("allocate", times=-1)
                try:
                    return allocate()
                finally:
                    self.cuda.host.clear_faults()
        return allocate()

    def copy_in(self, target: Any, source: Any, stream: Any) -> None:
        self.counts["copy_in"] += 1
        super().copy_in(target, source, stream)

    def copy_out(self, target: Any, source: Any, stream: Any) -> None:
        self.counts["copy_out"] += 1
        super().copy_out(target, source, stream)

    def copy_array(self, target: Any, source: Any, stream: Any) -> None:
        self.counts["copy_array"] += 1
        super().copy_array(target, source, stream)

    def launch(self, kernel: Any, blocks: int, threads: int, stream: Any, *arguments: int, word: int = 0) -> None:
        self.counts[f"launch {kernel.py_func.__name__}"] += 1
        super().launch(kernel, blocks, threads, stream, *arguments, word=word)

    def free_bytes(self) -> int:
        self.counts["free_bytes"] += 1
        return super().free_bytes()

    def direct_files(self) -> Any:
        return self.direct
