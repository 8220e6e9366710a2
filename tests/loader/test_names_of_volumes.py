"""Volumes as dicts: which keys they have, in which order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.loader import Loader, Rows


def volume(i: int, dtype: str = "u1") -> dict[str, Any]:
    """Return images and labels of one type and shape, so that nothing else tells them apart."""
    rows = np.arange(5 * i, 5 * i + 5)
    return {"image": rows.astype("u1"), "label": (rows + 100).astype(dtype)}


@pytest.mark.parametrize("dtype", ["u1", "i4"])
def test_the_order_of_keys_does_not_matter(dtype: str) -> None:
    first, second = volume(0, dtype), volume(1, dtype)
    found = []
    for batch in Loader([first, dict(reversed(second.items()))], Rows(), batch_size=5):
        assert list(batch) == ["image", "label"]
        assert batch["label"].dtype == dtype
        np.testing.assert_array_equal(batch["label"], batch["image"].astype(int) + 100)
        found += batch["image"].tolist()
    assert sorted(found) == list(range(10))


def test_a_missing_key_is_named_with_its_volume() -> None:
    full = volume(0)
    part = {"image": full["image"]}
    for volumes, message in (
        ([full, full, part], "volume 2 lacks 'label', which volume 0 has"),
        ([part, full], "volume 0 lacks 'label', which volume 1 has"),
        ([full, {"image": full["image"], "mask": full["label"]}], "volume 1 lacks 'label', which volume 0 has"),
        ([part, full["image"]], "volume 1 lacks 'image', which volume 0 has"),
        ([full["image"], part], "volume 1 lacks an array without a name, which volume 0 has"),
    ):
        with pytest.raises(gzarr.ArgumentError, match=message):
            Loader(volumes, Rows(), batch_size=2)
