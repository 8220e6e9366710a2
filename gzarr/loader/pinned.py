"""Page-locked memory of an epoch's batches in host memory, which a device copies from while the host goes on.

A copy to a device may still read a batch after the last array over it is gone. Such a copy was enqueued before. So
memory that was given back is used again only after an event on the consumer's stream that was recorded later: when the
next batch is asked for. At most as much memory is held as copies in progress, and the batches themselves, need.
Several iterators over one loader are taken to copy on one stream.

The driver knows the range of addresses, not the array: so ``tensor.is_pinned()`` is to be true for a tensor over any
part of it, and PyTorch copies from it without waiting. Its own allocator of pinned memory, which delays reuse by events
too, knows nothing of this memory.
"""

from __future__ import annotations

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
    """Return the CUDA device whose streams copy batches, without initialising CUDA.

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
    """NumPy arrays in page-locked memory that is used again, for all epochs of a loader.

    Parameters
    ----------
    device
        The device that copies them, ``"cuda:N"``. It is used from the first array on.
    """

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device = device
        # Given back, with an event after the copies that may read it.
        self._waiting: deque[tuple[Event, list[Bytes]]] = deque()
        _live[id(self)] = self

    def __reduce__(self) -> tuple[type[PinnedResults], tuple[str]]:
        # Another process has memory of its own.
        return PinnedResults, (self.device,)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Return a new array, uninitialised."""
        nbytes = math.prod(shape) * dtype.itemsize
        if not nbytes or dtype.hasobject:
            return HOST.empty(shape, dtype)
        with devices.get_device(self.device) as device:
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
                event, memories = self._waiting.popleft()
            except IndexError:
                return None
            event.synchronize()
            for each in memories:
                self._keep(each)
        return memory

    def copied_on(self, stream: Any) -> None:
        """Note that all copies from what was given back until now are on a stream, or over."""
        memories = self._returned.taken()
        if not memories:
            return
        try:
            with devices.get_device(self.device) as device:
                event = device.as_stream(stream).record(device.event())
        except BaseException:
            # A stream that is refused must not cost the memory.
            self._returned.items.extend(memories)
            raise
        self._waiting.append((event, memories))

    def close(self) -> None:
        """Do nothing: the loader's next epoch uses the memory."""


def _forget() -> None:
    abandon(*_live.values())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
