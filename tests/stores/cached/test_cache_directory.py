"""The directory of a cache: damage, its limit, and the processes that share it."""

from __future__ import annotations

import math
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.caching import CHUNKED, NO_FORK, SHARDED, damage, elements, failures, files, options
from support.fault_proxy import FAULTS, FaultProxy

import gzarr
from gzarr.errors import GzarrError
from gzarr.stores.base import Request
from gzarr.stores.cache_directory import CacheDirectory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# -- damage


def test_damaged_files(writer: Any, cached: Callable[..., Any], tmp_path: Path) -> None:
    data = elements()
    gzarr.create_array(writer, data=data, chunks=(10, 10), shards=(120, 100), codecs=["bytes"])
    numbers = random.Random(3)
    found = 0
    for _ in range(120):
        store = cached(check=math.inf)
        array = gzarr.open_array(store)
        before = failures()
        np.testing.assert_array_equal(array[20:50], data[20:50])
        np.testing.assert_array_equal(array[30:70], data[30:70])
        found += failures() > before
        for path in files(tmp_path / "cache"):
            if path.name != "written":
                damage(path, numbers, files(tmp_path / "cache"))
    assert found > 5


def test_every_bit_of_a_small_file(tmp_path: Path) -> None:
    cache = CacheDirectory(str(tmp_path), 1 << 20)
    path = cache.path("store", "key")
    cache.add(path, "version", 30, 0, b"0123456789", 5.0)
    cache.add(path, "version", 30, 20, b"abcdefghij", 6.0)
    (name,) = [file for file in files(tmp_path) if file.name != "written"]
    whole = name.read_bytes()

    def find(begin: int, end: int) -> Any:
        return cache.find(path, lambda size: (begin, end))

    kept = find(5, 25)
    assert (kept.before, kept.missing, kept.after) == (b"56789", (10, 20), b"abcde")
    assert (kept.version, kept.size, kept.confirmed) == ("version", 30, 6.0)
    for i in range(8 * len(whole)):
        changed = bytearray(whole)
        changed[i // 8] ^= 1 << i % 8
        name.write_bytes(changed)
        found = find(5, 25)
        if found is not None:
            # Lost may be: the time of the confirmation, or records from the damaged one on.
            assert (found.version, found.size) == ("version", 30)
            assert found.confirmed in (0.0, 6.0)
            assert (found.before, found.after) in ((b"56789", b"abcde"), (b"56789", b""), (b"", b""))
            assert found != kept
    for length in range(len(whole)):
        name.write_bytes(whole[:length])
        found = find(5, 25)
        assert found is None or (found.before, found.after) in ((b"56789", b""), (b"", b""))
        # A writer continues from what is left.
        cache.add(path, "version", 30, 8, b"89ABCD", 7.0)
        found = find(8, 14)
        assert found is None or (found.missing, found.before) == (None, b"89ABCD")


def test_a_record_in_place_of_another(tmp_path: Path) -> None:
    cache = CacheDirectory(str(tmp_path), 1 << 20)
    path = cache.path("store", "key")
    for begin in range(0, 200, 20):
        cache.add(path, "version", 200, begin, b"%010d" % begin, 1.0)
    # This process knows where the records are; another one finds the first one damaged, and writes on from there.
    assert bytes(cache.find(path, lambda size: (20, 30)).before) == b"0000000020"
    (name,) = [file for file in files(tmp_path) if file.name != "written"]
    content = name.read_bytes()
    at = content.index(b"0000000000")
    name.write_bytes(content[: at - 12] + b"damage" + content[at - 6 :])
    code = "import sys; from gzarr.stores.cache_directory import CacheDirectory; " + (
        "[CacheDirectory(sys.argv[1], 1 << 20).add(sys.argv[2], 'version', 200, i * 20 + 10, b'other data', 2.0)"
        " for i in range(10)]"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path), path], check=True)
    for begin in range(0, 200, 10):
        found = cache.find(path, lambda size, begin=begin: (begin, begin + 10))
        expected = b"other data" if begin % 20 else b"%010d" % begin
        assert found is None or found.missing is not None or bytes(found.before) == expected


@pytest.mark.parametrize("how", ["gone", "a file", "never writable", "read-only parent"])
def test_a_directory_that_fails(writer: Any, cached: Callable[..., Any], tmp_path: Path, how: str) -> None:
    data = elements()
    gzarr.create_array(writer, data=data, **CHUNKED)
    store = cached(check="once")
    array = gzarr.open_array(store)
    directory = tmp_path / "cache"
    if how in ("gone", "a file"):
        np.testing.assert_array_equal(array[...], data)
        shutil.rmtree(directory)
    if how in ("a file", "never writable"):
        shutil.rmtree(directory, ignore_errors=True)
        directory.write_bytes(b"")
    if how == "read-only parent":
        # A folder of the cache is a file.
        shutil.rmtree(directory)
        directory.mkdir()
        (directory / "gzarr-cache-1").write_bytes(b"")
    for _ in range(2):
        np.testing.assert_array_equal(array[...], data)
    assert (failures() > 0) == (how != "gone")


