"""Weights of volumes that leave an epoch nothing are refused: a loader would run no step, and say nothing."""

from __future__ import annotations

import numpy as np
import pytest

import gzarr
from gzarr.loader import Loader


@pytest.mark.parametrize("weights", [[0.2, 0.2], [0, 0]])
def test_weights_that_leave_no_samples(weights: list[float]) -> None:
    with pytest.raises(gzarr.ArgumentError, match="weights= leave no sample"):
        Loader([np.arange(1), np.arange(1)], weights=weights, drop_last=False)
    assert len(Loader([np.arange(0), np.arange(0)], drop_last=False)) == 0


def test_no_samples_are_no_fault_of_weights() -> None:
    volumes = [{"x": np.arange(4)}, {"x": np.arange(4)}]
    assert len(gzarr.Loader(volumes, gzarr.loader.Rows(samples=0), weights=[2, 2])) == 0
