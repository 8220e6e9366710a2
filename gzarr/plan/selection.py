"""Selections of users in one normal form.

``a[...]``, ``a.oindex[...]``, ``a.vindex[...]`` and ``a.blocks[...]`` all become a :class:`Selection`: either an
ascending slice or an array of indices along each dimension of the array, or a list of points. Other effects of NumPy's
indexing on the *result* (integers drop an axis, ``np.newaxis`` adds one, negative steps reverse one, an index array may
move one to the front) become a strided view of the result array, so neither the planner nor an engine ever sees them.

``a[...]`` follows https://numpy.org/doc/stable/user/basics.indexing.html, the other three follow zarr-python.
"""

from __future__ import annotations

import math
import operator
import reprlib
from dataclasses import dataclass, replace
from itertools import pairwise
from types import EllipsisType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..documents.json import quote
from ..errors import ArgumentError, ChunkError, SelectionError, StoreError
from ..items import UNLISTED, is_table
from ..reasons import reason_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..metadata.chunk_grid import ChunkGrid

IntArray: TypeAlias = npt.NDArray[np.int64]
#: Entry of a selection after normalisation. Arrays hold indices, each at least 0, and have at least one dimension.
_Item: TypeAlias = int | slice | EllipsisType | IntArray | None

#: Most points in one selection; a point takes 8 bytes per dimension.
MAX_POINTS = 2**31

_WHOLE_AXIS = slice(None)
_REVERSED_AXIS = slice(None, None, -1)


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """A selection of an array with ``k`` dimensions.

    Attributes
    ----------
    result_shape
        Shape of the result.
    start, step, count
        One integer per dimension of the array: the elements ``start + j * step`` for ``j < count``, with ``step >= 1``
        (1 if ``count`` is at most 1). If ``indices[d]`` is an array, ``count[d]`` is its length.
    indices
        None if no dimension has an index array; else one entry per dimension: None, or int64 ``(count[d],)``, each at
        least 0, in any order and possibly repeated.
    points
        None, or int64 ``(p, k)``, the coordinates of ``p`` elements in C order of the result; ``start``, ``step`` and
        ``count`` are then meaningless.
    index
        Index that :meth:`view` applies to the result to reverse, drop and add axes; None if it needs none.
    block
        None, or ``(axis, number of axes, destination)`` for an index array: the result's axes that correspond to its
        dimension, and their destination among the axes once they are joined into one.
    """

    result_shape: tuple[int, ...]
    start: tuple[int, ...]
    step: tuple[int, ...]
    count: tuple[int, ...]
    indices: tuple[IntArray | None, ...] | None = None
    points: IntArray | None = None
    index: tuple[Any, ...] | None = None
    block: tuple[int, int, int] | None = None

    def view(self, out: npt.NDArray[Any]) -> npt.NDArray[Any] | None:
        """Return the view of ``out`` into which elements are placed.

        Parameters
        ----------
        out
            Result array, of shape ``result_shape`` with any strides.

        Returns
        -------
        A view of ``out`` with the array's ``k`` dimensions, in which element ``j`` along a dimension is for the
        ``j``-th selected index; ``out`` itself for points. None if there is no such view: the axes of an index array of
        several dimensions can't always be joined in ``out``. The caller then reads into a C-contiguous array and copies
        the elements.
        """
        if self.block is not None:
            axis, ndim, destination = self.block
            joined = _join_axes(out, axis, ndim)
            if joined is None:
                return None
            out = np.moveaxis(joined, axis, destination) if axis != destination else joined
        return out if self.index is None else out[self.index]


