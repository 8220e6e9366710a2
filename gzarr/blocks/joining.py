"""Instances that blocks segmented separately, joined where blocks overlap.

Two labels of neighbouring blocks are one object if they lie on each other where both blocks have elements: in the
overlap of the two blocks with their halos, or, without an overlap, in the two planes of elements that face each other.
How much they do is, by default, their intersection over their union there (IoU). Above one half, a label has at most
one partner in another block, so two instances never become one because both lie a little on a third; that is the
default. ``"smaller"``, the intersection over the smaller of the two, joins a part with the whole.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

import numpy as np

from ..choices import choice
from ..documents.json import quote
from ..errors import ArgumentError
from ..flags import check_flags
from ..hierarchy.create import create_array
from ..real_numbers import real
from ..windows.inputs import KINDS, array_of
from .arguments import background_of, each, is_whole
from .calls import DEFAULT_BUDGET_BYTES, CallOptions, plan_call
from .label_outputs import check_output, finish, label_output
from .members import NOWHERE, ObjectMembers, places_in
from .regions import regions_of, renamed
from .scratch import BlockWindows

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Executor

    import numpy.typing as npt

    from ..integers import EachAxis
    from ..windows.inputs import Input
    from .blocks import Block
    from .calls import PlannedCall
    from .members import ObjectNumbers

    Bits = npt.NDArray[np.uint64]

#: Intersection over union, or over the smaller of the two.
Measure: TypeAlias = Literal["iou", "smaller"]

_WANTED: Final = f"join takes an array of labels: {KINDS}"


def join(  # noqa: PLR0913
    labels: Input,
    *,
    overlap: EachAxis = 0,
    block: EachAxis | None = None,
    out: Any = None,
    threshold: float = 0.5,
    measure: Measure = "iou",
    background: int = 0,
    dtype: Any = "uint32",
    overwrite: bool = False,
    resume: bool = False,
    progress: bool = False,
    budget_bytes: int = DEFAULT_BUDGET_BYTES,
    client: Any = None,
) -> tuple[Any, int]:
    """Join instances that blocks segmented separately.

    Parameters
    ----------
    labels
        Labels of all blocks, integers, as an input of :func:`gzarr.map_blocks`. Numbers of different blocks have
        nothing to do with each other. With an overlap, blocks with ``overlap`` elements more on both sides follow each
        other along each axis, also at the ends of the array: as ``scratch=`` of :func:`label` has them, and
        ``dask.array.overlap.overlap`` with a boundary.
    overlap
        Elements that blocks have on each side beside their own, along each axis or all of them.
    block
        Shape of blocks without the overlap; None for chunks of ``labels``, without the overlap.
    out
        As for :func:`label`.
    threshold
        Labels of two blocks are one object if they lie on each other by more than this, from 0 to below 1. Above one
        half, which is the default, the IoU joins each of them with at most one of another block.
    measure
        How much that is, of the elements that both blocks have (without an overlap, the planes that face each other):
        ``"iou"``, intersection over union; ``"smaller"``, over the smaller of the two, which joins a part with the
        whole.
    background
        The value that is no label.
    dtype, overwrite, resume, progress, budget_bytes, client
        As for :func:`label`.

    Returns
    -------
    The output, of the shape without overlaps, and the number of objects. Objects have the numbers 1, 2, …, in the order
    of their first elements.

    Raises
    ------
    ArgumentError, OutputError, ReadOnlyError
        If an argument is wrong, there are more objects than the output can number, or the output is the input; nothing
        was written.
    NodeNotFoundError, NodeTypeError, MetadataError, ChunkError, StoreError
        If an array cannot be opened, read or written.

    Examples
    --------
    >>> import gzarr
    >>> import numpy as np
    >>> gzarr.blocks.join(np.array([0, 7, 7, 1, 1, 0, 2, 0]), block=3)
    (array([0, 1, 1, 1, 1, 0, 2, 0], dtype=uint32), 2)
    """
    check_flags(overwrite=overwrite, resume=resume, progress=progress)
    check_overlap(threshold, measure)
    output = label_output(out, dtype, resume=resume)
    opened = array_of(labels, "cpu", _WANTED)._on_device("cpu")
    if opened.dtype.kind not in "iu" or not opened.ndim:
        raise ArgumentError(f"{opened.name} has elements of {opened.dtype}, shape {opened.shape}; join takes labels")
    ndim = opened.ndim
    background = int(background_of(background, opened.dtype))
    what = "whole numbers of elements, at least 0"
    halos = list(map(int, each(overlap, ndim, "overlap", lambda n: is_whole(n) and n >= 0, what)))
    lengths = _lengths(opened, block, halos)
    shape = []
    for n, length, halo in zip(opened.shape, lengths, halos, strict=True):
        count = -(-n // (length + 2 * halo))
        if n - 2 * halo * count <= (count - 1) * length:
            raise ArgumentError(
                f"labels of shape {opened.shape} are not blocks of {lengths} with an overlap of "
                f"{quote(tuple(halos))}: the last ones would be empty"
            )
        shape.append(n - 2 * halo * count)
    # Outputs are like an array of this shape.
    like = opened if not any(halos) else create_array({}, shape=shape, dtype=opened.dtype, chunks=lengths, device="cpu")
    options = CallOptions(block=lengths, device="cpu", overwrite=overwrite, resume=resume, budget_bytes=budget_bytes)
    call = plan_call([like], [output], options, takes=_WANTED)
    call = replace(call, inputs=[opened])
    check_output(call)
    call.check_created()
    windows = BlockWindows(opened, tuple(shape), lengths, tuple((n, n) for n in halos))
    overlaps = Overlap(windows, float(threshold), measure, background)
    executor = call.executor(client, call.work(overlaps, reads=False, writes=False, reduces=True))
    return join_windows(call, overlaps, executor, progress=progress)


def _lengths(labels: Any, block: Any, halos: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of blocks without their overlaps."""
    if block is None:
        if not labels.metadata.chunk_grid.is_regular:
            raise ArgumentError(f"{labels.name} has chunks of various lengths; pass block=")
        found = [n - 2 * halo for n, halo in zip(labels.chunks, halos, strict=True)]
        if min(found) < 1:
            raise ArgumentError(
                f"chunks of {labels.chunks} are not blocks with an overlap of {quote(tuple(halos))}; pass block="
            )
    else:
        what = "lengths of at least 1, without the overlap"
        found = each(block, labels.ndim, "block", lambda n: is_whole(n) and n >= 1, what)
    return tuple(max(min(int(n), size - 2 * halo), 1) for n, size, halo in zip(found, labels.shape, halos, strict=True))


