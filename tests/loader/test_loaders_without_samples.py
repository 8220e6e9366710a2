"""Loaders without any sample are refused: they would run no step, and say nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.loader import Loader, Patches, Rows, Windows

ROWS = np.arange(12)
NONE = np.zeros(12, bool)
CHOSEN = "no sample is chosen: where="


@pytest.mark.parametrize("weights", [[0.2, 0.2], [0, 0]])
def test_weights_that_leave_no_samples(weights: list[float]) -> None:
    with pytest.raises(gzarr.ArgumentError, match="weights= leave no sample"):
        Loader([np.arange(1), np.arange(1)], weights=weights, drop_last=False)


@pytest.mark.parametrize(
    ("sampler", "words"),
    [
        pytest.param(Rows(where=[]), CHOSEN, id="rows-list"),
        pytest.param(Rows(where=NONE), CHOSEN, id="rows-mask"),
        pytest.param(Rows(where=NONE, weights=np.ones(12)), CHOSEN, id="rows-weights"),
        pytest.param(Rows(where=NONE, balance="x"), CHOSEN, id="rows-balance"),
        pytest.param(Rows(where=NONE, balance=ROWS, samples=4), CHOSEN, id="rows-balance-samples"),
        pytest.param(Windows(0, {"y": (0, 1)}, where=NONE), CHOSEN, id="windows-mask"),
        pytest.param(Windows(0, {"y": (0, 1)}, valid=NONE), CHOSEN, id="windows-valid"),
        pytest.param(Windows(0, {"y": (0, 1)}, where=[], balance="x"), CHOSEN, id="windows-balance"),
        pytest.param(Patches((3,), where=NONE), CHOSEN, id="patches-mask"),
        pytest.param(Patches((3,), where=np.empty((0, 1), int)), CHOSEN, id="patches-list"),
        pytest.param(Rows(samples=0), "samples=0 leaves no sample", id="samples"),
    ],
)
def test_nothing_is_chosen(sampler: Any, words: str) -> None:
    two = [{"x": ROWS}, {"x": ROWS}]
    for given, options in (({"x": ROWS}, {}), ({"x": ROWS}, {"pad": True}), (two, {"weights": [2, 2]})):
        with pytest.raises(gzarr.ArgumentError, match=words):
            Loader(given, sampler, drop_last=False, **options)


def test_arrays_without_rows() -> None:
    for given in (np.arange(0), [np.arange(0), np.arange(0)]):
        with pytest.raises(gzarr.ArgumentError, match=r"the arrays have \(0,\) elements along the axes of samples"):
            Loader(given, drop_last=False)


def test_some_volumes_have_samples() -> None:
    """The others add nothing."""
    for volumes in ([ROWS, ROWS[:0]], [ROWS[:0], ROWS]):
        (batch,) = Loader(volumes, batch_size=12, shuffle=False)
        np.testing.assert_array_equal(batch["data"], ROWS)
