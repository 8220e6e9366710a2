"""The file of a stored value while it is written: a temporary name, the index of a shard, flushing, renaming."""

from __future__ import annotations

from typing import Final

from . import status as S
from .crc32c import crc32c
from .jit import part
from .memory import copy, i64, u8, u32
from .read import write_path
from .slots import context as C
from .slots import read as R
from .slots.scratch import PATHS_BYTES
from .slots.write import (
    AT_START,
    CHECKSUM,
    CREATE_FLAGS,
    DESCRIPTOR,
    DURABLE,
    ENTRIES,
    ERASE,
    INDEXES,
    OFFSET,
    STATE,
    STATE_SIZE,
    TEMPORARY,
    TEMPORARY_NBYTES,
    TOKEN,
)
from .symbols import (
    c_access,
    c_close,
    c_create,
    c_errno,
    c_fsync,
    c_mkdir,
    c_pwrite,
    c_rename,
    c_unlink,
)

_TEMPORARY_DIGITS: Final = 16
_ENOENT: Final = 2
_EINTR: Final = 4
_EEXIST: Final = 17
_ENOSPC: Final = 28
_ENAMETOOLONG: Final = 36
#: Another process may remove an empty directory between its creation and the creation of the file in it.
_ATTEMPTS: Final = 20
#: The first half of a worker's scratch holds two paths: a value's and its temporary file's.
_PATH_BYTES: Final = PATHS_BYTES // 2


@part
def _errno() -> int:
    return i64(c_errno())[0] & 0xFFFFFFFF


@part
def _temporary(job: int, value: int, path: int, target: int) -> int:
    """Write the temporary path of a value's file, in the directory of ``path``; return 0 if it is too long."""
    j = i64(job)
    p = u8(path)
    t = u8(target)
    at = 0
    end = 0
    while p[end] != 0:
        end += 1
        if p[end - 1] == 47:
            at = end
    size = j[TEMPORARY_NBYTES]
    if at + size + _TEMPORARY_DIGITS + 1 > _PATH_BYTES or end >= _PATH_BYTES:
        return 0
    copy(target, path, at)
    copy(target + at, j[TEMPORARY], size)
    at += size
    number = j[TOKEN] + value
    for q in range(_TEMPORARY_DIGITS):
        digit = (number >> (60 - 4 * q)) & 15
        t[at + q] = digit + 48 if digit < 10 else digit + 87
    t[at + _TEMPORARY_DIGITS] = 0
    return at + _TEMPORARY_DIGITS


@part
def _paths(job: int, value: int, worker: int) -> int:
    """Write a value's path and, after it, its temporary file's; return 0 if they are too long."""
    j = i64(job)
    if j[R.PREFIX_NBYTES] + 21 * j[R.COORDINATES] + 1 > _PATH_BYTES:
        return 0
    if write_path(job, value, worker) == 0:
        return 0
    return _temporary(job, value, worker, worker + _PATH_BYTES)


@part
def _make_directory(path: int, end: int) -> int:
    """Create the directory that is named by ``path`` up to a slash; return 0 if it is there, or the errno."""
    p = u8(path)
    p[end] = 0
    code = 0
    if c_mkdir(path, 0o777) != 0:
        code = _errno()
        if code == _EEXIST:
            code = 0
    p[end] = 47
    return code


@part
def _previous_slash(path: int, end: int) -> int:
    """Return the place of the last slash before ``end``; 0 if there is none but the one at the beginning, or none."""
    p = u8(path)
    at = end - 1
    while at > 0 and p[at] != 47:
        at -= 1
    return max(at, 0)


@part
def _make_directories(path: int) -> int:
    """Create the parent directories of ``path``; return 0, or the errno of the one that failed.

    Most of them exist, and making one locks the one above it. So the last one is tried first.
    """
    p = u8(path)
    last = 0
    while p[last] != 0:
        last += 1
    last = _previous_slash(path, last)
    at = last
    code = _ENOENT
    while at > 0:
        code = _make_directory(path, at)
        if code != _ENOENT:
            break
        at = _previous_slash(path, at)
    while code == 0 and at < last:
        at += 1
        while p[at] != 47:
            at += 1
        code = _make_directory(path, at)
    return code


