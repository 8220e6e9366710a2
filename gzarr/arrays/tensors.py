"""Tensors of PyTorch as values to be written; the conversions are :mod:`gzarr.integrations.torch`'s own."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ..plugins import integration

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


def is_tensor(value: Any) -> bool:
    """Return whether a value is a tensor of PyTorch, without importing it."""
    kind = getattr(sys.modules.get("torch"), "Tensor", None)
    return kind is not None and isinstance(value, kind)


def tensor_on_host(tensor: Any) -> npt.NDArray[Any]:
    """Return the elements of a tensor in host memory."""
    host: npt.NDArray[Any] = integration("torch").as_numpy(tensor)
    return host


def exported_tensor(tensor: Any) -> tuple[Any, np.dtype[Any] | None]:
    """Return a tensor in a form that other libraries take, and the dtype to view its elements as, if not theirs."""
    found: tuple[Any, np.dtype[Any] | None] = integration("torch").exported(tensor)
    return found
