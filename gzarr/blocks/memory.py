"""The memory of one block's arrays: the host's, or that of a device, on a stream of its own."""

from __future__ import annotations

import contextlib
import itertools
from operator import mul
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
    from .boundary import Cut

    Box = tuple[slice, ...]
    Source = tuple[Any, Sequence[Sequence[Cut]]]


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

    def assemble(self, target: Any, sources: Sequence[Source], constants: Sequence[tuple[Box, Any]]) -> None:
        """Fill an array from parts of others.

        Parameters
        ----------
        target
            The array, C-contiguous.
        sources
            Arrays of the same dtype; for each, its cuts along each axis. All combinations of these are copied.
        constants
            Boxes of it, and the value of all elements of each.
        """
        if self._device is None and target.ndim and available() and not target.dtype.hasobject:
            _gather(target, sources, constants)
            return
        for array, cuts in sources:
            for some in itertools.product(*cuts):
                box = tuple(slice(cut.at, cut.at + cut.length) for cut in some)
                self.copy(target[box], array[tuple(cut.source for cut in some)])
        for box, value in constants:
            if self._device is None:
                target[box] = value
            else:
                self._fill(target[box], value)

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


def _gather(target: npt.NDArray[Any], sources: Sequence[Source], constants: Sequence[tuple[Box, Any]]) -> None:
    """Do it by compiled code, without the GIL."""
    # Of each box: its first element in the target, its shape, the address of its first element, and its strides.
    found: list[tuple[Sequence[int], Sequence[int], int, Sequence[int]]] = []
    for array, cuts in sources:
        begin, strides = address(array), array.strides
        for some in itertools.product(*cuts):
            at, length, first, step = zip(*some, strict=True)
            found.append((at, length, begin + sum(map(mul, first, strides)), tuple(map(mul, step, strides))))
    elements = [np.array(value, target.dtype) for _, value in constants]
    for (box, _), element in zip(constants, elements, strict=True):
        shape = [s.stop - s.start for s in box]
        found.append(([s.start for s in box], shape, address(element), [0] * target.ndim))
    if not found:
        return
    start, count, bases, strides = (np.array(column, np.int64) for column in zip(*found, strict=True))
    pieces = Pieces(
        shape=target.shape,
        dtype=target.dtype,
        row=np.zeros(len(found), np.int64),
        start=start,
        count=count,
        first=np.zeros_like(start),
        which=np.arange(len(found)),
        bases=bases,
        strides=strides,
    )
    Gathering([pieces]).run(0, 1, [target[np.newaxis]])
