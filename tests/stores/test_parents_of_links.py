"""``..`` after a symbolic link is the directory above the one that it leads to, as for the system."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

import gzarr
from gzarr.errors import ArgumentError, StoreError
from gzarr.stores.places import place_of

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows takes '..' for the name before it, link or not")

AWAY = "w/home/latest/../out.zarr"


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make ``w/home/latest``, a link to ``w/data/2024``, in the current directory."""
    monkeypatch.chdir(tmp_path)
    Path("w/data/2024").mkdir(parents=True)
    Path("w/home").mkdir()
    Path("w/home/latest").symlink_to("../data/2024")
    return tmp_path


def there() -> list[str]:
    """Return what is in the directory of the link, and in the one above what it leads to."""
    found = [path for folder in ("data", "home") for path in Path("w", folder).iterdir()]
    return sorted(str(path) for path in found if path.name not in ("2024", "latest"))


@pytest.mark.parametrize("form", ["relative", "absolute", "path", "url", "store", "fsspec"])
def test_directories(form: str, folders: Path) -> None:
    given = {
        "relative": AWAY,
        "absolute": str(folders / AWAY),
        "path": Path(AWAY),
        "url": f"file://{folders}/{AWAY}",
        "store": gzarr.LocalStore(AWAY),
        "fsspec": f"fsspec+file://{folders}/{AWAY}",
    }[form]
    if form == "fsspec":
        pytest.importorskip("fsspec")
    gzarr.create_array(given, data=np.arange(4))
    assert there() == ["w/data/out.zarr"]
    assert Path(AWAY, "zarr.json").exists()
    np.testing.assert_array_equal(gzarr.open_array(given, device="cpu")[...], np.arange(4))


def test_what_is_beside_the_link_stays() -> None:
    gzarr.create_array("w/home/out.zarr", data=np.arange(4))
    gzarr.create_array(AWAY, data=np.arange(8))
    gzarr.create_array(AWAY, data=np.arange(9), overwrite=True)
    assert gzarr.open_array("w/home/out.zarr").shape == (4,)
    gzarr.open_group("w/home/latest/..", mode="r+", path="").store.erase_prefix("out.zarr/")
    assert there() == ["w/home/out.zarr"]


def test_archives_and_caches() -> None:
    with gzarr.ZipStore("w/home/latest/../out.zip", mode="w") as store:
        store.set("k", b"v")
    gzarr.create_group("w/home/latest/../two.zip").store.close()
    cached = gzarr.CachedStore({}, "w/home/latest/../cache", 1 << 20, name="x", check="once")
    assert Path(cached.directory_of_cache) == Path.cwd() / "w/data/cache"
    cached.get("k")
    assert [name for name in there() if name != "w/data/cache"] == ["w/data/out.zip", "w/data/two.zip"]


def test_the_same_store() -> None:
    gzarr.create_array("w/data/out.zarr", data=np.arange(4))
    away, plain = gzarr.LocalStore(AWAY), gzarr.LocalStore("w/data/out.zarr")
    assert away.root.samefile("w/data/out.zarr")
    assert place_of(away).overlaps(place_of(plain))
    assert not place_of(away).overlaps(place_of(gzarr.LocalStore("w/home/out.zarr")))
    with pytest.raises(ArgumentError, match="overwrite"):
        gzarr.copy(AWAY, "w/data/out.zarr", overwrite=True, progress=False)
    assert pickle.loads(pickle.dumps(away)) == away


def test_references(folders: Path) -> None:
    pytest.importorskip("fsspec")
    gzarr.create_array("w/data/out.zarr", data=np.arange(4), codecs=None)
    document = Path("w/data/out.zarr/zarr.json").read_text()
    chunk = f"{folders}/w/home/latest/../out.zarr/c/0"
    Path("w/data/refs.json").write_text(json.dumps({"version": 1, "refs": {"zarr.json": document, "c/0": [chunk]}}))
    opened = gzarr.open_array(f"reference::{folders}/w/home/latest/../refs.json", device="cpu")
    np.testing.assert_array_equal(opened[...], np.arange(4))


def test_other_links_may_change_later() -> None:
    """Only a link before ``..`` is resolved; the text of all other paths stays."""
    Path("w/current").symlink_to("home")
    store = gzarr.LocalStore("w/current/x/../out.zarr", read_only=False)
    assert store.root == Path.cwd() / "w/current/out.zarr"
    store.set("k", b"home")
    Path("w/current").unlink()
    Path("w/current").symlink_to("data")
    store.set("k", b"data")
    assert there() == ["w/data/out.zarr", "w/home/out.zarr"]
    assert gzarr.LocalStore("w/home/latest/../../data/./x//y").root == Path.cwd().resolve() / "w/data/x/y"
    assert gzarr.LocalStore("w/current/2024/../..").root == Path.cwd().resolve() / "w"
    assert gzarr.LocalStore("/../..").root == Path("/")


@pytest.mark.parametrize(
    "make",
    [
        gzarr.LocalStore,
        lambda path: gzarr.ZipStore(path, mode="a"),
        lambda path: gzarr.CachedStore({}, path, 1 << 20, name="x", check="once"),
    ],
)
def test_the_current_directory_is_gone(make: object, folders: Path) -> None:
    gone = folders / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    for path in ("x", "../x"):
        with pytest.raises(StoreError, match="is relative to the current directory, which no longer exists"):
            make(path)  # type: ignore[operator]


def test_an_absolute_path_needs_no_current_directory(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = folders / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert gzarr.LocalStore(f"{folders}/w/home/latest/../out.zarr").root == folders / "w/data/out.zarr"
    with pytest.raises(StoreError, match="relative to the current directory, which no longer exists"):
        gzarr.LocalStore("latest/../out.zarr")
