"""Groups that are erased in object stores: which keys each request has, and how often they are listed."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from obstore.store import MemoryStore

import gzarr
from gzarr.nodes import erasing
from gzarr.nodes.erasing import delete_node
from gzarr.stores.remote_store import RemoteStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@pytest.mark.parametrize("kept", [100, 2])
def test_documents_are_erased_by_requests_of_their_own(monkeypatch: pytest.MonkeyPatch, kept: int) -> None:
    """One listing shows everything, and the last one that nothing has come since; but for what is too much to keep."""
    store: Any = gzarr.open_store(MemoryStore(), read_only=False)
    for path in ("g", "g/t"):
        gzarr.create_group(store, path=path)
    for path in ("g/a", "g/t/b"):
        gzarr.create_array(store, path=path, data=np.arange(1, 7), chunks=2)
    erased: list[list[str]] = []
    listed: list[int] = []
    erase, list_prefix = RemoteStore._erase, type(store).list_prefix

    def noting(self: Any, keys: Sequence[str]) -> None:
        erased.append(list(keys))
        erase(self, keys)

    def counting(self: Any, prefix: str) -> Iterable[str]:
        found = list(list_prefix(self, prefix))
        if prefix == "g/":
            listed.append(len(found))
        return iter(found)

    monkeypatch.setattr(erasing, "_MOST_KEPT", kept)
    monkeypatch.setattr(type(store), "_erase", noting)
    monkeypatch.setattr(type(store), "list_prefix", counting)
    delete_node(store, "g")
    assert erased[0] == ["g/zarr.json", "g/a/zarr.json", "g/t/zarr.json", "g/t/b/zarr.json"]
    chunks = [f"g/{name}/c/{i}" for name in ("a", "t/b") for i in range(3)]
    assert list(chain.from_iterable(erased[1:])) == chunks
    assert listed == [10, 6 - min(kept, 6)]
    assert list(list_prefix(store, "g/")) == []
