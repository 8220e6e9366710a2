"""Threads, and forks, while another thread uses something of gzarr for the first time, and so imports it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

import gzarr
from gzarr.guarded import ForkSafeLock

if TYPE_CHECKING:
    from pathlib import Path

# Each child does what the thread has begun. One that has been left in an import is ended by the signal.
PROGRAM = """
import os, signal, sys, threading, time
import gzarr, numpy
{before}

def work():
    {work}

thread = threading.Thread(target=work)
thread.start()
children = []
while thread.is_alive() and len(children) < 8:
    time.sleep(0.01)
    begun = time.perf_counter()
    if not (pid := os.fork()):
        signal.alarm(10)
        work()
        os._exit(0)
    children.append(pid)
    assert time.perf_counter() - begun < 4, "the fork has waited in vain"
thread.join()
print([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.parametrize(
    ("work", "before"),
    [
        ("gzarr.create_array({}, data=numpy.arange(10))", "import logging, fsspec"),
        ("gzarr.copy({'.zgroup': b'{\"zarr_format\": 2}'}, {})", ""),
    ],
    ids=["create", "copy"],
)
def test_children_do_not_wait_for_imports_of_other_threads(work: str, before: str) -> None:
    """Whatever was imported after gzarr has its locks taken first in a fork."""
    code = PROGRAM.replace("{work}", work).replace("{before}", before)
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=100)
    # The lock of logging, if it is imported during a fork, is not taken in it.
    told = [
        line
        for line in done.stderr.splitlines()
        if line.startswith("Exception ignored in: ") and "_releaseLock" not in line
    ]
    assert (done.returncode, told) == (0, []), done.stderr
    codes = done.stdout.strip()
    assert codes == str([0] * codes.count("0")), codes
    assert codes != "[]"


def test_imports_that_gzarr_has_not_begun_are_not_waited_for(tmp_path: Path) -> None:
    """A function of blocks may fork, also in a program that is run by importing it."""
    (tmp_path / "job.py").write_text(
        "import os, sys, threading, time\nimport gzarr, numpy as np\n"
        "def work(block):\n"
        "    begun = time.perf_counter()\n"
        "    pid = os.fork()\n"
        "    if not pid:\n        os._exit(0)\n"
        "    os.waitpid(pid, 0)\n"
        "    print(time.perf_counter() - begun)\n"
        "    return block\n"
        "gzarr.map_blocks(work, gzarr.array(np.arange(4), chunks=4), out={})\n"
    )
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import job"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert 0 < max(map(float, done.stdout.split())) < 4


def test_a_lock_that_is_made_during_a_fork_stays_with_its_owner() -> None:
    made: list[ForkSafeLock] = []
    forks, ends = threading.Event(), threading.Event()

    def own() -> None:
        forks.wait()
        lock = ForkSafeLock()
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


def test_threads_import_a_codec_at_once(tmp_path: Path) -> None:
    """The first write of a process decodes a chunk in one thread, and encodes another in the other."""
    # The first shard is not there yet.
    values = np.repeat([False, True], 8)
    gzarr.create_array(tmp_path, data=values, chunks=4, shards=8, codecs=["bytes", "zstd"])
    code = "import gzarr, sys; gzarr.open_array(sys.argv[1], mode='r+').vindex[[2, 9]] = [True, False]"
    done = subprocess.run([sys.executable, "-c", code, tmp_path], env={**os.environ, "GZARR_THREADS": "2"}, check=False)
    assert done.returncode == 0
    values[[2, 9]] = True, False
    assert gzarr.load(tmp_path).tolist() == values.tolist()
