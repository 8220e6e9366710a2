"""Virtual datasets: references of kerchunk and VirtualiZarr to chunks in HDF5 files, in JSON, Parquet and Icechunk."""

from __future__ import annotations

import dataclasses
import json
import os
import warnings
from typing import TYPE_CHECKING, Any

import fsspec
import h5py
import icechunk
import numpy as np
import obstore
import pytest
import xarray as xr
from kerchunk.df import refs_to_dataframe
from kerchunk.hdf import SingleHdf5ToZarr
from support import servers
from support.forks import in_child

import gzarr
from gzarr.errors import ArgumentError, ChunkError, NodeNotFoundError, ReadOnlyError, StoreError, ValueSizeError
from gzarr.stores import ByteRange

if TYPE_CHECKING:
    from pathlib import Path

    from support.devices import TestedDevice

    Values = np.ndarray[Any, Any]


def elements() -> Values:
    return np.random.default_rng(5).normal(size=(64, 50)).astype("f4")


@pytest.fixture
def hdf5(tmp_path: Path) -> Path:
    """An HDF5 file with a compressed array, an uncompressed one, and one of whose 8 chunks only one is stored."""
    path = tmp_path / "a.h5"
    data = elements()
    with h5py.File(path, "w") as file:
        file.create_dataset("g/a", data=data, chunks=(16, 25), compression="gzip", shuffle=True)
        sparse = file.create_dataset("g/sparse", shape=(64, 50), dtype="i4", chunks=(16, 25), fillvalue=7)
        sparse[:16, :25] = 3
        file.create_dataset("raw", data=data)
    return path


def translated(path: str) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        references: dict[str, Any] = SingleHdf5ToZarr(path).translate()
    return references


@pytest.fixture(params=["json", "parquet"])
def references(request: pytest.FixtureRequest, hdf5: Path, tmp_path: Path) -> Path:
    """References to the chunks of that file."""
    found = translated(str(hdf5))
    path = tmp_path / ("refs.json" if request.param == "json" else "refs.parq")
    if request.param == "json":
        path.write_text(json.dumps(found))
    else:
        refs_to_dataframe(found, str(path), record_size=4)
    return path


def check(device: TestedDevice, group: Any, **options: Any) -> None:
    """Compare a group with what the file holds."""
    data = elements()
    sparse = np.full((64, 50), 7, dtype="i4")
    sparse[:16, :25] = 3
    for path, expected in (("g/a", data), ("raw", data), ("g/sparse", sparse)):
        np.testing.assert_array_equal(device.read(device.open(group, path=path, **options)), expected)


def test_references(references: Path, device: TestedDevice) -> None:
    url = f"reference::{references}"
    check(device, url)
    group = gzarr.open_group(url)
    assert sorted(name for name, _ in group.members(max_depth=None)) == ["g", "g/a", "g/sparse", "raw"]
    np.testing.assert_array_equal(gzarr.open_array(f"{url}#g/a", device="cpu")[3:20, 7], elements()[3:20, 7])


def test_forms(references: Path, device: TestedDevice) -> None:
    check(device, "reference://", storage_options={"fo": str(references)})
    check(device, f"fsspec+reference::file://{references}")
    fs = fsspec.filesystem("reference", fo=str(references), asynchronous=True, remote_protocol="file")
    check(device, gzarr.FsspecStore(fs))
    check(device, fs.get_mapper("/"))
    assert gzarr.open_group(gzarr.FsspecStore(fs, "g")).keys()


def test_listing(references: Path) -> None:
    store: Any = gzarr.open_store(f"reference::{references}")
    assert store.list_dir("g/") == (["g/.zattrs", "g/.zgroup"], ["g/a/", "g/sparse/"])
    assert store.list_dir("g/sparse/") == (["g/sparse/.zarray", "g/sparse/.zattrs", "g/sparse/0.0"], [])
    assert sum("/a/" in key for key in store.list()) == 2 + 8
    assert sorted(store.list_prefix("raw/")) == ["raw/.zarray", "raw/.zattrs", "raw/0.0"]
    assert dict(store.list_sizes("raw/"))["raw/0.0"] == elements().nbytes
    assert store.get("g/zarr.json") is None
    assert store.get("g/a/9.9x") is None


def test_ranges_and_sizes(references: Path) -> None:
    store: Any = gzarr.open_store(f"reference::{references}")
    value = elements().tobytes()
    n = len(value)
    ranges = [ByteRange(2, 3), ByteRange(-4), ByteRange(7), ByteRange(0, 0), ByteRange(n, 0), ByteRange()]
    found = store.get_partial_values([("raw/0.0", wanted) for wanted in ranges])
    assert found == [value[2:5], value[-4:], value[7:], b"", b"", value]
    for wanted in (ByteRange(n - 2, 3), ByteRange(n + 1, 1), ByteRange(-n - 1), ByteRange(n + 2)):
        with pytest.raises(ValueSizeError, match="too few"):
            store.get_partial_values([("raw/0.0", wanted)])
    with pytest.raises(ValueSizeError, match=f"at most {n - 1}"):
        store.get_small_values(["raw/0.0"], n - 1)
    assert store.get_partial_values([(".zgroup", ByteRange(1, 5)), ("none", ByteRange(1, 5))])[1] is None


