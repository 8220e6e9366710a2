"""Arrays of PyTorch and JAX, as results and as values; the conversions are :mod:`gzarr.integrations`' own.

Integrations stand above arrays. This is the only module below that calls them, and it imports them when it does, so
that ``a.to_torch()`` can be spelled as a method (``pyproject.toml`` has the exception from the layers).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


def to_torch(array: Any, selection: Any, **options: Any) -> Any:
    """Read a selection to a tensor; see :meth:`gzarr.Array.to_torch`."""
    try:
        from ..integrations.torch import to_torch
    except ModuleNotFoundError as error:
        raise _absent(error, "torch", "PyTorch") from error
    return to_torch(array, selection, **options)


def to_jax(array: Any, selection: Any, **options: Any) -> Any:
    """Read a selection to a JAX array; see :meth:`gzarr.Array.to_jax`."""
    try:
        from ..integrations.jax import to_jax
    except ModuleNotFoundError as error:
        raise _absent(error, "jax", "JAX") from error
    # Warnings show the line of the caller's method.
    return to_jax(array, selection, stacklevel=4, **options)


def is_tensor(value: Any) -> bool:
    """Return whether a value is a tensor of PyTorch, without importing it."""
    kind = getattr(sys.modules.get("torch"), "Tensor", None)
    return kind is not None and isinstance(value, kind)


def tensor_on_host(tensor: Any) -> npt.NDArray[Any]:
    """Return the elements of a tensor in host memory."""
    from ..integrations.torch import as_numpy

    return as_numpy(tensor)


def exported_tensor(tensor: Any) -> tuple[Any, np.dtype[Any] | None]:
    """Return a tensor in a form that other libraries take, and the dtype to view its elements as, if not theirs."""
    from ..integrations.torch import exported

    return exported(tensor)


def _absent(error: ModuleNotFoundError, module: str, title: str) -> Exception:
    """Return the error for a missing library; any other module that is missing is an error as it stands."""
    if error.name != module:
        return error
    return ArgumentError(f"{title} is not installed: pip install {module}")