def parse_basic(selection: Any, shape: tuple[int, ...]) -> Selection:
    """Parse the selection of ``a[...]``.

    It means the same as in NumPy. Supported are integers, slices, ``...``, ``np.newaxis`` and one integer array or
    one-dimensional mask; also several integer arrays, or a mask of several dimensions, if they (with integers) cover
    every dimension.

    Parameters
    ----------
    selection
        Argument that Python passes to ``__getitem__``.
    shape
        Shape of the array, in elements.

    Raises
    ------
    SelectionError
        If the selection does not fit the shape or is not supported; the message quotes both.
    """
    items: Sequence[Any] = selection if type(selection) is tuple else (selection,)
    used = 0
    ellipses = 0
    for item in items:
        kind = type(item)
        if kind is int or kind is slice:
            used += 1
        elif item is Ellipsis:
            ellipses += 1
        elif item is not None:
            return _parse_advanced(selection, shape)
    return _parse_simple(selection, items, shape, used, ellipses)


def parse_many(selections: Any, shape: tuple[int, ...], function: str) -> list[Selection]:
    """Parse selections of boxes; arguments and errors as for :func:`parse_basic`, with the name of the function."""
    try:
        given = None if isinstance(selections, UNLISTED) or is_table(selections) else list(selections)
    except TypeError:
        given = None
    if given is None:
        raise ArgumentError(f"{function} takes a sequence of selections, not {quote(selections)}")
    parsed = [parse_basic(selection, shape) for selection in given]
    if any(selection.points is not None for selection in parsed):
        raise SelectionError(f"{function} takes boxes; for points, there is a.vindex[...]")
    return parsed


def _parse_simple(selection: Any, items: Sequence[Any], shape: tuple[int, ...], used: int, ellipses: int) -> Selection:
    """Parse plain integers, slices, ``...`` and ``np.newaxis``. Every small read comes here, so this is kept short."""
    if used > len(shape) or ellipses > 1:
        raise _rank_error(selection, shape, used, ellipses)
    result: list[int] = []
    starts: list[int] = []
    steps: list[int] = []
    counts: list[int] = []
    index: list[Any] = []
    plain = True
    d = 0
    for item in items if ellipses or used == len(shape) else (*items, Ellipsis):
        if type(item) is int:
            size = shape[d]
            if not -size <= item < size:
                _check_bounds(selection, shape, item, d)
            starts.append(item if item >= 0 else item + size)
            steps.append(1)
            counts.append(1)
            index.append(None)
            plain = False
            d += 1
        elif item is Ellipsis:
            for size in shape[d : d + len(shape) - used]:
                starts.append(0)
                steps.append(1)
                counts.append(size)
                result.append(size)
                index.append(_WHOLE_AXIS)
            d += len(shape) - used
        elif item is None:
            result.append(1)
            index.append(0)
            plain = False
        else:
            start, stop, step = _slice_indices(item, shape[d], selection, shape)
            if step > 0:
                count = (stop - start + step - 1) // step if stop > start else 0
                index.append(_WHOLE_AXIS)
            else:
                count = (start - stop - step - 1) // -step if start > stop else 0
                start += (count - 1) * step if count else 0
                step = -step
                index.append(_REVERSED_AXIS)
                plain = False
            starts.append(start)
            steps.append(step if count > 1 else 1)
            counts.append(count)
            result.append(count)
            d += 1
    # The trailing ellipsis keeps a zero-dimensional result an array.
    view = None if plain else (*index, Ellipsis)
    return Selection(tuple(result), tuple(starts), tuple(steps), tuple(counts), None, None, view)


def parse_orthogonal(selection: Any, shape: tuple[int, ...]) -> Selection:
    """Parse the selection of ``a.oindex[...]``: each dimension is indexed by itself.

    Parameters
    ----------
    selection
        Tuple of integers, slices, at most one ``...``, one-dimensional integer arrays and masks; or one of these.
    shape
        Shape of the array, in elements.

    Raises
    ------
    SelectionError
        If the selection does not fit the shape or contains anything else.
    """
    items = _normalise(selection, shape, only_1d="oindex takes one-dimensional arrays and masks")
    if any(item is None for item, _ in items):
        raise _error(selection, shape, "oindex takes no np.newaxis")
    terms = _by_dimension(items, len(shape))
    stand_in = [_WHOLE_AXIS if isinstance(term, np.ndarray) else term for term in terms]
    parsed = _parse_simple(selection, stand_in, shape, len(shape), 0)
    axis = 0
    for d, term in enumerate(terms):
        if isinstance(term, np.ndarray):
            parsed = _with_indices(parsed, d, axis, term)
        axis += not isinstance(term, int)
    return parsed


