"""``gzarr doctor``: check of the requirements for reading, above all to a GPU, and a test of every codec.

With ``--json``, one JSON document is printed. Its keys are stable; others may be added:

``device_asked``
    Requested device: ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:N"``.
``device``
    Tested device: ``"cpu"`` or ``"cuda:N"``; null if the requested device cannot be used.
``error``
    Reason why the requested device cannot be used, or only for some reads; null if it can.
``ok``
    Whether the device can be used for everything and every codec passed, as in the exit code.
``environment``
    An object for each part (``python``, ``gzarr``, ``threads``, ``decoders``, ``driver``, ``gpu``, ``cuda``, ``cupy``,
    ``nvrtc``, ``numba_cuda``, ``nvcomp``, ``kvikio``, ``gds``): ``title``; ``status``, which is ``"ok"``,
    ``"missing"`` or ``"not usable"``; ``found``, a description of what was found; ``advice``, what to do (``""``
    for nothing).
``codecs``
    A list of :class:`gzarr.cli.selftest.Outcome` as objects: ``codec``, ``passed``, ``decoded_by`` (``"cuda"``,
    ``"cpu"`` or null), ``decode_path``, ``message``.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import sys
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from .. import __version__
from ..display import printable
from ..errors import ArgumentError, DeviceError
from ..installing import COMMANDS
from ..progress import is_terminal
from . import selftest
from .selftest import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.table import Table

    from .selftest import Outcome

Status = Literal["ok", "missing", "not usable"]

_COLOURS: Final = {"ok": "green", "missing": "yellow", "not usable": "red", "passed": "green", "FAILED": "bold red"}
#: Wide enough that no table line is broken when the output is not a terminal.
_PLAIN_COLUMNS: Final = 4000
# CUdevice_attribute of cuda.h.
_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76


@dataclass(frozen=True)
class Finding:
    """A required or optional part of the environment.

    Attributes
    ----------
    title
        Name of the part.
    status
        Whether the part is present and usable.
    found
        Description of the part, or of its failure.
    advice
        Advice to the user; ``""`` for none.
    """

    title: str
    status: Status
    found: str
    advice: str = ""


@dataclass(frozen=True)
class Driver:
    """NVIDIA's driver.

    Attributes
    ----------
    release
        Release, such as ``580.65.06``; ``""`` if unknown.
    cuda
        Newest supported CUDA version, 13000 for 13.0; 0 if there is no driver.
    gpus
        Descriptions of the GPUs visible to this process.
    error
        Reason why there is no GPU; ``""`` if there is one.
    """

    release: str
    cuda: int
    gpus: tuple[str, ...]
    error: str


def run(device: str, *, as_json: bool = False) -> int:
    """Check the environment, test the codecs, and print a report.

    Parameters
    ----------
    device
        Device to test: ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:N"``.
    as_json
        Whether to print the JSON document described in this module's docstring instead of tables.

    Returns
    -------
    0; 1 if ``device`` cannot be used, or not for everything, or if a codec failed on it. ``"auto"`` means the CPU if no
    GPU can be used.

    Raises
    ------
    ArgumentError
        If ``device`` is none of these.
    """
    tested, error = _resolve(device)
    parts = environment(tested)
    outcomes = list(selftest.run(tested)) if tested is not None else []
    if tested not in (None, "cpu") and parts["nvrtc"].status != "ok":
        error = f"{tested} can only be read to, and not to views: {parts['nvrtc'].found}; {parts['nvrtc'].advice}"
    ok = tested is not None and error is None and all(outcome.passed for outcome in outcomes)
    if as_json:
        document = {
            "device_asked": device,
            "device": tested,
            "error": error,
            "ok": ok,
            "environment": {key: asdict(part) for key, part in parts.items()},
            "codecs": [outcome.to_json() for outcome in outcomes],
        }
        print(json.dumps(document, indent=1))
    else:
        _print(parts, outcomes, tested)
        if error is not None:
            sys.stdout.flush()
            print(f"gzarr: error: {printable(error, 2000)}", file=sys.stderr)
    return 0 if ok else 1


def _resolve(device: str) -> tuple[str | None, str | None]:
    """Return the resolved device and None, or None and the reason why it cannot be used."""
    from ..arrays.device_choice import resolve_device
    from ..engines.cuda.devices import get_device

    try:
        found = resolve_device(device)
        if found != "cpu":
            # Only now is it known whether CUDA can be initialised.
            with get_device(found):
                pass
        return found, None
    except ArgumentError:
        raise
    except Exception as error:  # packages for the GPU may be broken in any way
        text = sentence(error)
        return None, text if isinstance(error, DeviceError) else f"{device!r} cannot be used: {text}"


# -- environment -------------------------------------------------------------------------------------------------------


def environment(device: str | None = None) -> dict[str, Finding]:
    """Return the parts of the environment by their keys in the JSON document.

    Parameters
    ----------
    device
        Device in use, whose free memory is reported; None for none.
    """
    driver = probe_driver()
    suffix = _suffix(driver)
    install = COMMANDS[suffix.replace("cu", "cuda")]
    kvikio = _part("kvikio", partial(_kvikio, driver))
    probes: dict[str, tuple[str, Callable[[], Finding], str]] = {
        "threads": ("Threads", _threads, "set GZARR_THREADS to a positive integer, or unset it"),
        "decoders": ("CPU decoders", _decoders, COMMANDS["decoders"]),
        "driver": ("NVIDIA driver", partial(_driver, driver), ""),
        "gpu": ("GPU", partial(_gpus, driver, device), ""),
        "cuda": ("CUDA runtime", partial(_cuda, driver, install), install),
        "cupy": ("CuPy", _cupy, install),
        "nvrtc": ("NVRTC", partial(_nvrtc, device, install), install),
        "numba_cuda": ("numba-cuda", _numba_cuda, COMMANDS[f"numba-cuda-{suffix}"]),
        "nvcomp": ("nvCOMP", _nvcomp, install),
    }
    return {
        "python": Finding("Python", "ok", f"{platform.python_version()}, {platform.platform()}"),
        "gzarr": Finding("gzarr", "ok", __version__),
        **{key: _part(title, probe, advice) for key, (title, probe, advice) in probes.items()},
        "kvikio": kvikio,
        "gds": _part("GPUDirect Storage", partial(_gds, driver, kvikio)),
    }


def _suffix(driver: Driver) -> str:
    """Return what names of packages for the CUDA of a driver end with; for the newest without one."""
    return "cu12" if driver.cuda and driver.cuda < 13000 else "cu13"


def _part(title: str, probe: Callable[[], Finding], advice: str = "") -> Finding:
    """Run a probe. A package that is not installed is missing; one that raises is not usable."""
    try:
        return probe()
    except ModuleNotFoundError as error:
        if error.name in ("cupy", "numba_cuda", "nvidia", "nvidia.libnvcomp", "kvikio"):
            return Finding(title, "missing", "not installed", advice)
        return Finding(title, "not usable", sentence(error), advice)
    except Exception as error:  # a broken installation may raise anything: it is a finding
        return Finding(title, "not usable", sentence(error), advice)


def _threads() -> Finding:
    from ..engines.pool import thread_count

    count = thread_count()
    source = "GZARR_THREADS" if os.environ.get("GZARR_THREADS", "").strip() else "cores that this process may use"
    return Finding("Threads", "ok", f"{count} ({source})")


def _decoders() -> Finding:
    """Report the C functions that the native loop calls."""
    from gzarr_kernels import ahead, compiled, libraries

    title = "CPU decoders"
    fits, names = "loop" in libraries.available(), sorted(libraries.available() - {"loop"})
    library = ahead.library()
    if library is not None:
        source = f"kernels of this wheel for {library.target}"
    elif importlib.util.find_spec("numba") is None:
        source = "no kernels"
    else:
        source = f"kernels compiled here by Numba {importlib.metadata.version('numba')}"
    found = f"{', '.join(names)}; {source}"
    if not fits or not compiled.can_run():
        advice = "arrays can still be read, more slowly, by the codecs of numcodecs in threads"
        if fits:
            what = f"this installation has no compiled kernels for this machine, and {compiled.why_not()}"
            if importlib.util.find_spec("numba") is None:
                advice = f"{COMMANDS['jit']} installs Numba, which compiles them; until then, {advice}"
            return Finding(title, "missing", what, advice)
        return Finding(title, "not usable", "the native loop runs on 64-bit Linux and macOS only", advice)
    absent = [name for name in libraries.DECODERS if name not in libraries.decoder_addresses()]
    if absent:
        packages = sorted({library.name for name in absent for library in libraries.DECODERS[name][1]})
        symbols = ", ".join(libraries.DECODERS[name][0] for name in absent)
        found += f"; not found: {symbols} (looked for in {', '.join(packages)})"
        wheels = COMMANDS["decoders"]
        return Finding(
            title, "missing", found, f"{wheels}; until then, Python threads decode these codecs, more slowly"
        )
    return Finding(title, "ok", found)


def probe_driver() -> Driver:
    """Query NVIDIA's driver directly, without other packages and without a context on a GPU."""
    try:
        library: Any = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return Driver("", 0, (), str(error))
    release = _text_of(Path("/sys/module/nvidia/version"))
    version, count = ctypes.c_int(), ctypes.c_int()
    # Works before cuInit, and even if that fails.
    library.cuDriverGetVersion(ctypes.byref(version))
    code = library.cuInit(0) or library.cuDeviceGetCount(ctypes.byref(count))
    if code:
        return Driver(release, version.value, (), _driver_error(library, code))
    if not count.value:
        return Driver(release, version.value, (), "the driver shows no GPU to this process")
    return Driver(release, version.value, tuple(_gpu(library, i) for i in range(count.value)), "")


