"""Zip archives in other stores: an S3 server, a web server, a store in memory."""

from __future__ import annotations

import io
import pickle
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support import servers, zip_archives
from support.fault_proxy import FaultProxy, Seen
from support.range_server import range_server
from support.requests_of import requests_of
from support.zip_archives import SHARDED, WRITERS, elements

import gzarr
from gzarr.cli.main import main
from gzarr.errors import ArgumentError, ChunkError, NodeNotFoundError, ReadOnlyError, StoreError
from gzarr.stores import ByteRange, MemoryStore
from gzarr.stores.base import Request
from gzarr.stores.zip_store import zip_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.devices import TestedDevice

BUCKET = "bucket"


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, int]]:
    with servers.s3_server() as address:
        servers.make_bucket(address, BUCKET)
        yield address


@pytest.fixture
def proxy(server: tuple[str, int]) -> Iterator[FaultProxy]:
    with FaultProxy(server) as made:
        yield made


def put(proxy: FaultProxy, name: str, data: bytes) -> str:
    """Store an archive; return its URL."""
    store = gzarr.open_store(f"s3://{BUCKET}/folder", read_only=False, storage_options=options(proxy))
    store.set(name, data)  # type: ignore[attr-defined]
    return f"s3://{BUCKET}/folder/{name}"


def options(proxy: FaultProxy, **others: Any) -> dict[str, Any]:
    return servers.s3_options(proxy.url, timeout=8, **others)


def large(path: Path) -> np.ndarray[Any, Any]:
    """Write an archive with a chunked and a sharded array of 400 KB each; chunks are 40,000 bytes."""
    data = np.random.default_rng(0).integers(0, 2**31, (10, 100, 100), dtype="i4")
    with gzarr.ZipStore(path, mode="w") as store:
        gzarr.create_group(store)
        shards: dict[str, Any] = {"shards": (5, 100, 100)}
        for name, more in (("chunked", {}), ("sharded", shards)):
            gzarr.create_array(store, path=name, data=data, chunks=(1, 100, 100), codecs=["bytes"], **more)
        gzarr.consolidate_metadata(store)
    return data


@pytest.mark.parametrize("writer", WRITERS)
def test_archives_of_every_writer(writer: str, proxy: FaultProxy, tmp_path: Path, device: TestedDevice) -> None:
    path = tmp_path / "x.zip"
    WRITERS[writer](path)
    url = put(proxy, f"{writer}.zip", path.read_bytes())
    data = elements()
    for name in zip_archives.NAMES:
        array = device.open(url, path=name, storage_options=options(proxy))
        for selection in (np.s_[0, 0], np.s_[...], np.s_[31:95, 7:80:3]):
            np.testing.assert_array_equal(device.read(array, selection), data[selection])
    assert list(gzarr.verify(gzarr.open_store(url, storage_options=options(proxy)))) == []


