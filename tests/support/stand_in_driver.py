"""Libraries that stand in for NVIDIA's driver, made by the C compiler: they log each call, and work once per fork.

``libcuda.so.1`` behaves like the real one where it matters here: before ``cuInit`` its functions report that CUDA is
not initialised, and so do all of them, including ``cuInit``, in the child of a process that has initialised it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_NOTE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void note(const char *call) {
    FILE *log = fopen(getenv("STAND_IN_LOG"), "a");
    fprintf(log, "%d %s\n", getpid(), call);
    fclose(log);
}
"""

_CUDA = r"""
static int initialised_by = 0;

int cuInit(unsigned flags) {
    note("cuInit");
    if (getenv("STAND_IN_BROKEN")) return 803;
    if (initialised_by && initialised_by != getpid()) return 3;
    initialised_by = getpid();
    return 0;
}

int cuDeviceGetCount(int *count) {
    note("cuDeviceGetCount");
    if (initialised_by != getpid()) return 3;
    *count = atoi(getenv("STAND_IN_GPUS"));
    return 0;
}
"""

# GPU i is GPU-i…, and if STAND_IN_PARTITIONED is i, it has that many parts, MIG-i-j….
_NVML = r"""
static int gpus(void) { return atoi(getenv("STAND_IN_GPUS")); }

static int is_partitioned(long gpu) {
    const char *which = getenv("STAND_IN_PARTITIONED");
    return which && atoi(which) == gpu;
}

int nvmlInit_v2(void) {
    note("nvmlInit_v2");
    const char *status = getenv("STAND_IN_NVML_STATUS");
    return status ? atoi(status) : 0;
}

int nvmlShutdown(void) { note("nvmlShutdown"); return 0; }

int nvmlDeviceGetCount_v2(unsigned *count) { *count = gpus(); return 0; }

int nvmlSystemGetDriverVersion(char *text, unsigned size) { snprintf(text, size, "580.65.06"); return 0; }

int nvmlDeviceGetHandleByIndex_v2(unsigned i, long *gpu) {
    const char *refused = getenv("STAND_IN_REFUSED");
    if (refused && atoi(refused) == (int)i) return 4;
    *gpu = 100 + i;
    return 0;
}

int nvmlDeviceGetName(long gpu, char *text, unsigned size) { snprintf(text, size, "NVIDIA Stand-in"); return 0; }

int nvmlDeviceGetUUID(long gpu, char *text, unsigned size) {
    if (gpu >= 1000) snprintf(text, size, "MIG-%ld-%ld-abc", gpu / 1000 - 1, gpu % 1000);
    else snprintf(text, size, "GPU-%ld-abc", gpu - 100);
    return 0;
}

int nvmlDeviceGetMigMode(long gpu, unsigned *now, unsigned *later) {
    if (!getenv("STAND_IN_PARTITIONED")) return 3;
    *now = *later = is_partitioned(gpu - 100);
    return 0;
}

int nvmlDeviceGetMaxMigDeviceCount(long gpu, unsigned *most) { *most = 7; return 0; }

int nvmlDeviceGetMigDeviceHandleByIndex(long gpu, unsigned i, long *part) {
    if (i >= (unsigned)atoi(getenv("STAND_IN_PARTS"))) return 6;
    *part = 1000 * (gpu - 100 + 1) + i;
    return 0;
}
"""

# The part of CuPy that is needed to enter and leave an array's device; every call goes to the driver.
_CUPY = """
import ctypes, threading
from types import SimpleNamespace
_driver = ctypes.CDLL("libcuda.so.1")

class CUDARuntimeError(RuntimeError): pass

def getDeviceCount():
    count = ctypes.c_int()
    code = _driver.cuInit(0) or _driver.cuDeviceGetCount(ctypes.byref(count))
    if code:
        raise CUDARuntimeError(f"error {code} of CUDA")
    return count.value

class Device:
    def __init__(self, id=1):
        self.id = id
    def __enter__(self): return self
    def __exit__(self, *exc): pass

memory = SimpleNamespace(OutOfMemoryError=type("OutOfMemoryError", (MemoryError,), {}))
driver = SimpleNamespace(CUDADriverError=type("CUDADriverError", (RuntimeError,), {}))
runtime = SimpleNamespace(
    getDeviceCount=getDeviceCount, setDevice=lambda i: getDeviceCount(), CUDARuntimeError=CUDARuntimeError
)
nvrtc = SimpleNamespace(NVRTCError=type("NVRTCError", (RuntimeError,), {}))
compiler = SimpleNamespace(CompileException=type("CompileException", (Exception,), {}))
cuda = SimpleNamespace(
    Device=Device, runtime=runtime, memory=memory, driver=driver, nvrtc=nvrtc, compiler=compiler
)
"""


class StandIn:
    """A machine with GPUs, for processes started on it.

    Parameters
    ----------
    folder
        Folder for its libraries, and its log.
    """

    def __init__(self, folder: Path) -> None:
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            pytest.skip("no C compiler to make the stand-in for NVIDIA's driver")
        self._folder = folder
        self._log = folder / "log"
        for name, code in (("libcuda.so.1", _CUDA), ("libnvidia-ml.so.1", _NVML)):
            command = [compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", str(folder / name), f"-Wl,-soname,{name}"]
            subprocess.run(command, input=_NOTE + code, text=True, check=True)
        packages = folder / "packages"
        (packages / "cupy").mkdir(parents=True)
        (packages / "cupy" / "__init__.py").write_text(_CUPY)

    def run(self, code: str, *, gpus: int = 2, **variables: str) -> str:
        """Run code in a separate process; return its output."""
        self._log.write_text("")
        done = subprocess.run(
            [sys.executable, "-W", "always", "-c", code],
            env=self._environment(gpus, variables),
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def callers(self, function: str) -> list[str]:
        """Return the processes of the last run that called a function, one per call."""
        calls = (line.partition(" ") for line in self._log.read_text().splitlines())
        return [process for process, _, called in calls if called == function]

    def _environment(self, gpus: int, variables: Mapping[str, str]) -> dict[str, str]:
        left_out = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NUMBA_ENABLE_CUDASIM")
        inherited = {name: value for name, value in os.environ.items() if name not in left_out}
        paths = [str(self._folder / "packages"), *(path for path in sys.path if path)]
        return {
            **inherited,
            "LD_LIBRARY_PATH": os.pathsep.join([str(self._folder), inherited.get("LD_LIBRARY_PATH", "")]).rstrip(":"),
            "PYTHONPATH": os.pathsep.join(paths),
            "XDG_CACHE_HOME": str(self._folder / "cache"),
            "STAND_IN_LOG": str(self._log),
            "STAND_IN_GPUS": str(gpus),
            **variables,
        }
