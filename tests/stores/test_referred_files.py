"""What references, manifests and Icechunk point to is not overwritten while it is still to be read."""

from __future__ import annotations

import functools
import http.server
import json
import uuid
from typing import TYPE_CHECKING, Any

import fsspec
import numpy as np
import obstore
import pytest
import zarr
from kerchunk.df import refs_to_dataframe
from support.icechunk_repositories import of_files_below
from support.web_server import running

import gzarr
from gzarr.errors import ArgumentError, StoreError
from gzarr.integrations.dask import from_dask, store, to_dask

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Handler(http.server.SimpleHTTPRequestHandler):
    """Shows a folder, without a log."""

    def log_message(self, *arguments: Any) -> None:
        pass


DATA = np.arange(1, 9, dtype="i2")
REFUSED = "nothing was changed"


def create(url: str, **options: Any) -> None:
    gzarr.create_array(url, data=DATA, chunks=(4,), compressors=None, zarr_format=2, device="cpu", **options)


def references(url: str, path: Path, below: str = "", kind: str = "json") -> str:
    """Write references to the chunks of an array, in the form of another array at a path; return their URL."""
    prefix = f"{below}/" if below else ""
    document = json.dumps({**json.loads(bytes(gzarr.open_store(url).get(".zarray") or b"")), "zarr_format": 2})
    found: dict[str, Any] = {".zgroup": '{"zarr_format": 2}'} if below else {}
    found[f"{prefix}.zarray"] = document
    found |= {f"{prefix}{i}": [f"{url}/{i}", 0, 8] for i in range(2)}
    if kind == "json":
        path.write_text(json.dumps(found))
    else:
        refs_to_dataframe(found, str(path), record_size=1)
    return f"reference::{path}"


def is_there(url: Any) -> None:
    np.testing.assert_array_equal(gzarr.open_array(url, device="cpu")[...], DATA)


