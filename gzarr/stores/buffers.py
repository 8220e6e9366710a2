"""Values to store: any contiguous buffer, seen as bytes without a copy; also in parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ArgumentError
from .base import GatheringStore, knows_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Buffer

    from .base import WritableStore


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


def as_bytes(value: Buffer) -> bytes:
    """Return the bytes of a buffer, without a copy if it is, or shows all of, a bytes object."""
    view = memoryview(value)
    owner = view.obj
    return owner if type(owner) is bytes and len(owner) == view.nbytes and view.c_contiguous else bytes(view)


def store_value(store: WritableStore, key: str, parts: Sequence[Buffer]) -> None:
    """Store a value given in parts, joined only if the store needs that; erase it if there are none."""
    if not parts:
        store.erase(key)
    elif len(parts) > 1 and isinstance(store, GatheringStore) and knows_of(store, "set_parts", "set"):
        store.set_parts(key, parts)
    else:
        store.set(key, b"".join(parts))
