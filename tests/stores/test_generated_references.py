"""References of kerchunk that a document generates, or makes by templates with arguments: fsspec needs to be told."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import fsspec
import numpy as np
import pytest

import gzarr
from gzarr.errors import ArgumentError

if TYPE_CHECKING:
    from pathlib import Path

ZARRAY = {
    "zarr_format": 2, "shape": [6, 10], "chunks": [2, 10], "dtype": "<i4", "order": "C", "fill_value": -1,
    "filters": None, "compressor": None,
}  # fmt: skip
NUMBERS = np.arange(60, dtype="<i4").reshape(6, 10)


def document(kind: str, folder: Path) -> dict[str, Any]:
    (folder / "raw.bin").write_bytes(b"head" + NUMBERS.tobytes())
    refs: dict[str, Any] = {"v/.zarray": json.dumps(ZARRAY)}
    if kind == "generated":
        one = {"key": "v/{{i}}.0", "url": "{{u}}", "offset": "{{4 + i * 80}}", "length": "80"}
        gen = [{**one, "dimensions": {"i": {"stop": 3}}}]
        return {"version": 1, "templates": {"u": str(folder / "raw.bin")}, "gen": gen, "refs": refs}
    refs |= {f"v/{i}.0": ["{{f(c='raw')}}", 4 + i * 80, 80] for i in range(3)}
    return {"version": 1, "templates": {"f": f"{folder}/{{{{c}}}}.bin"}, "refs": refs}


@pytest.mark.parametrize("kind", ["generated", "with arguments"])
def test_references_that_need_jinja2(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "r.json").write_text(json.dumps(document(kind, tmp_path)))
    url = f"reference::{tmp_path / 'r.json'}"
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "jinja2", None)
        patched.setitem(sys.modules, "jinja2.sandbox", None)
        with pytest.raises(ArgumentError, match=r"fsspec needs another package .*jinja2"):
            gzarr.open_array(url, path="v")
    pytest.importorskip("jinja2")
    for options in (None, {"simple_templates": False}):
        array = gzarr.open_array(url, path="v", device="cpu", storage_options=options)
        np.testing.assert_array_equal(array[...], NUMBERS)


def counted(monkeypatch: pytest.MonkeyPatch, fail_from: int = 9) -> list[str]:
    """Return a list that gets every opened document; opening fails from a number on."""
    opened: list[str] = []
    original = fsspec.open

    def counting(url: Any, *args: Any, **kwargs: Any) -> Any:
        opened.append(url)
        if len(opened) >= fail_from:
            raise OSError("the server is gone")
        return original(url, *args, **kwargs)

    monkeypatch.setattr(fsspec, "open", counting)
    return opened


@pytest.mark.parametrize("separator", [None, "/"])
def test_documents_are_read_once(separator: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each chunk has a reference, none was left out."""
    document("generated", tmp_path)
    zarray = ZARRAY if separator is None else {**ZARRAY, "dimension_separator": separator}
    refs: dict[str, Any] = {
        f"g/v/{i}{separator or '.'}0": [str(tmp_path / "raw.bin"), 4 + i * 80, 80] for i in range(3)
    }
    scalar = json.dumps({**ZARRAY, "shape": [], "chunks": []})
    refs |= {"g/v/.zarray": json.dumps(zarray), "s/.zarray": scalar, "s/0": "\1\0\0\0"}
    (tmp_path / "r.json").write_text(json.dumps({"version": 1, "refs": refs}))
    opened = counted(monkeypatch)
    array = gzarr.open_array(f"reference::{tmp_path / 'r.json'}", path="g/v", device="cpu")
    np.testing.assert_array_equal(array[...], NUMBERS)
    assert len(opened) == 1


@pytest.mark.parametrize("shape", [[8, 10], [1 << 62, 10]])
def test_a_second_look_that_fails(shape: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some chunks have no reference, which the document may generate; what it says was read."""
    document("generated", tmp_path)
    refs: dict[str, Any] = {f"v/{i}.0": [str(tmp_path / "raw.bin"), 4 + i * 80, 80] for i in range(3)}
    refs["v/.zarray"] = json.dumps({**ZARRAY, "shape": shape})
    (tmp_path / "r.json").write_text(json.dumps({"version": 1, "refs": refs}))
    opened = counted(monkeypatch, fail_from=2)
    array = gzarr.open_array(f"reference::{tmp_path / 'r.json'}", path="v", device="cpu")
    np.testing.assert_array_equal(array[:6], NUMBERS)
    assert (array[6:8] == -1).all()
    assert len(opened) == 2


def test_filesystems_that_have_left_them_out(tmp_path: Path) -> None:
    made = document("generated", tmp_path)
    (tmp_path / "r.json").write_text(json.dumps(made))
    for fo in (made, str(tmp_path / "r.json")):
        left_out = fsspec.filesystem("reference", fo=fo)
        for store in (lambda fs=left_out: gzarr.FsspecStore(fs), lambda fs=left_out: fs.get_mapper("")):
            with pytest.raises(ArgumentError, match="simple_templates=False"):
                gzarr.open_array(store(), path="v")
    with pytest.raises(ArgumentError, match="simple_templates=False"):
        gzarr.open_array(f"reference::{tmp_path / 'r.json'}", path="v", storage_options={"simple_templates": True})


@pytest.mark.parametrize("held", [True, False], ids=["held open", "closed"])
def test_a_document_that_generates_them_from_now_on(held: bool, tmp_path: Path) -> None:
    """fsspec's filesystems are equal if made from the same URL, and this one has read another document."""
    pytest.importorskip("jinja2")
    path = tmp_path / "r.json"
    url = f"reference::{path}"
    generated = document("generated", tmp_path)
    refs = {**generated["refs"], "v/0.0": [str(tmp_path / "raw.bin"), 4, 80]}
    path.write_text(json.dumps({"version": 1, "refs": refs}))
    before = gzarr.open_array(url, path="v", device="cpu")
    assert (before[2:] == -1).all()
    opened = [before] if held else []
    path.write_text(json.dumps(generated))
    after = gzarr.open_array(url, path="v", device="cpu")
    np.testing.assert_array_equal(after[...], NUMBERS)
    np.testing.assert_array_equal(gzarr.copy(url, {}, device="cpu")["v"][...], NUMBERS)
    assert not opened or opened[0].store != after.store
    path.write_text(json.dumps({"version": 1, "refs": refs}))
    assert (gzarr.open_array(url, path="v", device="cpu")[2:] == -1).all()


def test_equal_documents_make_equal_stores(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    stores = []
    for end in (80, 80, 40):
        refs = {"v/.zarray": json.dumps(ZARRAY), "v/0.0": [str(tmp_path / "raw.bin"), 4, end]}
        path.write_text(json.dumps({"version": 1, "refs": refs}))
        stores.append(gzarr.open_store(f"reference::{path}"))
    assert stores[0] == stores[1]
    assert stores[0] != stores[2]