def test_references_are_read_only(references: Path) -> None:
    url = f"reference::{references}"
    for mode in ("r+", "a", "w"):
        with pytest.raises(ReadOnlyError):
            gzarr.open(url, mode=mode)
    with pytest.raises(ReadOnlyError, match="cannot be written"):
        gzarr.open_store(f"reference::{references}", read_only=False).set("raw/0.0", b"")


# -- what is lost is never a fill value


def test_a_target_that_is_gone(references: Path, hdf5: Path) -> None:
    group = gzarr.open_group(f"reference::{references}")
    hdf5.unlink()
    for path in ("g/a", "raw", "g/sparse"):
        with pytest.raises(ChunkError, match=r"a\.h5', the target of .*: FileNotFoundError"):
            group[path][:16, :25]
    # What has no reference never had a value.
    assert (group["g/sparse"][16:] == 7).all()


def test_a_target_that_is_cut(references: Path, hdf5: Path) -> None:
    group = gzarr.open_group(f"reference::{references}")
    os.truncate(hdf5, hdf5.stat().st_size - 3000)
    with pytest.raises(ChunkError, match="too short"):
        group["raw"][...]


@pytest.mark.parametrize("damage", ["cut", "empty", "not Parquet"])
def test_records_that_cannot_be_read(hdf5: Path, tmp_path: Path, damage: str) -> None:
    path = tmp_path / "refs.parq"
    refs_to_dataframe(translated(str(hdf5)), str(path), record_size=4)
    records = path / "g" / "a" / "refs.0.parq"
    whole = records.read_bytes()
    records.write_bytes({"cut": whole[:-5], "empty": b"", "not Parquet": b"x" * 500}[damage])
    array = gzarr.open_array(f"reference::{path}#g/a")
    with pytest.raises(ChunkError, match="cannot be read"):
        array[:16]
    np.testing.assert_array_equal(array[32:], elements()[32:])


@pytest.mark.parametrize(
    ("reference", "match"),
    [
        (["/none", 0, 5], "FileNotFoundError"),
        (["/none"], "FileNotFoundError"),
        (["/none", -1, 5], "not negative"),
        (["/none", "a", 5], "must be integers"),
        (["/none", 0], "malformed"),
        ([3, 0, 5], "the URL is int"),
        ("base64:%%%", "malformed"),
        (["nonsense://x", 0, 5], "no filesystem for 'nonsense'"),
        (["s3x://key:SECRET@host/x?token=SECRET", 0, 5], "no filesystem"),
    ],
)
def test_bad_references(reference: Any, match: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"0123456789")
    found = {
        ".zgroup": '{"zarr_format": 2}',
        "ok": [str(tmp_path / "x"), 2, 3],
        "bad": reference,
        "inline": "base64:aGk=",
    }
    store: Any = gzarr.open_store("reference://", storage_options={"fo": {"version": 1, "refs": found}, "fs": {}})
    assert store.get("ok") == b"234"
    assert store.get("inline") == b"hi"
    assert store.get("absent") is None
    with pytest.raises(StoreError, match=match) as caught:
        store.get("bad")
    assert "SECRET" not in str(caught.value)


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(NodeNotFoundError, match=r"none\.json"):
        gzarr.open(f"reference::{tmp_path / 'none.json'}")
    bad = tmp_path / "bad.json"
    bad.write_text("{")
    with pytest.raises(ArgumentError, match=r"bad\.json"):
        gzarr.open(f"reference::{bad}")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_targets_on_a_web_server(hdf5: Path, tmp_path: Path, device: TestedDevice) -> None:
    with servers.listing_web_server(str(tmp_path)) as (host, port):
        found = json.loads(json.dumps(translated(str(hdf5))).replace(str(tmp_path), f"http://{host}:{port}"))
        (tmp_path / "refs.json").write_text(json.dumps(found))
        for url in (f"reference::{tmp_path / 'refs.json'}", f"reference::http://{host}:{port}/refs.json"):
            check(device, url)
        array = gzarr.open_array(f"{url}#g/a", device="cpu")
        np.testing.assert_array_equal(array[...], elements())
        assert in_child(lambda: np.testing.assert_array_equal(array[...], elements())) == 0
        hdf5.rename(tmp_path / "elsewhere.h5")
        with pytest.raises(ChunkError, match="the target of"):
            array[...]


# -- VirtualiZarr


