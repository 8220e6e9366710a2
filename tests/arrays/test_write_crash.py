"""Writes that end badly, and troublesome values: stored values stay readable, and errors tell what was written.

Stores under kills and failures of single calls are in ``test_durability.py``; these tests are for arrays.
"""

from __future__ import annotations

import errno
import itertools
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from support import writers as w

import gzarr
from gzarr.stores import LocalStore

pytestmark = pytest.mark.slow

TEMPORARY = ".gzarr-temporary-"
PROJECT = Path(__file__).parents[2]
#: A child is killed at most so long after it has begun; longer, where it had nothing written by then.
FIRST_S = 0.02
LONGER = 1.3


def temporaries(path: Path) -> list[Path]:
    return list(path.rglob(TEMPORARY + "*"))


def keys(path: Path) -> set[str]:
    return set(LocalStore(path).list())


# -- killed


STORED = [np.s_[row : row + 4, column : column + 32] for row in range(0, 16, 4) for column in range(0, w.WIDTH, 32)]


@pytest.mark.parametrize("lock", [False, True], ids=["", "locked"])
@pytest.mark.parametrize("layout", ["chunks", "raw chunks", "shards", "raw shards"])
def test_killed_while_everything_is_rewritten(layout: str, lock: bool, tmp_path: Path) -> None:
    """Each chunk and shard is unchanged or of one of the child's generations, and so are the group's attributes."""
    group = gzarr.create_group(tmp_path)
    array = w.make(tmp_path / "a", layout)
    block = w.LAYOUTS[layout]["chunks"]
    possible = keys(tmp_path) | {f"a/c/{i}/{j}" for i in range(4) for j in range(2)}
    before = w.stamp(1, array.shape, block)
    array[...] = before
    group.attrs["generation"] = generation = 1
    rng = random.Random(layout)
    kills, changed, at_most_s = 0, 0, FIRST_S
    while kills < 12 or changed < 3:
        recent = range(2 + 30 * kills, 32 + 30 * kills)
        stamps = {g: w.stamp(g, array.shape, block) for g in recent}

        def write(stamps: dict[int, np.ndarray[Any, Any]] = stamps) -> None:
            for generation, value in itertools.cycle(stamps.items()):
                group.attrs["generation"] = generation
                array.write(..., value, lock=lock)
                # Parts of chunks and shards, with what they hold already.
                array.write(np.s_[2:7, 5:50], value[2:7, 5:50], lock=lock)

        w.kill_at_random(write, at_most_s, rng)
        kills += 1
        assert keys(tmp_path) <= possible
        found = gzarr.open_array(tmp_path, path="a", device="cpu")[...]
        for value in STORED:
            assert any((found[value] == known[value]).all() for known in (before, *stamps.values()))
        if (found != before).any():
            changed += 1
        else:
            at_most_s *= LONGER
        said = gzarr.open_group(tmp_path, device="cpu").attrs["generation"]
        assert said in (generation, *recent)
        before, generation = found, said
    w.in_processes([lambda: array.write(..., w.stamp(2, array.shape, block), lock=lock)])
    assert not temporaries(tmp_path / "a" / "c")
    np.testing.assert_array_equal(array[...], w.stamp(2, array.shape, block))
    np.testing.assert_array_equal(np.asarray(zarr.open_array(tmp_path / "a", mode="r")[...]), array[...])


@pytest.mark.parametrize("layout", ["chunks", "shards"])
def test_killed_while_appending(layout: str, tmp_path: Path) -> None:
    """All rows within the shape are there; the next append continues after them."""
    array = w.make(tmp_path, layout, rows=0)
    rng = random.Random(1)
    rows, kills, at_most_s = 0, 0, FIRST_S
    while kills < 25 or rows < 12:

        def append(rows: int = rows) -> None:
            for begin in itertools.count(rows, 3):
                array.append(np.arange(begin + 1, begin + 4)[:, None] * np.ones(w.WIDTH, "i4"))

        w.kill_at_random(append, at_most_s, rng)
        kills += 1
        opened = gzarr.open_array(tmp_path, device="cpu")
        assert opened.shape[0] >= rows
        assert opened.shape[0] % 3 == 0
        if opened.shape[0] == rows:
            at_most_s *= LONGER
        rows = opened.shape[0]
        expected = np.arange(1, rows + 1, dtype="i4")[:, None] * np.ones(w.WIDTH, "i4")
        np.testing.assert_array_equal(opened[...], expected)
    # This array was opened when there were none, and knows nothing of what children have done.
    assert array.append(np.full((1, w.WIDTH), -1)) == (rows + 1, w.WIDTH)
    np.testing.assert_array_equal(np.asarray(zarr.open_array(tmp_path, mode="r")[:-1]), expected)


