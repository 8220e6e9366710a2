"""Google Cloud Storage: what only it has, against a server of its dialect."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

import pytest
from support import servers
from support.fault_proxy import FaultProxy
from support.remotes import BUCKET, Remote, gcs_options, remote

import gzarr
from gzarr.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def server() -> Iterator[Remote]:
    with remote("gcs") as made:
        yield made


@pytest.fixture
def proxy(server: Remote) -> Iterator[FaultProxy]:
    with FaultProxy(server.address) as made:
        yield made


def test_a_wrong_token(proxy: FaultProxy) -> None:
    options = {**gcs_options(proxy.url), "bearer_token": "WRONGTOKEN"}
    with (
        proxy.counting() as seen,
        pytest.raises(StoreError, match=r"HTTP status 401.*set GOOGLE_APP") as caught,
    ):
        gzarr.open(f"gs://{BUCKET}/a", storage_options=options)
    assert len(seen) == 1
    assert "WRONGTOKEN" not in str(caught.value)


def test_creation_is_conditional_on_the_generation(server: Remote, proxy: FaultProxy) -> None:
    store = server.store(proxy.url, "generations")
    with proxy.counting() as seen:
        assert store.create("key", b"1")
        assert not store.create("key", b"2")
        store.set("key", b"3")
    assert [one.headers.get("x-goog-if-generation-match") for one in seen] == ["0", "0", None]


def test_service_accounts_and_application_credentials(
    proxy: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service account for an emulator names its server, and needs no signature."""
    file = tmp_path / "account.json"
    account = {"gcs_base_url": proxy.url, "disable_oauth": True, "client_email": "", "private_key": ""}
    file.write_text(json.dumps({**account, "private_key_id": "", "type": "service_account"}))
    # The emulator refuses what is not signed.
    for given in ({"service_account": str(file)}, {"service_account_key": file.read_text()}):
        with pytest.raises(StoreError, match="HTTP status 401"):
            gzarr.open(f"gs://{BUCKET}/a", storage_options={**given, "client_options": {"allow_http": True}})
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "absent.json"))
    with pytest.raises((gzarr.ArgumentError, StoreError)):
        gzarr.open(f"gs://{BUCKET}/a", storage_options={"base_url": proxy.url})


def test_no_credentials(proxy: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("GOOGLE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    # The server of credentials that a machine in the cloud has.
    for name in ("GCE_METADATA_HOST", "GCE_METADATA_ROOT", "GCE_METADATA_IP"):
        monkeypatch.setenv(name, f"127.0.0.1:{servers.free_port()}")
    begin = time.monotonic()
    with pytest.raises(StoreError, match=r"no credentials were found.*GOOGLE_APPLICATION_CREDENTIALS.*skip_signature"):
        gzarr.open(f"gs://{BUCKET}/a", storage_options={"base_url": proxy.url})
    assert time.monotonic() - begin < 5
    assert not proxy.seen
    with pytest.raises(StoreError, match="HTTP status 401"):
        gzarr.open(f"gs://{BUCKET}/a", storage_options={"base_url": proxy.url, "anon": True})
