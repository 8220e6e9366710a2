"""Page-locked memory of an epoch's batches in host memory, which a device copies from while the host goes on.

A copy to a device may still read a batch after the last array over it is gone. Such a copy was enqueued before. So
memory that was given back is used again only after the events that were recorded on the consumer's streams each time
that a batch was asked for. At most as much memory is held as copies in progress, and the batches themselves, need.
Several iterators over one loader are taken to copy on one stream.

The device is the one that is current where batches are asked for. When a loader is made, or pickled for other
processes, that may still be another one: ranks choose theirs later. Page-locked memory serves all devices.

The driver knows the range of addresses, not the array: so ``tensor.is_pinned()`` is to be true for a tensor over any
part of it, and PyTorch copies from it without waiting. Its own allocator of pinned memory, which delays reuse by events
too, knows nothing of this memory.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections import deque
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

from ..arrays.outputs import HOST
from ..arrays.recycling import RecycledResults
from ..engines import result_memory
from ..engines.cuda import devices
from ..engines.cuda.abandoned import abandon
from ..errors import DeviceError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ..engines.cuda.device_protocol import Event

    Bytes = npt.NDArray[np.uint8]

# Locking pages takes long, so small arrays share memory: at most this number of arrays, and of bytes.
_TOGETHER: Final = 16
_TOGETHER_BYTES: Final = 1 << 20
#: What is CUDA's, by identity: page-locked memory, also that of batches, and results, which have events.
_live: WeakValueDictionary[int, Any] = WeakValueDictionary()


def pinning_device() -> str:
    """Return the calling thread's CUDA device, whose streams copy batches, without initialising CUDA.

    Raises
    ------
    DeviceError
        If there is none.
    """
    missing = devices.missing_parts()
    if missing:
        raise DeviceError(
            f"pin_memory=True is for copies to a CUDA device, and none can be used: {'; '.join(missing)}; "
            "or leave pin_memory out"
        )
    return devices.current()


class PinnedResults(RecycledResults):
    """NumPy arrays in page-locked memory that is used again, for all epochs of a loader."""

    def __init__(self) -> None:
        super().__init__()
        # The consumer's, "cuda:N". It is used from the first array on; threads of a loader have none of their own.
        self._device = ""
        # Given back, with an event after the copies that may read it; later than all events before.
        self._waiting: deque[tuple[Event, list[Bytes]]] = deque()
        _live[id(self)] = self

    def __reduce__(self) -> tuple[type[PinnedResults], tuple[()]]:
        # Another process has memory of its own, and another device.
        return PinnedResults, ()

    def begin(self, stream: Any) -> None:
        """Take the device of a consumer's stream for new memory.

        Parameters
        ----------
        stream
            A stream of PyTorch's, or None for CuPy's current one.

        Raises
        ------
        DeviceError
            If there is no device.
        """
        ordinal = getattr(stream, "device_index", None)
        self._device = pinning_device() if ordinal is None else f"cuda:{ordinal}"

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Return a new array, uninitialised."""
        nbytes = math.prod(shape) * dtype.itemsize
        if not nbytes or dtype.hasobject:
            return HOST.empty(shape, dtype)
        with devices.get_device(self._device) as device:
            memory = self._used_before(nbytes)
            if memory is None:
                each = -(-nbytes // result_memory.ALIGNMENT) * result_memory.ALIGNMENT
                count = min(max(_TOGETHER_BYTES // each, 1), _TOGETHER)
                whole = device.pinned(count * each)
                # Parts refer to it.
                _live[id(whole)] = whole
                memory, *others = [whole[i * each : i * each + nbytes] for i in range(count)]
                for other in others:
                    self._keep(other)
        return self._lent(memory, nbytes).view(dtype).reshape(shape)

    def _used_before(self, nbytes: int) -> Bytes | None:
        """Return memory that was used before; wait for a copy from it rather than take more."""
        while (memory := self._kept_for(nbytes)) is None:
            try:
                oldest = self._waiting[0]
            except IndexError:
                return None
            oldest[0].synchronize()
            self._settle(oldest)
        return memory

    def _settle(self, oldest: tuple[Event, list[Bytes]]) -> None:
        """Keep memory whose event is over."""
        # Only now, so that no thread goes on to a later event before. Another one may have waited for this one, too.
        with contextlib.suppress(ValueError):
            self._waiting.remove(oldest)
            for memory in oldest[1]:
                self._keep(memory)

    def copied_on(self, stream: Any) -> None:
        """Note that all copies from what was given back until now are on a stream, on earlier ones, or over.

        Parameters
        ----------
        stream
            As for :meth:`begin`; streams and their devices may change.
        """
        memories = self._returned.taken()
        try:
            self.begin(stream)
            with devices.get_device(self._device) as device:
                event = device.as_stream(stream).record(device.event())
        except BaseException:
            # A stream that is refused must not cost the memory.
            self._returned.items.extend(memories)
            raise
        # Also without memory: a batch that is in use may have been copied on this stream.
        self._waiting.append((event, memories))
        with contextlib.suppress(IndexError):
            while (oldest := self._waiting[0])[0].done:
                self._settle(oldest)

    def close(self) -> None:
        """Do nothing: the loader's next epoch uses the memory."""


def _forget() -> None:
    abandon(*_live.values())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
