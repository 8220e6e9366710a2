"""Arrays created from data: whoever is killed, interrupted or fails leaves what was there before, or nothing."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.dying_store import DyingStore
from support.forks import in_child

import gzarr
from gzarr.errors import ArgumentError, GzarrError, NodeNotFoundError, StoreError
from gzarr.stores import LocalStore, MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable

OLD = np.arange(1, 65, dtype="u2").reshape(8, 8)
NEW = OLD + 1000


def killed(work: Callable[[], object]) -> None:
    """Do something in a process that is killed."""
    assert in_child(work) == -signal.SIGKILL


def creates(root: Path, path: str, fatal: str, **options: Any) -> Callable[[], object]:
    """Return what creates an array, and kills its process when it stores a key."""
    store = DyingStore(root, f"{path}/{fatal}".lstrip("/"), root.with_name("marker"))
    return lambda: gzarr.create_array(store, path=path, data=NEW, chunks=4, **options)


FATAL = {3: ["c/0/0", "c/1/1", "zarr.json"], 2: ["0.0", "1.1", ".zarray"]}
CASES = [(format, fatal) for format, keys in FATAL.items() for fatal in keys]


@pytest.mark.parametrize("path", ["", "a/b"])
@pytest.mark.parametrize(("zarr_format", "fatal"), CASES)
def test_a_killed_creation_leaves_no_array(path: str, zarr_format: int, fatal: str, tmp_path: Path) -> None:
    root = tmp_path / "x.zarr"
    killed(creates(root, path, fatal, zarr_format=zarr_format))
    with pytest.raises(NodeNotFoundError):
        gzarr.open_array(root, path=path)
    # It is in nobody's way, and its leftovers go.
    gzarr.create_array(root, path=path, data=NEW, chunks=4)
    np.testing.assert_array_equal(gzarr.open_array(root, path=path)[...], NEW)
    assert not list(tmp_path.rglob(".gzarr-temporary-*"))


@pytest.mark.parametrize("path", ["", "a/b"])
@pytest.mark.parametrize(("zarr_format", "fatal"), CASES)
def test_a_killed_replacement_leaves_the_old_array(path: str, zarr_format: Any, fatal: str, tmp_path: Path) -> None:
    root = tmp_path / "x.zarr"
    gzarr.create_array(root, path=path, data=OLD, chunks=2, attributes={"a": 1}, zarr_format=zarr_format)
    before = {key: LocalStore(root).get(key) for key in LocalStore(root).list()}
    killed(creates(root, path, fatal, zarr_format=zarr_format, overwrite=True))
    assert {key: LocalStore(root).get(key) for key in LocalStore(root).list()} == before
    gzarr.create_array(root, path=path, data=NEW, chunks=4, overwrite=True, zarr_format=zarr_format)
    np.testing.assert_array_equal(gzarr.open_array(root, path=path)[...], NEW)


@pytest.mark.parametrize("where", ["x.zarr", "link"])
def test_killed_at_any_moment(where: str, tmp_path: Path) -> None:
    """Whoever opens the array afterwards finds a whole one, of one generation; links stay what they are."""
    root = tmp_path / "x.zarr"
    if where == "link":
        root = tmp_path / "elsewhere" / "x.zarr"
        (tmp_path / "link").symlink_to(root)
    gzarr.create_array(root, data=np.zeros((64, 64), "u4"), chunks=8)
    for pause_s in (0.01, 0.013, 0.031, 0.05, 0.11):

        def replace_until_killed(pause_s: float = pause_s) -> None:
            for i in itertools.count(1):
                if i == 2:
                    threading.Timer(pause_s, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
                gzarr.create_array(tmp_path / where, data=np.full((64, 64), i, "u4"), chunks=8, overwrite=True)

        killed(replace_until_killed)
        values = gzarr.open_array(tmp_path / where)[...]
        assert 0 < values.min() == values.max()
    assert (tmp_path / where).is_symlink() == (where == "link")


def test_of_several_processes_one_creates(tmp_path: Path) -> None:
    """And nobody's chunks are among those of another one."""
    context = multiprocessing.get_context("fork")
    begin = context.Barrier(4)

    def create_own(i: int) -> None:
        begin.wait(60)
        try:
            gzarr.create_array(tmp_path / "x", data=np.full((64, 64), i), chunks=4)
        except ArgumentError:
            os._exit(3)

    running = [context.Process(target=create_own, args=(i,)) for i in range(4)]
    for process in running:
        process.start()
    for process in running:
        process.join(60)
    codes = [process.exitcode for process in running]
    assert sorted(codes, key=str) == [0, 3, 3, 3]
    np.testing.assert_array_equal(gzarr.open_array(tmp_path / "x")[...], codes.index(0))


class RivalStore(LocalStore):
    """Directory in which another writer creates an array while the data of a new one are written aside."""

    def stage(self, prefix: str, *, replace: bool) -> Any:
        stage = super().stage(prefix, replace=replace)
        gzarr.create_array(self.root, data=[7, 7])
        return stage


@pytest.mark.parametrize(
    ("overwrite", "advice"),
    [(False, "pass overwrite=True"), (True, "another writer was creating .*; try again")],
    ids=["new", "overwrite"],
)
def test_advice_when_another_writer_was_first(overwrite: bool, advice: str, tmp_path: Path) -> None:
    store = RivalStore(tmp_path / "x.zarr")
    with pytest.raises(ArgumentError, match=f"there is an array at '/' in .* already.* {advice}"):
        gzarr.create_array(store, data=[1, 2], overwrite=overwrite)
    assert gzarr.open_array(store)[...].tolist() == [7, 7]


