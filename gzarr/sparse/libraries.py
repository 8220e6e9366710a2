"""Matrices of SciPy and CuPy of the arrays of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..errors import ArgumentError, DeviceError
from ..installing import COMMANDS
from .host import scipy_sparse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .parts import Parts

#: Types of values in matrices of CuPy.
OF_CUPY: Final = "?fdFD"


def check_libraries(device: str, dtypes: Sequence[np.dtype[Any]]) -> None:
    """Refuse matrices on a device that its library does not have.

    Raises
    ------
    ArgumentError
        If SciPy is not installed, or if CuPy has no matrices of a type.
    """
    if device == "cpu":
        scipy_sparse()
        return
    for dtype in dtypes:
        if dtype.char not in OF_CUPY:
            raise ArgumentError(
                f"sparse matrices of CuPy have no {dtype}; pass dtype='float32' to m.dense(), or like='torch'"
            )


def matrix_of(parts: Parts) -> Any:
    """Return rows as a ``csr_array`` of SciPy or, on a GPU, of CuPy (before CuPy 14.1, a ``csr_matrix``).

    Raises
    ------
    ArgumentError
        If SciPy is not installed.
    DeviceError
        If there is no cuSPARSE.
    """
    arrays = (parts.data, parts.indices, parts.indptr)
    if isinstance(parts.data, np.ndarray):
        return scipy_sparse().csr_array(arrays, shape=parts.shape, copy=False)
    import cupyx.scipy.sparse as sparse

    make = getattr(sparse, "csr_array", None) or sparse.csr_matrix
    try:
        with parts.data.device:
            return make(arrays, shape=parts.shape, copy=False)
    except ImportError as error:
        raise DeviceError(
            f"sparse matrices on a GPU are CuPy's, which need cuSPARSE: {COMMANDS['cusparse-cu13']} (with CUDA 12, "
            f"{COMMANDS['cusparse-cu12']}) installs it; like='torch' does without it ({error})"
        ) from error
