"""Addresses, for jobs, of the compiled functions of operations, by name."""

from __future__ import annotations

import importlib
import sys

from . import context
from .operations import ALGORITHMS, OPERATIONS, STATES


def address(name: str, function: str) -> int:
    """Return the address of a compiled function, compiling it on first use; 0 if there is none.

    Not thread-safe.

    Parameters
    ----------
    name
        Name of an operation; for ``"verifies"``, of an algorithm.
    function
        ``"decode"``, ``"encode"``, ``"frames"`` or ``"verifies"``.
    """
    module_name = ALGORITHMS[name].module if function == "verifies" else OPERATIONS[name].module
    if module_name is None:
        return 0
    compiled = getattr(importlib.import_module(module_name), f"{name}_{function}", None)
    # An operation may also use the state of another module.
    for state in STATES:
        module = sys.modules.get(f"{__package__}.{state}")
        if module is not None:
            context.releases_with(getattr(module, f"{state}_release").address)
    return 0 if compiled is None else int(compiled.address)
