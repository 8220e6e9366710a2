"""References to arrays without dimensions: kerchunk names their chunk ``0``, and VirtualiZarr gives it no name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest

import gzarr

if TYPE_CHECKING:
    from pathlib import Path


def zarray(dtype: str, *shape: int) -> str:
    common = {"zarr_format": 2, "order": "C", "fill_value": 0, "filters": None, "compressor": None}
    return json.dumps({**common, "shape": shape, "chunks": shape, "dtype": dtype})


@pytest.fixture
def references(tmp_path: Path) -> Path:
    """A document as VirtualiZarr 2.5 writes it."""
    (tmp_path / "raw.bin").write_bytes(np.array([7.5, 2.5]).tobytes())
    refs: dict[str, Any] = {
        ".zgroup": '{"zarr_format": 2}',
        "g/.zgroup": '{"zarr_format": 2}',
        "height/.zarray": zarray("<f8"),
        "height/": [str(tmp_path / "raw.bin"), 0, 8],
        "g/inline/.zarray": zarray("<i4"),
        "g/inline/": "base64:BwAAAA==",
        "named/.zarray": zarray("<i4"),
        "named/0": "base64:BQAAAA==",
        "named/": "base64:CAAAAA==",
        "row/.zarray": zarray("<i4", 1),
        "row/": "base64:CQAAAA==",
    }
    path = tmp_path / "refs.json"
    path.write_text(json.dumps({"version": 1, "refs": refs}))
    return path


EXPECTED = {"height": 7.5, "g/inline": 7, "named": 5, "row": [0]}


def test_values(references: Path) -> None:
    """In an array with dimensions, a key without a name means nothing."""
    url = f"reference::{references}"
    for path, expected in EXPECTED.items():
        assert gzarr.open_array(url, path=path, device="cpu")[...] == expected
        assert gzarr.open_group(url)[path].nchunks_initialized == (path != "row")
    copied = gzarr.copy(url, {}, device="cpu")
    assert {path: copied[path][...] for path in EXPECTED} == EXPECTED
    for path in ("height", "g/inline", "named"):
        found = gzarr.open_array(url, path=path, device="cpu", missing="error")
        assert found[...] == EXPECTED[path]
    assert not gzarr.verify(url).problems


def test_keys(references: Path) -> None:
    store: Any = gzarr.open_store(f"reference::{references}")
    assert store.list_dir("height/") == (["height/.zarray", "height/0"], [])
    assert list(store.list_prefix("height/")) == ["height/.zarray", "height/0"]
    assert dict(store.list_sizes("g/")) == {
        "g/.zgroup": 18,
        "g/inline/.zarray": len(zarray("<i4")),
        "g/inline/0": 4,
    }
    assert [key for key in store.list() if key.startswith("named/")] == ["named/.zarray", "named/0"]


def test_scalars_of_virtualizarr(tmp_path: Path) -> None:
    obstore = pytest.importorskip("obstore")
    virtualizarr = pytest.importorskip("virtualizarr")
    registry = pytest.importorskip("obspec_utils.registry")
    path = tmp_path / "s.h5"
    with h5py.File(path, "w") as file:
        file["height"] = np.int32(7)
        file["f"] = 2.5
        file["row"] = np.arange(3)
    files = registry.ObjectStoreRegistry({"file://": obstore.store.LocalStore()})
    parser = virtualizarr.parsers.HDFParser()
    made = virtualizarr.open_virtual_dataset(f"file://{path}", parser=parser, registry=files, loadable_variables=[])
    made.vz.to_kerchunk(str(tmp_path / "s.json"), format="json")
    group = gzarr.open_group(f"reference::{tmp_path / 's.json'}", device="cpu")
    with h5py.File(path) as file:
        for name in ("height", "f", "row"):
            np.testing.assert_array_equal(group[name][...], file[name][...])
