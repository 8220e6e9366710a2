"""What an operation writes over is not still to be read: every pair of operation and kind of input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dask.array as da
import numpy as np
import pytest
import zarr
import zarr.storage
from support.lazy_inputs import DASK, HANDLES, LAZY

import gzarr
from gzarr.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

VALUES = np.arange(64, dtype="u2").reshape(8, 8)
EVERY = {**HANDLES, **DASK, **LAZY}


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """A directory with an image; its level 0 is what is read."""
    root = tmp_path / "x.zarr"
    gzarr.ome.create(root, VALUES, axes="yx", levels=2, chunks=4, progress=False)
    return root


def from_dask(root: Path, value: Any) -> None:
    gzarr.from_dask(value, root, overwrite=True)


def from_dask_to_the_node(root: Path, value: Any) -> None:
    gzarr.from_dask(value, root, path="0", overwrite=True)


def store(root: Path, value: Any) -> None:
    gzarr.store(value, gzarr.open_array(root, path="0", mode="r+"))


def create_image(root: Path, value: Any) -> None:
    gzarr.ome.create(root, value, axes="yx", overwrite=True, progress=False)


def create_image_above(root: Path, value: Any) -> None:
    gzarr.ome.create(root.parent, value, axes="yx", overwrite=True, progress=False)


def copy(root: Path, value: Any) -> None:
    gzarr.copy(value, root, overwrite=True, progress=False)


def halo(root: Path, value: Any) -> None:
    out = gzarr.open_array(root, path="0", mode="r+")
    gzarr.map_blocks(lambda x: x[1:-1, 1:-1], value, out=out, halo=1, block=4)


def halo_overwrites(root: Path, value: Any) -> None:
    gzarr.map_blocks(lambda x: x, value, out=f"{root}/0", block=4, overwrite=True)


REFUSED: list[tuple[Callable[[Path, Any], None], str]] = [
    *((operation, kind) for operation in (from_dask, from_dask_to_the_node, store) for kind in DASK),
    *((operation, kind) for operation in (create_image,) for kind in EVERY),
    (create_image_above, "r"),
    (create_image_above, "dask of zarr"),
    *((operation, kind) for operation in (copy, halo, halo_overwrites) for kind in HANDLES),
    (copy, "zarr"),
    (copy, "zarr in a wrapper"),
]


@pytest.mark.parametrize(("operation", "kind"), REFUSED, ids=lambda value: getattr(value, "__name__", value))
def test_writing_over_what_is_read_is_refused(operation: Callable[[Path, Any], None], kind: str, image: Path) -> None:
    if operation is create_image_above:
        gzarr.create_group(image.parent)
    value = EVERY[kind](image, "0")
    with pytest.raises(ArgumentError, match=r"write|copy|out=") as refused:
        operation(image, value)
    # It says what to do.
    assert "another" in str(refused.value)
    np.testing.assert_array_equal(gzarr.open_array(image, path="0")[...], VALUES)
    assert len(gzarr.ome.open(image).levels) == 2


@pytest.mark.parametrize("kind", EVERY)
def test_labels_are_not_made_of_labels_that_they_replace(kind: str, image: Path) -> None:
    gzarr.ome.create_labels(image, "n", VALUES.astype("u4"), progress=False)
    value = EVERY[kind](image, "labels/n/0")
    with pytest.raises(ArgumentError, match="is read as"):
        gzarr.ome.create_labels(image, "n", value, overwrite=True, progress=False)
    np.testing.assert_array_equal(gzarr.ome.open(image).labels["n"].read(), VALUES)
    # Of another place, they are.
    gzarr.ome.create_labels(image, "m", value, progress=False)
    np.testing.assert_array_equal(gzarr.ome.open(image).labels["m"].read(), VALUES)


# fsspec's simplecache keeps what it has once read.
@pytest.mark.parametrize("kind", [kind for kind in EVERY if kind != "simplecache"])
def test_arrays_from_data_are_read_before_they_replace_it(kind: str, image: Path) -> None:
    """So are arrays that are saved, assigned and appended."""
    gzarr.create_array(
        image, path="0", data=EVERY[kind](image, "0"), overwrite=True, chunks=4, dimension_names=["y", "x"]
    )
    np.testing.assert_array_equal(gzarr.open_array(image, path="0")[...], VALUES)
    gzarr.open_array(image, path="0", mode="w", data=_again(kind, image), chunks=4, dimension_names=["y", "x"])
    np.testing.assert_array_equal(gzarr.open_array(image, path="0")[...], VALUES)
    array = gzarr.open_array(image, path="0", mode="r+")
    array[::-1] = _again(kind, image)
    np.testing.assert_array_equal(array[...], VALUES[::-1])
    array.append(_again(kind, image))
    np.testing.assert_array_equal(array[...], np.concatenate([VALUES[::-1]] * 2))
    gzarr.save(image, a=_again(kind, image), b=1, overwrite=True)
    np.testing.assert_array_equal(gzarr.open_array(image, path="a")[...], np.concatenate([VALUES[::-1]] * 2))


def _again(kind: str, root: Path) -> Any:
    root.with_name("link").unlink(missing_ok=True)
    return EVERY[kind](root, "0")


@pytest.mark.parametrize("kind", EVERY)
def test_other_places_are_written(kind: str, image: Path, tmp_path: Path) -> None:
    """Beside what is read, and where a copy of it is."""
    value = EVERY[kind](image, "0")
    other = tmp_path / "y.zarr"
    for target in (f"{image}/other", other, other):
        if kind in DASK:
            gzarr.from_dask(value, target, overwrite=True, rechunk=True)
            np.testing.assert_array_equal(gzarr.open_array(target)[...], VALUES)
        if kind in HANDLES:
            gzarr.map_blocks(lambda x: x[1:-1, 1:-1], value, out=target, halo=1, block=4, overwrite=True)
            np.testing.assert_array_equal(gzarr.open_array(target)[...], VALUES)
            gzarr.copy(value, target, overwrite=True, progress=False)
    gzarr.ome.create(other, value, axes="yx", overwrite=True, progress=False)
    np.testing.assert_array_equal(gzarr.open_array(other, path="0")[...], VALUES)


def test_arrays_in_memory_are_told_apart_by_identity() -> None:
    one, other = (gzarr.zeros((64, 64), dtype="f4", chunks=16) for _ in range(2))
    assert one != other
    assert one.store != other.store
    gzarr.map_blocks(lambda x: x[2:-2, 2:-2] + 1, one, out=other, halo=2, block=16)
    assert other[...].min() == 1
    again = gzarr.open_array(one.store.mapping)
    with pytest.raises(ArgumentError, match="read for several blocks"):
        gzarr.map_blocks(lambda x: x[2:-2, 2:-2], again, out=one, halo=2, block=16)


def test_stores_of_zarr_python_in_memory() -> None:
    stores = [zarr.storage.MemoryStore() for _ in range(2)]
    for store in stores:
        zarr.create_array(store, name="a", data=VALUES, chunks=(4, 4))
    lazy = da.from_zarr(zarr.open_array(stores[0], path="a", mode="r"))
    assert gzarr.ZarrStore(stores[0]) != gzarr.ZarrStore(stores[1])
    gzarr.from_dask(lazy + 1, stores[1], path="a", overwrite=True)
    for same in (stores[0], stores[0]._store_dict):
        with pytest.raises(ArgumentError, match="from_dask would overwrite"):
            gzarr.from_dask(lazy + 1, same, path="a", overwrite=True)
    np.testing.assert_array_equal(zarr.open_array(stores[1], path="a", mode="r")[...], VALUES + 1)
    np.testing.assert_array_equal(zarr.open_array(stores[0], path="a", mode="r")[...], VALUES)


def test_archives_are_places(tmp_path: Path) -> None:
    path = tmp_path / "x.zarr.zip"
    with gzarr.ZipStore(path, mode="w") as store:
        gzarr.create_array(store, path="a", data=VALUES, chunks=4)
    (tmp_path / "link.zip").symlink_to(path)
    for given in (str(path), f"zip://{path}", path.as_uri(), tmp_path / "link.zip"):
        lazy = gzarr.open_array(given, path="a").to_dask(4)
        with pytest.raises(ArgumentError, match="from_dask would overwrite"):
            gzarr.from_dask(lazy, path, path="a", overwrite=True)
        gzarr.from_dask(lazy, path, path="b", overwrite=True)
    zipped = zarr.open_array(zarr.storage.ZipStore(path, mode="r"), path="a", mode="r")
    with pytest.raises(ArgumentError, match=r"ome\.create would overwrite"):
        gzarr.ome.create(path, zipped, axes="yx", overwrite=True)
    # The archive is below the directory.
    with pytest.raises(ArgumentError, match=r"ome\.create would overwrite"):
        gzarr.ome.create(tmp_path, zipped, axes="yx", overwrite=True)
    np.testing.assert_array_equal(gzarr.open_array(path, path="a")[...], VALUES)


def test_output_twice(tmp_path: Path) -> None:
    source = gzarr.array(VALUES, chunks=4)
    first = gzarr.create_array(tmp_path / "o", shape=(8, 8), dtype="u2", chunks=4)
    with pytest.raises(ArgumentError, match="an output twice"):
        gzarr.map_blocks(lambda x: (x, x), source, out=[first, gzarr.open_array(tmp_path / "o", mode="r+")], block=4)


def test_levels_that_are_level_0(image: Path) -> None:
    """A link in the place of a level would be erased, or written through."""
    del gzarr.open_group(image, mode="r+")["1"]
    (image / "1").symlink_to(image / "0")
    with pytest.raises(ArgumentError, match="the same array as level 0"):
        gzarr.ome.pyramid(image, levels=2, overwrite=True, progress=False)
    np.testing.assert_array_equal(gzarr.open_array(image, path="0")[...], VALUES)


def test_map_blocks_checks_before_it_creates(tmp_path: Path) -> None:
    """Wrong arguments leave no output, and an existing one stays unless all are right."""
    source = gzarr.array(VALUES, chunks=4)
    old = gzarr.create_array(tmp_path / "old", data=VALUES[::-1], chunks=4)
    for wrong in ({"block": 3}, {"boundary": 1j, "halo": 1}, {"resume": True}, {"client": object()}, {}):
        arguments = {"overwrite": "resume" not in wrong and bool(wrong), **wrong}
        for path in ("new", "old"):
            if path == "new" and ("resume" in wrong or not wrong):
                continue
            with pytest.raises((ArgumentError, gzarr.GzarrError, TypeError)):
                gzarr.map_blocks(
                    lambda x: (x, x), source, out=[tmp_path / path, source], halo=arguments.pop("halo", 1), **arguments
                )
        assert not (tmp_path / "new").exists()
        np.testing.assert_array_equal(old[...], VALUES[::-1])
    gzarr.map_blocks(lambda x: x + 1, source, out=tmp_path / "old", block=4, overwrite=True)
    np.testing.assert_array_equal(gzarr.open_array(tmp_path / "old")[...], VALUES + 1)