class FailingStore(MemoryStore):
    """Values in memory; storing a given key fails."""

    fatal = ""
    error: type[BaseException] = StoreError

    def set(self, key: str, value: Any) -> None:
        if key == self.fatal:
            raise self.error("made up")
        super().set(key, value)


@pytest.mark.parametrize("error", [StoreError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("fatal", ["c/0/0", "c/1/1", "zarr.json"])
def test_where_nothing_is_made_aside_documents_come_last(fatal: str, error: type[BaseException]) -> None:
    store = FailingStore()
    store.fatal, store.error = fatal, error
    with pytest.raises((GzarrError, error)):
        gzarr.create_array(store, data=NEW, chunks=4)
    assert store.get("zarr.json") is None
    store.fatal = ""
    gzarr.create_array(store, data=NEW, chunks=4, overwrite=fatal == "zarr.json")
    np.testing.assert_array_equal(gzarr.open_array(store)[...], NEW)


@pytest.mark.parametrize("path", ["", "g/a"])
def test_failures_leave_the_old_array(path: str, tmp_path: Path) -> None:
    root = tmp_path / "x.zarr"
    gzarr.create_array(root, path=path, data=OLD, chunks=2)
    store = DyingStore(root, "", tmp_path / "marker")

    def fail(key: str) -> None:
        if key.endswith("1/1"):
            raise KeyboardInterrupt

    store._die = fail  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        gzarr.create_array(store, path=path, data=NEW, chunks=4, overwrite=True)
    np.testing.assert_array_equal(gzarr.open_array(root, path=path)[...], OLD)
    assert not list(tmp_path.rglob(".gzarr-temporary-*"))


def test_what_else_is_in_the_directory_stays(tmp_path: Path) -> None:
    """Files that are not part of a hierarchy, and the current directory."""
    (tmp_path / "notes.txt").write_text("mine")
    gzarr.create_array(tmp_path, data=NEW, chunks=4)
    np.testing.assert_array_equal(gzarr.open_array(tmp_path)[...], NEW)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    root = tmp_path / "x.zarr"
    gzarr.create_array(root, data=OLD)
    root.chmod(0o750)
    inode = root.stat().st_ino
    gzarr.create_array(root, data=NEW, overwrite=True)
    assert root.stat().st_mode & 0o777 == 0o750
    assert root.stat().st_ino != inode
    before = Path.cwd()
    try:
        os.chdir(root)
        gzarr.create_array(".", data=OLD, overwrite=True)
        np.testing.assert_array_equal(gzarr.open_array(".")[...], OLD)
    finally:
        os.chdir(before)


# -- archives


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "x.zip"
    gzarr.create_array(path, data=OLD, chunks=4)
    return path


def replace(path: Path) -> None:
    with gzarr.ZipStore(path, mode="w") as store:
        gzarr.create_array(store, data=NEW, chunks=4)[...] = _raises()


def change(path: Path) -> None:
    with gzarr.ZipStore(path, mode="a") as store:
        array = gzarr.open_array(store, mode="r+")
        array[:4] = 0
        array[4:] = _raises()


def create(path: Path) -> None:
    gzarr.create_array(path, data=_Raising(), overwrite=True)


def opened(path: Path) -> None:
    gzarr.open_array(path, mode="w", data=_Raising())


def image(path: Path) -> None:
    gzarr.ome.create(path, _Raising(), axes="yx", overwrite=True, progress=False)


def saved(path: Path) -> None:
    gzarr.save(path, a=NEW, b=_Raising(), overwrite=True)


class _Raising:
    """An array that cannot be read."""

    shape, dtype, ndim = (8, 8), np.dtype("u2"), 2
    error: type[BaseException] = RuntimeError

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise self.error("made up")

    def __getitem__(self, selection: Any) -> Any:
        raise self.error("made up")


def _raises() -> Any:
    raise _Raising.error("made up")


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("work", [replace, change, create, opened, image, saved])
def test_archives_stay_as_they_are(
    work: Callable[[Path], None], error: type[BaseException], archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Raising, "error", error)
    before = archive.read_bytes()
    with pytest.raises((error, GzarrError)):
        work(archive)
    assert archive.read_bytes() == before
    assert [path.name for path in archive.parent.iterdir()] == ["x.zip"]


@pytest.mark.parametrize("how", ["function", "command"])
def test_a_failed_copy_to_an_archive(how: str, archive: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    gzarr.create_array(source, data=NEW, chunks=4, codecs="zstd")
    (source / "c" / "1" / "1").write_bytes(b"bad")
    before = archive.read_bytes()
    if how == "function":
        with pytest.raises(gzarr.ChunkError):
            gzarr.copy(source, archive, overwrite=True, codecs="auto", progress=False)
    else:
        from gzarr.cli.main import main

        assert main(["copy", str(source), str(archive), "--overwrite", "--codecs", "blosc:lz4"]) == 1
    assert archive.read_bytes() == before
    (source / "c" / "1" / "1").unlink()
    gzarr.copy(source, archive, overwrite=True, codecs="auto", progress=False)
    assert gzarr.open_array(archive)[0, 0] == NEW[0, 0]


def test_discarding_what_an_archive_was_given(archive: Path) -> None:
    store = gzarr.ZipStore(archive, mode="a")
    gzarr.open_array(store, mode="r+")[...] = NEW
    store.flush()
    gzarr.open_array(store, mode="r+")[...] = OLD
    store.discard()
    np.testing.assert_array_equal(gzarr.open_array(store)[...], NEW)
    store.close()
    np.testing.assert_array_equal(gzarr.open_array(archive)[...], NEW)
    with pytest.raises(ArgumentError, match="already"):
        gzarr.create_array(archive, data=OLD)