def _driver_error(library: Any, code: int) -> str:
    text = ctypes.c_char_p()
    library.cuGetErrorString(code, ctypes.byref(text))
    return f"{(text.value or b'unknown error').decode(errors='replace')} (CUDA error {code})"


def _gpu(library: Any, ordinal: int) -> str:
    handle, name, nbytes = ctypes.c_int(), ctypes.create_string_buffer(256), ctypes.c_size_t()
    major, minor = ctypes.c_int(), ctypes.c_int()
    library.cuDeviceGet(ctypes.byref(handle), ordinal)
    library.cuDeviceGetName(name, len(name), handle)
    library.cuDeviceTotalMem_v2(ctypes.byref(nbytes), handle)
    library.cuDeviceGetAttribute(ctypes.byref(major), _CAPABILITY_MAJOR, handle)
    library.cuDeviceGetAttribute(ctypes.byref(minor), _CAPABILITY_MINOR, handle)
    capability = f"compute capability {major.value}.{minor.value}"
    return f"cuda:{ordinal} {name.value.decode(errors='replace')}, {_gib(nbytes.value)}, {capability}"


def _driver(driver: Driver) -> Finding:
    title = "NVIDIA driver"
    if not driver.cuda:
        advice = "install NVIDIA's driver; give a container its GPUs (docker run --gpus all)"
        return Finding(title, "missing", driver.error, advice)
    found = f"{driver.release or 'unknown release'}, runs CUDA up to {_cuda_version(driver.cuda)}"
    return Finding(title, "ok", found)


