"""Slots: the stream, page-locked memory and events of a wave. They are kept between reads, since they are slow to make.

Device memory is not kept here: each wave gets it from CuPy's allocator and returns it in order with the slot's stream.
If kernels on a caller's stream still read that memory, the slot's stream has to wait for them before anything enqueued
on it later: the slot is *gated* until they have run. Gated slots are not taken, so that a read does not wait for a
caller's earlier work. But a host far ahead of its device shall not hold more and more memory: if
:data:`MAX_IDLE_SLOTS` are gated, or their memory and that of the new wave are together more than a read may hold, the
oldest is taken.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ...errors import DeviceError
from ...guarded import Lock
from . import streams
from .abandoned import abandon
from .budget import DEFAULT_BYTES

if TYPE_CHECKING:
    import numpy.typing as npt

    from .budget import Budget
    from .device_protocol import Device, Event, Stream

#: Most page-locked bytes that all idle slots of a device keep together.
MAX_IDLE_PINNED_BYTES: Final = 2 << 30
#: Most bytes of the device that the allocator keeps for all its idle slots: as many as one read takes by default.
MAX_IDLE_DEVICE_BYTES: Final = DEFAULT_BYTES
#: Most idle slots that are kept for a device.
MAX_IDLE_SLOTS: Final = 16


class Slot:
    """Stream, page-locked memory and events for one wave at a time.

    Attributes
    ----------
    stream
        Stream for copying and decoding.
    decoded, assembled
        Events: the statuses are on the host; the results are written.
    gated
        Whether the stream waits for ``assembled``.
    arena_bytes, device_bytes
        Device memory of the largest wave; and about all that the allocator keeps for the slot's stream.
    """

    __slots__ = (
        "_borrowed", "_device", "_pinned", "_results", "arena_bytes", "assembled", "decoded", "device_bytes", "gated",
        "stream",
    )  # fmt: skip

    def __init__(self, device: Device) -> None:
        self._device = device
        self._borrowed = streams.BorrowedStream(device)
        self.stream: Stream = self._borrowed.stream
        self.decoded: Event = device.event()
        self.assembled: Event = device.event()
        self.gated: bool = False
        self.arena_bytes: int = 0
        self.device_bytes: int = 0
        self._pinned: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
        self._results: npt.NDArray[np.uint8] = np.empty(0, np.uint8)

    @property
    def nbytes(self) -> int:
        """Page-locked bytes held."""
        return self._pinned.size + self._results.size

    def staging(self, nbytes: int) -> npt.NDArray[np.uint8]:
        """Return page-locked memory of ``nbytes`` for copies to the device."""
        if self._pinned.size < nbytes:
            # Free the old memory first, so that both are never held.
            self._pinned = np.empty(0, np.uint8)
            self._pinned = self._device.pinned(nbytes)
        return self._pinned[:nbytes]

    def results(self, nbytes: int) -> npt.NDArray[np.uint8]:
        """Return page-locked memory of ``nbytes`` for copies from the device."""
        if self._results.size < nbytes:
            self._results = np.empty(0, np.uint8)
            self._results = self._device.pinned(nbytes)
        return self._results[:nbytes]

    def allocate(self, nbytes: int) -> Any:
        """Return device memory in order with the stream, once that of the wave before is not referenced any more."""
        memory = self._device.allocate(nbytes, self.stream)
        if nbytes > self.arena_bytes:
            # The allocator keeps smaller blocks beside it.
            self.device_bytes += nbytes
            self.arena_bytes = nbytes
        return memory

    def free_cached(self) -> None:
        """Free the device memory that the allocator keeps for the stream; waits for it."""
        self.stream.synchronize()
        self._device.free_cached(self.stream)
        self.arena_bytes = self.device_bytes = 0

    def close(self) -> None:
        """Give the stream back; the slot is not used any more."""
        self._borrowed.close()

    def gate(self, stream: Any) -> None:
        """Make later work on the slot's stream wait for everything enqueued on another stream so far."""
        stream.record(self.assembled)
        self.stream.wait_event(self.assembled)
        self.gated = True

    def is_free(self) -> bool:
        """Return whether the slot's stream waits for no other stream; does not block."""
        if self.gated and self.assembled.done:
            self.gated = False
        return not self.gated

    def shrink(self, staging: int, results: int) -> None:
        """Free page-locked memory beyond these bytes for copies to the device, and from it."""
        if self._pinned.size > staging:
            self._pinned = np.empty(0, np.uint8)
        if self._results.size > results:
            self._results = np.empty(0, np.uint8)


#: Idle slots by device, in the order in which they were given back.
_idle: dict[str, list[Slot]] = {}
_lock = Lock()
#: Slots with failed streams, each with the device memory that may still be in use: its own, and that of callers.
_unusable: list[tuple[Slot, Any]] = []


