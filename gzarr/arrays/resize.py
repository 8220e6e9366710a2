"""Changing the shape of an array: metadata and chunks change in an order that never loses elements."""

from __future__ import annotations

import contextlib
import itertools
import math
from typing import TYPE_CHECKING, Any, Final, SupportsIndex, TypeAlias

import numpy as np

from ..codecs.codec import ArrayRepresentation
from ..documents.json import quote
from ..engines.cpu.threads import fill_chunk
from ..engines.cpu.write_threads import is_fill
from ..errors import ArgumentError, GzarrError
from ..integers import as_integer
from ..metadata.model import ArrayMetadata
from ..metadata.to_documents import resized
from ..nodes.change import change_array, documents_first, hold_documents, look
from ..nodes.documents import Documents
from ..plan.selection import parse_basic
from ..stores import locks
from ..stores.base import is_listable
from .elements import as_data
from .present import grid_is_of_plugin, same_array
from .read_options import check_budget
from .stored_chunks import are_stored, points, stored_chunks
from .write import Writer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..integers import EachAxis
    from ..stores.base import Store
    from .write_options import WriteOptions
    from .writing import WritableArray

Chunks: TypeAlias = "Iterator[tuple[str, tuple[int, ...]]]"

#: Up to this many chunks are addressed by key, without listing the store.
MAX_NAMED: Final = 1000
#: Chunks erased or changed at a time.
_BATCH: Final = 256


def resize(array: WritableArray, shape: EachAxis, *, erase: bool, lock: bool) -> None:
    """Change the shape of an array; see :meth:`gzarr.Array.resize`."""
    store: Store = array.store  # type: ignore[assignment]
    before = array.metadata
    first = documents_first(store)

    def clear_beyond(found: ArrayMetadata, new: ArrayMetadata) -> None:
        grows = any(a > b for a, b in zip(new.shape, found.shape, strict=True))
        if grows and erase and not array._writer.keeps_outside:
            _clear_beyond(array, found, new, lock=lock)

    def change(found: ArrayMetadata) -> ArrayMetadata:
        nonlocal before
        before = same_array(array, found)
        new = resized(before, shape)  # type: ignore[arg-type]
        shrinks = any(a < b for a, b in zip(new.shape, found.shape, strict=True))
        if shrinks and not erase and grid_is_of_plugin(found):
            raise ArgumentError(
                f"{array.name}: erase=False is not possible with the chunk grid of another package, which may use "
                "other chunks when the array grows again"
            )
        if shrinks and not erase and first:
            raise ArgumentError(
                f"{array.name}: erase=False is not possible in {store!r}, which has no chunks outside the shape"
            )
        if not first:
            # Before the new shape is there, since what is beyond the old one is invisible until then.
            clear_beyond(before, new)
        elif shrinks:
            # Afterwards, the store would not know them, but some of them again when the array grows.
            clear_outside(store, array.path, before, new, lock=lock, edges=False)
        return new

    with _turn(array, lock=lock):
        after = change_array(store, array.path, array.zarr_format, change, array._become, lock=lock)
        if first:
            clear_beyond(before, after)
        shrunk = any(a < b for a, b in zip(after.shape, before.shape, strict=True))
        array._writer.keeps_outside = not erase and (shrunk or array._writer.keeps_outside)
        if not erase:
            return
        try:
            clear_outside(store, array.path, before, after, lock=lock)
        # Third-party stores may raise anything.
        except Exception as error:
            error.add_note(_not_cleared(array, after))
            raise


def _not_cleared(array: WritableArray, after: ArrayMetadata) -> str:
    """Return the note for an error that came when the array had its smaller shape already."""
    return (
        f"(the shape of array {array.name!r} is {after.shape} already; not everything beyond the smaller shape was "
        "erased. What is left outside the array is invisible, and erased when gzarr.Array.resize makes it grow)"
    )


