"""Plain GET requests by libcurl: which stores send them, what is in them, and what obstore is asked instead."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import os
import re
import resource
import socket
import ssl
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from support import servers
from support.fault_proxy import FaultProxy
from support.forks import in_child
from support.range_server import range_server

import gzarr
from gzarr.engines.access import requests
from gzarr.engines.access.answers import answers
from gzarr.errors import ChunkError, StoreError
from gzarr.stores import curl_threads, plain_urls
from gzarr.stores.base import ByteRange, Request
from gzarr.stores.remote_store import RemoteStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    Values = np.ndarray[Any, Any]

CHUNKED: dict[str, Any] = {"chunks": (30, 25)}
SHARDED: dict[str, Any] = {"chunks": (10, 10), "shards": (60, 50)}


def elements() -> Values:
    return np.random.default_rng(5).integers(0, 1000, (120, 100), dtype="i4")


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("served")
    gzarr.create_array(made / "chunked", data=elements(), **CHUNKED)
    gzarr.create_array(made / "sharded", data=elements(), **SHARDED)
    gzarr.create_array(made / "empty", shape=(40, 40), chunks=(10, 10), dtype="i2", fill_value=7)
    gzarr.create_array(made / "a b", data=elements(), **CHUNKED)
    return made


@pytest.fixture(scope="module")
def web(folder: Path) -> Iterator[str]:
    with servers.web_server(folder) as (host, port):
        yield f"http://{host}:{port}"


@pytest.fixture(scope="module")
def s3() -> Iterator[tuple[str, int]]:
    with servers.s3_server() as address:
        servers.make_bucket(address, "bucket")
        yield address


class Asked(list[str]):
    """Keys that obstore was asked for in place of a plain request."""


@pytest.fixture
def by_obstore(monkeypatch: pytest.MonkeyPatch) -> Asked:
    asked = Asked()
    get = RemoteStore._get

    def record(self: RemoteStore, request: Request, first: Any = None) -> Any:
        if "zarr.json" not in request.key:
            asked.append(request.key)
        return get(self, request, first)

    monkeypatch.setattr(RemoteStore, "_get", record)
    return asked


def is_plain(url: str, **options: Any) -> bool:
    return gzarr.open_store(url, storage_options=options).request_limits().streams is not None


KEYS = {"access_key_id": "a", "secret_access_key": "b", "region": "us-east-1"}


@pytest.mark.parametrize(
    ("url", "options", "expected"),
    [
        ("http://host/x", {}, True),
        ("https://host:8080/x", {"timeout": 5, "concurrency": 4}, True),
        ("https://host/x", {"client_options": {"user_agent": "me", "connect_timeout": "3s"}}, True),
        ("https://host/x", {"client_options": {"timeout": "1m 30s"}}, False),
        ("https://host/x", {"client_options": {"default_headers": {"Authorization": "x"}}}, False),
        ("https://host/x", {"client_options": {"proxy_url": "http://other"}}, False),
        ("https://host/x", {"client_options": {"allow_invalid_certificates": True}}, False),
        ("https://h\u00f6st/x", {}, False),
        ("s3://bucket/x", KEYS, True),
        ("s3://bucket/x", {"skip_signature": True, "region": "us-east-1"}, True),
        ("s3://bucket/x", {**KEYS, "request_payer": True}, False),
        ("s3://bucket/x", {**KEYS, "sse_customer_key": "x"}, None),
        ("az://container/x", {"account_name": "a", "account_key": "YWJj"}, True),
        ("gs://bucket/x", {"bearer_token": "x"}, None),
        ("gs://bucket/x", {"skip_signature": True}, False),
    ],
)
def test_stores_with_plain_requests(url: str, options: dict[str, Any], expected: bool | None) -> None:
    try:
        found = is_plain(url, **options)
    except gzarr.errors.ArgumentError:
        # This obstore has no such option.
        assert expected is None
        return
    assert found is bool(expected)


@pytest.mark.parametrize("name", ["HTTP_PROXY", "https_proxy", "ALL_PROXY"])
def test_proxies_are_for_obstore(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_plain("http://host/x")
    monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert not is_plain("http://host/x")


def test_they_can_be_switched_off() -> None:
    program = "import gzarr; print(gzarr.open_store('http://host/x').request_limits().streams is not None)"
    for value, expected in (("0", "False"), ("1", "True")):
        environment = {**os.environ, "GZARR_CURL": value}
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == expected


@pytest.mark.parametrize("path", ["chunked", "sharded"])
def test_reads(path: str, web: str, by_obstore: Asked) -> None:
    array, data = gzarr.open_array(f"{web}/{path}"), elements()
    np.testing.assert_array_equal(array[...], data)
    np.testing.assert_array_equal(array[17:90, 3:99:2], data[17:90, 3:99:2])
    np.testing.assert_array_equal(array.read_many([np.s_[:9, :9], np.s_[5:70, 40:]])[1], data[5:70, 40:])
    # The index of one shard is asked for by itself.
    shards = {f"sharded/c/{i}/{j}" for i in range(2) for j in range(2)}
    assert set(by_obstore) <= (shards if path == "sharded" else set())


def test_absent_chunks(web: str, by_obstore: Asked) -> None:
    assert (gzarr.open_array(f"{web}/empty")[...] == 7).all()
    assert not by_obstore


def test_other_names_are_for_obstore(web: str, by_obstore: Asked) -> None:
    array = gzarr.open_array(f"{web}/a b")
    np.testing.assert_array_equal(array[...], elements())
    assert len(by_obstore) == 16


def test_ranges_and_versions(web: str) -> None:
    store = gzarr.open_store(web)
    whole = store.get("chunked/c/0/0")
    assert whole is not None
    n = len(whole)
    asked = [ByteRange(), ByteRange(3, 7), ByteRange(n - 1), ByteRange(-5), ByteRange(0, n), ByteRange(2, 0)]
    tag = answers(store, [Request("chunked/c/0/0")] * 2)[0].version
    assert isinstance(tag, str)
    found = answers(store, [Request("chunked/c/0/0", part, tag) for part in asked])
    assert [bytes(answer.value) for answer in found] == [whole, whole[3:10], whole[-1:], whole[-5:], whole, b""]
    assert {answer.size for answer in found} == {n}
    assert {answer.version for answer in found} == {tag}
    wrong = [
        Request("chunked/c/0/0", version='"other"'),
        Request("chunked/c/0/0", ByteRange(n, 5)),
        Request("chunked/c/0/0", ByteRange(n - 2, 5)),
        Request("chunked/c/0/0", most_nbytes=n - 1),
        Request("chunked/c/9/9"),
    ]
    names = [type(answer.error).__name__ for answer in answers(store, wrong)]
    assert names == ["ValueReplacedError", "ValueSizeError", "ValueSizeError", "ValueSizeError", "NoneType"]


def test_signed_urls(s3: tuple[str, int], by_obstore: Asked) -> None:
    with FaultProxy(s3) as proxy:
        options = servers.s3_options(proxy.url, **servers.PATIENT)
        array = gzarr.create_array("s3://bucket/signed", data=elements(), storage_options=options, **CHUNKED)
        first = len(proxy.seen)
        np.testing.assert_array_equal(array[...], elements())
        seen = proxy.seen[first:]
    assert not by_obstore
    assert len(seen) == 16
    assert all("X-Amz-Signature=" in one.path and "authorization" not in one.headers for one in seen)
    assert all("SECRET" not in one.path for one in seen)


def test_servers_that_take_no_signed_urls(
    s3: tuple[str, int], by_obstore: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FaultProxy(s3) as proxy:
        options = servers.s3_options(proxy.url, **servers.PATIENT)
        store: Any = gzarr.open_store("s3://bucket/refused", read_only=False, storage_options=options)
        array = gzarr.create_array(store, data=elements(), **CHUNKED)
        proxy.fault_of = lambda number, seen: "status 403" if "X-Amz-Signature=" in seen.path else None
        np.testing.assert_array_equal(array[...], elements())
        assert by_obstore
        first = len(proxy.seen)
        np.testing.assert_array_equal(array[...], elements())
        assert not any("X-Amz-Signature=" in seen.path for seen in proxy.seen[first:])
        assert store.request_limits().streams is None
        # After a while they are tried again.
        monkeypatch.setattr(plain_urls, "_PAUSE_S", 0.0)
        store._plain._paused_until = 0.0
        proxy.fault_of = lambda number, seen: None
        by_obstore.clear()
        np.testing.assert_array_equal(array[...], elements())
        assert not by_obstore


@pytest.mark.parametrize("hosted", [False, True])
def test_public_buckets(hosted: bool) -> None:
    """URLs of requests without a signature are those of requests with one."""
    import obstore
    from obstore.store import S3Store

    config = {"bucket": "some-bucket", "region": "eu-west-1", "virtual_hosted_style_request": hosted}
    keys = {"access_key_id": "a", "secret_access_key": "b"}
    (signed,) = obstore.sign(S3Store(config={**config, **keys}), "GET", ["x/c/0"], datetime.timedelta(hours=1))
    store: Any = gzarr.open_store("s3://some-bucket/x", storage_options={**config, "skip_signature": True})
    assert store._plain.of(["x/c/0"], store._store()) == [signed.partition("?")[0]]
    assert urlsplit(signed).path == ("/x/c/0" if hosted else "/some-bucket/x/c/0")


def test_a_small_budget(web: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "BUDGET_BYTES", 1)
    for path in ("chunked", "sharded"):
        np.testing.assert_array_equal(gzarr.open_array(f"{web}/{path}")[...], elements())


def test_many_open_files(web: str) -> None:
    """Sockets may have numbers beyond those that select() takes."""
    least, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most < 2048:
        resource.setrlimit(resource.RLIMIT_NOFILE, (least, most))
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 4096), most))
    program = f"""
