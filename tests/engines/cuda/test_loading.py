"""Kernels are compiled once for all processes, and each process reports a long wait once."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import TYPE_CHECKING

from gzarr.engines import kernels

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

#: Reads and writes by all loops, and tells how often Numba's compiler has run.
USE = """
import sys
import numpy as np
from numba.core import event

class Passes(event.Listener):
    count = 0
    def on_start(self, event): self.count += 1
    def on_end(self, event): pass

passes = Passes()
event.register("numba:run_pass", passes)

import gzarr
from gzarr.engines import kernels

kernels.load(), kernels.load_writer()
values = np.arange(6000, dtype="<u2").reshape(60, 100)
little = {"name": "bytes", "configuration": {"endian": "little"}}

def named(name, **configuration):
    return {"name": name, "configuration": configuration}

def blosc(cname, shuffle):
    return named("blosc", cname=cname, clevel=5, shuffle=shuffle, typesize=2, blocksize=0)

chains = [
    [little],
    [named("bytes", endian="big"), named("gzip", level=1)],
    [named("transpose", order=[1, 0]), little, named("zstd", level=1, checksum=True), {"name": "crc32c"}],
    [little, blosc("lz4", "shuffle")],
    [little, blosc("zstd", "bitshuffle")],
]
for number, codecs in enumerate(chains):
    for more in ({}, {"shards": (40, 100)}):
        path = f"{sys.argv[1]}/{number}-{len(more)}"
        a = gzarr.create_array(path, shape=(60, 100), dtype="<u2", chunks=(20, 50), codecs=codecs, device="cpu", **more)
        a[...] = values
        a[3:30, ::7] = 9
        expected = values.copy()
        expected[3:30, ::7] = 9
        a = gzarr.open_array(path, device="cpu")
        assert (a[...] == expected).all()
        assert (a[::-3, 5:70:2] == expected[::-3, 5:70:2]).all()
        assert (a.oindex[[3, 50, 7], [1, 1, 99]] == expected[np.ix_([3, 50, 7], [1, 1, 99])]).all()
        assert (a.vindex[[3, 50, 7], [1, 1, 99]] == expected[[3, 50, 7], [1, 1, 99]]).all()

before = passes.count
import numba
numba.njit("int64(int64)")(lambda x: x + 1)
assert passes.count > before, "the compiler's work is not seen"
print(before)
"""


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    for turn in ("first", "second"):
        (tmp_path / turn).mkdir()
        done = subprocess.run(
            [sys.executable, "-c", USE, str(tmp_path / turn)], capture_output=True, text=True, timeout=110
        )
        assert done.returncode == 0, done.stderr
    assert done.stdout == "0\n"


def wait_for_notices() -> None:
    """Wait for the threads that report long waits."""
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.join()


def test_what_takes_long_is_said_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(kernels, "_said", False)
    monkeypatch.setattr(kernels, "_PATIENCE_SECONDS", 1000.0)
    with kernels.compiling("kernels"):
        pass
    wait_for_notices()
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(kernels, "_PATIENCE_SECONDS", 0.0)
    with kernels.compiling("device kernels"):
        wait_for_notices()
    text = capsys.readouterr().err
    assert text.startswith("gzarr: loading its device kernels; ")
    assert text.count("\n") == 1
    for what in ("kernels", "device kernels"):
        with kernels.compiling(what), kernels.compiling(what):
            wait_for_notices()
    assert capsys.readouterr().err == ""


def test_a_program_without_stderr(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(kernels, "_said", False)
    monkeypatch.setattr(sys, "stderr", None)
    kernels._say_so("kernels")
    assert capsys.readouterr() == ("", "")