def _gpus(driver: Driver, device: str | None) -> Finding:
    if driver.error:
        advice = "check nvidia-smi and CUDA_VISIBLE_DEVICES" if driver.cuda else "needs the driver"
        status: Status = "not usable" if driver.cuda else "missing"
        return Finding("GPU", status, driver.error if driver.cuda else "none without a driver", advice)
    found = "; ".join(driver.gpus)
    if device is not None and device.startswith("cuda:"):
        from ..engines.cuda.devices import get_device

        found += f"; {device} has {_gib(get_device(device).free_bytes())} free"
    return Finding("GPU", "ok", found)


def _cuda(driver: Driver, install: str) -> Finding:
    import cupy

    version = int(cupy.cuda.runtime.runtimeGetVersion())
    found = f"{_cuda_version(version)}, according to CuPy"
    if driver.cuda and version // 1000 > driver.cuda // 1000:
        found += f"; the driver runs CUDA up to {_cuda_version(driver.cuda)}"
        return Finding("CUDA runtime", "not usable", found, f"a newer driver, or pip uninstall that CuPy and {install}")
    return Finding("CUDA runtime", "ok", found)


def _cupy() -> Finding:
    import cupy

    return Finding("CuPy", "ok", str(cupy.__version__))


def _nvrtc(device: str | None, install: str) -> Finding:
    """Report the compiler of CuPy's own kernels, which writes, and results in views, need; with a device, try it."""
    import cupy
    from cuda.pathfinder import DynamicLibNotFoundError

    try:
        major, minor = cupy.cuda.nvrtc.getVersion()
    except DynamicLibNotFoundError:
        return Finding("NVRTC", "missing", "not installed: CuPy compiles its kernels by it", install)
    found = f"{major}.{minor}"
    if device is not None and device.startswith("cuda:"):
        from ..engines.cuda.devices import get_device

        with get_device(device) as own:
            stream = own.current_stream()
            pairs = own.empty((2, 2), np.dtype(np.uint8), stream)
            own.copy_array(pairs[:, 0], pairs[:, 1], stream)
            stream.synchronize()
        found += ", compiles CuPy's kernels"
    return Finding("NVRTC", "ok", found)


def _numba_cuda() -> Finding:
    """Report numba-cuda, and whether it finds the compiler that it needs; it is not needed with the wheel's kernels."""
    from gzarr_kernels.device import ptx

    if ptx.programs():
        return Finding("numba-cuda", "ok", "not needed: this installation has the device kernels as PTX")
    title, found = "numba-cuda", str(importlib.import_module("numba_cuda").__version__)
    from numba.cuda.cudadrv import nvvm

    if nvvm.__name__.startswith("numba.cuda.simulator."):
        return Finding(title, "not usable", f"{found}; its simulator is on", "unset NUMBA_ENABLE_CUDASIM")
    if not nvvm.is_available():
        advice = f"{COMMANDS['numba-cuda-cu13']}, or 'numba-cuda[cu12]' for a driver of CUDA 12"
        return Finding(title, "not usable", f"{found}; the NVVM library was not found", advice)
    return Finding(title, "ok", found)


