"""No stored value is ever lost: writers killed at any moment, full disks, refused permissions, leftovers, flushing."""

from __future__ import annotations

import errno
import itertools
import json
import os
import random
import resource
import secrets
import signal
import stat
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr

import gzarr
from gzarr.errors import ChunkWriteError, StoreError
from gzarr.stores import LocalStore, removal
from gzarr.stores.temporary_names import temporary_name, temporary_prefix

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

pytestmark = pytest.mark.slow


TEMPORARY = ".gzarr-temporary-"


@pytest.fixture(params=[True, False], ids=["follow", "refuse"])
def store(request, tmp_path):
    return LocalStore(tmp_path / "root", follow_symlinks=request.param)


def temporaries(directory: Path) -> list[Path]:
    return list(directory.rglob(TEMPORARY + "*"))


def forked(work: Callable[[], object]) -> int:
    """Run ``work`` in a child process; its exit status is 0 if it returned."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        work()
        status = 0
    finally:
        os._exit(status)


def finish(pid: int) -> None:
    assert os.waitpid(pid, 0)[1] == 0


# -- killed


def kill_at_random(work: Iterable[object], at_most_s: float, rng: random.Random) -> None:
    """Run ``work``, which never ends, in a child, and kill it some time after its first step.

    The child's disk is slow, so that it spends most of the time writing a file.
    """
    read, write = os.pipe()
    real_write, real_writev = os.write, os.writev

    def slow_write(fd: int, data: bytes) -> int:
        time.sleep(0.0005)
        return real_write(fd, data[:32768])

    def slow_writev(fd: int, parts: list[bytes]) -> int:
        time.sleep(0.0005)
        return real_writev(fd, [parts[0][:32768]])

    def steps() -> None:
        os.write, os.writev = slow_write, slow_writev
        for number, _ in enumerate(work):
            if not number:
                os.write(write, b".")

    pid = forked(steps)
    os.close(write)
    try:
        assert os.read(read, 1) == b"."
        time.sleep(rng.uniform(0, at_most_s))
    finally:
        os.kill(pid, signal.SIGKILL)
        os.close(read)
    # A child that failed would not have been killed by this.
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL


def document(generation: int) -> bytes:
    return json.dumps({"attributes": {"generation": generation, "text": "é" * (generation * 37 % 5000)}}).encode()


def chunk(generation: int) -> list[bytes]:
    """Return the parts of a value that shows whether it is whole, mixed or cut."""
    body = generation.to_bytes(4, "little") * (1000 + generation * 7919 % 30_000)
    return [len(body).to_bytes(8, "little"), body]


def test_killed_writers_of_a_store(store):
    """After each kill, every value is whole, either the previous one or the one being written; nothing else is left."""
    stores = [
        LocalStore(store.root, follow_symlinks=store.follow_symlinks, durable=durable)
        for durable in (False, False, True)
    ]
    keys = ["zarr.json", "a/zarr.json", *(f"a/c/{i}/{j}" for i in range(3) for j in range(2))]

    def put(key: str, generation: int) -> None:
        store = stores[generation % 3]
        if key.endswith("zarr.json"):
            store.set(key, document(generation))
        else:
            store.set_parts(key, chunk(generation))

    def expected(key: str, generation: int) -> bytes:
        return document(generation) if key.endswith("zarr.json") else b"".join(chunk(generation))

    for key in keys:
        put(key, 0)
    before = dict.fromkeys(keys, 0)
    written = left_behind = 0
    rng = random.Random(1)
    for generation in range(1, 51):
        order = rng.sample(keys, len(keys))
        kill_at_random((put(key, generation) for key in itertools.cycle(order)), 0.015, rng)
        left_behind += len(temporaries(store.root))
        assert sorted(store.list()) == sorted(keys)
        for key in keys:
            value = store.get(key)
            if value == expected(key, generation):
                before[key] = generation
                written += 1
            assert value == expected(key, before[key]), (key, generation)
    # Writing got on between the kills, and some came in the middle of it.
    assert written >= 50
    assert left_behind
    finish(forked(lambda: [put(key, 0) for key in keys]))
    assert temporaries(store.root) == []


@pytest.mark.parametrize(
    "options",
    [{"chunks": (2, 8192)}, {"chunks": (1, 4096), "shards": (2, 8192), "compressors": zarr.codecs.ZstdCodec(level=1)}],
    ids=["chunks", "shards"],
)
def test_killed_writers_of_an_array(tmp_path, options):
    """Each process changes halves of the stored values; after a kill, each half is unchanged or changed as a whole."""
    options = {"compressors": None, **options}
    zarr.create_array(tmp_path, shape=(12, 8192), dtype="u4", fill_value=0, **options)
    array = writable(tmp_path)
    array[...] = 1000  # with all that is loaded by the first write, which children would load again and again
    before = array[...]
    store = LocalStore(tmp_path)
    metadata = json.loads(store.get("zarr.json"))
    written = left_behind = 0
    rng = random.Random(len(options))
    for generation in range(1, 51):
        half = np.s_[:4096] if generation % 2 else np.s_[4096:]

        def write(half: slice = half, generation: int = generation) -> Iterator[None]:
            for row in itertools.cycle(rng.sample(range(0, 12, 2), 6)):
                yield array.write(np.s_[row : row + 2, half], generation)
                metadata["attributes"] = {"generation": generation}
                store.set("zarr.json", json.dumps(metadata).encode())

        kill_at_random(write(), 0.015, rng)
        left_behind += len(temporaries(tmp_path))
        opened = gzarr.open_array(tmp_path, device="cpu")
        assert opened.attrs.get("generation", 0) in range(generation + 1)
        after = opened[...]
        for row in range(0, 12, 2):
            changed = before[row : row + 2].copy()
            changed[:, half] = generation
            is_new = np.array_equal(after[row : row + 2], changed)
            assert is_new or np.array_equal(after[row : row + 2], before[row : row + 2])
            written += is_new
        before = after
    assert written >= 50
    assert left_behind
    np.testing.assert_array_equal(np.asarray(zarr.open_array(tmp_path, mode="r")[...]), before)
    finish(forked(lambda: write_all(array, store)))
    assert temporaries(tmp_path) == []


def writable(path: Path) -> gzarr.Array:
    return gzarr.open_array(path, mode="r+", device="cpu")


def write_all(array: gzarr.Array, store: LocalStore) -> None:
    array[...] = 7
    store.set("zarr.json", store.get("zarr.json") or b"")


# -- leftovers


def leave_behind(store: LocalStore, key: str) -> Path:
    """Kill a writer of ``key`` just before the rename; return its temporary file."""

    def write() -> None:
        os.replace = lambda *args, **kwargs: os.kill(os.getpid(), signal.SIGKILL)
        store.set(key, b"unfinished")

    known = temporaries(store.root)
    assert os.waitpid(forked(write), 0)[1] == signal.SIGKILL
    (file,) = set(temporaries(store.root)) - set(known)
    assert file.read_bytes() == b"unfinished"
    return file


def test_leftovers_are_no_keys_and_go(store):
    store.set("a/b/k", b"old")
    file = leave_behind(store, "a/b/k")
    key = f"a/b/{file.name}"
    assert list(store.list()) == ["a/b/k"]
    assert store.list_dir("a/b/") == (["a/b/k"], [])
    assert [key for key, _ in store.list_sizes("")] == ["a/b/k"]
    assert store.get(key) is None
    assert store.version(key) is None
    assert store.get_small_values([key], 100) == [None]
    assert store.get("a/b/k") == b"old"
    finish(forked(lambda: store.set("a/other", b"")))  # another directory's business
    assert file.exists()
    finish(forked(lambda: store.set("a/b/new", b"")))
    assert not file.exists()


def test_leftovers_of_an_erased_node(store):
    store.set("a/c/0", b"x")

    def erase() -> None:
        removal.remove_below = lambda *args, **kwargs: os.kill(os.getpid(), signal.SIGKILL)
        store.erase_prefix("a/")

    assert os.waitpid(forked(erase), 0)[1] == signal.SIGKILL
    (directory,) = temporaries(store.root)
    assert (directory / "c" / "0").read_bytes() == b"x"
    # For readers it was gone in one step.
    assert list(store.list()) == []
    assert store.list_dir("") == ([], [])
    assert store.get(f"{directory.name}/c/0") is None
    finish(forked(lambda: store.set("k", b"")))
    assert not directory.exists()


def age(path: Path, hours: float) -> None:
    then = time.time() - 3600 * hours
    os.utime(path, (then, then))


def test_who_wrote_it_decides(store):
    """Files of a running process stay, however old; for other machines only the age is known."""
    store.root.mkdir()
    mine = temporary_prefix()
    machine, pid, start = mine.removeprefix(TEMPORARY).rstrip("-").split("-")
    elsewhere = "0" * 12 if machine != "0" * 12 else "1" * 12
    stay = [f"{mine}1", f"{TEMPORARY}{elsewhere}-{pid}-{start}-2", f"{TEMPORARY}3", f"{TEMPORARY}{machine}-1-0-4"]
    # The number is in use again, by a process that began at another time: this one.
    go = [f"{TEMPORARY}{machine}-{pid}-{int(start) + 1}-5", f"{TEMPORARY}{elsewhere}-{pid}-{start}-6", f"{TEMPORARY}7"]
    for name in stay + go:
        (store.root / name).write_bytes(b"")
    for name in (stay[0], stay[3], go[1], go[2]):
        age(store.root / name, 25)
    age(store.root / stay[1], 23)
    age(store.root / go[0], 0)
    finish(forked(lambda: store.set("k", b"")))
    assert sorted(path.name for path in temporaries(store.root)) == sorted(stay)


def test_a_file_taken_for_a_leftover_is_written_again(store, monkeypatch):
    store.set("a/k", b"old")
    real, seen = os.replace, []

    def replace(source: str, target: str, **options: Any) -> None:
        if not seen:
            seen.append(source)
            os.unlink(source, dir_fd=options["src_dir_fd"])
        real(source, target, **options)

    monkeypatch.setattr(os, "replace", replace)
    store.set("a/k", b"new")
    assert seen
    assert store.get("a/k") == b"new"
    assert temporaries(store.root) == []


def test_temporary_names_that_are_taken(store, monkeypatch, tmp_path):
    store.set("k", b"old")
    (tmp_path / "outside").write_bytes(b"outside")
    tokens = ["0" * 16, "1" * 16, "2" * 16]
    (store.root / (temporary_prefix() + tokens[0])).write_bytes(b"another's")
    (store.root / (temporary_prefix() + tokens[1])).symlink_to(tmp_path / "outside")
    with monkeypatch.context() as patch:
        left = iter(tokens)
        patch.setattr(secrets, "token_hex", lambda n: next(left))
        store.set("k", b"new")
        assert store.get("k") == b"new"
        patch.setattr(secrets, "token_hex", lambda n: tokens[0])
        with pytest.raises(StoreError, match="cannot write 'k'"):
            store.set("k", b"newer")
    assert store.get("k") == b"new"
    assert (store.root / (temporary_prefix() + tokens[0])).read_bytes() == b"another's"
    assert (tmp_path / "outside").read_bytes() == b"outside"
    assert temporary_name() != temporary_name()


# -- failures


@contextmanager
def small_files(nbytes: int) -> Iterator[None]:
    """Limit files to ``nbytes``: the system then accepts part of a write and refuses the rest."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)


