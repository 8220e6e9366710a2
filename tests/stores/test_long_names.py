"""Names that the system refuses: nothing is left of what was made for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import gzarr

if TYPE_CHECKING:
    from pathlib import Path

LONG = "x" * 300


@pytest.mark.parametrize("what", [{"shape": 3, "dtype": "u1"}, {"data": [1, 2]}], ids=["empty", "data"])
def test_directories_above_are_removed(tmp_path: Path, what: dict[str, Any]) -> None:
    (tmp_path / "there").mkdir()
    for place in ("new/one", "there/one", "there"):
        with pytest.raises(gzarr.StoreError, match="too long"):
            gzarr.create_array(tmp_path / place / LONG, **what)
        assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == ["there"]


def test_values(tmp_path: Path) -> None:
    store = gzarr.LocalStore(tmp_path)
    store.set("a/b", b"1")
    with pytest.raises(gzarr.StoreError, match="too long"):
        store.set(f"a/c/d/{LONG}/e", b"2")
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == ["a", "a/b"]
