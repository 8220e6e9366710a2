"""Hierarchies of N5 in every kind of store, and what is done with their arrays."""

from __future__ import annotations

import json
import pickle
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.counting_store import CountedDocuments, CountingStore
from support.n5_files import COMPRESSIONS, write_array, write_files, write_group
from support.zarr_arrays import same

import gzarr
from gzarr.cli.main import main
from gzarr.tools.verify import verify

if TYPE_CHECKING:
    from pathlib import Path

    from support.devices import TestedDevice

RAW = (np.arange(9 * 20 * 30) % 251).astype("u1").reshape(9, 20, 30)
LABELS = (np.arange(9 * 20 * 30) // 700).astype("u8").reshape(9, 20, 30)


def hierarchy(**root: Any) -> dict[str, bytes]:
    """Return two arrays, in groups with and without a document."""
    store: dict[str, bytes] = {}
    if root:
        write_group(store, "", **root)
    write_group(store, "volumes", sample="A")
    write_array(store, "volumes/raw", RAW, (4, 8, 16), COMPRESSIONS["gzip"], resolution=[4, 4, 40])
    write_array(store, "volumes/labels/ids", LABELS, (9, 20, 30), COMPRESSIONS["zstd"], maxId=7)
    return store


@pytest.fixture(params=["directory", "memory", "zip", "remote", "n5://"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    store = hierarchy(n5="4.0.0")
    if request.param == "memory":
        return store
    if request.param == "remote":
        return CountingStore(store)
    if request.param == "zip":
        with zipfile.ZipFile(tmp_path / "x.n5.zip", "w") as archive:
            for key, value in store.items():
                archive.writestr(key, value)
        return tmp_path / "x.n5.zip"
    directory = write_files(store, tmp_path / "x.n5")
    return directory if request.param == "directory" else f"n5://{directory}"


def test_groups_and_arrays(place: Any) -> None:
    root = gzarr.open_group(place)
    assert (root.zarr_format, dict(root.attrs), root.implicit) == ("n5", {}, False)
    members = dict(root.members(max_depth=None))
    assert list(members) == ["volumes", "volumes/labels", "volumes/labels/ids", "volumes/raw"]
    assert {node.zarr_format for node in members.values()} == {"n5"}
    assert members["volumes/labels"].implicit
    assert dict(members["volumes"].attrs) == {"sample": "A"}
    same(root["volumes/raw"][...], RAW)
    same(gzarr.open_array(place, path="volumes/labels/ids")[:, 3], LABELS[:, 3])
    assert "volumes/raw" in root
    assert "volumes/raw/0" not in root
    assert list(gzarr.open_group(place, path="volumes/labels")) == ["ids"]
    same(gzarr.open(place, path="volumes/raw", zarr_format="n5")[1:3], RAW[1:3])
    with pytest.raises(gzarr.NodeNotFoundError, match="did you mean 'raw'"):
        gzarr.open(place, path="volumes/raws")
    with pytest.raises(gzarr.NodeNotFoundError, match=r"there is no attributes\.json of N5"):
        gzarr.open(place, path="raw", zarr_format="n5")
    if not isinstance(place, CountingStore):
        again = pickle.loads(pickle.dumps(root["volumes"]))
        same(again["raw"][4], RAW[4])


@pytest.mark.parametrize("root", [{}, {"n5": "2.0.0"}, {"other": 1}], ids=["none", "version", "attributes"])
def test_a_root_with_and_without_a_document(root: dict[str, Any], tmp_path: Path) -> None:
    directory = write_files(hierarchy(**root), tmp_path / "x.n5")
    group = gzarr.open_group(directory)
    assert group.implicit == (not root)
    assert [path for path, _ in group.members(max_depth=None)][-1] == "volumes/raw"
    assert {node.zarr_format for _, node in group["volumes"].members()} == {"n5"}


def test_a_directory_with_n5_and_zarr(tmp_path: Path) -> None:
    write_files(hierarchy(n5="4.0.0"), tmp_path / "a.n5")
    gzarr.save(tmp_path / "b.zarr", RAW)
    gzarr.save(tmp_path / "c.zarr", RAW, zarr_format=2)
    group = gzarr.open_group(tmp_path, mode="a")
    assert {name: node.zarr_format for name, node in group.items()} == {"a.n5": "n5", "b.zarr": 3, "c.zarr": 2}
    with pytest.raises(gzarr.ReadOnlyError):
        group["a.n5/volumes"].attrs["x"] = 1
    group["b.zarr"].attrs["x"] = 1
    group.create_array("d", 3, "u1")
    assert sorted(group) == ["a.n5", "b.zarr", "c.zarr", "d"]


def test_zarr_wins_over_n5() -> None:
    """An attributes.json beside the documents of a node of Zarr belongs to another program."""
    for zarr_format in (2, 3):
        store: dict[str, Any] = {}
        gzarr.save(store, RAW, zarr_format=zarr_format)
        store["attributes.json"] = b"not even JSON"
        assert gzarr.open(store).zarr_format == zarr_format
        gzarr.open_array(store, mode="r+")[0] = 1
        assert gzarr.open_array(store, zarr_format=zarr_format).shape == RAW.shape


def test_requests_of_a_remote_store() -> None:
    store = CountedDocuments(hierarchy(n5="4.0.0"))
    gzarr.open_array(store, path="volumes/raw", zarr_format="n5")
    assert store.documents == [["volumes/raw/attributes.json"]]
    store.documents.clear()
    gzarr.open_array(store, path="volumes/raw")
    assert (len(store.documents), store.documents[-1]) == (3, ["volumes/raw/attributes.json"])
    store.documents.clear()
    # Below a group of N5, nothing else is looked for.
    assert [name for name in gzarr.open_group(store, path="volumes")] == ["labels", "raw"]  # noqa: C416
    assert store.documents[3:] == [["volumes/labels/attributes.json", "volumes/raw/attributes.json"]]
    for zarr_format in (2, 3):
        values: dict[str, Any] = {}
        gzarr.save(values, RAW, zarr_format=zarr_format)
        other = CountedDocuments(values)
        gzarr.open(other)
        assert not [key for keys in other.documents for key in keys if "attributes.json" in key]


def test_n5_urls(tmp_path: Path) -> None:
    directory = write_files(hierarchy(n5="4.0.0"), tmp_path / "x.n5")
    for url in (f"n5://{directory}#volumes/raw", f"n5://file://{directory}", f"N5://{directory}"):
        node = gzarr.open(url) if "#" in url else gzarr.open(url)["volumes/raw"]
        same(node[2], RAW[2])
    with pytest.raises(gzarr.ArgumentError, match="a path or a URL"):
        gzarr.open("n5://")
    with pytest.raises(gzarr.NodeNotFoundError, match="no directory"):
        gzarr.open(f"n5://{tmp_path}/y.n5")
    for mode in ("r+", "a", "w"):
        with pytest.raises(gzarr.ReadOnlyError, match="N5 is read, not written"):
            gzarr.open_group(f"n5://{directory}", mode=mode)
    with pytest.raises(gzarr.ReadOnlyError):
        gzarr.create_group(f"n5://{tmp_path}/z.n5")


# -- what is done with arrays ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zarr_format", [None, 2, 3])
def test_copies_are_plain_zarr(zarr_format: Any, tmp_path: Path) -> None:
    source = hierarchy(n5="4.0.0")
    write_array(source, "lz4", RAW, (4, 8, 16), COMPRESSIONS["lz4"], sparse=True)
    write_array(source, "raw", np.linspace(0, 1, 30, dtype="f4"), (7,))
    copied = gzarr.copy(source, tmp_path / "y.zarr", zarr_format=zarr_format, read_back=True, lossy=False)
    assert copied.zarr_format == (zarr_format or 3)
    same(copied["volumes/raw"][...], RAW)
    same(copied["volumes/labels/ids"][...], LABELS)
    same(copied["lz4"][...], RAW)
    assert dict(copied["volumes/raw"].attrs) == {"resolution": [4, 4, 40]}
    assert dict(copied["volumes"].attrs) == {"sample": "A"}
    assert copied["volumes/raw"].chunks == (4, 8, 16)
    # Nothing of N5 is left: others read it.
    names = {codec.to_json()["name"] for _, array in copied.members(max_depth=None) if isinstance(array, gzarr.Array)
             for codec in array.metadata.codecs}  # fmt: skip
    assert names == {"bytes", "gzip", "zstd", "numcodecs.lz4"}
    assert {codec.to_json()["configuration"]["endian"] for codec in copied["raw"].metadata.codecs} == {"little"}
    import zarr

    same(zarr.open_group(tmp_path / "y.zarr", mode="r")["volumes/raw"][...], RAW)


def test_copies_of_arrays_and_views() -> None:
    source = hierarchy(n5="4.0.0")
    array = gzarr.open_array(source, path="volumes/raw")
    same(gzarr.copy(array, {}, codecs="auto", chunks=(9, 10, 30))[...], RAW)
    same(gzarr.copy(array.view[2:5, ::-1], {})[...], RAW[2:5, ::-1])
    like = gzarr.zeros_like(array)
    assert (like.shape, like.chunks, like.zarr_format) == (RAW.shape, (4, 8, 16), 3)
    assert [codec.label for codec in like.compressors] == ["gzip"]


def test_verify(tmp_path: Path) -> None:
    store = hierarchy(n5="4.0.0")
    found = verify(store)
    assert (list(found), found.arrays, found.unchecked) == ([], 2, 1)
    store["volumes/raw/1/2/0"] = store["volumes/raw/1/2/0"][:-3]
    del store["volumes/raw/0/0/1"]
    problems = list(verify(store, missing="error"))
    assert {(problem.kind, problem.key, problem.chunk) for problem in problems} == {
        ("chunk", "volumes/raw/1/2/0", (0, 2, 1)),
        ("missing", "volumes/raw/0/0/1", (1, 0, 0)),
    }


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = str(write_files(hierarchy(n5="4.0.0"), tmp_path / "x.n5"))

    def output(*words: str) -> str:
        assert main(list(words)) == 0
        return capsys.readouterr().out

    tree = output("tree", directory)
    assert "ids (9, 20, 30) uint64" in tree
    assert "raw (9, 20, 30) uint8" in tree
    info = output("info", f"{directory}#volumes/raw")
    for text in ("n5", "(9, 20, 30)", "(4, 8, 16)", "18 of 18", "gzip"):
        assert text in info, text
    assert json.loads(output("info", directory, "--json"))["zarr_format"] == "n5"
    output("verify", directory)
    output("copy", directory, str(tmp_path / "y.zarr"))
    same(gzarr.open_array(tmp_path / "y.zarr", path="volumes/raw")[...], RAW)
    output("copy", f"n5://{directory}", str(tmp_path / "z.zarr"), "--zarr-format", "2")
    assert main(["info", str(tmp_path / "none.n5")]) != 0


def test_explain_and_stored_size() -> None:
    array = gzarr.open_array(hierarchy(n5="4.0.0"), path="volumes/raw")
    explained = gzarr.explain(array, (slice(0, 4), slice(0, 8)))
    assert explained.chunks == 2
    assert "n5_default(gzip)" in str(explained)
    assert array.nchunks_initialized == 18
    assert array.nbytes_stored() < RAW.nbytes


def test_map_blocks_and_loader(device: TestedDevice) -> None:
    array = device.open(hierarchy(n5="4.0.0"), path="volumes/raw")
    doubled = gzarr.map_blocks(lambda block: block.astype("u2") * 2, array, dtype="u2")
    same(device.to_numpy(doubled[...]), RAW.astype("u2") * 2)
    loader = gzarr.Loader(array, gzarr.loader.Patches((3, 4, 5)), batch_size=2, seed=1)
    patches = {part.tobytes() for batch in loader for part in device.to_numpy(next(iter(batch.values())))}
    assert len(patches) == 90
    assert RAW[3:6, 4:8, 5:10].tobytes() in patches


def test_dask_and_xarray(tmp_path: Path) -> None:
    xr = pytest.importorskip("xarray")
    store = hierarchy(n5="4.0.0")
    write_group(store, "data")
    write_array(store, "data/raw", RAW, (4, 8, 16), COMPRESSIONS["gzip"], _ARRAY_DIMENSIONS=["z", "y", "x"])
    directory = write_files(store, tmp_path / "x.n5")
    array = gzarr.open_array(directory, path="volumes/raw")
    same(np.asarray(gzarr.to_dask(array)[3:5].compute()), RAW[3:5])
    found = xr.open_dataset(directory, group="data", engine="gzarr", consolidated=False)
    # Zeros are elements like others, in copies too.
    assert (found["raw"].dims, found["raw"].dtype) == (("z", "y", "x"), np.dtype("u1"))
    same(found["raw"].values, RAW)
    for zarr_format in (2, 3):
        copied = gzarr.copy(directory, tmp_path / f"{zarr_format}.zarr", zarr_format=zarr_format)
        assert "_FillValue" not in copied["data/raw"].attrs
        for engine in ("gzarr", "zarr"):
            again = xr.open_dataset(tmp_path / f"{zarr_format}.zarr", group="data", engine=engine, consolidated=False)
            assert (again["raw"].dims, again["raw"].dtype) == (("z", "y", "x"), np.dtype("u1"))
            same(again["raw"].values, RAW)


def test_bench_has_the_axes_of_tensorstore_in_reverse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = str(write_files(hierarchy(n5="4.0.0"), tmp_path / "x.n5"))
    assert main(["bench", directory, "--path", "volumes/raw", "--rounds", "1"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.split()[:1] == ["tensorstore"])
    assert line.endswith("same elements")
