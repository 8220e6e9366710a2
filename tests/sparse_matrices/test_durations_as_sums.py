"""Durations, which NumPy counts among its integers, are no sums of rows."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

import gzarr


def test_durations_are_no_sums() -> None:
    matrix = gzarr.sparse.create({}, scipy.sparse.eye(3, format="csr", dtype="f4"), path="X")
    with pytest.raises(gzarr.ArgumentError, match="normalize must be"):
        matrix.dense(normalize=np.timedelta64(5, "ns"))  # type: ignore[arg-type]