def parse_points(selection: Any, shape: tuple[int, ...]) -> Selection:
    """Parse the selection of ``a.vindex[...]``: elements by their coordinates.

    Parameters
    ----------
    selection
        Tuple of integer arrays, one per dimension, which broadcast to the shape of the result; or one mask of the
        array's shape. As in zarr-python, the result has at least one dimension.
    shape
        Shape of the array, in elements.

    Raises
    ------
    SelectionError
        If the selection does not fit the shape or contains anything else.
    """
    items = _normalise(selection, shape)
    columns = [item for item, _ in items if isinstance(item, int | np.ndarray)]
    if len(columns) < len(items):
        raise _error(selection, shape, "vindex takes integer arrays or a mask, and no slices, '...' or np.newaxis")
    if len(columns) != len(shape):
        raise _error(
            selection, shape, f"vindex takes one integer array per dimension: {len(shape)}, not {len(columns)}"
        )
    for d, column in enumerate(columns):
        if isinstance(column, int):
            _check_bounds(selection, shape, column, d)
    if not columns:
        return _parse_simple(selection, (), shape, 0, 0)
    return _point_selection(selection, shape, columns, 0, 0, ndmin=1)


def parse_blocks(selection: Any, grid: ChunkGrid) -> Selection:
    """Parse the selection of ``a.blocks[...]``: whole chunks by their grid coordinates.

    Parameters
    ----------
    selection
        Tuple of integers, slices with step 1 and at most one ``...``; or one of these. An integer selects a whole chunk
        and keeps its dimension. Slices that end beyond the grid are cut to it.
    grid
        Chunk grid of the array.

    Raises
    ------
    SelectionError
        If the selection does not fit the grid or contains anything else.
    """
    shape = grid.shape
    items = _normalise(selection, shape)
    if any(item is None for item, _ in items):
        raise _error(selection, shape, "blocks takes integers and slices with step 1")
    boxes: list[int | slice] = []
    for d, (term, axis) in enumerate(zip(_by_dimension(items, len(shape)), grid.axes, strict=True)):
        if isinstance(term, int):
            if not -axis.count <= term < axis.count:
                where = f"axis {d} with {axis.count} blocks"
                raise _error(selection, shape, f"block {_quote_item(term)} is out of bounds for {where}")
            first = term % axis.count
            last = first + 1
        elif isinstance(term, np.ndarray):
            raise _error(selection, shape, "blocks takes integers and slices with step 1")
        else:
            first, last, step = _slice_indices(term, axis.count, selection, shape)
            if step != 1:
                raise _error(selection, shape, f"blocks takes slices with step 1, not {step}")
        boxes.append(slice(axis.begin(first), axis.begin(last)))
    return _parse_simple(selection, boxes, shape, len(boxes), 0)


