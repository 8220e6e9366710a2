"""Nodes that are symbolic links: who erases, replaces or moves one changes the link, and nothing that it leads to."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

import gzarr
from gzarr.stores import staging

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.skipif(os.name != "posix", reason="links need rights there")


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def new_group(root: Path, zarr_format: Any = 3) -> gzarr.Group:
    """Return a group with a link to an array of another one."""
    shared = gzarr.create_group(root / "shared.zarr", zarr_format=zarr_format, device="cpu")
    shared.create_array("raw", data=[1, 2, 3], attributes={"unit": "m"})
    group = gzarr.create_group(root / "g.zarr", zarr_format=zarr_format, device="cpu")
    (root / "g.zarr/raw").symlink_to("../shared.zarr/raw")
    return group


def copy(array: gzarr.Array, group: gzarr.Group, path: str, **options: bool) -> None:
    gzarr.copy(array, group.store, dest_path=path, zarr_format=group.zarr_format, progress=False, **options)


def cached(group: gzarr.Group) -> gzarr.Group:
    assert isinstance(group.store, gzarr.LocalStore)
    store = gzarr.CachedStore(group.store, group.store.root.parent / "cache", max_bytes=10**6)
    return gzarr.open_group(store, mode="r+")


def delete(group: gzarr.Group) -> None:
    del group["raw"]


REPLACE: dict[str, Callable[[gzarr.Group], object]] = {
    "erased": delete,
    "group": lambda g: g.create_group("raw", overwrite=True),
    "mode": lambda g: gzarr.open_group(g.store, path="raw", mode="w", zarr_format=g.zarr_format),
    "array": lambda g: g.create_array("raw", shape=3, dtype="i4", overwrite=True),
    "data": lambda g: g.create_array("raw", data=[7, 8], overwrite=True),
    "copy": lambda g: copy(gzarr.array([7, 8]), g, "raw", overwrite=True),
    "cached": lambda g: delete(cached(g)),
}


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("how", REPLACE)
def test_the_link_is_erased(how: str, zarr_format: Any, tmp_path: Path) -> None:
    group = new_group(tmp_path, zarr_format)
    before = files(tmp_path / "shared.zarr")
    REPLACE[how](group)
    assert files(tmp_path / "shared.zarr") == before
    assert not (tmp_path / "g.zarr/raw").is_symlink()
    assert ("raw" in group) == (how not in ("erased", "cached"))
    if how in ("data", "copy"):
        assert group["raw"][...].tolist() == [7, 8]
    assert not list(tmp_path.rglob(".gzarr-temporary-*"))


def test_the_link_is_replaced_in_two_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where names cannot be exchanged. What has the place of a link has not the permissions of its target."""
    monkeypatch.setattr(staging, "_exchange", lambda: None)
    group = new_group(tmp_path)
    (tmp_path / "shared.zarr/raw").chmod(0o700)
    before = files(tmp_path / "shared.zarr")
    group.create_array("raw", data=[7, 8], overwrite=True)
    assert files(tmp_path / "shared.zarr") == before
    assert group["raw"][...].tolist() == [7, 8]
    assert (tmp_path / "g.zarr/raw").stat().st_mode == (tmp_path / "g.zarr").stat().st_mode
    assert sorted(path.name for path in (tmp_path / "g.zarr").iterdir()) == ["raw", "zarr.json"]


@pytest.mark.parametrize("to", ["moved", "far/away/moved", "empty"])
@pytest.mark.parametrize("link", ["relative", "absolute", "dots"])
def test_the_link_is_moved(link: str, to: str, tmp_path: Path) -> None:
    group = new_group(tmp_path)
    before = files(tmp_path / "shared.zarr")
    place = tmp_path / "g.zarr/raw"
    if link != "relative":
        place.unlink()
        (tmp_path / "elsewhere/deep").mkdir(parents=True)
        (tmp_path / "g.zarr/.up").symlink_to("../elsewhere/deep")
        place.symlink_to(tmp_path / "shared.zarr/raw" if link == "absolute" else ".up/../../shared.zarr/raw")
    (tmp_path / "g.zarr/empty").mkdir()
    group.move("raw", to)
    assert not place.is_symlink()
    # One that cannot be given another text is copied.
    moved = tmp_path / "g.zarr" / to
    assert moved.is_symlink() or link == "dots"
    assert not moved.is_symlink() or moved.resolve() == tmp_path / "shared.zarr/raw"
    assert group[to][...].tolist() == [1, 2, 3]
    assert group[to].attrs["unit"] == "m"
    assert files(tmp_path / "shared.zarr") == before


def test_a_link_does_not_replace_a_file(tmp_path: Path) -> None:
    group = new_group(tmp_path)
    (tmp_path / "g.zarr/notes").write_text("precious")
    with pytest.raises(gzarr.StoreError, match="notes"):
        group.move("raw", "notes")
    assert (tmp_path / "g.zarr/notes").read_text() == "precious"
    assert group["raw"][...].tolist() == [1, 2, 3]


def test_a_link_to_a_file_is_no_prefix(tmp_path: Path) -> None:
    group = new_group(tmp_path)
    (tmp_path / "g.zarr/notes").symlink_to("raw/zarr.json")
    assert isinstance(group.store, gzarr.LocalStore)
    assert not group.store.rename_prefix("notes/", "other/")
    assert sorted(path.name for path in (tmp_path / "g.zarr").iterdir()) == ["notes", "raw", "zarr.json"]


def test_links_above_a_node_are_followed(tmp_path: Path) -> None:
    group = new_group(tmp_path)
    (tmp_path / "g.zarr/shared").symlink_to("../shared.zarr")
    group.create_array("shared/raw", data=[7, 8], overwrite=True)
    assert group["shared/raw"][...].tolist() == group["raw"][...].tolist() == [7, 8]
    del group["shared/raw"]
    assert sorted(files(tmp_path / "shared.zarr")) == ["zarr.json"]
    assert (tmp_path / "g.zarr/shared").is_symlink()


CREATE: dict[str, Callable[[gzarr.Group, str], object]] = {
    "move": lambda g, path: g.move("a", path),
    "copy": lambda g, path: copy(g["a"], g, path),
    "data": lambda g, path: g.create_array(path, data=[1]),
}


@pytest.mark.parametrize("path", ["link", "link/x", "link/x/y"])
@pytest.mark.parametrize("how", CREATE)
def test_what_a_link_to_nothing_leads_to_is_not_made(how: str, path: str, tmp_path: Path) -> None:
    group = gzarr.create_group(tmp_path / "g.zarr", device="cpu")
    group.create_array("a", data=[1, 2, 3])
    (tmp_path / "g.zarr/link").symlink_to("../far/nowhere")
    with pytest.raises(gzarr.StoreError, match=r"link.* is a symbolic link to '../far/nowhere'"):
        CREATE[how](group, path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["g.zarr"]
    assert group["a"][...].tolist() == [1, 2, 3]
