"""Old content of stored values that a write changes in part, for the loop that writes: where it is, what is needed.

The file of a chunk is opened and read by the loop. That of a shard is opened here, and stays open while the loop reads
from it: its index and its chunks are of one version, even if another process replaces the file meanwhile.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from gzarr_kernels.slots import write as w

from ...reasons import pass_on
from ...stores.descriptors import open_into
from ...stores.file_tree import dangling_link
from ..access.shard import ranges_in
from ..kernels import OPEN_FLAGS
from .native_program import NativeProgram, prepare
from .write_threads import replaced_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from ...plan.decode_program import Decoding
    from ...plan.encode_program import EncodingProgram
    from ...stores.base import ByteRange
    from ..access.shard import Shard
    from ..job_slots import WriteSlots
    from ..write_request import WriteRequest

    IntArray = npt.NDArray[np.int64]

#: Number of shards whose files are open at the same time.
MOST_SHARDS = 64


@dataclass(frozen=True, slots=True, eq=False)
class OldShards:
    """Where old chunks are in their shards.

    Attributes
    ----------
    files
        int64 ``(values,)``, descriptor of each shard's file, -1 where there is none.
    offset, nbytes
        int64 ``(n,)``, where a row's bytes are in that file, and how many (-1: none).
    """

    files: IntArray
    offset: IntArray
    nbytes: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class OldContent:
    """What a job's rows need of the old content of their stored values.

    Attributes
    ----------
    program
        Program that decodes a chunk.
    most_encoded
        Most bytes of an encoded chunk.
    rows
        int64 ``(n,)``, planned chunk of each row; for a row whose bytes are kept, any chunk of the same stored value.
    slot
        int64 ``(n,)``, entry of each row in its shard's index; zeros without shards.
    needed
        int64 ``(n,)``, one of ``OLD_NONE``, ``OLD_CHANGED`` and ``OLD_KEPT`` (:mod:`gzarr_kernels.slots.write`).
    shards
        Where the old chunks are; None if each is a file.
    """

    program: NativeProgram
    most_encoded: int
    rows: IntArray
    slot: IntArray
    needed: IntArray
    shards: OldShards | None

    def of(self, rows: IntArray, values: IntArray | slice = slice(None)) -> OldContent:
        """Return the same for some rows in a new order, and for some stored values."""
        shards = self.shards
        if shards is not None:
            shards = OldShards(shards.files[values], shards.offset[rows], shards.nbytes[rows])
        return replace(self, rows=self.rows[rows], slot=self.slot[rows], needed=self.needed[rows], shards=shards)

    def set(self, slots: WriteSlots) -> None:
        """Have a job keep it, for rows in its order."""
        slots.set_old(self.needed, self.program.words, self.program.operations, self.most_encoded)
        if self.shards is not None:
            slots.set_old_shards(self.shards.files, self.shards.offset, self.shards.nbytes)


def can_be_changed(request: WriteRequest, program: EncodingProgram, decoding: Decoding) -> bool:
    """Return whether the loop can change chunks in place of host threads: boxes of whole elements, native codecs."""
    plan, decode = request.plan, decoding.program
    if decode is None or request.field is not None or plan.points is not None:
        return False
    if any(table is not None for table in plan.tables):
        return False
    # Elements are changed in the order and the byte order in which they are stored.
    return (decode.order, decode.strides, decode.swap) == (program.order, program.strides, program.swap)


@contextlib.contextmanager
def opened(
    request: WriteRequest, decoding: Decoding, rows: IntArray, root: str
) -> Iterator[tuple[OldContent, IntArray]]:
    """Find the old content of all planned chunks of some stored values; close its files at the end.

    Parameters
    ----------
    request, decoding
        The write, and the analysis of its codecs.
    rows
        int64 ``(n,)``, planned chunks.
    root
        Absolute path of the store.

    Yields
    ------
    The old content, and int64: planned chunks that are not in it, as the index of their shard cannot be read, or gives
    a chunk more bytes than any encoder.
    """
    program = prepare(decoding.program, decoding.chunk, None)  # type: ignore[arg-type]
    replaced = replaced_rows(request, rows)
    if (request.whole[rows] & ~replaced).any() and request.is_current():
        # Nobody has appended anything to them.
        replaced = request.whole[rows]
    needed = np.where(replaced, w.OLD_NONE, w.OLD_CHANGED)
    if request.shard is None:
        zeros = np.zeros(len(rows), np.int64)
        yield OldContent(program, decoding.most_encoded, rows, zeros, needed, None), zeros[:0]
        return
    values, value_of = np.unique(request.value_of[rows], return_inverse=True)
    slot = request.shard.entries(request.plan.chunks[rows])
    files = np.full(len(request.keys), -1, np.int64)
    found = np.ones(len(values), np.bool_)
    parts = []
    fds: list[int] = []
    # One call of compiled code, so that no interrupt (Ctrl-C) comes before all of them are closed. Nothing was written,
    # so errors do not matter: closerange, unlike close, has none.
    close: Callable[[], object] = partial(deque, map(os.closerange, fds, map((1).__add__, fds)), 0)
    try:
        for i, value in enumerate(values.tolist()):
            mine = np.flatnonzero(value_of == i)
            try:
                file, index = _open_shard(root, request.keys[value], request.shard, fds)
            except (OSError, ValueError) as error:
                pass_on(error)
                # Host threads report it.
                found[i] = False
                continue
            columns = _shard_rows(rows[mine], slot[mine], needed[mine], index)
            if ((columns[2] != w.OLD_NONE) & (columns[4] > decoding.most_encoded)).any():
                # Host threads report this, too.
                found[i] = False
                continue
            files[value] = file
            parts.append(columns)
        planned, slots, needs, offset, nbytes = (
            np.concatenate([part[i] for part in parts] or [rows[:0]]) for i in range(5)
        )
        shards = OldShards(files, offset, nbytes)
        yield OldContent(program, decoding.most_encoded, planned, slots, needs, shards), rows[~found[value_of]]
    finally:
        close()


def _open_shard(root: str, key: str, shard: Shard, fds: list[int]) -> tuple[int, IntArray]:
    """Return the descriptor of a shard's file (-1 if there is none), and where its inner chunks are, ``(chunks, 2)``.

    It is appended to ``fds``.

    Raises
    ------
    OSError
        If the file cannot be opened or read, also if it is a link to one that does not exist.
    ValueError
        If the index is corrupt.
    """
    try:
        open_into(fds, f"{root}/{key}", OPEN_FLAGS)
    except FileNotFoundError:
        if dangling_link(root, key.split("/")) is not None:
            raise
        return -1, np.stack(ranges_in(shard.empty_index()), axis=1)
    file = fds[-1]

    def read(where: ByteRange) -> bytes:
        # A read that is cut short is no index.
        return os.pread(file, shard.index_nbytes, where.offset)

    index = shard.read_index(read, 0, os.fstat(file).st_size)
    assert index is not None
    return file, np.stack(ranges_in(index), axis=1)


def _shard_rows(rows: IntArray, slot: IntArray, needed: IntArray, index: IntArray) -> tuple[IntArray, ...]:
    """Return the columns of one shard: its planned chunks, and then its other inner chunks, whose bytes are kept."""
    kept = index[:, 1] >= 0
    kept[slot] = False
    others = np.flatnonzero(kept)
    slots = np.append(slot, others)
    return (
        np.append(rows, np.full(len(others), rows[0])),
        slots,
        np.append(needed, np.full(len(others), w.OLD_KEPT)),
        index[slots, 0],
        index[slots, 1],
    )


def batches(request: WriteRequest, rows: IntArray) -> Iterator[IntArray]:
    """Yield planned chunks in parts whose shards can be open at the same time, all of each shard's in one part."""
    if request.shard is None:
        yield rows
        return
    _, value_of = np.unique(request.value_of[rows], return_inverse=True)
    for begin in range(0, int(value_of.max(initial=-1)) + 1, MOST_SHARDS):
        yield rows[(value_of >= begin) & (value_of < begin + MOST_SHARDS)]