def _nvcomp() -> Finding:
    """Report nvCOMP: its version, whether it has the functions gzarr calls, and what only newer versions have."""
    from gzarr_kernels.operations import ALGORITHMS

    from ..engines.cuda import nvcomp, nvcomp_compress

    try:
        library = nvcomp.load()
    except DeviceError:
        importlib.import_module("nvidia.libnvcomp")
        raise
    for algorithm in ALGORITHMS:
        nvcomp.NvcompDecompressor(algorithm)
        nvcomp_compress.NvcompCompressor(algorithm)
    found = f"{library.title}, for CUDA {library.cuda}"
    if lacks := library.lacks():
        found += f"; decoded on the CPU, for nvCOMP older than 5.2: {', '.join(lacks)}"
        return Finding("nvCOMP", "ok", found, COMMANDS[f"newer nvcomp-cu{library.cuda}"])
    return Finding("nvCOMP", "ok", found)


def _kvikio(driver: Driver) -> Finding:
    """Report kvikio, which is not imported without a GPU, where it is of no use."""
    title = "kvikio"
    if importlib.util.find_spec("kvikio") is None:
        command = COMMANDS[f"kvikio-{_suffix(driver)}"]
        return Finding(title, "missing", "not installed", f"{command}, for GPUDirect Storage only")
    if driver.error:
        return Finding(title, "not usable", "installed; does nothing without a GPU")
    return Finding(title, "ok", str(importlib.import_module("kvikio").__version__))


def _gds(driver: Driver, kvikio: Finding) -> Finding:
    """Report whether files can be read straight into GPU memory, or why not."""
    title = "GPUDirect Storage"
    # This directory exists while the kernel module is loaded.
    loaded = Path("/proc/driver/nvidia-fs").is_dir()
    version = _text_of(Path("/sys/module/nvidia_fs/version"))
    module = f"nvidia-fs {version}".rstrip() if loaded else "nvidia-fs not loaded"
    instead = "not needed: files go through page-locked host memory"
    if driver.error:
        return Finding(title, "missing", "none without a GPU")
    if kvikio.status != "ok":
        return Finding(title, "not usable", f"{module}; kvikio is {kvikio.status}", instead)
    from ..engines.cuda import kvikio_files

    try:
        reason = kvikio_files.obstacle()
    except Exception as error:  # cuFile's errors, if it is not installed or does not start
        reason = sentence(error)
    if reason:
        return Finding(title, "not usable", f"off: {module}; {reason}", instead)
    return Finding(title, "ok", f"on: {module}")


def _cuda_version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _gib(nbytes: int) -> str:
    return f"{nbytes / 2**30:.1f} GiB"


def _text_of(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace").strip()
    except OSError:
        return ""


# -- printing ----------------------------------------------------------------------------------------------------------


def _print(parts: dict[str, Finding], outcomes: list[Outcome], tested: str | None) -> None:
    from rich.console import Console

    terminal = is_terminal(sys.stdout)
    console = Console(file=sys.stdout, width=None if terminal else _PLAIN_COLUMNS, highlight=False)

    def show(table: Table) -> None:
        if terminal:
            console.print(table)
            return
        with console.capture() as captured:
            console.print(table)
        print("\n".join(line.rstrip() for line in captured.get().splitlines()))

    facts = [(part.title, part.status, part.found, part.advice) for part in parts.values()]
    show(_table(("", "Status", "Found", "What to do"), facts))
    print()
    if tested is None:
        print("No codec was tested: the device cannot be used.")
        return
    rows = [_outcome_row(outcome) for outcome in outcomes]
    show(_table(("Codec", "Self-test", "Decoded by", "How, or why not"), rows))
    print()
    failed = sum(not outcome.passed for outcome in outcomes)
    total = len(outcomes)
    print(f"{tested}: {failed} of {total} codecs FAILED" if failed else f"{tested}: all {total} codecs passed")


def _outcome_row(outcome: Outcome) -> tuple[str, str, str, str]:
    verdict = "passed" if outcome.passed else "FAILED"
    return outcome.codec, verdict, (outcome.decoded_by or "-").upper(), outcome.message or outcome.decode_path


def _table(titles: tuple[str, ...], rows: Sequence[tuple[str, str, str, str]]) -> Table:
    """Return a table whose second column is coloured by its value."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in titles:
        # What is too long for a narrow terminal goes on in the next line.
        table.add_column(title, overflow="fold")
    for row in rows:
        # Text, so that nothing is taken for rich's markup.
        cells = [Text(printable(cell, 1000)) for cell in row]
        cells[1].stylize(_COLOURS[row[1]])
        table.add_row(*cells)
    return table
