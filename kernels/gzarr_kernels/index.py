"""Reading of the indexes of many shards: open the file, read its start or end, verify the checksum.

The result is the entries as stored, little-endian. Users of an offset or a length must check it first.
"""

from __future__ import annotations

from . import status as S
from .context import ensure
from .crc32c import crc32c
from .jit import entry
from .memory import atomic_add, copy, i64, u32
from .read import open_chunk, read_range
from .slots import context as C
from .slots import read as R
from .slots.index import AT_START, CHECKSUM, ENTRIES_NBYTES, FILE_NBYTES, INTO
from .symbols import c_close, c_lseek


@entry(3)
def read_indexes(job: int, context: int, worker: int) -> None:
    """Take shards of ``job`` until none are left. Every shard gets a status, even after a failure.

    Parameters
    ----------
    job
        Address of the job.
    context, worker
        As for ``read.work``.
    """
    j = i64(job)
    c = i64(context)
    entries = j[ENTRIES_NBYTES]
    stored = entries + 4 if j[CHECKSUM] != 0 else entries
    while True:
        shard = atomic_add(j[R.SHARED], 1)
        if shard >= j[R.SPANS]:
            return
        c[C.DETAIL] = 0
        code = S.OK
        descriptor = open_chunk(job, context, shard, worker)
        if descriptor < 0:
            code = c[C.OUT0]
        else:
            size = c_lseek(descriptor, 0, 2)
            i64(j[FILE_NBYTES])[shard] = size
            buffer = ensure(context, C.ENCODED, stored + 64)
            if buffer == 0:
                code = S.NO_MEMORY
            elif size < stored:
                # A directory has a size too; reading it gives the error.
                code = read_range(context, descriptor, buffer, min(max(size, 1), stored), 0)
                if code == S.OK or code == S.SHORT_READ:
                    c[C.DETAIL] = size
                    code = S.SHORT_READ
            else:
                code = read_range(context, descriptor, buffer, stored, 0 if j[AT_START] != 0 else size - stored)
            c_close(descriptor)
            if code == S.OK and j[CHECKSUM] != 0 and crc32c(buffer, entries) != u32(buffer + entries)[0]:
                code = S.BAD_CHECKSUM
            if code == S.OK:
                copy(j[INTO] + shard * entries, buffer, entries)
        i64(j[R.STATUS])[2 * shard] = code
        i64(j[R.STATUS])[2 * shard + 1] = c[C.DETAIL]
