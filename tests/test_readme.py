"""The first example in README.md runs as it stands, up to the lines that need a GPU; the others: test_examples.py."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import zarr

if TYPE_CHECKING:
    import pytest

README = Path(__file__).parents[1] / "README.md"


def test_the_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example, *_ = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    host, line, on_device = example.partition("g = gzarr.open_array")
    assert line
    assert 'device="cuda"' in on_device
    monkeypatch.chdir(tmp_path)
    data = np.arange(200 * 4 * 5, dtype="u2").reshape(200, 4, 5)
    zarr.create_array("volume.zarr", data=data, chunks=(64, 4, 5))
    fields = np.random.default_rng(1).random((2, 721, 1440), "f4")
    names = {"buffer": np.empty((64, 4, 5), "u2"), "fields": fields}
    exec(host, names)
    np.testing.assert_array_equal(names["x"], data[100:200, ::2, -1])
    np.testing.assert_array_equal(names["buffer"], data[:64])
    np.testing.assert_array_equal(zarr.open_array("new.zarr", mode="r")[...], fields)
