"""What is opened in place of ``reference::refs.json``: the message says what to write."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any

import pytest

import gzarr
from gzarr.errors import ArgumentError, NodeNotFoundError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("reference://a/refs.json", None),
        ("reference://a/refs.json", {"remote_protocol": "file"}),
        ("fsspec+reference://a/refs.json", None),
    ],
    ids=["alone", "with options", "with a prefix"],
)
def test_no_document(url: str, options: Any) -> None:
    with pytest.raises(ArgumentError, match=r"write 'reference::a/refs\.json', or pass storage_options=\{'fo'"):
        gzarr.open(url, storage_options=options)


@pytest.mark.parametrize("form", ["version 0", "version 1", "templates first"])
def test_a_document_by_its_path(form: str, tmp_path: Path) -> None:
    refs = {".zgroup": '{"zarr_format": 2}'}
    forms: dict[str, Any] = {
        "version 0": refs,
        "version 1": {"version": 1, "refs": refs},
        "templates first": {"templates": {"u": "x"}, "version": 1, "refs": refs},
    }
    path = tmp_path / "refs.json"
    path.write_text(json.dumps(forms[form], indent=1))
    with pytest.raises(NodeNotFoundError, match=re.escape(f"'reference::{path}'")):
        gzarr.open(path)
    assert gzarr.open_group(f"reference::{path}").keys() is not None


def test_other_files(tmp_path: Path) -> None:
    path = tmp_path / "zarr.json"
    path.write_text('{"zarr_format": 3, "node_type": "group"}')
    with pytest.raises(NodeNotFoundError, match="pass the directory") as caught:
        gzarr.open(path)
    assert "reference::" not in str(caught.value)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_pipes_are_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NodeNotFoundError, match="not a directory"):
        gzarr.open(tmp_path / "pipe")
