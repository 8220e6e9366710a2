"""Batches of chunks, as zarr-python hands them to a codec pipeline, put together again to one selection.

zarr-python splits a selection into one entry for each chunk. gzarr plans a read or a write as a whole, so the entries
are joined: to a box, to one index for each dimension, or to points. What cannot be joined is left to zarr-python.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    #: (StorePath, ArraySpec, selection in the chunk, selection in the result, whether it is the whole chunk)
    Entry: TypeAlias = tuple[Any, Any, Any, Any, bool]
    #: Along one dimension: coordinate of a chunk, index in it, index in the result (None if the dimension is dropped).
    Part: TypeAlias = tuple[int, Any, Any]
    #: Index of the selection for each dimension, and its number of elements; None if the dimension is dropped.
    Axis: TypeAlias = tuple[Any, int | None]

Kind: TypeAlias = Literal["basic", "orthogonal", "coordinate"]


class NotOursError(Exception):
    """What is wanted is left to zarr-python; the message says why."""


@dataclass(frozen=True, slots=True)
class KeysOfBatch:
    """The form of an array's chunk keys.

    Attributes
    ----------
    ndim
        Number of dimensions.
    separator
        Text between coordinates: ``"/"`` or ``"."``.
    prefix
        Whether keys begin with ``c``, as in the encoding ``default``.
    """

    ndim: int
    separator: str
    prefix: bool

    def split(self, path: str) -> tuple[str, list[str]]:
        """Split the path of a chunk; return the path of the array, and the coordinates as text.

        Raises
        ------
        NotOursError
            If it is not the path of a chunk.
        """
        parts = path.split("/")
        tail: list[str]
        if self.separator == "/":
            # A chunk without dimensions is "c", or "0" without the prefix.
            count = max(self.ndim, 1 - self.prefix)
            tail = parts[len(parts) - count :] if count else []
            rest = parts[: len(parts) - count]
            if self.prefix and (not rest or rest.pop() != "c"):
                raise NotOursError(f"{path!r} is not the key of a chunk")
        else:
            *rest, name = parts
            tail = name.split(".")
            if self.prefix and tail.pop(0) != "c":
                raise NotOursError(f"{path!r} is not the key of a chunk")
        if self.ndim == 0:
            tail = []
        if len(tail) != self.ndim:
            raise NotOursError(f"{path!r} is not the key of a chunk")
        return "/".join(rest), tail


@dataclass(frozen=True, slots=True)
class Joined:
    """One selection of an array.

    Attributes
    ----------
    path
        Path of the array in its store.
    kind
        Which of gzarr's ``get_*_selection`` and ``set_*_selection`` methods it is for.
    index
        Indices, one for each dimension.
    shape
        Shape of the result.
    extent
        For each dimension, the length of the shortest array that has all of the batch's chunks in whole.
    end
        For each dimension, the end of the array, if it is looked for and the batch tells it: all chunks are said to be
        selected as a whole, and of the last one less than its length is selected.
    """

    path: str
    kind: Kind
    index: tuple[Any, ...]
    shape: tuple[int, ...]
    extent: tuple[int, ...]
    end: tuple[int | None, ...]


def join(
    entries: Sequence[Entry],
    keys: KeysOfBatch,
    chunk_shape: tuple[int, ...],
    drop_axes: tuple[int, ...] = (),
    *,
    find_end: bool = False,
) -> Joined:
    """Join the entries of a batch.

    Parameters
    ----------
    entries
        At least one entry.
    keys
        Form of the keys.
    chunk_shape
        Shape of the array's chunks (shards).
    drop_axes
        Dimensions that the result has not, though the chunks' selections are no integers there.
    find_end
        Look for the end of the array.

    Raises
    ------
    NotOursError
        If the entries are not the parts of one selection, each once.
    """
    paths = [entry[0].path for entry in entries]
    path, first = keys.split(paths[0])
    # The beginning is the same for all chunks of the array.
    head = paths[0][: len(paths[0]) - len(keys.separator.join(first))]
    found = _box(entries, paths, head, first, keys.separator, drop_axes) if keys.ndim else None
    kind: Kind
    if found is not None:
        kind, axes, last = _along_axes(found, chunk_shape)
    elif isinstance(entries[0][3], tuple):
        kind, axes, last = _along_axes(_product(entries, _tails(paths, head, keys), drop_axes), chunk_shape)
    else:
        kind, (axes, last) = "coordinate", _points(entries, _tails(paths, head, keys), chunk_shape)
    extent = tuple([(at + 1) * length for at, length in zip(last, chunk_shape, strict=True)])
    end: tuple[int | None, ...] = (None,) * len(extent)
    if find_end and kind == "basic" and all(entry[4] for entry in entries):
        ends = [index.stop if isinstance(index, slice) else index + 1 for index, _ in axes]
        end = tuple([stop if stop < most else None for stop, most in zip(ends, extent, strict=True)])
    shape = tuple([nitems for _, nitems in axes if nitems is not None])
    index = tuple([index for index, _ in axes])
    return Joined(path, kind, index, shape[:1] if kind == "coordinate" else shape, extent, end)


def _tails(paths: Sequence[str], head: str, keys: KeysOfBatch) -> list[list[str]]:
    """Return the chunks' coordinates as text."""
    tails = [path[len(head) :].split(keys.separator) for path in paths] if keys.ndim else [[] for _ in paths]
    if not all(path.startswith(head) for path in paths) or any(len(tail) != keys.ndim for tail in tails):
        raise NotOursError("the chunks belong to several arrays")
    if len(set(paths)) != len(paths):
        raise NotOursError("a chunk comes twice")
    return tails


