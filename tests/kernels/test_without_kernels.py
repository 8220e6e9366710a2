"""An installation without compiled kernels, and without a Numba to compile them: slower, not wrong, and it says so."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

import gzarr

if TYPE_CHECKING:
    from pathlib import Path

#: As if Numba were not installed. The kernels of an editable installation are compiled by it.
WITHOUT = """
import importlib.util, sys
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "numba" else found(name, package)
sys.modules["numba"] = sys.modules["llvmlite"] = None
"""
#: As if another installation had changed NumPy since.
BROKEN = """
import importlib.abc, importlib.machinery, sys
class Refusing(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self) if name == "numba" else None
    def exec_module(self, module):
        raise ImportError("Numba needs NumPy 2.1 or less. Got NumPy 2.2.")
sys.meta_path.insert(0, Refusing())
"""
#: What most users do; loaders and blocks have compiled loops of their own.
PROGRAM = """
import sys
import gzarr, numpy as np
a = gzarr.open_array(sys.argv[1])
values = np.arange(10_000, dtype="i4").reshape(100, 100)
assert (a[...] == values).all() and (a[3:50:7, ::-1] == values[3:50:7, ::-1]).all()
assert (a.read_windows([[0, 0], [50, 20]], (5, 5))[1] == values[50:55, 20:25]).all()
b = gzarr.create_array(sys.argv[1] + "/b", data=values, chunks=(30, 30), shards=(60, 60), compressors="blosc")
b[5:40, 7] = 1
values[5:40, 7] = 1
assert (b[...] == values).all()
for batch in gzarr.Loader(a, batch_size=10):
    assert (batch["data"] // 100 == batch.samples[:, None]).all()
c = gzarr.create_array(sys.argv[1] + "/c", shape=(100, 100), chunks=(30, 30), dtype="i4")
gzarr.map_blocks(lambda x: x + 1, b, out=c)
assert (c[...] == values + 1).all()
print("right")
"""


@pytest.fixture
def written(tmp_path: Path) -> Path:
    data = np.arange(10_000, dtype="i4").reshape(100, 100)
    gzarr.create_array(tmp_path / "a.zarr", data=data, chunks=(30, 30), compressors="blosc")
    return tmp_path / "a.zarr"


def run(*arguments: str, code: str = "", without: str = WITHOUT) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name not in ("GZARR_KERNELS", "GZARR_JIT")}
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", without + code, *arguments],
        env=environment, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def test_everything_works_and_one_line_says_what_is_missing(written: Path) -> None:
    done = run(str(written), code=PROGRAM)
    assert done.stdout == "right\n", done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("gzarr: this installation has no compiled kernels for this machine")
    assert "pip install 'gzarr[jit]'" in line


def test_the_same_with_a_numba_that_cannot_be_imported(written: Path) -> None:
    done = run(str(written), code=PROGRAM, without=BROKEN)
    assert done.stdout == "right\n", done.stderr
    (line,) = done.stderr.splitlines()
    assert "cannot be imported (Numba needs NumPy 2.1 or less. Got NumPy 2.2.)" in line
    assert "pip install" not in line
    done = run("doctor", code="from gzarr.cli.main import main\nraise SystemExit(main(sys.argv[1:]))", without=BROKEN)
    assert "Got NumPy 2.2." in done.stdout
    assert "compiled here by Numba" not in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_the_doctor_says_so(written: Path) -> None:
    done = run("doctor", code="from gzarr.cli.main import main\nraise SystemExit(main(sys.argv[1:]))")
    assert "this installation has no compiled kernels" in done.stdout
    assert "'gzarr[jit]'" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_what_only_compiled_code_does_is_refused(written: Path) -> None:
    code = """
import gzarr
a = gzarr.open_array(sys.argv[1])
try:
    gzarr.ome.create(sys.argv[1] + "/image", a, axes="yx", levels=2)
except gzarr.ArgumentError as error:
    print(error)
"""
    done = run(str(written), code=code)
    assert "this needs compiled code" in done.stdout, done.stderr
    assert "pip install 'gzarr[jit]'" in done.stdout
