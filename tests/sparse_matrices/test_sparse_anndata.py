"""Sparse matrices that anndata has written, beside what SciPy makes of them; and ours, as anndata reads them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import anndata
import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from hypothesis import given, settings
from support.sparse_groups import dense

import gzarr

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHAPE = (90, 40)


@pytest.fixture(autouse=True)
def arrays_of_scipy() -> Iterator[None]:
    with anndata.settings.override(use_sparse_array_on_read=True):
        yield


def same(found: Any, wanted: Any, *, types: bool = True) -> None:
    """Check that two matrices of SciPy have the same entries in the same order, in arrays of the same types."""
    assert type(found) is type(wanted)
    assert found.shape == wanted.shape
    for name in ("data", "indices", "indptr"):
        one, other = getattr(found, name), getattr(wanted, name)
        assert one.dtype == other.dtype or not types, name
        np.testing.assert_array_equal(one, other)


def matrix(form: str = "csr", dtype: Any = "f4", shape: tuple[int, int] = SHAPE) -> Any:
    return sp.csr_array(dense(shape, dtype)).asformat(form)


def read_by_anndata(store: Any, path: str) -> Any:
    group = zarr.open_group(store, mode="r") if path else store
    return anndata.io.read_elem(group[path])


@pytest.mark.parametrize("narrow", [False, True], ids=["", "narrow indices"])
@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("form", ["csr", "csc"])
def test_what_anndata_writes(form: str, zarr_format: int, narrow: bool, tmp_path: Path) -> None:
    x, counts = matrix(form), matrix("csr", "i8")
    table = anndata.AnnData(x, layers={"counts": counts}, obsm={"spliced": matrix("csc", "f8")})
    said = {"zarr_write_format": zarr_format, "write_csr_csc_indices_with_min_possible_dtype": narrow}
    with anndata.settings.override(**said):
        table.write_zarr(tmp_path / "a.zarr", chunks=None)
    g = gzarr.open_group(tmp_path / "a.zarr", device="cpu")
    assert g.zarr_format == zarr_format
    m = gzarr.sparse.open(g["X"])  # type: ignore[arg-type]
    assert (m.indices.dtype == np.uint8) == narrow
    same(m[:], x)
    same(gzarr.sparse.open(g, path="layers/counts").read(), counts)
    same(gzarr.sparse.open(tmp_path / "a.zarr", path="obsm/spliced", device="cpu").read(), matrix("csc", "f8"))
    rows = np.array([89, 3, 3, 0])
    expected = x[rows] if form == "csr" else x.tocsr()[rows].tocsc()
    found = m[rows]
    found.sort_indices()
    same(found, expected)
    np.testing.assert_array_equal(m.to_dense(rows), x.toarray()[rows])


def test_a_shuffled_dataset_of_annbatch(tmp_path: Path) -> None:
    """Its writer has uint16 indices in chunks of some rows and large shards."""
    x = matrix("csr", "f4", (300, 500))
    group = zarr.open_group(tmp_path, mode="w", zarr_format=3).create_group("X")
    group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": list(x.shape)})
    for name, values in (("data", x.data), ("indices", x.indices.astype("u2"))):
        group.create_array(name, data=values, chunks=(640,), shards=(6400,))
    group.create_array("indptr", data=x.indptr.astype("i8"))
    m = gzarr.sparse.open(tmp_path, path="X", device="cpu")
    rows = np.random.default_rng(0).permutation(300)
    same(m[rows], x[rows])


@functools.cache
def opened(form: str) -> gzarr.sparse.Matrix:
    return gzarr.sparse.create(gzarr.MemoryStore(), matrix(form), chunks=64, device="cpu")


def selections(length: int) -> st.SearchStrategy[Any]:
    numbers = st.integers(-length, length - 1)
    some = st.none() | st.integers(-length - 3, length + 3)
    return st.one_of(
        st.builds(slice, some, some, st.none() | st.integers(1, 9) | st.integers(-9, -1)),
        st.lists(numbers, max_size=40).map(lambda found: np.array(found, np.int64)),
        st.lists(st.booleans(), min_size=length, max_size=length).map(np.array),
    )


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(["csr", "csc"]), selections(SHAPE[0]), selections(SHAPE[1]))
def test_any_selection(form: str, rows: Any, columns: Any) -> None:
    m, x = opened(form), matrix(form)
    if form == "csr":
        found, wanted = m[rows], x[rows]
    else:
        found, wanted = m[:, columns], x[:, columns]
    same(found, wanted)
    whole = x.toarray()
    np.testing.assert_array_equal(m[rows, columns].toarray(), whole[rows][:, columns])
    np.testing.assert_array_equal(m.to_dense(rows, columns), whole[rows][:, columns])


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("form", ["csr", "csc"])
def test_anndata_reads_ours(form: str, zarr_format: Any, tmp_path: Path) -> None:
    x = matrix(form)
    g = gzarr.create_group(tmp_path, zarr_format=zarr_format)
    options: dict[str, Any] = {"format": form, "chunks": 64}
    if zarr_format == 3:
        options["shards"] = 640
    m = gzarr.sparse.create(g, x, path="X", **options)
    same(m[:], x)
    same(read_by_anndata(tmp_path, "X"), x, types=False)
    # Its own matrices grow, too.
    anndata.io.sparse_dataset(zarr.open_group(tmp_path, mode="a")["X"]).append(x)
    stacked = (sp.vstack if form == "csr" else sp.hstack)([x, x], form)
    m.refresh()
    same(m[:], stacked)
    m.append(x)
    stacked = (sp.vstack if form == "csr" else sp.hstack)([stacked, x], form)
    same(m.read(), stacked)
    same(read_by_anndata(tmp_path, "X"), stacked, types=False)


def test_create(tmp_path: Path) -> None:
    x = matrix()
    m = gzarr.sparse.create(tmp_path / "a", shape=(0, 40), index_dtype="u1", dtype="u2", attributes={"of": "me"})
    assert (m.shape, m.dtype, m.nnz, m.group.attrs["of"]) == ((0, 40), np.dtype("u2"), 0, "me")
    assert m.to_dense().shape == (0, 40)
    m.append(x.astype("u2"))
    m.append(sp.coo_matrix(x.astype("u2")))
    np.testing.assert_array_equal(m.to_dense(), np.vstack([x.toarray()] * 2).astype("u2"))
    assert m.indices.dtype == np.uint8
    m = gzarr.sparse.create(tmp_path / "b", shape=(5, 40))
    np.testing.assert_array_equal(m.to_dense(), np.zeros((5, 40), "f4"))
    assert m[[1, 1]].nnz == 0
    with pytest.raises(gzarr.ArgumentError, match="there is a group"):
        gzarr.sparse.create(tmp_path / "b", shape=(5, 40))
    m = gzarr.sparse.create(tmp_path / "b", x, overwrite=True, shape=SHAPE, shards=6400, chunks=64, codecs="zstd")
    same(m.read(), x)
    assert m.data.shards == (6400,)
    before = m.nnz
    for block, message in (
        (x[:, :39], "40 columns, but the block has 39"),
        (np.ones((3, 40)), "sparse matrices of SciPy or CuPy"),
        (x.astype("c8") * 1j, "."),
    ):
        with pytest.raises(gzarr.ArgumentError, match=message):
            m.append(block)
        m.refresh()
        assert (m.nnz, m.shape) == (before, SHAPE)
    same(m.read(), x)
    for wrong, message in (
        ({"shape": (3,)}, "two integers"),
        ({"shape": (3, -1)}, "two integers"),
        ({}, "two integers"),
        ({"shape": (3, 2**31)}, "at most 2147483647 columns"),
        ({"shape": (3, 4), "format": "coo"}, "'csr' or 'csc'"),
        ({"shape": (3, 4), "data": x}, r"\(90, 40\)"),
        ({"shape": (3, 4), "colour": 1}, "no argument 'colour'"),
        ({"data": np.ones(3)}, "sparse matrices of SciPy"),
    ):
        with pytest.raises(gzarr.ArgumentError, match=message):
            gzarr.sparse.create(tmp_path / "new", **wrong)
        assert not (tmp_path / "new").exists()
    with pytest.raises(gzarr.ReadOnlyError, match=r"mode='r\+'"):
        gzarr.sparse.open(tmp_path / "b").append(x)


def test_without_scipy(monkeypatch: pytest.MonkeyPatch) -> None:
    m = opened("csr")
    monkeypatch.setitem(__import__("sys").modules, "scipy.sparse", None)
    with pytest.raises(gzarr.ArgumentError, match=r"pip install 'gzarr\[sparse\]'"):
        m[:3]
    np.testing.assert_array_equal(m.to_dense(slice(3)), dense(SHAPE)[:3])


def test_matrices_in_stores_are_told_how_to_be_read(tmp_path: Path) -> None:
    """What the message names is taken."""
    wanted = matrix()
    m = gzarr.sparse.create(tmp_path / "m", wanted, device="cpu")
    backed = anndata.io.sparse_dataset(zarr.open_group(tmp_path / "m", mode="r"))
    parts = m.read_parts()
    for block, words, read in (
        (m, r"matrix\[:\] reads it", m[:]),
        (backed, r"to_memory\(\) reads it", backed.to_memory()),
        (parts, r"csr_array\(parts\[:3\], shape=parts.shape\)", sp.csr_array(parts[:3], shape=parts.shape)),
        (m.to_dense(), r"csr_array\(values\)", sp.csr_array(m.to_dense())),
    ):
        with pytest.raises(gzarr.ArgumentError, match=words):
            gzarr.sparse.create({}, block)
        same(gzarr.sparse.create({}, read, device="cpu")[:], wanted)
        new = gzarr.sparse.create({}, shape=(0, SHAPE[1]), device="cpu")
        with pytest.raises(gzarr.ArgumentError, match=words):
            new.append(block)
    for block in (m, backed):
        new = gzarr.sparse.create({}, shape=(0, SHAPE[1]), device="cpu")
        for begin in range(0, SHAPE[0], 40):
            new.append(block[begin : begin + 40])
        same(new[:], wanted)
