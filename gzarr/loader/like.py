"""Batches as tensors of PyTorch or arrays of JAX, without a copy (JAX on a device: one); sparse rows as matrices."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np

from ..errors import ArgumentError, GzarrError
from ..plugins import integration
from ..sparse.libraries import check_libraries, matrix_of
from ..sparse.parts import Parts
from .arguments import is_one_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Like: TypeAlias = Literal["numpy", "cupy", "scipy", "torch", "jax"]


def converter(like: Like | None, device: str) -> Callable[[Any], Any] | None:
    """Return the function that turns arrays of a device into arrays of a library, or None if they are its own.

    Raises
    ------
    ArgumentError
        If there is no such library, if it is not installed, or if it has no arrays on the device.
    """
    if like is None:
        return None
    if not is_one_of(like, get_args(Like)):
        raise ArgumentError(f"like must be 'numpy', 'cupy', 'scipy', 'torch' or 'jax', not {like!r}")
    if like == "scipy":
        if device != "cpu":
            raise ArgumentError(f"matrices of SciPy are in host memory, not on {device!r}; leave like= out")
        return None
    if like in ("numpy", "cupy"):
        if (like == "numpy") != (device == "cpu"):
            raise ArgumentError(f"arrays that are read to {device!r} are not like {like!r}; leave like= out")
        return None
    if like == "torch":
        return integration("torch").as_batch  # type: ignore[no-any-return]
    return integration("jax").as_array  # type: ignore[no-any-return]


def check_sparse(like: Like | None, device: str, dtypes: Sequence[np.dtype[Any]]) -> None:
    """Refuse rows that stay sparse if a library has no such matrices, or is not installed.

    Raises
    ------
    ArgumentError
        As above.
    """
    if like in (None, "scipy", "cupy"):
        check_libraries(device, dtypes)


def sparse_converter(like: Like | None) -> Callable[[Parts], Any]:
    """Return the function that turns rows that stay sparse into a matrix of a library."""
    if like == "numpy":
        return lambda parts: parts
    if like == "torch":
        return integration("torch").as_sparse  # type: ignore[no-any-return]
    if like == "jax":
        return integration("jax").as_sparse  # type: ignore[no-any-return]
    return matrix_of


def consumer_stream(like: Like | None, device: str) -> Any:
    """Return the stream that a library's next work runs on; None for CuPy's current one."""
    return integration("torch").current_stream(device) if like == "torch" and device != "cpu" else None


def converted(
    value: Any,
    convert: Callable[[Any], Any] | None,
    convert_sparse: Callable[[Parts], Any] | None = None,
    path: str = "batch",
) -> Any:
    """Return a value with its arrays, and rows that stay sparse, converted; others stay, and all without functions.

    Dicts are changed in place, and so keep their types. Lists and tuples, also named ones, are new where they have
    arrays. Arrays are those of NumPy and CuPy, and scalars of NumPy but text. If the library cannot hold one, a note of
    the error has its key.

    Parameters
    ----------
    value
        An array; or a dict, list or tuple of arrays, or of such.
    convert, convert_sparse
        What becomes of arrays, and of sparse rows.
    path
        What the value is called.
    """
    # Before tuples, of which they are one.
    if isinstance(value, Parts):
        return value if convert_sparse is None else convert_sparse(value)
    if isinstance(value, dict):
        for name, item in value.items():
            value[name] = converted(item, convert, convert_sparse, f"{path}[{name!r}]")
        return value
    is_named = isinstance(value, tuple) and hasattr(value, "_fields")
    if is_named or type(value) in (list, tuple):
        items = [converted(item, convert, convert_sparse, f"{path}[{i}]") for i, item in enumerate(value)]
        if all(new is item for new, item in zip(items, value, strict=True)):
            return value
        return type(value)(*items) if is_named else type(value)(items)
    if convert is None or not _is_array(value):
        return value
    try:
        return convert(value)
    except GzarrError as error:
        error.add_note(f"(in {path})")
        raise


def _is_array(value: object) -> bool:
    """Return whether a value is an array of NumPy or CuPy, or a scalar of NumPy that is no text."""
    if isinstance(value, np.generic):
        return not isinstance(value, (str, bytes))
    of_cupy = getattr(sys.modules.get("cupy"), "ndarray", None)
    return isinstance(value, np.ndarray) or (of_cupy is not None and isinstance(value, of_cupy))
