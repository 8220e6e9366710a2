"""CuPy's own kernels by a compiler for the host.

CuPy writes CUDA C++ and compiles it by NVRTC. Here the "machine code" is the text itself, with a mark; when a function
of it is looked up, g++ compiles it with CuPy's own headers, so that parameters are packed and indexed by the same code
as on a GPU. Each element of an array is looked up in the live memory of the device (``coh_find``). What was compiled
stays on disk.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import json
import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

from support.cuda_on_host.c_types import MOST_PARAMETERS, Kernel
from support.cuda_on_host.host_compiler import HERE, NotCompiledError, compile_to, hashed, locked, version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: First bytes of an image that is the text of a program.
MARK: Final = b"CUPY-ON-HOST\n"
#: CUDA's numbers of errors.
INVALID_SOURCE: Final = 209  # no kernel image is available for execution on the device
NOT_FOUND: Final = 500

_FLAGS: Final = (
    "-std=c++17", "-O1", "-fPIC", "-w", "-fpermissive", "-fno-strict-aliasing", "-fno-math-errno", "-fwrapv",
    "-ffp-contract=off", "-U_FORTIFY_SOURCE",
)  # fmt: skip
#: What a thread may wait for others by.
_WAITS: Final = re.compile(r"__sync(threads|warp)|__(shfl|ballot|any|all)\w*\(")


class _Compiled(ctypes.Structure):
    """``coh_compiled`` of cupy_on_host.h."""

    _fields_ = (
        ("thread", ctypes.c_void_p), ("waits", ctypes.c_int), ("n_parameters", ctypes.c_int),
        ("parameter_nbytes", ctypes.c_uint32 * MOST_PARAMETERS), ("pointers", ctypes.c_uint64),
    )  # fmt: skip


def image_of(source: str, options: tuple[str, ...] = (), names: dict[str, str] | None = None) -> bytes:
    """Return an image for ``cuModuleLoadData``: a program's text, and the expression of each entry that has one."""
    defines = [option for option in options if option.startswith(("-D", "--define-macro"))]
    about = json.dumps({"defines": defines, "names": names or {}})
    return MARK + about.encode() + b"\n" + source.encode() + b"\0"


@contextlib.contextmanager
def without_nvrtc() -> Iterator[None]:
    """Make CuPy, which has compiled nothing so far, find no NVRTC."""
    import cupy
    from cuda.pathfinder import DynamicLibNotFoundError
    from cupy.cuda import compiler as cupy_compiler

    missing = DynamicLibNotFoundError('Failure finding "libnvrtc.so.13": No such file\n  listing of folders')
    cupy.clear_memo()
    with (
        mock.patch.object(cupy.cuda.nvrtc, "getVersion", side_effect=missing),
        mock.patch.object(cupy_compiler, "_nvrtc_version", None),
    ):
        yield