def _box(
    entries: Sequence[Entry],
    paths: Sequence[str],
    head: str,
    first: Sequence[str],
    separator: str,
    drop_axes: tuple[int, ...],
) -> list[list[Part]] | None:
    """Take apart the entries of a box of chunks in C order, fast: most selections are such.

    Returns what :func:`_product` does; None if the entries may be something else.
    """
    ends = paths[-1][len(head) :].split(separator)
    if len(ends) != len(first) or not all(map(str.isdecimal, (*first, *ends))):
        return None
    ranges = [range(int(begin), int(end) + 1) for begin, end in zip(first, ends, strict=True)]
    inside, outside = entries[0][2:4]
    if math.prod(map(len, ranges)) != len(entries) or type(inside) is not tuple or type(outside) is not tuple:
        return None
    if len(inside) != len(first):
        return None
    # The k-th chunk along a dimension comes first when all dimensions before it are at their beginning.
    strides = [math.prod(map(len, ranges[i + 1 :])) for i in range(len(ranges))]
    firsts = [[entries[k * stride] for k in range(len(axis))] for axis, stride in zip(ranges, strides, strict=True)]
    insides = [[entry[2][i] for entry in axis] for i, axis in enumerate(firsts)]
    kept = [i for i, axis in enumerate(insides) if i not in drop_axes and not isinstance(axis[0], (int, np.integer))]
    if len(kept) != len(outside):
        return None
    outsides = [[entry[3][at] for entry in firsts[i]] for at, i in enumerate(kept)]
    try:
        # Tuples that hold the same objects are equal without a look at these.
        if (
            [entry[2] for entry in entries] != list(itertools.product(*insides))
            or [entry[3] for entry in entries] != list(itertools.product(*outsides))
            or paths != [head + separator.join(at) for at in itertools.product(*[map(str, axis) for axis in ranges])]
        ):
            return None
    # Arrays are not simply equal or different.
    except ValueError:
        return None
    targets: dict[int, list[Any]] = dict(zip(kept, outsides, strict=True))
    nothing = itertools.repeat(None)
    return [list(zip(axis, insides[i], targets.get(i, nothing), strict=False)) for i, axis in enumerate(ranges)]


def _product(entries: Sequence[Entry], tails: Sequence[Sequence[str]], drop_axes: tuple[int, ...]) -> list[list[Part]]:
    """Take apart entries that are the product of what is selected along each dimension.

    Returns, for each dimension, its parts in ascending order.
    """
    ndim = len(tails[0])
    axes: list[dict[str, tuple[Any, Any]]] = [{} for _ in range(ndim)]
    for (_, _, inside, outside, _), tail in zip(entries, tails, strict=True):
        if type(inside) is not tuple or len(inside) != ndim or type(outside) is not tuple:
            raise NotOursError("a chunk's selection is not one index for each dimension")
        position = 0
        for i, at in enumerate(tail):
            within = inside[i]
            if i in drop_axes or isinstance(within, (int, np.integer)):
                target = None
            elif position == len(outside):
                raise NotOursError("a chunk's selection has more dimensions than its place in the result")
            else:
                target = outside[position]
                position += 1
            known = axes[i].setdefault(at, (within, target))
            if not (_is_same(known[0], within) and _is_same(known[1], target)):
                raise NotOursError("the selection is not the product of indices for each dimension")
        if position != len(outside):
            raise NotOursError("a chunk's selection has fewer dimensions than its place in the result")
    if math.prod(map(len, axes)) != len(entries):
        raise NotOursError("a chunk of the selection is left out")
    return [sorted(((_coordinate(at), *part) for at, part in axis.items()), key=itemgetter(0)) for axis in axes]


