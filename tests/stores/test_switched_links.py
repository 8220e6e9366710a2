"""Threads take turns at a directory under all its names, also after links were switched and directories renamed."""

from __future__ import annotations

import errno
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.stores import locks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

COUNT = 200


@pytest.fixture(autouse=True)
def turns_end_soon() -> Iterator[None]:
    """Let threads run by turns of a few instructions, so that one is soon within the change of another."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def switch_link(folder: Path) -> tuple[Path, Path]:
    """Return two names of one directory, of which one was that of another."""
    (folder / "new").symlink_to("v2")
    (folder / "new").replace(folder / "current")
    return folder / "current", folder / "v2"


def move_away(folder: Path) -> tuple[Path, Path]:
    (folder / "v1").rename(folder / "elsewhere")
    (folder / "v1").symlink_to("elsewhere")
    return folder / "v1", folder / "elsewhere"


def move_target(folder: Path) -> tuple[Path, Path]:
    (folder / "v1").rename(folder / "elsewhere")
    (folder / "current").unlink()
    (folder / "current").symlink_to("elsewhere")
    return folder / "current", folder / "elsewhere"


def move_folder_above(folder: Path) -> tuple[Path, Path]:
    moved = folder.rename(folder.with_name("moved"))
    folder.symlink_to(moved)
    return folder / "v1", moved / "v1"


@pytest.fixture(params=[switch_link, move_away, move_target, move_folder_above], ids=lambda switch: switch.__name__)
def names(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Path]:
    """Return two names of an array, of which one was that of another when it was changed, or both were others."""
    folder = tmp_path / "folder"
    for name in ("v1", "v2"):
        gzarr.create_array(folder / name, shape=(2 * COUNT,), chunks=(2 * COUNT,), dtype="i4")
    (folder / "current").symlink_to("v1")
    for name in ("current", "v1", "v2"):
        array = gzarr.open_array(folder / name, mode="r+", device="cpu")
        array[0] = 5
        array.attrs["before"] = name
        array.append(np.zeros(0, "i4"))
    one, other = request.param(folder)
    return one, other


def run(work: Callable[[int, gzarr.Array], Any], names: tuple[Path, Path]) -> gzarr.Array:
    """Let two threads work at one array by its two names; return it."""
    start, failed = threading.Barrier(2), []

    def one(number: int, name: Path) -> None:
        try:
            array = gzarr.open_array(name, mode="r+", device="cpu")
            start.wait()
            work(number, array)
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=one, args=item) for item in enumerate(names)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    return gzarr.open_array(names[1], device="cpu")


def test_elements(names: tuple[Path, Path]) -> None:
    def work(number: int, array: gzarr.Array) -> None:
        for i in range(number, 2 * COUNT, 2):
            array[i] = i + 1

    np.testing.assert_array_equal(run(work, names)[...], np.arange(1, 2 * COUNT + 1))


def test_rows_and_attributes(names: tuple[Path, Path]) -> None:
    def work(number: int, array: gzarr.Array) -> None:
        for i in range(50):
            array.append(np.array([2 * i + number], "i4"))
            array.attrs[f"{number}/{i}"] = i

    array = run(work, names)
    assert sorted(array[2 * COUNT :].tolist()) == list(range(100))
    attributes = dict(array.attrs)
    attributes.pop("before")
    assert attributes == {f"{number}/{i}": i for number in (0, 1) for i in range(50)}


def test_numbers(names: tuple[Path, Path]) -> None:
    """Keys, nodes and folders that are not there yet, with and without links, have one lock under both names."""
    one, other = (locks._root(gzarr.LocalStore(name)) for name in names)
    for key in ("c/0", "zarr.json", "c/7/8/9", "/", "below/", "below/c/1"):
        assert locks._numbers(one, [key]) == locks._numbers(other, [key]), key
    (names[0] / "link").symlink_to("c")
    many = [f"{folder}/{i}" for folder in ("c", "link", "link/deep", "not/there") for i in range(3)]
    assert locks._numbers(one, many) == locks._numbers(other, [key.replace("link", "c") for key in many])


def test_a_system_that_does_not_tell_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = os.fsencode(tmp_path.resolve())
    (tmp_path / "real/a").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    folders = [root + b"/" + name for name in (b"link", b"link/a", b"link/a/b/c", b"real/a/b", b"none/a")]
    wanted = list(map(os.path.realpath, folders))
    assert list(map(locks._real, folders)) == wanted

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise OSError(errno.EMFILE, "too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)
        found = list(map(locks._real, folders))
    assert found == wanted
    monkeypatch.setattr(locks, "_PATH_ONLY", 0)
    assert list(map(locks._real, folders)) == wanted


def test_a_folder_that_is_erased_during_a_look_has_the_same_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = gzarr.LocalStore(tmp_path)
    folder = tmp_path / "a" / "c"
    folder.mkdir(parents=True)
    expected = locks._numbers(store.directory(), ["a/c/1"]), locks._numbers(store.directory(), ["a/c/1/0"])
    readlink = os.readlink

    def erased(path: Any) -> Any:
        if folder.exists():
            folder.rmdir()
        return readlink(path)

    monkeypatch.setattr(os, "readlink", erased)
    assert (locks._numbers(store.directory(), ["a/c/1"]), locks._numbers(store.directory(), ["a/c/1/0"])) == expected
    folder.mkdir()
    assert locks._numbers(store.directory(), ["a/c/1/0"]) == expected[1]
    assert not folder.exists()
