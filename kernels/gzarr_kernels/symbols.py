"""C functions that jitted code calls, registered with LLVM under our own names.

Thus a cached kernel links the same function wherever it is loaded, and functions of the same name in two libraries are
never confused. A missing function is replaced by one that always fails (``libraries.addresses``).
"""

from __future__ import annotations

from typing import Any, Final

import llvmlite.binding as llvm
from numba import types

from .libraries import addresses

_i4, _i8, _void = types.int32, types.int64, types.void


for _name, _address in addresses().items():
    llvm.add_symbol(_name, _address)


def external(name: str, result: Any, *arguments: Any) -> Any:
    """Return a registered function in the form in which compiled code calls it."""
    return types.ExternalFunction(name, result(*arguments))


c_open: Final = external("gzarr_open", _i4, _i8, _i4)
c_close: Final = external("gzarr_close", _i4, _i4)
c_pread: Final = external("gzarr_pread", _i8, _i4, _i8, _i8, _i8)
c_lseek: Final = external("gzarr_lseek", _i8, _i4, _i8, _i4)
c_malloc: Final = external("gzarr_malloc", _i8, _i8)
c_free: Final = external("gzarr_free", _void, _i8)
c_errno: Final = external("gzarr_errno", _i8)
c_memset: Final = external("gzarr_memset", _i8, _i8, _i4, _i8)
c_clock: Final = external("gzarr_clock", _i4, _i4, _i8)

c_create: Final = external("gzarr_create", _i4, _i8, _i4, _i4)
c_pwrite: Final = external("gzarr_pwrite", _i8, _i4, _i8, _i8, _i8)
c_fsync: Final = external("gzarr_fsync", _i4, _i4)
c_rename: Final = external("gzarr_rename", _i4, _i8, _i8)
c_unlink: Final = external("gzarr_unlink", _i4, _i8)
c_mkdir: Final = external("gzarr_mkdir", _i4, _i8, _i4)
c_access: Final = external("gzarr_access", _i4, _i8, _i4)
c_memcmp: Final = external("gzarr_memcmp", _i4, _i8, _i8, _i8)
c_yield: Final = external("gzarr_yield", _i4)
#: (address of a page, nbytes, advice) → 0, or -1.
c_madvise: Final = external("gzarr_madvise", _i4, _i8, _i8, _i4)
