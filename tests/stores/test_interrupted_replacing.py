"""Ctrl-C while directories are replaced and erased: the old value or the new one, no other error, nothing left open."""

from __future__ import annotations

import contextlib
import gc
import inspect
import itertools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.interrupts import interrupted

import gzarr
from gzarr.stores import file_locks, staging
from gzarr.stores.claims import hold_claim
from gzarr.stores.removal import remove_tree

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.skipif(os.name != "posix", reason="directories are not removed by descriptors there")


def opened(folder: Path) -> list[str]:
    """Return what this process has open below a folder, where the system tells that."""
    found, links = [], Path("/proc/self/fd")
    for link in links.iterdir() if links.is_dir() else ():
        # Other threads may close theirs meanwhile.
        with contextlib.suppress(OSError):
            found.append(str(link.readlink()))
    return [path for path in found if path.startswith(str(folder.resolve()))]


@pytest.mark.parametrize(
    "exchanges",
    [
        pytest.param(
            True,
            id="exchanged",
            marks=pytest.mark.skipif(not sys.platform.startswith("linux"), reason="names cannot be exchanged there"),
        ),
        pytest.param(False, id="renamed"),
    ],
)
def test_the_old_array_or_the_new_one(exchanges: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    number = [0]

    def interrupting(function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the same function, but be interrupted after one of the calls."""

        def call(*arguments: Any) -> Any:
            result = function(*arguments)
            number[0] -= 1
            if not number[0]:
                raise KeyboardInterrupt
            return result

        return call

    exchange = staging._exchange() if exchanges else None
    assert exchanges == (exchange is not None)
    changed = None if exchange is None else interrupting(exchange)
    monkeypatch.setattr(staging, "_exchange", lambda: changed)
    monkeypatch.setattr(Path, "rename", interrupting(Path.rename))
    group = gzarr.create_group(tmp_path / "g", device="cpu")
    group.create_array("a", data=[1, 2, 3])
    for at in (1,) if exchanges else (1, 2):
        number[0] = at
        with pytest.raises(KeyboardInterrupt):
            group.create_array("a", data=[at + 3], overwrite=True)
        assert group["a"][...].tolist() in ([1, 2, 3], [4], [5])
        # What is left of the other one, the next write erases.
        group.attrs["at"] = at
        assert sorted(path.name for path in (tmp_path / "g").iterdir()) == ["a", "zarr.json"]


def test_deep_folders_need_no_recursion(tmp_path: Path) -> None:
    """As deep as the system's limit of open files allows, other than in ``shutil.rmtree``."""
    (tmp_path / "x" / "/".join(["d"] * 100)).mkdir(parents=True)
    limit = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(len(inspect.stack(0)) + 50)
        remove_tree(None, str(tmp_path / "x"))
    finally:
        sys.setrecursionlimit(limit)
    assert not list(tmp_path.iterdir())


def test_an_interrupt_is_no_other_error(tmp_path: Path) -> None:
    """Wherever it comes, also in the standard library."""
    left = tmp_path / "x"
    # No interrupt is to come while something of other tests is collected.
    gc.collect()
    for number in itertools.count(1):
        (left / "c/0").mkdir(parents=True, exist_ok=True)
        for name in ("zarr.json", "c/0/0", "c/0/1"):
            (left / name).touch()
        if not interrupted(lambda: remove_tree(None, str(left)), number, within=""):
            break
        assert not opened(tmp_path), number
    assert not left.exists()
    assert number > 20


def test_a_claim_is_given_up(tmp_path: Path) -> None:
    """Wherever an interrupt comes: the same process, which still runs, can claim the place again."""
    path = str(tmp_path / "claim")

    def claim() -> None:
        with hold_claim(path) as is_held:
            assert is_held

    for number in itertools.count(1):
        begun = interrupted(claim, number)
        assert not opened(tmp_path), number
        assert not file_locks._briefly_locked, number
        claim()
        if not begun:
            break
    assert number > 10