def _parse_advanced(selection: Any, shape: tuple[int, ...]) -> Selection:
    """Parse a selection that is not only plain integers, slices, ``...`` and ``np.newaxis``."""
    items = _normalise(selection, shape)
    arrays = [(at, item, d) for at, (item, d) in enumerate(items) if isinstance(item, np.ndarray)]
    used = sum(item is not None and item is not Ellipsis for item, _ in items)
    # A slice takes the place of an array, so that everything but the array's own axis is right already.
    stand_in = [_WHOLE_AXIS if isinstance(item, np.ndarray) else item for item, _ in items]
    simple = _parse_simple(selection, stand_in, shape, used, sum(item is Ellipsis for item in stand_in))
    if not arrays:
        return simple

    # NumPy: index arrays and integers are "advanced". If anything separates them, even an empty ellipsis, their axes
    # come first in the result; otherwise the axes are at the position of the first of them.
    advanced = [at for at, (item, _) in enumerate(items) if isinstance(item, int | np.ndarray)]
    together = advanced[-1] - advanced[0] + 1 == len(advanced)
    if len(arrays) == 1:
        at, array, d = arrays[0]
        axis = sum((len(shape) - used if item is Ellipsis else not isinstance(item, int)) for item in stand_in[:at])
        parsed = _with_indices(simple, d, axis, array.reshape(-1))
        if array.ndim == 1 and (together or axis == 0):
            return parsed
        rest = (*parsed.result_shape[:axis], *parsed.result_shape[axis + 1 :])
        first = axis if together else 0
        return replace(
            parsed, result_shape=(*rest[:first], *array.shape, *rest[first:]), block=(first, array.ndim, axis)
        )

    columns = [item for item, _ in items if isinstance(item, int | np.ndarray)]
    if len(columns) < len(shape):
        raise _error(
            selection,
            shape,
            "several index arrays, or a mask of several dimensions, must (with integers) cover every dimension; "
            "use oindex to index each dimension by itself, or vindex for points",
        )
    before = sum(item is None for item, _ in items[: advanced[0]]) if together else 0
    after = sum(item is None for item, _ in items) - before
    return _point_selection(selection, shape, columns, before, after, ndmin=0)


def _normalise(selection: Any, shape: tuple[int, ...], *, only_1d: str = "") -> list[tuple[_Item, int]]:
    """Return the entries, each with the (first) dimension that it applies to.

    Integers become plain integers (not yet compared with the shape), arrays become int64 arrays within bounds, a mask
    becomes one array for each of its dimensions. A non-empty ``only_1d`` is the error message for arrays and masks of
    several dimensions.
    """
    items: list[Any] = [
        _normal_item(selection, shape, item) for item in (selection if isinstance(selection, tuple) else (selection,))
    ]
    widths = [
        0
        if item is None or item is Ellipsis
        else item.ndim
        if isinstance(item, np.ndarray) and item.dtype == bool
        else 1
        for item in items
    ]
    if only_1d and any(isinstance(item, np.ndarray) and item.ndim != 1 for item in items):
        raise _error(selection, shape, only_1d)
    used = sum(widths)
    ellipses = sum(item is Ellipsis for item in items)
    if used > len(shape) or ellipses > 1:
        raise _rank_error(selection, shape, used, ellipses)
    normal: list[tuple[_Item, int]] = []
    d = 0
    for item, width in zip(items, widths, strict=True):
        if not isinstance(item, np.ndarray):
            normal.append((item, d))
            d += len(shape) - used if item is Ellipsis else width
        elif item.dtype == bool:
            covered = shape[d : d + width]
            if item.shape != covered:
                raise _error(
                    selection, shape, f"a mask of shape {item.shape} can't select from dimensions of shape {covered}"
                )
            normal.extend((array.astype(np.int64, copy=False), d + i) for i, array in enumerate(np.nonzero(item)))
            d += width
        else:
            normal.append((_in_bounds(selection, shape, item, d), d))
            d += 1
    return normal


