"""``gzarr consolidate --dry-run`` fails where ``gzarr consolidate`` would."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

import gzarr
from gzarr.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path


def files(path: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}


@pytest.fixture(params=[2, 3])
def hierarchy(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    group = gzarr.create_group(tmp_path / "g", zarr_format=request.param)
    group.create_array("b/a", data=np.arange(3))
    return tmp_path / "g"


def both(path: Path, capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, str]:
    """Return the exit code and the output of a dry run, after checking that it writes nothing and fails alike."""
    before = files(path)
    tried = main(["consolidate", str(path), *flags, "--dry-run"])
    said = capsys.readouterr()
    assert files(path) == before
    assert main(["consolidate", str(path), *flags]) == tried
    assert capsys.readouterr().err == said.err
    return tried, said.out + said.err


def test_it_counts(hierarchy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert both(hierarchy, capsys) == (0, "/: 2 nodes, nothing written\n")
    assert both(hierarchy, capsys, "--path", "b") == (0, "/b: 1 nodes, nothing written\n")
    code, out = both(hierarchy, capsys, "--json")
    assert (code, json.loads(out.partition("\n/")[0])) == (0, {"node": "/", "nodes": 2, "dry_run": True})


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"zarr_format": 3, "node_type": "array"}', b'{"zarr_format": 2}'])
def test_broken_documents(hierarchy: Path, content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    (document,) = [path for path in (hierarchy / "b/a").iterdir() if path.name in ("zarr.json", ".zarray")]
    document.write_bytes(content)
    code, said = both(hierarchy, capsys)
    assert code == 1
    assert document.name in said


def test_other_failures(hierarchy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "is an array" in both(hierarchy, capsys, "--path", "b/a")[1]
    assert "no group" in both(hierarchy, capsys, "--path", "c")[1]
    gzarr.create_array(tmp_path / "one", data=np.arange(3))
    assert both(tmp_path / "one", capsys)[0] == 1
