"""Which kernels place the chunks of a wave, and their arguments.

Pieces whose rows are contiguous in the chunk and in the output are placed by kernels that move 16 bytes per thread
(:mod:`gzarr_kernels.device.rows`), one for plain and absent chunks and one for byte planes; all others by the kernel
that moves elements (:mod:`gzarr_kernels.device.assemble`), which also converts them. A wave needs one launch if all its
pieces use one kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .columns import pieces_of

if TYPE_CHECKING:
    import numpy.typing as npt

    from .columns import Columns, Output, Placement
    from .filters import Filter

    IntArray = npt.NDArray[np.int64]

#: Words of a fill value: at most 16 bytes, repeated for 16 more as the rows' kernel needs.
FILL_WORDS: Final = 4
#: Least average bytes per row for which rows are moved rather than elements.
MIN_MEAN_ROW_BYTES: Final = 16


@dataclass(frozen=True, slots=True, eq=False)
class DecodedChunks:
    """Where and how the decoded chunks of a wave lie in the arena; one row per chunk.

    Attributes
    ----------
    rows
        int64 ``(n,)``, rows of the plan.
    source
        int64 ``(n,)``, byte offset of the decoded chunk.
    typesize, blocksize
        int64 ``(n,)``: element size and block size in bytes. typesize 1 means plain bytes, a greater one byte planes
        in each block, and 0 an absent chunk.
    nbytes
        Bytes of a decoded chunk.
    strides
        Bytes between neighbours in a decoded chunk, for each dimension of the array.
    swap
        Width in bytes of the units to byte-swap; 0 for none.
    conversion
        Conversion of the elements; None for none.
    """

    rows: IntArray
    source: IntArray
    typesize: IntArray
    blocksize: IntArray
    nbytes: int
    strides: tuple[int, ...]
    swap: int = 0
    conversion: Filter | None = None


@dataclass(frozen=True, slots=True)
class PlacingLaunch:
    """A launch that places pieces.

    Attributes
    ----------
    kernel, blocks
        Kernel, and number of blocks.
    header
        Index of the kernel's header in the columns.
    word
        Bytes of the words in which the kernel addresses the arena and the results; 0 for rows' kernels.
    """

    kernel: Any
    blocks: int
    header: int
    word: int


@dataclass(frozen=True, slots=True, eq=False)
class _Dimension:
    """A dimension above the rows; arrays have one row per piece."""

    count: IntArray
    by_source: int
    by_target: IntArray
    table_source: IntArray | None = None
    table_target: IntArray | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """Pieces as rows; arrays have one row per piece.

    Attributes
    ----------
    source, target
        Byte offset of the first element in the chunk, and in the results' memory.
    nbytes
        Bytes of a row.
    above
        Dimensions above the rows, the innermost first.
    alignment
        Common alignment of all rows in the results, in bytes, at most 16.
    """

    source: IntArray
    target: IntArray
    nbytes: IntArray
    above: tuple[_Dimension, ...]
    alignment: int


def placings(columns: Columns, place: Placement, layout: DecodedChunks, output: Output) -> list[PlacingLaunch]:
    """Write the columns of all kernels that place the chunks of a wave.

    Parameters
    ----------
    columns
        Columns of the wave, to append to.
    place, layout, output
        Placement of the read, chunks of the wave, and memory of the results.

    Returns
    -------
    The kernels to launch.
    """
    from gzarr_kernels.device import rows as r

    pieces, owner = pieces_of(place.plan, layout.rows)
    source = layout.source
    absent = layout.typesize == 0
    if absent.any():
        fill = np.resize(place.fill, 16 + place.itemsize)
        source = np.where(absent, columns.put_bytes(fill, FILL_WORDS), source)
    found: list[PlacingLaunch] = []
    rows = _rows(place, layout, output, pieces)
    if rows is None:
        left = np.ones(len(pieces), np.bool_)
    else:
        # Indexed by typesize; -2 for sizes that the rows' kernels do not handle.
        shifts = np.full(18, -2)
        shifts[:2] = -1, 0
        for nbytes in r.TYPESIZES:
            if place.itemsize % nbytes == 0 == rows.alignment % nbytes:
                shifts[nbytes] = nbytes.bit_length() - 1
        shift = shifts[np.minimum(layout.typesize, 17)][owner]
        left = shift == -2
        for kernel, mine in ((r.place_rows, (shift == 0) | (shift == -1)), (r.place_planes, shift > 0)):
            if mine.any():
                # Mostly all pieces are alike: a slice copies nothing.
                which: Any = slice(None) if mine.all() else mine
                chosen = owner[which]
                header, tiles = _rows_job(
                    columns, rows, which, source[chosen], shift[which],
                    np.minimum(layout.blocksize[chosen], layout.nbytes),
                    [layout.swap - 1 if layout.swap > 1 else 0, output.address % 16, place.itemsize, layout.nbytes],
                )  # fmt: skip
                found.append(PlacingLaunch(kernel, r.blocks(tiles), header, 0))
    if left.any():
        found.append(_elements_job(columns, place, layout, output, source, pieces[left], owner[left]))
    return found


def _rows(place: Placement, layout: DecodedChunks, output: Output, pieces: IntArray) -> _Rows | None:
    """Return pieces as rows, or None if they have none, short rows, more units than kernels count, or are converted."""
    from gzarr_kernels.device import rows as r

    if layout.conversion is not None:
        return None
    plan, itemsize, strides, swap = place.plan, place.itemsize, layout.strides, layout.swap
    k = plan.chunks.shape[1]
    if plan.points is not None or not k or not len(pieces) or swap > 8 or swap & (swap - 1) or layout.nbytes >= r.LIMIT:
        return None
    # One row for each dimension: NumPy is many times as fast along long, contiguous rows.
    start, count, to = (_by_dimension(column, pieces) for column in (plan.start, plan.count, plan.target))
    # One column for all pieces where there is one output.
    which: Any = 0 if len(output.base) == 1 else plan.output[pieces]
    by_target = (output.strides * output.word).T[:, which].reshape(k, -1)
    most = count.max(axis=1).tolist()
    by_source = [strides[d] if plan.tables[d] else strides[d] * int(plan.step[d]) for d in range(k)]
    inner = [
        d for d in range(k)
        if plan.tables[d] is None and by_source[d] == itemsize and (by_target[d] == itemsize).all()
    ]  # fmt: skip
    if not inner:
        return None
    row = max(inner, key=lambda d: most[d])
    nbytes = count[row] * itemsize
    above: list[_Dimension] = []
    for d in sorted(range(k), key=lambda d: by_source[d]):
        if d == row or (most[d] == 1 and plan.tables[d] is None):
            continue
        table = plan.tables[d] is not None
        one = _Dimension(count[d], by_source[d], np.broadcast_to(by_target[d], len(pieces)))
        if table:
            tables = (place.table_source[d] + start[d], place.table_target[d] + start[d])
            above.append(_Dimension(one.count, one.by_source, one.by_target, *tables))
        elif not above and _follows(one, nbytes, nbytes):
            nbytes = nbytes * one.count
        elif above and above[-1].table_source is None and _follows(one, *_span(above[-1])):
            last = above[-1]
            above[-1] = _Dimension(last.count * one.count, last.by_source, last.by_target)
        else:
            above.append(one)
    source = np.full(len(pieces), place.field_offset)
    target = np.zeros(len(pieces), np.int64) + (output.base * output.word)[which]
    for d in range(k):
        if plan.tables[d] is None:
            source += start[d] * strides[d]
            target += to[d] * by_target[d]
    every = int(np.bitwise_or.reduce(target + output.address % 16)) | 16
    for one in above:
        every |= int(np.bitwise_or.reduce(one.by_target))
    alignment = every & -every
    number = np.ones(len(pieces), np.int64)
    for one in above:
        number = number * one.count
    if int((nbytes * number).sum()) < MIN_MEAN_ROW_BYTES * int(number.sum()) or alignment % max(swap, 1):
        return None
    if int((number * _row_units(nbytes, alignment)).max()) >= r.LIMIT:
        return None
    return _Rows(source, target, nbytes, tuple(above), alignment)


def _by_dimension(column: IntArray, pieces: IntArray) -> IntArray:
    """Return rows of one of the plan's columns of pieces, transposed."""
    return np.ascontiguousarray(column.take(pieces, axis=0).T)


