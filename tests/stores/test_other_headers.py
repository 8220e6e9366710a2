"""Stores at one URL that send other headers: a server may send other values to each."""

from __future__ import annotations

import http.server
import math
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.web_server import running

import gzarr
from gzarr.errors import ArgumentError
from gzarr.stores.locations import client_of
from gzarr.stores.places import place_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECRETS = "a-secret-of-one", "a-secret-of-two"


def options(secret: str, name: str = "Authorization") -> dict[str, Any]:
    return {"client_options": {"default_headers": {name: secret}}}


class Tenants(http.server.BaseHTTPRequestHandler):
    """Sends the values of who asks, all with one entity tag."""

    protocol_version = "HTTP/1.1"
    values: dict[str, dict[str, bytes]]

    def do_GET(self) -> None:
        value = self.values.get(self.headers.get("Authorization", ""), {}).get(self.path.lstrip("/"))
        self.send_response(404 if value is None else 200)
        self.send_header("ETag", '"1"')
        self.send_header("Content-Length", str(len(value or b"")))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(value or b"")

    do_HEAD = do_GET

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    values: dict[str, dict[str, bytes]] = {}
    for number, secret in enumerate(SECRETS):
        values[secret] = {}
        gzarr.save(values[secret], np.full(4, number + 1, "i4"))
    with running(type("Handler", (Tenants,), {"values": values})) as url:
        yield url


def test_each_reads_its_own(url: str, tmp_path: Path) -> None:
    found = []
    for secret in SECRETS:
        store = gzarr.CachedStore(url, tmp_path, 1 << 20, check=math.inf, storage_options=options(secret))
        found.append(gzarr.open_array(store, device="cpu")[...].tolist())
    assert found == [[1] * 4, [2] * 4]


def test_they_are_two_stores_in_one_place(url: str) -> None:
    one, other = (gzarr.open_store(url, storage_options=options(secret)) for secret in SECRETS)
    assert one != other
    arrays = [gzarr.open_array(store, device="cpu") for store in (one, other)]
    assert arrays[0] != arrays[1]
    assert arrays[0].__dask_tokenize__() != arrays[1].__dask_tokenize__()
    assert pickle.loads(pickle.dumps(one)) == one
    assert gzarr.open_store(url, storage_options=options(SECRETS[0], "authorization")) == one
    # What overwrites its own source is refused, whoever asks.
    assert place_of(one).is_same(place_of(other))
    assert place_of(one, "a").overlaps(place_of(gzarr.open_store(url)))
    writable = gzarr.open_store(url, read_only=False, storage_options=options(SECRETS[1]))
    with pytest.raises(ArgumentError, match="copy would overwrite"):
        gzarr.copy(arrays[0], writable, overwrite=True)


def test_names_hold_no_secrets(url: str) -> None:
    store: Any = gzarr.open_store(url, storage_options=options(SECRETS[0]))
    below: Any = gzarr.open_store(f"{url}/below", storage_options=options(SECRETS[0]))
    assert SECRETS[0] not in store.location() + repr(store)
    assert f"{store.location()}/below" == below.location()
    assert gzarr.open_store(url).location() == f"HTTPStore {url}"  # type: ignore[attr-defined]


def test_a_proxy_is_another_way() -> None:
    ways: list[dict[str, Any]] = [
        {},
        {"client_options": {"timeout": "3s"}},
        {"client_options": {"proxy_url": "http://one"}},
        {"client_options": {"proxy_url": "http://two"}},
        options("x"),
        options("x", "X-Tenant"),
    ]
    assert [client_of(way) for way in ways[:2]] == ["", ""]
    assert len({client_of(way) for way in ways}) == 5
