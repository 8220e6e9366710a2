"""The end of a process: threads that still write or load abort nothing; forked children get errors, and not a wait."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.loader import Rows

if TYPE_CHECKING:
    from pathlib import Path

START = """
import sys, threading, time, gzarr, numpy as np
v = gzarr.open_array(sys.argv[1], device="cpu")
x = v[...]
w, y = gzarr.array(x, chunks=5), gzarr.array(x, chunks=5)
def forever(work):
    def run():
        while True:
            work()
    for _ in range(3):
        threading.Thread(target=run, daemon=True).start()
"""
WORK = {
    "whole writes": "forever(lambda: w.__setitem__(slice(None), x))",
    "partial writes": "forever(lambda: w.__setitem__((slice(1, 13), slice(2, 9)), 1))",
    "reads": "forever(lambda: v[...])",
    "small reads": "forever(lambda: v[3:9, 4:12, 5])",
    "loader": "L = gzarr.Loader(v, gzarr.loader.Patches((8, 8, 8)), batch_size=2); forever(lambda: list(L))",
    "blocks": "forever(lambda: gzarr.map_blocks(lambda x: x + 1, v, out={}, block=8))",
}


@pytest.fixture(scope="module")
def volume(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exit") / "x"
    gzarr.create_array(path, data=np.ones((16, 16, 16), "u2"), chunks=8)
    return path


@pytest.mark.parametrize("work", WORK.values(), ids=WORK)
def test_daemon_threads_at_exit(work: str, volume: Path) -> None:
    program = f"{START}\n{work}\ntime.sleep(0.3)\nprint('end', flush=True)"
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", program, str(volume)], capture_output=True, text=True, timeout=120, check=False
        )
        assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr


AT_EXIT = {
    "large": "y.__setitem__(slice(None), 2); print(int(y[...].sum()))",
    "small": "y.__setitem__((slice(1, 13), slice(2, 9)), 2); print(int(y[1:13, 2:9].sum()))",
    "loader": "print(sum(len(b['data']) for b in gzarr.Loader(v, gzarr.loader.Patches((8, 8, 8)), batch_size=2)))",
    "blocks": "print(int(gzarr.map_blocks(lambda x: x + 1, v, out={}, block=8)[...].sum()))",
}
PRINTED = {"large": 2 * 16**3, "small": 2 * 12 * 7 * 16, "loader": 8, "blocks": 2 * 16**3}


@pytest.mark.parametrize(("what", "work"), [("large", work) for work in WORK] + [(what, "reads") for what in AT_EXIT])
def test_what_runs_at_exit_may_read_and_write(what: str, work: str, volume: Path) -> None:
    """Callbacks of the program run after gzarr's own, if they were registered before; no daemon thread stops them."""
    program = f"import atexit\ndef last():\n    {AT_EXIT[what]}\natexit.register(last)\n"
    program += f"{START}\n{WORK[work]}\ntime.sleep(0.3)"
    done = subprocess.run(
        [sys.executable, "-c", program, str(volume)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{PRINTED[what]}\n", "")


def test_a_compiler_that_runs_at_exit_ends_first() -> None:
    """Its threads would be ended in C++, which aborts; it is not begun anew."""
    program = """
import sys, threading, time
from gzarr.engines import kernels
def load():
    print("begins", flush=True)
    time.sleep(1)
    print("ends", flush=True)
for _ in range(3):
    threading.Thread(target=kernels._apart, args=(load,), daemon=True).start()
time.sleep(0.3)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "begins\nends\n"), done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("prefetch", [0, 2])
def test_an_iterator_of_the_parent_in_a_forked_child(prefetch: int, tmp_path: Path) -> None:
    a = gzarr.create_array(tmp_path / "x", data=np.ones((400, 8), "i4"), chunks=(10, 8), device="cpu")
    batches = iter(gzarr.Loader(a, Rows(), batch_size=2, buffer_bytes=1 << 16, prefetch=prefetch))
    next(batches)
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        try:
            next(batches)
        except gzarr.ArgumentError as error:
            os._exit(0 if "iterate the loader anew" in str(error) else 1)
        os._exit(2)
    begin = time.monotonic()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert time.monotonic() - begin < 50
    assert sum(1 for _ in batches) == 199


def test_many_fields() -> None:
    """Time grows with their number, and not with its square: 20 times as many take no more than 150 times as long."""

    def opened(n: int) -> float:
        fields = [[f"f{i}", "int8"] for i in range(n)]
        document: dict[str, Any] = {
            "zarr_format": 3,
            "node_type": "array",
            "shape": [8],
            "data_type": {"name": "structured", "configuration": {"fields": fields}},
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4]}},
            "chunk_key_encoding": {"name": "default"},
            "fill_value": base64.b64encode(b"\0" * n).decode(),
            "codecs": [{"name": "bytes"}],
        }
        store = {"zarr.json": json.dumps(document).encode()}
        begin = time.process_time()
        assert len(gzarr.open_array(store, device="cpu").dtype.names or ()) == n
        return time.process_time() - begin

    opened(1000)
    few = min(opened(1000) for _ in range(3))
    assert min(opened(20_000) for _ in range(2)) < 150 * few