def take(
    device: Device, nbytes: int, most: tuple[int, int] | None = None, arena_bytes: int = 0, budget: Budget | None = None
) -> Slot:
    """Return an idle slot that is not gated, or a new one; if too many are gated, one of them.

    Give it back with :func:`give_back` when the host has waited for all copies from and to its page-locked memory.

    Parameters
    ----------
    device
        Device of the slot.
    nbytes
        Bytes of page-locked memory that will be requested: the smallest slot that has them is preferred.
    most
        Most bytes of page-locked memory that the slot may hold for copies to the device, and from it; None for no
        limit.
    arena_bytes
        Device memory that will be requested.
    budget
        Limit on that and the memory of gated slots; None for no limit.
    """
    is_full = False
    with _lock:
        kept = _idle.get(device.name, [])
        free = [slot for slot in kept if slot._device is device and slot.is_free()]
        fitting = [slot for slot in free if slot.nbytes >= nbytes]
        slot = min(fitting, key=_nbytes) if fitting else max(free, key=_nbytes, default=None)
        gated = [one for one in kept if one._device is device] if slot is None else []
        if gated and budget is not None:
            is_full = not budget.allows(sum(one.device_bytes for one in gated) + arena_bytes)
        if is_full or len(gated) >= MAX_IDLE_SLOTS:
            # The oldest, of those whose memory is large enough if there are some.
            slot = next((one for one in gated if one.arena_bytes >= arena_bytes), gated[0])
        if slot is not None:
            kept.remove(slot)
    if slot is None:
        return Slot(device)
    if is_full and slot.arena_bytes < arena_bytes:
        try:
            slot.free_cached()
        except BaseException:
            _unusable.append((slot, None))
            raise
    if most is not None:
        slot.shrink(*most)
    return slot


def give_back(device: Device, slot: Slot) -> None:
    """Keep a slot for the next read, unless enough is kept already."""
    with _lock:
        kept = _idle.setdefault(device.name, [])
        kept.append(slot)
        dropped = []
        while (
            len(kept) > MAX_IDLE_SLOTS
            or sum(map(_nbytes, kept)) > MAX_IDLE_PINNED_BYTES
            # A read that may hold more takes the last one again.
            or (len(kept) > 1 and sum(one.device_bytes for one in kept) > MAX_IDLE_DEVICE_BYTES)
        ):
            # Drop the oldest that is not gated: nothing has to be waited for.
            oldest = next((one for one in kept if one.is_free()), None)
            if oldest is None:
                # All streams have to live on. Nothing uses their page-locked memory, but CUDA frees it only when
                # everything on the device has run, callers' streams included.
                if sum(map(_nbytes, kept)) > MAX_IDLE_PINNED_BYTES:
                    for one in kept:
                        one.shrink(0, 0)
                break
            kept.remove(oldest)
            dropped.append(oldest)
    for one in dropped:
        _drop(one)


def _drop(slot: Slot) -> None:
    """Wait for a slot, free the blocks that the allocator keeps for its stream, and give that one back."""
    try:
        with slot._device:
            slot.free_cached()
            slot.close()
    except DeviceError:
        _unusable.append((slot, None))
        raise


def settle(device: Device, slot: Slot, stream: Any = None, memory: Any = None) -> None:
    """Give a slot back after an error, once its stream has run; raises nothing.

    A slot whose stream fails is never used again, nor is one if nothing can wait for ``stream``: work that is enqueued
    may still use its memory.

    Parameters
    ----------
    device, slot
        The slot, and its device.
    stream
        Stream on which kernels may be enqueued that read ``memory``; None if there is none.
    memory
        Device memory that work on the slot's stream uses; kept for ever if that cannot be waited for.
    """
    try:
        slot.stream.synchronize()
        if stream is not None:
            try:
                slot.gate(stream)
            except DeviceError:
                # What the device cannot wait for, the host may.
                stream.synchronize()
    except BaseException:  # an error is being raised already
        _unusable.append((slot, memory))
        return
    with contextlib.suppress(DeviceError):
        give_back(device, slot)


def _nbytes(slot: Slot) -> int:
    return slot.nbytes


def release() -> None:
    """Free all idle slots and their memory; waits for gated ones."""
    with _lock:
        idle = [slot for kept in _idle.values() for slot in kept]
        _idle.clear()
    errors = []
    for slot in idle:
        try:
            _drop(slot)
        except DeviceError as error:
            # Nothing can be returned to a lost device.
            if slot._device.lost is None:
                errors.append(error)
    if errors:
        raise errors[0]


def _forget() -> None:
    global _lock
    _lock = Lock()
    abandon(_idle, _unusable)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
