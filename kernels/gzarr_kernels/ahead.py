"""The library of kernels that was compiled when the wheel was built (``build.py``). No compiler is imported for it.

A wheel holds one library for each of some levels of the processor's instruction set; the best that this processor has
is loaded. It is a shared object, or an object file where the build had no linker for the target: llvmlite loads that.
C functions are bound by address. The name and the content of a library have the fingerprint of the kernels' sources,
and the name a checksum of the content: a library from other sources, or a damaged one, is not loaded.

With ``GZARR_JIT=1``, in an editable installation, and on every processor without a library, Numba compiles instead.
``GZARR_KERNELS`` names another folder of libraries.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from . import libraries
from .fingerprint import FOLDER, host_fingerprint, stamped

if TYPE_CHECKING:
    from collections.abc import Callable

#: Levels of x86-64, best first (System V ABI, "Low Level System Information"), and the flags of ``/proc/cpuinfo`` that
#: each adds to those after it.
_X86_LEVELS: Final = (
    ("x86-64-v4", {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
    ("x86-64-v3", {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"}),
    ("x86-64-v2", {"cx16", "lahf_lm", "popcnt", "pni", "ssse3", "sse4_1", "sse4_2"}),
)
#: Exported by a library: its fingerprint, as a C string; and the addresses of ``libraries.names()``, to be filled in.
FINGERPRINT_SYMBOL: Final = "gzarr_fingerprint"
ADDRESSES_SYMBOL: Final = "gzarr_addresses"


def symbol(module: str, name: str) -> str:
    """Return the symbol of a compiled function of a module of this package."""
    return f"gzarr_{module}_{name}"


def file_name(target: str, content: bytes | None = None) -> str:
    """Return the file name, without its suffix, of a library for a target (``x86-64-v3``, ``aarch64``) and this system.

    Without a content, return a pattern.
    """
    return stamped(f"{sys.platform}-{target}", host_fingerprint(), content)


def targets() -> list[str]:
    """Return the targets whose libraries this processor can run, best first."""
    machine = platform.machine().lower()
    if machine in ("arm64", "aarch64"):
        return ["aarch64"]
    if machine not in ("x86_64", "amd64"):
        return []
    flags = _flags()
    missing: set[str] = set()
    found: list[str] = []
    for name, added in reversed(_X86_LEVELS):
        missing |= added - flags
        if not missing:
            found.insert(0, name)
    return found


def _flags() -> set[str]:
    """Return the flags of the processor that Linux states, or those that every supported Mac has."""
    if sys.platform == "darwin":
        return _X86_LEVELS[-1][1]
    try:
        # It has a paragraph for each core, of which the first is enough.
        with Path("/proc/cpuinfo").open(encoding="ascii", errors="replace") as file:
            line = next((line for line in file if line.startswith("flags")), "")
    except OSError:
        return set()
    return set(line.partition(":")[2].split())


class Library:
    """A loaded library.

    Parameters
    ----------
    path
        Its file.
    target
        Its target.

    Raises
    ------
    OSError
        If it cannot be loaded, is damaged, or was made from other sources.
    """

    def __init__(self, path: Path, target: str) -> None:
        self.target = target
        # Loaders crash on damaged files.
        if path.stem != file_name(target, path.read_bytes()):
            raise OSError(f"{path} is damaged")
        self._find = _load_object(path) if path.suffix == ".o" else _load_shared(path)
        stated = self.address(FINGERPRINT_SYMBOL)
        if not stated or ctypes.string_at(stated, 8) != host_fingerprint().encode():
            raise OSError(f"{path} was made from other sources")
        names = libraries.names()
        into = (ctypes.c_int64 * len(names)).from_address(self.address(ADDRESSES_SYMBOL))
        into[:] = [libraries.addresses()[name] for name in names]

    def address(self, symbol: str) -> int:
        """Return the address of a symbol, 0 if there is none."""
        return self._find(symbol)

    def entry(self, symbol: str, arguments: int) -> Callable[..., None]:
        """Return a function of ``arguments`` int64 without a result, which is called without the GIL."""
        function: Any = ctypes.CFUNCTYPE(None, *(ctypes.c_int64,) * arguments)(self.address(symbol))
        # The function is in its memory.
        function.library = self
        result: Callable[..., None] = function
        return result


def _load_shared(path: Path) -> Callable[[str], int]:
    library = ctypes.CDLL(str(path))

    def find(symbol: str) -> int:
        function = getattr(library, symbol, None)
        return 0 if function is None else ctypes.cast(function, ctypes.c_void_p).value or 0

    return find


def _load_object(path: Path) -> Callable[[str], int]:
    try:
        import llvmlite.binding as llvm
    except ImportError as error:
        raise OSError(f"llvmlite, which would load {path}, is not installed") from error
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    engine: Any = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    try:
        engine.add_object_file(llvm.object_file.ObjectFileRef.from_data(path.read_bytes()))
    except (RuntimeError, ValueError) as error:
        raise OSError(f"llvmlite cannot load {path}: {error}") from error
    engine.finalize_object()
    return lambda symbol: engine.get_function_address(symbol) or engine.get_global_value_address(symbol)


def uses_numba() -> bool:
    """Return whether Numba is to compile even what the wheel has: ``GZARR_JIT=1``."""
    return os.environ.get("GZARR_JIT", "0") not in ("", "0")


def folder() -> Path:
    """Return the folder with what the wheel has, which may not exist."""
    return Path(os.environ.get("GZARR_KERNELS") or Path(__file__).parent / FOLDER)


@cache
def library() -> Library | None:
    """Return the best library for this processor; None if there is none or Numba is to compile. Not thread-safe."""
    if uses_numba() or "loop" not in libraries.available():
        return None
    for target in targets():
        for path in sorted(folder().glob(f"{file_name(target)}.*")):
            with suppress(OSError):
                return Library(path, target)
    return None