def append(array: WritableArray, value: Any, axis: SupportsIndex, options: WriteOptions) -> tuple[int, ...]:
    """Write elements beyond the end of an array, then extend its shape; see :meth:`gzarr.Array.append`.

    In an object store, three round trips follow each other: documents are looked at, chunks are written, and the
    document of the array is replaced. Each has to be over before the next:

    - The look tells where the elements belong. Chunks that are written without it could be those that another process
      has appended meanwhile. Not even new keys are safe, for a chunk of fill values only is not stored: to create it is
      to change elements that the other has written. That the document would then be refused comes too late.
    - Elements come before the document, or readers would see a shape whose elements are not there yet.

    zarr-python keeps the document from when the array was opened, and replaces it first: it needs two, without these
    promises. If the last chunk gets further elements, a fourth round trip reads it.

    Where the store takes no chunks outside the shape (:func:`gzarr.nodes.change.documents_first`), the document is
    replaced before them, and put back if they cannot be written.
    """
    # Before a document is changed, in stores where that comes first.
    check_budget(options.budget_bytes)
    lock = options.lock
    store: Store = array.store  # type: ignore[assignment]
    value = as_data(value, array.dtype, array.name, array.ndim, fill_masked=options.fill_masked)
    with _turn(array, lock=lock):
        # Others may have appended since this array was opened.
        documents = Documents(store)
        with hold_documents(store, array.path):
            _, entry = look(documents, array.path, array.zarr_format, "array")
            if entry is not None and isinstance(entry.metadata, ArrayMetadata):
                array._become(same_array(array, entry.metadata))
        number, shape = _appended(array, value.shape, axis)
        region = [slice(None)] * array.ndim
        region[number] = slice(array.shape[number], None)
        before = array.metadata
        grown = resized(before, shape)
        first = documents_first(store)

        def set_shape(shape: tuple[int, ...], documents: Documents | None = None) -> None:
            def change(found: ArrayMetadata) -> ArrayMetadata:
                return resized(same_array(array, found), shape)

            change_array(store, array.path, array.zarr_format, change, array._become, lock=lock, documents=documents)

        # Where a change depends on the document that was read, it need not be read again.
        if first:
            set_shape(shape, documents)
        if 0 not in value.shape:
            selection = parse_basic(tuple(region), shape)
            latest = array._writes.latest
            try:
                array._write([selection], [value], None, options, metadata=grown)
            except BaseException as error:
                # Elements written beyond the end are not visible, but would be once the array grows. A value that was
                # refused, or could not be read, has left none; and others that are there on purpose are not told from
                # them.
                begun = array._writes.latest is not latest and not isinstance(error, ArgumentError)
                if begun and not array._writer.keeps_outside:
                    with contextlib.suppress(GzarrError):
                        clear_outside(store, array.path, grown, before, lock=lock)
                if first:
                    with contextlib.suppress(GzarrError):
                        set_shape(before.shape)
                raise
        if not first:
            set_shape(shape, documents)
        return shape


def _appended(array: WritableArray, shape: tuple[int, ...], axis: SupportsIndex) -> tuple[int, tuple[int, ...]]:
    """Return the axis, counted from 0, and the array's shape after appending an array of another shape."""
    if not array.ndim:
        raise ArgumentError(f"{array.name} has zero dimensions: nothing can be appended to it")
    number = as_integer(axis)
    if number is None or not -array.ndim <= number < array.ndim:
        raise ArgumentError(
            f"{array.name}: axis must be an integer from {-array.ndim} to {array.ndim - 1}, not {quote(axis)}"
        )
    number %= array.ndim
    others = array.shape[:number], array.shape[number + 1 :]
    if len(shape) != array.ndim or (shape[:number], shape[number + 1 :]) != others:
        raise ArgumentError(
            f"{array.name}: an array of shape {shape} cannot be appended along axis {number} to one of shape "
            f"{array.shape}; all other lengths must be the same"
        )
    return number, (*others[0], array.shape[number] + shape[number], *others[1])


@contextlib.contextmanager
def _turn(array: WritableArray, *, lock: bool) -> Iterator[None]:
    """Keep others from changing the shape, also a handler of a signal that interrupts this change."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(locks.hold_node(array.store, array.path, below=False))
        stack.enter_context(locks.begin(array.store, array.path, "shape"))
        if lock:
            stack.enter_context(locks.between_processes(array.store, (), array.metadata.key_prefix(array.path)))
        yield


def clear_outside(
    store: Store, path: str, old: ArrayMetadata, new: ArrayMetadata, *, lock: bool = False, edges: bool = True
) -> None:
    """Erase an array's elements outside its new shape, after the new metadata is stored.

    Chunks (shards) outside are erased. In chunks that are partially outside, that part is set to the fill value, so
    that the old elements do not reappear when the array grows again. If this fails or is killed, the remaining elements
    are invisible until the array grows.

    Parameters
    ----------
    store, path
        Store and path of the array.
    old, new
        Old and new metadata, which differ in their shapes.
    lock
        Whether to exclude writers in other processes, by file locks.
    edges
        Whether chunks that are partially outside are changed. Without them, this may precede the new metadata.

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
                stack.enter_context(locks.between_processes(store, outside, old.key_prefix(path)))
            stack.enter_context(locks.hold(store, outside))
            store.erase_values(outside)
        erased = set(outside)
        edge = [coords for key, coords in batch if key not in erased]
        if edges:
            _fill_edges(store, path, old, new, edge, cut, lock=lock)


