"""One place under several addresses: it has one name where an address tells it, and is else found out by looking."""

from __future__ import annotations

import contextlib
import functools
import http.server
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support import servers
from support.web_server import WebServer

import gzarr
from gzarr.errors import ArgumentError, StoreError
from gzarr.stores.aliases import check_elsewhere
from gzarr.stores.fsspec_store import FsspecStore
from gzarr.stores.locations import location_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

BUCKET = "bucket"
DATA = np.arange(1, 1001, dtype="i4").reshape(20, 50)

pytest.importorskip("obstore")


def s3(**config: Any) -> str | None:
    return location_of("S3Store", (), {"config": {"bucket": BUCKET, **config}}, "a")


def azure(**config: Any) -> str | None:
    return location_of("AzureStore", (), {"config": {"container_name": BUCKET, **config}}, "a")


def gcs(**config: Any) -> str | None:
    return location_of("GCSStore", (), {"config": {"bucket": BUCKET, **config}}, "a")


def web(url: str) -> str | None:
    return location_of("HTTPStore", (url,), {}, "a")


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)


def test_one_place_has_one_name() -> None:
    for endpoint in ("http://Host:80", "HTTP://host/", "http://host.:80//"):
        assert s3(endpoint=endpoint) == s3(aws_endpoint_url="http://host")
    for endpoint in (
        "https://s3.us-east-1.amazonaws.com",
        "https://s3.amazonaws.com:443/",
        "https://s3.dualstack.us-west-2.amazonaws.com",
    ):
        assert s3(endpoint=endpoint) == s3() == s3(region="eu-west-1")
    of_bucket = "https://bucket.s3.eu-west-1.amazonaws.com"
    assert s3(endpoint=of_bucket, virtual_hosted_style_request=True) == s3()
    # Without that option, obstore adds the bucket's name to the path, too.
    assert s3(endpoint=of_bucket) != s3()
    assert s3(endpoint="https://bucket.minio.org", virtual_hosted_style_request=True) == s3(
        endpoint="https://minio.org"
    )
    assert s3(endpoint="https://s3.us-gov-west-1.amazonaws.com") == s3(region="us-gov-east-1")
    assert azure(account_name="acct", endpoint="https://acct.blob.core.windows.net/") == azure(account_name="acct")
    assert azure(endpoint="https://acct.dfs.core.windows.net") == azure(azure_storage_account_name="ACCT")
    assert gcs(base_url="https://storage.googleapis.com/") == gcs()
    assert web("https://H.org:443/") == web("https://h.org")


def test_other_places_have_other_names() -> None:
    names = [
        *(s3(), s3(endpoint="http://h"), s3(endpoint="https://h"), s3(endpoint="http://h:81"), s3(region="cn-north-1")),
        *(s3(region="us-gov-west-1"), s3(endpoint="http://h/tenant"), s3(endpoint="http://localhost:9000")),
        # This may be another server: caches would mix both.
        *(s3(endpoint="http://127.0.0.1:9000"), s3(endpoint="https://s3.amazonaws.com.evil.org"), gcs()),
        *(azure(account_name="a"), azure(account_name="b"), azure(account_name="a", use_emulator=True)),
        *(azure(account_name="a", endpoint="http://127.0.0.1:10000"), gcs(base_url="http://h")),
        *(
            web("http://h"),
            web("https://h"),
            web("http://h?a"),
            web("http://h?b"),
            web("http://h/A"),
            web("http://h/a"),
        ),
    ]
    assert len(set(names)) == len(names)


def test_an_option_counts_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT", "http://one")
    assert s3() == s3(endpoint="http://one/")
    assert s3(endpoint="https://s3.amazonaws.com") != s3()
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://two")
    assert s3(endpoint="http://three") == s3(endpoint="http://two")


def test_a_name_has_no_password() -> None:
    assert "SECRET" not in str(web("https://user:SECRET@h"))
    assert "SECRET" not in str(s3(endpoint="https://user:SECRET@h"))


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, int]]:
    with servers.s3_server() as address:
        servers.make_bucket(address, BUCKET)
        servers.make_bucket(address, "other")
        yield address


def options(server: tuple[str, int], host: str = "http://127.0.0.1", end: str = "") -> dict[str, Any]:
    return servers.s3_options(f"{host}:{server[1]}{end}", **servers.PATIENT)


