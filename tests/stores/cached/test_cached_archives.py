"""A cache before a zip archive on a server: a value that is kept is confirmed, and not sent again."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.caching import options
from support.requests_of import requests_of

import gzarr

if TYPE_CHECKING:
    from pathlib import Path

    from support.fault_proxy import FaultProxy


def test_a_local_archive(tmp_path: Path) -> None:
    data = np.arange(1000, dtype="u4")
    gzarr.save(tmp_path / "x.zip", data)
    # Where times are coarse, what was just written is not kept.
    os.utime(tmp_path / "x.zip", (1e9, 1e9))
    store = gzarr.CachedStore(tmp_path / "x.zip", tmp_path / "cache", 1 << 20, name="x", check="once")
    before = gzarr.stats()["cache_hits"]
    for _ in range(2):
        np.testing.assert_array_equal(gzarr.open_array(store, device="cpu")[...], data)
    assert gzarr.stats()["cache_hits"] > before
    assert any((tmp_path / "cache").iterdir())


def test_values_are_confirmed(proxy: FaultProxy, writer: Any, url: str, tmp_path: Path) -> None:
    def put(seed: bytes) -> dict[str, bytes]:
        # What is written last comes with the directory.
        values = {"a": seed * 50_000, "b/c": os.urandom(100_000), "last": seed * 70_000, "small": seed}
        with gzarr.ZipStore(tmp_path / "x.zip", mode="w") as store:
            for key, value in values.items():
                store.set(key, value)
        writer.set("x.zip", (tmp_path / "x.zip").read_bytes())
        return values

    values = put(b"1")
    archive = gzarr.open_store(f"{url}/x.zip", storage_options=options(proxy))
    store = gzarr.CachedStore(archive, tmp_path / "cache", 1 << 30, name="archive")
    for key, value in values.items():
        assert store.get(key) == value
    for key in ("a", "b/c"):
        seen, _ = requests_of(proxy, lambda key=key: store.get(key))
        assert [(one.status, one.nbytes) for one in seen] == [(304, 0)]
        assert store.get(key) == values[key]
    assert requests_of(proxy, lambda: store.get("small"))[0] == []
    values = put(b"2")
    for key, value in values.items():
        assert store.get(key) == value
    writer.erase("x.zip")
    with pytest.raises(gzarr.NodeNotFoundError, match="does not exist"):
        store.get("a")
