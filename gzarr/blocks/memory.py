"""The memory of one block's arrays: the host's, or that of a device, on a stream of its own."""

from __future__ import annotations

import contextlib
import itertools
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
    from .axes import WindowPart

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

    def assemble(
        self, target: Any, sources: Sequence[Any], parts: Sequence[WindowPart], constants: Sequence[tuple[Box, Any]]
    ) -> None:
        """Fill a window.

        Parameters
        ----------
        target
            The window, C-contiguous.
        sources
            What its elements are taken from: arrays of the same dtype, C-contiguous, one for each combination of the
            sources along the axes, in C order.
        parts
            What it is made of along each axis.
        constants
            Boxes of it, and the value of all elements of each.
        """
        if self._device is None and target.ndim and available() and not target.dtype.hasobject:
            _gather(target, sources, parts, constants)
            return
        for cuts in itertools.product(*(part.cuts for part in parts)):
            which = 0
            for cut, part in zip(cuts, parts, strict=True):
                which = which * len(part.sources) + cut.which
            box = tuple(slice(cut.at, cut.at + cut.length) for cut in cuts)
            self.copy(target[box], sources[which][tuple(cut.elements for cut in cuts)])
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


def _gather(
    target: npt.NDArray[Any],
    sources: Sequence[npt.NDArray[Any]],
    parts: Sequence[WindowPart],
    constants: Sequence[tuple[Box, Any]],
) -> None:
    """Do it by compiled code, without the GIL."""
    k = target.ndim
    shape = tuple(len(part.cuts) for part in parts)
    # For all combinations of cuts: the first element in the window, the number of elements along each axis, and the
    # strides in bytes, (…, k); the source, and the first element there, in bytes, (…).
    start, count, strides = (np.empty((*shape, k), np.int64) for _ in range(3))
    which, first = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    number: int = 1
    stride: Any = target.dtype.itemsize
    for d in reversed(range(k)):
        columns = parts[d].columns
        at, length, begin, step, own, extent = columns.reshape(len(columns), -1, *(1,) * (k - d - 1))
        start[..., d], count[..., d], strides[..., d] = at, length, stride * step
        which += own * number
        first += begin * stride
        number *= len(parts[d].sources)
        stride = stride * extent
    bases = np.array([address(array) for array in sources], np.int64)[which] + first
    start, count, strides = (column.reshape(-1, k) for column in (start, count, strides))
    bases = bases.reshape(-1)
    if constants:
        # All elements of such a box are one.
        elements = [np.array(value, target.dtype) for _, value in constants]
        boxes = np.array([[(s.start, s.stop - s.start, 0) for s in box] for box, _ in constants], np.int64)
        start, count, strides = map(
            np.concatenate, zip((start, count, strides), np.moveaxis(boxes, -1, 0), strict=True)
        )
        bases = np.concatenate([bases, [address(element) for element in elements]])
    pieces = len(bases)
    if not pieces:
        return
    gathered = Pieces(
        shape=target.shape,
        dtype=target.dtype,
        row=np.zeros(pieces, np.int64),
        start=start,
        count=count,
        first=np.zeros_like(start),
        which=np.arange(pieces),
        bases=bases,
        strides=strides,
    )
    Gathering([gathered]).run(0, 1, [target[np.newaxis]])
