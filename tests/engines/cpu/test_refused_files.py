"""Files that the system refuses to open or to close, and links to content that was not fetched."""

from __future__ import annotations

import errno
import os
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.engines.cpu import native_write, old_content
from gzarr.errors import ChunkReadError, ChunkWriteError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

resource = pytest.importorskip("resource")
pytestmark = pytest.mark.skipif("files" not in native_write.available(), reason="needs Linux and the encoders' wheels")

SHARDED: dict[str, Any] = {"chunks": (5, 5), "shards": (10, 10), "dtype": "i4"}
LAYOUTS: dict[str, dict[str, Any]] = {
    "chunks": {"chunks": (5, 5), "dtype": "i4"},
    "shards": SHARDED,
}

#: Writes that change a part of the shard.
CHANGES: dict[str, Callable[[gzarr.Array], object]] = {
    "element": lambda a: a.__setitem__((1, 1), 5),
    "inner chunk": lambda a: a.__setitem__((slice(5), slice(5)), 5),
    "oindex": lambda a: a.oindex.__setitem__(([1, 6], [1, 3]), 5),
    "lock": lambda a: a.write((slice(3),), np.ones((3, 10), "i4"), lock=True),
    "append": lambda a: a.append(np.ones((1, 10), "i4")),
    "resize": lambda a: a.resize((7, 10)),
}


def ones(target: Any, shape: tuple[int, ...], options: dict[str, Any]) -> gzarr.Array:
    array = gzarr.create_array(target, shape=shape, device="cpu", **options)
    array[...] = 1
    return array


@contextmanager
def no_more_files() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("what", ["file", "folder"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_shard_that_was_not_fetched_stays(tmp_path: Path, change: str, what: str, durable: bool) -> None:
    root = tmp_path / "a"
    ones(root, (9, 10), SHARDED)
    link = root / "c/0/0" if what == "file" else root / "c"
    moved = link.rename(tmp_path / "fetched")
    link.symlink_to("not fetched")
    array = gzarr.open_array(gzarr.LocalStore(root, durable=durable), mode="r+", device="cpu")
    with pytest.raises(ChunkReadError, match="Fetch its content"):
        CHANGES[change](array)
    assert os.readlink(link) == "not fetched"  # noqa: PTH115
    link.unlink()
    moved.rename(link)
    assert (gzarr.open_array(root, device="cpu")[:7] == 1).all()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("number", [1, 8])
@pytest.mark.parametrize("kind", ["folder", "archive"])
def test_errors_have_the_number_of_the_system_and_name_the_store(
    tmp_path: Path, kind: str, number: int, layout: str
) -> None:
    root = tmp_path / ("a" if kind == "folder" else "a.zip")
    ones(root, (10 * number, 10), LAYOUTS[layout])
    array = gzarr.open_array(root, device="cpu")
    # What is loaded on first use opens files.
    ones(tmp_path / "first", (10 * number, 10), LAYOUTS[layout])[...]
    with no_more_files(), pytest.raises(ChunkReadError, match=re.escape(f"{str(root)!r}")) as caught:
        array[...]
    assert caught.value.errno == errno.EMFILE
    if kind == "folder":
        array = gzarr.open_array(root, mode="r+", device="cpu")
        with no_more_files(), pytest.raises(ChunkWriteError, match=re.escape(f"{array.store!r}")) as refused:
            array[...] = 2
        assert refused.value.errno == errno.EMFILE


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("number", [1, 8])
def test_links_in_a_circle(tmp_path: Path, number: int, layout: str) -> None:
    ones(tmp_path, (10 * number, 10), LAYOUTS[layout])
    last = tmp_path / f"c/{(2 if layout == 'chunks' else 1) * number - 1}/0"
    last.unlink()
    last.symlink_to(last)
    array = gzarr.open_array(tmp_path, device="cpu")
    for read in (lambda: array[...], lambda: array.vindex[[-1, 0], [0, 0]], lambda: array.oindex[:, [1]]):
        with pytest.raises(ChunkReadError, match=re.escape(f"{array.store!r}")) as caught:
            read()
        assert (caught.value.errno, caught.value.key) == (errno.ELOOP, str(last.relative_to(tmp_path)))


def test_files_that_cannot_be_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was written to them, so the write has succeeded, and the others are closed."""
    array = ones(tmp_path, (30, 10), SHARDED)
    opened: list[int] = []
    open_shard, write_files = old_content._open_shard, native_write._write_files

    def noted(*args: Any) -> Any:
        found = open_shard(*args)
        opened.append(found[0])
        return found

    def spoilt(*args: Any, **options: Any) -> Any:
        left = write_files(*args, **options)
        os.close(opened[0])
        return left

    monkeypatch.setattr(old_content, "_open_shard", noted)
    monkeypatch.setattr(native_write, "_write_files", spoilt)
    array[::10, 1] = 5
    assert len(opened) == 3
    for file in opened:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(file)
    assert (array[::10, 1] == 5).all()
    assert array[...].sum() == 300 + 3 * 4