def test_no_room(store):
    """A write over an old value is refused half-way: the old value stays, and nothing is left behind."""
    store.set("a/k", b"old")
    with small_files(100_000):
        for call in (
            lambda: store.set("a/k", bytes(200_000)),
            lambda: store.set_parts("a/k", [bytes(60_000)] * 3),
            lambda: store.set_partial_values([("a/k", 150_000, b"end")]),
            lambda: store.set("a/new", bytes(100_001)),
        ):
            with pytest.raises(StoreError, match=r"cannot write 'a/\w+': File too large") as info:
                call()
            assert info.value.errno == errno.EFBIG
            assert info.value.key in ("a/k", "a/new")
        store.set("a/small", bytes(100_000))
    assert store.get("a/k") == b"old"
    assert list(store.list()) == ["a/k", "a/small"]
    assert temporaries(store.root) == []


def test_no_room_for_an_array(tmp_path):
    zarr.create_array(tmp_path, shape=(4, 10_000), chunks=(1, 10_000), dtype="u4", fill_value=0, compressors=None)
    array = writable(tmp_path)
    array[...] = 1
    with small_files(30_000), pytest.raises(ChunkWriteError, match="File too large") as info:
        array[2, :] = 2
    assert info.value.key == "c/2/0"
    assert "0 of 1 stored values were written" in str(info.value)
    assert (array[...] == 1).all()
    assert temporaries(tmp_path) == []
    array[2, :] = 2
    assert array[:, 0].tolist() == [1, 1, 2, 1]


