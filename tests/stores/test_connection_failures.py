"""Requests that get no answer, or one that obstore cannot read: what comes again is not tried again, and is named."""

from __future__ import annotations

import contextlib
import datetime
import http.server
import ipaddress
import os
import socket
import ssl
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.range_server import range_server
from support.web_server import running

import gzarr
from gzarr.errors import ChunkError, StoreError
from gzarr.stores.object_errors import Kind, failure_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DATA = np.arange(60 * 64, dtype="u2").reshape(60, 64)
SECRET = "SECRETpw"


def fails_at_once(url: str, **options: Any) -> str:
    """Return the message of an error that comes at the first attempt."""
    begun = time.monotonic()
    with pytest.raises(StoreError) as info:
        gzarr.open(url, storage_options=options or None)
    assert time.monotonic() - begun < 10
    message = str(info.value)
    assert "1 attempt in" in message
    # Of the form for debugging, nothing is shown.
    assert "{" not in message.partition("storage_options={")[0]
    assert SECRET not in message
    return message


# -- certificates


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/x.zarr", "s3://bucket/x.zarr"])
def test_machines_without_certificates(url: str) -> None:
    """obstore makes no connection there, not even one that needs none."""
    program = "import sys, gzarr\ntry: gzarr.open(sys.argv[1])\nexcept gzarr.errors.StoreError as e: print(e)"
    without = {"SSL_CERT_FILE": "/nonexistent", "SSL_CERT_DIR": "/nonexistent"}
    told = subprocess.run(
        [sys.executable, "-c", program, url], env=os.environ | without, capture_output=True, text=True, check=True
    ).stdout
    assert "this machine has no CA certificates" in told
    assert "SSL_CERT_FILE" in told


