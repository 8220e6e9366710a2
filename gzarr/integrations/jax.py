"""JAX: arrays that share the memory of results in host memory, and copies of those on a GPU.

JAX's arrays are written as values without any help: they export themselves to NumPy and CuPy, with the numbers of
ml_dtypes. The other way, JAX narrows 64-bit numbers silently unless it is told not to, and so this module warns.

On a GPU, JAX gives imported memory back as soon as its array is dropped, whatever it has enqueued that still reads it.
It does so on a stream that it does not show, so nothing that uses the memory next can wait for it. There, an array is
copied to memory of JAX's own, and the host waits until the copy is made.
"""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy
import numpy as np

import gzarr

from .exchange import as_result, dtype_of, handing_over, is_number_of_numpy, refusal

if TYPE_CHECKING:
    from gzarr.sparse import Parts

__all__ = ["as_array"]


def to_jax(array: gzarr.Array, selection: Any = ..., *, stacklevel: int = 2, **options: Any) -> jax.Array:
    """Read a selection to a new JAX array; see :meth:`gzarr.Array.to_jax`.

    ``stacklevel`` is that of warnings, as for :func:`warnings.warn`.
    """
    _check_dtype(dtype_of(array, selection))
    return as_array(array.read(selection, **options), stacklevel=stacklevel + 1)


def as_array(values: Any, *, stacklevel: int = 2) -> jax.Array:
    """Return a JAX array of the same memory, as of ``a.oindex[...]`` or another result; on a GPU, of a copy.

    JAX takes its arrays to be immutable: nothing must write to the memory from now on. On a GPU, the host waits until
    the copy is made, after which the memory is the caller's again.

    Parameters
    ----------
    values
        NumPy or CuPy array, or a NumPy scalar.
    stacklevel
        That of warnings, as for :func:`warnings.warn`.

    Returns
    -------
    Array of the same shape, in host memory or on the GPU. JAX copies what it cannot share: host memory that does not
    begin at a multiple of 64 bytes (results from 64 KiB on do) or is not contiguous, and numbers that it narrows.

    Raises
    ------
    ArgumentError
        If the values are no array of NumPy or CuPy, or have masked elements, or if JAX has no such elements (dates,
        strings, records, another byte order).
    DeviceError
        If the array is on a GPU that JAX cannot use.

    Warns
    -----
    UserWarning
        If JAX makes 32-bit numbers of 64-bit ones, because ``jax_enable_x64`` is not set.
    """
    array = as_result(values)
    dtype = array.dtype
    _check_dtype(dtype)
    narrow = jax.dtypes.canonicalize_dtype(dtype)
    if narrow != dtype:
        warnings.warn(
            f"JAX makes {narrow} of {dtype}, and changes numbers that do not fit; to keep all 64 bits, call "
            'jax.config.update("jax_enable_x64", True) first',
            UserWarning,
            stacklevel=stacklevel,
        )
    if isinstance(array, np.ndarray):
        # Like DLPack, but also takes the numbers of ml_dtypes.
        try:
            return jax.device_put(array, jax.devices("cpu")[0])
        except RuntimeError as error:
            if is_number_of_numpy(dtype):
                raise
            # JAX has names for more types than XLA can hold.
            raise refusal(dtype, "JAX") from error
    return _copied(array)


def as_sparse(parts: Parts) -> Any:
    """Return rows of a sparse matrix as a ``jax.experimental.sparse.BCSR``.

    Raises
    ------
    ArgumentError, DeviceError
        As for :func:`as_array`.
    """
    from jax.experimental.sparse import BCSR

    return BCSR(tuple(as_array(array) for array in parts[:3]), shape=parts.shape)


def _copied(array: Any) -> jax.Array:
    """Return a copy of an array of CuPy's, once it is made: ``array`` is referred to until then."""
    dtype = array.dtype
    try:
        with handing_over(array):
            if is_number_of_numpy(dtype):
                copy = jax.numpy.array(jax.dlpack.from_dlpack(array), copy=True)
            else:
                # A type of ml_dtypes, of which CuPy has only bfloat16.
                bits = jax.dlpack.from_dlpack(array.view(f"u{dtype.itemsize}"))
                copy = jax.lax.bitcast_convert_type(bits, dtype)
            return copy.block_until_ready()
    # TypeError: memory of a kind that JAX does not know, as CUDA's managed memory.
    except (BufferError, TypeError, ValueError) as error:
        raise gzarr.ArgumentError(
            f"JAX cannot take the array: {error}; pass a contiguous copy in ordinary device memory"
        ) from error
    except RuntimeError as error:
        raise gzarr.DeviceError(f"JAX cannot use the array's device: {error}") from error


@lru_cache(maxsize=256)
def _check_dtype(dtype: np.dtype[Any]) -> None:
    name = "bool_" if dtype.name == "bool" else dtype.name
    # The scalar types of jax.numpy are JAX's element types.
    if not dtype.isnative or dtype.kind in "MmSUTO" or dtype.names or not hasattr(jax.numpy, name):
        raise refusal(dtype, "JAX")