def check_overlap(threshold: Any, measure: Any) -> None:
    """Refuse arguments that say nothing about overlaps.

    Raises
    ------
    ArgumentError
        If so.
    """
    choice("measure", measure, get_args(Measure))
    number = real(threshold)
    if number is None or not 0 <= number < 1:
        raise ArgumentError(f"threshold must be a number from 0 to below 1, not {quote(threshold)}")


def join_windows(call: PlannedCall, overlap: Overlap, executor: Executor | None, *, progress: bool) -> tuple[Any, int]:
    """Join the labels of blocks, and write their numbers; return the output and the number of objects.

    Parameters
    ----------
    call
        What was asked for.
    overlap
        How labels of neighbouring blocks are compared.
    executor, progress
        As for :class:`BlockWork`.
    """
    work = call.work(overlap, reads=False, writes=False, reduces=True)
    members = ObjectMembers()
    with closing(work.values(None, executor, progress=progress)) as values:
        for _, found in values:
            members.add(found.number, found.firsts, found.labels)
            for other, pairs in found.pairs:
                members.join(found.number, other, pairs)
    numbers = members.numbers()
    writing = call.work(Renamed(overlap.windows, numbers), reads=False)
    return finish(call, writing, numbers, executor, progress=progress), numbers.count


@dataclass(frozen=True, eq=False)
class FoundLabels:
    """The labels of a block.

    Attributes
    ----------
    number
        Number of the block.
    labels
        Their bits, ascending.
    firsts
        The first element of each, in C order of all elements, or ``NOWHERE`` for those in a halo only.
    pairs
        For each neighbour with a higher number, that number, and pairs of labels that are one object: uint64
        ``(n, 2)``.
    """

    number: int
    labels: Bits
    firsts: npt.NDArray[np.int64]
    pairs: list[tuple[int, Bits]]


