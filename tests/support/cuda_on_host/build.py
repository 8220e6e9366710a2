"""The library of the CUDA runtime in host memory: built once for its sources, loaded once per process."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.util
import os
import platform
import subprocess
import sys
from pathlib import Path

from support.cuda_on_host.host_compiler import c_compiler, compiler

HERE = Path(__file__).parent
SOURCES = HERE / "runtime"
CACHE = HERE.parents[2] / ".pytest_cache" / "cuda_on_host"
#: CuPy finds its driver under this name.
DRIVER = "libcuda.so.1"
_FLAGS = ("-shared", "-fPIC", "-O2", "-g", "-Wall", "-Wextra", "-Wno-missing-field-initializers")


class Unavailable(Exception):
    """There is no CUDA runtime in host memory here."""


def why_not() -> str:
    """Return why there can be no CUDA runtime in host memory here; ``""``: there can."""
    if not sys.platform.startswith("linux") or platform.machine() not in ("x86_64", "AMD64"):
        return "CUDA in host memory is for Linux on x86-64"
    if c_compiler() is None or compiler() is None:
        return "there is no C compiler, or none for C++, to build CUDA in host memory: install gcc and g++"
    if importlib.util.find_spec("cupy_backends") is None:
        return "CuPy is not installed"
    return ""


def built(sources: tuple[Path, ...], headers: tuple[Path, ...], name: str, *flags: str) -> Path:
    """Return a shared library, compiled if these sources never were."""
    command = [c_compiler() or "cc", *_FLAGS, *flags]
    digest = hashlib.sha256(repr(command[1:]).encode())
    for path in (*sources, *headers):
        digest.update(path.read_bytes())
    library = CACHE / digest.hexdigest()[:20] / name
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        unfinished = library.with_name(f"{name}.{os.getpid()}")
        made = [*command, f"-Wl,-soname,{name}", "-o", str(unfinished), *map(str, sources), "-lpthread"]
        subprocess.run(made, check=True)
        unfinished.replace(library)
    return library


@functools.cache
def library() -> ctypes.CDLL:
    """Return the runtime, loaded so that whoever asks for NVIDIA's driver finds it.

    Raises
    ------
    Unavailable
        If it cannot be built here, or NVIDIA's driver is loaded already.
    """
    reason = why_not()
    if reason:
        raise Unavailable(reason)
    path = built(tuple(sorted(SOURCES.glob("*.c"))), (HERE / "api.h", *sorted(SOURCES.glob("*.h"))), DRIVER)
    try:
        ctypes.CDLL(DRIVER, mode=os.RTLD_NOLOAD)
    except OSError:
        pass
    else:
        raise Unavailable(f"{DRIVER} is loaded already")
    loaded = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    _declare(loaded)
    return loaded


def _declare(loaded: ctypes.CDLL) -> None:
    c = ctypes
    of: dict[str, tuple[object, ...]] = {
        "coh_add_rule": (c.c_int, c.c_char_p, c.c_long, c.c_long, c.c_int, c.c_int, c.c_double),
        "coh_clear_rules": (None,),
        "coh_rules_left": (c.c_long,),
        "coh_counts": (c.c_size_t, c.c_char_p, c.c_size_t),
        "coh_counts_clear": (None,),
        "coh_notes": (c.c_size_t, c.c_char_p, c.c_size_t),
        "coh_trace": (c.c_size_t, c.c_char_p, c.c_size_t),
        "coh_set_seed": (None, c.c_uint64, c.c_int),
        "coh_late_ms": (c.c_double, c.c_uint64, c.c_uint64),
        "coh_set_visible": (None, c.c_int),
        "coh_revive": (None,),
        "coh_set_occupied": (None, c.c_int, c.c_int),
        "coh_has_context": (c.c_int, c.c_int),
        "coh_forget_contexts": (None,),
        "coh_lost_code": (c.c_int, c.c_int),
        "coh_drain": (c.c_int, c.c_int, c.c_double),
        "coh_shut_down": (None,),
        "coh_set_capacity": (None, c.c_int, c.c_size_t),
        "coh_capacity": (c.c_size_t, c.c_int),
        "coh_held": (c.c_size_t, c.c_int),
        "coh_peak": (c.c_size_t, c.c_int),
        "coh_reset_peak": (None, c.c_int),
        "coh_live_allocations": (c.c_long, c.c_int),
        "coh_live_streams": (c.c_long,),
        "coh_live_events": (c.c_long,),
        "coh_live_parts": (c.c_long,),
        "coh_live_part_bytes": (c.c_long,),
        "coh_check_guards": (None,),
        "coh_set_resolver": (None, c.c_void_p),
    }
    for name, (result, *arguments) in of.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
