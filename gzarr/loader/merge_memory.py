"""The memory that predictions are put together in: the host's, or that of a device.

On a device, work is enqueued on the stream that a prediction belongs to: PyTorch's current one for its tensors, CuPy's
for all others. So it runs after what has made the prediction, and before its memory is used for anything else.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Protocol

from ..arrays.conversion import on_host
from ..arrays.elements import exported
from ..arrays.outputs import HOST, DeviceResults
from ..arrays.tensors import is_tensor
from ..engines.cuda.devices import get_device
from ..engines.cuda.uploads import uploaded
from ..errors import DeviceError
from .like import consumer_stream

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import numpy.typing as npt

    from ..engines.cuda.device_protocol import Event


class MergePlace(Protocol):
    """Memory that is being worked in.

    Attributes
    ----------
    stream
        Stream of the work; None in host memory.
    """

    stream: Any

    def taken(self, value: Any, node: str) -> Any:
        """Return a value, of any library and device, as an array in this memory; a copy only if it must be one."""

    def copied(self, array: npt.NDArray[Any]) -> Any:
        """Return an array of the host's in this memory."""

    def zeros(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Return a new array of zeros."""


class MergeMemory(Protocol):
    """Memory of sums and weights."""

    def using(self, value: Any = None) -> contextlib.AbstractContextManager[MergePlace]:
        """Work in this memory, in order with what was done before and with what has made ``value``."""

    def close(self) -> None:
        """Wait for what was enqueued, before memory is freed."""


class HostMergeMemory:
    """NumPy arrays."""

    stream = None

    @contextlib.contextmanager
    def using(self, value: Any = None) -> Iterator[MergePlace]:
        """Return this: there is one order."""
        yield self

    def taken(self, value: Any, node: str) -> Any:
        """Return a value in host memory."""
        return on_host(value, None, node)

    def copied(self, array: npt.NDArray[Any]) -> Any:
        """Return the array."""
        return array

    def zeros(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Return a new array, in memory that was used before if there is some."""
        result = HOST.empty(shape, dtype)
        result.fill(0)
        return result

    def close(self) -> None:
        """Do nothing."""


class DeviceMergeMemory:
    """CuPy arrays of a device, ``"cuda:N"``."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._device = get_device(name)
        # After what was enqueued last, on whichever stream.
        self._last: Event | None = None

    @contextlib.contextmanager
    def using(self, value: Any = None) -> Iterator[MergePlace]:
        """Make the stream of a value CuPy's current one."""
        with self._device as device:
            stream = device.as_stream(consumer_stream("torch" if is_tensor(value) else None, self._name))
            if self._last is not None:
                stream.wait_event(self._last)
            place = _OnDevice(DeviceResults(device, stream))
            try:
                with stream:
                    yield place
            finally:
                self._last = None
                try:
                    self._last = stream.record(device.event())
                finally:
                    # What comes next, on whichever stream, cannot wait for what has no event.
                    if place.waits or self._last is None:
                        stream.synchronize()

    def close(self) -> None:
        """Wait for the stream that was used last: CuPy gives memory back to the stream that it was allocated on."""
        # On a device that is lost, nothing runs any more.
        with contextlib.suppress(DeviceError), self._device:
            if self._last is not None:
                self._last.synchronize()


class _OnDevice:
    """Work on one stream of a device, which is CuPy's current one.

    Attributes
    ----------
    waits
        Whether the host has to wait for the work before memory of others is free.
    """

    def __init__(self, results: DeviceResults) -> None:
        self._results = results
        self.stream: Any = results.stream
        self.waits = False

    def taken(self, value: Any, node: str) -> Any:
        """Return a value on the device."""
        found = exported(value, self._results, node)
        if found is None:
            return self.copied(on_host(value, None, node))
        # JAX and others use memory again on streams that nobody can name.
        self.waits = not (found is value or is_tensor(value))
        return found

    def copied(self, array: npt.NDArray[Any]) -> Any:
        """Return a copy on the device."""
        return uploaded(self._results.device, array, self.stream)

    def zeros(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Return a new array."""
        result = self._results.empty(shape, dtype)
        result.fill(0)
        return result


def merge_memory(device: str) -> MergeMemory:
    """Return memory of a device, ``"cpu"`` or ``"cuda:N"``."""
    return HostMergeMemory() if device == "cpu" else DeviceMergeMemory(device)
