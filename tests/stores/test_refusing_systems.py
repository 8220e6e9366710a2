"""What the system does not say is no answer; what it cannot do is a failure only if somebody has asked for it."""

from __future__ import annotations

import errno
import os
import sys
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from gzarr_kernels import status
from gzarr_kernels.slots import write as slots

import gzarr
from gzarr.engines import kernels
from gzarr.engines.cpu.write_job import Job
from gzarr.errors import ChunkWriteError, StoreError
from gzarr.stores import removal
from gzarr.stores.staging import FolderStage
from gzarr.stores.temporary_names import TEMPORARY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="errors of POSIX")

DATA = np.arange(6)
LONG = "n" * 300
WAYS: dict[str, Callable[[str, str], Any]] = {
    "open": lambda path, _: gzarr.open(path),
    "open_group": lambda path, _: gzarr.open_group(path, mode="a"),
    "create_array": lambda path, _: gzarr.create_array(path, data=DATA, overwrite=True),
    "save": lambda path, _: gzarr.save(path, a=DATA),
    "copy_from": lambda path, other: gzarr.copy(path, f"{other}.copy"),
    "copy_to": lambda path, other: gzarr.copy(other, path),
}


def fail(monkeypatch: pytest.MonkeyPatch, name: str, number: int, wanted: Callable[..., bool] | None = None) -> None:
    """Have a function of ``os`` fail, for the arguments that are wanted."""
    function = getattr(os, name)

    def failing(*arguments: Any, **named: Any) -> Any:
        if wanted is None or wanted(*arguments, **named):
            raise OSError(number, os.strerror(number))
        return function(*arguments, **named)

    monkeypatch.setattr(os, name, failing)


def link_at(path: Path) -> Callable[..., bool]:
    """Return whether a call asks whether there is a link at a path."""
    return lambda at, *, follow_symlinks=True, **_: not follow_symlinks and os.fspath(at) == str(path)


@pytest.mark.parametrize("suffix", [".zarr", ".zarr.zip", ".ozx"])
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_paths_that_the_system_refuses(way: Callable[[str, str], Any], suffix: str, tmp_path: Path) -> None:
    gzarr.save(tmp_path / "other", DATA)
    with pytest.raises(StoreError, match=r"examine.*File name too long"):
        way(f"{tmp_path}/{LONG}{suffix}", f"{tmp_path}/other")


@pytest.mark.parametrize("url", [f"zip://{LONG}#a", f"n5://{LONG}#a"], ids=["zip", "n5"])
def test_urls_of_such_paths(url: str) -> None:
    with pytest.raises(StoreError, match=r"examined.*File name too long"):
        gzarr.open(url)


def test_a_destination_that_may_be_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    array = gzarr.create_array(tmp_path / "a", data=DATA)
    fail(monkeypatch, "stat", errno.EIO, link_at(tmp_path / "new"))
    with pytest.raises(StoreError, match=r"cannot be examined.*Input/output error"):
        gzarr.copy(array, tmp_path / "new")


def test_nothing_is_erased_that_cannot_be_examined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = gzarr.create_group(tmp_path / "g")
    group.create_array("a", data=DATA, chunks=2)
    (tmp_path / "g/link").symlink_to(tmp_path / "g/a")
    with monkeypatch.context() as patched:
        fail(patched, "stat", errno.EIO, link_at(tmp_path / "g/a"))
        with pytest.raises(StoreError, match="cannot erase 'a/': Input/output error"):
            del group["a"]
    with monkeypatch.context() as patched:
        fail(patched, "stat", errno.EIO, lambda at, **named: str(at).endswith("/link") and not named)
        with pytest.raises(StoreError, match="cannot erase 'link/': Input/output error"):
            group.store.erase_prefix("link/")
    assert group["link"][...].tolist() == DATA.tolist()
    with monkeypatch.context() as patched:
        fail(patched, "lstat", errno.EIO)
        with pytest.raises(StoreError, match="cannot look at 'a/c/7': Input/output error"):
            group.store.get("a/c/7")
    del group["a"]
    assert not (tmp_path / "g/a").exists()


