"""Memory of large results: its location, its content, how much of it is kept, and that no other memory is touched."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr

import gzarr
from gzarr.engines import result_memory
from gzarr.engines.result_memory import ALIGNED_BYTES, HUGE_PAGE_BYTES, LARGE_BYTES, MALLOC_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 1 << 20
U1 = np.dtype(np.uint8)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks Linux what memory holds")


@pytest.fixture(autouse=True)
def _nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("GZARR_RECYCLE_BYTES", raising=False)
    result_memory.release()
    yield
    result_memory.release()


@pytest.fixture
def volume(tmp_path: Path) -> tuple[gzarr.Array, np.ndarray[Any, Any]]:
    """An array of a little over 36 MiB, with uncompressed and with absent chunks."""
    data = np.random.default_rng(3).integers(1, 250, (71, 520, 1024), dtype="u1")
    data[:40, :100] = 9
    array = zarr.create_array(
        str(tmp_path / "volume"), data=data, chunks=(20, 50, 1024), compressors=None, fill_value=9
    )
    assert array.nchunks_initialized < array.nchunks
    return gzarr.open_array(tmp_path / "volume", device="cpu"), data


def _address(array: np.ndarray[Any, Any]) -> int:
    return int(array.ctypes.data)


def _mapping(address: int) -> dict[str, Any]:
    """Return Linux's information on the mapping that contains an address, in bytes, and its ``flags``."""
    found: dict[str, Any] = {}
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, _, rest = line.partition(" ")
        if not name.endswith(":"):
            first, last = (int(n, 16) for n in name.split("-"))
            inside = first <= address < last
            if inside:
                found["nbytes"] = last - first
        elif inside and name == "VmFlags:":
            found["flags"] = rest.split()
        elif inside and rest.endswith(" kB"):
            found[name[:-1]] = int(rest.split()[0]) * 1024
    return found


@pytest.mark.parametrize(
    "nbytes", [LARGE_BYTES, LARGE_BYTES + 4096, LARGE_BYTES + MIB, LARGE_BYTES + MIB - 1, 7 * MIB + 5]
)
def test_large_results_are_in_huge_pages_and_hold_little_more(nbytes: int) -> None:
    array = result_memory.empty((nbytes,), U1)
    assert array.shape == (nbytes,)
    assert _address(array) % HUGE_PAGE_BYTES == 0
    (kept,) = (array.base.base.memory,)
    assert len(kept) <= nbytes + 3 * MIB
    array[:] = 1
    first = _mapping(_address(array))
    if Path("/sys/kernel/mm/transparent_hugepage").exists():
        assert "hg" in first["flags"]
        # A rest of half a huge page is in one, a smaller one is not.
        last = _mapping(_address(array) + nbytes - 1)
        rest = nbytes % HUGE_PAGE_BYTES
        assert ("hg" in last["flags"]) == (not rest or rest >= MIB)


