"""zarr-python's functions by gzarr's own: the same calls make the same arrays, as zarr-python reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr

import gzarr

if TYPE_CHECKING:
    from pathlib import Path

DATA = np.arange(60, dtype="i4").reshape(6, 10)


@pytest.mark.parametrize(
    "arguments",
    [
        {"dtype": "i4"},
        {"dtype": "i4", "chunks": (2, 5)},
        {"dtype": "f8", "chunks": 3, "fill_value": 7},
        {"dtype": "u1", "chunks": False},
        {"dtype": "u1", "chunks": True},
        {"dtype": "i4", "chunks": (2, 5), "zarr_format": 2, "dimension_separator": "/"},
        {"dtype": "i4", "chunks": (2, 5), "zarr_format": 2, "compressor": None},
        {"dtype": "i4", "zarr_format": 2, "order": "F", "chunks": (3, 4)},
        {"dtype": "i4", "chunk_shape": (2, 5), "path": "a/b"},
        {"dtype": "i4", "attributes": {"k": 1}, "dimension_names": ["y", "x"]},
        {"dtype": "i4", "synchronizer": None, "object_codec": None, "overwrite": True},
    ],
)
def test_create(arguments: dict[str, Any], tmp_path: Path) -> None:
    ours = gzarr.create((6, 10), store=tmp_path / "ours", **arguments)
    # zarr-python 3.4 takes no True, which was its default's name before.
    known = {name: value for name, value in arguments.items() if value is not True or name != "chunks"}
    theirs = zarr.create((6, 10), store=tmp_path / "theirs", **known)
    found = zarr.open_array(tmp_path / "ours", path=arguments.get("path"), mode="r+")
    assert (found.shape, found.dtype, found.fill_value) == (theirs.shape, theirs.dtype, theirs.fill_value)
    assert found.metadata.zarr_format == theirs.metadata.zarr_format
    assert dict(found.attrs) == dict(theirs.attrs)
    assert found.order == theirs.order
    if arguments.get("chunks") not in (None, True):
        assert found.chunks == theirs.chunks
    ours[...] = found[...] + 1
    assert (found[...] == theirs[...] + 1).all()


def test_create_in_memory_and_to_be_read_only(tmp_path: Path) -> None:
    a = gzarr.create(5)
    assert (a.dtype, a.shape) == (np.float64, (5,))
    b = gzarr.create(5, store=tmp_path, read_only=True)
    with pytest.raises(gzarr.ReadOnlyError):
        b[0] = 1
    with pytest.raises(gzarr.ArgumentError, match="synchronizer"):
        gzarr.create(5, synchronizer=object())
    with pytest.raises(gzarr.ArgumentError, match="not both"):
        gzarr.create(5, chunks=2, chunk_shape=3)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("source", ["gzarr", "zarr", "numpy"])
def test_from_array(source: str, zarr_format: Any, tmp_path: Path) -> None:
    like = zarr.create_array(
        tmp_path / "x", data=DATA, chunks=(2, 5), fill_value=3, attributes={"k": 1}, zarr_format=zarr_format
    )
    data = {"gzarr": lambda: gzarr.open_array(tmp_path / "x"), "zarr": lambda: like, "numpy": lambda: DATA}[source]()
    made = gzarr.from_array(tmp_path / "y", data=data, chunks="keep", name="n")
    found = zarr.open_array(tmp_path / "y", path="n", mode="r")
    assert (found[...] == DATA).all()
    if source != "numpy":
        theirs = zarr.from_array(tmp_path / "z", data=like)
        assert found.chunks == theirs.chunks == (2, 5)
        assert found.metadata.zarr_format == theirs.metadata.zarr_format
        # zarr-python takes neither.
        assert found.fill_value == 3
        assert dict(found.attrs) == {"k": 1}
    empty = gzarr.from_array(tmp_path / "e", data=data, write_data=False, chunks=(3, 10))
    assert (empty.shape, empty.chunks, empty.nchunks_initialized) == ((6, 10), (3, 10), 0)
    assert made.nchunks_initialized == made.nchunks


def test_save(tmp_path: Path) -> None:
    for _ in range(2):
        gzarr.save_array(tmp_path / "a", DATA, chunks=(2, 5))
        gzarr.save_group(tmp_path / "g", DATA, path="below", b=DATA + 1)
    assert (zarr.open_array(tmp_path / "a", mode="r")[...] == DATA).all()
    assert zarr.open_array(tmp_path / "a", mode="r").chunks == (2, 5)
    loaded: Any = zarr.open_group(tmp_path / "g", path="below", mode="r")
    assert (loaded["arr_0"][...] == DATA).all()
    assert (loaded["b"][...] == DATA + 1).all()
    gzarr.save_group(tmp_path / "one", DATA)
    assert set(zarr.open_group(tmp_path / "one", mode="r")) == {"arr_0"}
    with pytest.raises(gzarr.ArgumentError, match="at least one"):
        gzarr.save_group(tmp_path / "none")
    with pytest.raises(gzarr.ArgumentError, match="two arrays"):
        gzarr.save_group(tmp_path / "none", DATA, arr_0=DATA)


def test_what_is_stored(tmp_path: Path) -> None:
    a = gzarr.create_array(tmp_path / "x.zarr", path="a", shape=(100, 100), chunks=10, dtype="f4")
    a[:20] = 1.5
    theirs = zarr.open_array(tmp_path / "x.zarr", path="a", mode="r")
    assert a.nbytes_stored() == theirs.nbytes_stored()
    rows = dict(a.info_complete().rows)
    assert rows["Chunks stored"] == "20 of 100 (20.0%)"
    assert rows["Shape"] == "(100, 100)"
    group = gzarr.open_group(tmp_path / "x.zarr")
    group = gzarr.open_group(tmp_path / "x.zarr", mode="r+")
    group.create_group("b/c")
    assert dict(group.info_complete().rows)["All members"] == "3"


@pytest.mark.parametrize("write_data", [True, False])
def test_from_array_of_another_format_masks_the_same(write_data: bool) -> None:
    """As a copy does: xarray's mask is the fill value in version 2, and an attribute in version 3."""
    data = np.array([1, -999])
    two = gzarr.create_array({}, data=data, fill_value=-999, dimension_names=("x",), zarr_format=2, device="cpu")
    made = gzarr.from_array({}, data=two, zarr_format=3, write_data=write_data)
    assert dict(made.attrs) == dict(gzarr.copy(two, {}, zarr_format=3).attrs) == {"_FillValue": -999}
    back = gzarr.from_array({}, data=made, zarr_format=2, write_data=write_data)
    assert (dict(back.attrs), back.fill_value) == (dict(gzarr.copy(made, {}, zarr_format=2).attrs), -999)
    named = gzarr.from_array({}, data=two, zarr_format=3, write_data=write_data, attributes={"k": 1})
    assert dict(named.attrs) == {"k": 1}
