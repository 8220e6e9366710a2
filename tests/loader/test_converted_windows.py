"""Windows around poses that are converted before they are resampled: a part of them at a time."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.loader import Loader, Patches, posing


@pytest.mark.parametrize(("stored", "dtype"), [("f2", None), ("f2", "i4")])
def test_windows_are_converted_in_parts(stored: str, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    data = (np.random.default_rng(0).random((400, 400)) * 100).astype(stored)
    image = gzarr.array(data, chunks=(40, 40), device="cpu")
    sampler = Patches((16, 16), stride=8, rotate=True, pad="edge", dtype=dtype)
    options: dict[str, Any] = {"batch_size": 16, "shuffle": False, "prefetch": 0, "buffer_bytes": 3 << 19}
    # All at once: they have fewer bytes than would be too many.
    wanted = [batch["data"] for batch in Loader(image, sampler, **options)]
    loader = Loader(image, sampler, **options)
    monkeypatch.setattr(posing, "_CONVERTED", 1 << 16)
    tracemalloc.start()
    try:
        for batch, expected in zip(loader, wanted, strict=True):
            np.testing.assert_array_equal(batch["data"], expected)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < loader.explain().held_bytes