def test_a_result_holds_at_most_a_mebibyte_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """This runs in a separate process, because Linux merges neighbouring mappings."""
    code = """
import json, numpy as np
from gzarr.engines import result_memory
def held():
    with open("/proc/self/smaps_rollup") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Rss:"))
found = []
for nbytes in [(5 << 20) - 4096, 5 << 20, (6 << 20) + 4096, (9 << 20) + 12345]:
    before = held()
    array = result_memory.empty((nbytes,), np.dtype("u1"))
    array[:] = 1
    full = held() - before
    del array
    result_memory.release()
    found.append((full - nbytes, held() - before))
print(json.dumps(found))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for more, left in json.loads(done.stdout):
        # And what Python itself takes meanwhile.
        assert more <= 1.25 * MIB
        assert left <= 0.25 * MIB


def test_memory_that_was_let_go_of_serves_the_next_result() -> None:
    array = result_memory.empty((LARGE_BYTES + 100,), U1)
    at = _address(array)
    view = array[50:]
    del array
    # Somebody holds a part.
    assert not result_memory.kept_count()
    del view
    again = result_memory.empty((LARGE_BYTES // 2,), np.dtype("u2"))
    assert _address(again) == at
    assert not result_memory.kept_count()


@pytest.mark.parametrize("nbytes", [2 * LARGE_BYTES, 40 * MIB])
def test_memory_of_another_size_is_let_go_first(nbytes: int) -> None:
    keep = result_memory.empty((16 * MIB,), U1)
    del keep
    assert result_memory.kept_count() == 1
    other = result_memory.empty((nbytes,), U1)
    assert not result_memory.kept_count()
    assert other.nbytes == nbytes


def test_the_bound_is_on_what_results_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GZARR_RECYCLE_BYTES", str(8 * MIB))
    array = result_memory.empty((8 * MIB,), U1)
    del array
    assert result_memory.kept_count() == 1
    results = [result_memory.empty((LARGE_BYTES,), U1) for _ in range(3)]
    del results
    assert result_memory.kept_count() == 2
    array = result_memory.empty((8 * MIB + 4096,), U1)
    del array
    assert not result_memory.kept_count()


def test_nothing_is_kept_where_that_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = [result_memory.empty((MALLOC_BYTES,), U1) for _ in range(2)]
    arrays.pop()
    assert result_memory.kept_count() == 1
    monkeypatch.setenv("GZARR_RECYCLE_BYTES", "0")
    # The C library's own, up to a size; beyond, memory that goes at once.
    assert result_memory.empty((MALLOC_BYTES - 1,), U1).base.base is None
    assert not result_memory.kept_count()
    # Also of a result that was made before.
    at = _address(arrays[0])
    arrays[0][:] = 1
    arrays.pop()
    assert not result_memory.kept_count()
    assert _mapping(at).get("Rss", 0) < MALLOC_BYTES
    array = result_memory.empty((MALLOC_BYTES,), U1)
    array[:] = 1
    at = _address(array)
    del array
    assert not result_memory.kept_count()
    assert _mapping(at).get("Rss", 0) < MALLOC_BYTES


@pytest.mark.parametrize("recycled", ["0", ""])
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((ALIGNED_BYTES,), "u1"), ((ALIGNED_BYTES // 8, 1, 2), "f4"), ((9000,), "U3"), ((7001,), "V11"), ((3, MIB), "i2")],
)
def test_results_begin_at_a_multiple_of_64_bytes(
    shape: tuple[int, ...], dtype: str, recycled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GZARR_RECYCLE_BYTES", recycled)
    # Several at once, as one may happen to do so.
    arrays = [result_memory.empty(shape, np.dtype(dtype)) for _ in range(8)]
    for i, array in enumerate(arrays):
        assert (array.shape, array.dtype, array.flags.c_contiguous) == (shape, np.dtype(dtype), True)
        array.view("u1")[...] = i
    assert [_address(array) % 64 for array in arrays] == [0] * 8
    assert (
        [array.view("u1").min() for array in arrays] == [array.view("u1").max() for array in arrays] == list(range(8))
    )


@pytest.mark.parametrize("text", ["-1", "1GiB", "many"])
def test_a_bound_that_is_no_number(
    text: str, monkeypatch: pytest.MonkeyPatch, volume: tuple[gzarr.Array, np.ndarray[Any, Any]]
) -> None:
    monkeypatch.setenv("GZARR_RECYCLE_BYTES", text)
    with pytest.raises(gzarr.ArgumentError, match="GZARR_RECYCLE_BYTES must be a whole number of bytes"):
        volume[0][...]


@pytest.mark.slow
@pytest.mark.parametrize("threads", ["1", "2", "5"])
@pytest.mark.parametrize("recycle", ["", "0"])
def test_results_are_right_again_and_again(
    recycle: str,
    threads: str,
    volume: tuple[gzarr.Array, np.ndarray[Any, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GZARR_RECYCLE_BYTES", recycle)
    monkeypatch.setenv("GZARR_THREADS", threads)
    array, data = volume
    for selection in (..., ..., slice(1, None), (slice(None), slice(3, None, 1)), ...):
        result = array[selection]
        np.testing.assert_array_equal(result, data[selection])
        result[...] = 77
    windows = [(slice(z, z + 20), slice(0, 500)) for z in (0, 7, 30, 51)]
    for _ in range(2):
        stacked = array.read_many(windows)
        np.testing.assert_array_equal(stacked, np.stack([data[w] for w in windows]))
        stacked[...] = 78


def test_first_touch_leaves_what_is_there(
    volume: tuple[gzarr.Array, np.ndarray[Any, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read fills a part of an array that looks new; the rest belongs to the caller."""
    monkeypatch.setenv("GZARR_THREADS", "2")
    array, data = volume
    mine = result_memory.empty((80, 520, 1024), U1)
    mine[...] = 201
    assert mine.base.base.untouched
    array.read(..., out=mine[4:75])
    assert not mine.base.base.untouched
    np.testing.assert_array_equal(mine[4:75], data)
    assert (mine[:4] == 201).all()
    assert (mine[75:] == 201).all()


