"""Locations of the C codecs, which are shared objects inside installed wheels. No compiler is loaded to find them.

``operations.py`` lists the wheels and functions. The first library in a list that exports a function is used.

The order is fixed, so that one environment always writes the same bytes: versions of zstd encode differently at the
same level. Measuring at run time would gain nothing for reading: zstd 1.5.7 (in ``blosc2``) and 1.5.6 (twice in
``numcodecs``) decode tables of f8, u2 volumes and noise, in frames of 8 to 512 KiB, equally fast to within 3 %. At
level 3, 1.5.7 encodes noise 10 to 28 % faster; at level 9, it encodes labels slower.
"""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from . import shared_objects
from .operations import OPERATIONS, OTHERS, PARTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from .operations import Functions, Library


def _files(library: Library) -> Iterator[Path]:
    """Yield the possible files of a library, best first."""
    spec = importlib.util.find_spec(library.package)
    for folder in spec.submodule_search_locations or [] if spec is not None else []:
        for pattern in library.files:
            yield from sorted(Path(folder).glob(pattern))


def _symbols(groups: Iterable[Functions]) -> dict[str, tuple[str, tuple[Library, ...]]]:
    return {name: (symbol, group.libraries) for group in groups for name, symbol in group.symbols.items()}


#: Name of each decoder in jitted code → its symbol, and the libraries to try in order.
DECODERS: Final = _symbols([*(group for row in OPERATIONS.values() for group in row.decoder or ()), *OTHERS])
#: As ``DECODERS``, for encoders.
ENCODERS: Final = _symbols(
    [*(group for row in OPERATIONS.values() for group in row.encoder or ()), *PARTS.values()],
)
#: All their symbols.
_C_NAMES: Final = frozenset(symbol for symbol, _libraries in (DECODERS | ENCODERS).values())

#: Name of each function of the operating system in jitted code → its symbol.
SYSTEM: Final[dict[str, str]] = {
    "gzarr_open": "open",
    "gzarr_close": "close",
    "gzarr_pread": "pread",
    "gzarr_lseek": "lseek",
    "gzarr_malloc": "malloc",
    "gzarr_free": "free",
    "gzarr_errno": "__error" if sys.platform == "darwin" else "__errno_location",
    "gzarr_memset": "memset",
    "gzarr_clock": "clock_gettime",
    # "open" with a mode, for new files.
    "gzarr_create": "open",
    "gzarr_pwrite": "pwrite",
    "gzarr_fsync": "fsync",
    "gzarr_rename": "rename",
    "gzarr_unlink": "unlink",
    "gzarr_mkdir": "mkdir",
    "gzarr_access": "access",
    "gzarr_memcmp": "memcmp",
    "gzarr_yield": "sched_yield",
    "gzarr_madvise": "madvise",
}

# Handles stay open for the life of the process, because LLVM holds raw addresses into them.
_handles: dict[Path, ctypes.CDLL] = {}


def _find(symbol: str, libraries: tuple[Library, ...]) -> tuple[int, str] | None:
    for library in libraries:
        for path in _files(library):
            try:
                handle = _handles.get(path) or shared_objects.load(str(path), _C_NAMES)
                function = getattr(handle, symbol)
            except (OSError, AttributeError):
                continue
            _handles[path] = handle
            address = ctypes.cast(function, ctypes.c_void_p).value
            if address:
                return address, library.name
    return None


@cache
def decoder_addresses() -> dict[str, tuple[int, str]]:
    """Return address and library of each available decoder, by its name in jitted code."""
    return {
        name: hit for name, (symbol, libraries) in DECODERS.items() if (hit := _find(symbol, libraries)) is not None
    }


@cache
def encoder_addresses() -> dict[str, tuple[int, str]]:
    """Return address and library of each available encoder, by its name in jitted code."""
    return {
        name: hit for name, (symbol, libraries) in ENCODERS.items() if (hit := _find(symbol, libraries)) is not None
    }


@cache
def system_addresses() -> dict[str, int]:
    """Return the address of each available function of the operating system, by its name in jitted code."""
    found: dict[str, int] = {}
    if sys.platform == "win32":
        return found
    process = ctypes.CDLL(None)
    for name, symbol in SYSTEM.items():
        function = getattr(process, symbol, None)
        if function is not None and (address := ctypes.cast(function, ctypes.c_void_p).value):
            found[name] = address
    return found


@ctypes.CFUNCTYPE(ctypes.c_int64)
def _never() -> int:
    return -1


def names() -> list[str]:
    """Return the names, in compiled code, of all C functions that it calls."""
    return sorted({*DECODERS, *ENCODERS, *SYSTEM})


@cache
def addresses() -> dict[str, int]:
    """Return the address of each of :func:`names`; that of a function that always fails where one is missing.

    Builders of jobs must first check :func:`available` and :func:`encoders`.
    """
    found = {n: address for n, (address, _library) in (decoder_addresses() | encoder_addresses()).items()}
    stand_in = ctypes.cast(_never, ctypes.c_void_p).value or 0
    return dict.fromkeys(names(), stand_in) | found | system_addresses()


@cache
def available() -> frozenset[str]:
    """Return the operations that the native loop can decode, and ``loop`` if it can run (Linux and macOS).

    It also needs kernels (:func:`gzarr_kernels.compiled.can_run`).
    """
    names = {name for name, row in OPERATIONS.items() if _has(row.decoder, decoder_addresses())}
    if sys.byteorder == "little" and sys.maxsize > 2**32 and len(system_addresses()) == len(SYSTEM):
        names.add("loop")
    return frozenset(names)


@cache
def encoders() -> frozenset[str]:
    """Return the operations and parts that native code can encode, ``loop``, and ``files``.

    ``files`` means that it can write files itself. ``open`` with a mode is variadic; on Linux, but not on every system,
    compiled code can call it as if it had fixed arguments. Elsewhere encoded bytes go to the store.
    """
    found = decoder_addresses() | encoder_addresses()
    names = {name for name, row in OPERATIONS.items() if _has(row.encoder, found)}
    names |= {name for name, part in PARTS.items() if _has((part,), found)}
    names |= available() & {"loop"}
    if "loop" in names and sys.platform == "linux":
        names.add("files")
    return frozenset(names)


def _has(groups: tuple[Functions, ...] | None, found: Mapping[str, object]) -> bool:
    return groups is not None and all(name in found for group in groups for name in group.symbols)
