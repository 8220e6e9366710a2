"""Columns of AnnData beside rows of its matrices, and columns of a matrix by the names of its genes."""

from __future__ import annotations

import pickle
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr
from support.loaders import SHUFFLES
from support.sparse_groups import compressed, dense, write

import gzarr
from gzarr.loader import Dataset, Loader, Rows, Windows

if TYPE_CHECKING:
    from support.devices import TestedDevice

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
    column(
        obs, "place", "nullable-string-array", values=np.array([str(age) for age in AGES], object), mask=AGES % 4 == 0
    )  # fmt: skip
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
        "place": obs["place"],
    }  # fmt: skip
    for options in ({}, {"dense": False}):
        seen = []
        for batch in Loader(given, Rows(), batch_size=10, seed=1, **options):
            rows = batch.samples
            assert list(batch) == ["x", "kind", "age", "age_mask", "sick", "sick_mask", "depth", "place", "place_mask"]
            assert batch["place"].tolist() == [str(age) for age in AGES[rows]]
            np.testing.assert_array_equal(batch["place_mask"], AGES[rows] % 4 == 0)
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


def test_paths_of_groups(adata: gzarr.Group, tmp_path: Path) -> None:
    """A path is what the group is that is there."""
    gzarr.copy(adata, tmp_path / "a")
    for kind in (str, Path):
        given = {"x": kind(tmp_path / "a/X"), "age": kind(tmp_path / "a/obs/age"), "depth": AGES / 4}
        for volumes in (given, [given, given]):
            batch = next(iter(Loader(volumes, batch_size=120, shuffle=False)))
            np.testing.assert_array_equal(batch["x"], DATA)
            np.testing.assert_array_equal(batch["age"], AGES)
            np.testing.assert_array_equal(batch["age_mask"], AGES % 5 == 0)
    path = str(tmp_path / "a/obs/kind")
    for opened in (path, zarr.open(path, mode="r")):
        loader = Loader([{"kind": opened}, {"kind": adata["obs/kind"]}], Rows(balance="kind"), batch_size=120)
        assert loader.categories["kind"].tolist() == ["a", "b", "c"]
        np.testing.assert_array_equal(Dataset(opened)[7]["data"], KINDS[7])
    gzarr.ome.create(tmp_path / "image", data=np.zeros((4, 4), "u1"), axes="yx")
    for wrong, words in ((tmp_path / "a/obs", "group\\['name'\\]"), (tmp_path / "image", "gzarr.ome.open")):
        with pytest.raises(gzarr.ArgumentError, match=words):
            Loader({"x": wrong})


def test_missing_values_are_a_class(adata: gzarr.Group) -> None:
    """Whatever stands where they are missing."""
    obs: Any = adata["obs"]
    kinds = np.repeat([True, False, True], [60, 6, 54])
    column(obs, "smokes", "nullable-boolean", values=kinds & (np.arange(120) < 66), mask=np.arange(120) >= 66)
    given = {"x": adata["X"], "smokes": obs["smokes"]}
    seen: Counter[Any] = Counter()
    for batch in Loader(given, Rows(balance="smokes"), batch_size=12, seed=1):
        seen.update("missing" if m else bool(v) for v, m in zip(batch["smokes"], batch["smokes_mask"], strict=True))
    assert seen == {True: 40, False: 40, "missing": 40}
    wanted = [batch.samples.tolist() for batch in Loader(given, Rows(balance="smokes"), batch_size=12, seed=1)]
    masked = np.ma.MaskedArray(kinds, np.arange(120) >= 66)
    for again in (masked, np.where(masked.mask, 2, kinds)):
        loader = Loader(given, Rows(balance=again), batch_size=12, seed=1)
        assert [batch.samples.tolist() for batch in loader] == wanted
    # Of several volumes, and where none is missing.
    both = [given, given | {"smokes": obs["sick"]}]
    few = Loader(both, Rows(balance="smokes", replace=False), batch_size=1, drop_last=False)
    seen = Counter()
    for batch in few:
        seen["missing" if batch["smokes_mask"][0] else bool(batch["smokes"][0])] += 1
    assert len(set(seen.values())) == 1
    column(obs, "walks", "nullable-boolean", values=kinds, mask=np.zeros(120, bool))
    for classes in (obs["walks"], obs["walks/values"]):
        loader = Loader({"walks": classes}, Rows(balance="walks"), batch_size=12, seed=1)
        for batch in loader:
            assert abs(np.count_nonzero(batch["walks"]) - 6) <= 5