@pytest.mark.parametrize("step", ["write", "fsync", "replace", "close"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT])
def test_failing_system(store, monkeypatch, step, code):
    store = LocalStore(store.root, follow_symlinks=store.follow_symlinks, durable=True)
    store.set("a/k", b"old")
    real = getattr(os, step)

    def fail(*args: Any, **options: Any) -> Any:
        if step == "write":
            real(args[0], args[1][:2])  # some of it got there
        if step == "close":
            is_file = stat.S_ISREG(os.fstat(args[0]).st_mode)
            real(*args)  # as the system does: the descriptor is gone whatever it says
            if not is_file:
                return
        failed.append(args)
        raise OSError(code, os.strerror(code))

    failed: list[Any] = []
    with monkeypatch.context() as patch:
        patch.setattr(os, step, fail)
        with pytest.raises(StoreError, match=f"cannot write 'a/k': {os.strerror(code)}") as info:
            store.set("a/k", b"new")
    assert failed
    assert info.value.errno == code
    assert store.get("a/k") == b"old"
    assert temporaries(store.root) == []
    store.set("a/k", b"new")
    assert store.get("a/k") == b"new"


def test_little_at_a_time(store, monkeypatch):
    """A system may write less than requested; nothing is lost between the parts."""
    real_write, real_writev = os.write, os.writev
    monkeypatch.setattr(os, "write", lambda fd, data: real_write(fd, data[:3]))
    monkeypatch.setattr(os, "writev", lambda fd, parts: real_writev(fd, [parts[0][:5]]))
    store.set("k", b"0123456789")
    assert store.get("k") == b"0123456789"
    store.set_parts("k", [b"0123456", b"", bytearray(b"789"), np.arange(4, dtype="u1"), b""])
    assert store.get("k") == b"0123456789\0\1\2\3"
    store.set_parts("k", [])
    assert store.get("k") == b""