FULL = """
import os, resource, sys
import numpy as np
import gzarr
directory, cache, limit = sys.argv[1], sys.argv[2], int(sys.argv[3])
expected = gzarr.open_array(directory)[...]
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
for _ in range(3):
    array = gzarr.open_array(gzarr.CachedStore(directory, cache, 1 << 30, check="once"))
    for begin in range(0, 120, 17):
        np.testing.assert_array_equal(array[begin : begin + 40], expected[begin : begin + 40])
print(int(gzarr.stats()["cache_failures"]), int(gzarr.stats()["cache_hits"]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="this system has no limit of a file's size")
@pytest.mark.parametrize("limit", [0, 100, 3000, 20_000])
def test_a_full_disk(tmp_path: Path, limit: int) -> None:
    gzarr.create_array(tmp_path / "data", data=elements(), chunks=(10, 10), shards=(40, 100), codecs=["bytes"])
    arguments = [str(tmp_path / "data"), str(tmp_path / "cache"), str(limit)]
    done = subprocess.run([sys.executable, "-c", FULL, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    failed, hits = map(int, done.stdout.split())
    assert (failed > 0) == (limit < 20_000)
    assert (hits > 0) == (limit >= 3000)


# -- the limit


def on_disk(directory: Path) -> int:
    return sum(-(-path.stat().st_size // 4096) * 4096 for path in files(directory))


def test_the_limit(tmp_path: Path) -> None:
    data = tmp_path / "data"
    store = gzarr.LocalStore(data)
    for i in range(400):
        store.set(f"k/{i}", random.Random(i).randbytes(20_000))
    limit = 2 << 20
    cache = tmp_path / "cache"
    cached = gzarr.CachedStore(data, cache, limit, check="once")
    hot = cached._files.path(cached.location(), "k/0") + "-0"
    numbers = random.Random(0)
    for i in range(400):
        assert cached.get_many([Request(f"k/{i}")])[0].value == store.get(f"k/{i}")
        # What is used again and again stays.
        assert cached.get_many([Request("k/0")])[0].value == store.get("k/0")
        if i % 10 == 0:
            assert on_disk(cache) <= 1.02 * limit
        os.utime(hot, (time.time() + i, time.time() + i))
    assert on_disk(cache) > limit / 2
    assert os.path.exists(hot)  # noqa: PTH110
    for _ in range(300):
        key = f"k/{numbers.randrange(400)}"
        assert cached.get_many([Request(key)])[0].value == store.get(key)
    assert on_disk(cache) <= 1.02 * limit
    # Values larger than an eighth are not kept.
    store.set("large", bytes(limit // 7))
    before = gzarr.stats()["cache_hits"]
    for _ in range(3):
        assert cached.get_many([Request("large")])[0].value == bytes(limit // 7)
    assert gzarr.stats()["cache_hits"] == before


def test_short_lived_writers_count(tmp_path: Path) -> None:
    """Each writer writes much less than what is counted."""
    limit = 2 << 20
    for i in range(1200):
        cache = CacheDirectory(str(tmp_path), limit)
        cache.add(cache.path("store", str(i)), "v", 3000, 0, bytes(3000), 1.0)
    assert limit / 2 < on_disk(tmp_path) <= 1.05 * limit


def test_known_records_are_bounded(tmp_path: Path) -> None:
    from gzarr.stores import cache_file

    cache = CacheDirectory(str(tmp_path), 1 << 30)
    for i in range(30):
        path = cache.path("store", str(i))
        for begin in range(0, 40, 2):
            cache.add(path, "v", 40, begin, b"x", 1.0)
        assert cache.find(path, lambda size: (0, 40)).before == b"x"
    assert len(cache_file._known) <= cache_file._MOST_KNOWN
    assert sum(len(records) for _, records, _ in cache_file._known.values()) <= cache_file._MOST_RECORDS_KNOWN


# -- processes


@pytest.mark.slow  # 48 processes are started, and each gets some time.
@NO_FORK
@pytest.mark.timeout(100)
def test_killed_processes(tmp_path: Path) -> None:
    """Four processes fill one small cache, and are killed at any moment."""
    data = np.random.default_rng(1).integers(0, 2**31, (64, 64, 64), dtype="i4")
    gzarr.create_array(tmp_path / "sharded", data=data, chunks=(8, 16, 16), shards=(32, 32, 64), codecs=["bytes"])
    gzarr.create_array(tmp_path / "chunked", data=data, chunks=(16, 16, 16))
    cache, numbers = tmp_path / "cache", random.Random(2)

    def arrays() -> list[gzarr.Array]:
        return [
            gzarr.open_array(gzarr.CachedStore(tmp_path / name, cache, 700_000, check=math.inf), device="cpu")
            for name in ("sharded", "chunked")
        ]

    def window(own: random.Random) -> Any:
        return tuple(slice(begin := own.randrange(60), begin + own.randrange(4, 40)) for _ in range(3))

    def read(seed: int, opened: list[gzarr.Array]) -> None:
        own = random.Random(seed)
        while True:
            selection = window(own)
            np.testing.assert_array_equal(own.choice(opened)[selection], data[selection])

    def start(seed: int) -> int:
        pid = os.fork()
        if not pid:
            try:
                signal.alarm(90)
                read(seed, arrays())
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        return pid

    running = [start(seed) for seed in range(4)]
    try:
        for seed in range(4, 48):
            time.sleep(numbers.uniform(0.01, 0.1))
            pid = running.pop(numbers.randrange(4))
            # Nobody has ended because of wrong data.
            assert os.waitpid(pid, os.WNOHANG) == (0, 0)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            running.append(start(seed))
    finally:
        for pid in running:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    for array in arrays():
        for _ in range(3):
            np.testing.assert_array_equal(array[...], data)
    assert on_disk(cache) <= 1.5 * 700_000


READ = """
import random, sys
import numpy as np
import gzarr
url, options, cache, seed = sys.argv[1], eval(sys.argv[2]), sys.argv[3], int(sys.argv[4])
data = np.random.default_rng(5).integers(0, 100, (120, 100), dtype="i4")
numbers = random.Random(seed)
for check in ("always", "once", 0.05):
    store = gzarr.CachedStore(url, cache, 300_000, check=check, storage_options=options)
    for path in ("chunked", "sharded"):
        array = gzarr.open_array(store, path=path)
        for _ in range(6):
            i, j = numbers.randrange(120), numbers.randrange(100)
            np.testing.assert_array_equal(array[i : i + 50, j : j + 50], data[i : i + 50, j : j + 50])
