"""Limits of memory for what gzarr.ome writes: integers, and no durations, which NumPy counts among them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr import ome

DATA = np.arange(64 * 64, dtype="u2").reshape(64, 64)


@pytest.mark.parametrize("budget", [np.timedelta64(1 << 30, "s"), 1e9, 0, True, "1GB"], ids=str)
def test_other_budgets_are_refused(budget: Any) -> None:
    store: dict[str, bytes] = {}
    with pytest.raises(gzarr.ArgumentError, match="budget_bytes must be a positive integer"):
        ome.create(store, DATA, axes="yx", budget_bytes=budget)
    assert not store
    ome.create(store, DATA, axes="yx", levels=1)
    with pytest.raises(gzarr.ArgumentError, match="budget_bytes must be a positive integer"):
        ome.pyramid(store, budget_bytes=budget)
    with pytest.raises(gzarr.ArgumentError, match="budget_bytes must be a positive integer"):
        gzarr.array(DATA).read(budget_bytes=budget)


def test_integers_of_numpy() -> None:
    budget: Any = np.int64(1 << 30)
    image = ome.create({}, DATA, axes="yx", budget_bytes=budget)
    np.testing.assert_array_equal(image.read(), DATA)
    a = gzarr.array(DATA)
    a.write((), DATA + 1, budget_bytes=budget)
    np.testing.assert_array_equal(a.read(budget_bytes=budget), DATA + 1)
