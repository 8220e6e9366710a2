"""Tokens of sparse matrices and of their dense views: the same for every opening, other ones for other values."""

from __future__ import annotations

import gc
import pickle
from typing import TYPE_CHECKING, Any

import dask.array as da
import numpy as np
import pytest
import scipy.sparse
from dask.base import tokenize

import gzarr
import gzarr.sparse

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

EYE = np.eye(4, 6, dtype="f4")


def create(place: Any, values: Any, **options: Any) -> None:
    gzarr.sparse.create(place, scipy.sparse.csr_matrix(values), **options)


def opened(place: Any, **options: Any) -> gzarr.sparse.Matrix:
    return gzarr.sparse.open(place, device="cpu", **options)


def dense(place: Any) -> Any:
    return opened(place).dense()


@pytest.mark.parametrize("taken", [opened, dense])
def test_tokens(taken: Callable[[Any], Any], tmp_path: Path) -> None:
    places: list[Any] = [tmp_path / "a", gzarr.MemoryStore()]
    for place in places:
        create(place, EYE)
        token = tokenize(taken(place))
        assert tokenize(taken(place)) == tokenize(pickle.loads(pickle.dumps(taken(place)))) == token
        # The same entries in other places, and other entries in the same.
        tokens = {token}
        for values in (EYE * 7, EYE[:, ::-1], EYE[::-1]):
            create(place, values, overwrite=True)
            tokens.add(tokenize(taken(place)))
        assert len(tokens) == 4
        opened(place, mode="r+").append(scipy.sparse.csr_matrix(EYE))
        tokens.add(tokenize(taken(place)))
        assert len(tokens) == 5


def test_tokens_of_different_matrices_differ(tmp_path: Path) -> None:
    matrices: list[Any] = []
    for place in (tmp_path / "a", tmp_path / "b", {}):
        create(place, EYE)
        m = opened(place)
        matrices += [m, m.dense(), m.dense(columns=[1, 2]), m.dense(dtype="f8"), m.dense(normalize=1)]
    assert len({tokenize(matrix) for matrix in matrices}) == len(matrices)
    # Names of dictionaries in memory are used again, so some of these had the token of another one.
    tokens = set()
    for value in range(1, 21):
        store: dict[str, bytes] = {}
        create(store, EYE * value)
        tokens.add(tokenize(opened(store).dense()))
        del store
        gc.collect()
    assert len(tokens) == 20


def test_dask_reads_what_has_been_written(tmp_path: Path) -> None:
    create(tmp_path / "a", EYE)
    before = da.from_array(dense(tmp_path / "a"), chunks=(2, 6)).persist()
    create(tmp_path / "a", EYE * 7, overwrite=True)
    after = da.from_array(dense(tmp_path / "a"), chunks=(2, 6))
    np.testing.assert_array_equal((after - before).compute(), EYE * 6)
