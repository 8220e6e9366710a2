"""HTML of a loader for notebooks: what its ``repr`` says, what its settings mean, and which chunk feeds which batch.

No chunk is read. What would take long is left out, and the page says so: the order of very many groups, and counting
the chunks of very many samples.
"""

from __future__ import annotations

import html
import math
from itertools import islice
from typing import TYPE_CHECKING, Final

import numpy as np

from ..display import printable, readable_size
from ..display.marks import MOST_ROWS, SizeScale, marks
from ..display.page import escaped, page, table
from .explanation import Mixing, amplification

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from ..arrays.exporting import ExportedArray
    from .epoch import Epoch
    from .samples import Samples
    from .volumes import Volume

    IntArray = npt.NDArray[np.int64]

#: Most arrays that are listed.
_ARRAYS: Final = 8
#: Most groups (or listed samples) of an epoch whose order is made, and most samples whose chunks are counted.
_MOST_GROUPS: Final = 1 << 17
_MOST_COUNTED: Final = 1 << 12
#: Most ranks whose groups are counted.
_MOST_RANKS: Final = 8
#: Fewest and most batches of the picture, and about as many samples.
_FEWEST_BATCHES: Final = 8
_MOST_BATCHES: Final = 64
_MARKS: Final = 2048


def loader_html(
    volumes: Sequence[Mapping[str, ExportedArray]], sampler: object, epoch: Epoch, cursor: int, held_bytes: int | None
) -> str:
    """Return a loader as HTML.

    Parameters
    ----------
    volumes
        Its arrays.
    sampler
        What a sample is.
    epoch
        The next epoch.
    cursor
        Position that it begins at.
    held_bytes
        Most bytes of samples and chunks in memory; None if that takes long to find out.
    """
    facts = table(_facts(volumes, sampler, epoch, cursor) + _meaning(epoch, held_bytes))
    return page("gzarr.Loader", [_arrays(volumes) + facts, _picture(epoch, cursor)])


def is_quick(epoch: Epoch) -> bool:
    """Return whether the order of an epoch is made in a few hundredths of a second."""
    grouped = epoch.settings.shuffle == "blocks"
    return sum(_entries(volume.samples, grouped=grouped) for volume in epoch.samples.each) <= _MOST_GROUPS


