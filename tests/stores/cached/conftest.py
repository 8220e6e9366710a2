"""A server, a proxy before it, and stores there with and without a cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support import caching, servers
from support.caching import BUCKET, SECRET_NAME, options
from support.fault_proxy import FaultProxy

import gzarr

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, int]]:
    with servers.s3_server() as address:
        servers.make_bucket(address, BUCKET)
        yield address


@pytest.fixture
def proxy(server: tuple[str, int]) -> Iterator[FaultProxy]:
    with FaultProxy(server, stall_s=1.0) as made:
        yield made


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    return f"s3://{BUCKET}/{SECRET_NAME}-{name}"


@pytest.fixture
def writer(proxy: FaultProxy, url: str) -> Any:
    """The store without a cache."""
    return gzarr.open_store(url, read_only=False, storage_options=options(proxy))


@pytest.fixture
def cached(proxy: FaultProxy, url: str, tmp_path: Path) -> Callable[..., Any]:
    """Function that makes a store with a cache in one directory."""

    def make(max_bytes: int = 64 << 20, **arguments: Any) -> gzarr.CachedStore:
        return gzarr.CachedStore(url, tmp_path / "cache", max_bytes, storage_options=options(proxy), **arguments)

    return make


@pytest.fixture(autouse=True)
def count_from_here() -> None:
    caching.count_from_here()
