"""Copies to a place where another process makes something: they are refused, and what is there becomes one whole."""

from __future__ import annotations

import errno
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.dying_store import DyingStore
from support.forks import in_child

import gzarr
from gzarr import progress
from gzarr.errors import ArgumentError
from gzarr.stores import LocalStore, directories, leftovers, locks, temporary_names
from gzarr.stores import claims as claim_files
from gzarr.stores.locks import claim
from gzarr.tools.copy import prepare_copy
from gzarr.tools.copy_options import CopyOptions

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="forks and links")

ONE, TWO = np.full(400, 1), np.full(400, 2)
REFUSED = "another writer is creating .* at the same time"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a directory with the arrays ``a`` and ``b``."""
    group = gzarr.create_group(tmp_path / "root", device="cpu")
    group.create_array("a", data=ONE, chunks=2)
    group.create_array("b", data=TWO, chunks=2)
    return tmp_path / "root"


def claims(root: Path) -> list[str]:
    return [path.name for path in root.rglob(f"{temporary_names.TEMPORARY}claim-*")]


def refused(work: Callable[[], object]) -> None:
    with pytest.raises(ArgumentError, match=REFUSED):
        work()


@pytest.mark.parametrize("was_there", [False, True])
def test_of_two_processes_one_copies(was_there: bool, root: Path) -> None:
    if was_there:
        gzarr.copy(root / "b", root / "z", progress=False)
    options = CopyOptions(overwrite=was_there, resume=False)
    steps = prepare_copy(root / "a", root / "z", options).steps()
    for _ in range(2):
        next(steps)

    def rival() -> None:
        refused(lambda: gzarr.copy(root / "b", root / "z", progress=False, overwrite=True))
        refused(lambda: gzarr.copy(root / "b", root / "z", progress=False, resume=True))
        refused(lambda: gzarr.open_group(root, mode="r+").move("b", "z"))

    assert in_child(rival) == 0
    for _ in steps:
        pass
    assert gzarr.load(root / "z").tolist() == ONE.tolist()
    assert gzarr.load(root / "b").tolist() == TWO.tolist()
    assert not claims(root)
    gzarr.copy(root / "b", root / "z", overwrite=True, progress=False)
    assert gzarr.load(root / "z").tolist() == TWO.tolist()


def from_dask(root: Path) -> None:
    dask_array = pytest.importorskip("dask.array")
    gzarr.from_dask(dask_array.from_array(TWO, chunks=20), root / "z", overwrite=True)


WORKS: dict[str, Callable[[Path], object]] = {
    "in the group": lambda root: gzarr.copy(root / "b", root, dest_path="z", progress=False),
    "by its own path": lambda root: gzarr.copy(root / "b", root / "z", progress=False),
    "by a link": lambda root: gzarr.copy(root / "b", root.parent / "link/z", progress=False),
    "a group": lambda root: gzarr.copy(root, root.parent / "root/z", path="a", progress=False),
    "move": lambda root: gzarr.open_group(root, mode="r+").move("b", "z"),
    "from_dask": from_dask,
}


@pytest.mark.parametrize("work", WORKS.values(), ids=WORKS)
def test_all_want_one_place(work: Callable[[Path], object], root: Path) -> None:
    (root.parent / "link").symlink_to("root")
    with claim(LocalStore(root), "z"):
        refused(lambda: work(root))
        assert len(claims(root)) == 1
        assert not (root / "z").exists()
    work(root)
    assert gzarr.load(root / "z").sum() > 0
    assert not claims(root)


def test_elements_of_dask_are_written_before_others_overwrite_them(root: Path) -> None:
    dask_array = pytest.importorskip("dask.array")
    codes = []

    def block(values: Any) -> Any:
        if not codes:
            codes.append(in_child(lambda: refused(lambda: from_dask(root))))
        return values

    source = dask_array.from_array(ONE, chunks=20).map_blocks(block, dtype=ONE.dtype, meta=ONE[:0])
    gzarr.from_dask(source, root / "z", overwrite=True, compute_options={"scheduler": "synchronous"})
    assert codes == [0]
    assert gzarr.load(root / "z").tolist() == ONE.tolist()


@pytest.mark.parametrize("resume", [True, False])
def test_what_a_killed_copy_has_claimed_is_free(
    resume: bool, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DyingStore(root, "z/c/7", tmp_path / "marker")
    assert in_child(lambda: gzarr.copy(root / "a", store, dest_path="z", progress=False)) == -signal.SIGKILL
    assert len(claims(root)) == 1
    if resume:
        gzarr.copy(root / "a", root / "z", resume=True, progress=False)
        assert gzarr.load(root / "z").tolist() == ONE.tolist()
    else:
        monkeypatch.setattr(leftovers, "_scanned", set())
        LocalStore(root).set("other", b"")
    assert not claims(root)


def test_what_is_claimed_is_not_removed_by_others(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with claim(LocalStore(root), "z"):
        monkeypatch.setattr(leftovers, "_scanned", set())
        LocalStore(root).set("other", b"")
        assert len(claims(root)) == 1
        refused(lambda: gzarr.copy(root / "b", root / "z", progress=False))


def test_folders_above_do_not_stay(root: Path) -> None:
    with claim(LocalStore(root), "x/y/z"):
        assert (root / "x/y").is_dir()
    assert not (root / "x").exists()


def test_a_node_that_another_has_made_since(root: Path) -> None:
    for overwrite, why in (
        (True, "which another writer was creating at the same time; try again"),
        (False, "erase it"),
    ):
        planned = prepare_copy(root / "a", root / "z", CopyOptions(overwrite=overwrite))
        gzarr.create_array(root / "z", data=TWO)
        with pytest.raises(ArgumentError, match=why):
            planned.run(progress=False)
        assert gzarr.load(root / "z").tolist() == TWO.tolist()
        del gzarr.open_group(root, mode="r+")["z"]


def test_a_copy_that_is_interrupted_where_its_bar_is_drawn_claims_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Notebooks keep the last traceback, and so all that is in it."""

    def interrupt(*arguments: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(progress, "has_place", lambda: True)
        patch.setattr(progress, "QUIET_SECONDS", -1)
        patch.setattr(progress, "start_bar", interrupt)
        with pytest.raises(KeyboardInterrupt) as kept:
            gzarr.copy(root / "a", root / "z")
    assert kept.tb is not None
    assert not claims(root)
    gzarr.copy(root / "a", root / "z", resume=True, progress=False)


def test_without_locks_nothing_is_left(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(fd: int, seconds: float) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(claim_files, "brief_lock", no_locks)
    gzarr.copy(root / "a", root / "z", progress=False)
    gzarr.open_group(root, mode="r+").move("b", "y")
    assert not claims(root)
    assert gzarr.load(root / "z").tolist() == ONE.tolist()
    assert gzarr.load(root / "y").tolist() == TWO.tolist()


def test_an_empty_folder_that_others_erase_is_claimed_anew(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = locks.make_directories
    left = [1, 1]

    def erased(path: str, *, durable: bool) -> list[str]:
        made = make(path, durable=durable)
        if left:
            left.pop()
            (root / "x").rmdir()
        return made

    monkeypatch.setattr(locks, "make_directories", erased)
    with claim(LocalStore(root), "x/z"):
        assert len(claims(root)) == 1
    assert not (root / "x").exists()


@pytest.mark.parametrize("durable", [True, False])
def test_folders_that_stay_are_durable(durable: bool, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed, flush = [], directories.sync_directory

    def noted(directory: int | None, base: str) -> None:
        if directory is None:
            flushed.append(os.path.normpath(base))
        flush(directory, base)

    monkeypatch.setattr(directories, "sync_directory", noted)
    with claim(LocalStore(root, durable=durable), "x/y/z"):
        assert flushed == ([str(root), str(root / "x")] if durable else [])


def test_a_forked_child_has_no_claim(root: Path) -> None:
    def leave() -> None:
        held.__exit__(None, None, None)

    held = claim(LocalStore(root), "z")
    with held:
        assert in_child(leave) == 0
        assert len(claims(root)) == 1
        refused(lambda: gzarr.copy(root / "b", root / "z", progress=False))
    assert not claims(root)


def test_nothing_is_claimed_behind_links_that_are_refused(root: Path) -> None:
    store = LocalStore(root, follow_symlinks=False)
    with claim(store, "z"), claim(gzarr.CachedStore(store, root.parent / "cache", 10**6), "z"):
        assert not claims(root)


def test_the_root_of_all_files_can_be_claimed() -> None:
    with claim(LocalStore("/"), ""):
        pass