def _normal_item(selection: Any, shape: tuple[int, ...], item: Any) -> Any:
    """Return an entry as a plain integer, slice, ``...``, None, or integer or boolean array (never 0-d)."""
    if item is None or item is Ellipsis or isinstance(item, slice):
        return item
    # NumPy counts durations among its integers.
    if isinstance(item, str | bytes | float | complex | np.timedelta64):
        raise _error(selection, shape, f"an index can't be of type {type(item).__name__}")
    if isinstance(item, int | np.integer) and not isinstance(item, bool):
        return int(item)
    array: npt.NDArray[Any]
    if isinstance(item, np.ndarray):
        array = item
    else:
        # Arrays of one element, and truth values, are integers for some libraries; for NumPy they are arrays and masks.
        if not getattr(item, "ndim", 0) and not is_truth_value(item):
            try:
                return operator.index(item)
            except TypeError:
                pass
        try:
            array = np.asarray(item)
        # Of an array of gzarr that cannot be read.
        except (ChunkError, StoreError):
            raise
        except Exception as cause:
            reason = reason_of(cause)
            if isinstance(cause, MemoryError):
                reason = f"there is not enough: {reason}"
            name = type(item).__name__
            raise _error(selection, shape, f"can't use {name!r} as an index array in host memory ({reason})") from cause
        if array.size == 0 and array.dtype.kind == "f":
            # NumPy makes an empty list a float array.
            array = array.astype(np.int64)
    if array.dtype.kind not in "iub":
        raise _error(selection, shape, f"index arrays must have an integer or boolean dtype, not {array.dtype}")
    if array.ndim == 0:
        if array.dtype.kind == "b":
            raise _error(selection, shape, "a single boolean selects nothing; use a mask of the array's shape")
        return int(array)
    return array


def is_truth_value(item: Any) -> bool:
    """Return whether an item of a selection has truth values: one of them, or an array of some library."""
    # Other libraries have dtypes of their own; pyarrow calls them types.
    dtype = getattr(item, "dtype", getattr(item, "type", ""))
    return isinstance(item, bool) or str(dtype).rpartition(".")[2] in ("bool", "boolean")


def _by_dimension(items: list[tuple[_Item, int]], ndim: int) -> list[int | slice | IntArray]:
    """Return one entry per dimension; dimensions without one get the whole slice."""
    terms: list[int | slice | IntArray] = [_WHOLE_AXIS] * ndim
    for item, d in items:
        if isinstance(item, int | slice | np.ndarray):
            terms[d] = item
    return terms


def _with_indices(parsed: Selection, d: int, axis: int, indices: IntArray) -> Selection:
    """Replace the slice along dimension ``d``, axis ``axis`` of the result, by ``indices``, ``(count,)``."""
    run = _as_run(indices)
    start, step = run if run is not None else (0, 1)
    tables = parsed.indices
    if run is None:
        tables = _put(tables or (None,) * len(parsed.start), d, indices)
    return replace(
        parsed,
        result_shape=_put(parsed.result_shape, axis, len(indices)),
        start=_put(parsed.start, d, start),
        step=_put(parsed.step, d, step),
        count=_put(parsed.count, d, len(indices)),
        indices=tables,
    )


def _put(values: tuple[Any, ...], at: int, value: Any) -> tuple[Any, ...]:
    return (*values[:at], value, *values[at + 1 :])


def _as_run(indices: IntArray) -> tuple[int, int] | None:
    """Return start and step of ascending, evenly spaced ``indices``, else None. Slices are cheaper to place."""
    count = len(indices)
    if count == 0:
        return 0, 1
    first = int(indices[0])
    if count == 1:
        return first, 1
    step = int(indices[1]) - first
    if step < 1 or int(indices[-1]) - first != step * (count - 1) or not bool(np.all(np.diff(indices) == step)):
        return None
    return first, step


