"""Device kernels on the host: gzarr's own, as the code that a GPU would get, and as the PTX of a wheel.

numba-cuda compiles a kernel once, in a process of its own, to LLVM IR. NVVM makes PTX of it, and :mod:`kernel_ir` makes
machine code for the host of the same, with checks; ``kernels.c`` runs that. Both are kept in ``.pytest_cache``, by a
hash of the sources and of the compilers' versions.

For a device:

- :func:`use_compiled_kernels`, before gzarr's device kernels are imported, makes gzarr load PTX like that of a wheel.
- :func:`find` returns what runs an entry of an image that CuPy has loaded; None for other images.
- :func:`set_find` takes the runtime's ``coh_find``.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import json
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import zipfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Final

from support.cuda_on_host import host_compiler
from support.cuda_on_host.c_types import Kernel
from support.cuda_on_host.kernel_build import symbol

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER: Final = Path(__file__).parent
ROOT: Final = FOLDER.parents[2]
_CACHE: Final = ROOT / ".pytest_cache" / "device_kernels"
#: Builds of kernels that are kept, of whatever sources and compilers.
_KEPT_BUILDS: Final = 6
#: How Numba's names of gzarr's kernels begin.
_OWN: Final = "_ZN13gzarr_kernels6device"
_COMPILERS: Final = ("numba", "numba-cuda", "llvmlite", "numpy", "nvidia-nvvm")
#: Files of this folder on which PTX and IR depend, and the code for the host.
_BY_NUMBA: Final = ("kernel_build.py",)
_BY_HOST: Final = ("api.h", "kernel_ir.ll", "kernel_ir.py", "kernels.c")


class CannotRunError(Exception):
    """A kernel cannot run on the host, or its PTX and its IR differ."""


# -- compiled programs


@dataclass(frozen=True)
class Program:
    """A kernel for a size of words.

    Attributes
    ----------
    ptx
        As in a wheel.
    parameters
        Size of each parameter of the host's code in bytes.
    error
        Why the host cannot run it, or "".
    """

    ptx: str
    parameters: list[int]
    error: str


class Programs:
    """The compiled kernels of some modules.

    Parameters
    ----------
    folder
        Folder that :func:`build` has made.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs = {
            name: Program(**row) for name, row in json.loads((folder / "programs.json").read_text()).items()
        }
        self.library = ctypes.CDLL(str(folder / "kernels.so"))
        self.library.kernels_set_limit.argtypes = [ctypes.c_double]
        self._by_ptx = {program.ptx: name for name, program in self.programs.items()}

    def __contains__(self, image: str) -> bool:
        return image in self._by_ptx

    def find(self, image: str, entry: str) -> Kernel | None:
        """Return what runs an entry of PTX, or None if it is not of these programs; for errors see :meth:`kernel`."""
        name = self._by_ptx.get(image)
        if name is None or entry not in entries(image):
            return None
        return self.kernel(name)

    def kernel(self, name: str) -> Kernel:
        """Return what runs a program.

        Raises
        ------
        CannotRunError
            If the host cannot run it, or if its PTX takes other parameters than its IR.
        """
        program = self.programs[name]
        if program.error:
            raise CannotRunError(program.error)
        ((_, sizes),) = entries(program.ptx).items()
        if sizes != program.parameters:
            raise CannotRunError(f"{name}: parameters have {sizes} bytes in PTX and {program.parameters} in IR")
        run = ctypes.cast(self.library.kernels_run, ctypes.c_void_p).value
        self_ = ctypes.addressof(ctypes.c_char.in_dll(self.library, symbol(name)))
        return Kernel(run, self_, len(sizes), (ctypes.c_uint32 * 64)(*sizes))


_PTX_NBYTES: Final = {"8": 1, "16": 2, "32": 4, "64": 8}


def entries(ptx: str) -> dict[str, list[int]]:
    """Return the size in bytes of each parameter of each entry of PTX."""
    found = {}
    for name, inside in re.findall(r"\.entry\s+([\w$]+)\s*\(([^)]*)\)", ptx):
        sizes = []
        for parameter in filter(None, map(str.strip, inside.split(","))):
            parsed = re.fullmatch(
                r"\.param\s+(?:\.align\s+\d+\s+)?\.[busf](\d+)(?:\s+\.[^%]*?)?\s+[\w$]+(?:\[(\d+)\])?", parameter
            )
            if parsed is None:
                raise CannotRunError(f"{name}: a parameter is {parameter!r}")
            sizes.append(_PTX_NBYTES[parsed[1]] * int(parsed[2] or 1))
        found[name] = sizes
    return found


# -- builds


def _versions() -> list[str]:
    found = [sys.version]
    for package in _COMPILERS:
        try:
            found.append(version(package))
        except PackageNotFoundError:
            found.append("")
    return found


def _key(modules: list[str], files: tuple[str, ...]) -> str:
    """Return a name for what is made of the kernels of some modules by some files of this folder."""
    from gzarr_kernels.fingerprint import device_fingerprint

    digest = hashlib.sha256(json.dumps([*_versions(), device_fingerprint(), *modules]).encode())
    made_up = (name for name in modules if name.startswith("support."))
    sources = [ROOT / "tests" / f"{name.replace('.', '/')}.py" for name in made_up]
    for path in (*sources, *(FOLDER / name for name in files)):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@contextmanager
