"""Writing zip archives: every reader reads ours, and neither a failure nor a killed process loses what was there."""

from __future__ import annotations

import gc
import random
import resource
import signal
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorstore
import zarr
from support import zip_archives
from support.interrupts import interrupted
from support.zip_archives import CHUNKED, SHARDED, elements

import gzarr
from gzarr.errors import ArgumentError, NodeNotFoundError, ReadOnlyError, StoreError
from gzarr.stores import zip_format, zip_writer
from gzarr.stores.zip_format import CentralDirectory
from gzarr.stores.zip_writer import ZipWriter


def values_of(path: Path) -> dict[str, bytes]:
    """Return the entries of an archive by the standard library, each name once."""
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        assert len(set(names)) == len(names)
        return {name: archive.read(name) for name in names}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.zarr.zip"


def test_other_readers_read_ours(path: Path) -> None:
    data = elements()
    for zarr_format in (2, 3):
        zip_archives.by_gzarr(path, zarr_format)
        values_of(path)
        root = zarr.open_group(zarr.storage.ZipStore(path, mode="r"), mode="r")
        for name in zip_archives.names(zarr_format):
            np.testing.assert_array_equal(root[name][...], data)
            place = {"driver": "zip", "base": f"file://{path}", "path": f"{name}/"}
            driver = "zarr" if zarr_format == 2 else "zarr3"
            found = tensorstore.open({"driver": driver, "kvstore": place}).result()
            np.testing.assert_array_equal(found.read().result(), data)


def test_hierarchies_are_changed(path: Path) -> None:
    """What zarr-python cannot do: values are replaced and erased, and no name is in the archive twice."""
    data = elements()
    array = gzarr.create_array(path, path="a", data=data, **SHARDED)
    array[7:70, 3:60] = data[7:70, 3:60] = 3
    array.attrs["x"] = 1
    array.resize((100, 130))
    np.testing.assert_array_equal(array[:, :100], data[:100])
    with gzarr.ZipStore(path, mode="a") as store:
        gzarr.create_array(store, path="b", data=data, **CHUNKED)
        gzarr.create_array(store, path="a", data=data[:5], overwrite=True, **CHUNKED)
        del gzarr.open_group(store, mode="r+")["b"]
        gzarr.consolidate_metadata(store)
        with pytest.raises(ArgumentError):
            gzarr.open_array(store, path="a", mode="w-", shape=3)
    assert sorted(values_of(path)) == ["a/c/0/0", "a/c/0/1", "a/c/0/2", "a/c/0/3", "a/zarr.json", "zarr.json"]
    np.testing.assert_array_equal(gzarr.open(path, path="a", device="cpu")[...], data[:5])
    new = path.with_name("new.zip")
    gzarr.save(new, data)
    np.testing.assert_array_equal(gzarr.load(new), data)
    gzarr.copy(path, path.with_name("copy.zip"))
    assert values_of(path.with_name("copy.zip")).keys() == values_of(path).keys()


def test_random_operations(path: Path) -> None:
    rng = random.Random(3)
    expected: dict[str, bytes] = {}
    store = gzarr.ZipStore(path, mode="w")
    reader: Any = None
    for _ in range(400):
        key = f"{rng.choice('abc')}/{rng.choice(['é', '日本', 'x', 'y.z'])}{rng.randrange(4)}"
        operation = rng.randrange(10)
        if operation < 5:
            expected[key] = value = rng.randbytes(rng.choice([0, 1, 100, 70_000]))
            store.set_parts(key, [value[:3], value[3:]]) if operation else store.set(key, value)
        elif operation == 5:
            expected[key] = expected.get(key, b"")[:2].ljust(2, b"\0") + b"part"
            store.set_partial_values([(key, 2, b"part")])
            expected[key] = store.get(key) or b""
            assert expected[key][2:6] == b"part"
        elif operation == 6:
            store.erase_prefix(f"{key[0]}/")
            expected = {name: value for name, value in expected.items() if name[0] != key[0]}
        elif operation == 7:
            expected.pop(key, None)
            store.erase(key)
        elif operation == 8:
            store.flush()
            assert values_of(path) == expected
            reader = reader or gzarr.ZipStore(path)
            assert {name: reader.get(name) for name in reader.list()} == expected
        else:
            assert store.get(key) == expected.get(key)
            assert list(store.list()) == sorted(expected)
    store.close()
    assert values_of(path) == expected
    with pytest.raises(ReadOnlyError):
        store.set("k", b"")
    assert store.get("none") is None


