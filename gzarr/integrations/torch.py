"""PyTorch: tensors that share the memory of results, and tensors as values to be written.

Results are new and writable, in host memory or on a GPU, so DLPack hands them over as they are. This module adds what
DLPack leaves out: the numbers of ml_dtypes (bfloat16, float8) by a view, PyTorch's current stream, and reasons for what
PyTorch cannot hold.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

import gzarr

from ..engines.cuda.devices import get_device
from ..engines.cuda.handing_over import wait_for
from ..installing import COMMANDS
from .exchange import as_result, dtype_of, handing_over, is_number_of_numpy, refusal

if TYPE_CHECKING:
    import numpy.typing as npt

    from gzarr.sparse import Parts

__all__ = ["as_tensor"]

#: DLPack's number for managed memory, which moves between host and device. PyTorch does not take it.
_MANAGED: Final = 13
#: Types of ml_dtypes that PyTorch has under the same name, and an integer of their size, which DLPack takes.
_VIEWS: Final = {
    "bfloat16": "int16",
    "complex32": "int32",
    "float8_e4m3fn": "uint8",
    "float8_e4m3fnuz": "uint8",
    "float8_e5m2": "uint8",
    "float8_e5m2fnuz": "uint8",
    "float8_e8m0fnu": "uint8",
}


def to_torch(array: gzarr.Array, selection: Any = ..., **options: Any) -> torch.Tensor:
    """Read a selection to a new tensor; see :meth:`gzarr.Array.to_torch`."""
    _view(dtype_of(array, selection))
    # CuPy gives freed memory to later work of the stream that it was allocated on: it must be the tensor's.
    stream = current_stream(array.device)
    return _tensor(array.read(selection, stream=stream, **options), stream)


def current_stream(device: str) -> Any:
    """Return the stream that PyTorch's next work on a device runs on; None if PyTorch has none."""
    return torch.cuda.current_stream(device) if device != "cpu" and torch.cuda.is_available() else None


def as_tensor(values: Any) -> torch.Tensor:
    """Return a tensor of the same memory, as of ``a.oindex[...]`` or another result.

    Parameters
    ----------
    values
        NumPy or CuPy array, or a NumPy scalar, which is copied.

    Returns
    -------
    Tensor of the same shape, in host memory or on the GPU. Never a copy of an array.

    Raises
    ------
    ArgumentError
        If PyTorch cannot share the values: they are no array of NumPy or CuPy, read-only (PyTorch would write to
        them), have masked elements or negative strides, or are elements that PyTorch does not have (dates, strings,
        records, another byte order).
    DeviceError
        If the array is on a GPU that PyTorch cannot use.
    """
    return _tensor(values, None)


def as_batch(values: Any) -> torch.Tensor:
    """Return the tensor of an array that PyTorch's current stream has made, or waits for, as of a loader's batch.

    Raises
    ------
    ArgumentError, DeviceError
        As for :func:`as_tensor`.
    """
    on_host = isinstance(values, (np.ndarray, np.generic))
    return _tensor(values, None if on_host else current_stream(f"cuda:{values.device.id}"))


def _tensor(values: Any, stream: Any) -> torch.Tensor:
    """Return a tensor of the same memory, which ``stream`` has made, or waits for; None for CuPy's current one."""
    array = as_result(values)
    view = _view(array.dtype)
    if not getattr(array.flags, "writeable", True):
        raise gzarr.ArgumentError("the array is read-only, but a tensor of its memory would be writable: pass a copy")
    # PyTorch ends the process.
    if any(stride < 0 for stride in array.strides):
        raise gzarr.ArgumentError(f"PyTorch has no negative strides, but the array has {array.strides}: pass a copy")
    try:
        with handing_over(array, stream):
            tensor = _shared(array if view is None else array.view(view[0]))
    except (BufferError, TypeError, ValueError) as error:
        raise gzarr.ArgumentError(f"PyTorch cannot share the array's memory: {error}; pass a copy") from error
    except (RuntimeError, AssertionError) as error:
        raise gzarr.DeviceError(f"PyTorch cannot use the array's device: {error}") from error
    return tensor if view is None else tensor.view(view[1])


def _shared(array: Any) -> torch.Tensor:
    """Return a tensor of the same memory, for which PyTorch's current stream waits for CuPy's current one."""
    if array.__dlpack_device__()[0] != _MANAGED:
        return torch.from_dlpack(array)
    name = f"cuda:{array.device.id}"
    # By ``__cuda_array_interface__``, for which PyTorch waits for nothing.
    tensor = torch.as_tensor(array, device=name)
    with get_device(name) as device:
        wait_for(device, [device.as_stream(current_stream(name))], device.current_stream(), held=array)
    return tensor