def test_values(proxy: FaultProxy, tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    for writer in (zip_archives.by_zipfile, zip_archives.by_zarr_compressed):
        writer(path)
        store: Any = gzarr.open_store(put(proxy, "values.zip", path.read_bytes()), storage_options=options(proxy))
        local = gzarr.ZipStore(path)
        keys = list(local.list())
        assert list(store.list()) == keys
        assert store.get_small_values([*keys, "absent"], 1 << 20) == local.get_small_values([*keys, "absent"], 1 << 20)
        for wanted in (ByteRange(0, 2), ByteRange(1, 1), ByteRange(-2), ByteRange(1), ByteRange(0, 0)):
            asked = [(key, wanted) for key in keys]
            assert store.get_partial_values(asked) == local.get_partial_values(asked)
        answers = store.get_many([Request("zarr.json"), Request("absent"), Request("zarr.json", most_nbytes=3)])
        assert [answer.value for answer in answers] == [local.get("zarr.json"), None, None]
        assert isinstance(answers[2].error, gzarr.ValueSizeError)
        (answer,) = store.get_many([Request("zarr.json", version=("another", 0))])
        assert isinstance(answer.error, gzarr.ValueReplacedError)


def test_requests_are_counted(proxy: FaultProxy, tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    data = large(path)
    url = put(proxy, "counted.zip", path.read_bytes())

    def requests(work: Any) -> list[Seen]:
        seen, _ = requests_of(proxy, work)
        assert all(one.range is not None for one in seen)
        return seen

    def opened(name: str) -> Any:
        return gzarr.open(url, path=name, storage_options=options(proxy), device="cpu")

    # The directory and the consolidated metadata are within the last bytes.
    assert len(requests(lambda: opened(""))) == 1
    group = opened("")
    assert len(requests(lambda: group["chunked"])) == 0
    chunked, sharded = group["chunked"], group["sharded"]
    assert len(requests(lambda: chunked[0])) == 1
    assert len(requests(lambda: chunked[3])) == 1
    (whole,) = requests(lambda: np.testing.assert_array_equal(chunked[...], data))
    assert whole.nbytes < data.nbytes + 2000
    # Several threads wrote them, in any order; neighbours in the archive are one request.
    assert 1 <= len(requests(lambda: chunked[::2])) <= 5
    # An index, a chunk; but one of the two indexes is within the last bytes. Later they are known.
    assert len(requests(lambda: [sharded[0], sharded[9]])) == 3
    assert len(requests(lambda: sharded[1])) == 1
    (whole,) = requests(lambda: np.testing.assert_array_equal(sharded[...], data))
    assert whole.nbytes < data.nbytes + 2000


def test_a_directory_that_is_not_within_the_last_bytes(proxy: FaultProxy, tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with gzarr.ZipStore(path, mode="w") as store:
        array = gzarr.create_array(store, shape=3000, dtype="u1", chunks=1, codecs=["bytes"], fill_value=7)
        array[...] = data = np.arange(3000).astype("u1")
    url = put(proxy, "many.zip", path.read_bytes())
    with proxy.counting() as seen:
        gzarr.open_store(url, storage_options=options(proxy))
    assert [one.method for one in seen] == ["GET", "GET"]
    np.testing.assert_array_equal(gzarr.open_array(url, storage_options=options(proxy), device="cpu")[...], data)


@pytest.mark.parametrize("versions", [True, False])
def test_a_web_server(tmp_path: Path, versions: bool, device: TestedDevice) -> None:
    folder = tmp_path / "served"
    folder.mkdir()
    zip_archives.by_gzarr(folder / "x.zarr.zip")
    (folder / "other").write_bytes((folder / "x.zarr.zip").read_bytes())
    with range_server(folder, versions=versions) as url:
        for name in (f"{url}/x.zarr.zip", f"zip://{url}/other", f"zip::{url}/other"):
            for array in zip_archives.NAMES:
                opened = device.open(name, path=array)
                np.testing.assert_array_equal(device.read(opened), elements())
        for name in (f"{url}/x.zarr.zip#sharded", f"zip://sharded::{url}/other"):
            np.testing.assert_array_equal(gzarr.open(name, device="cpu")[...], elements())
        with pytest.raises(NodeNotFoundError, match="does not exist"):
            gzarr.open(f"zip://{url}/none")
        (folder / "text.zip").write_bytes(b"text")
        with pytest.raises(StoreError, match="does not end as a zip file does"):
            gzarr.open(f"{url}/text.zip")


QUERY = "download=1&sig=a%2Fb%3D"


@pytest.fixture
def signed(tmp_path: Path) -> Iterator[str]:
    """Serve an archive at a URL with a query, and at no other; yield the URL."""
    folder = tmp_path / "served" / "files"
    folder.mkdir(parents=True)
    # The server knows nothing of queries.
    zip_archives.by_gzarr(tmp_path / "x.zip")
    for name in ("x.zarr.zip", "content"):
        (folder / f"{name}?{QUERY}").write_bytes((tmp_path / "x.zip").read_bytes())
    with range_server(tmp_path / "served") as url:
        yield f"{url}/files/x.zarr.zip?{QUERY}"


@pytest.mark.parametrize("spell", ["{}", "zip::{}", "zip://{}", "{}#sharded", "zip://sharded::{}"])
def test_a_url_with_a_query(spell: str, signed: str, by: str, device: TestedDevice) -> None:
    for url in (signed, signed.replace("x.zarr.zip", "content")):
        if "x.zarr.zip" not in url and not spell.startswith("zip"):
            continue
        text = spell.format(url)
        opened = device.open(text, **({} if "sharded" in spell else {"path": "sharded"}))
        np.testing.assert_array_equal(device.read(opened), elements())


def test_a_query_is_not_shown(signed: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    store = gzarr.open_store(signed)
    other = pickle.loads(pickle.dumps(gzarr.open_array(signed, path="raw", device="cpu")))
    np.testing.assert_array_equal(other[...], elements())
    assert main(["info", signed]) == 0
    absent = signed.replace("x.zarr", "absent.zarr")
    said = [repr(store), repr(other.store), repr(other)]
    for work, kind in (
        (lambda: gzarr.open(absent), NodeNotFoundError),
        (lambda: gzarr.open_array(signed, path="nothing"), NodeNotFoundError),
        (lambda: gzarr.create_array(absent, data=[1]), ArgumentError),
        (lambda: gzarr.create_array(signed, path="new", data=[1]), ReadOnlyError),
        (lambda: gzarr.open(signed.replace("x.zarr.zip", "x.zarr")), ArgumentError),
    ):
        with pytest.raises(kind) as info:
            work()
        said.append(str(info.value))
    assert not [text for text in said if "sig" in text or "a%2Fb" in text]


def test_a_url_with_a_query_by_xarray(tmp_path: Path) -> None:
    xr = pytest.importorskip("xarray")
    with gzarr.ZipStore(tmp_path / "x.zip", mode="w") as store:
        gzarr.create_group(store)
        gzarr.create_array(store, path="v", data=elements(), dimension_names=["y", "x"])
        gzarr.consolidate_metadata(store)
    (tmp_path / "x.zip").rename(tmp_path / f"x.zip?{QUERY}")
    with range_server(tmp_path) as url, xr.open_dataset(f"{url}/x.zip?{QUERY}", engine="gzarr") as opened:
        np.testing.assert_array_equal(opened["v"].values, elements())


@pytest.mark.parametrize("url", ["s3://b/x.zip?versionId=1", "zip::s3://b/x.zip?versionId=1", "gs://b/x.ozx?a=1"])
def test_a_query_that_only_fsspec_understands(url: str) -> None:
    with pytest.raises(ArgumentError, match=r"query.*'fsspec\+zip://::(s3|gs)://"):
        gzarr.open(url)


@pytest.mark.parametrize("url", ["zip::https://x.zip", "zip::https://host/x/", "zip::s3://x.zip#a"])
def test_a_url_without_a_file(url: str) -> None:
    with pytest.raises(ArgumentError, match="names no file"):
        gzarr.open(url)


@pytest.mark.parametrize("name", zip_archives.NAMES)
def test_an_archive_that_is_replaced(name: str, proxy: FaultProxy, tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    zip_archives.by_gzarr(path)
    url = put(proxy, "replaced.zip", path.read_bytes())
    array = gzarr.open_array(url, path=name, storage_options=options(proxy), device="cpu")
    np.testing.assert_array_equal(array[:5, :5], elements()[:5, :5])
    with gzarr.ZipStore(path, mode="a") as store:
        # Lies elsewhere, and is longer.
        gzarr.open_array(store, path=name, mode="r+")[...] = elements()[::-1]
    put(proxy, "replaced.zip", path.read_bytes())
    np.testing.assert_array_equal(array[...], elements()[::-1])
    path.unlink()
    store = gzarr.open_store(f"s3://{BUCKET}/folder", read_only=False, storage_options=options(proxy))
    store.erase("replaced.zip")  # type: ignore[attr-defined]
    with pytest.raises(ChunkError, match="does not exist"):
        array[...]


def test_damage_is_seen(proxy: FaultProxy, tmp_path: Path) -> None:
    """Uncompressed chunks have no checksum of their own; the archive has."""
    path = tmp_path / "x.zip"
    large(path)
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"chunked/c/4/0/0") + 1000] ^= 1
    raw[raw.index(b"chunked/c/7/0/0")] ^= 1
    url = put(proxy, "damaged.zip", bytes(raw))
    array = gzarr.open_array(url, path="chunked", storage_options=options(proxy), device="cpu")
    assert array[3].any()
    for chunk, message in ((4, "CRC-32"), (7, "no header of it")):
        with pytest.raises(ChunkError, match=message) as info:
            array[chunk]
        assert info.value.key == f"chunked/c/{chunk}/0/0"
    # A large whole value with checksum is read, and checked, also without an array.
    with pytest.raises(StoreError, match="CRC-32"):
        gzarr.open_store(url, storage_options=options(proxy)).get("chunked/c/4/0/0")


def test_failed_requests_are_no_absent_chunks(proxy: FaultProxy, tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    data = large(path)
    url = put(proxy, "failing.zip", path.read_bytes())
    quick = {**options(proxy), "timeout": 0.5}
    arrays = [gzarr.open_array(url, path=name, storage_options=quick, device="cpu") for name in ("chunked", "sharded")]
    for fault in ("status 500", "cut body", "short body"):
        proxy.fault_of = lambda number, seen, fault=fault: fault  # type: ignore[misc]
        for array in arrays:
            with pytest.raises(ChunkError):
                array[...]
    proxy.fault_of = lambda number, seen: None
    for array in arrays:
        np.testing.assert_array_equal(array[...], data)


def test_remote_archives_are_read_only(proxy: FaultProxy, tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    zip_archives.by_gzarr(path)
    url = put(proxy, "read-only.zip", path.read_bytes())
    with pytest.raises(ReadOnlyError, match="is read-only"):
        gzarr.open_array(url, path="raw", mode="r+", storage_options=options(proxy))
    with pytest.raises(ReadOnlyError):
        gzarr.create_array(url, path="new", shape=3, storage_options=options(proxy))
    with pytest.raises(ArgumentError, match="only be written to a local file"):
        gzarr.create_array(f"s3://{BUCKET}/new.zip", shape=3, storage_options=options(proxy))
    # A hierarchy may have such a name, too.
    store = gzarr.open_store(f"s3://{BUCKET}", read_only=False, storage_options=options(proxy))
    gzarr.create_array(store, path="folder.zip", data=elements())
    opened = gzarr.open(f"s3://{BUCKET}/folder.zip", storage_options=options(proxy), device="cpu")
    np.testing.assert_array_equal(opened[...], elements())


@pytest.mark.parametrize("kind", [{"chunks": 100}, {"chunks": 10, "shards": 100}], ids=["chunked", "sharded"])
@pytest.mark.parametrize("place", ["fsspec", "bytearray"])
def test_an_archive_that_is_replaced_where_nothing_tells_versions(place: str, kind: dict[str, Any]) -> None:
    values: dict[str, bytes] = {}
    gzarr.create_array(values, data=np.arange(200, dtype="u2") + 1, codecs=["bytes"], device="cpu", **kind)
    filesystem: Any = pytest.importorskip("fsspec").filesystem("memory")
    mapping: dict[str, Any] = {}

    def put(*keys: str) -> None:
        target = io.BytesIO()
        with zipfile.ZipFile(target, "w") as archive:
            for key in ("zarr.json", *keys):
                archive.writestr(key, values[key])
        filesystem.pipe("/without-versions/x.zip", target.getvalue())
        mapping["x.zip"] = bytearray(target.getvalue())

    put("c/0", "c/1")
    store = "zip::memory://without-versions/x.zip" if place == "fsspec" else zip_in(MemoryStore(mapping), "x.zip")
    array = gzarr.open_array(store, device="cpu")
    for keys in (("c/0", "c/1"), ("c/1", "c/0"), ("c/0", "c/1")):
        put(*keys)
        # Again, with what was learned by the first one.
        for _ in range(2):
            np.testing.assert_array_equal(array[5:8], [6, 7, 8])
            np.testing.assert_array_equal(array[105:208], np.arange(106, 201))
    # What is damaged is not taken for another archive.
    raw = bytearray(filesystem.cat_file("/without-versions/x.zip"))
    raw[raw.index(b"c/0")] ^= 1
    filesystem.pipe("/without-versions/x.zip", bytes(raw))
    mapping["x.zip"] = raw
    with pytest.raises(ChunkError, match="no header of it"):
        array[5:8]


def test_names_of_archives_in_filesystems_of_fsspec(tmp_path: Path) -> None:
    filesystem: Any = pytest.importorskip("fsspec").filesystem("memory")
    for i, name in enumerate(["a%20b", "a b"]):
        gzarr.save(tmp_path / f"{i}.zip", np.full(3, i))
        filesystem.pipe(f"/names/{name}.zip", (tmp_path / f"{i}.zip").read_bytes())
    for i, name in enumerate(["a%20b", "a b"]):
        np.testing.assert_array_equal(gzarr.load(f"zip::memory://names/{name}.zip"), np.full(3, i))


def test_copies(proxy: FaultProxy, tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    zip_archives.by_gzarr(path)
    url = put(proxy, "copied.zip", path.read_bytes())
    array = pickle.loads(pickle.dumps(gzarr.open_array(url, path="sharded", storage_options=options(proxy))))
    assert array.store == gzarr.open_store(url, storage_options=options(proxy))
    np.testing.assert_array_equal(gzarr.open_array(array.store, path="sharded", device="cpu")[...], elements())
    gzarr.copy(gzarr.open_store(url, storage_options=options(proxy)), tmp_path / "copy.zip")
    np.testing.assert_array_equal(gzarr.open(tmp_path / "copy.zip", path="raw", device="cpu")[...], elements())


def test_an_archive_in_memory(tmp_path: Path, device: TestedDevice) -> None:
    path = tmp_path / "x.zip"
    mapping: dict[str, Any] = {}
    for writer in WRITERS.values():
        writer(path)
        mapping["a/x.zip"] = path.read_bytes()
        store = zip_in(MemoryStore(mapping), "a/x.zip")
        for name in zip_archives.NAMES:
            array = device.open(store, path=name)
            np.testing.assert_array_equal(device.read(array), elements())
    # The store sees that the value was replaced, or erased.
    array = device.open(store, path="sharded")
    with gzarr.ZipStore(path, mode="a") as changed:
        gzarr.create_array(changed, path="sharded", data=-elements(), overwrite=True, **SHARDED)
    mapping["a/x.zip"] = path.read_bytes()
    np.testing.assert_array_equal(device.read(array), -elements())
    del mapping["a/x.zip"]
    with pytest.raises(ChunkError, match="does not exist"):
        device.read(array)