def test_modes(path: Path) -> None:
    with pytest.raises(NodeNotFoundError):
        gzarr.ZipStore(path, mode="r+")
    with gzarr.ZipStore(path, mode="a") as store:
        assert list(store.list()) == []
    # Nothing was written.
    assert not path.exists()
    with gzarr.ZipStore(path, mode="w-") as store:
        store.set("k", b"1")
        assert not path.exists()
    with pytest.raises(ArgumentError, match="exists"):
        gzarr.ZipStore(path, mode="x")
    read_only = gzarr.ZipStore(path)
    for change in (lambda: read_only.set("k", b""), lambda: read_only.erase("k"), lambda: read_only.erase_prefix("")):
        with pytest.raises(ReadOnlyError):
            change()
    with gzarr.ZipStore(path, mode="w") as store:
        assert store.get("k") is None
        assert values_of(path) == {"k": b"1"}
    assert values_of(path) == {}
    assert read_only.get("k") is None
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("mode", ["w", "a", "w-"])
def test_what_was_to_be_made_and_was_discarded_can_still_be_made(mode: Any, path: Path) -> None:
    store = gzarr.ZipStore(path, mode=mode)
    store.set("k", b"1")
    store.discard()
    assert list(store.list()) == []
    assert store.get("k") is None
    assert not path.exists()
    store.set("l", b"2")
    store.discard()
    # Another one makes it meanwhile.
    with gzarr.ZipStore(path, mode="w") as other:
        other.set("m", b"3")
    store.set("n", b"4")
    store.close()
    assert values_of(path) == {"m": b"3", "n": b"4"}


@pytest.mark.parametrize("suffix", ["zip", "ozx"])
def test_a_directory_that_would_be_too_large_to_be_read(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zip_format, "MOST_DIRECTORY_BYTES", 20 * (46 + 3))
    path = tmp_path / f"x.{suffix}"
    with gzarr.ZipStore(path, mode="w") as store:
        for i in range(10):
            store.set(f"k{i:02}", b"1")
    with gzarr.ZipStore(path, mode="a") as store:
        for i in range(10, 20):
            store.set(f"k{i:02}", b"1")
            store.erase_values([f"k{i:02}"])
            store.set(f"k{i:02}", b"2")
            # In place of what is there, which takes no room, even if there is none.
            store.set("k00", b"3")
        with pytest.raises(StoreError, match=r"20 entries, and no room for 'k20'.*shards="):
            store.set("k20", b"1")
        store.erase_values(["k01"])
        store.set("k20", b"1")
    found = gzarr.ZipStore(path)
    assert list(found.list()) == [f"k{i:02}" for i in range(21) if i != 1]
    assert {key: found.get(key) for key in found.list()} == values_of(path)


def test_a_store_that_is_dropped_is_flushed(path: Path) -> None:
    gzarr.ZipStore(path, mode="w").set("k", b"1")
    gc.collect()
    assert values_of(path) == {"k": b"1"}
    program = "import gzarr, sys; store = gzarr.ZipStore(sys.argv[1], mode='a'); store.set('l', b'2')"
    subprocess.run([sys.executable, "-c", program, str(path)], check=True)
    assert values_of(path) == {"k": b"1", "l": b"2"}