print(int(gzarr.stats()["cache_hits"]), int(gzarr.stats()["cache_failures"]))
"""


def test_four_processes(proxy: FaultProxy, url: str, writer: Any, tmp_path: Path) -> None:
    for name, kind in (("chunked", CHUNKED), ("sharded", SHARDED)):
        gzarr.create_array(writer, path=name, data=elements(), **kind)
    arguments = [url, repr(options(proxy)), str(tmp_path / "cache")]
    started = [
        subprocess.Popen([sys.executable, "-c", READ, *arguments, str(seed)], stdout=subprocess.PIPE, text=True)
        for seed in range(4)
    ]
    for process in started:
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        hits, failed = map(int, output.split())
        assert hits > 10
        assert not failed
    assert on_disk(tmp_path / "cache") <= 1.1 * 300_000


@NO_FORK
def test_a_forked_child(proxy: FaultProxy, writer: Any, cached: Callable[..., Any]) -> None:
    data = elements()
    gzarr.create_array(writer, data=data, **SHARDED)
    array = gzarr.open_array(cached(check="once"))
    np.testing.assert_array_equal(array[:60], data[:60])
    pid = os.fork()
    if not pid:
        code = 1
        try:
            signal.alarm(30)
            np.testing.assert_array_equal(array[...], data)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    # What the child has fetched is there for its parent, and confirmed.
    with proxy.counting() as seen:
        np.testing.assert_array_equal(array[...], data)
    assert len(seen) == 0


def test_pickles(writer: Any, cached: Callable[..., Any], proxy: FaultProxy) -> None:
    writer.set("key", b"value")
    store = cached(check="once")
    store.get("key")
    again = pickle.loads(pickle.dumps(store))
    assert again == store
    assert hash(again) == hash(store)
    assert type(again) is type(store)
    with proxy.counting() as seen:
        assert again.get_many([Request("key")])[0].value == b"value"
    assert not seen
    assert cached() != store


def test_many_threads(writer: Any, cached: Callable[..., Any]) -> None:
    data = elements()
    gzarr.create_array(writer, data=data, **SHARDED)
    array = gzarr.open_array(cached(400_000))
    wrong: list[BaseException] = []

    def work(seed: int) -> None:
        numbers = random.Random(seed)
        try:
            for _ in range(6):
                i, j = numbers.randrange(120), numbers.randrange(100)
                np.testing.assert_array_equal(array[i : i + 40, j:], data[i : i + 40, j:])
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert failures() == 0


@pytest.mark.parametrize("seed", range(4))
def test_faults(proxy: FaultProxy, writer: Any, cached: Callable[..., Any], seed: int) -> None:
    data = elements()
    gzarr.create_array(writer, data=data, **(SHARDED if seed % 2 else CHUNKED))
    draws = random.Random(seed)
    # An answer that is consistent in itself, but not what the server sent, cannot be told from a right one.
    usable = [fault for fault in FAULTS if fault not in ("short body", "long body", "stall")]
    proxy.fault_of = lambda number, seen: draws.choice(usable) if draws.random() < 0.2 else None
    right = 0
    for check in ("always", "once", "always", "once"):
        try:
            array = gzarr.open_array(cached(check=check))
            np.testing.assert_array_equal(array[:70], data[:70])
            np.testing.assert_array_equal(array[...], data)
            right += 1
        except GzarrError as error:
            assert "attempt" in str(error)  # noqa: PT017
    assert right
