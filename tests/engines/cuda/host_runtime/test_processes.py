"""The device in host memory over the life of a process: switched on, forked, ended."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from support import cuda_on_host

pytestmark = pytest.mark.skipif(
    bool(cuda_on_host.why_not()), reason=cuda_on_host.why_not() or "there is CUDA in host memory"
)


def run(code: str, seconds: int = 100) -> str:
    done = subprocess.run(
        # From Python 3.12 on, forks beside other threads are warned of.
        [sys.executable, "-W", "ignore:This process:DeprecationWarning", "-c", code],
        capture_output=True,
        text=True,
        timeout=seconds,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr, done.stderr
    return done.stdout


IN_A_CHILD = """
import os
from support import cuda_on_host
import ctypes
cuda = cuda_on_host.install()
from cupy.cuda import runtime
driver = ctypes.CDLL("libcuda.so.1")
count = ctypes.c_int()
assert driver.cuDeviceGetCount(ctypes.byref(count)) == 3  # before cuInit
USE
child = os.fork()
if not child:
    try:
        runtime.memGetInfo()
        print("works", flush=True)
    except runtime.CUDARuntimeError as error:
        print(error.status, driver.cuInit(0), driver.cuDeviceGetCount(ctypes.byref(count)), flush=True)
    os._exit(0)
os.waitpid(child, 0)
runtime.memGetInfo()
"""


def test_a_child_cannot_use_what_its_parent_has_initialised() -> None:
    assert run(IN_A_CHILD.replace("USE", "import cupy; a = cupy.zeros(10)")) == "3 3 3\n"


def test_a_child_can_use_what_its_parent_has_not() -> None:
    assert run(IN_A_CHILD.replace("USE", "")) == "works\n"


def test_work_that_is_pending_at_the_end() -> None:
    code = """
from support import cuda_on_host
cuda = cuda_on_host.install()
import cupy
cuda.seed(1, late_ms=100_000)
stream = cupy.cuda.Stream(non_blocking=True)
with stream:
    a = cupy.zeros(1000)
    for i in range(100):
        a.data.memset_async(1, 8000, stream)
b = cupy.cuda.PinnedMemory(100)
print("ends")
"""
    assert run(code) == "ends\n"


def test_it_is_the_same_when_installed_again_and_nothing_before() -> None:
    code = """
import sys
from support import cuda_on_host
assert "cupy" not in sys.modules and "cupy_backends" not in sys.modules
assert "libcuda" not in open("/proc/self/maps").read()
assert cuda_on_host.install() is cuda_on_host.install()
import cupy
assert cupy.get_default_memory_pool().total_bytes() == 0
a = cupy.zeros(100)
assert cupy.get_default_memory_pool().used_bytes() == 1024
print("right")
"""
    assert run(code) == "right\n"


COLLECTED_ON_A_STREAM = """
import gc
from support import cuda_on_host
cuda = cuda_on_host.install()
import cupy
from cupy.cuda import runtime
first, other = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
memory = cupy.zeros(10, "u1")
cupy.cuda.Device().synchronize()
before, told = cuda.live(), []

class Cycle:
    def __init__(self):
        self.me = self
        self.memories = cupy.cuda.PinnedMemory(100), cupy.cuda.Memory(100)

def collect(_):
    gc.collect()
    now = cuda.live() - before
    told.append((now.pinned, now.device))
    for wait in (other.synchronize, cupy.cuda.Device().synchronize):
        try:
            wait()
        except runtime.CUDARuntimeError as error:
            told.append(error.status)

gc.disable()
Cycle()
first.launch_host_func(collect, None)
# The other stream waits for the one that collects.
other.wait_event(first.record())
memory.data.memset_async(1, 10, other)
other.synchronize()
print(told, cuda.live() - before, cuda.notes())
"""


def test_garbage_may_be_collected_on_a_stream_s_thread() -> None:
    """What is freed there lives until all work is done: the thread cannot wait for itself, nor for who waits for it."""
    left = cuda_on_host.device.Leaks(0, 0, 0, 0, 0, 0)
    assert run(COLLECTED_ON_A_STREAM, seconds=30) == f"[(1, 1), 800, 800] {left} []\n"