def test_opening_again_in_the_process_sees_what_was_written(path: Path) -> None:
    store = gzarr.ZipStore(path, mode="w")
    store.set("k", b"1")
    other = gzarr.ZipStore(path, mode="a")
    assert other.get("k") == b"1"
    other.set("l", b"2")
    assert gzarr.ZipStore(path).get("l") == b"2"
    store.set("m", b"3")
    store.close()
    other.close()
    assert values_of(path) == {"k": b"1", "l": b"2", "m": b"3"}


@pytest.mark.parametrize("suffix", ["zip", "ozx"])
def test_stores_of_one_archive_in_turn(suffix: str, tmp_path: Path) -> None:
    """Whatever the order, each store changes what the others have left."""
    path = tmp_path / f"x.{suffix}"
    arrays = [
        gzarr.create_array(path, path=name, shape=8, chunks=4, shards=8, dtype="u1", codecs=["bytes"], device="cpu")
        for name in "ab"
    ]
    again = gzarr.open_array(path, path="a", mode="r+", device="cpu")
    for i in range(8):
        # Parts of one chunk, and of one shard.
        arrays[0][i] = i
        arrays[1][i] = 2 * i
        again[7 - i : 8 - i] += 10
    stores: list[Any] = [gzarr.ZipStore(path, mode="r+") for _ in range(3)]
    stores[0].set("k", b"abc")
    stores[1].set("erased", b"1")
    stores[0].set_partial_values([("k", 1, b"B")])
    stores[1].set_partial_values([("k", 2, b"C")])
    assert stores[0].get("k") == b"aBC"
    stores[0].erase("erased")
    stores[1].set("l", b"1")
    stores[2].set("discarded", b"1")
    stores[2].discard()
    # Two writes of one that is gone, one of which is not committed yet.
    stores.pop(1).set("m", b"1")
    gc.collect()
    stores[0].set("n", b"1")
    expected = {name: np.arange(8) * factor for name, factor in (("a", 1), ("b", 2))}
    expected["a"][:4] += 10
    del arrays, again, stores
    gc.collect()
    found = values_of(path)
    assert {key: found[key] for key in "klmn"} == {"k": b"aBC", "l": b"1", "m": b"1", "n": b"1"}
    assert not {"erased", "discarded"} & found.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(gzarr.open_array(path, path=name, device="cpu")[...], values)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_stores_of_one_archive_in_threads(path: Path) -> None:
    stores = [gzarr.ZipStore(path, mode="a") for _ in range(3)]
    failures: list[BaseException] = []

    def write(number: int) -> None:
        try:
            for i in range(15):
                stores[number].set(f"{number}/{i}", bytes([i]))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for store in stores:
        store.close()
    assert failures == []
    assert values_of(path) == {f"{number}/{i}": bytes([i]) for number in range(3) for i in range(15)}