def _clear_beyond(array: WritableArray, old: ArrayMetadata, new: ArrayMetadata, *, lock: bool) -> None:
    """Erase what is stored beyond the shape of an array that is about to grow: it would become elements.

    A killed change of shape leaves it, and so do other programs. Where nothing is there, nothing is written: chunks
    beyond the grid are only looked for, and those at the edge are read if it cuts them.

    Raises
    ------
    StoreError, ChunkError
        As for :func:`clear_outside`.
    """
    store: Store = array.store  # type: ignore[assignment]
    path = array.path
    grown = [d for d, (before, after) in enumerate(zip(old.shape, new.shape, strict=True)) if after > before]
    kept = new.chunk_grid.count_within(old.shape)
    grid = new.chunk_grid.axes
    cut = [d for d in grown if kept[d] and grid[d].extent(kept[d] - 1)[1] > old.shape[d]]
    kind: Any = type(array)
    view: Any = None
    for batch in _batches(_chunks_at(store, path, new, kept, grown, cut)):
        outside = [key for key, coords in batch if any(i >= n for i, n in zip(coords, kept, strict=True))]
        found = [key for key, there in zip(outside, are_stored(store, outside), strict=True) if there]
        if found:
            with contextlib.ExitStack() as stack:
                if lock:
                    stack.enter_context(locks.between_processes(store, found, old.key_prefix(path)))
                stack.enter_context(locks.hold(store, found))
                store.erase_values(found)
        beyond = set(outside)
        edge = []
        for key, coords in batch:
            if key in beyond:
                continue
            if view is None:
                view = kind(new, store, path, device="cpu", mode="r")
            for box in _boxes_outside(new, old.shape, coords, cut):
                block = view[tuple(slice(begin, min(end, n)) for (begin, end), n in zip(box, new.shape, strict=True))]
                fill = fill_chunk(new.absent_value, ArrayRepresentation(block.shape, new.dtype))
                if not is_fill(np.ascontiguousarray(block), fill):
                    edge.append(coords)
                    break
        _fill_edges(store, path, new, old, edge, cut, lock=lock)


def _chunks_at(
    store: Store,
    path: str,
    old: ArrayMetadata,
    kept: tuple[int, ...],
    changed: Sequence[int],
    cut: Sequence[int] | None = None,
) -> Chunks:
    """Yield the chunks that are, or may be, outside the smaller shape or at its edge.

    Parameters
    ----------
    store, path, old
        Store and path of the array, and its metadata with the larger shape.
    kept
        Chunks along each dimension in the smaller shape.
    changed
        Dimensions in which the shapes differ.
    cut
        Those in which the last kept chunk may be partially outside; None for all of them.
    """
    had = old.chunk_grid.count_within(old.shape)
    cut = changed if cut is None else cut
    # One less along these dimensions, since the last kept chunk may be partially outside.
    inner = tuple(max(n - (d in cut), 0) for d, n in enumerate(map(min, kept, had)))
    if math.prod(had) - math.prod(inner) > MAX_NAMED and is_listable(store):
        # Including remains of interrupted changes beyond the grid.
        for key, coords in stored_chunks(store, old, path, outside=True):
            if any(i >= n for i, n in zip(coords, inner, strict=True)):
                yield key, coords
        return
    prefix, encoding = old.key_prefix(path), old.chunk_key_encoding
    # Disjoint boxes that together cover everything but the inner box.
    for d in range(old.ndim):
        ranges = [
            range(inner[e]) if e < d else range(inner[d], had[d]) if e == d else range(had[e]) for e in range(old.ndim)
        ]
        for coords in points(ranges):
            yield prefix + encoding.encode(coords), coords


def _batches(chunks: Chunks) -> Iterator[list[tuple[str, tuple[int, ...]]]]:
    while batch := list(itertools.islice(chunks, _BATCH)):
        yield batch


def _boxes_outside(
    metadata: ArrayMetadata, shape: tuple[int, ...], coords: tuple[int, ...], cut: Sequence[int]
) -> list[list[tuple[int, int]]]:
    """Return the parts of a chunk that are outside a shape, one along each dimension that cuts it."""
    boxes = []
    box = metadata.chunk_grid.extent(coords)
    for d in cut:
        begin, end = box[d]
        if begin < shape[d] < end:
            boxes.append([*box[:d], (shape[d], end), *box[d + 1 :]])
    return boxes


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
    """Write the fill value to those parts of chunks at the new edge that are outside the new shape."""
    writer = Writer(old, store, path)
    if writer.write_empty_chunks:
        # Of an absent chunk nothing has to be erased, and a stored one would say that it holds zeros.
        keys = [old.key_prefix(path) + old.chunk_key_encoding.encode(coords) for coords in chunks]
        chunks = [coords for coords, there in zip(chunks, are_stored(store, keys), strict=True) if there]
    boxes = [box for coords in chunks for box in _boxes_outside(old, new.shape, coords, cut)]
    if not boxes:
        return
    selections = [parse_basic(tuple(slice(begin, end) for begin, end in box), old.shape) for box in boxes]
    fills = [
        fill_chunk(old.absent_value, ArrayRepresentation(selection.result_shape, old.dtype)) for selection in selections
    ]
    # Chunks that only hold the fill value afterwards are erased, even if they were stored on purpose; but not if the
    # document states none.
    writer.write(selections, fills, lock=lock)
