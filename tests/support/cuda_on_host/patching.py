"""CuPy's copy of the CUDA runtime, replaced in memory: each of its functions becomes a jump to ours.

``cupy_backends/cuda/api/runtime*.so`` has cudart linked statically, with its symbols. A function that we do not have
reports "not supported" by name.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from .build import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFIX: Final = "cuda"
_OURS: Final = "host_"
_INIT: Final = "PyInit_runtime"
_PAGE: Final = mmap.PAGESIZE
_READ_WRITE_EXECUTE: Final = 7
_READ_EXECUTE: Final = 5
# elf.h.
_SHT_SYMTAB: Final = 2
_STT_FUNC: Final = 2
# jmp *0(%rip), followed by the address.
_JUMP: Final = b"\xff\x25\0\0\0\0"
_JUMP_NBYTES: Final = 14

_kept: list[object] = []


class Symbol(NamedTuple):
    """A function in an ELF file: its place relative to where the file is mapped."""

    name: str
    value: int
    nbytes: int


def symbols(path: Path) -> Iterator[Symbol]:
    """Yield the functions in the symbol table of a 64-bit ELF file."""
    data = path.read_bytes()
    if data[:5] != b"\x7fELF\x02":
        raise Unavailable(f"{path} is not an ELF file of 64 bits")
    offset, (size, n) = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, offset + i * size) for i in range(n)]
    for _, kind, _, _, begin, nbytes, link, _, _, entry in sections:
        if kind != _SHT_SYMTAB:
            continue
        names = sections[link][4]
        for at in range(begin, begin + nbytes, entry):
            name, info, _, _, value, length = struct.unpack_from("<IBBHQQ", data, at)
            if info & 15 == _STT_FUNC and value:
                yield Symbol(data[names + name : data.index(b"\0", names + name)].decode(), value, length)


def patch(module: str, library: ctypes.CDLL) -> dict[str, bool]:
    """Replace the runtime that is linked into a loaded extension module.

    Returns
    -------
    The names of its functions, and whether we have them.
    """
    found = list(symbols(Path(module)))
    functions = [s for s in found if s.name.startswith(_PREFIX) and s.name[len(_PREFIX) :][:1].isupper()]
    if not functions:
        raise Unavailable(f"{module} has no symbols of CUDA's runtime: this version of CuPy is not supported")
    loaded = ctypes.CDLL(module)
    first = next(s.value for s in found if s.name == _INIT)
    base = _address(getattr(loaded, _INIT)) - first
    missing = _address(library.coh_missing)
    trampolines = mmap.mmap(-1, 64 * len(functions), prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    room = ctypes.addressof(ctypes.c_char.from_buffer(trampolines))
    _kept.append(trampolines)
    begin = min(s.value for s in functions) + base
    end = max(s.value + s.nbytes for s in functions) + base
    pages = begin // _PAGE * _PAGE, -(-end // _PAGE) * _PAGE
    _protect(*pages, _READ_WRITE_EXECUTE)
    have: dict[str, bool] = {}
    for i, symbol in enumerate(functions):
        ours = getattr(library, _OURS + symbol.name, None)
        have[symbol.name] = ours is not None
        if ours is not None:
            target = _address(ours)
        else:
            name = ctypes.create_string_buffer(symbol.name.encode())
            _kept.append(name)
            target = room + 64 * i
            # movabs name, %rdi; movabs missing, %rax; jmp *%rax
            code = b"\x48\xbf" + struct.pack("<Q", ctypes.addressof(name)) + b"\x48\xb8" + struct.pack("<Q", missing)
            trampolines[64 * i : 64 * i + 22] = code + b"\xff\xe0"
        if symbol.nbytes < _JUMP_NBYTES and symbol.value % 16:
            raise Unavailable(f"{symbol.name} is too short to be replaced")
        ctypes.memmove(base + symbol.value, _JUMP + struct.pack("<Q", target), _JUMP_NBYTES)
    _protect(*pages, _READ_EXECUTE)
    return have


def _address(function: object) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0  # type: ignore[arg-type]


def _protect(begin: int, end: int, protection: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    if libc.mprotect(begin, end - begin, protection):
        raise Unavailable("this system does not let code be changed in memory")