def column_of(names: list[Any], categories: list[Any], device: str = "cpu", **options: Any) -> gzarr.Group:
    """Return a group with a categorical column ``kind``."""
    group = gzarr.create_group(gzarr.MemoryStore())
    made = group.create_group("kind", attributes={"encoding-type": "categorical", **options})
    codes = [-1 if name is None else categories.index(name) for name in names]
    made.create_array("codes", data=np.array(codes, "i1" if len(categories) < 128 else "i2"), chunks=16)
    made.create_array("categories", data=np.array(categories, object if isinstance(categories[0], str) else None))
    return gzarr.open_group(group.store, device=device)


def test_categories_of_what_are_plain_numbers_elsewhere_are_not_told() -> None:
    one, other = column_of(["A", "B"], ["A", "B"]), column_of(["C", "B"], ["B", "C"])
    for volumes in ([one["kind"], other["kind/codes"]], [one["kind/codes"], other["kind"]]):
        assert Loader([{"kind": volume} for volume in volumes], batch_size=1).categories == {}
    (known,) = Loader([{"kind": one["kind"]}, {"kind": other["kind"]}], batch_size=1).categories.values()
    assert known.tolist() == ["A", "B", "C"]


@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_files_of_other_categories(shuffle: Any, device: TestedDevice) -> None:
    """One label is one category, whichever file a row is of."""
    rng = np.random.default_rng(0)
    lists = [["B", "T"], ["B", "NK", "T", None], ["T", "none of it", "NK"]]
    names = [rng.choice(np.array(own, object), 90).tolist() for own in lists]
    names[2] = [name if name != "none of it" else "T" for name in names[2]]
    volumes = [
        {"kind": column_of(own, [c for c in known if c], device.name)["kind"]}
        for own, known in zip(names, lists, strict=True)
    ]
    everything = [name for own in names for name in own]
    for sampler in (Rows(), Rows(balance="kind"), Windows(0, {"now": (-2, 3)})):
        loader = Loader(
            volumes, sampler, batch_size=7, seed=1, shuffle=shuffle, drop_last=False, buffer_bytes=400
        )  # fmt: skip
        (known,) = loader.categories.values()
        assert known.tolist() == ["B", "T", "NK", "none of it"]
        seen: Counter[Any] = Counter()
        for batch in loader if sampler.balance else pickle.loads(pickle.dumps(loader)):
            codes = device.to_numpy(batch["kind"] if isinstance(sampler, Rows) else batch["now"]["kind"])
            assert codes.dtype == np.int8
            found = [*known.tolist(), None]
            begins = batch.origins[:, 0] + 90 * batch.volumes
            steps = [0] if isinstance(sampler, Rows) else range(-2, 4)
            for own, begin in zip(codes.reshape(len(codes), -1), begins.tolist(), strict=True):
                assert [found[code] for code in own.tolist()] == [everything[begin + step] for step in steps]
                seen[found[int(own[0])]] += 1
        if sampler.balance:
            assert max(seen.values()) - min(seen.values()) <= 1
            assert set(seen) == {"B", "T", "NK", None}


def test_files_of_the_same_categories() -> None:
    kinds = ["a", "b", None, "c"] * 30
    groups = [column_of(kinds, ["a", "b", "c"]) for _ in range(2)]
    options: dict[str, Any] = {"batch_size": 10, "seed": 1}
    loader = Loader([{"kind": group["kind"]} for group in groups], **options)
    as_stored = Loader([{"kind": group["kind/codes"]} for group in groups], **options)
    assert loader.fingerprint == as_stored.fingerprint
    assert loader.categories["kind"].tolist() == ["a", "b", "c"]
    assert as_stored.categories == {}
    single = Loader({"kind": groups[0]["kind"], "x": np.arange(120)}, **options)
    assert {name: found.tolist() for name, found in single.categories.items()} == {"kind": ["a", "b", "c"]}
    assert pickle.loads(pickle.dumps(single)).categories["kind"].tolist() == ["a", "b", "c"]
    assert Dataset({"kind": groups[0]["kind"]})[3] == {"kind": 2}


def test_many_categories_and_numbers() -> None:
    """Codes have one type, which holds all of them, whatever type those of a file have."""
    many = [f"type {i}" for i in range(150)]
    for first in (["type 149", "other"], many[:100]):
        for volumes in ((first, many), (many, first)):
            groups = [column_of(own, own) for own in volumes]
            loader = Loader([{"kind": group["kind"]} for group in groups], batch_size=1, seed=1)
            known = loader.categories["kind"].tolist()
            assert known == list(dict.fromkeys([*volumes[0], *volumes[1]]))
            for batch in loader:
                assert batch["kind"].dtype == np.int16
                assert known[batch["kind"][0]] == [*volumes[0], *volumes[1]][batch.samples[0]]
    numbers = [column_of([30, 10], [10, 30]), column_of([20, 30], [20, 30])]
    loader = Loader([{"kind": group["kind"]} for group in numbers], batch_size=4, shuffle=False)
    assert loader.categories["kind"].tolist() == [10, 30, 20]
    assert next(iter(loader))["kind"].tolist() == [1, 0, 2, 1]


