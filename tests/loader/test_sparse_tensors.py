"""Sparse batches of PyTorch, whose products are wrong unless the columns of each row ascend."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from support.sparse_groups import compressed, dense, write

import gzarr
from gzarr.loader import Loader

torch = pytest.importorskip("torch")

from gzarr.integrations import torch as of_torch  # noqa: E402 (it needs PyTorch)

SHAPE = (120, 30)


def check(tensor: Any, wanted: Any) -> None:
    # PyTorch's own check.
    torch.sparse_csr_tensor(
        tensor.crow_indices(), tensor.col_indices(), tensor.values(), size=tensor.shape, check_invariants=True
    )
    np.testing.assert_array_equal(tensor.to_dense().numpy(), wanted)
    vector = np.arange(wanted.shape[1], dtype="f4")
    np.testing.assert_allclose((tensor @ torch.from_numpy(vector)).numpy(), wanted @ vector, rtol=1e-5)


def test_columns_in_another_order() -> None:
    data = dense(SHAPE)
    m = gzarr.sparse.open(write({}, SHAPE, compressed(data, "csr")))
    for genes in ([17, 3, 29, 0], [3, 3, 1], [0, 3, 17], [-1, 5, -1, 2]):
        wanted = np.where(np.array(genes) < 0, 0, data[:, genes])
        view = m.dense(columns=genes, missing="zero")
        for batch in Loader(view, batch_size=40, seed=1, like="torch", dense=False):
            check(batch["data"], wanted[batch.samples])


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_entries_in_another_order_and_of_one_element(dtype: str) -> None:
    data = dense(SHAPE, dtype)
    values, indices, offsets = compressed(data, "csr")
    order = np.concatenate([np.arange(b, e)[::-1] for b, e in itertools.pairwise(offsets)]).astype(int)
    for times in (1, 2):
        parts = (np.repeat(values[order], times), np.repeat(indices[order], times), times * offsets)
        m = gzarr.sparse.open(write({}, SHAPE, parts))
        for batch in Loader(m, batch_size=50, seed=1, like="torch", dense=False):
            assert batch["data"].values().numpy().dtype == dtype
            np.testing.assert_array_equal(batch["data"].to_dense().numpy(), times * data[batch.samples])
            assert batch["data"]._nnz() == np.count_nonzero(data[batch.samples])


@pytest.mark.parametrize("dtype", ["?", "u1", "i2", "u2", "u4", "u8", "i8", "f2", "c8"])
def test_sums_of_each_type(dtype: str) -> None:
    """As NumPy adds them up, also where they wrap around."""
    columns = np.array([4, 1, 4, 0, 2, 2, 2], "i4")
    offsets = np.array([0, 3, 3, 7], "i4")
    values = np.array([3, 5, 2**63 - 1, 7, 200, 100, 2**62]).astype(dtype)
    wanted = np.zeros((3, 5), dtype)
    np.add.at(wanted, (np.repeat(np.arange(3), np.diff(offsets)), columns), values)
    found = of_torch.as_sparse(gzarr.sparse.Parts(values, columns, offsets, (3, 5)))
    assert found.crow_indices().tolist() == [0, 2, 2, 4]
    assert found.col_indices().tolist() == [1, 4, 0, 2]
    np.testing.assert_array_equal(found.values().numpy(), wanted[[0, 0, 2, 2], [1, 4, 0, 2]])
    assert found.values().numpy().dtype == dtype


def test_what_ascends_is_not_copied() -> None:
    columns, offsets = np.array([1, 4, 0, 2], "i4"), np.array([0, 0, 2, 2, 4, 4], "i4")
    values = np.arange(4, dtype="f4")
    found = of_torch.as_sparse(gzarr.sparse.Parts(values, columns, offsets, (5, 5)))
    assert found.values().data_ptr() == values.ctypes.data
    assert found.col_indices().data_ptr() == columns.ctypes.data
    for count in (0, 3):
        empty = gzarr.sparse.Parts(values[:0], columns[:0], np.zeros(count + 1, "i4"), (count, 5))
        assert of_torch.as_sparse(empty).shape == (count, 5)
