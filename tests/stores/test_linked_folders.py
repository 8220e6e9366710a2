"""Symbolic links to files that do not exist, as git-annex and DataLad make them: errors, never absent values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.errors import GzarrError, StoreError

if TYPE_CHECKING:
    from pathlib import Path

TARGET = "../../.git/annex/objects/not-here"


@pytest.fixture(params=[{}, {"shards": (8,)}, {"zarr_format": 2}, {"codecs": None}], ids=["3", "shards", "2", "raw"])
def data_set(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    """Return an array of which one chunk is not there, and that chunk's key."""
    layout: dict[str, Any] = dict(request.param)
    path = tmp_path / "x.zarr"
    gzarr.create_array(path, data=np.arange(1, 17, dtype="i4"), chunks=(4,), **layout)
    key = "1" if "zarr_format" in layout else "c/1"
    (path / key).unlink()
    (path / key).symlink_to(TARGET)
    return path, key


@pytest.mark.parametrize("follow", [True, False])
def test_they_are_errors(data_set: tuple[Path, str], follow: bool) -> None:
    path, key = data_set
    a = gzarr.open_array(gzarr.LocalStore(path, follow_symlinks=follow), device="cpu")
    for read in (
        lambda: a[...],
        lambda: a[5:7] if a.shards is None else a[9],
        lambda: gzarr.open_array(path, missing="error")[...],
        lambda: gzarr.copy(path, {}, progress=False),
    ):
        with pytest.raises(GzarrError, match=rf"{key}.*symbolic link"):
            read()
    np.testing.assert_array_equal(a[:4], [1, 2, 3, 4])


@pytest.mark.parametrize(
    "layout", [{}, {"shards": (8, 8)}, {"zarr_format": 2, "chunk_key_encoding": "/"}, {"codecs": None}]
)
@pytest.mark.parametrize("folder", ["", "/1", "/0"])
def test_folders_of_chunks(layout: dict[str, Any], folder: str, tmp_path: Path) -> None:
    """Chunks may be kept on another disk, by a link, which may not be mounted."""
    a = gzarr.create_array(tmp_path / "x", data=np.ones((16, 16), "i4"), chunks=(4, 4), device="cpu", **layout)
    if "zarr_format" in layout and not folder:
        return
    linked = tmp_path / ("x" + folder if "zarr_format" in layout else f"x/c{folder}")
    elsewhere = linked.rename(tmp_path / "elsewhere")
    linked.symlink_to(elsewhere)
    np.testing.assert_array_equal(a[...], 1)
    away = elsewhere.rename(tmp_path / "away")
    for sel in (..., np.s_[:, 3:9], np.s_[int(folder[1:] or 0) * (8 if "shards" in layout else 4), 5]):
        with pytest.raises(GzarrError, match="symbolic link"):
            a[sel]
    away.rename(elsewhere)
    np.testing.assert_array_equal(a[...], 1)


def test_verify_finds_them(data_set: tuple[Path, str]) -> None:
    path, key = data_set
    found = list(gzarr.verify(path, progress=False))
    assert [problem.key for problem in found] == [key]


def test_the_message_says_what_to_do(tmp_path: Path) -> None:
    store = gzarr.LocalStore(tmp_path)
    (tmp_path / "k").symlink_to(TARGET)
    (tmp_path / "folder").symlink_to("nowhere")
    for key in ("k", "folder/k"):
        with pytest.raises(StoreError, match=r"symbolic link.*git annex get") as failed:
            store.get(key)
        assert failed.value.key == key
    with pytest.raises(StoreError, match="not-here"):
        store.get("k")
    assert list(store.list()) == ["folder", "k"]
    assert store.get("other") is None
    store.erase("k")
    assert store.get("k") is None
    (tmp_path / "k").symlink_to(TARGET)
    store.set("k", b"1")
    assert store.get("k") == b"1"
    assert not (tmp_path / "k").is_symlink()


def test_a_document(tmp_path: Path) -> None:
    gzarr.create_group(tmp_path / "g").create_array("x", data=[1])
    (tmp_path / "g/x/zarr.json").unlink()
    (tmp_path / "g/x/zarr.json").symlink_to(TARGET)
    with pytest.raises(StoreError, match=r"zarr.json.*symbolic link"):
        gzarr.open_array(tmp_path / "g/x")
