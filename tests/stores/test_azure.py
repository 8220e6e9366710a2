"""Azure: what only its blobs have, against Azurite."""

from __future__ import annotations

import base64
import time
from typing import TYPE_CHECKING, Any

import pytest
from support import servers
from support.fault_proxy import FaultProxy
from support.remotes import BUCKET, Remote, azure_options, remote

import gzarr
from gzarr.errors import ArgumentError, ChunkWriteError, StoreError, ValueReplacedError, ValueSizeError
from gzarr.stores import ByteRange
from gzarr.stores.base import Request

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def server() -> Iterator[Remote]:
    with remote("azure") as made:
        yield made


@pytest.fixture
def proxy(server: Remote) -> Iterator[FaultProxy]:
    with FaultProxy(server.address) as made:
        yield made


def signed(proxy: FaultProxy, signature: str) -> dict[str, Any]:
    """Return storage options with a shared access signature."""
    options = azure_options(proxy.url)
    del options["account_key"]
    return {**options, "sas_key": signature, "timeout": 3}


def test_shared_access_signatures(server: Remote, proxy: FaultProxy) -> None:
    signature = servers.azure_sas()
    array = gzarr.create_array(f"az://{BUCKET}/signed", data=[1, 2, 3], storage_options=signed(proxy, signature))
    reading = servers.azure_sas("rl")
    again = gzarr.open_array(f"az://{BUCKET}/signed", mode="r+", storage_options=signed(proxy, reading))
    assert again[...].tolist() == [1, 2, 3]
    shown = [repr(array), repr(again.store)]
    with pytest.raises(ChunkWriteError, match=r"HTTP status 403.*AZURE_STORAGE_SAS_KEY") as refused:
        again[0] = 7
    shown.append(str(refused.value))
    proxy.fault_of = lambda number, seen: "reset before"
    with pytest.raises(StoreError) as failed:
        again.store.get("key")
    shown.append(str(failed.value))
    secrets = ["sig=", *(key.rpartition("sig=")[2] for key in (signature, reading))]
    assert not any(secret in text for secret in secrets for text in shown)


def test_wrong_keys(proxy: FaultProxy) -> None:
    wrong = base64.b64encode(b"a wrong key" * 6).decode()
    for options in ({**azure_options(proxy.url), "account_key": wrong}, signed(proxy, f"{servers.azure_sas()}x")):
        with proxy.counting() as seen, pytest.raises(StoreError, match="HTTP status 403") as caught:
            gzarr.open(f"az://{BUCKET}/a", storage_options=options)
        assert len(seen) == 1
        assert wrong not in str(caught.value)
        assert "sig=" not in str(caught.value)


def test_urls_that_name_the_account(proxy: FaultProxy) -> None:
    options = azure_options(proxy.url)
    gzarr.create_array(f"az://{BUCKET}/named", data=[1, 2], storage_options=options)
    del options["account_name"]
    url = f"abfs://{BUCKET}@{servers.AZURE_ACCOUNT}.dfs.core.windows.net/named"
    assert gzarr.open(url, storage_options=options)[...].tolist() == [1, 2]


def test_ranges_from_the_end(server: Remote, proxy: FaultProxy) -> None:
    """The size is asked for first, and the value may be replaced between the two requests."""
    store = server.store(proxy.url, "suffix")
    store.set("key", b"0123456789")
    with proxy.counting() as seen:
        assert store.get_partial_values([("key", ByteRange(-4))]) == [b"6789"]
    assert [one.method for one in seen] == ["GET", "GET"]
    assert "if-match" in seen[1].headers
    version = store.get_many([Request("key")])[0].version
    assert isinstance(version, str)

    def replacing(value: bytes | None, times: int) -> None:
        left = [None] * times

        def replace(number: int, seen: Any) -> None:
            if seen.method == "GET" and "if-match" in seen.headers and left:
                left.pop()
                if value is None:
                    store.erase("key")
                else:
                    store.set("key", value)

        proxy.fault_of = replace  # type: ignore[assignment]

    replacing(b"abcdefghijklmn", 3)
    assert store.get_partial_values([("key", ByteRange(-4))]) == [b"klmn"]
    replacing(b"xy", 1)
    with pytest.raises(ValueSizeError, match="has 2 bytes, too few"):
        store.get_partial_values([("key", ByteRange(-4))])
    replacing(None, 1)
    assert store.get_partial_values([("key", ByteRange(-2))]) == [None]
    replacing(None, 0)
    store.set("key", b"")
    with pytest.raises(ValueSizeError, match="has 0 bytes, too few"):
        store.get_partial_values([("key", ByteRange(-1))])
    (answer,) = store.get_many([Request("key", ByteRange(-4), version)])
    assert isinstance(answer.error, ValueReplacedError)
    store.erase("key")
    (answer,) = store.get_many([Request("key", ByteRange(-4), version)])
    assert isinstance(answer.error, ValueReplacedError)
    replacing(b"abcdefghijklmn", 10_000)
    store.set("key", b"0123456789")
    with pytest.raises(StoreError, match="replaced again and again"):
        store.get_partial_values([("key", ByteRange(-4))])


def test_no_credentials(proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_KEY", "AZURE_CLIENT_ID", "IDENTITY_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    options = azure_options(proxy.url)
    del options["account_key"]
    # The server of identities that a machine in the cloud has.
    identity = f"http://127.0.0.1:{servers.free_port()}/metadata/identity/oauth2/token"
    begin = time.monotonic()
    with pytest.raises(StoreError, match=r"no credentials were found.*AZURE_STORAGE_ACCOUNT_KEY.*skip_signature"):
        gzarr.open(f"az://{BUCKET}/a", storage_options={**options, "msi_endpoint": identity})
    assert time.monotonic() - begin < 5
    assert not proxy.seen


def test_no_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(ArgumentError, match="Account must be specified"):
        gzarr.open(f"az://{BUCKET}/a")
