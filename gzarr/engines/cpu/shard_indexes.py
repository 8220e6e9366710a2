"""The indexes of many shards in local files, read and checked by compiled code: no Python a shard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .. import kernels, pool
from ..kernels import address
from .small_reads import OPEN_FLAGS

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
        How the coordinates are joined.
    shards
        int64 ``(s, k)``, grid coordinates; ``k`` at least 1.
    chunks_per_shard
        Number of inner chunks of a shard.
    checksum
        Whether a crc32c follows the entries.
    at_start
        Whether the index is at the start of the file; else at its end.

    Returns
    -------
    entries
        uint64 ``(s, chunks_per_shard, 2)``, as stored: offset and size in bytes. Undefined where the status is not 0.
    file_nbytes
        int64 ``(s,)``, sizes of the files.
    status
        int64 ``(s, 2)``: ``gzarr_kernels.status`` and its detail.
    """
    kernels.load()
    from gzarr_kernels import index
    from gzarr_kernels import read as r

    count = len(shards)
    # Room for one checksum behind the last index.
    entries = np.empty(count * chunks_per_shard * 2 + 1, np.uint64)
    file_nbytes = np.zeros(count, np.int64)
    status = np.zeros((count, 2), np.int64)
    shared = np.zeros(2, np.int64)
    prefix = np.frombuffer(path_prefix, np.uint8)
    grid = np.ascontiguousarray(shards)
    job: npt.NDArray[Any] = np.zeros(index.JOB_SIZE, np.int64)
    for slot, value in {
        r.SHARED: address(shared),
        r.SPANS: count,
        r.PATHS: address(prefix),
        r.PREFIX_NBYTES: len(prefix),
        r.GRID: address(grid),
        r.COORDINATES: grid.shape[1],
        r.SEPARATOR: ord(encoding.separator),
        r.STATUS: address(status),
        r.OPEN_FLAGS: OPEN_FLAGS,
        index.ENTRIES_NBYTES: chunks_per_shard * 16,
        index.CHECKSUM: int(checksum),
        index.AT_START: int(at_start),
        index.INTO: address(entries),
        index.FILE_NBYTES: address(file_nbytes),
    }.items():
        job[slot] = value
    where = address(job)

    def run(_: int) -> None:
        worker = kernels.take_worker()
        try:
            index.read_indexes(where, worker.context_address, worker.scratch_address)
        finally:
            kernels.give_worker_back(worker)

    pool.run(run, min(pool.thread_count(), count))
    return entries[:-1].reshape(count, chunks_per_shard, 2), file_nbytes, status