def test_categories_that_make_up_no_list() -> None:
    sizes = [column_of(["low", "high"], own, ordered=True) for own in (["low", "high"], ["low", "mid", "high"])]
    plain = {"kind": np.zeros(2, "i1")}
    for volumes, words in (
        ([{"kind": group["kind"]} for group in sizes], "after 1 equal ones, 'high' in volume 0 and 'mid' in volume 1"),
        (
            [{"kind": column_of(own, own)["kind"]} for own in (["1"], [1])],
            "strings in volume 0 and numbers in volume 1",
        ),
        ([{"kind": column_of(own, own)["kind"]} for own in (["a"], ["b"])] + [plain], "numbers in volume 2"),
    ):
        with pytest.raises(gzarr.ArgumentError, match=words) as refused:
            Loader(volumes, batch_size=1)
        assert "cat.set_categories" in str(refused.value)
    # The same list, or the codes as they are.
    for volumes in ([{"kind": sizes[0]["kind"]}] * 2, [{"kind": group["kind/codes"]} for group in sizes]):
        assert len(Loader(volumes, batch_size=1)) == 4


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


def test_columns_by_categorical_and_missing_names(adata: gzarr.Group) -> None:
    var: Any = adata["var"]
    m = gzarr.sparse.open(adata, path="X")
    column(
        var, "symbol", "categorical", codes=np.array([3, 1, 0, -1, 2, 4, 5], "i1"),
        categories=np.array(["a", "b", "c", "d", "e", "f"], object),
    )  # fmt: skip
    var.update_attributes({"_index": "symbol"})
    assert m.columns_named(["d", "a", "f"]).tolist() == [0, 2, 6]
    with pytest.raises(gzarr.ArgumentError, match="no column 'None'"):
        m.columns_named(["None"])
    column(
        var, "maybe", "nullable-string-array", values=np.array(["", "a", "", "b", "c", "d", "e"], object),
        mask=np.array([1, 0, 1, 0, 0, 0, 0], bool),
    )  # fmt: skip
    var.update_attributes({"_index": "maybe"})
    assert m.columns_named(["b", "", "a"], missing="zero").tolist() == [3, -1, 1]
    column(var, "short", "categorical", codes=np.zeros(3, "i1"), categories=np.array(["a"], object))
    var.update_attributes({"_index": "short"})
    with pytest.raises(gzarr.ArgumentError, match="names of 7 columns"):
        m.columns_named(["a"])


def test_columns_by_bytes(adata: gzarr.Group) -> None:
    """h5py has text as bytes, and so have files that were made of HDF5."""
    var: Any = adata["var"]
    m = gzarr.sparse.open(adata, path="X")
    text = ["CD3D", "Gén", "MS4A1", "LYZ", "", "None", "1"]
    encoded = np.array([name.encode() for name in text])
    var.create_array("bytes", data=encoded)
    var.create_array("text", data=np.array(text, object), dtype="string")
    for index in ("bytes", "text"):
        var.update_attributes({"_index": index})
        for names in (
            encoded[[1, 0]], np.array(text)[[1, 0]], np.array(text, object)[[1, 0]], ["Gén", b"CD3D"],
            iter(text[1::-1]),
        ):  # fmt: skip
            assert m.columns_named(names, missing="zero").tolist() == [1, 0]
        for wrong, words in (
            ([None], "one is None"),
            ([1], "one is 1"),
            ([["LYZ"]], "one is \\['LYZ'\\]"),
            ([b"\xff"], "one is b'"),
            (np.array("LYZ"), "must be a list"),
            (np.array(b"LYZ"), "must be a list"),
            (np.array(7), "must be a list"),
        ):
            with pytest.raises(gzarr.ArgumentError, match=words):
                m.columns_named(wrong, missing="zero")
    var.create_array("wrong", data=np.array([b"\xff"] * 7))
    var.update_attributes({"_index": "wrong"})
    with pytest.raises(gzarr.ArgumentError, match="no UTF-8"):
        m.columns_named(["LYZ"])