def test_many_parts(store):
    parts = [bytes([i % 251]) * (i % 7) for i in range(5000)]
    store.set_parts("k", parts)
    assert store.get("k") == b"".join(parts)


def test_permission_lost(store):
    store.set("a/k", b"old")
    store.set("b/k", b"old")
    for directory in [store.root, *store.root.parents]:
        # pytest's own directories are for their owner alone.
        if not directory.stat().st_mode & stat.S_IXOTH:
            directory.chmod(0o755)
    (store.root / "a").chmod(0o555)

    def work() -> None:
        if os.geteuid() == 0:
            os.setuid(65534)
        for call in (
            lambda: store.set("a/k", b"new"),
            lambda: store.set("a/new", b"new"),
            lambda: store.set("a/new/k", b"new"),
            lambda: store.erase("a/k"),
        ):
            with pytest.raises(StoreError, match="'a/") as info:
                call()
            assert info.value.errno == errno.EACCES
        assert store.get("a/k") == b"old"

    finish(forked(work))
    assert list(store.list()) == ["a/k", "b/k"]
    assert temporaries(store.root) == []


def test_a_file_where_the_directory_was(store):
    store.set("a/c/0", b"old")
    store.erase_prefix("a/c/")
    store.set("a/c", b"in the way")
    with pytest.raises(StoreError, match="cannot write 'a/c/0'"):
        store.set("a/c/0", b"new")
    assert store.get("a/c") == b"in the way"
    store.erase_prefix("a/c/")
    assert store.get("a/c") == b"in the way"