def _entries(samples: Samples, *, grouped: bool) -> int:
    """Return how many entries the cells of an epoch have: groups, or samples where not all cells are samples."""
    if samples.chosen is not None or samples.is_weighed:
        return max(samples.total, samples.count)
    return math.prod(-(-n // g) for n, g in zip(samples.counts, samples.lengths, strict=True)) if grouped else 1


def _arrays(volumes: Sequence[Mapping[str, ExportedArray]]) -> str:
    first = volumes[0]
    rows = [
        [escaped(name or "data", 80), escaped(a.shape), escaped(a.dtype, 60), escaped(a.chunks)]
        for name, a in islice(first.items(), _ARRAYS)
    ]
    if len(first) > _ARRAYS:
        rows.append([f"and {len(first) - _ARRAYS:,} more"])
    if len(volumes) > 1:
        rows.append([f"and as many of {len(volumes) - 1:,} more volume{'s' * (len(volumes) > 2)}"])
    return table(rows, ["Array", "Shape", "Data type", "Chunks"])


def _facts(
    volumes: Sequence[Mapping[str, ExportedArray]], sampler: object, epoch: Epoch, cursor: int
) -> list[list[str]]:
    rank = f" of rank {epoch.rank} of {epoch.world_size}" if epoch.world_size > 1 else ""
    after = f", from batch {_begun(epoch, cursor) + 1:,} on" if cursor else ""
    rows = [
        ["Samples", f"{epoch.samples.count:,} of {readable_size(epoch.samples.sample_nbytes)}"],
        ["Sampler", escaped(repr(sampler), 200)],
        ["Batches", f"{epoch.steps(0):,} of {epoch.batch_size:,}{rank}"],
        ["Shuffle", escaped(repr(epoch.settings.shuffle))],
        ["Next epoch", f"{epoch.number:,}{after}"],
        ["Device", escaped(next(iter(volumes[0].values())).device)],
        ["Buffer", readable_size(2 * epoch.settings.block_bytes)],
    ]
    return [[html.escape(label), value] for label, value in rows]


def _begun(epoch: Epoch, cursor: int) -> int:
    """Return the number of batches of an epoch before a position."""
    return cursor // (epoch.batch_size * epoch.world_size)


def _meaning(epoch: Epoch, held_bytes: int | None) -> list[list[str]]:
    """Return what the settings mean, as far as that is known soon."""
    rows, left_out = [], held_bytes is None
    if is_quick(epoch):
        mixing = Mixing.of(epoch, lambda _: None)
        groups = f"{mixing.block_samples:,.0f} samples of R = {mixing.groups:,.0f} independent groups are mixed"
        rows.append(["Mixing", groups if mixing.is_enough else f"{groups}; {mixing.wanted_groups:,} are wanted"])
    if held_bytes is not None:
        few = epoch.reads_groups and epoch.world_size <= _MOST_RANKS
        if few or epoch.samples.count * epoch.world_size <= _MOST_COUNTED:
            decoded = f"{amplification(epoch):.2f}"
            rows.append(["Amplification", f"{decoded}: a chunk is decoded {decoded} times an epoch"])
        else:
            left_out = True
        memory = f"at most {readable_size(held_bytes)} of samples and chunks"
        rows.append(["Memory", f"{memory}, {readable_size(epoch.planning_bytes)} of their order"])
    return [*rows, ["More", "<code>loader.explain()</code>"]] if left_out else rows


def _picture(epoch: Epoch, cursor: int) -> str:
    """Draw which chunk feeds which batch."""
    begin, end = epoch.first_turn(cursor), epoch.end(cursor)
    if begin >= end:
        return _note("There are no batches to draw.")
    if not is_quick(epoch):
        return _note("Which chunk feeds which batch is not drawn: the order of this many groups takes a while.")
    size, steps = epoch.batch_size, epoch.steps(cursor)
    shown = min(steps, max(_MARKS // size, _FEWEST_BATCHES), _MOST_BATCHES)
    each = min(size, _MARKS // shown)
    # Samples of a batch that are shown: all, or some at about even distances.
    places = np.arange(each) * size // each
    turns = (begin + size * np.arange(shown)[:, None] + places).ravel()
    columns = np.repeat(np.arange(shown), each)[turns < end]
    turns = turns[turns < end]
    positions = (epoch.rank + epoch.world_size * turns) % epoch.samples.count
    numbers = epoch.order.samples(positions)
    chunks, firsts = _chunks(epoch, numbers)
    total = firsts[-1]
    if not total:
        return _note("There are no chunks to draw.")
    count = min(total, MOST_ROWS)
    rows = [chunk * count // total for chunk in chunks.tolist()]
    first = _begun(epoch, cursor) + 1
    x = SizeScale(shown, f"batch {first:,}", f"{first + shown - 1:,}", _block_cuts(epoch, begin, shown))
    cuts = tuple(at * count // total for at in firsts[1:-1]) if len(firsts) - 2 <= count // 3 else ()
    y = SizeScale(count, "chunk 1", f"{total:,}", cuts)
    name = epoch.samples.each[0].sources[0].part.array
    array = f" of {printable(name, 40)}" if name else ""
    fed = len(set(chunks[columns == 0].tolist()))
    title = f"Which chunk{array} feeds which batch"
    description = (
        f"The {shown:,} batches from {first:,} on of {epoch.steps(0):,}, from left to right; {total:,} chunks from top "
        f"to bottom. The samples that are shown of the first one come from {fed:,} chunk{'s' * (fed != 1)}."
    )
    notes = [title, f"batches {first:,} to {first + shown - 1:,} of {epoch.steps(0):,}"]
    if each < size:
        notes.append(f"{each:,} samples of each")
    if total > count:
        notes.append(f"a row is up to {-(-total // count):,} chunks")
    if x.cuts:
        notes.append("a line where the next block begins")
    if len(firsts) > 2:
        notes.append("volumes below each other")
    pairs = zip(columns.tolist(), rows, strict=True)
    return marks(x, y, pairs, title, description) + _note("; ".join(notes) + ".")


def _note(text: str) -> str:
    return f'<div style="font-size:0.8em;opacity:0.8">{escaped(text, 600)}</div>'


def _chunks(epoch: Epoch, numbers: IntArray) -> tuple[IntArray, list[int]]:
    """Return the chunk that has each sample's first element, and the first chunk of each volume, and of none.

    Of a sample's arrays, it is the first one's. Chunks are numbered in C order, one volume after the other.
    """
    firsts = [0]
    for volume in epoch.samples.each:
        firsts.append(firsts[-1] + volume.sources[0].nchunks)
    origins, result = epoch.origins(numbers), np.empty(len(numbers), np.int64)
    for i, places, _ in epoch.cells.parts(numbers):
        result[places] = firsts[i] + _chunks_of(epoch.samples.each[i], origins[places])
    return result, firsts


def _chunks_of(volume: Volume, origins: IntArray) -> IntArray:
    source = volume.sources[0]
    # Of several windows, the first one's.
    starts = source.inside(origins)[:: source.part.windows]
    result = np.zeros(len(origins), np.int64)
    for d, axis in enumerate(source.grid.axes):
        result = result * source.grid.grid_shape[d] + axis.chunk_of(starts[:, d])
    return result


def _block_cuts(epoch: Epoch, begin: int, shown: int) -> tuple[int, ...]:
    """Return the columns that begin with another block."""
    if epoch.settings.shuffle != "blocks":
        return ()
    turns = -(-(epoch.order.bounds[1:-1] - epoch.rank) // epoch.world_size)
    cuts = sorted({-(-(turn - begin) // epoch.batch_size) for turn in turns.tolist() if turn > begin})
    return tuple(cut for cut in cuts if 0 < cut < shown)