def _along_axes(axes: Sequence[Sequence[Part]], chunk_shape: tuple[int, ...]) -> tuple[Kind, list[Axis], list[int]]:
    """Return the kind of a selection, the index of each dimension, and the coordinate of the last chunk along each."""
    joined = [_along_axis(parts, length) for parts, length in zip(axes, chunk_shape, strict=True)]
    is_orthogonal = any(isinstance(index, np.ndarray) for index, _ in joined)
    return ("orthogonal" if is_orthogonal else "basic"), joined, [parts[-1][0] for parts in axes]


def _along_axis(parts: Sequence[Part], length: int) -> Axis:
    """Join the parts of a selection along one dimension: coordinate of the chunk, index there, index in the result."""
    at, inside, outside = parts[0]
    if outside is None:
        if len(parts) > 1 or np.size(inside) != 1:
            raise NotOursError("an integer selects several elements")
        return at * length + int(np.asarray(inside).item()), None
    if all(isinstance(inside, slice) and isinstance(outside, slice) for _, inside, outside in parts):
        return _slices(parts, length)
    pairs = [(_positions(inside) + at * length, _positions(outside)) for at, inside, outside in parts]
    return _scattered(pairs, sum(len(outside) for _, outside in pairs))


def _slices(parts: Sequence[Part], length: int) -> Axis:
    first, step = None, parts[0][1].step or 1
    nitems = 0
    for at, inside, outside in parts:
        begin = at * length + inside.start
        count = len(range(inside.start, inside.stop, step))
        if first is None:
            first = begin
        if (
            (inside.step or 1) != step
            or begin != first + nitems * step
            or (outside.start, outside.stop) != (nitems, nitems + count)
            or outside.step not in (None, 1)
        ):
            raise NotOursError("the slices of the chunks do not follow on each other")
        nitems += count
    if first is None or not nitems:
        raise NotOursError("nothing is selected")
    return slice(first, first + (nitems - 1) * step + 1, step), nitems


def _points(
    entries: Sequence[Entry], tails: Sequence[Sequence[str]], chunk_shape: tuple[int, ...]
) -> tuple[list[Axis], list[int]]:
    """Join entries that select points; return the index of each dimension, and the last chunk's coordinates."""
    ndim = len(chunk_shape)
    offsets = np.array([[_coordinate(at) for at in tail] for tail in tails], np.int64).reshape(len(tails), ndim)
    targets: list[Any] = []
    for _, _, inside, outside, _ in entries:
        if type(inside) is not tuple or len(inside) != ndim or not ndim:
            raise NotOursError("a chunk's selection is not one index for each dimension")
        target = _positions(outside)
        if any(np.shape(index) != target.shape for index in inside):
            raise NotOursError("a chunk's points are not as many as their places in the result")
        targets.append(target)
    nitems = sum(map(len, targets))
    axes = [
        _scattered(
            [
                (_positions(entry[2][i]) + offset * length, target)
                for entry, offset, target in zip(entries, offsets[:, i], targets, strict=True)
            ],
            nitems,
        )
        for i, length in enumerate(chunk_shape)
    ]
    return axes, offsets.max(0).tolist()


def _scattered(pairs: Sequence[tuple[Any, Any]], nitems: int) -> Axis:
    """Return the index whose elements are given with their places in the result."""
    index = np.full(nitems, -1, np.int64)
    for elements, places in pairs:
        if elements.shape != places.shape or (len(places) and not 0 <= places.min() <= places.max() < nitems):
            raise NotOursError("a chunk's selection and its place in the result differ in size")
        index[places] = elements
    if nitems and index.min() < 0:
        raise NotOursError("two chunks have the same place in the result")
    return index, nitems


def _positions(index: Any) -> Any:
    """Return the numbers that an index selects: a slice, or an array of integers or booleans."""
    if isinstance(index, slice):
        if index.start is None or index.stop is None:
            raise NotOursError("a slice has no bounds")
        return np.arange(index.start, index.stop, index.step or 1)
    flat = np.asarray(index).reshape(-1)
    if flat.dtype == bool:
        return np.flatnonzero(flat)
    if flat.dtype.kind not in "iu":
        raise NotOursError("an index is not of integers")
    return flat.astype(np.int64, copy=False)


def _is_same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.array_equal(one, other)
    return bool(one == other)


def _coordinate(text: str) -> int:
    if not text.isdecimal():
        raise NotOursError(f"{text!r} is not a chunk's coordinate")
    return int(text)