import os, gzarr
held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1200)]
print(gzarr.open_array({web + "/chunked"!r})[...].sum())
"""
    try:
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (least, most))
    assert int(done.stdout) == elements().sum()


def test_a_forked_child(web: str, by_obstore: Asked) -> None:
    array = gzarr.open_array(f"{web}/chunked")
    loops = curl_threads._started()
    np.testing.assert_array_equal(array[...], elements())

    def work() -> None:
        assert not curl_threads._loops
        np.testing.assert_array_equal(array[...], elements())

    assert in_child(work) == 0
    assert curl_threads._started() is loops
    np.testing.assert_array_equal(array[...], elements())
    assert not by_obstore


def test_failures_of_libcurl_are_no_failures_of_reads(
    web: str, by_obstore: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    (loop, *_) = curl_threads._started()
    for other in curl_threads._loops[1:]:
        monkeypatch.setattr(other, "_free", [])
    finish = loop._finish

    def fail_once() -> None:
        if not loop._in_progress:
            return
        monkeypatch.setattr(loop, "_finish", finish)
        raise MemoryError

    monkeypatch.setattr(loop, "_finish", fail_once)
    np.testing.assert_array_equal(gzarr.open_array(f"{web}/chunked")[...], elements())
    assert by_obstore
    by_obstore.clear()
    np.testing.assert_array_equal(gzarr.open_array(f"{web}/chunked")[...], elements())
    assert not by_obstore


def certificates(folder: Path) -> tuple[Path, Path]:
    """Return the files of an authority, and of a certificate by it for this machine, with its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    now = datetime.datetime.now(datetime.UTC)

    def made(name: str, key: Any, issuer: str, by: Any, *extensions: tuple[Any, bool]) -> bytes:
        builder = x509.CertificateBuilder()
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical=critical)
        names = [x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, one)]) for one in (name, issuer)]
        builder = builder.subject_name(names[0]).issuer_name(names[1]).public_key(key.public_key())
        builder = builder.serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(now - datetime.timedelta(days=1))
        signed = builder.not_valid_after(now + datetime.timedelta(days=30)).sign(by, hashes.SHA256())
        return signed.public_bytes(serialization.Encoding.PEM)

    own, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority, server = folder / "authority.pem", folder / "server.pem"
    authority.write_bytes(made("authority", own, "authority", own, (x509.BasicConstraints(True, None), True)))
    here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    server.write_bytes(made("server", key, "authority", own, (here, False)) + secret)
    return authority, server


