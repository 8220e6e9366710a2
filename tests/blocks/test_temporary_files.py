"""Labels where temporary files cannot be made or written: errors name the directory, which no caller has named."""

from __future__ import annotations

import errno
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import scipy.ndimage

from gzarr.blocks import label
from gzarr.errors import StoreError

DATA = np.random.default_rng(0).random((64, 64))


def cells(block: np.ndarray) -> np.ndarray:
    return scipy.ndimage.label(block > 0.6)[0]


WITH_FUNCTION = {"function": cells, "halo": 4, "block": 16}
OF_A_MASK = {"block": 4, "budget_bytes": 1000}


@pytest.mark.parametrize("options", [WITH_FUNCTION, OF_A_MASK], ids=["function", "mask"])
def test_no_temporary_directory(options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(StoreError, match=r"No such file or directory; free .*TMPDIR") as info:
        label(DATA > 0.6 if options is OF_A_MASK else DATA, **options)
    assert repr(str(tmp_path / "none")) in str(info.value)
    assert ("scratch=" if options is WITH_FUNCTION else "budget_bytes=") in str(info.value)
    assert info.value.errno == errno.ENOENT


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is full")
def test_faces_where_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda: Path("/dev/full").open("r+b"))  # noqa: SIM115
    with pytest.raises(StoreError, match=r"No space left on device; free .*TMPDIR.*budget_bytes="):
        label(DATA > 0.6, **OF_A_MASK)


@pytest.mark.skipif(sys.platform == "win32", reason="limits of POSIX")
@pytest.mark.parametrize("kind", ["labels", "masks"])
def test_results_of_a_function_where_there_is_no_room(kind: str, tmp_path: Path) -> None:
    program = """
import pickle, resource, sys, tempfile
import numpy as np, scipy.ndimage, gzarr
labels = lambda block: scipy.ndimage.label(block > 0.6)[0]
masks = lambda block: block > 0.6
data = np.random.default_rng(0).random((400, 400))
find = {"labels": labels, "masks": masks}[sys.argv[2]]
tempfile.tempdir = sys.argv[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
try:
    gzarr.blocks.label(data, function=find, halo=4, block=200)
except gzarr.errors.ChunkWriteError as error:
    sys.stdout.buffer.write(pickle.dumps(error))
"""
    command = [sys.executable, "-c", program, str(tmp_path), kind]
    error = pickle.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    (note,) = [note for note in error.__notes__ if "temporary directory" in note]
    assert f"{tmp_path}/gzarr-" in note
    assert "TMPDIR" in note
    assert "scratch=" in note
    assert list(tmp_path.iterdir()) == []
