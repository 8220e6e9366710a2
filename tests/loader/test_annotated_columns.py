"""Columns of AnnData beside rows of its matrices, and columns of a matrix by the names of its genes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.sparse_groups import compressed, dense, write

import gzarr
from gzarr.loader import Loader, Rows

pytestmark = pytest.mark.filterwarnings("ignore:shuffling is coarse")

DATA = dense((120, 7))
GENES = ["CD3D", "NKG7", "MS4A1", "LYZ", "TWICE", "TWICE", "GNLY"]
KINDS = np.arange(120) % 4 - 1
AGES = np.arange(120) + 20


def column(group: gzarr.Group, name: str, encoding: str, **members: Any) -> None:
    made = group.create_group(name, attributes={"encoding-type": encoding, "encoding-version": "0.1.0"})
    for member, values in members.items():
        made.create_array(member, data=values)


@pytest.fixture
def adata() -> gzarr.Group:
    """Return what AnnData writes, as far as it matters here."""
    store = gzarr.MemoryStore()
    for path in ("X", "layers/counts", "raw/X"):
        write(store, DATA.shape, compressed(DATA, "csr"), path=path)
    group = gzarr.open_group(store, mode="r+", device="cpu")
    obs = group.create_group("obs")
    column(obs, "kind", "categorical", codes=KINDS.astype("i1"), categories=np.array(["a", "b", "c"]))
    column(obs, "age", "nullable-integer", values=AGES, mask=AGES % 5 == 0)
    column(obs, "sick", "nullable-boolean", values=AGES % 3 == 0, mask=AGES % 7 == 0)
    column(obs, "donor", "dataframe")
    obs.create_array("depth", data=AGES / 4)
    for path, index in (("var", "_index"), ("raw/var", "gene")):
        var = group.create_group(path, attributes={"_index": index})
        var.create_array(index, data=np.array(GENES if path == "var" else GENES[::-1], object), dtype="string")
    return group


def test_columns_beside_rows(adata: gzarr.Group) -> None:
    obs: Any = adata["obs"]
    given = {
        "x": adata["X"], "kind": obs["kind"], "age": obs["age"], "sick": obs["sick"], "depth": obs["depth"],
    }  # fmt: skip
    for options in ({}, {"dense": False}):
        seen = []
        for batch in Loader(given, Rows(), batch_size=10, seed=1, **options):
            rows = batch.samples
            assert list(batch) == ["x", "kind", "age", "age_mask", "sick", "sick_mask", "depth"]
            np.testing.assert_array_equal(batch["x"].toarray() if options else batch["x"], DATA[rows])
            np.testing.assert_array_equal(batch["kind"], KINDS[rows])
            np.testing.assert_array_equal(batch["age"], AGES[rows])
            np.testing.assert_array_equal(batch["age_mask"], AGES[rows] % 5 == 0)
            np.testing.assert_array_equal(batch["sick"], AGES[rows] % 3 == 0)
            np.testing.assert_array_equal(batch["sick_mask"], AGES[rows] % 7 == 0)
            np.testing.assert_array_equal(batch["depth"], AGES[rows] / 4)
            seen += rows.tolist()
        assert sorted(seen) == list(range(120))
    counts = np.zeros(4, int)
    for batch in Loader({"x": adata["X"], "kind": obs["kind"]}, Rows(balance="kind"), batch_size=12, seed=1):
        np.add.at(counts, batch["kind"] + 1, 1)
    assert (counts == 30).all()
    # A single one.
    for batch in Loader(obs["kind"], batch_size=10, seed=1):
        np.testing.assert_array_equal(batch["data"], KINDS[batch.samples])


def test_groups_that_are_no_arrays(adata: gzarr.Group) -> None:
    obs: Any = adata["obs"]
    for given, words in (
        (obs["age"], "give a name"),
        ({"x": adata["X"], "donor": obs["donor"]}, "'dataframe'"),
        ({"x": obs}, "has no encoding-type"),
        ({"age": obs["age"], "age_mask": obs["depth"]}, "'age_mask' is two arrays"),
    ):
        with pytest.raises(gzarr.ArgumentError, match=words):
            Loader(given, batch_size=10)


def test_columns_by_name(adata: gzarr.Group) -> None:
    for path in ("X", "layers/counts"):
        m = gzarr.sparse.open(adata, path=path)
        assert m.columns_named(["LYZ", "CD3D", "LYZ"]).tolist() == [3, 0, 3]
        wanted = m.columns_named(["GNLY", "none", "NKG7"], missing="zero")
        assert wanted.tolist() == [6, -1, 1]
        found = m.to_dense(None, wanted, missing="zero")
        np.testing.assert_array_equal(found, np.column_stack([DATA[:, 6], 0 * DATA[:, 0], DATA[:, 1]]))
    assert gzarr.sparse.open(adata, path="raw/X").columns_named(["GNLY", "CD3D"]).tolist() == [0, 6]
    for names, words in (
        (["none", "LYZ", "other"], "no column 'none' and 1 more"),
        (["TWICE"], "several columns 'TWICE'"),
        ("LYZ", "must be a list"),
    ):
        with pytest.raises(gzarr.ArgumentError, match=words):
            m.columns_named(names)
    with pytest.raises(gzarr.ArgumentError, match="missing must be"):
        m.columns_named(["LYZ"], missing="nan")  # type: ignore[arg-type]
    store = gzarr.MemoryStore()
    write(store, DATA.shape, compressed(DATA, "csr"))
    with pytest.raises(gzarr.NodeNotFoundError, match="no group 'var'"):
        gzarr.sparse.open(store, path="X", device="cpu").columns_named(["LYZ"])


def test_what_anndata_writes(tmp_path: Any) -> None:
    anndata = pytest.importorskip("anndata")
    import pandas as pd
    import scipy.sparse

    obs = pd.DataFrame(
        {"kind": pd.Categorical(np.array(["a", "b", "c"])[KINDS % 3]), "age": pd.array([*AGES[1:], None], "Int64")},
        index=[f"cell{i}" for i in range(120)],
    )
    names = [*GENES[:5], "once", "GNLY"]
    anndata.AnnData(scipy.sparse.csr_array(DATA), obs=obs, var=pd.DataFrame(index=names)).write_zarr(tmp_path / "a")
    adata = gzarr.open_group(tmp_path / "a", device="cpu")
    m = gzarr.sparse.open(adata["X"])
    genes = m.columns_named(["once", "none", "CD3D"], missing="zero")
    given = {
        "x": m.dense(columns=genes, missing="zero"), "kind": adata["obs/kind"], "age": adata["obs/age"],
    }  # fmt: skip
    for batch in Loader(given, batch_size=10, seed=1):
        rows = batch.samples
        np.testing.assert_array_equal(batch["x"][:, 0], DATA[rows, 5])
        np.testing.assert_array_equal(batch["x"][:, 1], 0)
        np.testing.assert_array_equal(batch["kind"], obs["kind"].cat.codes.to_numpy()[rows])
        np.testing.assert_array_equal(batch["age_mask"], rows == 119)
        there = rows < 119
        np.testing.assert_array_equal(batch["age"][there], AGES[rows[there] + 1])
