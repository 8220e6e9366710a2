"""Changing the shape of an array: in which order metadata and chunks change, so that nothing that counts is lost."""

from __future__ import annotations

import contextlib
import itertools
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ..codecs.codec import ArrayRepresentation
from ..engines.cpu.threads import fill_chunk
from ..errors import ArgumentError, GzarrError
from ..metadata.model import ArrayMetadata
from ..metadata.to_documents import resized
from ..nodes.change import change_array, hold_documents, reader_of
from ..plan.selection import parse_basic
from ..stores import locks
from ..stores.base import ListableStore
from .elements import as_data
from .stored_chunks import stored_chunks
from .write import Writer, between_processes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..stores.base import Store
    from .writing import WritableArray

Chunks: TypeAlias = "Iterator[tuple[str, tuple[int, ...]]]"

#: So many chunks are named rather than looked for by listing the store.
MAX_NAMED: Final = 1000
#: Chunks that are erased or changed in one go.
_BATCH: Final = 256


def resize(array: WritableArray, shape: int | Sequence[int], *, erase: bool, lock: bool) -> None:
    """Give an array another shape; see :meth:`gzarr.Array.resize`."""
    store: Store = array.store  # type: ignore[assignment]
    before: list[ArrayMetadata] = []

    def change(found: ArrayMetadata) -> ArrayMetadata:
        before.append(_checked(array, found))
        return resized(before[0], shape)  # type: ignore[arg-type]

    with _turn(array, lock=lock):
        after = change_array(store, array.path, array.zarr_format, change, array._become)
        if erase:
            clear_outside(store, array.path, before[0], after, lock=lock)


def append(array: WritableArray, value: Any, axis: int, *, lock: bool) -> tuple[int, ...]:
    """Write elements behind the end of an array, then make them part of it; see :meth:`gzarr.Array.append`."""
    store: Store = array.store  # type: ignore[assignment]
    value = as_data(value, array.dtype, array.name, array.ndim)
    with _turn(array, lock=lock):
        # Others may have appended since this array was opened.
        with hold_documents(store, array.path):
            entry = reader_of(store).node(array.path, array.zarr_format)
            if entry is not None and isinstance(entry.metadata, ArrayMetadata):
                array._become(_checked(array, entry.metadata))
        number, shape = _appended(array, value.shape, axis)
        region = [slice(None)] * array.ndim
        region[number] = slice(array.shape[number], None)
        grown = resized(array.metadata, shape)
        if 0 not in value.shape:
            selection = parse_basic(tuple(region), shape)
            try:
                array._write([selection], [value], None, lock=lock, aligned=False, metadata=grown)
            except BaseException:
                # Nobody reads what was written beyond the end, until the array grows some day.
                with contextlib.suppress(GzarrError):
                    clear_outside(store, array.path, grown, array.metadata, lock=lock)
                raise

        def grow(found: ArrayMetadata) -> ArrayMetadata:
            return resized(_checked(array, found), shape)

        change_array(store, array.path, array.zarr_format, grow, array._become)
        return shape


def _appended(array: WritableArray, shape: tuple[int, ...], axis: int) -> tuple[int, tuple[int, ...]]:
    """Return the axis, counted from 0, and the shape of the array with an array of another shape behind it."""
    if not array.ndim:
        raise ArgumentError(f"{array.name} has zero dimensions: nothing can be appended to it")
    if not hasattr(axis, "__index__") or not -array.ndim <= axis < array.ndim:
        raise ArgumentError(
            f"{array.name}: axis must be an integer from {-array.ndim} to {array.ndim - 1}, not {axis!r}"
        )
    number = axis.__index__() % array.ndim
    others = array.shape[:number], array.shape[number + 1 :]
    if len(shape) != array.ndim or (shape[:number], shape[number + 1 :]) != others:
        raise ArgumentError(
            f"{array.name}: an array of shape {shape} cannot be appended along axis {number} to one of shape "
            f"{array.shape}; all other lengths must be the same"
        )
    return number, (*others[0], array.shape[number] + shape[number], *others[1])