def test_a_store_that_is_gone_while_another_one_commits_what_it_wrote(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = [gzarr.ZipStore(path, mode="a") for _ in range(2)]
    stores[0].set("k", b"1")
    begun = threading.Event()

    def slowly(fd: int) -> None:
        begun.set()
        time.sleep(0.2)

    monkeypatch.setattr(zip_writer, "flush_if_possible", slowly)
    monkeypatch.setattr(zip_writer, "_EXIT_S", 0.01)
    thread = threading.Thread(target=stores[1].set, args=("l", b"2"))
    thread.start()
    begun.wait()
    del stores[0]
    gc.collect()
    thread.join()
    stores[0].close()
    assert values_of(path) == {"k": b"1", "l": b"2"}
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_stores_read_what_others_have_not_flushed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And that copies the archive no more often."""
    reading, writing = (gzarr.ZipStore(path, mode="a") for _ in range(2))
    for i in range(3):
        writing.set("k", bytes([i]))
        assert reading.get("k") == bytes([i])
    assert list(reading.list()) == ["k"]
    assert not path.exists()
    # It is still to be made.
    writing.discard()
    assert reading.get("k") is None
    reading.set("l", b"1")
    assert writing.get("l") == b"1"
    reading.flush()
    assert writing.get("l") == b"1"
    copied: list[CentralDirectory] = []
    copy = ZipWriter._copy

    def counted(writer: ZipWriter, old: CentralDirectory) -> int:
        copied.append(old)
        return copy(writer, old)

    monkeypatch.setattr(ZipWriter, "_copy", counted)
    for i in range(3):
        writing.set("k", bytes([i]))
        assert reading.get("k") == bytes([i])
    assert len(copied) == 1
    reading.close()
    assert reading.get("k") == b"\2"
    writing.discard()
    assert reading.get("k") is None
    assert values_of(path) == {"l": b"1"}


def test_a_forked_child_writes_an_archive_that_a_thread_is_writing(path: Path) -> None:
    program = """
import gzarr, os, signal, sys, threading
store = gzarr.ZipStore(sys.argv[1], mode="a")
store.set("k", b"1")
with store._lock:
    # As in the midst of a write by a thread that the child has not.
    thread = threading.Thread(target=lambda: os._exit(os.waitstatus_to_exitcode(os.waitpid(child(), 0)[1])))
    def child():
        pid = os.fork()
        if pid == 0:
            signal.alarm(15)
            with gzarr.ZipStore(sys.argv[1], mode="a") as other:
                other.set("l", b"2")
                store.get("k")
            os._exit(0)
        return pid
    thread.start()
    thread.join(20)
os._exit(9)
"""
    subprocess.run([sys.executable, "-c", program, str(path)], check=True, timeout=60)
    assert values_of(path) == {"l": b"2"}


def test_two_writers_do_not_undo_each_other(path: Path) -> None:
    with gzarr.ZipStore(path, mode="w") as store:
        store.set("k", b"1")
    store = gzarr.ZipStore(path, mode="a")
    store.set("k", b"2")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("l", b"3")
    with pytest.raises(StoreError, match="changed by another writer"):
        store.flush()
    with pytest.raises(StoreError, match="changed by another writer"):
        store.close()
    assert values_of(path) == {"k": b"1", "l": b"3"}
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_bytes_before_an_archive_are_not_lost(path: Path) -> None:
    zip_archives.by_zipfile(path)
    before = path.read_bytes()
    store = gzarr.ZipStore(path, mode="a")
    with pytest.raises(StoreError, match="bytes that are not part of it"):
        store.set("k", b"")
    store.close()
    assert path.read_bytes() == before


def test_entries_of_other_writers_are_kept(path: Path) -> None:
    zip_archives.by_zarr_compressed(path)
    with gzarr.ZipStore(path, mode="a") as store:
        store.set("k", b"1")
        store.erase("sharded/c/0/0")
    with zipfile.ZipFile(path) as archive:
        assert archive.getinfo("raw/c/0/0").compress_type == zipfile.ZIP_DEFLATED
        assert archive.getinfo("k").compress_type == zipfile.ZIP_STORED
    assert "sharded/c/0/0" not in values_of(path)


@pytest.mark.parametrize("suffix", ["zip", "ozx"])
def test_entries_that_are_no_keys_are_kept(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"x.{suffix}"
    values = {"./notes.txt": b"notes", "folder/": b"", "a//é.txt": b"text" * 50, "/b": b"1"}
    for more in ({"k": b"0", "plain.txt": b"2"}, {}):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, value in {**values, **more}.items():
                archive.writestr(name, value)
            archive.comment = b"my comment"
        for i in range(2):
            with gzarr.ZipStore(path, mode="r+") as store:
                store.set("k", b"%d" % i)
                assert list(store.list()) == sorted({**more, "k": b""})
        assert values_of(path) == {**values, **more, "k": b"1"}
        with zipfile.ZipFile(path) as archive:
            # OME-Zarr says something of its own there.
            assert archive.comment == (b"my comment" if suffix == "zip" else b"")
    # Nothing but a comment.
    with zipfile.ZipFile(path, "w") as archive:
        archive.comment = b"my comment"
    with gzarr.ZipStore(path, mode="r+") as store:
        store.set("k", b"1")
    assert values_of(path) == {"k": b"1"}
    with gzarr.ZipStore(path, mode="w") as store:
        store.set("k", b"1")
    with zipfile.ZipFile(path) as archive:
        assert archive.comment == b""


def test_a_full_disk_loses_nothing(path: Path) -> None:
    """A failed write leaves the old value; a failed flush leaves the old archive."""
    program = """
import resource, signal, sys, gzarr
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = gzarr.ZipStore(sys.argv[1], mode="a")
store.set("k", b"new")
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
for value in (bytes(50_000), bytes(100_000)):
    try:
        store.set("k", value)
    except gzarr.StoreError as error:
        assert "cannot write 'k'" in str(error), error
    else:
        raise AssertionError
assert store.get("k") == b"new"
for i in range(300):
    store.set(f"small{i}", bytes(20))
for attempt in range(2):
    try:
        store.flush()
    except gzarr.StoreError as error:
        assert "cannot complete" in str(error), error
    else:
        raise AssertionError
if sys.argv[2] == "more":
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    store.close()
else:
    try:
        store.close()
    except gzarr.StoreError:
        pass
"""
    assert resource.RLIMIT_FSIZE is not None
    with gzarr.ZipStore(path, mode="w") as store:
        store.set("k", b"old")
    subprocess.run([sys.executable, "-c", program, str(path), "none"], check=True)
    assert values_of(path) == {"k": b"old"}
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    subprocess.run([sys.executable, "-c", program, str(path), "more"], check=True)
    assert len(values_of(path)) == 301
    assert values_of(path)["k"] == b"new"


def test_a_killed_writer_leaves_the_old_archive(path: Path) -> None:
    program = """
import sys, gzarr
store = gzarr.ZipStore(sys.argv[1], mode="a")
for i in range(100):
    store.set(f"k{i}", bytes(1000))
print("written", flush=True)
sys.stdin.read()
"""
    with gzarr.ZipStore(path, mode="w") as store:
        store.set("k", b"old")
    command = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    assert values_of(path) == {"k": b"old"}
    assert len(list(path.parent.iterdir())) == 2
    # The next writer in another process removes what was left.
    program = "import sys, gzarr; gzarr.ZipStore(sys.argv[1], mode='a').set('l', b'')"
    subprocess.run([sys.executable, "-c", program, str(path)], check=True)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_many_threads(path: Path) -> None:
    data = elements()
    with gzarr.ZipStore(path, mode="w") as store:
        array = gzarr.create_array(store, shape=data.shape, dtype="i4", chunks=(10, 10), device="cpu")
        errors: list[BaseException] = []

        def write(begin: int) -> None:
            try:
                for row in range(begin, 120, 40):
                    array[row : row + 10] = data[row : row + 10]
                    np.testing.assert_array_equal(array[row : row + 10], data[row : row + 10])
                    assert len(list(store.list())) > 1
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=write, args=(10 * i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        # Meanwhile what was written becomes the archive, and is copied for what follows.
        for _ in range(10):
            store.flush()
        for thread in threads:
            thread.join()
        assert not errors
    np.testing.assert_array_equal(gzarr.open_array(path, device="cpu")[...], data)


@pytest.mark.parametrize("kind", [CHUNKED, SHARDED], ids=["chunked", "sharded"])
def test_reads_and_flushes_beside_writes(path: Path, kind: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GZARR_THREADS", "4")
    data = elements()
    expected = data.copy()
    expected[7:70, 3:60] = 3
    array = gzarr.create_array(path, data=data, device="cpu", **kind)
    stopped = threading.Event()
    errors: list[BaseException] = []

    def repeat(work: Any) -> None:
        try:
            while not stopped.is_set():
                work()
        except BaseException as error:
            errors.append(error)

    def check() -> None:
        found = array[...]
        assert ((found == data) | (found == expected)).all()

    works = [check, check, lambda: (time.sleep(0.01), array.store.flush())]  # type: ignore[attr-defined]
    threads = [threading.Thread(target=repeat, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 1
    while time.monotonic() < end:
        array[7:70, 3:60] = 3
    stopped.set()
    for thread in threads:
        thread.join()
    assert not errors
    np.testing.assert_array_equal(array[...], expected)
    array.store.close()  # type: ignore[attr-defined]
    values_of(path)


def test_large_archives(path: Path) -> None:
    """More entries than the old format can count, and more bytes: both in the sizes of the new one."""
    with gzarr.ZipStore(path, mode="w") as store:
        for i in range(70_000):
            store.set(f"c/{i}", b"%d" % i)
    with zipfile.ZipFile(path) as archive:
        assert len(archive.namelist()) == 70_000
        assert archive.read("c/69999") == b"69999"
    begin = time.monotonic()
    store = gzarr.ZipStore(path)
    assert store.get("c/65536") == b"65536"
    assert len(list(store.list_prefix("c/"))) == 70_000
    assert time.monotonic() - begin < 20
    # A file with holes, whose later entries begin beyond 4 GiB.
    with gzarr.ZipStore(path, mode="w") as store:
        store.set("a", b"1")
        assert store._writer is not None
        store._writer._end += 5 << 30
        gzarr.create_array(store, path="b", data=elements(), **SHARDED)
    with zipfile.ZipFile(path) as archive:
        assert archive.getinfo("b/zarr.json").header_offset > 5 << 30
        assert archive.read("a") == b"1"
    np.testing.assert_array_equal(gzarr.open_array(path, path="b", device="cpu")[...], elements())


def test_functions_that_take_a_path_flush(path: Path) -> None:
    """Whoever passes a path has no store to flush, and must hear of failures."""
    data = elements()
    kept = gzarr.create_array(path, path="a", data=data, **CHUNKED)
    assert "a/zarr.json" in values_of(path)
    kept[...] = 1
    gzarr.save(path.with_name("saved.zip"), x=data, y=data)
    assert "y/zarr.json" in values_of(path.with_name("saved.zip"))
    group = gzarr.consolidate_metadata(path.with_name("saved.zip"))
    assert b"consolidated_metadata" in values_of(path.with_name("saved.zip"))["zarr.json"]
    copied = gzarr.copy(path, path.with_name("copied.zip"))
    assert values_of(path.with_name("copied.zip")).keys() == values_of(path).keys()
    assert (kept[...] == 1).all()
    del group, copied


# Iterators over directories are closed when they are dropped.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("as_ozx", [False, True], ids=["zip", "ozx"])
def test_an_interrupt_at_any_moment_leaves_no_unfinished_file(as_ozx, tmp_path):
    """The writer's ``discard`` is called where the caller has got the writer."""

    def work() -> None:
        writer = ZipWriter(tmp_path / "a.zip", CentralDirectory(), None, as_ozx=as_ozx)
        try:
            writer.add("zarr.json", [memoryview(b"{}")])
            writer.commit()
        finally:
            try:
                writer.discard()
            except KeyboardInterrupt:
                writer.discard()

    def names(folder: Path) -> set[str]:
        return {entry.name for entry in folder.iterdir()}

    work()
    before = names(Path("/dev/fd"))
    number = 1
    while True:
        (tmp_path / "a.zip").unlink(missing_ok=True)
        if not interrupted(work, number):
            break
        assert names(tmp_path) <= {"a.zip"}, number
        assert names(Path("/dev/fd")) == before, number
        number += 1
    assert number > 50
    assert names(tmp_path) == {"a.zip"}