@dataclass(frozen=True, eq=False)
class Overlap:
    """Compares a block's labels with its neighbours'.

    Attributes
    ----------
    windows
        The labels of all blocks.
    threshold, measure, background
        Arguments of :func:`join`.
    """

    windows: BlockWindows
    threshold: float
    measure: Measure
    background: int

    def __call__(self, block_info: Block) -> FoundLabels:
        """Return the labels of a block, and those that are one object with labels of its neighbours."""
        windows, index = self.windows, block_info.index
        box = windows.box(index)
        own = windows.read(box)
        known = regions_of(own, self.background)
        inner = own if own.shape == block_info.shape else np.ascontiguousarray(own[windows.core(index)])
        inside = regions_of(inner, self.background)
        firsts = np.full(len(known.labels), NOWHERE, np.int64)
        places = places_in(windows.shape, block_info.box, inside.firsts)
        firsts[np.searchsorted(known.labels, inside.labels)] = places
        pairs = []
        for axis, (i, count) in enumerate(zip(index, block_info.grid_shape, strict=True)):
            if i + 1 == count:
                continue
            other = (*index[:axis], i + 1, *index[axis + 1 :])
            number = int(np.ravel_multi_index(other, block_info.grid_shape))
            begin, end = windows.extent(axis, i + 1)
            # Without an overlap, the planes that face each other.
            thick = min(max(sum(windows.halos[axis]), 1), end - begin, own.shape[axis])
            mine = own[(slice(None),) * axis + (slice(own.shape[axis] - thick, None),)]
            theirs = windows.read((*box[:axis], slice(begin, begin + thick), *box[axis + 1 :]))
            pairs.append((number, self._joined(mine, theirs)))
        return FoundLabels(block_info.number, known.labels, firsts, pairs)

    def _joined(self, mine: npt.NDArray[Any], theirs: npt.NDArray[Any]) -> Bits:
        """Return the pairs of labels that lie on each other by more than the threshold."""
        one, other = regions_of(mine, self.background), regions_of(theirs, self.background)
        wide = np.dtype(np.uint64)
        places = [
            renamed(array, found.labels, np.arange(1, len(found.labels) + 1, dtype=np.uint64), wide)
            for array, found in ((mine, one), (theirs, other))
        ]
        keys = (places[0] << np.uint64(32)) | places[1]
        keys[(places[0] == 0) | (places[1] == 0)] = 0
        both = regions_of(keys, 0)
        a = (both.labels >> np.uint64(32)).astype(np.int64) - 1
        b = (both.labels & np.uint64(0xFFFFFFFF)).astype(np.int64) - 1
        areas = one.areas[a], other.areas[b]
        whole = np.minimum(*areas) if self.measure == "smaller" else areas[0] + areas[1] - both.areas
        found = both.areas > self.threshold * whole
        return np.stack([one.labels[a[found]], other.labels[b[found]]], axis=1)


class Renamed:
    """Returns the final numbers of the labels of a block.

    Parameters
    ----------
    windows
        The labels of all blocks.
    numbers
        Their numbers.
    """

    def __init__(self, windows: BlockWindows, numbers: ObjectNumbers) -> None:
        self._windows, self._numbers = windows, numbers

    def __call__(self, block_info: Block) -> npt.NDArray[Any]:
        """Return the numbers of the elements of a block."""
        windows, numbers = self._windows, self._numbers
        box = tuple(
            slice(outer.start + inner.start, outer.start + inner.stop)
            for outer, inner in zip(windows.box(block_info.index), windows.core(block_info.index), strict=True)
        )
        old, new = numbers.labels_of(block_info.number), numbers.of_block(block_info.number)[1:]
        dtype = np.dtype(np.uint32 if numbers.count < 1 << 32 else np.uint64)
        return renamed(windows.read(box), old, new, dtype)
