"""Names of places in object stores follow what obstore asks: options before variables, and those of its class only."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import threading
from typing import TYPE_CHECKING, Any

import pytest
from support.web_server import WebServer

import gzarr
from gzarr.stores.locations import location_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytest.importorskip("obstore")

PUBLIC = {"skip_signature": True, "region": "us-east-1", "timeout": 2}


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "AZURITE_", "GOOGLE_", "SERVICE_ACCOUNT")):
            monkeypatch.delenv(name)


@contextlib.contextmanager
def listening(asked: list[tuple[str, str]]) -> Iterator[str]:
    """Run a server that has nothing, and notes its URL and the path of each request."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((url, self.path))
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    with WebServer(("127.0.0.1", 0), Handler) as server:
        url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield url
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def asked() -> list[tuple[str, str]]:
    return []


@pytest.fixture(scope="module")
def two_servers(asked: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    with listening(asked) as one, listening(asked) as other:
        yield one, other


@pytest.mark.parametrize(
    ("variables", "option"),
    [
        (["AWS_ENDPOINT"], "aws_endpoint_url"),
        (["AWS_ENDPOINT"], "endpoint_url"),
        (["AWS_ENDPOINT_URL"], "aws_endpoint"),
        (["AWS_ENDPOINT_URL"], "endpoint"),
        (["AWS_ENDPOINT_URL_S3"], "aws_endpoint"),
        (["AWS_ENDPOINT_URL_S3"], "aws_endpoint_url_s3"),
        (["AWS_ENDPOINT"], "aws_endpoint_url_s3"),
        (["AWS_ENDPOINT"], "AWS_ENDPOINT_URL"),
        (["AWS_ENDPOINT", "AWS_ENDPOINT_URL"], None),
        (["AWS_ENDPOINT_URL", "AWS_ENDPOINT"], None),
        (["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT"], None),
    ],
)
def test_the_server_that_is_asked_is_named(
    variables: list[str],
    option: str | None,
    two_servers: tuple[str, str],
    asked: list[tuple[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = {} if option is None else {option: two_servers[1]}
    for name, url in zip(variables, two_servers, strict=False):
        monkeypatch.setenv(name, url)
    store: Any = gzarr.open_store("s3://bucket/x", storage_options={**PUBLIC, **options})
    asked.clear()
    # A bucket that is not there.
    with contextlib.suppress(gzarr.StoreError):
        store.get("k")
    assert store.location() == f"S3Store {asked[0][0]} bucket/x"
    # The store asks that server until it is made anew.
    monkeypatch.setenv(variables[0], "http://elsewhere")
    assert store.location() == f"S3Store {asked[0][0]} bucket/x"


def test_a_server_of_its_own_for_a_bucket(two_servers: tuple[str, str], asked: list[tuple[str, str]]) -> None:
    names = []
    for more, path in (({}, "/bucket/x/k"), ({"virtual_hosted_style_request": True}, "/x/k")):
        store: Any = gzarr.open_store("s3://bucket/x", storage_options={**PUBLIC, "endpoint": two_servers[0], **more})
        asked.clear()
        with contextlib.suppress(gzarr.StoreError):
            store.get("k")
        assert asked[0] == (two_servers[0], path)
        names.append(store.location())
    assert names[0] != names[1]


def azure(**config: Any) -> str | None:
    return location_of("AzureStore", (), {"config": {"container_name": "c", "account_name": "a", **config}}, "p")


@pytest.mark.parametrize("is_first", [False, True])
def test_variables_of_another_cloud(is_first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if is_first:
        monkeypatch.setenv("AWS_ENDPOINT", "http://minio")
    usual = azure()
    monkeypatch.setenv("AZURE_ENDPOINT", "http://x")
    monkeypatch.setenv("AWS_ENDPOINT", "http://minio")
    assert "minio" not in str(usual)
    assert azure() == azure(endpoint="http://x") != usual
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", "http://z")
    assert azure() == azure(azure_endpoint="http://z") != azure(endpoint="http://x")


def test_what_other_variables_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "one")
    # Other programs read this one.
    monkeypatch.setenv("AZURE_ACCOUNT_NAME", "two")
    assert azure(account_name=None) == azure(account_name="one")
    emulator = azure(use_emulator=True)
    monkeypatch.setenv("AZURITE_BLOB_STORAGE_URL", "http://h:10000")
    assert azure(use_emulator=True) not in (emulator, azure(use_emulator=True, account_name="b"))
    # The first default of a region stays.
    monkeypatch.setenv("AWS_DEFAULT_REGION", "cn-north-1")
    china = location_of("S3Store", ("b",), {}, "a")
    assert location_of("S3Store", ("b",), {"config": {"default_region": "eu-west-1"}}, "a") == china
    assert location_of("S3Store", ("b",), {"config": {"region": "eu-west-1"}}, "a") != china


def test_a_key_that_names_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def name(**config: Any) -> str | None:
        return location_of("GCSStore", ("b",), {"config": config}, "a")

    key = json.dumps({"gcs_base_url": "http://h/"})
    (tmp_path / "key.json").write_text(key)
    path = str(tmp_path / "key.json")
    there = name(base_url="http://h")
    assert (
        name(service_account_key=key) == name(service_account=path) == name(google_service_account_path=path) == there
    )
    assert name(service_account_key=key, base_url="http://other") == name(base_url="http://other") != there
    assert name(service_account_key="no key") == name(service_account="/no/key.json") == name() != there
    monkeypatch.setenv("SERVICE_ACCOUNT", path)
    assert name() == there


def test_a_variable_that_an_option_replaces_may_be_anything(
    two_servers: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "localhost:9000")
    for name in ("endpoint", "aws_endpoint", "aws_endpoint_url_s3"):
        gzarr.open_store("s3://bucket/x", storage_options={**PUBLIC, name: two_servers[0]})
    # This one counts before the option.
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "localhost:9000")
    with pytest.raises(gzarr.ArgumentError, match="variable AWS_ENDPOINT_URL_S3 must be the URL of a server"):
        gzarr.open_store("s3://bucket/x", storage_options={**PUBLIC, "endpoint": two_servers[0]})
    gzarr.open_store("s3://bucket/x", storage_options={**PUBLIC, "aws_endpoint_url_s3": two_servers[0]})
    # At the first request, obstore would panic.
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "")
    with pytest.raises(gzarr.ArgumentError, match="variable AWS_ENDPOINT_URL_S3 must be the URL of a server"):
        gzarr.open_store("s3://bucket/x", storage_options=PUBLIC)
