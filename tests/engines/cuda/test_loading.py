"""Kernels are compiled once for all processes, and each process reports a long wait once."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from gzarr.engines import kernels

if TYPE_CHECKING:
    from pathlib import Path

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

kernels.load(), kernels.entry("write", "work")
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


def test_a_compilation_is_said_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(kernels, "_said", False)
    for what in ("device kernels", "kernels", "device kernels"):
        kernels.announce_compilation(what)
    text = capsys.readouterr().err
    assert text.startswith("gzarr: compiling its device kernels for this machine")
    assert text.count("\n") == 1


def test_a_program_without_stderr(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    closed = io.StringIO()
    closed.close()
    for stream in (None, closed):
        monkeypatch.setattr(kernels, "_said", False)
        monkeypatch.setattr(sys, "stderr", stream)
        kernels.announce_compilation("kernels")
    assert capsys.readouterr() == ("", "")


#: A kernel, and a program that calls it and says whether it was compiled.
KERNEL = """
from gzarr_kernels.jit import entry
from gzarr_kernels.memory import i64

@entry(2)
def fill(address: int, value: int) -> None:
    for i in range(100):
        i64(address)[i] = value + i
"""
CALL = """
import numpy as np
from gzarr_kernels import compiled
said = []
compiled.notices.append(lambda: said.append(1))
import kernel_of_this_test
values = np.zeros(100, np.int64)
kernel_of_this_test.fill(values.ctypes.data, 7)
assert (values == 7 + np.arange(100)).all()
print(len(said))
"""
CALL_OTHER = """
import other_kernel
other_kernel.fill(values.ctypes.data, 9)
assert (values == 9 + np.arange(100)).all()
print(len(said))
"""

#: Stand for Numba without a folder in which it can write a cache, and for a full disk.
NO_FOLDER = "c.CacheImpl._locator_classes = []"
FULL_DISK = """
def save(*arguments):
    raise OSError(28, "No space left on device")
c.IndexDataCacheFile.save = save
"""


@pytest.mark.parametrize("fault", [NO_FOLDER, FULL_DISK], ids=["no folder", "full disk"])
def test_without_a_cache_a_process_compiles_for_itself_and_says_so_once(fault: str, tmp_path: Path) -> None:
    for name in ("kernel_of_this_test", "other_kernel"):
        (tmp_path / f"{name}.py").write_text(KERNEL)
    code = f"import numba.core.caching as c\n{fault}\nimport gzarr.engines.kernels\n{CALL}\n{CALL_OTHER}"
    environment = os.environ | {
        "GZARR_JIT": "1",
        "NUMBA_CACHE_DIR": str(tmp_path / "cache"),
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]),
    }
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
        )
        assert (done.returncode, done.stdout) == (0, "1\n2\n"), done.stderr
        assert done.stderr.count("compiling its kernels") == len(done.stderr.splitlines()) == 1


def test_many_processes_fill_one_cache(tmp_path: Path) -> None:
    (tmp_path / "kernel_of_this_test.py").write_text(KERNEL)
    environment = os.environ | {
        "NUMBA_CACHE_DIR": str(tmp_path / "cache"),
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]),
    }

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen([sys.executable, "-c", CALL], env=environment, stdout=subprocess.PIPE, text=True)

    together = [start() for _ in range(6)]
    assert {process.communicate()[0] for process in together} <= {"0\n", "1\n"}
    assert not any(process.returncode for process in together)
    assert start().communicate()[0] == "0\n"
    # Damaged files are as if there were none.
    for suffix in (".nbc", ".nbi"):
        (path,) = (tmp_path / "cache").rglob(f"*{suffix}")
        path.write_bytes(path.read_bytes()[:-20])
        process = start()
        assert (process.communicate()[0], process.returncode) == ("1\n", 0)
