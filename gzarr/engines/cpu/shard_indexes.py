"""Indexes of many shards in local files, read and checked by compiled code: no Python runs per shard."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .. import kernels, pool
from .job_slots import IndexSlots

if TYPE_CHECKING:
    import numpy.typing as npt

    from ...metadata.model import ChunkKeyEncoding

    IntArray = npt.NDArray[np.int64]


def read_indexes(
    path_prefix: bytes,
    encoding: ChunkKeyEncoding,
    shards: IntArray,
    chunks_per_shard: int,
    *,
    checksum: bool,
    at_start: bool,
) -> tuple[npt.NDArray[np.uint64], IntArray, IntArray]:
    """Read the indexes of some shards.

    Parameters
    ----------
    path_prefix
        Path of a shard's file up to its first coordinate.
    encoding
        Chunk key encoding, which gives the separator of the coordinates.
    shards
        int64 ``(s, k)``, grid coordinates of the shards; ``k`` is at least 1.
    chunks_per_shard
        Number of inner chunks in a shard.
    checksum
        Whether a crc32c follows the entries.
    at_start
        Whether the index is at the start of the file rather than at its end.

    Returns
    -------
    entries
        uint64 ``(s, chunks_per_shard, 2)``, offset and size in bytes as stored; undefined where the status is not 0.
    file_nbytes
        int64 ``(s,)``, sizes of the files in bytes.
    status
        int64 ``(s, 2)``, status (``gzarr_kernels.status``) and detail of each shard.
    """
    read_indexes = kernels.entry("index", "read_indexes")

    count = len(shards)
    entries = np.empty((count, chunks_per_shard, 2), np.uint64)
    file_nbytes = np.zeros(count, np.int64)
    status = np.zeros((count, 2), np.int64)
    slots = IndexSlots()
    slots.set_rows(count, np.zeros(2, np.int64))
    slots.set_files(np.frombuffer(path_prefix, np.uint8), shards, shards.shape[1], ord(encoding.separator))
    slots.set_indexes(entries, chunks_per_shard * 16, file_nbytes, status, checksum=checksum, at_start=at_start)

    def run(_: int) -> None:
        worker = kernels.take_worker()
        try:
            read_indexes(slots.address, worker.context_address, worker.scratch_address)
        finally:
            kernels.give_worker_back(worker)

    pool.run(run, min(pool.thread_count(), count))
    return entries, file_nbytes, status
