"""nvCOMP's library with the host's decoders and encoders.

Its queries are the real ones. Its functions that need a GPU (``nvcompBatched…Async``) are replaced by functions of the
same type (nvcomp_on_host.cpp), which enqueue a batch on the stream; it runs when the stream gets to it, and calls back
into Python for each frame.
"""

from __future__ import annotations

import ctypes
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import nvidia.libnvcomp
from support.cuda_on_host.c_types import Fault
from support.cuda_on_host.host_codecs import DECODERS, ENCODERS
from support.cuda_on_host.host_compiler import HERE, compile_to, hashed, locked, version
from support.cuda_on_host.jumps import jump, overwrite

if TYPE_CHECKING:
    from collections.abc import Callable

#: As gzarr names them, in the order of nvcomp_on_host.cpp.
NAMES: Final = ("zstd", "lz4", "snappy", "deflate", "gdeflate")
_IN_NVCOMP: Final = ("Zstd", "LZ4", "Snappy", "Deflate", "Gdeflate")
#: Replaced functions, without their prefix ``nvcompBatched``.
REPLACED: Final = (
    *(f"{name}{direction}Async" for name in _IN_NVCOMP for direction in ("Decompress", "Compress")),
    "ZstdCompressGetTempSize",
)
_FAILED, _FAULT, _UNREPORTED = -1, -2, -3
_LAUNCH_FAILURE: Final = 719

_Frame = ctypes.CFUNCTYPE(
    ctypes.c_int64, ctypes.c_int, ctypes.c_int, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p,
    ctypes.c_uint64, ctypes.POINTER(Fault),
)  # fmt: skip


class HostNvcomp:
    """nvCOMP over the runtime in host memory.

    Parameters
    ----------
    folder
        Where to keep what was compiled, for all processes.
    find, enqueue
        Addresses of ``coh_find`` and ``coh_enqueue``.
    library
        The loaded nvCOMP; None to load that of the wheel.

    Attributes
    ----------
    refuse
        Function of an algorithm and a frame's index in its batch: whether the frame fails.
    silent
        Whether a frame that fails leaves its size and status as they were.
    kills
        Function of an algorithm and a frame's bytes: whether it is the end of the device (719).
    delay
        Function of an algorithm and a frame's index: seconds that the decoder hangs.
    given
        If a list, it collects the frames given to decoders: algorithm, encoded bytes, decoded size.
    counts
        Batches and frames, by "batches zstd", "frames zstd", "encoded batches zstd", "encoded frames zstd".
    errors
        Tracebacks of Python's errors in a decoder or encoder; each is a fault.
    """

    def __init__(self, folder: Path, find: int, enqueue: int, library: ctypes.CDLL | None = None) -> None:
        self.library = library or ctypes.CDLL(str(_library()))
        self.errors: list[str] = []
        self.reset()
        self._shim = _built(folder)
        self._frame = _Frame(self._run_frame)
        self._shim.coh_nvcomp_begin.argtypes = (ctypes.c_void_p, ctypes.c_void_p, _Frame, ctypes.c_void_p)
        self._shim.coh_nvcomp_begin(find, enqueue, self._frame, self.library._handle)

    def reset(self) -> None:
        """Forget faults that were asked for, records and counts."""
        self.refuse: Callable[[str, int], bool] = lambda algorithm, frame: False
        self.silent: bool = False
        self.kills: Callable[[str, bytes], bool] = lambda algorithm, frame: False
        self.delay: Callable[[str, int], float] = lambda algorithm, frame: 0.0
        self.given: list[tuple[str, bytes, int]] | None = None
        self.counts: Counter[str] = Counter()
        self.errors.clear()

    def install(self) -> Callable[[], None]:
        """Replace the functions of the library; return a function that undoes it.

        When the interpreter ends, the runtime waits for the batch that runs and drops the others (``coh_shut_down``).
        """
        undone = []
        for name in REPLACED:
            real, ours = getattr(self.library, f"nvcompBatched{name}"), getattr(self._shim, f"coh_{name}")
            at = ctypes.cast(real, ctypes.c_void_p).value
            to = ctypes.cast(ours, ctypes.c_void_p).value
            assert at is not None
            assert to is not None
            undone.append((at, jump(at, to)))

        def undo() -> None:
            for at, before in undone:
                overwrite(at, before)

        return undo

    def _run_frame(
        self, encodes: int, algorithm: int, index: int, source: int, nbytes: int, target: int, room: int, fault: Any
    ) -> int:
        try:
            return self._frame_of(
                bool(encodes), NAMES[algorithm], index, _bytes_at(source, nbytes), _bytes_at(target, room), fault
            )
        except BaseException as error:  # it would be lost here: this is called from C
            self.errors.append(traceback.format_exc())
            return _set(fault, f"{NAMES[algorithm]}: Python's {type(error).__name__}: {error}")

    def _frame_of(
        self,
        encodes: bool,
        name: str,
        index: int,
        source: np.ndarray[Any, Any],
        target: np.ndarray[Any, Any],
        fault: Any,
    ) -> int:
        kind = "encoded " if encodes else ""
        self.counts[f"{kind}batches {name}"] += index == 0
        self.counts[f"{kind}frames {name}"] += 1
        if seconds := self.delay(name, index):
            time.sleep(seconds)
        data = source.tobytes()
        if self.given is not None and not encodes:
            self.given.append((name, data, target.size))
        if self.kills(name, data):
            return _set(fault, f"{name}: a frame that a test has chosen ends the device")
        failed = _UNREPORTED if self.silent else _FAILED
        if self.refuse(name, index):
            return failed
        if not encodes:
            made = DECODERS[name](source, target)
            return failed if made is None else made
        encoded = ENCODERS[name](data)
        target[: len(encoded)] = np.frombuffer(encoded, np.uint8)
        return len(encoded)


def _set(fault: Any, message: str) -> int:
    fault.contents.code = _LAUNCH_FAILURE
    fault.contents.message = message.encode()[:511]
    return _FAULT


def _bytes_at(address: int, nbytes: int) -> np.ndarray[Any, Any]:
    return np.frombuffer((ctypes.c_uint8 * nbytes).from_address(address), np.uint8)


def _library() -> Path:
    found = (path for folder in nvidia.libnvcomp.__path__ for path in Path(folder).glob("lib*/libnvcomp.so.*"))
    return sorted(found)[-1]


def _built(folder: Path) -> ctypes.CDLL:
    (include,) = (str(Path(folder) / "include") for folder in nvidia.libnvcomp.__path__)
    texts = [(HERE / name).read_text() for name in ("nvcomp_on_host.cpp", "api.h")]
    texts += [path.read_text() for path in sorted(Path(include).rglob("*.h"))]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"nvcomp-{hashed(version(), *texts)}.so"
    with locked(folder / "nvcomp.lock"):
        if not path.exists():
            compile_to(
                path, "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-I{HERE}",
                f"-I{include}", str(HERE / "nvcomp_on_host.cpp"), "-ldl",
            )  # fmt: skip
    return ctypes.CDLL(str(path))
