"""Consolidated metadata of folders without metadata of their own, which are groups all the same."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr

import gzarr
from gzarr.errors import ArgumentError
from gzarr.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence
    from pathlib import Path

VALUES = np.arange(4, dtype="u1")
N5 = {"dimensions": [4], "blockSize": [4], "dataType": "uint8", "compression": {"type": "raw"}}


def folder(kind: Any) -> dict[str, bytes]:
    """Return a folder with a hierarchy in it."""
    values: dict[str, bytes] = {}
    if kind == "n5":
        values = {"attributes.json": b'{"n5": "4.0.0"}', "a/attributes.json": json.dumps(N5).encode()}
    else:
        gzarr.create_array(values, path="a", data=VALUES, zarr_format=kind, device="cpu")
    return {f"n/{key}": value for key, value in values.items()}


def test_a_folder_of_version_2_becomes_a_group(tmp_path: Path) -> None:
    gzarr.create_array(tmp_path, path="p/q", data=VALUES, zarr_format=2, device="cpu")
    for name in (".zgroup", "p/.zgroup"):
        (tmp_path / name).unlink()
    group = gzarr.consolidate_metadata(tmp_path, device="cpu")
    assert not group.metadata.implicit
    opened = zarr.open_consolidated(tmp_path, zarr_format=2)
    assert opened.metadata.consolidated_metadata is not None
    assert sorted(path for path, _ in opened.members(max_depth=None)) == ["p", "p/q"]
    np.testing.assert_array_equal(opened["p/q"][...], VALUES)  # type: ignore[index]


@pytest.mark.parametrize("kinds", [["n5"], ["3-draft-2022"], [3, 2]], ids=["n5", "draft", "3 and 2"])
def test_nodes_of_another_format_are_named(kinds: list[Any]) -> None:
    values: dict[str, bytes] = {}
    for i, kind in enumerate(kinds):
        values |= {f"f{i}{key}": value for key, value in folder(kind).items()}
    before = dict(values)
    with pytest.raises(ArgumentError, match=r"^'/' is a folder .* at '/f\dn(/a)?'; consolidate"):
        gzarr.consolidate_metadata(values, device="cpu")
    assert values == before


class Conditional(MemoryStore):
    """A store that changes values on conditions, where another process changes attributes first."""

    def __init__(self) -> None:
        super().__init__()
        self.others = 0

    def get_with_tokens(self, keys: Sequence[str], max_nbytes: int) -> list[tuple[bytes | None, Hashable | None]]:
        return [(value, value) for value in self.get_small_values(keys, max_nbytes)]

    def replace(self, key: str, value: bytes, token: Hashable | None) -> bool:
        if key == "zarr.json" and self.others:
            self.others -= 1
            before = self.get(key)
            assert before is not None
            self.set(key, before.replace(b'"first": 0', b'"first": 0, "x%d": 1' % self.others))
        if self.get(key) != token:
            return False
        self.set(key, value)
        return True


def test_attributes_that_change_meanwhile_stay() -> None:
    store = Conditional()
    gzarr.create_group(store, zarr_format=3, attributes={"first": 0})
    gzarr.create_array(store, path="a", data=VALUES, device="cpu")
    store.others = 2
    gzarr.consolidate_metadata(store, device="cpu")
    group = gzarr.open_group(store, device="cpu")
    assert dict(group.attrs) == {"first": 0, "x0": 1, "x1": 1}
    assert group.consolidated