@pytest.fixture
def _many_switches():
    """Threads switch after every few lines."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_many_switches")
@pytest.mark.parametrize("below", [False, True], ids=["keys", "prefixes"])
def test_directories_that_come_and_go(store, below):
    """Writers and erasers of one directory, which can disappear at any moment."""
    failures: list[BaseException] = []

    def work(i: int) -> None:
        try:
            for j in range(100):
                store.set(f"a/b/c/{i}", b"%d" % j)
                if below and i % 2:
                    store.erase_prefix("a/b/")
                else:
                    store.erase(f"a/b/c/{i}")
        except BaseException as error:
            failures.append(error)

    for _ in range(3):
        threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert list(store.list()) == []
        assert temporaries(store.root) == []
    store.set("a/b/c/0", b"last")
    assert list(store.list()) == ["a/b/c/0"]


def test_a_directory_that_goes_while_it_is_made(store, monkeypatch):
    """The system reports that the directory exists, but it is removed before anybody can look."""
    real_mkdir, gone = os.mkdir, 0

    def mkdir(path: str, *args: Any, **options: Any) -> None:
        nonlocal gone
        if Path(path).name == "b" and gone < 5:
            gone += 1
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        real_mkdir(path, *args, **options)

    monkeypatch.setattr(os, "mkdir", mkdir)
    store.set("a/b/c", b"new")
    assert gone == 5
    assert store.get("a/b/c") == b"new"


def test_a_link_to_nothing_where_the_directory_should_be(tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "nowhere")
    store = LocalStore(tmp_path)
    with pytest.raises(StoreError, match=r"cannot write 'a/b'.*exists"):
        store.set("a/b", b"new")
    array = gzarr.create_array(tmp_path / "x", shape=4, chunks=4, dtype="u1")
    (tmp_path / "x/c").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ChunkWriteError, match="c/0"):
        array[...] = 1


# -- flushing


@pytest.fixture
def events(monkeypatch):
    """Record, in order, what was flushed (``file`` or the path of a directory) and renamed."""
    seen: list[Any] = []
    real_fsync, real_replace = os.fsync, os.replace

    def fsync(fd: int) -> None:
        status = os.fstat(fd)
        seen.append("file" if stat.S_ISREG(status.st_mode) else (status.st_dev, status.st_ino))
        real_fsync(fd)

    def replace(*args: Any, **options: Any) -> None:
        seen.append("replace")
        real_replace(*args, **options)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    return seen


def identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def test_durable(store, events):
    root = store.root
    store.set("plain/k", b"v")
    assert events == ["replace"]
    del events[:]
    store = LocalStore(root, follow_symlinks=store.follow_symlinks, durable=True)
    store.set("a/b/k", b"v")
    assert events == [identity(root), identity(root / "a"), "file", "replace", identity(root / "a" / "b")]
    del events[:]
    store.set("a/b/k", b"w")
    assert events == ["file", "replace", identity(root / "a" / "b")]
    del events[:]
    store.set("a/b/other", b"w")
    del events[:]
    store.erase("a/b/k")
    assert events == [identity(root / "a" / "b")]
    del events[:]
    above = identity(root / "a")
    store.erase_prefix("a/b/")
    assert events == [above]
    assert store != LocalStore(root, follow_symlinks=store.follow_symlinks)


def test_durable_root(tmp_path, events):
    for follow in (True, False):
        root = tmp_path / f"x{follow}" / "y"
        del events[:]
        LocalStore(root, follow_symlinks=follow, durable=True).set("k", b"v")
        assert events == [identity(tmp_path), identity(root.parent), "file", "replace", identity(root)]


def test_directories_that_cannot_be_flushed(store, monkeypatch):
    """Some file systems can't flush directories, which is not a failure. A failing disk is."""
    real = os.fsync

    def fsync(fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(code, os.strerror(code))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    store = LocalStore(store.root, follow_symlinks=store.follow_symlinks, durable=True)
    code = errno.EINVAL
    store.set("a/k", b"v")
    assert store.get("a/k") == b"v"
    code = errno.EIO
    for call in (lambda: store.set("a/k", b"w"), lambda: store.erase("a/k"), lambda: store.set("b/k", b"w")):
        with pytest.raises(StoreError, match=os.strerror(errno.EIO)):
            call()
