"""Distinct elements, found by sorting.

``np.unique`` of values alone, and ``union1d`` and ``setdiff1d``, which call it, count by a hash table in C++ (NumPy 2.3
and later) without the GIL. A daemon thread in it when the process ends is ended in the middle, which aborts it all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt


def distinct(*values: Any) -> npt.NDArray[Any]:
    """Return the distinct elements of some arrays of numbers together, sorted."""
    together = np.sort(np.concatenate([np.ravel(one) for one in values]))
    new = np.ones(len(together), bool)
    np.not_equal(together[1:], together[:-1], out=new[1:])
    found: npt.NDArray[Any] = together[new]
    return found
