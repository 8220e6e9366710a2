"""Forks while another thread uses something of gzarr for the first time, and so imports it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

from gzarr.guarded import ForkSafeLock, RLock

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")

# Each child does what the thread has begun. One that has been left in an import is ended by the signal.
PROGRAM = """
import os, signal, threading, time
import logging, numpy
import gzarr

def work():
    {work}

thread = threading.Thread(target=work)
thread.start()
children = []
while thread.is_alive() and len(children) < 8:
    time.sleep(0.01)
    if not (pid := os.fork()):
        signal.alarm(10)
        work()
        os._exit(0)
    children.append(pid)
thread.join()
print([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children])
"""


@pytest.mark.parametrize(
    "work",
    ["gzarr.create_array({}, data=numpy.arange(10))", "gzarr.copy({'.zgroup': b'{\"zarr_format\": 2}'}, {})"],
    ids=["create", "copy"],
)
def test_children_do_not_wait_for_imports_of_other_threads(work: str) -> None:
    code = PROGRAM.replace("{work}", work)
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")
    codes = done.stdout.strip()
    assert codes == str([0] * codes.count("0")), codes
    assert codes != "[]"


@pytest.mark.parametrize("make", [threading.Lock, RLock], ids=["lock", "reentrant"])
def test_a_lock_that_is_made_during_a_fork_stays_with_its_owner(make: type) -> None:
    made: list[ForkSafeLock] = []
    forks, ends = threading.Event(), threading.Event()

    def own() -> None:
        forks.wait()
        lock = ForkSafeLock(make)
        with lock.lock:
            made.append(lock)
            ends.wait()

    owner = threading.Thread(target=own)

    def before() -> None:
        forks.set()
        while owner.is_alive() and not made:
            time.sleep(0.001)

    owner.start()
    os.register_at_fork(before=before)
    if not (pid := os.fork()):
        os._exit(0)
    os.waitpid(pid, 0)
    taken = made[0].lock.acquire(blocking=False)
    ends.set()
    owner.join()
    assert not taken