@pytest.mark.parametrize(
    ("host", "end"), [("http://127.0.0.1", "/"), ("http://localhost", ""), ("HTTP://LOCALHOST", "/")]
)
@pytest.mark.parametrize(("source", "dest"), [("g/a", "g/a"), ("g", "g/a"), ("g/a", "g")])
def test_a_copy_does_not_erase_its_source(server: tuple[str, int], host: str, end: str, source: str, dest: str) -> None:
    whole = gzarr.open_store(f"s3://{BUCKET}", read_only=False, storage_options=options(server))
    gzarr.create_array(whole, path="g/a", data=DATA, chunks=(10, 50), overwrite=True)
    keys = list(whole.list())  # type: ignore[attr-defined]
    with pytest.raises(ArgumentError, match=r"copy would overwrite .* nothing was changed"):
        gzarr.copy(
            f"s3://{BUCKET}/{source}",
            f"s3://{BUCKET}/{dest}",
            source_options=options(server),
            dest_options=options(server, host, end),
            chunks="auto",
            overwrite=True,
        )
    assert list(whole.list()) == keys  # type: ignore[attr-defined]
    np.testing.assert_array_equal(gzarr.open_array(whole, path="g/a")[...], DATA)


def test_a_copy_in_another_bucket_is_overwritten(server: tuple[str, int]) -> None:
    source = gzarr.create_array(
        f"s3://{BUCKET}/b", data=DATA, chunks=(10, 50), storage_options=options(server), overwrite=True
    )
    for _ in range(2):
        made = gzarr.copy(
            source, "s3://other/b", dest_options=options(server, "http://localhost"), overwrite=True, chunks=(5, 50)
        )
        np.testing.assert_array_equal(made[...], DATA)
    # Nothing is left of the look.
    assert len(list(made.store.list())) == 1 + 4


