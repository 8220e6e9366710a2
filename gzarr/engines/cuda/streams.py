"""Streams of the engine's own: kept for whoever needs one next, since memory belongs to streams.

CuPy's pool keeps a freed block for the stream that it was allocated on, by the stream's address. Blocks of a stream
that is gone are used by nobody until the device runs out of memory: with a stream of its own for each epoch of a loader
or call of ``map_blocks``, the pool would grow with every one. So all streams come from here, with the blocks that CuPy
keeps for them, and go back.

Blocks fit the work that they were made for. So streams go to who needs one for the same purpose: if two streams of a
loader changed places with each epoch, the blocks of both would soon be kept for each.

A stream that is given back need not be idle: its next user's work runs after what is enqueued there, which is all the
order that its blocks need. Arrays that belong to callers are never allocated on these streams, but on the callers':
CuPy gives their memory to others as soon as they are gone, in order with the stream that they were allocated on.

Streams of other libraries are not kept, but the objects of CuPy's that stand for them are (:func:`kept`).

No lock is held here: ``append`` and ``pop`` of a deque are atomic, so a stream may also be given back while the garbage
collector runs.
"""

from __future__ import annotations

import os
import weakref
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ...errors import DeviceError
from .abandoned import abandon

if TYPE_CHECKING:
    from .device_protocol import Device, Stream

#: Most idle streams that are kept for a device and a purpose: a loader has one of each, a call of ``map_blocks`` one
#: for each thread, a read one for each wave in flight.
MAX_IDLE_STREAMS: Final = 32
#: Most objects of other libraries' streams that are kept although no memory refers to them.
MAX_FOREIGN: Final = 64

#: Idle streams by name of their device and purpose, each with the device: the one given back last is the last.
_idle: dict[tuple[str, str], deque[tuple[Device, Stream]]] = {}
#: Borrowed streams by their identity. The garbage collector finalizes a whole circle of objects at once: a stream that
#: only its borrower referred to would be destroyed when it is given back.
_lent: dict[int, Stream] = {}
#: Objects for streams of other libraries, by name of the device and address.
_foreign: dict[tuple[str, int], Any] = {}
#: Streams that failed: what is enqueued there may still use their memory.
_unusable: list[Stream] = []


class BorrowedStream:
    """A stream of the pool, until this is closed or no longer referenced.

    Parameters
    ----------
    device
        The device, current in the calling thread.
    purpose
        What it is needed for, if the same borrower has others for something else.

    Attributes
    ----------
    stream
        The stream; not to be used after :meth:`close`, since others may enqueue work there.
    """

    __slots__ = ("_device", "_given_back", "_idle", "_kept", "_lent", "stream")

    def __init__(self, device: Device, purpose: str = "") -> None:
        self._given_back = [True]
        self._device = device
        self._kept = device.name, purpose
        self.stream: Stream = _taken(device, self._kept)
        # When the interpreter ends, the module's names may be gone before this.
        self._idle, self._lent = _idle[self._kept], _lent
        self._lent[id(self.stream)] = self.stream
        self._given_back.clear()

    def close(self) -> None:
        """Give the stream back; waits only if more are idle than are kept."""
        self.give_back()
        _trim(self._kept)

    def __del__(self) -> None:
        self.give_back()

    def give_back(self) -> None:
        """Give the stream back without a call of CUDA: the garbage collector may run anywhere."""
        if not self._given_back:
            self._given_back.append(True)
            # Before it is another's. A forked child has abandoned all that were lent.
            if self._lent.pop(id(self.stream), None) is not None:
                self._idle.append((self._device, self.stream))


def _taken(device: Device, key: tuple[str, str]) -> Stream:
    """Return an idle stream of a device and a purpose, or a new one."""
    kept = _idle.setdefault(key, deque())
    while True:
        try:
            owner, stream = kept.pop()
        except IndexError:
            return device.stream()
        # In tests, another device of the same name may have come.
        if owner is device:
            return stream


def _trim(key: tuple[str, str]) -> None:
    """Return the streams that were idle longest to the driver, if there are too many."""
    kept = _idle.setdefault(key, deque())
    while len(kept) > MAX_IDLE_STREAMS:
        try:
            owner, stream = kept.popleft()
        except IndexError:
            return
        _drop(owner, stream)


def _drop(device: Device, stream: Stream) -> None:
    """Wait for a stream, and free the blocks that CuPy keeps for it: no other stream would use them."""
    try:
        with device:
            stream.synchronize()
            device.free_cached(stream)
    except DeviceError:
        _unusable.append(stream)
        # Nothing can be returned to a lost device.
        if device.lost is None:
            raise


def kept(device: str, stream: Any) -> Any:
    """Return the one object for a stream of another library, which outlives the call that was given the stream.

    Memory of ``cupy.cuda.MemoryAsyncPool`` refers to the object of its stream weakly. If that is gone when the memory
    is freed, CuPy frees it on the stream that is then current, which need not wait for work on the memory's own stream.

    Parameters
    ----------
    device
        Name of the device.
    stream
        CuPy's object, which becomes the one for its address if there is none.
    """
    found = _foreign.setdefault((device, int(stream.ptr)), stream)
    if len(_foreign) > MAX_FOREIGN:
        _drop_foreign(found)
    return found


def _drop_foreign(used: Any = None) -> None:
    """Drop the objects to which no memory refers, but one."""
    for key, stream in list(_foreign.items()):
        if stream is not used and not weakref.getweakrefcount(stream):
            _foreign.pop(key, None)


def release() -> None:
    """Free all idle streams, and the memory that CuPy keeps for them; waits for their work."""
    _drop_foreign()
    errors = []
    for kept in list(_idle.values()):
        while kept:
            try:
                _drop(*kept.popleft())
            except IndexError:
                break
            except DeviceError as error:
                errors.append(error)
    if errors:
        raise errors[0]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=partial(abandon, _idle, _lent, _foreign, _unusable))
