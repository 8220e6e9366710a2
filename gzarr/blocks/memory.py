"""The memory of one block's arrays: the host's, or that of a device, on a stream of its own."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays.outputs import HOST, DeviceResults, Results
from ..engines.cuda.devices import get_device

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..engines.cuda.device_protocol import Device


class BlockMemory:
    """Memory of one thread's blocks.

    Parameters
    ----------
    device
        ``"cpu"`` or ``"cuda:N"``.

    Attributes
    ----------
    stream
        Stream of the arrays; None in host memory.
    """

    def __init__(self, device: str) -> None:
        self._device: Device | None = None
        self.stream: Any = None
        self._results: Results = HOST
        if device != "cpu":
            self._device = get_device(device)
            with self._device:
                self.stream = self._device.stream()
            self._results = DeviceResults(self._device, self.stream)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Return a new array, uninitialised."""
        return self._results.empty(shape, dtype)

    def is_array(self, value: object) -> bool:
        """Return whether a value is an array of the device."""
        return self._results.is_array(value)

    def copy(self, target: Any, source: Any) -> None:
        """Do ``target[...] = source``."""
        self._results.copy(target, source)

    def fill(self, target: Any, value: Any) -> None:
        """Fill an array with a value."""
        if self._device is None:
            target[...] = value
            return
        with self._device as device:
            element = np.array(value, target.dtype).tobytes()
            staging = device.pinned(len(element))
            staging[...] = np.frombuffer(element, np.uint8)
            memory = device.allocate(len(element), self.stream)
            device.copy_in(memory, staging, self.stream)
            constant = device.broadcast(device.shaped(memory, target.dtype, ()), target.shape)
            device.copy_array(target, constant, self.stream)
            # The staging memory is free again.
            self.stream.synchronize()

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Make the stream CuPy's current one, so that functions of arrays run in order with reads."""
        if self._device is None:
            yield
            return
        if not hasattr(self.stream, "__enter__"):
            # It cannot be made current: what runs on another one must find what was read.
            self.stream.synchronize()
        entered = self.stream if hasattr(self.stream, "__enter__") else contextlib.nullcontext()
        with self._device, entered:
            yield

    def finish(self) -> None:
        """Wait for what was enqueued on the stream."""
        if self.stream is not None:
            self.stream.synchronize()