def test_new_memory_is_taken_once() -> None:
    array = result_memory.empty((2, 3, 1 * MIB), np.dtype("f4"))
    assert result_memory.take_untouched(array[1, :, 5:]) == (_address(array), array.nbytes)
    assert result_memory.take_untouched(array) == (0, 0)
    assert result_memory.take_untouched(np.zeros(5)[1:]) == (0, 0)
    assert result_memory.take_untouched(np.zeros((5, 4))[1:].T) == (0, 0)
    del array
    assert result_memory.take_untouched(result_memory.empty((24 * MIB,), U1)) == (0, 0)


def test_threads_that_read_at_once_share_no_memory(volume: tuple[gzarr.Array, np.ndarray[Any, Any]]) -> None:
    array, data = volume

    def check(i: int) -> bool:
        lines = slice(i % 5, 60 + i % 7)
        result = array[lines]
        # A second one while the first is held, and let go of in between.
        array[lines]
        return np.array_equal(result, data[lines])

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(check, range(40)))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_reads_into_its_own_copy(volume: tuple[gzarr.Array, np.ndarray[Any, Any]]) -> None:
    array, data = volume
    held = array[...]
    array[...]
    assert result_memory.kept_count()
    child = os.fork()
    if not child:
        code = 1
        try:
            # Into what the parent keeps, and over what it holds.
            mine = array[...]
            code = 0 if np.array_equal(mine, data) else 2
            mine[...] = 0
            held[...] = 0
            array[1:]
        finally:
            os._exit(code)
    result = array[...]
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    np.testing.assert_array_equal(held, data)
    np.testing.assert_array_equal(result, data)


_BOUNDED = """
import resource, sys
import numpy as np
import gzarr

array = gzarr.open_array(sys.argv[1], device="cpu")
array[:1]
with open("/proc/self/status") as lines:
    used = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmSize"))
resource.setrlimit(resource.RLIMIT_AS, (used + (60 << 20),) * 2)
# One result has room, two have not, but for the memory of one that was let go of.
for _ in range(4):
    result = array[...]
    try:
        array[...]
    except gzarr.SelectionError as error:
        print(error)
    assert result[70, 519, 1023]
    del result
"""


@pytest.mark.parametrize("recycle", ["", "0"])
def test_under_a_bound_on_memory(recycle: str, volume: tuple[gzarr.Array, np.ndarray[Any, Any]]) -> None:
    path = volume[0].store.file_root()  # type: ignore[union-attr]
    environment = {**os.environ, "GZARR_RECYCLE_BYTES": recycle, "GZARR_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", _BOUNDED, os.fsdecode(path or b"")],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert not done.returncode, done.stderr
    assert done.stdout.count("more than can be allocated") == 4


_AT_EXIT = """
import atexit, sys, threading
import gzarr

array = gzarr.open_array(sys.argv[1], device="cpu")
result = array[...]
array[...]
cycle = [array[...]]
cycle.append(cycle)
del cycle
atexit.register(lambda: print(array[...].shape))
threading.Thread(target=lambda: print(array[...].shape)).start()
"""


@pytest.mark.parametrize("recycle", ["", "0"])
def test_a_program_ends_while_results_are_held(recycle: str, volume: tuple[gzarr.Array, np.ndarray[Any, Any]]) -> None:
    path = volume[0].store.file_root()  # type: ignore[union-attr]
    environment = {**os.environ, "GZARR_RECYCLE_BYTES": recycle}
    command = [sys.executable, "-X", "dev", "-c", _AT_EXIT, os.fsdecode(path or b"")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert not done.returncode
    assert done.stdout.count("(71, 520, 1024)") == 2
    # A slow machine is told why.
    assert not [line for line in done.stderr.splitlines() if "compiling its kernels" not in line]


def test_locked_memory_is_freed_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system takes no pages of it back, so it is not kept."""
    monkeypatch.setenv("GZARR_RECYCLE_BYTES", str(64 * MIB))
    result_memory.release()
    told: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    array = result_memory.empty((8 * MIB,), U1)
    # As mlockall() does with all memory. Any user may lock a page.
    assert ctypes.CDLL(None).mlock(ctypes.c_void_p(_address(array)), ctypes.c_size_t(mmap.PAGESIZE)) == 0
    del array
    assert told == []
    assert result_memory.kept_count() == 0
    array = result_memory.empty((8 * MIB,), U1)
    del array
    assert result_memory.kept_count() == 1
