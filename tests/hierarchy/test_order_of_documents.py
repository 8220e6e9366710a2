"""The order in which the documents of a node are written: a killed process leaves what can be read as before."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import gzarr
from gzarr.metadata.to_documents import resized
from gzarr.nodes.change import change_array
from gzarr.stores import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Sequence


class Noting(MemoryStore):
    """Values in memory, with the keys in the order in which they were written."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: list[str] = []

    def set_parts(self, key: str, parts: Sequence[Any]) -> None:
        self.keys.append(key)
        super().set_parts(key, parts)


def test_the_document_that_makes_a_node_is_the_last_and_that_of_a_change_the_first() -> None:
    store = Noting()
    gzarr.create_array(store, shape=4, dtype="i4", zarr_format=2, attributes={"a": 1}, device="cpu")
    assert store.keys == [".zattrs", ".zarray"]
    store.keys.clear()
    change_array(store, "", 2, lambda metadata: replace(resized(metadata, (5,)), attributes={"a": 2}))
    assert store.keys == [".zarray", ".zattrs"]
    assert gzarr.open_array(store, device="cpu").shape == (5,)
    store.keys.clear()
    gzarr.open_array(store, mode="r+", device="cpu").attrs["a"] = 3
    assert store.keys == [".zattrs"]