@contextlib.contextmanager
def served(folder: Path, page: bytes | None = None, status: int = 404) -> Iterator[str]:
    """Run a web server for a folder, which answers with a page, or a status, for what is absent."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def send_error(self, code: int, *others: Any, **more: Any) -> None:
            body = page or b""
            self.send_response(200 if page else status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: Any) -> None:
            pass

    with WebServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder))) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{made.server_address[1]}"
        finally:
            made.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("source", "dest"), [("g/a", "g/a"), ("g/a", "g"), ("g/h/b", "g"), ("g/h/b", ""), ("g", "g/a"), ("g", "g/h/b")]
)
def test_a_folder_behind_a_web_server(tmp_path: Path, source: str, dest: str) -> None:
    folder = tmp_path / "d"
    for path in ("a", "h/b"):
        gzarr.create_array(folder / "g", path=path, data=DATA, chunks=(10, 50))
    gzarr.consolidate_metadata(folder / "g")
    files = sorted(folder.rglob("*"))
    with served(folder) as url, pytest.raises(ArgumentError, match="copy would overwrite"):
        gzarr.copy(gzarr.open(f"{url}/{source}"), folder / dest, chunks="auto", overwrite=True)
    assert sorted(folder.rglob("*")) == files
    np.testing.assert_array_equal(gzarr.open_array(folder / "g" / "a")[...], DATA)


@pytest.mark.parametrize("absent", [{"page": b"<html>"}, *({"status": n} for n in (400, 401, 403, 405, 410))])
def test_a_web_server_that_does_not_say_what_is_absent(tmp_path: Path, absent: dict[str, Any]) -> None:
    gzarr.create_array(tmp_path / "a", data=DATA, chunks=(10, 50), zarr_format=3)
    gzarr.create_array(tmp_path / "b", data=[1])
    with served(tmp_path, **absent) as url:
        gzarr.copy(gzarr.open_array(f"{url}/a", zarr_format=3), tmp_path / "b", chunks=(7, 50), overwrite=True)
    np.testing.assert_array_equal(gzarr.open_array(tmp_path / "b")[...], DATA)
    assert not list((tmp_path / "b").glob("gzarr-*"))


def look(source: Any, dest: Any) -> None:
    """Look whether one place is read and overwritten."""
    check_elsewhere([(source, "")], dest, "", operation="copy", instead="do not")


def test_a_refusal_by_fsspec_is_no_failure(tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    gzarr.create_array(tmp_path / "a", data=DATA, zarr_format=3)
    gzarr.create_array(tmp_path / "b", data=[1])
    dest = gzarr.open_store(tmp_path / "b", read_only=False)
    with served(tmp_path, status=403) as url:
        look(gzarr.open_store(f"fsspec+{url}/a"), dest)
    assert not list(tmp_path.rglob("gzarr-*"))


@pytest.mark.parametrize("status", [429, 500])
def test_a_failure_is_no_answer(tmp_path: Path, status: int) -> None:
    gzarr.create_array(tmp_path / "b", data=[1])
    dest = gzarr.open_store(tmp_path / "b", read_only=False)
    with served(tmp_path, status=status) as url, pytest.raises(StoreError, match=f"HTTP status {status}"):
        look(gzarr.open_store(f"{url}/a", storage_options={"timeout": 0.5}), dest)
    assert not list(tmp_path.rglob("gzarr-*"))


def test_nothing_is_written_where_nothing_is(tmp_path: Path) -> None:
    with served(tmp_path) as url:
        look(gzarr.open_store(f"{url}/a"), gzarr.open_store(tmp_path / "b", read_only=False))
    assert not list(tmp_path.iterdir())


@pytest.fixture
def memory() -> Iterator[FsspecStore]:
    """Yield a store with an array that is to be overwritten."""
    fs = pytest.importorskip("fsspec").filesystem("memory", skip_instance_cache=True)
    store = FsspecStore(fs, "/one-place")
    gzarr.create_array(store, data=[1], overwrite=True)
    yield store
    fs.rm("/one-place", recursive=True)


def test_a_copy_to_where_only_keys_of_zarr_are_taken(
    tmp_path: Path, memory: FsspecStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = gzarr.create_array(tmp_path / "a", data=DATA, chunks=(10, 50))
    fs, _ = memory.filesystem()
    write = fs.pipe_file

    def limited(path: str, value: bytes, *others: Any, **more: Any) -> None:
        if "gzarr-" in path:
            raise PermissionError("policy: not this key")
        write(path, value, *others, **more)

    monkeypatch.setattr(fs, "pipe_file", limited)
    np.testing.assert_array_equal(gzarr.copy(source, memory, overwrite=True)[...], DATA)  # type: ignore[index]


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), StoreError("the answer was lost")])
def test_an_interrupted_look_leaves_nothing(
    tmp_path: Path, memory: FsspecStore, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    source = gzarr.create_array(tmp_path / "a", data=DATA, chunks=(10, 50))
    keys, write = list(memory.list()), FsspecStore.set

    def interrupted(store: FsspecStore, key: str, value: bytes) -> None:
        write(store, key, value)
        raise failure

    monkeypatch.setattr(FsspecStore, "set", interrupted)
    with pytest.raises(type(failure)):
        gzarr.copy(source, memory, overwrite=True)
    assert list(memory.list()) == keys


def map_blocks(source: gzarr.Array, dest: Any) -> None:
    gzarr.map_blocks(lambda block: block + 1, source, out=dest, overwrite=True, block=(10, 50))


def make_image(source: gzarr.Array, dest: Any) -> None:
    gzarr.ome.create(dest, source, axes="yx", overwrite=True)


def from_dask(source: gzarr.Array, dest: Any) -> None:
    pytest.importorskip("dask.array")
    from gzarr.integrations import dask

    dask.from_dask(dask.to_dask(source), dest, overwrite=True)


def store_dask(source: gzarr.Array, dest: Any) -> None:
    pytest.importorskip("dask.array")
    from gzarr.integrations import dask

    # One block each would be read before it is written.
    dask.store(dask.to_dask(source)[::-1], gzarr.open_array(dest, mode="r+"), rechunk=True)


@pytest.mark.parametrize("write", [map_blocks, make_image, from_dask, store_dask])
def test_what_is_still_read_is_not_overwritten(
    server: tuple[str, int], write: Callable[[gzarr.Array, Any], None]
) -> None:
    whole = gzarr.open_store(f"s3://{BUCKET}", read_only=False, storage_options=options(server))
    for path in ("g/a", "g/b"):
        gzarr.create_array(whole, path=path, data=DATA, chunks=(10, 50), overwrite=True)
    keys = list(whole.list())  # type: ignore[attr-defined]
    source = gzarr.open_array(f"s3://{BUCKET}/g/a", storage_options=options(server))

    def opened(path: str) -> Any:
        return gzarr.open_store(
            f"s3://{BUCKET}/{path}", read_only=False, storage_options=options(server, "http://localhost")
        )

    with pytest.raises(ArgumentError, match=r"would overwrite .* nothing was changed"):
        write(source, opened("g/a"))
    assert list(whole.list()) == keys  # type: ignore[attr-defined]
    np.testing.assert_array_equal(source[...], DATA)
    write(source, opened("g/b"))
    assert not [key for key in whole.list() if "gzarr-" in key]  # type: ignore[attr-defined]
    np.testing.assert_array_equal(source[...], DATA)
