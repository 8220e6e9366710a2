"""The examples in docs/loader.md run as they stand, one after the other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gzarr

PAGE = Path(__file__).parents[2] / "docs" / "loader.md"


def test_the_examples_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    monkeypatch.chdir(tmp_path)
    image = np.random.default_rng(0).integers(0, 1000, (96, 80, 64)).astype("u2")
    gzarr.create_array("image.zarr", data=image, chunks=(32, 32, 32))
    gzarr.create_array("label.zarr", data=(image > 500).astype("u1"), chunks=(16, 80, 64))
    names: dict[str, Any] = {}
    codes = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(codes) == 4
    for code in codes:
        exec(compile(code, str(PAGE), "exec"), names)
    assert np.array_equal(names["x"] > 500, names["y"])
    wanted = gzarr.Loader(
        {"image": names["image"], "label": names["label"]}, names["Patches"]((32,) * 3), batch_size=4, seed=1
    )
    epochs = [[batch.samples.tolist() for batch in wanted] for _ in range(3)]
    assert [names[name].samples.tolist() for name in ("first", "second")] == epochs[2][:2]
    assert names["tensors"].shape == (2, 32, 32, 32)
    assert sum(batch["data"].shape[0] for batch in names["workers"]) == 8
    assert sum(batch["data"].shape[0] for batch in names["samples"]) == 18
