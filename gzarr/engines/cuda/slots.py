"""What a wave needs: a stream, page-locked memory, events. Kept from read to read, since they are slow to make.

Device memory is not kept here: it comes from CuPy's allocator for each read, and goes back to it in stream order.
"""

from __future__ import annotations

import os
import threading
from collections import deque
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
    """

    __slots__ = ("_device", "_pinned", "_results", "assembled", "decoded", "stream")

    def __init__(self, device: Device) -> None:
        self._device = device
        self.stream: Any = device.stream()
        self.decoded: Any = device.event()
        self.assembled: Any = device.event()
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

    def shrink(self, nbytes: int) -> None:
        """Let go of page-locked memory if there is more than ``nbytes``."""
        if self.nbytes > nbytes:
            self._pinned = np.empty(0, np.uint8)
            self._results = np.empty(0, np.uint8)


_idle: dict[str, deque[Slot]] = {}
_lock = threading.Lock()


def take(device: Device, most_nbytes: int) -> Slot:
    """Return an idle slot of a device, or a new one; it holds at most ``most_nbytes`` of page-locked memory.

    Give it back with :func:`give_back` when its stream has run what was enqueued.
    """
    try:
        slot = _idle[device.name].pop()
    except (KeyError, IndexError):
        return Slot(device)
    if slot._device is not device:
        return take(device, most_nbytes)
    slot.shrink(most_nbytes)
    return slot


def give_back(device: Device, slot: Slot) -> None:
    """Keep a slot for the next read, unless enough is kept already."""
    with _lock:
        kept = _idle.setdefault(device.name, deque())
        if len(kept) < KEEP_SLOTS and slot.nbytes + sum(other.nbytes for other in tuple(kept)) <= KEEP_PINNED_BYTES:
            kept.append(slot)


def release() -> None:
    """Let go of all idle slots and their memory."""
    _idle.clear()


def _forget() -> None:
    global _lock
    _lock = threading.Lock()
    # What belongs to the parent's CUDA context must not even be freed here.
    _abandoned.append(dict(_idle))
    _idle.clear()


_abandoned: list[dict[str, deque[Slot]]] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
