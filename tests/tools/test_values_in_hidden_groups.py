"""Values that are part of no node, below groups whose names begin with a dot: these are no hidden folders."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import gzarr

if TYPE_CHECKING:
    from pathlib import Path

VALUES = ("points/p.parquet", "points/deeper/q.parquet", "direct.txt")
HIDDEN = ("points/.git/HEAD", "points/.DS_Store", ".git/HEAD", "points/Thumbs.db")


@pytest.mark.parametrize("path", ["", ".tables"])
def test_values_below_a_hidden_group(path: str, tmp_path: Path) -> None:
    root = gzarr.create_group(tmp_path / "a")
    groups = (".tables", ".tables/.inner", "shown")
    for group in groups:
        root.create_group(group)
        for name in (*VALUES, *HIDDEN):
            file = tmp_path / "a" / group / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{group} {name}")
    gzarr.copy(tmp_path / "a", tmp_path / "b", path=path, dest_path=path, read_back=True)
    copied = {str(file.relative_to(tmp_path / "b")) for file in (tmp_path / "b").rglob("*") if file.is_file()}
    copied = {name for name in copied if not name.endswith("zarr.json")}
    assert copied == {f"{group}/{name}" for group in groups if group.startswith(path) for name in VALUES}
    for name in copied:
        assert (tmp_path / "b" / name).read_bytes() == (tmp_path / "a" / name).read_bytes()
