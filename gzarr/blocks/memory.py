"""The memory of one block's arrays: the host's, or that of a device, on a stream of its own."""

from __future__ import annotations

import contextlib
import itertools
from copy import copy
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..arrays.elements import in_numpy
from ..arrays.outputs import HOST, DeviceResults, Results
from ..arrays.tensors import is_tensor
from ..engines.cpu.batch import available
from ..engines.cuda.devices import get_device
from ..engines.cuda.handing_over import hand_over
from ..engines.cuda.streams import BorrowedStream
from ..engines.cuda.uploads import uploaded
from ..engines.kernels import address
from .assembly import Assembly, WindowSource, constant_boxes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    from ..engines.cuda.device_protocol import Device, Event, Stream
    from .axes import WindowLayout

#: Types without memory that could be used again.
_PLAIN: Final = {bool, bytes, complex, float, int, str, type(None)}


class BlockMemory:
    """Memory of one thread's blocks.

    Parameters
    ----------
    device
        ``"cpu"`` or ``"cuda:N"``.
    host
        Arrays in host memory.
    assembly
        Function that returns the assembly of windows, new or one that it has kept: most windows are alike.

    Attributes
    ----------
    stream
        Stream of the arrays; None in host memory.
    """

    def __init__(
        self,
        device: str,
        host: Results = HOST,
        assembly: Callable[[tuple[WindowLayout, ...], np.dtype[Any]], Assembly] = Assembly,
    ) -> None:
        self._device: Device | None = None
        self.stream: Stream | None = None
        self._results = host
        self._assembly = assembly
        if device != "cpu":
            self._device = get_device(device)
            with self._device:
                self._borrowed = BorrowedStream(self._device)
            self.stream = self._borrowed.stream
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

    def source(self, array: Any) -> WindowSource:
        """Return an array as one that windows are put together from."""
        return WindowSource(array, address(array) if self._device is None else 0)

    def assemble(self, target: Any, sources: Sequence[WindowSource], layouts: tuple[WindowLayout, ...]) -> None:
        """Fill a window.

        Parameters
        ----------
        target
            The window, C-contiguous.
        sources
            What its elements are taken from: arrays of the same dtype, one for each combination of the sources along
            the axes, in C order.
        layouts
            How it is put together along each axis.
        """
        if self._device is None and layouts and available() and not target.dtype.hasobject:
            self._assembly(layouts, target.dtype).run(target, sources)
            return
        for cuts in itertools.product(*(layout.cuts for layout in layouts)):
            which = 0
            for cut, layout in zip(cuts, layouts, strict=True):
                which = which * layout.sources + cut.which
            box = tuple(slice(cut.at, cut.at + cut.length) for cut in cuts)
            part, elements = target[box], sources[which].array[tuple(cut.elements for cut in cuts)]
            if self._device is not None and not all(cut.step for cut in cuts):
                with self._device as device:
                    elements = device.broadcast(elements, part.shape)
            self.copy(part, elements)
        for box, value in constant_boxes(layouts):
            if self._device is None:
                target[box] = value
            else:
                self._fill(target[box], value)

    def _fill(self, target: Any, value: Any) -> None:
        """Fill an array of the device with a value."""
        assert self._device is not None
        with self._device as device:
            value = uploaded(device, np.array(value, target.dtype), self.stream)
            constant = device.broadcast(value, target.shape)
            device.copy_array(target, constant, self.stream)

    def from_host(self, values: npt.NDArray[Any]) -> Any:
        """Return an array of the device with the elements of one of the host, complete: threads may share it."""
        if self._device is None:
            return values
        assert self.stream is not None
        with self._device as device:
            result = uploaded(device, values, self.stream)
            self.stream.synchronize()
            return result

    def array(self, value: Any) -> Any:
        """Return a value as an array of the device, or None if it is not one; in host memory, NumPy makes one of it."""
        if self._device is None:
            return in_numpy(value)
        return value if self.is_array(value) else None

    def copied(self, value: Any) -> Any:
        """Return a value with copies of its arrays, also of those in dicts, lists and tuples.

        A function may return the same memory in each call, as captured graphs of CUDA and functions of PyTorch that
        were compiled do. So what is kept until after the next call is copied, while :meth:`current`.
        """
        if isinstance(value, np.ndarray) and (type(value) is not np.ndarray or self._device is not None):
            return value.copy(order="K")
        if self.is_array(value):
            result = self.empty(value.shape, value.dtype)
            self.copy(result, value)
            return result
        if is_tensor(value):
            return value.clone()
        is_mapping = isinstance(value, dict)
        is_named = isinstance(value, tuple) and hasattr(value, "_make")
        if not is_mapping and not is_named and type(value) not in (list, tuple):
            return value
        items = value.values() if is_mapping else value
        # Of tables of many numbers or texts, only the types are looked at.
        if set(map(type, items)) <= _PLAIN:
            return value
        copies = map(self.copied, items)
        if is_mapping:
            # Of its own class.
            result = copy(value)
            # Not update(), which counters and other classes of dicts have a meaning of their own for.
            for name, item in zip(value, copies, strict=True):
                result[name] = item
            return result
        return value._make(copies) if is_named else type(value)(copies)

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Make the stream CuPy's current one, so that functions of arrays run in order with reads."""
        if self._device is None:
            yield
            return
        assert self.stream is not None
        with self._device, self.stream:
            yield

    def handed_over(self, value: Any) -> Any:
        """Return a value with its arrays copied to memory of the calling thread's current stream.

        The caller may use and drop them; in host memory, they are its own anyway.
        """
        if self._device is None:
            return value
        assert self.stream is not None
        with self._device as device:
            stream = device.as_stream(None)
            stream.wait_event(self.stream.record(device.event()))
            return hand_over(device, value, (self.stream,), stream)

    def to_host(self, value: Any) -> Any:
        """Return an array of the device in host memory; others as they are."""
        if self._device is None or not self.is_array(value):
            return value
        assert self.stream is not None
        with self._device as device:
            return device.to_host(value, self.stream)

    def wait_for(self, event: Event | None) -> None:
        """Have what is enqueued from now on wait for an event."""
        if event is not None and self.stream is not None:
            self.stream.wait_event(event)

    def finish(self) -> None:
        """Wait for what was enqueued on the stream."""
        if self.stream is not None:
            self.stream.synchronize()
