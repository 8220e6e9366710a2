"""Code of the device kernels: PTX from the wheel, which the driver compiles and keeps, or machine code.

Machine code is compiled by numba-cuda once for a GPU's compute capability, and kept on disk. A file holds one kernel
for one word size. Its name contains a fingerprint of the kernels' sources and of the compilers' versions, and its first
line a digest of the rest: a file of another version, or a damaged one, is never loaded. If no file can be written,
every process compiles for itself.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
from typing import TYPE_CHECKING

from ...errors import DeviceError
from ...installing import COMMANDS
from .. import cache_folder, kernels

if TYPE_CHECKING:
    from pathlib import Path

    from gzarr_kernels.device.target import Kernel, MachineCode

_COMPILERS = ("numba-cuda", "numba", "nvidia-nvvm", "nvidia-nvjitlink")


def load(kernel: Kernel, word: int, capability: tuple[int, int]) -> MachineCode:
    """Return a kernel of ``gzarr_kernels.device`` for a GPU, from the wheel, from disk or freshly compiled.

    Parameters
    ----------
    kernel, word, capability
        As for :func:`gzarr_kernels.device.compiler.compiled`.

    Raises
    ------
    DeviceError
        If numba-cuda cannot compile it because a part of the CUDA toolkit is missing or its simulator is on, or if the
        GPU is older than those for which the wheel has kernels.
    """
    from gzarr_kernels.device import ptx, target

    if ptx.programs():
        if capability < ptx.CAPABILITY:
            least, have = ("{}.{}".format(*numbers) for numbers in (ptx.CAPABILITY, capability))
            raise DeviceError(
                f"this installation has kernels for GPUs of compute capability {least} and newer, and this GPU has "
                f'{have}; with numba-cuda installed, GZARR_JIT=1 compiles them for it; or use device="cpu"'
            )
        image = ptx.programs()[target.program_name(kernel, word)]
        return target.MachineCode(image, target.entry_of(image.decode()))
    from gzarr_kernels.device import compiler

    path = _path(kernel, word, capability)
    found = _read(path)
    if found is not None:
        return found
    if os.environ.get("NUMBA_ENABLE_CUDASIM", "0") not in ("", "0"):
        raise DeviceError("numba-cuda compiles no kernels in its simulator: unset NUMBA_ENABLE_CUDASIM")
    kernels.announce_compilation("device kernels")
    try:
        made = compiler.compiled(kernel, word, capability)
    # Raised by numba-cuda, by its bindings, or by the libraries that they look for.
    except Exception as error:
        raise DeviceError(
            f"numba-cuda cannot compile a kernel: {_first_line(error)}; it needs libnvvm and libnvrtc of the CUDA "
            f"toolkit ({COMMANDS['numba-cuda-cu13']} installs them; CUDA_HOME names another toolkit)"
        ) from error
    _write(path, made)
    return made


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _path(kernel: Kernel, word: int, capability: tuple[int, int]) -> Path | None:
    from gzarr_kernels.device.target import FINGERPRINT

    folder = cache_folder.cache_folder()
    if folder is None:
        return None
    compilers = " ".join(f"{name} {_version(name)}" for name in _COMPILERS)
    digest = hashlib.sha256(f"{FINGERPRINT} {compilers}".encode()).hexdigest()[:16]
    name = f"{kernel.py_func.__name__}-{word}-sm_{capability[0]}{capability[1]}-{digest}.bin"
    return folder / "kernels" / name


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _read(path: Path | None) -> MachineCode | None:
    from gzarr_kernels.device.target import MachineCode

    if path is None:
        return None
    try:
        first, image = path.read_bytes().split(b"\n", 1)
        head = json.loads(first)
        if head["sha256"] != _digest(image, head["entry"]):
            return None
        return MachineCode(image, head["entry"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def _write(path: Path | None, made: MachineCode) -> None:
    if path is not None:
        head = json.dumps({"entry": made.entry, "sha256": _digest(made.image, made.entry)})
        cache_folder.write_whole(path, head.encode() + b"\n" + made.image)


def _digest(image: bytes, entry: str) -> str:
    return hashlib.sha256(entry.encode() + b"\n" + image).hexdigest()
