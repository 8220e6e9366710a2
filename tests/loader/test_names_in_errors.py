"""Which of several volumes an error is about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.loader import Loader, Patches, Rows, Windows

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("sampler", "message"),
    [
        (Windows(0, {"x": (0, 9)}), "a sample takes 10 steps, but the arrays have 8 along axis 0"),
        (Patches((10,), pad=None), "patches of shape .* do not fit"),
        (Rows(where=[0, 9]), "where= has rows outside"),
        (Rows(weights=np.ones(12)), "weights must be 8 numbers"),
        (Rows(balance="data"), "names no array of the loader"),
        (Rows(balance=np.arange(12)), "balance= has 12 classes for 8 rows"),
        (Rows(where=[0, 9], balance=np.arange(8)), None),
    ],
    ids=["windows", "patches", "where", "weights", "balance", "classes", "both"],
)
def test_the_volume_is_named(tmp_path: Path, sampler: Any, message: str | None) -> None:
    gzarr.create_array(tmp_path / "v.zarr", path="inner/x", data=np.arange(8))
    stored = gzarr.open_array(tmp_path / "v.zarr", path="inner/x", device="cpu")
    long = np.arange(12)
    with pytest.raises(gzarr.ArgumentError, match=message) as raised:
        Loader([long, stored, long], sampler)
    is_first = message is None or "names no array" in message
    path = f", '/inner/x' in {stored.store!r}"
    assert raised.value.__notes__ == ["(in volume 0)" if is_first else f"(in volume 1{path})"]
    with pytest.raises(gzarr.ArgumentError) as raised:
        Loader(stored, sampler)
    assert not hasattr(raised.value, "__notes__")