def certificate(folder: Path, *, is_own_issuer: bool) -> tuple[ssl.SSLContext, str]:
    """Return the settings of a server at 127.0.0.1, and the certificate of its issuer (PEM)."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    now = datetime.datetime.now(datetime.UTC)

    def signed(name: str, key: Any, issuer: str, issuer_key: Any, *, is_issuer: bool) -> Any:
        def named(text: str) -> Any:
            return x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, text)])

        made = x509.CertificateBuilder().subject_name(named(name)).issuer_name(named(issuer))
        made = made.public_key(key.public_key()).serial_number(x509.random_serial_number())
        made = made.not_valid_before(now - datetime.timedelta(1)).not_valid_after(now + datetime.timedelta(1))
        made = made.add_extension(x509.BasicConstraints(ca=is_issuer, path_length=None), critical=True)
        place = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        made = made.add_extension(x509.SubjectAlternativeName([place]), critical=False)
        return made.sign(issuer_key, hashes.SHA256())

    key, root_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    root = signed("issuer", root_key, "issuer", root_key, is_issuer=True)
    if is_own_issuer:
        key, made = root_key, root
    else:
        made = signed("server", key, "issuer", root_key, is_issuer=False)
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "server.pem").write_bytes(made.public_bytes(pem) + secret)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    return context, root.public_bytes(pem).decode()


def test_an_issuer_that_is_not_known(tmp_path: Path) -> None:
    gzarr.create_array(tmp_path / "a", data=DATA)
    context, root = certificate(tmp_path, is_own_issuer=False)
    with range_server(tmp_path, tls=context) as url:
        message = fails_at_once(f"{url}/a")
        assert "certificate is not trusted: its issuer is not known here (UnknownIssuer)" in message
        # It says what to do.
        assert "'root_certificate'" in message
        options = {"client_options": {"root_certificate": root}}
        array = gzarr.open_array(f"{url}/a", storage_options=options, device="cpu")
        np.testing.assert_array_equal(array[...], DATA)
        message = fails_at_once(f"{url.replace('127.0.0.1', 'localhost')}/a", **options)
        assert "it is that of another name" in message


def test_a_certificate_that_is_signed_by_itself(tmp_path: Path) -> None:
    gzarr.create_array(tmp_path / "a", data=DATA)
    context, _ = certificate(tmp_path, is_own_issuer=True)
    with range_server(tmp_path, tls=context) as url:
        message = fails_at_once(f"{url}/a")
        assert "certificate is not trusted: it is signed by itself" in message
        assert "'allow_invalid_certificates'" in message
        options = {"client_options": {"allow_invalid_certificates": True}}
        array = gzarr.open_array(f"{url}/a", storage_options=options, device="cpu")
        np.testing.assert_array_equal(array[...], DATA)


def test_a_server_without_encryption(tmp_path: Path) -> None:
    with range_server(tmp_path) as url:
        message = fails_at_once(url.replace("http:", "https:"))
        assert "no encrypted connection can be made" in message
        assert "http://" in message


# -- names


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("https://no.such.host.invalid/x.zarr", {}),
        ("https://no.such.host.invalid/x.zip?sig=SECRETpw", {}),
        (
            "s3://bucket/x",
            {
                "endpoint": "http://no.such.host.invalid",
                "region": "a",
                "access_key_id": "a",
                "secret_access_key": SECRET,
            },
        ),
    ],
    ids=["https", "zip", "s3"],
)
def test_a_name_that_is_not_known(url: str, options: dict[str, Any]) -> None:
    try:
        socket.getaddrinfo("no.such.host.invalid", 443)
    except socket.gaierror as error:
        if error.errno == socket.EAI_AGAIN:
            pytest.skip("there is no network, which may be for a moment only")
    else:
        pytest.skip("here, every name has an address")
    assert "the name 'no.such.host.invalid' cannot be resolved" in fails_at_once(url, **options)


GENERIC = type("GenericError", (Exception,), {})


@pytest.mark.parametrize("to", ["http://no.such.host.invalid/x", "http://no.such.host.invalid:81/x?sig=SECRETpw"])
def test_a_name_to_which_a_redirect_leads(to: str, folder: Path) -> None:
    with serving(folder, 301, ("Location", to)) as url:
        host = url.removeprefix("http://")
        with pytest.raises(StoreError) as info:
            gzarr.open(f"{url}/chunked", storage_options={"timeout": 2})
    message = str(info.value)
    assert f"a name to which a redirect of {host!r}, or a proxy, leads cannot be resolved" in message
    assert f"the name {host!r}" not in message
    assert SECRET not in message


def failure(source: str, url: str = "https://h/x") -> Any:
    """Return the failure for an exception of obstore with a form for debugging."""
    text = f"Generic HTTP error: Error performing GET {url} in 1.2ms - HTTP error: error sending request"
    asked = f"uri: Some(\n        {url},\n    ),\n    {source}"
    return failure_of(GENERIC(f"{text}\n\nDebug source:\nGeneric {{ {asked} }}"), url)


def test_names_that_may_be_known_later() -> None:
    for said in (
        "failed to lookup address information: Temporary failure in name resolution",
        "failed to lookup address information: Try again",
    ):
        found = failure(f'ConnectError("dns error", Custom {{ kind: Uncategorized, error: "{said}" }})')
        assert found.kind is Kind.TEMPORARY
        assert "the name 'h' cannot be resolved now" in found.reason
    # What is an address already needs no resolving.
    for url, host in (("https://127.0.0.1:9000/x", "127.0.0.1:9000"), ("http://u:p@[::1]:9/x", "[::1]:9")):
        found = failure(f'ConnectError("dns error", Custom {{ error: "{said}" }})', url)
        assert found.kind is Kind.TEMPORARY
        assert f"a name to which a redirect of {host!r}, or a proxy, leads cannot be resolved now" in found.reason
    for said in ("Name or service not known", "nodename nor servname provided, or not known"):
        found = failure(
            f'ConnectError("dns error", Custom {{ error: "failed to lookup address information: {said}" }})'
        )
        assert found.kind is Kind.FINAL
        assert said in found.reason


def test_what_may_succeed_later() -> None:
    found = failure('Os { code: 111, kind: ConnectionRefused, message: "Connection refused" }')
    assert (found.kind, found.reason) == (Kind.TEMPORARY, "no connection, or it was lost: Connection refused")
    # Words in a URL mean nothing.
    for name in ("certificates", "Missing", "InvalidCertificate(UnknownIssuer)", "BadScheme"):
        assert failure("kind: Connect", f"https://h/{name}/c/0").kind is Kind.TEMPORARY


def test_other_reasons_not_to_trust_a_server() -> None:
    for source, meaning in (
        ("InvalidCertificate(\n  Expired,\n)", "it has expired"),
        ("InvalidCertificate(\n  ExpiredContext { time: 1 },\n)", "it has expired"),
        ("InvalidCertificate(Other(OtherError(\n  Strange,\n)))", r"not trusted \(Strange\)".replace("\\", "")),
        ("AlertReceived(\n  HandshakeFailure,\n)", "(HandshakeFailure)"),
        ("PeerIncompatible(\n  ServerDoesNotSupportTls12Or13,\n)", "(ServerDoesNotSupportTls12Or13)"),
    ):
        found = failure(source)
        assert found.kind is Kind.FINAL
        assert meaning in found.reason


# -- answers


class Odd(http.server.BaseHTTPRequestHandler):
    """Sends the files of a directory with odd headers."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    folder: Path
    status = 200
    headers_: tuple[tuple[str, str], ...] = ()

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.folder / self.path.lstrip("/")
        data = path.read_bytes() if path.is_file() else None
        status = 404 if data is None else self.status
        data = data or b""
        wanted = self.headers.get("Range", "").removeprefix("bytes=")
        extra = {}
        if wanted and status == 200:
            first, _, last = wanted.partition("-")
            begin = int(first) if first else max(len(data) - int(last), 0)
            end = min(int(last) + 1, len(data)) if first and last else len(data)
            extra, status = {"Content-Range": f"bytes {begin}-{end - 1}/{len(data)}"}, 206
            data = data[begin:end]
        self.send_response(status)
        for name, value in [*self.headers_, *extra.items(), ("Content-Length", str(len(data)))]:
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        pass


