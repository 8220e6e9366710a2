"""Directories that several users share: groups of users, folders of others, links, read-only file systems, pipes."""

from __future__ import annotations

import errno
import importlib.util
import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.errors import NodeNotFoundError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="rights, links and pipes of POSIX")

DATA = np.arange(6)
SUFFIXES = ["", ".zip", ".ozx"]


def group_and_mode(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_gid, stat.S_IMODE(status.st_mode)


@pytest.fixture
def other_group() -> int:
    """Return a group that new files do not get by themselves."""
    if os.geteuid() == 0:
        return 1234
    others = [group for group in os.getgroups() if group != os.getegid()]
    if not others:
        pytest.skip("this user is in one group only")
    return others[0]


# -- groups of users


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_replaces_keeps_the_group(suffix: str, tmp_path: Path, other_group: int) -> None:
    path = tmp_path / f"x{suffix}"
    mode = 0o640 if suffix else 0o2750
    gzarr.save(path, DATA)
    os.chown(path, -1, other_group)
    path.chmod(mode)
    gzarr.create_array(path, data=DATA + 1, overwrite=True)
    assert gzarr.load(path).tolist() == (DATA + 1).tolist()
    assert group_and_mode(path) == (other_group, mode)
    # Of a directory that hands its group down.
    assert all(entry.stat().st_gid == other_group for entry in path.rglob("*"))
    if suffix:
        with gzarr.ZipStore(path, mode="w") as store:
            gzarr.create_array(store, data=DATA + 2)
        assert gzarr.load(path).tolist() == (DATA + 2).tolist()
        assert group_and_mode(path) == (other_group, mode)


def test_an_empty_directory_keeps_it(tmp_path: Path, other_group: int) -> None:
    path = tmp_path / "x"
    path.mkdir()
    os.chown(path, -1, other_group)
    path.chmod(0o2770)
    gzarr.create_array(path, data=DATA)
    assert group_and_mode(path) == (other_group, 0o2770)


def test_what_is_moved_there_gets_the_group(tmp_path: Path, other_group: int) -> None:
    group = gzarr.create_group(tmp_path / "x", device="cpu")
    group.create_array("a", data=DATA)
    group.create_group("shared")
    shared = tmp_path / "x/shared"
    os.chown(shared, -1, other_group)
    shared.chmod(0o2775)
    group.move("a", "shared/z")
    assert group["shared/z"][...].tolist() == DATA.tolist()
    assert all(entry.stat().st_gid == other_group for entry in [shared / "z", *(shared / "z").rglob("*")])
    # Within it, nothing need be copied.
    before = (shared / "z").stat().st_ino
    group.move("shared/z", "shared/y")
    assert (shared / "y").stat().st_ino == before


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("rights", [(0o770, 0o700), (0o775, 0o755), (0o705, 0o700)], ids=["770", "775", "705"])
def test_another_group_gets_no_more_rights(
    rights: tuple[int, int], suffix: str, tmp_path: Path, other_group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    path = tmp_path / f"x{suffix}"
    before, after = rights
    gzarr.save(path, DATA)
    own = path.stat().st_gid
    os.chown(path, -1, other_group)
    path.chmod(before)
    monkeypatch.setattr(os, "chown", refuse)
    gzarr.create_array(path, data=DATA + 1, overwrite=True)
    assert group_and_mode(path) == (own, after)


# -- folders and links of others


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home/proj/deep").mkdir(parents=True)
    (tmp_path / "home/proj/deep/up").symlink_to("../..")
    return tmp_path / "home"


def test_a_link_to_above_it_is_no_node(home: Path) -> None:
    with pytest.raises(NodeNotFoundError):
        gzarr.open(home)
    # Sorted after the link.
    gzarr.create_array(home / "z/b", data=DATA)
    assert list(gzarr.open_group(home)) == ["z"]
    group = gzarr.create_group(home)
    group.create_array("a", data=DATA)
    (home / "again").symlink_to(".")
    assert sorted(group) == ["a", "z"]
    assert group["a"][...].tolist() == DATA.tolist()
    with pytest.raises(NodeNotFoundError):
        group["proj"]


def test_what_walks_or_erases_is_safe(home: Path) -> None:
    store = gzarr.LocalStore(home)
    (home / "again").symlink_to(".")
    (home / "k").write_bytes(b"v")
    assert store.list_dir("") == (["k"], ["proj/"])
    for work in (lambda: list(store.list()), lambda: store.erase_prefix(""), lambda: store.check_erasable("")):
        with pytest.raises(StoreError, match="directory above it"):
            work()
    assert (home / "k").exists()
    store.erase_prefix("again/")
    store.erase_prefix("proj/")
    assert [entry.name for entry in home.iterdir()] == ["k"]


def refusing(monkeypatch: pytest.MonkeyPatch, name: str, refused: Callable[..., bool], number: int) -> None:
    function = getattr(os, name)

    def call(*arguments: Any, **named: Any) -> Any:
        if refused(*arguments, **named):
            raise OSError(number, os.strerror(number))
        return function(*arguments, **named)

    monkeypatch.setattr(os, name, call)


def test_folders_that_are_not_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are no reason not to open the others; what is asked for must be listed."""
    (tmp_path / "lost+found").mkdir()
    for number, error in ((errno.EACCES, NodeNotFoundError), (errno.EIO, StoreError)):
        with monkeypatch.context() as patched:
            refusing(patched, "scandir", lambda at: str(at).endswith("lost+found"), number)
            with pytest.raises(error):
                gzarr.open(tmp_path)
            with pytest.raises(StoreError, match=f"cannot list 'lost.found/': {os.strerror(number)}"):
                gzarr.open(tmp_path, path="lost+found")
    gzarr.create_array(tmp_path / "z", data=DATA)
    refusing(monkeypatch, "scandir", lambda at: str(at).endswith("lost+found"), errno.EACCES)
    assert gzarr.open(tmp_path)["z"][...].tolist() == DATA.tolist()


# -- other file systems


def test_read_only_file_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = gzarr.create_group(tmp_path / "g")
    group.create_array("a", data=DATA)
    before = sorted(tmp_path.rglob("*"))

    class Status:
        f_flag = os.ST_RDONLY

    monkeypatch.setattr(os, "statvfs", lambda _: Status)
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    works: list[Callable[[], Any]] = [
        lambda: group.__delitem__("a"),
        lambda: group.move("a", "b"),
        lambda: group.create_array("a", data=DATA, overwrite=True),
        lambda: gzarr.create_array(tmp_path / "g/a", data=DATA, overwrite=True),
    ]
    for work in works:
        with pytest.raises(StoreError, match="Read-only file system; nothing was changed") as info:
            work()
        assert info.value.errno == errno.EROFS
        assert "chmod" not in str(info.value)
    assert sorted(tmp_path.rglob("*")) == before


def test_nothing_is_erased_where_names_are_too_long_for_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gzarr.create_array(tmp_path / "x", data=DATA)
    with monkeypatch.context() as patched:
        refusing(patched, "mkdir", lambda at, *_: ".gzarr-temporary-" in str(at), errno.ENAMETOOLONG)
        with pytest.raises(StoreError, match="cannot replace '': File name too long"):
            gzarr.create_array(tmp_path / "x", data=DATA + 1, overwrite=True)
    assert gzarr.load(tmp_path / "x").tolist() == DATA.tolist()


def open_descriptors() -> list[str]:
    return sorted(entry.name for entry in Path("/dev/fd").iterdir())


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("follow", [True, False])
def test_failures_to_close_what_was_read(
    follow: bool, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"x{suffix}"
    gzarr.save(path, DATA)
    store: Any = gzarr.ZipStore(path) if suffix else gzarr.LocalStore(path, follow_symlinks=follow)
    document = store.get("zarr.json")
    close = os.close

    def fail(fd: int) -> None:
        close(fd)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    opened = open_descriptors()
    monkeypatch.setattr(os, "close", fail)
    store = gzarr.ZipStore(path) if suffix else store
    assert bytes(store.get("zarr.json")) == document
    assert bytes(store.get_partial_values([("zarr.json", gzarr.stores.ByteRange(0, 4))])[0]) == document[:4]
    monkeypatch.undo()
    assert open_descriptors() == opened


# -- pipes


@pytest.mark.parametrize("suffix", SUFFIXES[1:])
def test_pipes_are_no_archives(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"f{suffix}"
    os.mkfifo(path)
    works: list[Callable[[], Any]] = [
        lambda: gzarr.open(path),
        lambda: gzarr.ZipStore(path),
        lambda: gzarr.ZipStore(path, mode="w"),
        lambda: gzarr.ZipStore(path, mode="a"),
        lambda: gzarr.save(path, DATA),
        lambda: gzarr.create_array(path, data=DATA, overwrite=True),
    ]
    for work in works:
        with pytest.raises(StoreError, match="is not a regular file, so it can be no zip archive"):
            work()
    assert path.is_fifo()
    assert list(tmp_path.iterdir()) == [path]


def test_an_archive_that_a_pipe_has_replaced(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    gzarr.save(path, DATA)
    array = gzarr.open_array(path, device="cpu")
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(gzarr.GzarrError, match="regular file"):
        array[...]
    store = gzarr.ZipStore(tmp_path / "y.zip", mode="w")
    store.set("k", b"v")
    os.mkfifo(tmp_path / "y.zip")
    with pytest.raises(StoreError, match="not a regular file"):
        store.close()
    assert (tmp_path / "y.zip").is_fifo()


# -- names


@pytest.mark.skipif(sys.platform == "darwin", reason="names of files are UTF-8 there")
def test_urls_of_names_that_are_not_utf8(tmp_path: Path) -> None:
    for i, name in enumerate((b"\xff", b"\xfe", "é".encode())):
        url = f"{tmp_path.as_uri()}/{''.join(f'%{byte:02X}' for byte in name)}.zarr"
        gzarr.save(url, DATA + i)
        assert gzarr.load(url).tolist() == (DATA + i).tolist()
    names = sorted(os.fsencode(entry.name) for entry in tmp_path.iterdir())
    assert names == ["é".encode() + b".zarr", b"\xfe.zarr", b"\xff.zarr"]


def test_nodes_and_remote_names_are_utf8(tmp_path: Path) -> None:
    gzarr.create_array(tmp_path / "x.zip", data=DATA, path="\N{REPLACEMENT CHARACTER}")
    where = (tmp_path / "x.zip").as_uri()
    assert gzarr.load(f"{where}#%EF%BF%BD").tolist() == DATA.tolist()
    urls = [f"{where}#a%FF", f"{tmp_path.as_uri()}#a%FF", f"n5://{tmp_path}#a%FF"]
    if importlib.util.find_spec("obstore"):
        urls += ["http://localhost:1/a%FF/b", "http://localhost:1/b#a%FF", "http://localhost:1/a/b%FF.zip"]
    for url in urls:
        with pytest.raises(gzarr.ArgumentError, match="percent-encodings in URLs must be UTF-8, and %FF is not"):
            gzarr.open(url)


def test_the_system_says_why_a_directory_cannot_be_examined(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot examine the directory") as info:
        gzarr.open(tmp_path / ("n" * 300))
    assert info.value.errno == errno.ENAMETOOLONG
