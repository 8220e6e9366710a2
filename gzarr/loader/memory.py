"""The memory of a loader's batches: the host's, or that of a device, which runs behind the host.

On a device, an epoch is read on a stream of its own. A consumer's stream waits for the event of a batch before it uses
it, and the epoch's stream waits for an event of the consumer's before the memory of a batch is used again; the host
waits for neither.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..arrays.outputs import HOST, DeviceResults
from ..arrays.recycling import RecycledResults
from ..codecs.codec import ArrayRepresentation
from ..engines.cpu.threads import copying, fill_chunk
from ..engines.cuda.devices import get_device
from ..engines.cuda.handing_over import hand_over, leaves, wait_for
from ..engines.cuda.streams import BorrowedStream
from ..engines.cuda.uploads import uploaded
from ..errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..arrays.outputs import Results
    from ..engines.cuda.device_protocol import Device, Event, Stream
    from .pinned import PinnedResults


class Memory(Protocol):
    """Memory of the batches of one epoch.

    Attributes
    ----------
    results
        Makes and copies arrays, in order with the epoch's reads.
    stream
        Stream of the epoch's reads; None in host memory.
    """

    @property
    def results(self) -> Results:
        """As above."""

    stream: Any

    def slabs(self, nbytes: int, room: int) -> Any:
        """Return ``nbytes`` bytes or more to read slabs to; None if reads had better allocate memory themselves.

        Most slabs of an epoch take at most ``room`` bytes.
        """

    def constant(self, value: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
        """Return a read-only array of one value."""

    def copied(self, arrays: Mapping[str, Any], mark: Any) -> tuple[dict[str, Any], Any]:
        """Return copies of arrays by name, and the mark after which these are ready, and what was before ``mark``."""

    def transformed(self, function: Callable[[Any], Any], value: Any, mark: Any) -> tuple[Any, Any]:
        """Call a function with arrays that were made before ``mark``; return its result, and the mark after it."""

    def mark(self) -> Any:
        """Return a mark of the work that has been enqueued so far: an event on a device, None in host memory."""

    def hand_over(self, arrays: Any, mark: Any, stream: Any, *, copy: bool) -> Any:
        """Return arrays that a consumer's stream may use, made before ``mark``: the same ones, or copies.

        Parameters
        ----------
        arrays
            An array, or a dict, list or tuple of such; other objects are returned as they are.
        mark
            Mark after which the arrays are ready.
        stream
            The consumer's stream, as for :meth:`gzarr.Array.read`.
        copy
            Whether the consumer may keep the arrays. If not, they are valid until :meth:`take_back` or :meth:`close`.
        """

    def take_back(self, stream: Any) -> None:
        """Have the epoch's later work wait for what a consumer's stream has been given until now.

        The stream of the last :meth:`hand_over` is waited for, too.
        """

    def close(self) -> None:
        """Keep nothing for later arrays; those in use stay valid, but what was handed over without a copy."""


class HostMemory:
    """NumPy arrays: each batch has its own, in memory that no one uses any longer.

    Parameters
    ----------
    pinned
        Page-locked memory for batches; None for ordinary memory.
    """

    stream = None

    def __init__(self, pinned: PinnedResults | None = None) -> None:
        self._slabs = RecycledResults()
        self._pinned = pinned
        self.results: RecycledResults = self._slabs if pinned is None else pinned

    def slabs(self, nbytes: int, room: int) -> Any:
        """Return bytes; pages that are not written take no memory. Slabs are of one size, so it is used again."""
        results = self._slabs if nbytes <= room else HOST
        return results.empty((max(nbytes, room),), np.dtype(np.uint8))

    def constant(self, value: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
        """Return an array of one value, which is not to be changed; of objects that can be, of copies."""
        # Not np.array(value, dtype): a list or an array may be one object.
        filled = fill_chunk(value, ArrayRepresentation(shape, dtype))
        copy = copying(value, dtype)
        return filled if copy is None else copy(filled, out=np.empty(shape, object))

    def copied(self, arrays: Mapping[str, Any], mark: Any) -> tuple[dict[str, Any], Any]:
        """Return copies."""
        return _copies(arrays, self.results), None

    def transformed(self, function: Callable[[Any], Any], value: Any, mark: Any) -> tuple[Any, Any]:
        """Call the function."""
        return function(value), None

    def mark(self) -> None:
        """Return None: reads are complete when they return."""

    def hand_over(self, arrays: Any, mark: Any, stream: Any, *, copy: bool) -> Any:
        """Return the arrays: nothing else uses their memory."""
        return arrays

    def take_back(self, stream: Any) -> None:
        """Have page-locked memory that is no longer used wait for copies on the consumer's stream."""
        if self._pinned is not None:
            self._pinned.copied_on(stream)

    def close(self) -> None:
        """Free the memory of arrays that are no longer used."""
        self._slabs.close()