class CupyKernels:
    """Compiles and keeps CuPy's kernels.

    Parameters
    ----------
    folder
        Where to keep what was compiled, for all processes.
    find
        Address of ``coh_find``.

    Attributes
    ----------
    refused
        Reasons why kernels could not be compiled, by entry.
    compiled, reused
        Numbers of kernels that were compiled now, and that were on disk.
    """

    def __init__(self, folder: Path, find: int) -> None:
        self.refused: dict[str, str] = {}
        self.compiled = self.reused = 0
        self._folder = folder
        self._find = find
        self._lock = threading.RLock()
        self._libraries: dict[str, ctypes.CDLL] = {}

    # -- CuPy

    def install(self) -> Callable[[], None]:
        """Replace CuPy's use of NVRTC and its cache of machine code; return a function that undoes it."""
        from cupy._core import _accelerator
        from cupy.cuda import compiler as cupy_compiler

        before = cupy_compiler._NVRTCProgram, cupy_compiler._kernel_cache_backend
        accelerators = _accelerator.get_reduction_accelerators(), _accelerator.get_routine_accelerators()

        def undo() -> None:
            cupy_compiler._NVRTCProgram, cupy_compiler._kernel_cache_backend = before
            _accelerator.set_reduction_accelerators(accelerators[0])
            _accelerator.set_routine_accelerators(accelerators[1])

        cupy_compiler._NVRTCProgram = _Program
        cupy_compiler._kernel_cache_backend = _NoCache()
        # CUB's kernels come compiled for GPUs.
        _accelerator.set_reduction_accelerators([])
        _accelerator.set_routine_accelerators([])
        return undo

    # -- the runtime

    def resolve(self, image: int, entry: bytes, found: Any) -> int | None:
        """Resolve a function of an image; see ``coh_resolver`` of api.h.

        Parameters
        ----------
        image
            Address of what ``cuModuleLoadData`` was given.
        entry
            Name of the function.
        found
            Pointer to a :class:`Kernel`, which is filled.

        Returns
        -------
        int or None
            0, an error of CUDA, or None if the image is not CuPy's text.
        """
        if ctypes.string_at(image, len(MARK)) != MARK:
            return None
        text = ctypes.string_at(image + len(MARK))
        about, source = text.split(b"\n", 1)
        name = entry.decode()
        try:
            kernel = self.kernel(source.decode(), name, **json.loads(about))
        except KeyError:
            return NOT_FOUND
        except NotCompiledError as error:
            self.refused[name] = str(error)
            return INVALID_SOURCE
        ctypes.memmove(found, ctypes.byref(kernel), ctypes.sizeof(Kernel))
        return 0

    def kernel(
        self, source: str, entry: str, defines: list[str] | None = None, names: dict[str, str] | None = None
    ) -> Kernel:
        """Compile a function of a program.

        Raises
        ------
        KeyError
            If the program has no such function.
        NotCompiledError
            If the compiler refuses it.
        """
        function = (names or {}).get(entry)
        if function is None:
            if not re.search(rf"__global__[^;{{]*\b{re.escape(entry)}\s*\(", source):
                raise KeyError(entry)
            function = entry
        with self._lock:
            library = self._library(source, function, tuple(defines or ()))
        compiled = _Compiled.in_dll(library, "coh_kernel_of_image")
        return Kernel(
            ctypes.cast(self._runner.coh_cupy_run, ctypes.c_void_p).value,
            ctypes.addressof(compiled), compiled.n_parameters, compiled.parameter_nbytes,
        )  # fmt: skip

    # -- compiling

    def _library(self, source: str, function: str, defines: tuple[str, ...]) -> ctypes.CDLL:
        program = _program(source, function)
        key = hashed(repr(defines), program)
        if key not in self._libraries:
            runner = self._runner
            folder, _ = self._prepared
            path = folder / f"{key}.so"
            with locked(folder / f"{key[:2]}.lock"):
                if path.exists():
                    self.reused += 1
                else:
                    self._compile(path, program, defines)
                    self.compiled += 1
            assert runner
            self._libraries[key] = ctypes.CDLL(str(path))
        return self._libraries[key]

    def _compile(self, path: Path, program: str, defines: tuple[str, ...]) -> None:
        folder, include = self._prepared
        text = path.with_suffix(".cpp")
        text.write_text(program)
        prefix = ("-include", str(folder / "prefix.h"))
        compile_to(path, *_FLAGS, *include, *defines, *prefix, "-shared", "-nostdlib", str(text))

    @functools.cached_property
    def _prepared(self) -> tuple[Path, tuple[str, ...]]:
        """Folder of the compiled kernels, with CuPy's headers as they are used here, and options to find them."""
        cupy = _cupy_headers()
        own = [path for path in sorted(HERE.rglob("*")) if path.suffix in (".h", ".cpp")]
        carray = (cupy / "cupy/carray.cuh").read_text()
        others = [path.read_text() for path in sorted((cupy / "cupy").rglob("*")) if path.suffix in (".cuh", ".h")
                  and "_cccl" not in path.parts]  # fmt: skip
        key = hashed(version(), str(cupy), *_FLAGS, carray, *others, *(path.read_text() for path in own))
        folder = self._folder / f"cupy-{key[:16]}"
        include = (f"-I{folder / 'include'}", f"-I{HERE}", f"-I{HERE / 'cuda_headers'}", f"-I{cupy}")
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / "prepared.lock"):
            if not (folder / "prepared").exists():
                (folder / "include/cupy").mkdir(parents=True, exist_ok=True)
                for path in (cupy / "cupy").glob("*.cuh"):
                    text = _checked(carray) if path.name == "carray.cuh" else path.read_text()
                    # So that a kernel's object has only what it uses.
                    text = re.sub(r"^(?=__(device|host)__ )", "inline ", text, flags=re.MULTILINE)
                    (folder / "include/cupy" / path.name).write_text(text)
                (folder / "prefix.h").write_text(_PREFIX)
                compile_to(folder / "prefix.h.gch", *_FLAGS, *include, "-x", "c++-header", str(folder / "prefix.h"))
                compile_to(
                    folder / "libcupy_on_host.so", *_FLAGS, "-O2", *include, "-shared", str(HERE / "cupy_on_host.cpp")
                )
                (folder / "prepared").touch()
        return folder, include

    @functools.cached_property
    def _runner(self) -> ctypes.CDLL:
        folder, _ = self._prepared
        # Kernels are linked with nothing: they find everything here and in the libraries that it needs.
        runner = ctypes.CDLL(str(folder / "libcupy_on_host.so"), mode=ctypes.RTLD_GLOBAL)
        runner.coh_cupy_find.argtypes = (ctypes.c_void_p,)
        runner.coh_cupy_find(self._find)
        return runner


