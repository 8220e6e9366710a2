"""Ctrl-C at any moment of a read or a write: nothing runs on with memory that is gone, and no lock stays taken."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

HEAD = """
import os, signal, sys, threading, time
import numpy as np
import gzarr
from gzarr.engines import pool

os.environ["GZARR_THREADS"] = "2"
"""
# Two helpers, of which one is long: the caller is interrupted while it waits for the other.
WAITING = """
# Who runs the tests in the background of a shell has interrupts ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
state = []
def worker(i):
    if i:
        time.sleep(1)
        state.append("ended")
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    pool.run(worker, 2)
except KeyboardInterrupt:
    assert state == ["ended"], state
    print("fine")
"""
STORM = """
a = gzarr.create_array(sys.argv[1], shape=(64, 64), chunks=(8, 8), dtype="i4", device="cpu")
a[...] = 0
data = np.ones((64, 64), "i4")
end = time.monotonic() + 3
def interrupt(*_):
    raise KeyboardInterrupt
signal.signal(signal.SIGALRM, interrupt)
interrupted = 0
while time.monotonic() < end:
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0005 + 0.003 * np.random.random())
        a[3:50, 2:60] = data[3:50, 2:60]
        a[...]
    except KeyboardInterrupt:
        interrupted += 1
    except gzarr.GzarrError as error:
        assert "KeyboardInterrupt" in str(error), error
        interrupted += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
a[...] = data
assert (a[...] == 1).all()
assert interrupted > 20, interrupted
print("fine", flush=True)
# The interpreter joins its threads at exit, and the standard library's own locks are not made for such a storm.
os._exit(0)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize("script", [WAITING, STORM], ids=["waiting", "storm"])
def test_interrupts(script: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", HEAD + script, str(tmp_path / "a.zarr")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip().endswith("fine"), done.stderr[-2000:]