def as_sparse(parts: Parts) -> torch.Tensor:
    """Return rows of a sparse matrix as a tensor (``torch.sparse_csr_tensor``), over the same memory if it can be.

    PyTorch wants the columns of each row to ascend, and computes wrong products else. Entries of rows in which they do
    not are sorted, and those of one element added up. On a device, PyTorch's current stream has made them, or waits
    for them.

    Raises
    ------
    ArgumentError, DeviceError
        As for :func:`as_tensor`.
    """
    offsets, columns, values = (as_batch(array) for array in (parts.indptr, parts.indices, parts.data))
    if not _ascend(offsets, columns):
        offsets, columns, values = _sorted(offsets, columns, values, parts.shape)
    # That the rest is right has been checked where they were read.
    return torch.sparse_csr_tensor(offsets, columns, values, size=parts.shape, check_invariants=False)


def _ascend(offsets: torch.Tensor, columns: torch.Tensor) -> bool:
    """Return whether the columns of each row ascend."""
    descends = columns[1:] <= columns[:-1]
    # From one row to the next, they may.
    begins = offsets[1:-1]
    descends[begins[(begins > 0) & (begins < len(columns))].long() - 1] = False
    return not bool(descends.any())


def _sorted(
    offsets: torch.Tensor, columns: torch.Tensor, values: torch.Tensor, shape: tuple[int, int]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the same rows with ascending columns, and one entry for each element."""
    count, width = shape
    begins = width * torch.arange(count + 1, device=columns.device)
    places, order = (torch.repeat_interleave(begins[:-1], offsets.diff().long()) + columns).sort(stable=True)
    places, which = torch.unique_consecutive(places, return_inverse=True)
    values = values[order]
    if len(places) < len(values):
        # PyTorch adds up few types of integers. Sums wrap around as NumPy's do.
        wide = torch.int64 if not (values.is_floating_point() or values.is_complex()) else values.dtype
        sums = torch.zeros(len(places), dtype=wide, device=values.device)
        values = sums.index_add_(0, which, values.to(wide)).to(values.dtype)
    return torch.searchsorted(places, begins).to(offsets.dtype), (places % width).to(columns.dtype), values


def as_numpy(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """Return the elements of a tensor: those on the host share its memory, those on a device are copied to the host.

    Raises
    ------
    TypeError, RuntimeError, NotImplementedError
        PyTorch's own: if the tensor requires gradients, is sparse, quantized, or without data.
    """
    plain, dtype = exported(tensor)
    host: npt.NDArray[Any] = plain.cpu().numpy()
    return host if dtype is None else host.view(dtype)


def exported(tensor: torch.Tensor) -> tuple[torch.Tensor, np.dtype[Any] | None]:
    """Return a tensor in a form that other libraries take, on its device, and the dtype to view its elements as.

    The dtype is None if other libraries know the tensor's own. The tensor is a view, or a copy with pending
    conjugations and negations done.

    Raises
    ------
    RuntimeError
        If the tensor requires gradients, as from PyTorch, or if ml_dtypes has to be installed.
    """
    if tensor.requires_grad:
        raise RuntimeError("it requires gradients, which would be lost; write tensor.detach()")
    plain = tensor.resolve_conj().resolve_neg()
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in _VIEWS:
        return plain, None
    try:
        import ml_dtypes
    except ImportError:
        raise RuntimeError(f"{name} needs the package ml_dtypes: {COMMANDS['ml-dtypes']}") from None
    return plain.view(getattr(torch, _VIEWS[name])), np.dtype(getattr(ml_dtypes, name))


@lru_cache(maxsize=256)
def _view(dtype: np.dtype[Any]) -> tuple[str, torch.dtype] | None:
    """Return the type that DLPack takes in place of a dtype, and PyTorch's own; None if DLPack takes the dtype.

    Raises
    ------
    ArgumentError
        If PyTorch does not have it.
    """
    name = dtype.name
    own = getattr(torch, name, None)
    # PyTorch's int4 and the like are only names.
    if dtype.isnative and isinstance(own, torch.dtype) and (name in _VIEWS or is_number_of_numpy(dtype)):
        return (_VIEWS[name], own) if name in _VIEWS else None
    raise refusal(dtype, "PyTorch")
