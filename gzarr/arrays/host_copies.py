"""Copies of CuPy's arrays in host memory."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any


def host_copy(array: Any) -> Any:
    """Return an array of CuPy in host memory, or one of its sparse matrices as one of SciPy.

    CuPy copies on the current stream of the thread's device, whichever device the array is on. If that is another one,
    nothing waits for what makes the array. So the array's device is made the thread's.

    Parameters
    ----------
    array
        The array. Those of other libraries with a method ``get`` are taken as well.
    """
    # Sparse matrices know no device, but their data do, as the memory of arrays.
    device: Any = getattr(getattr(array, "data", None), "device", None)
    # Those of other libraries may be names.
    with device if hasattr(device, "__enter__") else nullcontext():
        return array.get()