@part
def _create(job: int, context: int, path: int) -> int:
    """Create a file; return its descriptor, or -1 with errno in DETAIL."""
    j = i64(job)
    c = i64(context)
    attempts = _ATTEMPTS
    while True:
        descriptor = c_create(path, j[CREATE_FLAGS], 0o666)
        if descriptor >= 0:
            return descriptor
        code = _errno()
        if code == _EINTR:
            continue
        attempts -= 1
        if code == _ENOENT and attempts > 0:
            code = _make_directories(path)
            if code == 0 or code == _ENOENT:
                continue
        c[C.DETAIL] = code
        return -1


@part
def write_bytes(context: int, descriptor: int, source: int, nbytes: int, offset: int) -> int:
    """Write all bytes; return a status."""
    c = i64(context)
    done = 0
    while done < nbytes:
        put = c_pwrite(descriptor, source + done, nbytes - done, offset + done)
        if put < 0:
            code = _errno()
            if code == _EINTR:
                continue
            c[C.DETAIL] = code
            return S.IO_ERROR
        if put == 0:
            c[C.DETAIL] = _ENOSPC
            return S.IO_ERROR
        done += put
    return S.OK


@part
def open_value(job: int, context: int, value: int, worker: int) -> int:
    """Create a value's temporary file; return a status."""
    c = i64(context)
    state = i64(i64(job)[STATE] + 8 * STATE_SIZE * value)
    if _paths(job, value, worker) == 0:
        c[C.DETAIL] = _ENAMETOOLONG
        return S.IO_ERROR
    descriptor = _create(job, context, worker + _PATH_BYTES)
    if descriptor < 0:
        return S.IO_ERROR
    state[DESCRIPTOR] = descriptor
    return S.OK


@part
def close_value(job: int, context: int, value: int, worker: int) -> int:
    """Complete a value whose chunks are all written: index, flush, rename; return a status or ERASE."""
    j = i64(job)
    c = i64(context)
    state = i64(j[STATE] + 8 * STATE_SIZE * value)
    descriptor = state[DESCRIPTOR]
    if _paths(job, value, worker) == 0:
        c[C.DETAIL] = _ENAMETOOLONG
        return S.IO_ERROR
    if descriptor < 0:
        # All fill, so there should be no file. Erasing it will report whatever is wrong with the path.
        if c_access(worker, 0) != 0 and _errno() == _ENOENT:
            return S.OK
        return ERASE
    code = S.OK
    if j[ENTRIES] > 0:
        nbytes = 16 * j[ENTRIES]
        index = j[INDEXES] + nbytes * value
        at = 0 if j[AT_START] != 0 else state[OFFSET]
        code = write_bytes(context, descriptor, index, nbytes, at)
        if code == S.OK and j[CHECKSUM] != 0:
            u32(context + 8 * C.OUT0)[0] = crc32c(index, nbytes)
            code = write_bytes(context, descriptor, context + 8 * C.OUT0, 4, at + nbytes)
    if code == S.OK and j[DURABLE] != 0 and c_fsync(descriptor) != 0:
        c[C.DETAIL] = _errno()
        code = S.IO_ERROR
    state[DESCRIPTOR] = -1
    # Some file systems only report a full disk here.
    if c_close(descriptor) != 0 and code == S.OK:
        c[C.DETAIL] = _errno()
        code = S.IO_ERROR
    temporary = worker + _PATH_BYTES
    if code == S.OK and c_rename(temporary, worker) != 0:
        c[C.DETAIL] = _errno()
        code = S.IO_ERROR
    if code != S.OK:
        c_unlink(temporary)
    return code


@part
def drop_value(job: int, value: int, worker: int) -> None:
    """Close and remove the temporary file of an unfinished value."""
    state = i64(i64(job)[STATE] + 8 * STATE_SIZE * value)
    if state[DESCRIPTOR] >= 0:
        c_close(state[DESCRIPTOR])
        state[DESCRIPTOR] = -1
        if _paths(job, value, worker) != 0:
            c_unlink(worker + _PATH_BYTES)
