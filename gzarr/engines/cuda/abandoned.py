"""What a forked child leaves to its parent: objects of the parent's CUDA context must not even be freed there."""

from __future__ import annotations

import ctypes
from typing import Any

_left: list[object] = []
# One reference more, which nobody drops: when the interpreter ends, it clears the variables of modules.
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_left))


def abandon(*kept: dict[Any, Any] | object) -> None:
    """Empty dictionaries, and never free what was in them, or other objects."""
    for each in kept:
        if isinstance(each, dict):
            _left.append(dict(each))
            each.clear()
        else:
            _left.append(each)