def _point_selection(
    selection: Any, shape: tuple[int, ...], columns: list[int | IntArray], before: int, after: int, *, ndmin: int
) -> Selection:
    """Return the points that ``columns``, one per dimension, broadcast to, with new axes before and after."""
    arrays = [np.array(column, np.int64) if isinstance(column, int) else column for column in columns]
    for d, column in enumerate(columns):
        if isinstance(column, int) and column < 0:
            arrays[d] += shape[d]
    try:
        broadcast = np.broadcast_shapes(*(array.shape for array in arrays), (1,) * ndmin)
    except ValueError:
        shapes = ", ".join(str(array.shape) for array in arrays)
        raise _error(selection, shape, f"index arrays of shapes {shapes} do not broadcast") from None
    if math.prod(broadcast) > MAX_POINTS:
        raise _error(selection, shape, f"more than {MAX_POINTS} points in one selection; read it in parts")
    points = np.empty((math.prod(broadcast), len(arrays)), np.int64)
    for d, array in enumerate(arrays):
        points[:, d] = np.broadcast_to(array, broadcast).reshape(-1)
    k = len(shape)
    return Selection((1,) * before + broadcast + (1,) * after, (0,) * k, (1,) * k, (1,) * k, None, points)


def _slice_indices(item: slice, size: int, selection: Any, shape: tuple[int, ...]) -> tuple[int, int, int]:
    try:
        return item.indices(size)
    except (TypeError, ValueError) as cause:
        raise _error(selection, shape, str(cause)) from None


def _check_bounds(selection: Any, shape: tuple[int, ...], index: int, d: int) -> None:
    if not -shape[d] <= index < shape[d]:
        raise _error(selection, shape, f"index {_quote_item(index)} is out of bounds for axis {d} with size {shape[d]}")


def _in_bounds(selection: Any, shape: tuple[int, ...], array: npt.NDArray[Any], d: int) -> IntArray:
    """Return the indices as C-contiguous int64, with negative indices resolved."""
    if array.size == 0:
        return np.empty(array.shape, np.int64)
    low = int(array.min())
    _check_bounds(selection, shape, low, d)
    _check_bounds(selection, shape, int(array.max()), d)
    indices = np.array(array, np.int64, order="C")
    if low < 0:
        indices[indices < 0] += shape[d]
    return indices


def _join_axes(out: npt.NDArray[Any], axis: int, ndim: int) -> npt.NDArray[Any] | None:
    """Return a view of ``out`` with ``ndim`` axes from ``axis`` on joined, or None if its strides forbid it."""
    if ndim == 1:
        return out
    if out.size:
        span = [(n, s) for n, s in zip(out.shape, out.strides, strict=True)][axis : axis + ndim]
        span = [(n, s) for n, s in span if n != 1]
        if any(outer[1] != inner[0] * inner[1] for outer, inner in pairwise(span)):
            return None
    return out.reshape(*out.shape[:axis], math.prod(out.shape[axis : axis + ndim]), *out.shape[axis + ndim :])


def _rank_error(selection: Any, shape: tuple[int, ...], used: int, ellipses: int) -> SelectionError:
    if ellipses > 1:
        return _error(selection, shape, "an index can have only a single ellipsis ('...')")
    return _error(selection, shape, f"too many indices: {used} for an array with {len(shape)} dimensions")


def _error(selection: Any, shape: tuple[int, ...], message: str) -> SelectionError:
    return SelectionError(f"{message} (selection [{_quote(selection)}] of an array of shape {tuple(shape)})")


def _quote(selection: Any) -> str:
    """Return the selection as the user wrote it, shortened."""
    items = selection if isinstance(selection, tuple) else (selection,)
    texts = [_quote_item(item) for item in items[:8]]
    if len(items) > 8:
        texts.append(f"… ({len(items)} entries)")
    return ", ".join(texts)


def _quote_item(item: Any) -> str:
    if item is Ellipsis:
        return "..."
    if isinstance(item, slice):
        start, stop, step = ("" if part is None else _quote_item(part) for part in (item.start, item.stop, item.step))
        return f"{start}:{stop}:{step}" if step else f"{start}:{stop}"
    if isinstance(item, np.ndarray) and item.size > 6:
        return f"<array of {item.dtype}, shape {item.shape}>"
    try:
        return " ".join(reprlib.repr(item).split())
    except ValueError:
        # Python refuses to spell out integers of thousands of digits.
        return f"<{type(item).__name__}>"
