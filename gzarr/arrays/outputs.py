"""Memory of the results: NumPy arrays in host memory, or CuPy arrays on a device."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
from numpy.lib.array_utils import byte_bounds

from ..dtypes.masks import has_masked, is_masked_array
from ..dtypes.properties import is_in_cupy
from ..engines import result_memory
from ..errors import ArgumentError, DeviceError, OutputError, SelectionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..engines.cuda.device_protocol import Device

#: How long NumPy looks for elements that share memory: at most about 0.1 s, far more than arrays that people make need.
_MOST_WORK: Final = 100_000


class Results(Protocol):
    """Memory of the results of one read.

    Attributes
    ----------
    kind
        Name of its arrays in messages, with their device.
    """

    kind: str

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Return a new, uninitialised, C-contiguous array; raise MemoryError or ValueError if memory is short."""

    def is_array(self, value: object) -> bool:
        """Return whether a value is an array of this kind."""

    def copy(self, target: Any, source: Any) -> None:
        """Do ``target[...] = source``."""


class HostResults:
    """NumPy arrays."""

    kind = "a numpy.ndarray for device 'cpu'"

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Return a new array; large arrays use recycled memory."""
        return result_memory.empty(shape, dtype)

    def is_array(self, value: object) -> bool:
        """Return whether a value is a NumPy array."""
        return isinstance(value, np.ndarray)

    def copy(self, target: Any, source: Any) -> None:
        """Copy elements."""
        target[...] = source


class DeviceResults:
    """CuPy arrays on one device, allocated and written in stream order.

    Parameters
    ----------
    device
        Device of the arrays.
    stream
        The caller's stream on that device.
    """

    __slots__ = ("device", "kind", "stream")

    def __init__(self, device: Device, stream: Any) -> None:
        self.device: Device = device
        self.stream: Any = stream
        self.kind: str = f"a cupy.ndarray on device {device.name!r}"

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Return a new array from CuPy's current allocator."""
        with self.device:
            return self.device.empty(shape, dtype, self.stream)

    def is_array(self, value: object) -> bool:
        """Return whether a value is a CuPy array on this device."""
        return self.device.is_array(value)

    def copy(self, target: Any, source: Any) -> None:
        """Enqueue the copy."""
        with self.device:
            self.device.copy_array(target, source, self.stream)


HOST = HostResults()


def output(memory: Results, out: Any, shape: tuple[int, ...], dtype: np.dtype[Any], path: str) -> Any:
    """Check and return ``out``, or return a new array if it is None.

    Raises
    ------
    OutputError
        If ``out`` has the wrong kind, shape or dtype, is read-only, has masked elements, or has one place in memory for
        several elements.
    DeviceError
        If the device cannot hold elements of this dtype.
    SelectionError
        If the result cannot be allocated in host memory, or is larger than any device's.
    MemoryError
        If there is not enough memory for it on the device: that may change, and the selection is right.
    ArgumentError
        If ``GZARR_RECYCLE_BYTES`` is set and is not a whole number.
    """
    if memory is not HOST and not is_in_cupy(dtype):
        readable = [repr(name) for name in dtype.names or () if is_in_cupy(dtype[name])]
        more = f", or read a single field, such as array[{readable[0]}]" if readable else ""
        raise DeviceError(
            f"/{path}: CuPy has no dtype {dtype}, so its elements cannot be on a GPU; open the array with "
            f'device="cpu"{more}'
        )
    if out is not None:
        _check(memory, out, shape, dtype)
        return out
    try:
        return memory.empty(shape, dtype)
    except ArgumentError:
        # A wrong setting, not a lack of memory.
        raise
    except (MemoryError, ValueError) as error:
        raise no_room(memory, shape, dtype, error) from error


def no_room(
    memory: Results,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    error: Exception,
    what: str = "a result",
    hint: str = "read it in parts",
) -> Exception:
    """Return the error for elements to be read that take more memory than there is, with what to do."""
    wanted = f"{what} of shape {shape}, {dtype}, takes {math.prod(shape) * dtype.itemsize} bytes"
    if isinstance(error, MemoryError) and isinstance(memory, DeviceResults):
        return MemoryError(
            f"{wanted}, more than {memory.device.name} has free ({error}); free some, for example by "
            f"gzarr.release_memory(), or {hint}"
        )
    return SelectionError(f"{wanted}, more than can be allocated; {hint}")