@pytest.fixture(params=["local", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    made = str(tmp_path / "a.zarr") if request.param == "local" else f"memory://{uuid.uuid4().hex}/a.zarr"
    create(made)
    return made


def test_copies_and_dask(url: str, tmp_path: Path) -> None:
    refs = references(url, tmp_path / "refs.json")
    array = to_dask(gzarr.open_array(refs, device="cpu"))
    above = url.rpartition("/")[0]
    calls: list[Callable[[], Any]] = [
        lambda: gzarr.copy(refs, url, overwrite=True),
        # What is above is erased with what is below.
        lambda: gzarr.copy(refs, above, overwrite=True),
        lambda: gzarr.copy(gzarr.open_array(refs, device="cpu").view[2:], url, overwrite=True),
        lambda: from_dask(array, url, overwrite=True),
        lambda: store(array[::-1], gzarr.open_array(url, mode="r+", device="cpu")),
        lambda: gzarr.map_blocks(lambda x: x, gzarr.open_array(refs, device="cpu"), out=url, overwrite=True),
    ]
    for call in calls:
        with pytest.raises(ArgumentError, match=REFUSED):
            call()
        is_there(url)
    # These read everything first.
    gzarr.create_array(url, data=gzarr.open_array(refs, device="cpu"), chunks=(4,), overwrite=True, device="cpu")
    is_there(url)


def test_links(tmp_path: Path) -> None:
    create(str(tmp_path / "a.zarr"))
    (tmp_path / "links").mkdir()
    for name in (".zarray", "0", "1"):
        (tmp_path / "links" / name).symlink_to(tmp_path / "a.zarr" / name)
    refs = references(str(tmp_path / "links"), tmp_path / "refs.json")
    with pytest.raises(ArgumentError, match=REFUSED):
        gzarr.copy(refs, tmp_path / "a.zarr", overwrite=True)
    is_there(tmp_path / "a.zarr")


def test_many_files_are_looked_at_by_folder(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refs = references(url, tmp_path / "refs.json")
    found = json.loads((tmp_path / "refs.json").read_text())
    found |= {f"x/{i}": [f"{url}/{i}"] for i in range(1000)}
    (tmp_path / "refs.json").write_text(json.dumps(found))
    create(f"{url}2")
    calls: list[str] = []

    def place_of(store: Any, path: str = "") -> gzarr.stores.Place:
        calls.append(path)
        return gzarr.stores.place_of(store, path)

    monkeypatch.setattr("gzarr.stores.aliases.place_of", place_of)
    gzarr.copy(refs, f"{url}2", overwrite=True)
    assert 0 < len(calls) < 10
    is_there(f"{url}2")


def test_what_lies_beside_the_files_is_overwritten(url: str, tmp_path: Path) -> None:
    refs = references(url, tmp_path / "refs.json")
    for _ in range(2):
        gzarr.copy(refs, f"{url}2", overwrite=True)
        gzarr.copy(refs, f"{url}/of/other", overwrite=True)
    is_there(f"{url}/of/other")
    is_there(f"{url}2")


def test_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = str(tmp_path / "a.zarr")
    create(url)
    create(f"{url}2")
    refs = references(url, tmp_path / "refs.parq", "g/a", "parquet")
    with pytest.raises(ArgumentError, match=REFUSED):
        gzarr.copy(f"{refs}#g/a", url, overwrite=True)
    is_there(url)
    monkeypatch.setattr("gzarr.stores.fsspec_references._MOST_RECORDS", 1)
    with pytest.raises(StoreError, match=r"it cannot be told .* in more than 1 files"):
        gzarr.copy(f"{refs}#g/a", f"{url}2", overwrite=True)
    is_there(f"{url}2")
    monkeypatch.undo()
    gzarr.copy(f"{refs}#g/a", f"{url}2", overwrite=True)
    is_there(f"{url}2")
    # Other nodes point elsewhere.
    place = gzarr.stores.place_of(gzarr.open_store(refs), "h")
    (records,) = gzarr.stores.referred_files.files_read(place)
    assert records.paths == ["refs.parq"]


def test_the_records_of_parquet_are_read_late(tmp_path: Path) -> None:
    url = str(tmp_path / "a.zarr")
    create(url)
    gzarr.create_group(str(tmp_path / "g"))
    refs = references(url, tmp_path / "g/refs.parq", "a", "parquet")
    with pytest.raises(ArgumentError, match=REFUSED):
        gzarr.copy(refs, tmp_path / "g", overwrite=True)
    is_there(f"{refs}#a")
    gzarr.copy(refs, tmp_path / "g/b", overwrite=True)
    is_there(tmp_path / "g/b/a")


def test_stores_of_zarr_python(tmp_path: Path) -> None:
    url = str(tmp_path / "a.zarr")
    create(url)
    refs = references(url, tmp_path / "refs.json")
    fs = fsspec.filesystem("reference", fo=str(tmp_path / "refs.json"), asynchronous=True, remote_protocol="file")
    wrapped = zarr.storage.WrapperStore(zarr.storage.FsspecStore(fs, read_only=True))
    for source in (wrapped, gzarr.CachedStore(refs, tmp_path / "cache", 1 << 20, name="refs")):
        with pytest.raises(ArgumentError, match=REFUSED):
            gzarr.copy(source, url, overwrite=True)
        is_there(url)


def test_manifests(tmp_path: Path) -> None:
    from obspec_utils.registry import ObjectStoreRegistry
    from virtualizarr.manifests import ChunkManifest, ManifestArray, ManifestGroup, ManifestStore
    from virtualizarr.manifests.utils import create_v3_array_metadata

    url = str(tmp_path / "a.zarr")
    create(url)
    metadata = create_v3_array_metadata(shape=(8,), data_type=DATA.dtype, chunk_shape=(4,), fill_value=0)
    manifest = ChunkManifest({str(i): {"path": f"file://{url}/{i}", "offset": 0, "length": 8} for i in range(2)})
    group = ManifestGroup(groups={"g": ManifestGroup(arrays={"a": ManifestArray(metadata, manifest)})})
    manifests = ManifestStore(group, registry=ObjectStoreRegistry({"file://": obstore.store.LocalStore()}))
    for path in ("", "g/a"):
        with pytest.raises(ArgumentError, match=REFUSED):
            gzarr.copy(manifests, url, path=path, overwrite=True)
        is_there(url)
    create(f"{url}2")
    gzarr.copy(manifests, f"{url}2", path="g/a", overwrite=True)
    is_there(f"{url}2")


def test_icechunk(tmp_path: Path) -> None:
    url = str(tmp_path / "a.zarr")
    create(url)
    prefix = f"file://{tmp_path}/"
    repository = of_files_below(tmp_path)
    session = repository.writable_session("main")
    gzarr.create_array(session.store, path="a", shape=(8,), chunks=(4,), dtype="i2", compressors=None, device="cpu")
    for i in range(2):
        session.store.set_virtual_ref(f"a/c/{i}", f"{prefix}a.zarr/{i}", offset=0, length=8)
    with pytest.raises(ArgumentError, match=REFUSED):
        gzarr.copy(session.store, url, path="a", overwrite=True)
    is_there(url)


def test_one_folder_under_two_addresses(tmp_path: Path) -> None:
    """A web server shows a local directory."""
    for name in ("a.zarr", "b.zarr"):
        create(str(tmp_path / "x" / name))
    with running(functools.partial(Handler, directory=str(tmp_path))) as server:
        refs: dict[str, Any] = {".zarray": (tmp_path / "x/a.zarr/.zarray").read_text()}
        refs |= {f"{i}": [f"{server}/x/a.zarr/{i}"] for i in range(2)}
        source = gzarr.FsspecStore(fsspec.filesystem("reference", fo=refs, remote_protocol="http"))
        is_there(source)
        for target in ("x/a.zarr", "x"):
            with pytest.raises(ArgumentError, match=REFUSED):
                gzarr.copy(source, tmp_path / target, overwrite=True)
            is_there(source)
        gzarr.copy(source, tmp_path / "x/b.zarr", overwrite=True)
    is_there(tmp_path / "x/b.zarr")
    assert sorted(path.name for path in (tmp_path / "x").iterdir()) == ["a.zarr", "b.zarr"]
