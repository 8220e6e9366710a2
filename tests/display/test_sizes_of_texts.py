"""Sizes of arrays whose elements have no fixed size: nobody says the sizes of the pointers to them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.arrays.storage import Stored
from gzarr.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = np.array([f"{i}" * 500 for i in range(100)], dtype=object)


def of_texts(path: Path, zarr_format: Any) -> gzarr.Array:
    return gzarr.create_array(path, data=TEXTS, dtype=str, codecs=["gzip"], zarr_format=zarr_format)


def of_objects(path: Path, zarr_format: Any) -> gzarr.Array:
    rows = np.empty(100, object)
    rows[:] = [np.arange(i, dtype="i4") for i in range(100)]
    codecs = [{"id": "vlen-array", "dtype": "<i4"}, {"id": "gzip"}]
    return gzarr.create_array(path, data=rows, dtype=object, codecs=codecs, fill_value=0, zarr_format=zarr_format)


@pytest.mark.parametrize(("make", "zarr_format"), [(of_texts, 2), (of_texts, 3), (of_objects, 2)])
def test_size_is_variable(make: Any, zarr_format: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    array = make(tmp_path / "x", zarr_format)
    assert Stored.of(array, full=True).ratio is None
    rows = dict(array.info_complete().rows)
    assert rows["Size"] == "variable"
    assert "Compression ratio" not in rows
    assert "ratio" not in array._repr_html_()
    assert len(re.findall(">variable<", array._repr_html_())) == 2
    assert main(["info", str(tmp_path / "x"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["nbytes"] is None
    assert found["stored"]["compression_ratio"] is None
    assert found["stored"]["nbytes"] == rows_nbytes(rows["Stored"])
    assert main(["optimize", str(tmp_path / "x"), str(tmp_path / "y"), "--dry-run", "--json"]) == 0
    (forecast,) = json.loads(capsys.readouterr().out)
    assert forecast["now"]["frame_nbytes"] is None
    assert main(["optimize", str(tmp_path / "x"), str(tmp_path / "y"), "--dry-run"]) == 0
    assert "; 1 frame\n" in capsys.readouterr().out


def rows_nbytes(text: str) -> int:
    return int(re.findall(r"([0-9,]+) bytes", text)[0].replace(",", ""))


def test_texts_of_a_fixed_length_have_a_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    array = gzarr.create_array(tmp_path / "x", data=TEXTS.astype("U1000"), codecs=["gzip"])
    found = Stored.of(array, full=True)
    assert found.ratio == 100 * 4000 / found.nbytes
    assert dict(array.info.rows)["Size"] == "390.6 KiB (400,000 bytes)"
    assert main(["info", str(tmp_path / "x"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["nbytes"] == 400_000