def _locked() -> Iterator[None]:
    """Let one process at a time build."""
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def build(*modules: str) -> Path:
    """Compile the kernels of some modules unless it has been done; return a folder for :class:`Programs`.

    Raises
    ------
    RuntimeError
        If there is no C compiler, or if a compiler fails.
    """
    path = _CACHE / _key(list(modules), _BY_NUMBA + _BY_HOST)
    if not path.exists():
        with _locked():
            if not path.exists():
                kept = _CACHE / f"ir-{_key(list(modules), _BY_NUMBA)}"
                kept.mkdir(exist_ok=True)
                new = path.with_suffix(".new")
                shutil.rmtree(new, ignore_errors=True)
                new.mkdir()
                _compile(kept, new, list(modules))
                new.rename(path)
                os.utime(kept)
                _remove_old()
    # The last ones used are kept.
    os.utime(path)
    return path


def _remove_old() -> None:
    """Remove the builds that were not used for longest, and what killed processes left. For who has the lock."""
    folders = [path for path in _CACHE.iterdir() if path.is_dir()]
    finished = [path for path in folders if path.suffix != ".new"]
    finished.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    ir = [path for path in finished if path.name.startswith("ir-")]
    builds = [path for path in finished if not path.name.startswith("ir-")]
    for path in {*folders} - {*ir[:_KEPT_BUILDS], *builds[:_KEPT_BUILDS]}:
        shutil.rmtree(path, ignore_errors=True)


def _compile(kept: Path, folder: Path, modules: list[str]) -> None:
    compiler = host_compiler.c_compiler()
    if compiler is None:
        raise RuntimeError("the device kernels need a C compiler on the host: install gcc or clang, or name one by CC")
    parts = folder / "parts"
    parts.mkdir()
    environment = {key: value for key, value in os.environ.items() if key not in ("GZARR_KERNELS", "PYTHONPATH")}
    environment |= {"GZARR_JIT": "1", "NUMBA_ENABLE_CUDASIM": "0", "PYTHONPATH": os.pathsep.join(map(str, sys.path))}
    command = [sys.executable, str(FOLDER / "kernel_build.py"), str(kept), str(parts), *modules]
    workers = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(min(len(os.sched_getaffinity(0)), 4))
    ]
    objects = folder / "runtime.o"
    flags = ["-O2", "-fPIC", "-fvisibility=hidden"]
    _run([compiler, *flags, "-c", str(FOLDER / "kernels.c"), "-o", str(objects)])
    outputs = [worker.communicate()[0] for worker in workers]
    for worker, output in zip(workers, outputs, strict=True):
        if worker.returncode:
            raise RuntimeError(f"kernels were not compiled:\n{output}")
    linked = [objects, *sorted(parts.glob("*.o"))]
    _run([compiler, "-shared", "-o", str(folder / "kernels.so"), *map(str, linked), "-lpthread"])
    rows = {path.stem: json.loads(path.read_text()) for path in sorted(parts.glob("*.json"))}
    (folder / "programs.json").write_text(json.dumps(rows))
    _write_wheel(folder / "compiled_kernels", {name: row["ptx"] for name, row in rows.items()})
    shutil.rmtree(parts)
    objects.unlink()


def _write_wheel(folder: Path, programs: dict[str, str]) -> None:
    """Write the PTX of programs like ``gzarr_kernels.device.build`` does for a wheel."""
    from gzarr_kernels.device.ptx import file_name

    into = BytesIO()
    with zipfile.ZipFile(into, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in sorted(programs.items()):
            archive.writestr(zipfile.ZipInfo(name), text.encode(), zipfile.ZIP_DEFLATED)
    folder.mkdir()
    (folder / file_name(into.getvalue())).write_bytes(into.getvalue())


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")


# -- gzarr's own kernels


def _modules() -> list[str]:
    import gzarr_kernels.device

    names = sorted(info.name for info in pkgutil.iter_modules(gzarr_kernels.device.__path__))
    return [f"gzarr_kernels.device.{name}" for name in names if name not in ("build", "compiler", "target")]


@cache
def gzarr_programs() -> Programs:
    """Return gzarr's kernels, compiled if need be."""
    return Programs(build(*_modules()))


def use_compiled_kernels() -> Path:
    """Make gzarr load the PTX of its kernels from a folder like a wheel's (``GZARR_KERNELS``), and return that.

    Called before the first import of ``gzarr_kernels.device``'s kernels. The folder has the host's libraries of the
    installation, if it has some.
    """
    from gzarr_kernels import ahead
    from gzarr_kernels.device import ptx

    made = gzarr_programs().folder / "compiled_kernels"
    before = ahead.folder()
    if before != made:
        for link in made.glob("*"):
            if not link.exists():
                # To the folder of a wheel that was made before, and is gone.
                link.unlink(missing_ok=True)
        for path in before.glob("*"):
            link = made / path.name
            if not path.name.startswith("device-"):
                # Another process may have made it.
                with suppress(FileExistsError):
                    link.symlink_to(path.resolve())
        os.environ["GZARR_KERNELS"] = str(made)
    os.environ["GZARR_JIT"] = "0"
    if set(ptx.programs()) != set(gzarr_programs().programs):
        raise RuntimeError("gzarr's device kernels were imported before use_compiled_kernels()")
    return made


def find(image: bytes, entry: str) -> Kernel | None:
    """Return what runs an entry of an image, or None if the image is not of gzarr's kernels.

    Raises
    ------
    CannotRunError
        If the image has an entry of gzarr's kernels, but is other PTX; or as :meth:`Programs.kernel`.
    """
    text = image.decode(errors="replace")
    found = gzarr_programs().find(text, entry)
    if found is None and entry.startswith(_OWN) and text not in gzarr_programs() and entry in entries(text):
        raise CannotRunError(
            f"{entry} is in PTX other than that of use_compiled_kernels(): of other sources, for another GPU, or "
            "compiled by numba-cuda when it was loaded (GZARR_JIT=1)"
        )
    return found


def set_find(address: int) -> None:
    """Make kernels look for memory by a ``coh_find``."""
    gzarr_programs().library.kernels_set_find(ctypes.c_void_p(address))