@pytest.mark.parametrize("layout", ["chunks", "shards"])
def test_killed_while_resizing(layout: str, tmp_path: Path) -> None:
    """Elements within the smaller shape stay; those cut off are unchanged or gone, as long as nobody writes."""
    shapes = [(16, w.WIDTH), (6, 40), (16, 23)]
    array = w.make(tmp_path, layout)
    whole = np.arange(1, array.size + 1, dtype="i4").reshape(array.shape)
    rng = random.Random(2)
    kills, seen, at_most_s = 0, set(), FIRST_S
    while kills < 25 or len(seen) < 2:
        array.resize(shapes[0])
        array[...] = whole

        def resize() -> None:
            for shape in itertools.cycle(shapes[1:]):
                array.resize(shape)

        w.kill_at_random(resize, at_most_s, rng)
        kills += 1
        opened = gzarr.open_array(tmp_path, mode="r+", device="cpu")
        seen.add(opened.shape)
        if opened.shape == shapes[0]:
            at_most_s *= LONGER
        assert opened.shape in shapes
        found = opened[...]
        expected = whole[tuple(map(slice, opened.shape))]
        # Which of the shapes it has been meanwhile is not known; this is in all of them.
        np.testing.assert_array_equal(found[:6, :23], expected[:6, :23])
        assert ((found == expected) | (found == 0)).all()
        array.resize(shapes[0])
        found = array[...]
        np.testing.assert_array_equal(found[:6, :23], whole[:6, :23])
        assert ((found == whole) | (found == 0)).all()


# -- refused in the middle


def incompressible(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).integers(-(2**31), 2**31, shape).astype("i4")


def check_what_was_written(error: gzarr.ChunkWriteError, path: Path, old: int, new: np.ndarray[Any, Any]) -> None:
    """Check that the message gives the number of new stored values, and that all others are unchanged."""
    counts = re.search(r"(\d+) of (\d+) stored values were written before; the others are unchanged", str(error))
    assert counts is not None
    found = gzarr.open_array(path, device="cpu")[...]
    written = 0
    for value in STORED:
        is_new = bool((found[value] == new[value]).all())
        assert is_new or (found[value] == old).all()
        written += is_new
    assert (int(counts[1]), int(counts[2])) == (written, 8)
    assert written < 8


