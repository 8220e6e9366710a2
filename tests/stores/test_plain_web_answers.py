"""Answers of web servers without a length, with a content encoding, or for a part of a value of unknown size."""

from __future__ import annotations

import contextlib
import gzip
import http.server
import re
import threading
import time
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.web_server import WebServer

import gzarr
from gzarr.engines.access.answers import answers
from gzarr.errors import ChunkError, StoreError, ValueSizeError
from gzarr.stores import connections, curl_threads
from gzarr.stores.base import ByteRange, Request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gzarr.stores.base import Answer

DATA = np.arange(60 * 64, dtype="u2").reshape(60, 64)
ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": lambda data: gzip.compress(data[:10]) + gzip.compress(data[10:]),
    "deflate": zlib.compress,
}


@pytest.fixture
def libcurl(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests by obstore and by libcurl, as usual."""
    monkeypatch.setattr(connections, "_servers", {})
    assert curl_threads.available()


class Odd(http.server.BaseHTTPRequestHandler):
    """Sends the files of a directory in ways that are allowed, but not usual."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    folder: Path
    # Parts of the paths that are sent in this way; all by default.
    where = ""
    body = "length"
    encoding = ""
    tells_size = True
    tags = True
    # Answers in chunks that are cut off, before others are complete.
    cuts = 0
    asked = 0
    lock = threading.Lock()

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        with self.lock:
            type(self).asked += 1
        path = self.folder / self.path.lstrip("/")
        odd = self.where in self.path
        body = self.body if odd else "length"
        if not path.is_file():
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        data = path.read_bytes()
        if odd and self.encoding in ENCODERS:
            data = ENCODERS[self.encoding](data)
        size = len(data)
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if wanted is None:
            self.send_response(200)
        else:
            begin = int(wanted[1]) if wanted[1] else max(size - int(wanted[2]), 0)
            data = data[begin : int(wanted[2]) + 1 if wanted[1] and wanted[2] else size]
            self.send_response(206)
            told = size if self.tells_size or not odd else "*"
            self.send_header("Content-Range", f"bytes {begin}-{begin + len(data) - 1}/{told}")
        if self.tags:
            self.send_header("ETag", f'"{size}"')
        else:
            self.send_header("Last-Modified", "Fri, 27 Nov 2026 10:00:00 GMT")
        if odd and self.encoding:
            self.send_header("Content-Encoding", self.encoding)
        if body == "length":
            self.send_header("Content-Length", str(len(data)))
        elif body == "chunked":
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command == "GET":
            self.send_body(data, body)

    def send_body(self, data: bytes, body: str) -> None:
        # Answers that are too long are not read to their end.
        with contextlib.suppress(ConnectionError):
            self.send_parts(data, body)

    def send_parts(self, data: bytes, body: str) -> None:
        if body != "chunked":
            self.wfile.write(data)
            return
        with self.lock:
            cut = self.cuts > 0
            type(self).cuts -= cut
        half = len(data) // 2
        for part in (data[:half], data[half:]):
            if part:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))
            if cut:
                self.close_connection = True
                return
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *args: object) -> None:
        pass


@contextlib.contextmanager
def serving(folder: Path, **ways: Any) -> Iterator[tuple[str, type[Odd]]]:
    handler = type("Handler", (Odd,), {"folder": folder, "lock": threading.Lock(), **ways})
    with WebServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", handler
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    gzarr.create_array(tmp_path / "chunked", data=DATA, chunks=(3, 64))
    gzarr.create_array(tmp_path / "sharded", data=DATA, chunks=(5, 64), shards=(15, 64))
    with gzarr.ZipStore(tmp_path / "x.zip", mode="w") as store:
        gzarr.create_array(store, data=DATA, chunks=(30, 64))
    return tmp_path


def read(url: str) -> Any:
    return gzarr.open_array(url, device="cpu", storage_options={"timeout": 2})[...]


def each_way(url: str, *requests: Request) -> list[Answer]:
    """Return the answers to some requests, each sent by itself, and as a stream."""
    options = {"timeout": 0.5}
    single = [gzarr.open_store(url, storage_options=options).get_many([one])[0] for one in requests]
    return single + answers(gzarr.open_store(url, storage_options=options), [*requests] * 2)


