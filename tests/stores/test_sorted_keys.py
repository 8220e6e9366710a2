"""Sorted keys of archives and mappings: as a sort of all of them, and without sorting them for each node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gzarr
from gzarr.stores import sorted_keys as module
from gzarr.stores.keys import is_key
from gzarr.stores.zip_format import CentralDirectory

if TYPE_CHECKING:
    from pathlib import Path

names = st.lists(st.sampled_from(["a", "b", "a0", "a.", "", "..", "é"]), min_size=1, max_size=3).map("/".join)
# Names to add or, with False, to remove, in rounds between which keys are listed.
rounds = st.lists(st.lists(st.tuples(names, st.booleans()), max_size=12), max_size=6)
PREFIXES = ("", "a/", "a/b/", "a0/", "b/", "é/")


def listing(names: Any, prefix: str) -> tuple[list[str], list[str]]:
    """Return what is directly below a prefix, found the simple way."""
    below = [name for name in names if name.startswith(prefix)]
    rest = [name[len(prefix) :] for name in below]
    keys = sorted(prefix + name for name in rest if "/" not in name)
    return keys, sorted({f"{prefix}{name.partition('/')[0]}/" for name in rest if "/" in name})


@given(rounds, st.booleans())
def test_listings_follow_all_changes(rounds: list[list[tuple[str, bool]]], many: bool) -> None:
    directory, mapping = CentralDirectory(), dict[Any, bytes]()
    store = gzarr.MemoryStore(mapping)
    # Few changes are made one by one, many by sorting.
    for name in (f"x/{i}" for i in range(200 * many)):
        directory.add(name, [0] * 11)
        mapping[name] = b""
    mapping[1] = b"no name"
    for changes in rounds:
        for name, there in changes:
            if there:
                directory.add(name, [0] * 11)
                mapping[name] = b""
            else:
                directory.remove(name)
                mapping.pop(name, None)
        present = sorted(name for name in directory.rows if is_key(name))
        before = list(store.list())
        assert list(directory.below("")) == directory.names() == before == present
        for prefix in PREFIXES:
            below = [name for name in present if name.startswith(prefix)]
            assert list(directory.below(prefix)) == list(store.list_prefix(prefix)) == below
            assert directory.children(prefix) == store.list_dir(prefix) == listing(present, prefix)


def test_keys_are_a_snapshot() -> None:
    directory, store = CentralDirectory(), gzarr.MemoryStore()
    for number in range(20):
        directory.add(f"a/{number}", [0] * 11)
        store.set(f"a/{number}", b"")
    for keys, remove in ((directory.below("a/"), directory.remove), (store.list_prefix("a/"), store.erase)):
        first = next(keys)
        remove("a/1")
        remove("a/10")
        assert [first, *keys] == sorted(f"a/{number}" for number in range(20))


@pytest.mark.parametrize("kind", ["zip", "mapping"])
def test_new_nodes_do_not_sort_all_keys(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at, sorts = 0, 0

    def count(key: str) -> bool:
        nonlocal looked_at
        looked_at += 1
        return is_key(key)

    def count_sorts(names: Any) -> list[str]:
        nonlocal sorts
        sorts += 1
        return sorted(name for name in names if module.is_key(name))

    monkeypatch.setattr(module, "is_key", count)
    monkeypatch.setattr("gzarr.stores.zip_format.sorted_keys", count_sorts)
    monkeypatch.setattr("gzarr.stores.memory.sorted_keys", count_sorts)
    nodes = 200
    store = gzarr.ZipStore(tmp_path / "x.zip", mode="w") if kind == "zip" else gzarr.MemoryStore()
    group = gzarr.create_group(store)
    for number in range(nodes):
        group.create_array(f"x{number}", data=np.arange(3))
    # Two keys are a node's. The first few are sorted anew, and then none.
    assert looked_at < 4 * nodes
    assert sorts < 20
    assert list(group) == sorted(f"x{number}" for number in range(nodes))
    for number in range(0, nodes, 2):
        del group[f"x{number}"]
    assert looked_at < 4 * nodes
    assert sorts < 20
    assert list(group) == sorted(f"x{number}" for number in range(1, nodes, 2))
