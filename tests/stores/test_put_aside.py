"""Directories under hidden names: what is erased or replaced leaves nothing there, also if interrupted or refused."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.interrupts import interrupted

import gzarr
from gzarr.errors import StoreError
from gzarr.stores import LocalStore, removal
from gzarr.stores.erasing_checks import check_erasable, check_removable
from gzarr.stores.removal import remove_tree
from gzarr.stores.temporary_names import TEMPORARY, temporary_name

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions and signals")

# Root may erase everything, unless it gives up that right.
USER = ["setpriv", "--inh-caps=-all", "--bounding-set=-dac_override,-dac_read_search"] if os.getuid() == 0 else []
HEAD = """
import os, sys
import numpy as np
import gzarr
root = sys.argv[1]
def hidden():
    return [name for _, folders, _ in os.walk(root) for name in folders if name.startswith(".gzarr-temporary-")]
def files(top):
    found = [os.path.join(here, name) for here, _, names in os.walk(top) for name in names]
    return {name: open(name, "rb").read() for name in found}
def protected(top):
    for here, folders, files in os.walk(top, topdown=False):
        os.chmod(here, 0o555)
def refused(work, *why):
    try:
        work()
    except gzarr.StoreError as error:
        assert all(text in str(error) for text in why), error
    else:
        raise AssertionError("not refused")
"""
OVERWRITE = """
for path in ("", "a"):
    top = f"{root}/one{path}.zarr"
    gzarr.create_array(top, path=path, data=np.arange(400).reshape(20, 20), chunks=(5, 5))
    protected(f"{top}/{path}")
    for _ in range(2):
        refused(lambda: gzarr.create_array(top, path=path, data=np.ones(3), overwrite=True), "replace", "chmod")
        refused(lambda: gzarr.create_array(top, path=path, shape=3, dtype="u1", overwrite=True), "replace", "chmod")
    assert not hidden(), hidden()
    assert gzarr.open_array(top, path=path)[...].sum() == 79800
"""
ERASE = """
for options in ({}, {"follow_symlinks": False}):
    store = gzarr.LocalStore(f"{root}/{len(options)}.zarr", **options)
    group = gzarr.create_group(store)
    group.create_array("a", data=np.arange(400).reshape(20, 20), chunks=(5, 5))
    os.chmod(f"{store.root}/a/c/2", 0o555)
    before = files(store.root)
    refused(lambda: group.__delitem__("a"), "cannot erase 'a/'", f"{store.root}/a/c/2", "nothing was changed", "chmod")
    assert files(store.root) == before
    # Those who do not ask.
    why = "Permission denied; it is gone all the same", f"{store.root}/.gzarr-temporary-"
    refused(lambda: store.erase_prefix("a/"), *why)
    assert not list(group)
    os.rename(f"{store.root}/{hidden()[0]}", f"{root}/kept{len(options)}")
    group.create_array("a", data=np.arange(400).reshape(20, 20), chunks=(5, 5))
    # An empty directory is erased with what it is in.
    os.makedirs(f"{store.root}/a/empty")
    os.chmod(f"{store.root}/a/empty", 0o555)
    del group["a"]
    assert os.listdir(store.root) == ["zarr.json"]
"""
# The directory above may be protected, so that nobody adds or removes nodes, while what is in it may be changed.
ABOVE = """
for zarr_format in (2, 3):
    for options in ({}, {"follow_symlinks": False}):
        top = f"{root}/{len(options)}-{zarr_format}.zarr"
        store = gzarr.LocalStore(top, **options)
        group = gzarr.create_group(store, zarr_format=zarr_format)
        group.create_group("free")
        group.create_array("x", data=np.arange(100).reshape(10, 10), chunks=(5, 5))
        gzarr.consolidate_metadata(store)
        before = files(top)
        os.chmod(top, 0o555)
        source = {}
        gzarr.create_array(source, data=np.ones(3), zarr_format=zarr_format)
        new = {"path": "x", "overwrite": True, "zarr_format": zarr_format}
        cached = gzarr.CachedStore(store, f"{root}/cache", max_bytes=1 << 20)
        works = {
            "data": lambda: gzarr.create_array(store, data=np.ones(3), **new),
            "no data": lambda: gzarr.create_array(store, shape=3, dtype="u1", **new),
            "group": lambda: gzarr.create_group(store, **new),
            "del": lambda: gzarr.open_group(store, mode="r+").__delitem__("x"),
            "move": lambda: gzarr.open_group(store, mode="r+").move("x", "free/x"),
            "copy": lambda: gzarr.copy(source, store, dest_path="x", overwrite=True),
            "cached": lambda: gzarr.open_group(cached, mode="r+").__delitem__("x"),
            "erase": lambda: store.erase_prefix("x/"),
        }
        for name, work in works.items():
            why = [] if name == "erase" else [top, "nothing was changed", "chmod"]
            refused(work, "cannot", *why)
            assert files(top) == before, (name, options, files(top))
        # The node itself can be opened, and what is in it replaced.
        gzarr.create_array(f"{top}/x", data=np.ones(3), zarr_format=zarr_format, overwrite=True)
        assert gzarr.open_array(store, path="x")[...].tolist() == [1, 1, 1]
        assert not hidden(), hidden()