class DeviceMemory:
    """Arrays of a device.

    Parameters
    ----------
    device
        The device.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        with device:
            self._borrowed = BorrowedStream(device), BorrowedStream(device, "finishing")
        self.stream: Stream = self._borrowed[0].stream
        self._finishing: Stream = self._borrowed[1].stream
        self._own = self.stream, self._finishing
        self._pid = os.getpid()
        # Arrays that a consumer has without a copy, and its stream. Batches themselves are the consumer's to change.
        self._handed_over: tuple[list[Any], Stream] | None = None
        self.results: Results = DeviceResults(device, self.stream)
        self._constants: dict[bytes, Any] = {}

    def slabs(self, nbytes: int, room: int) -> None:
        """Return None: a device's memory is taken from a pool anyway, and all of it at once."""

    def constant(self, value: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
        """Return a read-only array of one value."""
        element = np.array(value, dtype).tobytes()
        with self._device as device:
            if element not in self._constants:
                self._constants[element] = uploaded(device, np.frombuffer(element, np.uint8), self.stream)
                self.stream.synchronize()
            return device.broadcast(device.shaped(self._constants[element], dtype, ()), shape)

    def copied(self, arrays: Mapping[str, Any], mark: Event) -> tuple[dict[str, Any], Event]:
        """Return copies that another stream makes, so that they need not wait for reads; later reads wait for them."""
        stream = self._finishing
        with self._device as device:
            stream.wait_event(mark)
            copies = _copies(arrays, DeviceResults(device, stream))
            return copies, wait_for(device, (self.stream,), stream, held=arrays) or mark

    def transformed(self, function: Callable[[Any], Any], value: Any, mark: Event) -> tuple[Any, Event]:
        """Call the function while another stream is CuPy's current one, so that reads need not wait for it."""
        stream = self._finishing
        # Held until reads wait: the function may take arrays out.
        given = leaves(value)
        with self._device as device, stream:
            stream.wait_event(mark)
            try:
                result = function(value)
            finally:
                # What the function was given may be freed now, for later reads: also if it failed.
                done = wait_for(device, (self.stream,), stream, held=given)
            return result, done or mark

    def mark(self) -> Event:
        """Return an event of the epoch's stream."""
        with self._device:
            return self.stream.record(self._device.event())

    def hand_over(self, arrays: Any, mark: Event, stream: Any, *, copy: bool) -> Any:
        """Return the arrays, or copies that belong to the consumer's stream."""
        with self._device as device:
            consumer = device.as_stream(stream)
            # In host memory there are no marks; here, a batch without one could be given out before it is read.
            consumer.wait_event(mark)
            if not copy:
                self._handed_over = leaves(arrays), consumer
                return arrays
            return hand_over(device, arrays, self._own, consumer)

    def take_back(self, stream: Any) -> None:
        """Have the epoch's streams wait for the consumer's."""
        if self._handed_over is None or os.getpid() != self._pid:
            return
        with self._device as device:
            # If this stream is refused, the consumer still has the arrays.
            consumer = device.as_stream(stream)
            arrays, before = self._handed_over
            try:
                for one in (before, consumer):
                    wait_for(device, self._own, one, held=arrays)
            finally:
                # Not before: other threads take memory that is free, for work that then would not wait.
                self._handed_over = None

    def close(self) -> None:
        """Give the streams back, with the memory that the device's pool keeps for them.

        Reads that still run on them do no harm: whoever has them next only waits for these, and for a consumer that
        still uses its last batch.
        """
        try:
            if self._handed_over is not None:
                # Of a lost device, nothing is used again.
                with contextlib.suppress(DeviceError):
                    self.take_back(self._handed_over[1])
        finally:
            for borrowed in self._borrowed:
                borrowed.give_back()


def _copies(arrays: Mapping[str, Any], results: Results) -> dict[str, Any]:
    copies = {}
    for name, array in arrays.items():
        copies[name] = results.empty(array.shape, array.dtype)
        results.copy(copies[name], array)
    return copies


def memory_of(device: str, pinned: PinnedResults | None = None) -> Memory:
    """Return memory of a device, ``"cpu"`` or ``"cuda:N"``; in host memory, batches may be in page-locked memory."""
    return HostMemory(pinned) if device == "cpu" else DeviceMemory(get_device(device))
