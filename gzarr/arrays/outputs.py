"""Where results are: in host memory as NumPy arrays, or on a device as CuPy arrays."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..dtypes.properties import is_in_cupy
from ..engines import result_memory
from ..errors import ArgumentError, DeviceError, OutputError, SelectionError

if TYPE_CHECKING:
    from ..engines.cuda.device import Device


class Results(Protocol):
    """Makes and checks the arrays of one read.

    Attributes
    ----------
    kind
        What they are called in messages, with their device.
    """

    kind: str

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Return a new C-contiguous array of undefined content; MemoryError or ValueError if there is no room."""

    def is_array(self, value: object) -> bool:
        """Return whether a caller's array is of this kind."""

    def copy(self, target: Any, source: Any) -> None:
        """Do ``target[...] = source``."""


class HostResults:
    """NumPy arrays."""

    kind = "a numpy.ndarray for device 'cpu'"

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Return a new array; a large one in recycled memory."""
        return result_memory.empty(shape, dtype)

    def is_array(self, value: object) -> bool:
        """Return whether it is a NumPy array."""
        return isinstance(value, np.ndarray)

    def copy(self, target: Any, source: Any) -> None:
        """Copy elements."""
        target[...] = source


class DeviceResults:
    """CuPy arrays on one device, made and written in the order of a stream.

    Parameters
    ----------
    device, stream
        Which device, and the caller's stream on it.
    """

    __slots__ = ("device", "kind", "stream")

    def __init__(self, device: Device, stream: Any) -> None:
        self.device = device
        self.stream = stream
        self.kind = f"a cupy.ndarray on device {device.name!r}"

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Return a new array from CuPy's current allocator."""
        with self.device:
            return self.device.empty(shape, dtype, self.stream)

    def is_array(self, value: object) -> bool:
        """Return whether it is a CuPy array of this device."""
        return self.device.is_array(value)

    def copy(self, target: Any, source: Any) -> None:
        """Enqueue the copy."""
        with self.device:
            self.device.copy_array(target, source, self.stream)


HOST = HostResults()


def output(memory: Results, out: Any, shape: tuple[int, ...], dtype: np.dtype[Any], node: str) -> Any:
    """Return the caller's array, checked, or a new one.

    Raises
    ------
    OutputError
        If ``out`` is not of the kind, shape and type that the read gives, or cannot be written to.
    DeviceError
        If the device cannot hold elements of this type.
    SelectionError
        If there is no room for the result.
    ArgumentError
        If ``GZARR_RECYCLE_BYTES`` is set and is not a whole number.
    """
    if memory is not HOST and not is_in_cupy(dtype):
        more = ", or read one field of it" if dtype.names else ""
        raise DeviceError(
            f"{node}: CuPy has no elements of type {dtype}, so they cannot be on a GPU; open the array with "
            f'device="cpu"{more}'
        )
    if out is not None:
        _check(memory, out, shape, dtype)
        return out
    try:
        return memory.empty(shape, dtype)
    except ArgumentError:
        # A setting that is wrong, not want of room.
        raise
    except (MemoryError, ValueError) as error:
        nbytes = math.prod(shape) * dtype.itemsize
        raise SelectionError(
            f"a result of shape {shape}, {dtype}, takes {nbytes} bytes, more than can be allocated; read it in parts"
        ) from error


def _check(memory: Results, out: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if not memory.is_array(out):
        raise OutputError(f"out= must be {memory.kind}, not {type(out).__name__}")
    if out.shape != shape:
        raise OutputError(f"out= has shape {out.shape}, but the selection gives {shape}")
    if out.dtype != dtype:
        raise OutputError(f"out= has dtype {out.dtype}, but the selection gives {dtype}")
    # CuPy's arrays have no such flag: they can always be written to.
    if not getattr(out.flags, "writeable", True):
        raise OutputError("out= is read-only")