def local_files() -> Any:
    """Return the registry of stores in which VirtualiZarr finds files of this machine."""
    from obspec_utils.registry import ObjectStoreRegistry

    return ObjectStoreRegistry({"file://": obstore.store.LocalStore()})


@pytest.fixture
def virtual(hdf5: Path) -> Any:
    """A virtual dataset of the group ``g`` of that file."""
    from virtualizarr import open_virtual_dataset
    from virtualizarr.parsers import HDFParser

    return open_virtual_dataset(f"file://{hdf5}", registry=local_files(), parser=HDFParser(group="g"))


def test_store_of_virtualizarr(hdf5: Path, device: TestedDevice) -> None:
    from virtualizarr.parsers import HDFParser

    with h5py.File(hdf5, "a") as file:
        file.create_dataset("g/below/b", data=np.arange(64))
    manifests = HDFParser()(url=f"file://{hdf5}", registry=local_files())
    group = gzarr.open_group(manifests)
    assert list(group) == ["g", "raw"]
    assert [path for path, _ in group.members(max_depth=None)] == [
        "g",
        "g/a",
        "g/below",
        "g/below/b",
        "g/sparse",
        "raw",
    ]
    check(device, manifests)
    store: Any = gzarr.open_store(manifests)
    assert store.list_dir("") == (["zarr.json"], ["g/", "raw/"])
    assert store.list_dir("g/below/") == (["g/below/zarr.json"], ["g/below/b/"])
    for options in ({}, {"group": "g"}, {"group": "g/below"}):
        found, expected = (xr.open_dataset(manifests, engine=engine, **options) for engine in ("gzarr", "zarr"))
        xr.testing.assert_identical(found, expected)
    xr.testing.assert_identical(xr.open_datatree(manifests, engine="gzarr"), xr.open_datatree(manifests, engine="zarr"))


def test_chunks_listed_by_a_store_of_virtualizarr(tmp_path: Path) -> None:
    from virtualizarr.manifests import ChunkManifest, ManifestArray, ManifestGroup, ManifestStore
    from virtualizarr.manifests.utils import create_v3_array_metadata
    from zarr.core.chunk_key_encodings import DefaultChunkKeyEncoding

    path = tmp_path / "values"
    path.write_bytes(np.arange(6, dtype="<i4").tobytes())
    metadata = create_v3_array_metadata(shape=(6,), data_type=np.dtype("<i4"), chunk_shape=(3,), fill_value=0)
    metadata = dataclasses.replace(metadata, chunk_key_encoding=DefaultChunkKeyEncoding(separator="."))
    manifest = ChunkManifest({str(i): {"path": f"file://{path}", "offset": 12 * i, "length": 12} for i in range(2)})
    group = ManifestGroup(arrays={"a": ManifestArray(metadata=metadata, chunkmanifest=manifest)})
    manifests = ManifestStore(group, registry=local_files())
    store: Any = gzarr.open_store(manifests)
    assert store.list_dir("") == (["zarr.json"], ["a/"])
    assert store.list_dir("a/") == (["a/c.0", "a/c.1", "a/zarr.json"], [])
    np.testing.assert_array_equal(gzarr.open_array(manifests, path="a", device="cpu")[...], np.arange(6))


@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_virtualizarr_to_kerchunk(virtual: Any, kind: str, tmp_path: Path, device: TestedDevice) -> None:
    path = str(tmp_path / ("v.json" if kind == "json" else "v.parq"))
    virtual.vz.to_kerchunk(path, format=kind)
    np.testing.assert_array_equal(device.read(device.open(f"reference::{path}#a")), elements())
    sparse = device.read(device.open(f"reference::{path}#sparse"))
    assert (sparse[:16, :25] == 3).all()
    assert (sparse[16:] == 7).all()


def test_virtualizarr_to_icechunk(virtual: Any, hdf5: Path, tmp_path: Path, device: TestedDevice) -> None:
    prefix = f"file://{hdf5.parent}/"
    config = icechunk.RepositoryConfig.default()
    config.set_virtual_chunk_container(
        icechunk.VirtualChunkContainer(prefix, icechunk.local_filesystem_store(str(hdf5.parent)))
    )
    allowed = {"authorize_virtual_chunk_access": icechunk.containers_credentials({prefix: None})}
    repository = icechunk.Repository.create(icechunk.in_memory_storage(), config=config, **allowed)
    session = repository.writable_session("main")
    virtual.vz.to_icechunk(session.store)
    session.commit("references")
    store = repository.readonly_session("main").store
    array = device.open(store, path="a")
    np.testing.assert_array_equal(device.read(array), elements())
    sparse = device.open(store, path="sparse")
    assert (device.read(sparse)[16:] == 7).all()
    hdf5.unlink()
    with pytest.raises(ChunkError, match="Icechunk"):
        device.read(array)
    assert (device.read(sparse, np.s_[16:]) == 7).all()
