"""Which of several volumes an error is about."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ..errors import GzarrError
from ..stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..arrays.exporting import ExportedArray


@contextlib.contextmanager
def in_volume(number: int, count: int, arrays: Mapping[str, ExportedArray]) -> Iterator[None]:
    """Name a volume in a note of the errors that are raised here, if there are several.

    Parameters
    ----------
    number, count
        Number of the volume, and number of volumes.
    arrays
        Its arrays by name. The first one that is stored has the path that is told.
    """
    try:
        yield
    except GzarrError as error:
        if count > 1:
            stored = (array for array in arrays.values() if not isinstance(array.store, MemoryStore))
            path = next((f", '/{array.path}' in {array.store!r}" for array in stored), "")
            error.add_note(f"(in volume {number}{path})")
        raise
