"""What a wave needs: a stream, page-locked memory, events. Kept from read to read, since they are slow to make.

Device memory is not kept here: it comes from CuPy's allocator for each wave, and goes back to it in the order of the
slot's stream. Where kernels on a caller's stream still read it then, that stream has to wait for them first, and so
has all that comes after: a slot is *gated* until they have run. Gated slots are not taken, so that a read never waits
for what the caller has enqueued before another one.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from .device import Device

#: Page-locked bytes that all idle slots of a device keep together, at most.
KEEP_PINNED_BYTES: Final = 1 << 30
#: Slots of a device that are kept, at most.
KEEP_SLOTS: Final = 16


class Slot:
    """One wave at a time.

    Attributes
    ----------
    stream
        On which it is copied and decoded.
    decoded, assembled
        Events: the statuses are on the host; the results are written.
    gated
        Whether the stream waits for ``assembled``.
    """

    __slots__ = ("_device", "_pinned", "_results", "assembled", "decoded", "gated", "stream")

    def __init__(self, device: Device) -> None:
        self._device = device
        self.stream: Any = device.stream()
        self.decoded: Any = device.event()
        self.assembled: Any = device.event()
        self.gated = False
        self._pinned: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
        self._results: npt.NDArray[np.uint8] = np.empty(0, np.uint8)

    @property
    def nbytes(self) -> int:
        """Page-locked bytes that it holds."""
        return self._pinned.size + self._results.size

    def staging(self, nbytes: int) -> npt.NDArray[np.uint8]:
        """Return page-locked memory of ``nbytes`` for what goes to the device."""
        if self._pinned.size < nbytes:
            # The old goes first, so that both are never held.
            self._pinned = np.empty(0, np.uint8)
            self._pinned = self._device.pinned(nbytes)
        return self._pinned[:nbytes]

    def results(self, nbytes: int) -> npt.NDArray[np.uint8]:
        """Return page-locked memory of ``nbytes`` for what comes back."""
        if self._results.size < nbytes:
            self._results = np.empty(0, np.uint8)
            self._results = self._device.pinned(nbytes)
        return self._results[:nbytes]

    def gate(self, stream: Any) -> None:
        """Let what is enqueued on the slot's stream from now on wait for all that is enqueued on another one."""
        stream.record(self.assembled)
        self.stream.wait_event(self.assembled)
        self.gated = True

    def is_free(self) -> bool:
        """Return whether the slot's stream waits for nothing; asks without waiting."""
        if self.gated and self.assembled.done:
            self.gated = False
        return not self.gated

    def shrink(self, nbytes: int) -> None:
        """Let go of page-locked memory if there is more than ``nbytes``."""
        if self.nbytes > nbytes:
            self._pinned = np.empty(0, np.uint8)
            self._results = np.empty(0, np.uint8)


#: By device, those that are in no read, the one that was given back last behind all others.
_idle: dict[str, list[Slot]] = {}
_lock = threading.Lock()


def take(device: Device, nbytes: int, most_nbytes: int | None = None) -> Slot:
    """Return an idle slot of a device that waits for nothing, or a new one.

    Give it back with :func:`give_back` when the host has waited for all copies from and to its page-locked memory.

    Parameters
    ----------
    device
        Whose it is.
    nbytes
        Page-locked memory that is going to be asked for: of several slots the smallest that has it is taken.
    most_nbytes
        Page-locked memory that the slot may hold, at most; any if not given.
    """
    with _lock:
        kept = _idle.get(device.name, [])
        free = [slot for slot in kept if slot._device is device and slot.is_free()]
        fitting = [slot for slot in free if slot.nbytes >= nbytes]
        slot = min(fitting, key=_nbytes) if fitting else max(free, key=_nbytes, default=None)
        if slot is not None:
            kept.remove(slot)
    if slot is None:
        return Slot(device)
    if most_nbytes is not None:
        slot.shrink(most_nbytes)
    return slot


def give_back(device: Device, slot: Slot) -> None:
    """Keep a slot for the next read, unless enough is kept already."""
    with _lock:
        kept = _idle.setdefault(device.name, [])
        kept.append(slot)
        dropped = []
        while len(kept) > KEEP_SLOTS or sum(map(_nbytes, kept)) > KEEP_PINNED_BYTES:
            # The oldest that waits for nothing: CuPy knows freed memory by the address of the stream that it is in
            # order with, and a new stream may get the address of this one.
            oldest = next((one for one in kept if one.is_free()), None)
            if oldest is None:
                # Their streams have to live on; their page-locked memory is in use by nobody.
                for one in kept:
                    one.shrink(0)
                break
            kept.remove(oldest)
            dropped.append(oldest)
    for one in dropped:
        _drop(one)


def _drop(slot: Slot) -> None:
    """Wait for a slot, and free what the device's allocator keeps for its stream, which nothing else would use."""
    with slot._device as device:
        slot.stream.synchronize()
        device.free_cached(slot.stream)


def _nbytes(slot: Slot) -> int:
    return slot.nbytes


def release() -> None:
    """Let go of all idle slots and their memory; those that wait for something are waited for."""
    with _lock:
        idle = [slot for kept in _idle.values() for slot in kept]
        _idle.clear()
    for slot in idle:
        _drop(slot)


def _forget() -> None:
    global _lock
    _lock = threading.Lock()
    # What belongs to the parent's CUDA context must not even be freed here.
    _abandoned.append(dict(_idle))
    _idle.clear()


_abandoned: list[dict[str, list[Slot]]] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