def _span(one: _Dimension) -> tuple[IntArray, IntArray]:
    return one.count * one.by_source, one.count * one.by_target


def _follows(one: _Dimension, source: IntArray, target: IntArray) -> bool:
    """Return whether neighbours along a dimension are this many bytes apart in the chunk and in the output."""
    return bool(((one.count == 1) | ((one.by_source == source) & (one.by_target == target))).all())


def _row_units(nbytes: IntArray, alignment: int) -> IntArray:
    """Return the most units of 16 bytes that a row touches."""
    return (nbytes + 31 - alignment) >> 4


def _rows_job(
    columns: Columns,
    rows: _Rows,
    which: npt.NDArray[np.bool_] | slice,
    source: IntArray,
    shift: IntArray,
    blocksize: IntArray,
    settings: list[int],
) -> tuple[int, int]:
    """Write the columns of a rows' kernel for some pieces; return its header's index and its number of tiles."""
    from gzarr_kernels.device import rows as r

    dims = max(2, len(rows.above))
    each = r.FIELDS + r.DIM_FIELDS * dims
    index, memory = columns.place(len(source) * each)
    records = memory.reshape(len(source), each)
    units = _row_units(rows.nbytes[which], rows.alignment)
    records[:, r.SOURCE], records[:, r.SHIFT], records[:, r.BLOCKSIZE] = source, shift, blocksize
    records[:, r.FROM], records[:, r.TO], records[:, r.ROW] = rows.source[which], rows.target[which], rows.nbytes[which]
    records[:, r.ROW_UNITS] = units
    for i in range(dims):
        fields = records[:, r.FIELDS + r.DIM_FIELDS * i :]
        fields[:, r.TABLE_SOURCE], fields[:, r.TABLE_TARGET] = -1, 0
        if i >= len(rows.above):
            fields[:, r.COUNT], fields[:, r.BY_SOURCE], fields[:, r.BY_TARGET] = 1, 0, 0
            continue
        one = rows.above[i]
        fields[:, r.COUNT], fields[:, r.BY_SOURCE] = one.count[which], one.by_source
        fields[:, r.BY_TARGET] = one.by_target[which]
        units = units * one.count[which]
        if one.table_source is not None and one.table_target is not None:
            fields[:, r.TABLE_SOURCE], fields[:, r.TABLE_TARGET] = one.table_source[which], one.table_target[which]
    records[:, r.UNITS] = units
    added = all(one.table_source is None for one in rows.above[:2])
    records[:, r.ADDED] = records[:, r.FIELDS + r.DIM_FIELDS + r.COUNT] if added else 0
    tiles = np.zeros(len(units) + 1, np.int64)
    tile = r.tile_of(int(units.sum()))
    np.cumsum(-(-units // tile), out=tiles[1:])
    header = np.zeros(r.SIZE, np.int64)
    header[r.TILE] = tile
    header[[r.FLIP, r.SKEW, r.ITEMSIZE, r.NBYTES]] = settings
    header[r.PIECES] = len(units)
    header[r.TILES] = tiles[-1]
    header[r.TILE_OFFSETS] = columns.put(tiles)
    header[r.DIMS] = dims
    header[r.RECORDS] = index
    return columns.put(header), int(tiles[-1])


def _elements_job(
    columns: Columns,
    place: Placement,
    layout: DecodedChunks,
    output: Output,
    source: IntArray,
    pieces: IntArray,
    owner: IntArray,
) -> PlacingLaunch:
    """Write the columns of a kernel of elements for some pieces."""
    from gzarr_kernels.device import assemble as a

    plan, k, strides, conversion = place.plan, place.k, layout.strides, layout.conversion
    if plan.chunks.shape[1]:
        start, count, target = plan.start[pieces], plan.count[pieces], plan.target[pieces]
        step: Any = plan.step
    else:
        zeros = np.zeros((len(pieces), 1), np.int64)
        start, count, target, step = zeros, zeros + 1, zeros, [1]
        strides = (0,)
    elements = count[:, 0] if plan.points is not None else np.prod(count, axis=1)
    tiles = np.zeros(len(pieces) + 1, np.int64)
    np.cumsum(-(-elements // a.TILE), out=tiles[1:])
    header = np.zeros(a.SIZE, np.int64)
    header[a.K] = k
    header[a.ITEMSIZE] = place.itemsize
    header[a.FIELD_OFFSET] = place.field_offset
    header[a.SWAP] = layout.swap
    header[a.CHUNK_SOURCE] = columns.put(source)
    header[a.CHUNK_TYPESIZE] = columns.put(layout.typesize)
    header[a.CHUNK_BLOCKSIZE] = columns.put(layout.blocksize)
    header[a.CHUNK_NBYTES] = columns.put(np.full(len(layout.rows), layout.nbytes))
    header[a.PIECES] = len(pieces)
    header[a.TILES] = tiles[-1]
    header[a.TILE_OFFSETS] = columns.put(tiles)
    header[a.PIECE_CHUNK] = columns.put(owner)
    header[a.START] = columns.put(start)
    header[a.COUNT] = columns.put(count)
    header[a.TARGET] = columns.put(target)
    header[a.OUTPUT] = columns.put(plan.output[pieces])
    header[a.STEP] = columns.put(step)
    header[a.STRIDES] = columns.put(strides)
    header[a.OUTPUT_BASE] = columns.put(output.base)
    header[a.OUTPUT_STRIDES] = columns.put(output.strides)
    header[a.TABLE_SOURCE] = columns.put(place.table_source)
    header[a.TABLE_TARGET] = columns.put(place.table_target)
    header[a.POINT_SOURCE] = place.point_source
    header[a.POINT_TARGET] = place.point_target
    kernel = a.assemble
    if conversion is not None:
        kernel = a.assemble_converted
        header[a.SWAP] = 0 if conversion.encoded.isnative else conversion.encoded.itemsize
        header[a.CONVERSION] = conversion.put_conversion(columns)
    return PlacingLaunch(kernel, a.blocks(int(tiles[-1])), columns.put(header), output.word)


def placing_words(k: int, outputs: int, chunks: int, pieces: int) -> int:
    """Return the most words of columns that :func:`placings` writes."""
    from gzarr_kernels.device import rows as r

    # The kernels of elements need fewer.
    a_piece = 1 + r.FIELDS + r.DIM_FIELDS * max(2, k - 1)
    return 4 * chunks + a_piece * pieces + (4 + outputs) * k + outputs + FILL_WORDS + 64
