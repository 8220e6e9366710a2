"""What only reference cycles keep."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def uncollected() -> Iterator[None]:
    """Collect no garbage in a block of code: it holds memory of devices, of which the collector knows nothing."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def kept_by_cycles() -> Iterator[list[str]]:
    """Collect no garbage in a block of code; list which arrays, objects of gzarr and frames of it there are then."""
    found: list[str] = []
    with uncollected():
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            gc.collect()
            # Arrays have no references, so the collector does not know them.
            arrays = [thing for thing in gc.get_referents(*gc.garbage) if isinstance(thing, np.ndarray)]
            found += filter(None, map(_described, [*gc.garbage, *arrays]))
            del arrays
        finally:
            gc.set_debug(0)
            gc.garbage.clear()


def _described(thing: Any) -> str | None:
    if isinstance(thing, FrameType):
        return f"{thing.f_code.co_name}, line {thing.f_lineno}" if "/gzarr/" in thing.f_code.co_filename else None
    kind = type(thing)
    name = f"{kind.__module__}.{kind.__qualname__}"
    return name if name.startswith("gzarr.") or isinstance(thing, np.ndarray) else None