"""
# What an earlier version, or a killed process, has left.
LEFT = """
from gzarr.stores.temporary_names import temporary_prefix
left = f"{root}/.gzarr-temporary-0123456789ab-1-1-0/a/b"
os.makedirs(f"{root}/elsewhere")
os.makedirs(left)
os.symlink(f"{root}/elsewhere", f"{left}/link")
os.chmod(f"{root}/elsewhere", 0o555)
open(f"{left}/file", "w").close()
protected(f"{root}/{left.split('/')[-3]}")
for here, _, _ in os.walk(f"{root}/{left.split('/')[-3]}"):
    os.utime(here, (0, 0))
gzarr.LocalStore(root).set("key", b"")
assert not hidden(), hidden()
assert os.stat(f"{root}/elsewhere").st_mode & 0o777 == 0o555
"""


@pytest.mark.skipif(bool(USER) and shutil.which("setpriv") is None, reason="root has all rights")
@pytest.mark.parametrize("script", [OVERWRITE, ERASE, ABOVE, LEFT], ids=["overwrite", "erase", "above", "left"])
def test_what_is_write_protected(script: str, tmp_path: Path) -> None:
    command = [*USER, sys.executable, "-c", HEAD + script, str(tmp_path)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    finally:
        for here, _, _ in os.walk(tmp_path):
            Path(here).chmod(0o755)
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_mode_of_a_directory_that_is_replaced_is_kept(tmp_path: Path) -> None:
    gzarr.create_array(tmp_path / "x", data=[1])
    for mode in (0o700, 0o2750, 0o775):
        (tmp_path / "x").chmod(mode)
        gzarr.create_array(tmp_path / "x", data=[2], overwrite=True)
        assert (tmp_path / "x").stat().st_mode & 0o7777 == mode
    assert list(tmp_path.iterdir()) == [tmp_path / "x"]


def hidden(root: Path) -> list[str]:
    return [name for _, folders, _ in os.walk(root) for name in folders if name.startswith(TEMPORARY)]


def once(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> Callable[[], bool]:
    """Make ``remove_below`` erase one file and raise, once; return a function that returns whether it has done so."""
    left = [error]
    remove_below = removal.remove_below

    def removed(path: Any, *arguments: Any, **named: Any) -> None:
        if not left:
            remove_below(path, *arguments, **named)
            return
        next(file for file in Path(path).rglob("*") if file.is_file()).unlink()
        raise left.pop()

    monkeypatch.setattr(removal, "remove_below", removed)
    return lambda: not left


def delete_in(group: gzarr.Group, name: str) -> None:
    del group[name]


NEXT = {
    "create": lambda root: gzarr.create_array(root, path="y", data=[1]),
    "attributes": lambda root: gzarr.open_group(root, mode="r+").attrs.update(a=1),
    "write": lambda root: gzarr.open_array(root, path="z", mode="r+").write(slice(None), 1),
    "erase": lambda root: delete_in(gzarr.open_group(root, mode="r+"), "z"),
}


@pytest.mark.parametrize("after", NEXT.values(), ids=NEXT)
@pytest.mark.parametrize("overwrite", [False, True], ids=["del", "overwrite"])
def test_what_an_interrupt_left_is_erased_by_what_comes_next(after, overwrite, tmp_path, monkeypatch) -> None:
    root = tmp_path / "g"
    group = gzarr.create_group(root)
    group.create_array("x", data=list(range(20)), chunks=2)
    group.create_array("z", data=list(range(20)), chunks=2)
    done = once(monkeypatch, KeyboardInterrupt())
    change = (
        (lambda: group.create_array("x", data=[1], overwrite=True)) if overwrite else (lambda: delete_in(group, "x"))
    )
    with pytest.raises(KeyboardInterrupt):
        change()
    assert done()
    after(root)
    assert not hidden(tmp_path)


def test_what_cannot_be_erased_is_named(tmp_path, monkeypatch) -> None:
    group = gzarr.create_group(tmp_path / "g")
    group.create_array("x", data=list(range(20)), chunks=2)
    once(monkeypatch, OSError(5, "Input/output error"))
    with pytest.raises(StoreError, match="cannot erase 'x/': Input/output error; it is gone all the same") as info:
        del group["x"]
    (left,) = hidden(tmp_path)
    assert str(tmp_path / "g" / left) in str(info.value)
    group.create_array("y", data=list(range(20)), chunks=2)
    once(monkeypatch, OSError(5, "Input/output error"))
    with pytest.raises(StoreError, match="is in place, but the old one cannot be erased: Input/output error"):
        group.create_array("y", data=[7], overwrite=True)
    assert group["y"][...].tolist() == [7]


# Iterators over directories are closed when they are dropped.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("work", ["erase", "replace"])
def test_an_interrupt_at_any_moment_leaves_the_rest_to_the_next_write(work, tmp_path) -> None:
    store = LocalStore(tmp_path / "root")
    number, begun = 1, True

    def erase() -> None:
        store.erase_prefix("a/")

    def replace() -> None:
        stage = store.stage("a/", replace=True)
        assert stage is not None
        try:
            stage.store.set("a/c/0", b"new")
            stage.put_in_place(replace=True)
        finally:
            stage.discard()

    while begun:
        store.set("a/c/0", b"old")
        begun = interrupted({"erase": erase, "replace": replace}[work], number)
        store.set("other", b"")
        assert not hidden(tmp_path), number
        if work == "replace":
            assert store.get("a/c/0") in (b"old", b"new"), number
        number += 1
    # Python 3.13 looks for interrupts at fewer places.
    assert number > 15


def test_a_forked_child_leaves_what_its_parent_makes(tmp_path) -> None:
    store = LocalStore(tmp_path)
    stage = store.stage("a/", replace=False)
    pid = os.fork()
    if not pid:
        del stage
        store.set("b", b"")
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert len(hidden(tmp_path)) == 1
    stage.discard()
    assert not hidden(tmp_path)


def test_a_tree_that_others_erase_is_no_failure(tmp_path) -> None:
    remove_tree(None, str(tmp_path / temporary_name()), protected=True)
    with pytest.raises(FileNotFoundError):
        check_erasable(None, str(tmp_path / "x"), "x")


def test_what_others_own_in_a_directory_with_the_sticky_bit(tmp_path, monkeypatch) -> None:
    group = gzarr.create_group(tmp_path / "g")
    group.create_array("x", data=list(range(20)), chunks=2)
    (tmp_path / "g").chmod(0o1777)
    check_removable(None, f"{tmp_path}/g/", ["x"], "g")
    monkeypatch.setattr("os.geteuid", lambda: 4321)
    with pytest.raises(PermissionError, match=r"'x' belongs to another user.*sticky bit; nothing was changed"):
        check_removable(None, f"{tmp_path}/g/", ["x"], "g")
    for work in (
        lambda: delete_in(group, "x"),
        lambda: group.create_array("x", data=[1], overwrite=True),
    ):
        with pytest.raises(StoreError, match="belongs to another user"):
            work()
        assert group["x"][...].tolist() == list(range(20))
    # An empty directory holds nothing that would have to be removed from it.
    check_removable(None, f"{tmp_path}/g/", [], "g")


@pytest.mark.parametrize("number", [errno.EPERM, errno.EACCES, errno.EBUSY])
def test_a_directory_that_turns_out_not_to_be_movable_keeps_what_is_in_it(number, tmp_path, monkeypatch) -> None:
    store = LocalStore(tmp_path)
    store.set("x/c/0", b"old")
    stage = store.stage("x/", replace=True)
    assert stage is not None
    stage.store.set("x/c/0", b"new")

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr("gzarr.stores.staging._exchange", lambda: None)
        patched.setattr("pathlib.Path.rename", refuse)
        with pytest.raises(StoreError, match="cannot put a new directory in place"):
            stage.put_in_place(replace=True)
        if number != errno.EBUSY:
            patched.setattr("os.rename", refuse)
            with pytest.raises(StoreError, match="cannot erase 'x/'"):
                store.erase_prefix("x/")
    stage.discard()
    assert store.get("x/c/0") == b"old"
    assert not hidden(tmp_path)


def test_of_a_mount_point_all_is_erased_that_is_in_it(tmp_path, monkeypatch) -> None:
    group = gzarr.create_group(tmp_path / "g")
    group.create_array("x", data=list(range(20)), chunks=2)
    place, rename, rmdir = str(tmp_path / "g" / "x"), os.rename, os.rmdir

    def busy(work: Callable[..., Any]) -> Callable[..., Any]:
        def worked(path: Any, *arguments: Any, **named: Any) -> None:
            if str(path) == place:
                raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
            work(path, *arguments, **named)

        return worked

    monkeypatch.setattr("gzarr.stores.local.can_be_staged", lambda target: target != place)
    monkeypatch.setattr("os.rename", busy(rename))
    monkeypatch.setattr("os.rmdir", busy(rmdir))
    group.create_array("x", data=[1, 2], overwrite=True)
    assert group["x"][...].tolist() == [1, 2]
    del group["x"]
    assert not list(group)
    assert not list(Path(place).iterdir())
    assert not hidden(tmp_path)