@pytest.mark.parametrize("threads", ["1", "3"])
@pytest.mark.parametrize("layout", ["chunks", "shards", "shards of a codec in threads"])
def test_no_room_for_some(layout: str, threads: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files larger than a limit are refused, like all files on a full disk; one stored value does not compress."""
    monkeypatch.setenv("GZARR_THREADS", threads)
    array = w.make(tmp_path, layout)
    array[...] = 5
    new = np.full(array.shape, 6, "i4")
    new[8:12, 32:] = incompressible((4, 32))
    nbytes = max(p.stat().st_size for p in (tmp_path / "c").rglob("*") if p.is_file()) + 50

    def write() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, resource.RLIM_INFINITY))
        with pytest.raises(gzarr.ChunkWriteError, match="File too large") as caught:
            array[...] = new
        assert caught.value.key == "c/2/1"
        assert caught.value.errno == errno.EFBIG
        check_what_was_written(caught.value, tmp_path, 5, new)
        assert temporaries(tmp_path) == []

    w.in_processes([write])
    array[...] = new
    np.testing.assert_array_equal(array[...], new)


@pytest.mark.parametrize("layout", ["chunks", "shards"])
def test_what_was_written_as_a_whole_is_counted_where_a_part_fails(layout: str, tmp_path: Path) -> None:
    array = w.make(tmp_path, layout)
    array[...] = 5
    # Of the last row of stored values, the last element stays.
    (tmp_path / "c" / "3" / "1").unlink()
    (tmp_path / "c" / "3" / "1" / "in the way").mkdir(parents=True)
    with pytest.raises(gzarr.ChunkWriteError, match="7 of 8 stored values were written before") as caught:
        array.write_many([np.s_[:12], np.s_[12:, :32], np.s_[12:15, 32:]], [6, 6, 6])
    assert caught.value.key == "c/3/1"
    shutil.rmtree(tmp_path / "c" / "3" / "1")
    found = array[...]
    assert (found[:12] == 6).all()
    assert (found[12:, :32] == 6).all()
    assert (found[12:, 32:] == 0).all()


@pytest.mark.parametrize("part", [False, True], ids=["whole", "part"])
@pytest.mark.parametrize("layout", ["chunks", "shards"])
def test_a_directory_in_the_place_of_a_stored_value(layout: str, part: bool, tmp_path: Path) -> None:
    array = w.make(tmp_path, layout)
    new = np.full(array.shape, 6, "i4")
    array[...] = 5
    (tmp_path / "c" / "1" / "1").unlink()
    (tmp_path / "c" / "1" / "1" / "in the way").mkdir(parents=True)
    selection = np.s_[1:15, 1:63] if part else np.s_[...]
    with pytest.raises(gzarr.ChunkWriteError, match="directory") as caught:
        array[selection] = 6
    assert (caught.value.node, caught.value.key) == ("/", "c/1/1")
    assert temporaries(tmp_path) == []
    found = gzarr.open_array(tmp_path, device="cpu")[...]
    assert np.isin(np.delete(found, np.s_[4:8], axis=0), [5, 6]).all()
    shutil.rmtree(tmp_path / "c" / "1" / "1")
    array[...] = new
    np.testing.assert_array_equal(array[...], new)


def test_a_failing_append_or_resize_changes_nothing_that_is_there(tmp_path: Path) -> None:
    array = w.make(tmp_path, "chunks", rows=6)
    array[...] = 5
    (tmp_path / "c" / "2" / "0" / "in the way").mkdir(parents=True)
    with pytest.raises(gzarr.ChunkWriteError):
        array.append(np.full((6, w.WIDTH), 7))
    for opened in (array, gzarr.open_array(tmp_path, device="cpu")):
        assert opened.shape == (6, w.WIDTH)
        assert (opened[...] == 5).all()
    shutil.rmtree(tmp_path / "c" / "2")
    assert array.append(np.full((6, w.WIDTH), 7)) == (12, w.WIDTH)
    assert (array[6:] == 7).all()


# -- values that are trouble


def test_values_that_share_memory_with_each_other_and_with_the_store(tmp_path: Path) -> None:
    array = w.make(tmp_path, "raw chunks")
    data = np.arange(16 * w.WIDTH, dtype="i4").reshape(16, w.WIDTH)
    array[...] = data
    # Overlapping windows of one buffer, and the array itself, moved by one.
    array.write_many([np.s_[1:], np.s_[:-1]], [data[:-1], data[1:]])
    expected = np.concatenate([data[1:], data[-2:-1]])
    np.testing.assert_array_equal(array[...], expected)
    array[1:] = array[:-1]
    expected[1:] = expected[:-1].copy()
    np.testing.assert_array_equal(array[...], expected)
    array[::-1] = data
    np.testing.assert_array_equal(array[...], data[::-1])
    # The stored bytes themselves: while one chunk is replaced, those of another are read from what was there before.
    stored = [np.memmap(tmp_path / "c" / str(i) / "0", "i4", "r", shape=(4, 32)) for i in range(4)]
    before = array[...]
    array.write_many([np.s_[4 * (3 - i) : 4 * (3 - i) + 4, :32] for i in range(4)], stored)
    expected = before.copy()
    expected[:, :32] = before.reshape(4, 4, w.WIDTH)[::-1].reshape(16, w.WIDTH)[:, :32]
    np.testing.assert_array_equal(array[...], expected)
    # A value that is read-only, of no order, or of strides of 0 is only read.
    value = np.broadcast_to(np.arange(16, dtype="i4")[:, None], (16, w.WIDTH))
    array[...] = value
    np.testing.assert_array_equal(array[...], value)
    expected = value.copy()
    array.oindex[np.arange(15, -1, -1), ::2] = value[:, ::2]
    expected[::-1, ::2] = value[:, ::2]
    mask = np.asfortranarray(expected % 3 == 1)
    array.vindex[mask] = np.broadcast_to(np.int32(-1), mask.sum())
    expected[mask] = -1
    np.testing.assert_array_equal(array[...], expected)


MEMORY = """
import sys
sys.path[:0] = [{project!r}, {kernels!r}, {tests!r}]
import numpy as np
import gzarr
from support.peak_memory import peak_nbytes

def writable(name, n, **options):
    return gzarr.create_array({root!r} + name, shape=(n, 1024), dtype="f8", device="cpu", fill_value=0, **options)

for layout, options in (
    ("chunks", {{"chunks": (128, 1024)}}),
    ("shards", {{"chunks": (32, 1024), "shards": (128, 1024)}}),
):
    small = writable(layout + " small", 512, **options)
    small[...] = 1.5
    small[1:-1] = 1
    small.vindex[[0, 1], [0, 1]] = 2
    large = writable(layout, 32768, **options)
    row = np.arange(1024.0)
    before = peak_nbytes()
    large[...] = 1.5
    large[1:-1, 1:] = 2
    large[...] = row
    large[1:-1] = np.float32(3)
    print(layout, (peak_nbytes() - before) / 2**20)
    assert large[5, 7] == 3 and large[0, 7] == 7
"""


def test_values_that_are_broadcast_stay_small(tmp_path: Path) -> None:
    """A number and a row are broadcast to 256 MiB; memory holds only a few chunks of 1 MiB."""
    paths = {"project": str(PROJECT), "kernels": str(PROJECT / "kernels"), "tests": str(PROJECT / "tests")}
    code = MEMORY.format(**paths, root=f"{tmp_path}/")
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=100, env={"GZARR_THREADS": "2"}
    )
    assert done.returncode == 0, done.stderr[-4000:]
    grown = dict(line.split() for line in done.stdout.splitlines())
    assert set(grown) == {"chunks", "shards"}
    # 64 MiB and a chunk a thread.
    assert all(float(mebibytes) <= 64 + 2 for mebibytes in grown.values()), grown