@pytest.mark.parametrize("name", ["chunked", "sharded", "x.zip"])
@pytest.mark.parametrize("tags", [True, False], ids=["tags", "dates"])
def test_bodies_in_chunks(name: str, tags: bool, by: str, folder: Path) -> None:
    with serving(folder, body="chunked", tags=tags) as (url, _):
        if by == "libcurl":
            for _ in range(2):
                np.testing.assert_array_equal(read(f"{url}/{name}"), DATA)
        else:
            with pytest.raises(StoreError, match=rf"how long it is.*'fsspec\+{url}.*by the extra gzarr\[curl\]"):
                read(f"{url}/{name}")


def test_one_request_for_a_value_once_the_server_is_known(libcurl: None, folder: Path) -> None:
    with serving(folder, body="chunked") as (url, handler):
        store = gzarr.open_store(url)
        for asked in (2, 3, 4):
            assert store.get("chunked/zarr.json") == (folder / "chunked" / "zarr.json").read_bytes()
            assert handler.asked == asked
        assert store.get("chunked/absent") is None
        assert handler.asked == 5


def test_values_without_a_length_are_there(by: str, folder: Path) -> None:
    with serving(folder, body="chunked") as (url, _):
        store: Any = gzarr.open_store(url)
        assert store.contains(["chunked/zarr.json", "absent"]) == [True, False]


def test_bodies_in_chunks_that_are_cut_off(libcurl: None, folder: Path) -> None:
    (folder / "a").write_bytes(bytes(1000))
    with serving(folder, body="chunked", cuts=1000) as (url, handler):
        for answer in each_way(url, Request("a")):
            assert isinstance(answer.error, StoreError)
            assert re.search(r"[2-9] attempts", str(answer.error))
        handler.cuts = 3
        np.testing.assert_array_equal(read(f"{url}/chunked"), DATA)


def test_long_bodies_in_chunks(libcurl: None, folder: Path) -> None:
    (folder / "a").write_bytes(bytes(3 << 20))
    with serving(folder, body="chunked") as (url, _):
        for answer in each_way(url, Request("a")):
            assert answer.value is not None
            assert len(memoryview(answer.value)) == answer.size == 3 << 20
        begun = time.monotonic()
        for answer in each_way(url, Request("a", most_nbytes=100), Request("a", most_nbytes=1 << 20)):
            assert isinstance(answer.error, ValueSizeError)
        assert time.monotonic() - begun < 5


@pytest.mark.parametrize("where", ["", "/c/"], ids=["all", "chunks"])
def test_bodies_that_end_with_the_connection(where: str, by: str, folder: Path) -> None:
    with serving(folder, body="close", where=where) as (url, _):
        why = "one that was cut off looks like a complete one" if by == "libcurl" else "how long it is"
        with pytest.raises((StoreError, ChunkError), match=rf"{why}.*'fsspec\+{url}"):
            read(f"{url}/chunked")


@pytest.mark.parametrize("ways", [{"body": "chunked"}, {"body": "close"}, {"encoding": "gzip"}], ids=str)
def test_the_way_out_is_one(ways: dict[str, Any], folder: Path) -> None:
    pytest.importorskip("aiohttp")
    with serving(folder, **ways) as (url, _):
        np.testing.assert_array_equal(gzarr.open_array(f"fsspec+{url}/chunked", device="cpu")[...], DATA)


@pytest.mark.parametrize("encoding", sorted(ENCODERS))
@pytest.mark.parametrize("body", ["length", "chunked"])
def test_encoded_values(encoding: str, body: str, by: str, folder: Path) -> None:
    with serving(folder, encoding=encoding, body=body, where="/chunked") as (url, _):
        if by == "libcurl":
            for _ in range(2):
                np.testing.assert_array_equal(read(f"{url}/chunked"), DATA)
        else:
            why = f"content encoding '{encoding}'" if body == "length" else "how long it is"
            with pytest.raises(StoreError, match=rf"{why}.*'fsspec\+{url}"):
                read(f"{url}/chunked")


def test_parts_of_encoded_values_are_refused(by: str, folder: Path) -> None:
    (folder / "a").write_bytes(bytes(range(100)))
    with serving(folder, encoding="gzip", where="/c/") as (url, _):
        a = gzarr.open_array(f"{url}/sharded", device="cpu")
        with pytest.raises((StoreError, ChunkError), match="parts of such values cannot be read"):
            a[3:4]
    with serving(folder, encoding="gzip") as (url, _):
        wanted = [Request("a", part) for part in (ByteRange(0, 5), ByteRange(5, 5), ByteRange(7), ByteRange(-5))]
        for answer in each_way(url, *wanted):
            assert isinstance(answer.error, StoreError)
            assert "content encoding 'gzip'; parts of such values" in str(answer.error)


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, br", "GZIP,gzip"])
def test_other_encodings_are_refused(encoding: str, by: str, folder: Path) -> None:
    with serving(folder, encoding=encoding) as (url, _):
        for answer in each_way(url, Request("chunked/zarr.json")):
            assert isinstance(answer.error, StoreError)
            assert "content encoding" in str(answer.error)