@pytest.mark.parametrize("path", ["obsp/near", "obsm/parts", "varm/parts", "obsm/deeper/parts"])
def test_columns_that_are_no_genes(path: str) -> None:
    store = gzarr.MemoryStore()
    write(store, DATA.shape, compressed(DATA, "csr"), path=path)
    var = gzarr.create_group(store, path="var", attributes={"_index": "_index"})
    var.create_array("_index", data=np.array(GENES, object), dtype="string")
    with pytest.raises(gzarr.ArgumentError, match="have no names in 'var'"):
        gzarr.sparse.open(store, path=path, device="cpu").columns_named(["LYZ"])


def table_of_0_7(root: gzarr.Group, path: str, categories: list[str], codes: Any, ordered: bool = False) -> gzarr.Group:
    """Write a dataframe with a categorical column as AnnData 0.7 does."""
    said = {"encoding-type": "dataframe", "encoding-version": "0.1.0", "_index": "_index", "column-order": ["kind"]}
    table = root.create_group(path, attributes=said)
    table.create_array("_index", data=np.array([f"cell{i}" for i in range(len(codes))], object), dtype="string")
    known = table.create_array("__categories/kind", data=np.array(categories, object), dtype="string")
    known.update_attributes({"ordered": ordered})
    made = table.create_array("kind", data=np.asarray(codes, "i1"))
    made.update_attributes({"categories": "__categories/kind"})
    return table


@pytest.mark.filterwarnings("ignore:Element .* was written without encoding metadata")
def test_categorical_columns_of_anndata_0_7(tmp_path: Path) -> None:
    anndata = pytest.importorskip("anndata")
    root = gzarr.create_group(tmp_path / "a", zarr_format=2, device="cpu")
    lists = [["B", "T"], ["T", "NK", "B"]]
    codes = [np.arange(60) % 3 - 1, np.arange(60) % 4 - 1]
    tables: Any = [table_of_0_7(root, f"obs{i}", *each) for i, each in enumerate(zip(lists, codes, strict=True))]
    wanted = [np.array([*names, None], object)[own] for names, own in zip(lists, codes, strict=True)]
    for i in range(2):
        read = anndata.io.read_elem(zarr.open(tmp_path / "a", mode="r")[f"obs{i}"])["kind"]
        assert read.astype(object).where(read.notna(), None).tolist() == wanted[i].tolist()
    for i, table in enumerate(tables):
        loader = Loader({"kind": table["kind"]}, batch_size=30, seed=1)
        assert loader.categories["kind"].tolist() == lists[i]
        for batch in loader:
            np.testing.assert_array_equal(batch["kind"], codes[i][batch.samples])
    loader = pickle.loads(pickle.dumps(Loader([{"kind": table["kind"]} for table in tables], batch_size=30, seed=1)))
    names = loader.categories["kind"]
    assert names.tolist() == ["B", "T", "NK"]
    for batch in loader:
        found = np.append(names, None)[batch["kind"]]
        assert found.tolist() == np.concatenate(wanted)[batch.samples].tolist()
    # The path of a column alone leads to its codes only.
    paths = [{"kind": str(tmp_path / "a" / f"obs{i}/kind")} for i in range(2)]
    for batch in Loader(paths[0], batch_size=30, seed=1):
        np.testing.assert_array_equal(batch["kind"], codes[0][batch.samples])
    with pytest.raises(gzarr.ArgumentError, match="open the file as a group"):
        Loader(paths, batch_size=30)
    table_of_0_7(root, "ordered", lists[1], codes[1], ordered=True)
    with pytest.raises(gzarr.ArgumentError, match="ordered"):
        Loader([{"kind": tables[0]["kind"]}, {"kind": root["ordered/kind"]}], batch_size=30)
    # Names of columns, too.
    write(root.store, (60, 3), compressed(dense((60, 3)), "csr"), path="X", zarr_format=2)
    table_of_0_7(root, "var", ["b", "a", "c"], [1, 2, 0]).update_attributes({"_index": "kind"})
    assert gzarr.sparse.open(root, path="X").columns_named(["a", "b", "c"]).tolist() == [0, 2, 1]


def test_attributes_that_name_no_categories(adata: gzarr.Group) -> None:
    """Attributes are anybody's."""
    obs: Any = adata["obs"]
    for i, said in enumerate(("depth", "__categories/none", ["a"], "../depth", "__categories/../depth")):
        made = obs.create_array(f"codes{i}", data=KINDS)
        made.update_attributes({"categories": said})
        loader = Loader({"kind": made}, batch_size=120, shuffle=False)
        assert not loader.categories
        np.testing.assert_array_equal(next(iter(loader))["kind"], KINDS)


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