@pytest.mark.parametrize("suffix", [".zarr.zip", ".ozx"])
def test_archives_where_permissions_are_not_kept(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / f"x{suffix}"
    gzarr.save(path, a=DATA)
    fail(monkeypatch, "chmod", errno.EPERM)
    gzarr.create_array(path, path="b", data=DATA + 1)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
    assert {name: array[...].tolist() for name, array in gzarr.open(path).arrays()} == {
        "a": DATA.tolist(),
        "b": (DATA + 1).tolist(),
    }
    # Others may not read the old one, and could read the new one.
    monkeypatch.undo()
    path.chmod(0o600)
    old = path.read_bytes()
    fail(monkeypatch, "chmod", errno.EPERM)
    usual = os.umask(0o022)
    try:
        with pytest.raises(gzarr.GzarrError, match="Operation not permitted"):
            gzarr.create_array(path, path="c", data=DATA)
    finally:
        os.umask(usual)
    assert path.read_bytes() == old
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_directories_where_permissions_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gzarr.save(tmp_path / "x", DATA)
    fail(monkeypatch, "chmod", errno.EPERM)
    gzarr.create_array(tmp_path / "x", data=DATA + 1, overwrite=True)
    assert gzarr.load(tmp_path / "x").tolist() == (DATA + 1).tolist()


@pytest.mark.parametrize("suffix", [".zarr.zip", ".ozx"])
def test_archives_where_nothing_can_be_flushed(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / f"x{suffix}"
    for i, number in enumerate((errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)):
        with monkeypatch.context() as patched:
            fail(patched, "fsync", number)
            gzarr.create_array(path, path=f"a{i}", data=DATA)
        with zipfile.ZipFile(path) as archive:
            assert archive.testzip() is None
            assert f"a{i}/zarr.json" in archive.namelist()
    old = path.read_bytes()
    for number in (errno.EIO, errno.ENOSPC):
        with monkeypatch.context() as patched:
            fail(patched, "fsync", number)
            with pytest.raises(StoreError, match=f"cannot complete it: {os.strerror(number)}"):
                gzarr.create_array(path, path="b", data=DATA)
        assert path.read_bytes() == old


@pytest.mark.skipif(sys.platform == "darwin", reason="files are flushed by fcntl there")
def test_what_must_be_durable_is_refused_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = gzarr.LocalStore(tmp_path, durable=True)
    regular = os.fstat
    fail(monkeypatch, "fsync", errno.ENOSYS, lambda fd: (regular(fd).st_mode & 0o170000) == 0o040000)
    store.set("k", b"1")
    monkeypatch.undo()
    fail(monkeypatch, "fsync", errno.EINVAL)
    with pytest.raises(StoreError, match=r"cannot write 'k': Invalid argument: .*durable=True"):
        store.set("k", b"2")
    assert store.get("k") == b"1"


def test_chunks_that_must_be_durable_are_refused_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiled loop calls the system itself: here it says what it would after that."""
    states: list[np.ndarray] = []
    for_files, run = Job.for_files, kernels.run

    def seen(*arguments: Any) -> Any:
        state, shared = for_files(*arguments)
        states.append(state)
        return state, shared

    def refused(*arguments: Any) -> None:
        run(*arguments)
        states[-1][:, [slots.CODE, slots.DETAIL]] = status.IO_ERROR, errno.EINVAL

    monkeypatch.setattr(Job, "for_files", seen)
    monkeypatch.setattr(kernels, "run", refused)
    with pytest.raises(ChunkWriteError, match=r"written: .*: Invalid argument .*durable=True asks for") as info:
        gzarr.create_array(gzarr.LocalStore(tmp_path / "x", durable=True), data=DATA)
    # Not the place where it is made first.
    assert repr(str(tmp_path / "x")) in str(info.value)
    assert "temporary" not in str(info.value)


def test_what_is_left_of_an_old_array_is_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(*_: Any, **__: Any) -> None:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    gzarr.create_array(tmp_path / "x", data=DATA)
    with monkeypatch.context() as patched:
        patched.setattr(removal, "remove_below", busy)
        with pytest.raises(StoreError, match="is in place, but the old one cannot be erased") as info:
            gzarr.create_array(tmp_path / "x", data=DATA + 1, overwrite=True)
    assert not hasattr(info.value, "__notes__")
    assert gzarr.load(tmp_path / "x").tolist() == (DATA + 1).tolist()


def test_what_was_made_of_an_array_and_cannot_be_removed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise StoreError("there is no room")

    def busy(*_: Any, **__: Any) -> None:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    with monkeypatch.context() as patched:
        patched.setattr(FolderStage, "put_in_place", refuse)
        patched.setattr(removal, "remove_below", busy)
        with pytest.raises(StoreError, match="there is no room") as info:
            gzarr.create_array(tmp_path / "x", data=DATA)
    (left,) = (entry for entry in tmp_path.iterdir() if entry.name.startswith(TEMPORARY))
    (note,) = info.value.__notes__
    assert str(left) in note
    gzarr.create_array(tmp_path / "x", data=DATA)
    assert list(tmp_path.iterdir()) == [tmp_path / "x"]