def plain(array: Any) -> Any:
    """Return an array of the same memory that is indexed as usual: parts of a ``np.matrix`` keep two dimensions."""
    return np.asarray(array) if isinstance(array, np.ndarray) else array


def check_apart(arrays: Sequence[Any]) -> None:
    """Refuse arrays in host memory of which one is certain to overwrite what is read into another.

    Only neighbours in memory are compared: thousands of columns of one array are fine, and there may be many.

    Raises
    ------
    OutputError
        If two of them share memory.
    """
    # One without elements would hide that its neighbours share memory.
    begins = {i: byte_bounds(array)[0] for i, array in enumerate(arrays) if array.size}
    for a, b in itertools.pairwise(sorted(begins, key=begins.__getitem__)):
        if _surely_share(arrays[a], arrays[b], _MOST_WORK):
            first, second = sorted((a, b))
            raise OutputError(f"out[{first}] and out[{second}] share memory; pass arrays with memory of their own")


def _surely_share(a: Any, b: Any, most_work: int) -> bool:
    """Return whether two arrays share memory; False if that takes long to find out."""
    try:
        return np.shares_memory(a, b, max_work=most_work)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return False


def _check(memory: Results, out: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if not memory.is_array(out):
        raise OutputError(f"out= must be {memory.kind}, not {type(out).__name__}")
    if out.shape != shape:
        raise OutputError(f"out= has shape {out.shape}, but the selection gives {shape}")
    if out.dtype != dtype:
        raise OutputError(f"out= has dtype {out.dtype}, but the selection gives {dtype}")
    check_elements(out)


def check_elements(out: Any) -> None:
    """Refuse an array in memory that cannot hold just any elements.

    Raises
    ------
    OutputError
        If it is read-only, if a mask would hide elements, or if elements are certain to share memory.
    """
    # A mask that is clear stays so: what is written goes below it.
    if is_masked_array(out) and has_masked(out):
        raise OutputError("out= has masked elements, and its mask would hide what is read there; pass out.data")
    # CuPy's arrays have no such flag: they are always writable.
    if not getattr(out.flags, "writeable", True):
        raise OutputError("out= is read-only")
    if not out.size or not out.itemsize or out.flags.c_contiguous or _is_nested(out):
        return
    strides = {axis: abs(out.strides[axis]) for axis, n in enumerate(out.shape) if n > 1}
    hint = "pass an array that has a place for each, such as out.copy()"
    for axis, stride in strides.items():
        if not stride:
            raise OutputError(
                f"out= has one place in memory for all elements along axis {axis}, like what broadcast_to returns; "
                f"{hint}"
            )
        if stride < out.itemsize:
            raise OutputError(f"out= has elements along axis {axis} that share memory; {hint}")
    for a, b in itertools.combinations(strides, 2):
        # So many steps along one axis are as far as so many along the other.
        common = math.gcd(strides[a], strides[b])
        if strides[b] // common < out.shape[a] and strides[a] // common < out.shape[b]:
            raise OutputError(
                f"out= has one place in memory for several elements along axes {a} and {b}, like windows that overlap; "
                f"{hint}"
            )
    if _overlaps(out):
        raise OutputError(f"out= has elements that share memory, like windows that overlap; {hint}")


def _is_nested(out: Any) -> bool:
    """Return whether each step along an axis leads beyond all elements of the axes with smaller steps."""
    end = out.itemsize
    for stride, n in sorted((abs(stride), n) for stride, n in zip(out.strides, out.shape, strict=True) if n > 1):
        if stride < end:
            return False
        end += stride * (n - 1)
    return True


def _overlaps(out: Any) -> bool:
    """Return whether elements of an array share memory, if that can be told soon."""
    # Their places count, not what is there, which may be on a device. The sign of a step does not matter.
    strides = [abs(stride) for stride in out.strides]
    places = np.lib.stride_tricks.as_strided(np.empty(1, f"V{out.itemsize}"), out.shape, strides)
    # Two elements first differ along some axis. How far they are apart is the same wherever the first one begins.
    firsts = [places[(0,) * axis] for axis in range(places.ndim)]
    return any(_surely_share(first[:1], first[1:], _MOST_WORK // len(firsts)) for first in firsts)