@contextlib.contextmanager
def serving(folder: Path, status: int, *headers: tuple[str, str]) -> Iterator[str]:
    handler = type("Handler", (Odd,), {"folder": folder, "status": status, "headers_": headers})
    with running(handler) as url:
        yield url


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    gzarr.create_array(tmp_path / "chunked", data=DATA, chunks=(3, 64))
    gzarr.create_array(tmp_path / "sharded", data=DATA, chunks=(5, 64), shards=(15, 64))
    with gzarr.ZipStore(tmp_path / "x.zip", mode="w") as store:
        gzarr.create_array(store, data=DATA, chunks=(30, 64))
    return tmp_path


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ([("Location", "/chunked/zarr.json")], "too many redirects"),
        ([], "does not say where to"),
        ([("Location", "ftp://127.0.0.1/x")], "does not begin with http://"),
    ],
    ids=["loop", "nowhere", "ftp"],
)
def test_redirects_that_lead_to_nothing(headers: list[tuple[str, str]], message: str, folder: Path) -> None:
    with serving(folder, 302, *headers) as url:
        assert message in fails_at_once(f"{url}/chunked")


@pytest.mark.parametrize(
    "header",
    [
        ("Last-Modified", "Sun Nov  6 08:49:37 1994"),
        ("Last-Modified", "Sunday, 06-Nov-94 08:49:37 GMT"),
        ("Last-Modified", "yesterday"),
        ("ETag", '"\xe9"'),
        ("Content-Disposition", 'attachment; filename="\xe9.zip"'),
    ],
    ids=["asctime", "rfc850", "no date", "tag", "file name"],
)
def test_headers_that_obstore_cannot_read(header: tuple[str, str], by: str, folder: Path) -> None:
    with serving(folder, 200, header) as url:
        for name in ("chunked", "sharded", "x.zip"):
            begun = time.monotonic()
            if by == "libcurl":
                for _ in range(2):
                    np.testing.assert_array_equal(gzarr.open_array(f"{url}/{name}", device="cpu")[...], DATA)
            else:
                with pytest.raises((StoreError, ChunkError), match=r"cannot read the headers.*gzarr\[curl\]"):
                    gzarr.open_array(f"{url}/{name}", device="cpu")
            assert time.monotonic() - begun < 10
        store: Any = gzarr.open_store(url)
        assert store.contains(["chunked/zarr.json", "absent"]) == [True, False]


@pytest.mark.parametrize("by", ["libcurl"], indirect=True)
def test_dates_are_versions_in_any_form(by: str, folder: Path) -> None:
    versions = set()
    for date in ("Sun Nov  6 08:49:37 1994", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:37 GMT"):
        with serving(folder, 200, ("Last-Modified", date)) as url:
            store: Any = gzarr.open_store(url)
            (answer,) = store.get_many([gzarr.stores.base.Request("chunked/zarr.json")])
            versions.add(answer.version)
    assert len(versions) == 1
    assert None not in versions


@pytest.mark.parametrize("key", ["latest/meta-data/0", "CredentialProvider/0", "169.254.169.254/computeMetadata"])
def test_keys_are_no_requests_for_credentials(key: str) -> None:
    said = "in 1ms - HTTP error: error sending request"
    found = failure_of(GENERIC(f"Generic S3 error: Error performing GET http://host:1/b/{key} {said}"), "s3://b")
    assert found.kind is Kind.TEMPORARY
    asked = failure_of(
        GENERIC(f"Generic S3 error: Error performing PUT http://host:1/latest/api/token {said}"), "s3://b"
    )
    assert asked.kind is Kind.CREDENTIALS