@contextlib.contextmanager
def _turn(array: WritableArray, *, lock: bool) -> Iterator[None]:
    """Keep others from changing the shape meanwhile."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(locks.hold_node(array.store, array.path))
        if lock:
            stack.enter_context(between_processes(array.store, (), array.metadata.key_prefix(array.path)))
        yield


def _checked(array: WritableArray, found: ArrayMetadata) -> ArrayMetadata:
    """Return metadata that the store has now; raise if they are of another array than the one that was opened."""
    if _layout(array.metadata, array.path) == _layout(found, array.path):
        # What no document says stays as it was.
        same = found.codecs == array.metadata.codecs
        return replace(found, level_is_free=array.metadata.level_is_free and same)
    raise ArgumentError(
        f"{array.name} in {array.store!r} has been replaced by another array since it was opened; open it again"
    )


def _layout(metadata: ArrayMetadata, path: str) -> tuple[Any, ...]:
    """Return what decides which bytes an element is stored as, and where."""
    even = [axis.longest if axis.is_regular else None for axis in metadata.chunk_grid.axes]
    return (
        (metadata.dtype, metadata.key_prefix(path), metadata.chunk_key_encoding, even),
        [codec.label for codec in metadata.codecs],
    )


def clear_outside(store: Store, path: str, old: ArrayMetadata, new: ArrayMetadata, *, lock: bool = False) -> None:
    """Erase what an array had outside its new shape, whose metadata is stored already.

    A chunk (shard) outside is erased. In one that is partly outside, that part becomes the fill value, so that an array
    that grows again does not show what was cut off. If it fails or is killed, the rest of it is left where nobody
    reads it, until the array grows.

    Parameters
    ----------
    store, path
        Where the array is.
    old, new
        What it was, and what it is now; they differ in their shapes.
    lock
        Keep writers of other processes away, by file locks.

    Raises
    ------
    StoreError
        If the store fails.
    ChunkError
        If a chunk at the new edge cannot be read or written.
    """
    cut = [d for d, (before, after) in enumerate(zip(old.shape, new.shape, strict=True)) if after < before]
    if not cut:
        return
    kept = old.chunk_grid.count_within(new.shape)
    for batch in _batches(_chunks_at(store, path, old, kept, cut)):
        outside = [key for key, coords in batch if any(i >= n for i, n in zip(coords, kept, strict=True))]
        with contextlib.ExitStack() as stack:
            if lock and outside:
                stack.enter_context(between_processes(store, outside, old.key_prefix(path)))
            stack.enter_context(locks.hold(store, outside))
            store.erase_values(outside)
        erased = set(outside)
        edge = [coords for key, coords in batch if key not in erased]
        _fill_edges(store, path, old, new, edge, cut, lock=lock)


def _chunks_at(store: Store, path: str, old: ArrayMetadata, kept: tuple[int, ...], cut: Sequence[int]) -> Chunks:
    """Yield the chunks that are, or may be, outside or at an edge that is cut."""
    had = old.chunk_grid.count_within(old.shape)
    # One less along what is cut: the last chunk that is kept may have been cut through.
    inner = tuple(max(n - (d in cut), 0) for d, n in enumerate(map(min, kept, had)))
    if math.prod(had) - math.prod(inner) > MAX_NAMED and isinstance(store, ListableStore):
        # Beyond the grid, too: what an interrupted change of the shape has left.
        for key, coords in stored_chunks(store, old, path, outside=True):
            if any(i >= n for i, n in zip(coords, inner, strict=True)):
                yield key, coords
        return
    prefix, encoding = old.key_prefix(path), old.chunk_key_encoding
    # Boxes that have nothing in common and together are everything but the inner one.
    for d in range(old.ndim):
        ranges = [
            range(inner[e]) if e < d else range(inner[d], had[d]) if e == d else range(had[e]) for e in range(old.ndim)
        ]
        for coords in itertools.product(*ranges):
            yield prefix + encoding.encode(coords), coords


def _batches(chunks: Chunks) -> Iterator[list[tuple[str, tuple[int, ...]]]]:
    while batch := list(itertools.islice(chunks, _BATCH)):
        yield batch


def _fill_edges(
    store: Store,
    path: str,
    old: ArrayMetadata,
    new: ArrayMetadata,
    chunks: Sequence[tuple[int, ...]],
    cut: Sequence[int],
    *,
    lock: bool,
) -> None:
    """Write the fill value to what some chunks, which are not outside, have outside the new shape."""
    boxes = []
    for coords in chunks:
        box = old.chunk_grid.extent(coords)
        for d in cut:
            begin, end = box[d]
            if begin < new.shape[d] < end:
                boxes.append([*box[:d], (new.shape[d], end), *box[d + 1 :]])
    if not boxes:
        return
    selections = [parse_basic(tuple(slice(begin, end) for begin, end in box), old.shape) for box in boxes]
    fills = [
        fill_chunk(old.absent_value, ArrayRepresentation(selection.result_shape, old.dtype)) for selection in selections
    ]
    # Chunks that become nothing but the fill value go, however they came to be stored.
    Writer(old, store, path).write(selections, fills, lock=lock)