@pytest.mark.parametrize("encoding", ["identity", "aws-chunked", "utf-8"])
def test_words_that_are_no_encodings(encoding: str, by: str, folder: Path) -> None:
    with serving(folder, encoding=encoding) as (url, _):
        for name in ("chunked", "sharded"):
            np.testing.assert_array_equal(read(f"{url}/{name}"), DATA)


def test_encoded_values_are_checked(libcurl: None, folder: Path) -> None:
    for name, nbytes in (("bomb", 8 << 20), ("larger_bomb", 100 << 20)):
        (folder / name).write_bytes(gzip.compress(bytes(nbytes)))
    packed = gzip.compress(b"0123456789" * 10)
    for i, wrong in enumerate((packed[:-9], packed[:12] + b"\xff" + packed[13:], b"plain", b"", packed + b"more")):
        (folder / f"wrong{i}").write_bytes(wrong)
    # Under this name, the server of this test sends files as they are.
    with serving(folder, encoding="GZip") as (url, _):
        for answer in each_way(url, *(Request(f"wrong{i}") for i in range(5))):
            assert isinstance(answer.error, StoreError)
            assert "its bytes are not in that format" in str(answer.error)
        for name in ("bomb", "larger_bomb"):
            for answer in each_way(url, Request(name, most_nbytes=1000)):
                assert isinstance(answer.error, ValueSizeError)
                assert "at most 1000" in str(answer.error)


@pytest.mark.parametrize("name", ["chunked", "sharded", "x.zip"])
@pytest.mark.parametrize("tags", [True, False], ids=["tags", "dates"])
def test_parts_of_values_of_unknown_size(name: str, tags: bool, by: str, folder: Path) -> None:
    with serving(folder, tells_size=False, tags=tags) as (url, _):
        if by == "libcurl" or name == "chunked":
            for _ in range(2):
                np.testing.assert_array_equal(read(f"{url}/{name}"), DATA)
            a = gzarr.open_array(f"{url}/{name}", device="cpu")
            np.testing.assert_array_equal(a[7:9], DATA[7:9])
            if name == "x.zip":
                return
            cached = gzarr.CachedStore(gzarr.open_store(f"{url}/{name}"), folder / "cache", 1 << 20)
            for rows in (slice(0, 2), slice(5, 7), slice(0, 60), slice(0, 2)):
                np.testing.assert_array_equal(gzarr.open_array(cached, device="cpu")[rows], DATA[rows])
        else:
            with pytest.raises((StoreError, ChunkError), match=rf"how many bytes the value has.*'fsspec\+{url}"):
                gzarr.open_array(f"{url}/{name}", device="cpu")[7:9]


def test_places_of_parts_of_values_of_unknown_size(libcurl: None, folder: Path) -> None:
    data = bytes(range(100))
    (folder / "a").write_bytes(data)
    parts = [ByteRange(0, 5), ByteRange(5, 5), ByteRange(95, 5), ByteRange(7), ByteRange(-5), ByteRange(-100)]
    with serving(folder, tells_size=False, tags=False) as (url, _):
        whole = gzarr.open_store(url).get_many([Request("a")])[0].version
        for version in (None, whole):
            found = each_way(url, *(Request("a", part, version) for part in parts))
            for part, answer in zip(parts * 3, found, strict=True):
                end = None if part.length is None else part.offset + part.length
                assert answer.value is not None
                assert bytes(answer.value) == data[part.offset : end]
                assert answer.size == (100 if part.length is None else None)
        # Parts have one version, and a value whose size has changed has another.
        part = each_way(url, Request("a", ByteRange(0, 5)))[0].version
        (folder / "a").write_bytes(data[:90])
        for answer in each_way(url, Request("a", ByteRange(-5), found[4].version)):
            assert type(answer.error).__name__ == "ValueReplacedError"
        for answer in each_way(url, Request("a", ByteRange(0, 5), part), Request("a", version=part)):
            assert answer.error is None
        for answer in each_way(url, Request("a", ByteRange(88, 5)), Request("a", ByteRange(-95))):
            assert isinstance(answer.error, ValueSizeError)
