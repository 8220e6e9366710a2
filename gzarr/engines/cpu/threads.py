"""The host-threads engine, for any codec and any store: ``Codec.decode`` decodes each chunk and NumPy places it.

It is the engine of last resort, for codecs without a native operation. Its :func:`place` defines in a few lines what a
plan means, so tests compare the other engines with it. Threads help because stores and most codecs release the GIL.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from ...codecs.chain import representations
from ...errors import ChunkDecodeError, ChunkError, MissingChunkError
from ...reasons import reason_of
from .. import pool
from ..monitor import spent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...codecs.codec import ArrayRepresentation, Representation
    from ...plan.planner import Plan
    from ..access.access import ReadRequest

#: Types of objects that nobody can change.
_IMMUTABLE: Final = frozenset({str, bytes, int, float, bool, type(None)})


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
    copy_fill = copying(request.fill_value, request.chunk.dtype)

    def use(rows: npt.NDArray[np.int64], values: list[Any]) -> bool:
        _read_values(request, steps, fill, copy_fill, rows.tolist(), values)
        return True

    rows = np.arange(len(request.plan))
    # Chunks take their time to decode, some longer than others.
    request.access.each(request, rows, workers, use, budget_bytes=request.budget_bytes, least_batches=4)


def place(
    chunk: npt.NDArray[Any],
    plan: Plan,
    i: int,
    outputs: Sequence[npt.NDArray[Any]],
    field: str | None = None,
    *,
    copy: np.ufunc | None = None,
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
    copy
        Function that copies each element on its own, of objects; None to place the elements themselves.
    """
    if field is not None:
        chunk = chunk[field]
    for output, source, target in pieces(plan, i):
        # With zero dimensions, the ellipsis gives an array rather than an element, which may itself be a sequence.
        elements = chunk[source] if plan.points is not None else chunk[(*source, ...)]
        if copy is not None:
            elements = copy(elements, out=np.empty(elements.shape, object))
        if plan.points is not None:
            outputs[output].flat[target] = elements
        else:
            outputs[output][(*target, ...)] = elements


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


def _read_values(
    request: ReadRequest,
    steps: Sequence[Representation],
    fill: npt.NDArray[Any],
    copy_fill: np.ufunc | None,
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
            copy = copy_fill if data is None else None
            place(chunk, request.plan, row, request.outputs, request.field, copy=copy)


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
        reason = reason_of(cause)
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


def copying(value: Any, dtype: np.dtype[Any]) -> np.ufunc | None:
    """Return a function that replaces each element of an array by a copy of a fill value; None if nobody can change it.

    Whoever changes a list or a mapping in a result must not change the fill value, nor other elements.
    """
    if dtype.kind != "O" or type(value) in _IMMUTABLE:
        return None
    # Five times as fast as copy.deepcopy; which would also make one copy for all elements of an array.
    pickled = pickle.dumps(value)
    copy: np.ufunc = np.frompyfunc(lambda _: pickle.loads(pickled), 1, 1)
    return copy
