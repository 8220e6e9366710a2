"""What may be stored as a value: any contiguous buffer, seen as bytes without a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ArgumentError

if TYPE_CHECKING:
    from typing_extensions import Buffer


def as_view(value: Buffer, key: str) -> memoryview:
    """Return ``value`` as a flat view of its bytes.

    Raises
    ------
    ArgumentError
        If ``value`` is not a contiguous buffer (bytes, bytearray, memoryview, NumPy array of numbers, ...).
    """
    try:
        view = memoryview(value)
        return view.cast("B") if view.nbytes else memoryview(b"")
    except (TypeError, ValueError, NotImplementedError) as exc:
        raise ArgumentError(
            f"the value for {key!r} must be bytes or a contiguous buffer of numbers, not {type(value).__name__}: {exc}"
        ) from exc