OVER_TLS = """
import sys, gzarr
from gzarr.stores.remote_store import RemoteStore
asked, get = [], RemoteStore._get
def record(self, request, first=None):
    asked.append(request.key)
    return get(self, request, first)
RemoteStore._get = record
array = gzarr.open_array(sys.argv[1], storage_options={"timeout": 5})
print(array[...].sum(), [key for key in asked if "zarr.json" not in key])
"""


def test_encrypted_connections(folder: Path, tmp_path: Path) -> None:
    authority, file = certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    with range_server(folder, tls=context) as url:
        command = [sys.executable, "-c", OVER_TLS, f"{url}/chunked"]
        environment = {**os.environ, "SSL_CERT_FILE": str(authority)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.stdout.split() == [str(elements().sum()), "[]"], done.stderr
        # A certificate that nobody vouches for.
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "StoreError" in done.stderr


def test_unknown_hosts_and_closed_ports() -> None:
    with contextlib.closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    store = gzarr.open_store(f"http://127.0.0.1:{port}", storage_options={"timeout": 0.5})
    found = answers(store, [Request("a"), Request("b")])
    assert all(isinstance(answer.error, StoreError) for answer in found)
    # That of libcurl is one of them.
    assert all(re.search(r"[2-9] attempts in 0\.", str(answer.error)) for answer in found)


def test_damaged_answers(web: str, folder: Path) -> None:
    address = urlsplit(web)
    with FaultProxy((address.hostname or "", address.port or 0)) as proxy:
        array = gzarr.open_array(f"{proxy.url}/chunked", storage_options=servers.WATCHFUL)
        proxy.fault_of = lambda number, seen: "short body" if seen.path.endswith("c/1/1") else None
        with pytest.raises(ChunkError, match="c/1/1"):
            array[...]


def test_every_request_is_answered_once(web: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that libcurl refuses."""
    answered: list[int] = []

    class Stream:
        def __init__(self) -> None:
            self.left = list(range(100))

        def next_request(self) -> tuple[int, Request] | None:
            return (self.left.pop(), Request("chunked/c/0/0")) if self.left else None

        def answered(self, token: int, answer: Any) -> None:
            answered.append(token)

        def has_ended(self) -> bool:
            return not self.left

        def is_given_up(self) -> bool:
            return False

    made = curl_threads.Transfer.set
    calls = 0

    def fail_at_times(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls % 5 == 0:
            raise MemoryError
        made(*arguments)

    monkeypatch.setattr(curl_threads.Transfer, "set", fail_at_times)
    streams = gzarr.open_store(web).request_limits().streams
    assert streams is not None
    assert streams.answer_each(Stream())
    deadline = time.monotonic() + 10
    while len(answered) < 100 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.1)
    assert sorted(answered) == list(range(100))


def test_keys_are_checked(web: str) -> None:
    found = answers(gzarr.open_store(web), [Request("chunked/../secret"), Request("a//b"), Request("../a")])
    assert [type(one.error).__name__ for one in found] == ["ArgumentError"] * 3


def test_slow_credentials_hold_up_nobody(s3: tuple[str, int], web: str) -> None:
    def slow() -> dict[str, Any]:
        time.sleep(2)
        return {"access_key_id": "ACCESS", "secret_access_key": servers.S3_SECRET, "expires_at": None}

    endpoint = "http://{}:{}".format(*s3)
    options = {"endpoint": endpoint, "region": "us-east-1", "credential_provider": slow}
    signed = gzarr.open_store("s3://bucket/slow", storage_options=options)
    assert signed.request_limits().streams is not None
    other = gzarr.open_array(f"{web}/chunked")
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.extend(answers(signed, [Request("a"), Request("b")])))
    thread.start()
    time.sleep(0.2)
    begin = time.monotonic()
    np.testing.assert_array_equal(other[...], elements())
    assert time.monotonic() - begin < 1.5
    thread.join()
    assert [(one.value, one.error) for one in found] == [(None, None)] * 2


def test_several_threads(web: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request is sent by one of them, and none of them keeps a read that has ended."""
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(curl_threads, "_loops", [])
    for path in ("chunked", "sharded", "empty"):
        array = gzarr.open_array(f"{web}/{path}", storage_options={"concurrency": 2})
        found = [array[...] for _ in range(5)]
        assert all((one == found[0]).all() for one in found)
    assert len(curl_threads._loops) == 4
    deadline = time.monotonic() + 5
    while any(loop._sources for loop in curl_threads._loops) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(loop._sources for loop in curl_threads._loops)


@pytest.mark.parametrize("failure", [MemoryError, BaseException])
def test_a_thread_goes_on_after_any_failure(
    failure: type[BaseException], web: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store: Any = gzarr.open_store(web)

    def fail(*_: object) -> Any:
        raise failure("of a test")

    monkeypatch.setattr(type(store._plain), "of", fail)
    assert answers(store, [Request("chunked/c/0/0")] * 2)[0].value is not None
    monkeypatch.undo()
    monkeypatch.setattr(type(store), "_checked", fail)
    found = answers(store, [Request("chunked/c/0/0")] * 2)
    assert all(one.error is not None for one in found)
    monkeypatch.undo()
    assert answers(store, [Request("chunked/c/0/0")] * 2)[0].value is not None