#: Precompiled. CuPy's programs include some of these again, to no effect.
_PREFIX: Final = """\
#include "cupy_on_host.h"
#include <cupy/carray.cuh>
#include <cupy/complex.cuh>
#include <cupy/float16.cuh>
#include <cupy/atomics.cuh>
#include <cupy/math_constants.h>
"""


def _checked(carray: str) -> str:
    """Return CuPy's header of arrays, with each element looked up in the memory of the device."""
    for element, checked, times in (
        ("*reinterpret_cast<const T*>(ptr + diff)", "*coh_element(reinterpret_cast<const T*>(ptr + diff))", 2),
        ("return data_[idx];", "return *coh_element(data_ + idx);", 1),
        ("return *data_;", "return *coh_element(data_);", 2),
    ):
        if carray.count(element) != times:
            raise NotCompiledError(f"CuPy's carray.cuh has {element!r} {carray.count(element)} times, not {times}")
        carray = carray.replace(element, checked)
    return carray


def _program(source: str, function: str) -> str:
    source = re.sub(
        r"extern\s+__shared__\s+([\w:<> ]+?)\s+(\w+)\s*\[\s*\]\s*;", r"\1 *\2 = (\1 *)coh_dynamic_shared();", source
    )
    # A reference to an element that is then not used is no access: CuPy's assignment by a mask makes some to v[-1].
    source = re.sub(r"const T &(\w+) = (\w+\[[^\]]*\]);\s*if \((\w+)\) (\w+) = \1;", r"if (\3) \4 = \2;", source)
    source = source.replace("#pragma unroll", "// #pragma unroll")
    return f"{source}\nCOH_KERNEL({function}, {int(_WAITS.search(source) is not None)})\n"


def _cupy_headers() -> Path:
    spec = importlib.util.find_spec("cupy")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "_core/include"


class _Program:
    """In place of CuPy's ``_NVRTCProgram``."""

    def __init__(
        self,
        src: str | bytes,
        name: str = "default_program",
        headers: Any = (),
        include_names: Any = (),
        name_expressions: Any = None,
        method: str = "ptx",
    ) -> None:
        self._source = src.decode() if isinstance(src, bytes) else src
        self._expressions = list(name_expressions or ())

    def compile(self, options: tuple[str, ...] = (), log_stream: Any = None) -> tuple[bytes, dict[str, str] | None]:
        entries = {f"expression_{i}": expression for i, expression in enumerate(self._expressions)}
        mapping = {expression: entry for entry, expression in entries.items()}
        return image_of(self._source, options, entries), mapping or None


class _NoCache:
    """In place of CuPy's cache of machine code on disk."""

    def load(self, name: str) -> None:
        return None

    def save(self, name: str, payload: bytes, source: str) -> None:
        return None
