"""Options of one write: who is excluded, what is refused, stream and memory on a device."""

from __future__ import annotations

from typing import Any, Final, NamedTuple


class WriteOptions(NamedTuple):
    """Options of a write, each as for :meth:`gzarr.Array.write`. Made for every small write: a tuple is made fast."""

    lock: bool = False
    aligned: bool = False
    stream: Any = None
    fill_masked: bool = False
    budget_bytes: int | None = None


NO_WRITE_OPTIONS: Final = WriteOptions()
