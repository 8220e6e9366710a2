"""Functions of a loaded library replaced by others, at run time."""

from __future__ import annotations

import ctypes
import mmap
import platform
import struct
from typing import Final

#: Jump to the address that follows.
_JUMPS: Final = {
    "x86_64": b"\xff\x25\x00\x00\x00\x00",  # jmp *0(%rip)
    "aarch64": b"\x50\x00\x00\x58\x00\x02\x1f\xd6",  # ldr x16, #8; br x16
}
_READ_WRITE_EXECUTE: Final = 7


def jump(at: int, to: int) -> bytes:
    """Write a jump at the start of a function; return the bytes that were there."""
    code = _JUMPS[platform.machine()] + struct.pack("<Q", to)
    before = ctypes.string_at(at, len(code))
    overwrite(at, code)
    return before


def overwrite(at: int, code: bytes) -> None:
    """Write instructions at an address."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    first = at // mmap.PAGESIZE * mmap.PAGESIZE
    if libc.mprotect(first, at + len(code) - first, _READ_WRITE_EXECUTE):
        raise OSError(ctypes.get_errno(), f"the code at {at:#x} cannot be written")
    ctypes.memmove(at, code, len(code))
