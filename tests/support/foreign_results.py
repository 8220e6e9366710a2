"""What both tests of other libraries' arrays need: arrays of each data type, and the memory that reads return."""

from __future__ import annotations

import ctypes
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np

import gzarr

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest
    from support.cuda_on_host.dlpack import Imported

#: NumPy's numbers, in the spelling of a stored array.
NUMBERS = ["bool", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16", ">i2", ">f4", ">c16"]
#: Selections of an array of shape (40, 50).
SELECTIONS: list[Any] = [
    np.s_[...],
    np.s_[3],
    np.s_[3, 4],
    np.s_[::-3, 10:2:-2],
    np.s_[5:5],
    np.s_[None, 7:9, ..., None],
    (np.array([30, 2, 2]), np.s_[4:9]),
    (np.array([30, 2]), np.array([1, 1])),
]


def random_array(dtype: Any, shape: tuple[int, ...] = (40, 50), **arguments: Any) -> gzarr.Array:
    """Return an array in memory with any bits that are numbers."""
    # Of version 2, which keeps a byte order.
    arguments = {"zarr_format": 2 if str(dtype)[0] in "<>" else 3, **arguments}
    array = gzarr.create_array({}, shape=shape, dtype=dtype, device="cpu", **arguments)
    bits = np.random.default_rng(8).integers(0, 2 if array.dtype == bool else 256, (*shape, array.dtype.itemsize), "u1")
    array[...] = bits.view(array.dtype)[..., 0] if array.dtype.itemsize > 1 else bits[..., 0].view(array.dtype)
    return array


def collected_results(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Collect in a list what every read returns."""
    found: list[Any] = []
    read = gzarr.Array.read

    def collected(array: gzarr.Array, *arguments: Any, **options: Any) -> Any:
        found.append(read(array, *arguments, **options))
        return found[-1]

    monkeypatch.setattr(gzarr.Array, "read", collected)
    return found


@contextmanager
def torch_takes_copies() -> Iterator[list[Imported]]:
    """Let PyTorch's build for the CPU get copies of what it is handed on a device; collect what that is."""
    import torch
    from support.cuda_on_host import dlpack

    found: list[Imported] = []
    own = torch.from_dlpack

    def take(values: Any) -> torch.Tensor:
        if isinstance(values, np.ndarray):
            return own(values)
        # As PyTorch does: on its own current stream.
        stream = torch.cuda.current_stream().cuda_stream if torch.cuda.is_available() else dlpack.LEGACY
        found.append(dlpack.imported(values, stream))
        tensor = torch.from_numpy(found[-1].read(stream))
        found[-1].release()
        return tensor

    with mock.patch.object(torch, "from_dlpack", take):
        yield found


@contextmanager
def jax_takes_copies() -> Iterator[list[Imported]]:
    """Let JAX's build for the CPU get copies of what it is handed on a device; collect what that is."""
    import jax
    from support.cuda_on_host import dlpack

    found: list[Imported] = []

    def take(values: Any) -> jax.Array:
        found.append(dlpack.imported(values))
        array = jax.numpy.asarray(found[-1].read(dlpack.LEGACY))
        found[-1].release()
        return array

    with mock.patch.object(jax.dlpack, "from_dlpack", take):
        yield found


class OnDevice:
    """An array of JAX's on a GPU, as XLA has it.

    Parameters
    ----------
    xla
        What it is computed by.
    address, dtype, nbytes
        Its memory.
    owner
        What is dropped with it: memory of its own, or what another library has exported, whose deleter is called then,
        whatever is enqueued.
    """

    def __init__(self, xla: Xla, address: int, dtype: Any, nbytes: int, owner: Any) -> None:
        self._xla, self.address, self.dtype, self.nbytes, self._owner = xla, address, dtype, nbytes, owner

    def __del__(self) -> None:
        release = getattr(self._owner, "release", None)
        if release is not None:
            release()

    def block_until_ready(self) -> OnDevice:
        self._xla.stream.synchronize()
        return self


class Xla:
    """What JAX does with arrays of a GPU, in order with a stream that nobody else sees.

    Parameters
    ----------
    cuda
        The device in host memory.

    Attributes
    ----------
    stream
        The stream.
    """

    def __init__(self, cuda: Any) -> None:
        import cupy

        self._cuda = cuda
        self.stream = cupy.cuda.Stream(non_blocking=True)

    def from_dlpack(self, values: Any) -> OnDevice:
        """Import without a copy."""
        from support.cuda_on_host import dlpack

        found = dlpack.imported(values, self.stream.ptr)
        return OnDevice(self, found.pointer, found.dtype, values.nbytes, found)

    def array(self, values: OnDevice, *, copy: bool) -> OnDevice:
        """Enqueue a copy."""
        assert copy
        own = np.empty(values.nbytes, np.uint8)
        self._enqueue(ctypes.memmove, own.ctypes.data, values.address, values.nbytes)
        return OnDevice(self, own.ctypes.data, values.dtype, values.nbytes, own)

    def bitcast(self, values: OnDevice, dtype: Any) -> OnDevice:
        """Enqueue a copy with another type."""
        made = self.array(values, copy=True)
        made.dtype = np.dtype(dtype)
        return made

    def step(self, values: OnDevice) -> np.ndarray[Any, Any]:
        """Enqueue work, and return its result, which is there once the stream has run."""
        result = np.empty(values.nbytes // values.dtype.itemsize, values.dtype)
        # XLA keeps memory of its own until what is enqueued has run, and no other.
        own = None if hasattr(values._owner, "release") else values._owner
        self._enqueue(self._copy, result, values.address, own)
        return result

    @staticmethod
    def _copy(result: np.ndarray[Any, Any], address: int, own: Any) -> None:
        ctypes.memmove(result.ctypes.data, address, result.nbytes)

    def _enqueue(self, function: Any, *arguments: Any) -> None:
        def late() -> None:
            time.sleep(0.02)
            function(*arguments)

        self._cuda.enqueue(self.stream, late)

    @contextmanager
    def of_jax(self) -> Iterator[None]:
        """Be what JAX has for arrays of a GPU."""
        import jax

        with (
            mock.patch.object(jax.dlpack, "from_dlpack", self.from_dlpack),
            mock.patch.object(jax.numpy, "array", self.array),
            mock.patch.object(jax.lax, "bitcast_convert_type", self.bitcast),
        ):
            yield


def same_bits(found: Any, expected: Any) -> None:
    """Check that two arrays in host memory have one dtype, one shape and the same bits, those of NaN included."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.tobytes() == expected.tobytes()
