"""What a wave needs: a stream, page-locked memory, events. Kept from read to read, since they are slow to make.

Device memory is not kept here: it comes from CuPy's allocator for each wave, and goes back to it in the order of the
slot's stream. Where kernels on a caller's stream still read it then, that stream has to wait for them first, and so
has all that comes after: a slot is *gated* until they have run. Gated slots are not taken, so that a read does not wait
for what the caller has enqueued before another one; but where :data:`KEEP_SLOTS` are gated, the oldest is, so that a
host far ahead of its device does not hold more and more memory.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ...errors import DeviceError

if TYPE_CHECKING:
    import numpy.typing as npt

    from .device_protocol import Device

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

    def shrink(self, staging: int, results: int) -> None:
        """Let go of page-locked memory of which there is more: for what goes to the device, and for what comes back."""
        if self._pinned.size > staging:
            self._pinned = np.empty(0, np.uint8)
        if self._results.size > results:
            self._results = np.empty(0, np.uint8)


#: By device, those that are in no read, the one that was given back last behind all others.
_idle: dict[str, list[Slot]] = {}
_lock = threading.Lock()
#: Slots whose streams have failed, each with the device memory that may still be in use.
_unusable: list[tuple[Slot, Any]] = []


def take(device: Device, nbytes: int, most: tuple[int, int] | None = None) -> Slot:
    """Return an idle slot of a device that waits for nothing, or a new one; of too many that wait, the oldest.

    Give it back with :func:`give_back` when the host has waited for all copies from and to its page-locked memory.

    Parameters
    ----------
    device
        Whose it is.
    nbytes
        Page-locked memory that is going to be asked for: of several slots the smallest that has it is taken.
    most
        Page-locked memory that the slot may hold, at most: for what goes to the device, and for what comes back; any if
        not given.
    """
    with _lock:
        kept = _idle.get(device.name, [])
        free = [slot for slot in kept if slot._device is device and slot.is_free()]
        fitting = [slot for slot in free if slot.nbytes >= nbytes]
        slot = min(fitting, key=_nbytes) if fitting else max(free, key=_nbytes, default=None)
        gated = [one for one in kept if one._device is device] if slot is None else []
        if len(gated) >= KEEP_SLOTS:
            slot = gated[0]
        if slot is not None:
            kept.remove(slot)
    if slot is None:
        return Slot(device)
    if most is not None:
        slot.shrink(*most)
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
                    one.shrink(0, 0)
                break
            kept.remove(oldest)
            dropped.append(oldest)
    for one in dropped:
        _drop(one)


def _drop(slot: Slot) -> None:
    """Wait for a slot, and free what the device's allocator keeps for its stream, which nothing else would use."""
    try:
        with slot._device as device:
            slot.stream.synchronize()
            device.free_cached(slot.stream)
    except DeviceError:
        _unusable.append((slot, None))
        raise


def settle(device: Device, slot: Slot, stream: Any = None, memory: Any = None) -> None:
    """Give a slot back after an error, when its stream has run; raises nothing itself.

    One whose stream fails is kept from everybody for ever: what was enqueued there may still use its memory.

    Parameters
    ----------
    device, slot
        Which, of which device.
    stream
        On which kernels may be enqueued that read ``memory``; None if there is none.
    memory
        Of the device, in order with the slot's stream.
    """
    try:
        slot.stream.synchronize()
        if stream is not None:
            slot.gate(stream)
    except BaseException:  # an error is on its way already
        _unusable.append((slot, memory))
        return
    with contextlib.suppress(DeviceError):
        give_back(device, slot)


def _nbytes(slot: Slot) -> int:
    return slot.nbytes


def release() -> None:
    """Let go of all idle slots and their memory; those that wait for something are waited for."""
    with _lock:
        idle = [slot for kept in _idle.values() for slot in kept]
        _idle.clear()
    errors = []
    for slot in idle:
        try:
            _drop(slot)
        except DeviceError as error:
            # Of a device that is lost, nothing can be given back.
            if slot._device.lost is None:
                errors.append(error)
    if errors:
        raise errors[0]


def _forget() -> None:
    global _lock
    _lock = threading.Lock()
    # What belongs to the parent's CUDA context must not even be freed here.
    _abandoned.append(dict(_idle))
    _idle.clear()


_abandoned: list[dict[str, list[Slot]]] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
