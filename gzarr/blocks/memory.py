"""The memory of one block's arrays: the host's, or that of a device, on a stream of its own."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays.outputs import HOST, DeviceResults, Results
from ..engines.cpu.batch import Gathering, Pieces, available
from ..engines.cuda.devices import get_device
from ..engines.kernels import address

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from ..engines.cuda.device_protocol import Device

    Box = tuple[slice, ...]


class BlockMemory:
    """Memory of one thread's blocks.

    Parameters
    ----------
    device
        ``"cpu"`` or ``"cuda:N"``.
    host
        Arrays in host memory.

    Attributes
    ----------
    stream
        Stream of the arrays; None in host memory.
    """

    def __init__(self, device: str, host: Results = HOST) -> None:
        self._device: Device | None = None
        self.stream: Any = None
        self._results = host
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

    def assemble(self, target: Any, parts: Sequence[tuple[Box, Any]], constants: Sequence[tuple[Box, Any]]) -> None:
        """Fill an array from parts of others.

        Parameters
        ----------
        target
            The array, C-contiguous.
        parts
            Boxes of it, and what each is filled with: arrays of the same dtype and of the boxes' shapes.
        constants
            Boxes of it, and the value of all elements of each.
        """
        if self._device is not None:
            for box, source in parts:
                self.copy(target[box], source)
            for box, value in constants:
                self._fill(target[box], value)
            return
        filled = ((box, np.broadcast_to(np.array(value, target.dtype), target[box].shape)) for box, value in constants)
        sources = [*parts, *filled]
        if available() and not target.dtype.hasobject:
            _gather(target, sources)
            return
        for box, source in sources:
            target[box] = source

    def _fill(self, target: Any, value: Any) -> None:
        """Fill an array of the device with a value."""
        assert self._device is not None
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


def _gather(target: npt.NDArray[Any], sources: Sequence[tuple[Box, npt.NDArray[Any]]]) -> None:
    """Do ``target[box] = source`` for each pair by compiled code, without the GIL."""
    some = [(box, source) for box, source in sources if source.size]
    if not some:
        return
    count, k = len(some), target.ndim
    none = np.zeros((count, k), np.int64)
    pieces = Pieces(
        shape=target.shape,
        dtype=target.dtype,
        row=np.zeros(count, np.int64),
        start=np.array([[s.start for s in box] for box, _ in some], np.int64).reshape(count, k),
        count=np.array([source.shape for _, source in some], np.int64).reshape(count, k),
        first=none,
        which=np.arange(count),
        bases=np.array([address(source) for _, source in some], np.int64),
        strides=np.array([source.strides for _, source in some], np.int64).reshape(count, k),
    )
    Gathering([pieces]).run(0, 1, [target[np.newaxis]])
