"""The host-threads engine, for any codec and any store: ``Codec.decode`` decodes each chunk and NumPy places it.

It is the engine of last resort, for codecs without a native operation. Its :func:`place` defines in a few lines what a
plan means, so tests compare the other engines with it. Threads help because stores and most codecs release the GIL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ...codecs.chain import representations
from ...errors import ChunkDecodeError, ChunkError, MissingChunkError, StoreError, ValueReplacedError, ValueSizeError
from ...stores.base import ByteRange, RemoteValues, SizedStore
from .. import pool
from ..failures import store_failure
from ..fetching import fetch_each
from ..monitor import spent
from ..request import ABSENT, WHOLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ...codecs.codec import ArrayRepresentation, Representation
    from ...plan.planner import Plan
    from ...stores.base import ReadableStore
    from ..monitor import Monitor
    from ..request import ReadRequest, Sources

Encoded: TypeAlias = bytes | memoryview

#: Most chunks and bytes in a batch of byte ranges of one key (its first chunk may be larger), so that memory is bounded
#: however many chunks a shard has.
BATCH_CHUNKS = 32
BATCH_BYTES = 4 << 20


def read(request: ReadRequest) -> None:
    """Read every chunk of ``request.plan`` into ``request.outputs``; after an error they hold some of the chunks.

    Parameters
    ----------
    request
        The read; its ``outputs`` are written in place.

    Raises
    ------
    MissingChunkError
        If a chunk is absent and ``request.missing`` is ``"error"``.
    ChunkReadError
        If the store fails.
    ChunkDecodeError
        If the bytes of a chunk do not decode to ``request.chunk``.
    MetadataError
        If the codecs do not apply to ``request.chunk``.
    """
    if not len(request.plan):
        return
    steps = representations(request.codecs, request.chunk)
    workers = pool.thread_count()
    fill = fill_chunk(request.fill_value, request.chunk)
    if isinstance(request.store, RemoteValues):

        def use(rows: npt.NDArray[np.int64], values: list[Any]) -> bool:
            _read_values(request, steps, fill, rows.tolist(), values)
            return True

        fetch_each(request, np.arange(len(request.plan)), workers, use, request.budget_bytes)
        return
    batches = _batches(request.sources, workers)
    pool.each(lambda i: _read_batch(request, steps, fill, batches[i]), len(batches), workers)


def fetch(
    store: ReadableStore, sources: Sources, rows: Iterable[int], most_encoded: int, monitor: Monitor | None = None
) -> list[Encoded | None]:
    """Fetch the encoded bytes of some chunks from any store.

    Parameters
    ----------
    store
        The store. Whole values are fetched with ``get``; all byte ranges with one ``get_partial_values``, in which
        adjacent ranges of a key are merged.
    sources
        Location of the chunks.
    rows
        Rows of ``sources`` to fetch.
    most_encoded
        Most bytes of a whole value. Larger ones are refused, before they are read if the store knows their size.
    monitor
        Monitor of the read, or None.

    Returns
    -------
    The bytes of each chunk, in the order of ``rows``; None for absent chunks.

    Raises
    ------
    StoreError
        If the store fails, or returns fewer or more bytes than requested.
    """
    values: list[Encoded | None] = []
    ranges: list[tuple[int, int, int, int]] = []
    for position, row in enumerate(rows):
        if monitor is not None:
            monitor.check()
        nbytes = int(sources.nbytes[row])
        key_index = int(sources.key_index[row])
        values.append(_whole(store, sources.keys[key_index], most_encoded) if nbytes == WHOLE else None)
        if nbytes not in (WHOLE, ABSENT):
            ranges.append((key_index, int(sources.offset[row]), nbytes, position))
    if not ranges:
        return values
    ranges.sort()
    groups: list[list[tuple[int, int, int, int]]] = []
    key_of_group, end = -1, -1
    for entry in ranges:
        key_index, offset, nbytes, _ = entry
        if key_index == key_of_group and offset == end:
            groups[-1].append(entry)
        else:
            groups.append([entry])
        key_of_group, end = key_index, offset + nbytes
    asked = [
        (sources.keys[group[0][0]], ByteRange(group[0][1], sum(nbytes for _, _, nbytes, _ in group)))
        for group in groups
    ]
    parts = store.get_partial_values(asked)
    for group, (key, byte_range), part in zip(groups, asked, parts, strict=True):
        if part is None:
            if sources.packing is not None:
                raise ValueReplacedError(f"{store!r}: {key!r} was erased meanwhile", key=key)
            continue
        if len(part) != byte_range.length:
            raise StoreError(
                f"{store!r} returned {len(part)} bytes of {key!r} from byte {byte_range.offset} on, "
                f"expected {byte_range.length}",
                key=key,
            )
        whole = memoryview(part)
        for _, offset, nbytes, position in group:
            begin = offset - byte_range.offset
            values[position] = part if nbytes == len(part) else whole[begin : begin + nbytes]
    return values


def _whole(store: ReadableStore, key: str, most_encoded: int) -> bytes | None:
    if isinstance(store, SizedStore):
        return store.get_small_values([key], most_encoded)[0]
    value = store.get(key)
    if value is not None and len(value) > most_encoded:
        raise ValueSizeError(
            f"{store!r}: {key!r} has {len(value)} bytes; a chunk of this array has at most {most_encoded}",
            key=key,
        )
    return value


def place(
    chunk: npt.NDArray[Any], plan: Plan, i: int, outputs: Sequence[npt.NDArray[Any]], field: str | None = None
) -> None:
    """Place chunk ``i`` of a plan: the definition of what a :class:`gzarr.plan.planner.Plan` means.

    Parameters
    ----------
    chunk
        The decoded chunk, in the plan's chunk shape.
    plan, i
        The plan, and the row of the chunk in it.
    outputs
        Arrays with the plan's ``k`` dimensions; for points, result arrays of any shape.
    field
        Name of the field of ``chunk.dtype`` to place, or None for whole elements.
    """
    if field is not None:
        chunk = chunk[field]
    for output, source, target in pieces(plan, i):
        if plan.points is not None:
            outputs[output].flat[target] = chunk[source]
        else:
            # With zero dimensions, the ellipsis gives an array rather than an element, which may itself be a sequence.
            outputs[output][(*target, ...)] = chunk[(*source, ...)]


def pieces(plan: Plan, i: int) -> Iterator[tuple[int, Any, Any]]:
    """Yield, for each piece of chunk ``i``, the number of its output and its index in the chunk and in the output.

    For points, the last index is one into the output's ``flat``.
    """
    for piece in range(int(plan.piece_offsets[i]), int(plan.piece_offsets[i + 1])):
        output = int(plan.output[piece])
        starts, counts = plan.start[piece].tolist(), plan.count[piece].tolist()
        if plan.points is not None:
            rows = slice(starts[0], starts[0] + counts[0])
            yield output, tuple(plan.points.source[rows].T), plan.points.target[rows]
            continue
        source: list[Any] = []
        target: list[Any] = []
        for start, number, to, step, table in zip(
            starts, counts, plan.target[piece].tolist(), plan.step.tolist(), plan.tables, strict=True
        ):
            if table is not None:
                source.append(table.source[start : start + number])
                target.append(table.target[start : start + number])
            else:
                source.append(slice(start, start + (number - 1) * step + 1, step))
                target.append(slice(to, to + number))
        if sum(table is not None for table in plan.tables) > 1:
            # Several index arrays would select points; an open mesh of them selects a box.
            source = list(np.ix_(*(_indices(entry) for entry in source)))
            target = list(np.ix_(*(_indices(entry) for entry in target)))
        yield output, tuple(source), tuple(target)


def _indices(entry: Any) -> npt.NDArray[np.int64]:
    return np.arange(entry.start, entry.stop, entry.step or 1) if isinstance(entry, slice) else entry


def _batches(sources: Sources, workers: int) -> list[list[int]]:
    """Return the chunks in the batches that threads take: one whole value, or several byte ranges of one key."""
    ranges = np.flatnonzero(sources.nbytes >= 0)
    batches = [[row] for row in np.flatnonzero(sources.nbytes < 0).tolist()]
    if not len(ranges):
        return batches
    ranges = ranges[np.lexsort((sources.offset[ranges], sources.key_index[ranges]))]
    # Smaller batches when there are few chunks, so that every thread has work.
    most = max(1, min(BATCH_CHUNKS, len(ranges) // (4 * workers)))
    key_of_batch, batch_nbytes = -1, 0
    keys, sizes = sources.key_index[ranges].tolist(), sources.nbytes[ranges].tolist()
    for row, key_index, nbytes in zip(ranges.tolist(), keys, sizes, strict=True):
        batch_nbytes += nbytes
        if key_index != key_of_batch or len(batches[-1]) >= most or batch_nbytes > BATCH_BYTES:
            batches.append([])
            key_of_batch, batch_nbytes = key_index, nbytes
        batches[-1].append(row)
    return batches


def _read_batch(
    request: ReadRequest, steps: Sequence[Representation], fill: npt.NDArray[Any], rows: Sequence[int]
) -> None:
    try:
        with spent(request.monitor, "store"):
            values = fetch(request.store, request.sources, rows, request.most_encoded, request.monitor)
    # Third-party stores may raise anything.
    except Exception as cause:
        if len(rows) == 1:
            raise store_failure(request, rows[0], cause) from cause
        # One at a time, to find the chunk that fails and to read the others.
        for row in rows:
            _read_batch(request, steps, fill, [row])
        return
    _read_values(request, steps, fill, rows, values)


def _read_values(
    request: ReadRequest,
    steps: Sequence[Representation],
    fill: npt.NDArray[Any],
    rows: Sequence[int],
    values: list[Any],
) -> None:
    """Decode and place chunks, given their encoded bytes; the list loses them."""
    with spent(request.monitor, "decoder"):
        for position, row in enumerate(rows):
            # Frees each encoded chunk before the next is decoded.
            data, values[position] = values[position], None
            if data is not None:
                chunk = _decode(request, steps, data, row)
            elif request.missing == "fill":
                if request.monitor is not None:
                    request.monitor.absent = True
                chunk = fill
            else:
                reason = "the store has no such chunk, and missing='error' was requested"
                raise request.failure(MissingChunkError, row, reason)
            place(chunk, request.plan, row, request.outputs, request.field)


def _decode(request: ReadRequest, steps: Sequence[Representation], data: Any, row: int) -> npt.NDArray[Any]:
    label = "codecs"
    try:
        for codec, decoded in zip(reversed(request.codecs), reversed(steps[:-1]), strict=True):
            label = codec.label
            data = codec.decode(data, decoded)
    except ChunkError:
        raise
    # Codec libraries may raise anything on corrupt input, including RuntimeError and MemoryError.
    except Exception as cause:
        reason = str(cause) or type(cause).__name__
        raise request.failure(ChunkDecodeError, row, f"{label} cannot decode it: {reason}") from cause
    chunk = request.chunk
    if not isinstance(data, np.ndarray) or data.shape != chunk.shape or data.dtype != chunk.dtype:
        found = f"shape {data.shape}, {data.dtype}" if isinstance(data, np.ndarray) else type(data).__name__
        reason = f"decoded to {found}, expected shape {chunk.shape}, {chunk.dtype}"
        raise request.failure(ChunkDecodeError, row, reason)
    return data


def fill_chunk(fill_value: Any, chunk: ArrayRepresentation) -> npt.NDArray[Any]:
    """Return a chunk of fill values that occupies the memory of one element."""
    one = np.zeros(1, chunk.dtype)
    if fill_value is not None:
        one[0] = fill_value
    return np.broadcast_to(one.reshape(()), chunk.shape)
