"""Rows and columns of sparse matrices on each device, beside the same of a dense array."""

from __future__ import annotations

import gc
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.sparse_groups import compressed, dense, stored, to_dense, write

import gzarr
from gzarr.engines.cpu import native
from gzarr.sparse import snapshot

if TYPE_CHECKING:
    from support.devices import TestedDevice

SHAPE = (90, 40)
MASK = np.arange(90) % 4 == 1
ROWS: dict[str, Any] = {
    "all": None,
    "slice": slice(10, 50),
    "steps back": slice(80, 5, -7),
    "mask": MASK,
    "any order, repeated": np.array([5, 89, 3, 3, 0, 5, 1, -1]),
    "unsigned": np.array([5, 3], np.uint16),
    "one": 7,
    "list": [4, 4, 2],
    "none": [],
    "empty slice": slice(5, 5),
}
COLUMNS: dict[str, Any] = {
    "all": None,
    "slice": slice(3, 30),
    "mask": np.arange(40) % 3 == 0,
    "any order": [17, 3, 39, 0, -2],
    "repeated": [5, 5, 2, 5],
    "none": [],
}


def rows_of(array: np.ndarray[Any, Any], rows: Any, columns: Any) -> np.ndarray[Any, Any]:
    """Return NumPy's rows and columns; an integer keeps its axis."""

    def along(selection: Any) -> Any:
        if selection is None:
            return slice(None)
        if isinstance(selection, int):
            return [selection]
        return np.asarray(selection, np.int64) if isinstance(selection, list) else selection

    return array[along(rows)][:, along(columns)]


def check(device: TestedDevice, m: gzarr.sparse.Matrix, expected: Any, rows: Any, columns: Any, **options: Any) -> None:
    wanted = rows_of(expected, rows, columns)
    found = m.to_dense(rows, columns, **options)
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(device.to_numpy(found), wanted)
    if wanted.dtype == np.float16:
        wanted = wanted.astype("f4")
    parts = m.read_parts(rows, columns, **options)
    assert parts.shape == wanted.shape
    assert parts.data.dtype == wanted.dtype
    np.testing.assert_array_equal(to_dense(parts, m.format, device.to_numpy), wanted)


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("form", ["csr", "csc"])
def test_selections(form: str, columns: str, device: TestedDevice) -> None:
    expected = dense(SHAPE)
    m = gzarr.sparse.open(stored(expected, form), path="X", device=device.name)
    assert (m.shape, m.format, m.dtype, m.device, m.ndim) == (SHAPE, form, "f4", device.name, 2)
    assert m.nnz == np.count_nonzero(expected)
    for rows in ROWS.values():
        check(device, m, expected, rows, COLUMNS[columns])


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i4", "u8", "f2", "f8", "c8", "c16"])
def test_values(dtype: str, device: TestedDevice) -> None:
    expected = dense((30, 20), dtype)
    m = gzarr.sparse.open(stored(expected), path="X", device=device.name)
    check(device, m, expected, [7, 3, 3, 25], None)
    check(device, m, expected, slice(2, 20), [3, 9, 0, 9])
    if expected.dtype.kind != "c":
        for wanted in ("f4", "f8", "f2", "i2"):
            check(device, m, expected.astype(wanted), slice(4, 20), [9, 3], dtype=wanted)


@pytest.mark.parametrize("index", ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8"])
def test_types_of_indices(index: str, device: TestedDevice) -> None:
    expected = dense((30, 100))
    offset = {"u4": "u4", "u8": "u8", "i4": "i4"}.get(index, "i8")
    m = gzarr.sparse.open(stored(expected, index=index, offset=offset), path="X", device=device.name)
    check(device, m, expected, [7, 3, 3, 25], [99, 5, 60])
    check(device, m, expected, None, None)


@pytest.mark.parametrize(
    "layout",
    [
        {"zarr_format": 2, "codecs": "zstd"},
        {"zarr_format": 2, "dtype": ">f4", "chunks": 50},
        {"chunks": 16, "shards": 160, "codecs": "zstd"},
        {"chunks": [[7, 100, 3, 500, 1000]], "codecs": None},
        {"chunks": 5000},
    ],
    ids=["v2", "big-endian", "shards", "uneven chunks", "one chunk"],
)
def test_layouts(layout: dict[str, Any], device: TestedDevice) -> None:
    expected = dense(SHAPE)
    layout = dict(layout)
    values, indices, offsets = compressed(expected, "csr")
    if "dtype" in layout:
        values = values.astype(layout.pop("dtype"))
    if isinstance(layout.get("chunks"), list):
        layout["chunks"] = [[*layout["chunks"][0][:-1], len(values) - sum(layout["chunks"][0][:-1])]]
    store = gzarr.MemoryStore()
    write(store, SHAPE, (values, indices, offsets), index="u2", **layout)
    m = gzarr.sparse.open(store, path="X", device=device.name)
    for rows in ROWS.values():
        check(device, m, expected, rows, None)
    check(device, m, expected, ROWS["mask"], COLUMNS["any order"])


def test_entries_in_any_order_and_of_one_element(device: TestedDevice) -> None:
    rng = np.random.default_rng(1)
    counts = rng.integers(0, 30, 50)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    indices, values = rng.integers(0, 20, offsets[-1]), rng.integers(1, 9, offsets[-1])
    for form in ("csr", "csc"):
        for dtype in ("f4", "u1", "?", "c8"):
            part = values.astype(dtype)
            expected = np.zeros((50, 20), dtype)
            np.add.at(expected, (np.repeat(np.arange(50), counts), indices), part)
            expected = expected if form == "csr" else expected.T
            store = gzarr.MemoryStore()
            write(store, expected.shape, (part, indices, offsets), form)
            m = gzarr.sparse.open(store, path="X", device=device.name)
            check(device, m, expected, None, None)
            check(device, m, expected, [3, 3, 7], [5, 2, 2, 11])
            parts = m.read_parts()
            np.testing.assert_array_equal(device.to_numpy(parts.indices), indices)
            np.testing.assert_array_equal(device.to_numpy(parts.data), part)


def test_many_batches(monkeypatch: pytest.MonkeyPatch, device: TestedDevice) -> None:
    monkeypatch.setattr(snapshot, "_BATCH_ENTRIES", 50)
    expected = dense(SHAPE)
    for form in ("csr", "csc"):
        m = gzarr.sparse.open(stored(expected, form), path="X", device=device.name)
        for rows in ROWS.values():
            check(device, m, expected, rows, None)
            check(device, m, expected, rows, COLUMNS["repeated"])


@pytest.mark.parametrize("form", ["csr", "csc"])
def test_out(form: str, device: TestedDevice) -> None:
    expected = dense(SHAPE)
    m = gzarr.sparse.open(stored(expected, form), path="X", device=device.name)
    room = device.array(np.full((20, 80), 7, "f4"))
    views = [room[:10, :40], room[::2, ::2], room[10:, 40:].reshape(10, 40), room[::-2, 1::2]]
    for out in views:
        assert m.to_dense(slice(5, 15), out=out) is out
        np.testing.assert_array_equal(device.to_numpy(out), expected[5:15])
    turned = device.array(np.full((40, 10), 7, "f2"))
    assert m.to_dense(slice(5, 15), out=turned.T) is not None
    np.testing.assert_array_equal(device.to_numpy(turned), expected[5:15].T.astype("f2"))
    for wrong in (room, [[0]], device.array(np.zeros((10, 40), "f4"))[:9], np.zeros((10, 40), "f4")):
        if isinstance(wrong, np.ndarray) and wrong.shape == (10, 40) and not device.is_cuda:
            wrong.flags.writeable = False
        with pytest.raises(gzarr.OutputError, match="'/X'"):
            m.to_dense(slice(5, 15), out=wrong)


def test_matrices_of_the_devices_library(device: TestedDevice) -> None:
    expected = dense(SHAPE)
    m = gzarr.sparse.open(stored(expected), path="X", device=device.name)
    try:
        if device.is_cuda:
            import cupyx.cusparse  # noqa: F401
        else:
            import scipy.sparse  # noqa: F401
    except ImportError:
        missing = "cuSPARSE" if device.is_cuda else "SciPy"
        with pytest.raises((gzarr.DeviceError, gzarr.ArgumentError), match=rf"{missing}.*pip install"):
            m[3:9]
    else:
        for rows, columns in ((slice(3, 9), None), ([8, 2], [5, 1])):
            found = m[rows, columns]
            assert type(found).__name__ == "csr_array"
            parts = gzarr.sparse.Parts(found.data, found.indices, found.indptr, found.shape)
            np.testing.assert_array_equal(to_dense(parts, "csr", device.to_numpy), rows_of(expected, rows, columns))
    if device.is_cuda:
        counts = gzarr.sparse.open(stored(expected.astype("u2")), path="X", device=device.name)
        with pytest.raises(gzarr.ArgumentError, match="pass dtype='float32'"):
            counts[3:9]


@pytest.mark.parametrize(
    ("index", "wrong"), [("i4", 40), ("i4", -1), ("u2", 65535), ("u4", 2**32 - 1), ("i8", 2**32 + 5), ("u8", 2**64 - 1)]
)
def test_an_index_outside_names_the_row(index: str, wrong: int, device: TestedDevice) -> None:
    expected = dense(SHAPE)
    values, indices, offsets = compressed(expected, "csr")
    for form in ("csr", "csc"):
        store = gzarr.MemoryStore()
        shape = SHAPE if form == "csr" else SHAPE[::-1]
        group = write(store, shape, (values, indices, offsets), form, index=index, chunks=16, shards=160)
        group["indices"][offsets[13] + 1] = np.array(wrong).astype(index)  # type: ignore[index]
        m = gzarr.sparse.open(store, path="X", device=device.name)
        one, other = ("row", "column") if form == "csr" else ("column", "row")
        of = (lambda some: (some,)) if form == "csr" else (lambda some: (None, some))
        for read in (m.read_parts, m.to_dense):
            for some in ([5, 13, 20], slice(10, 20), None):
                with pytest.raises(
                    gzarr.ChunkDecodeError, match=f"{one} 13 has an entry in {other} .*has 40"
                ) as caught:
                    read(*of(some))
                place = int(offsets[13]) + 1
                assert caught.value.node == "/X/indices"
                assert caught.value.chunk == (place // 16,)
                assert caught.value.key == f"X/indices/c/{place // 160}"
            read(*of([5, 12, 14]))


def test_offsets_that_are_wrong(device: TestedDevice) -> None:
    values, indices, offsets = compressed(dense(SHAPE), "csr")
    for place, wrong, message in (
        (0, 3, "begins with 3"),
        (20, 1, r"row 19 has values from \d+ to 1"),
        (90, 10**6, f"row 89 has values up to 1000000, but 'data' and 'indices' have only {len(values)}"),
        (5, -4, "row 4 has values"),
    ):
        changed = offsets.copy()
        changed[place] = wrong
        store = gzarr.MemoryStore()
        write(store, SHAPE, (values, indices, changed))
        m = gzarr.sparse.open(store, path="X", device=device.name)
        for read in (m.read_parts, m.to_dense):
            with pytest.raises(gzarr.ChunkDecodeError, match=message) as caught:
                read([1])
            assert caught.value.node == "/X/indptr"
            assert caught.value.chunk == (place // 16,)
    # Fewer values than indices, and the last row is cut.
    store = gzarr.MemoryStore()
    write(store, SHAPE, (values[:-1], indices, offsets))
    with pytest.raises(gzarr.ChunkDecodeError, match="row 89"):
        gzarr.sparse.open(store, path="X", device=device.name).to_dense()


def test_each_chunk_is_decoded_once() -> None:
    expected = dense((400, 40))
    m = gzarr.sparse.open(stored(expected, chunks=100, codecs="zstd"), path="X", device="cpu")
    chunks = -(-m.nnz // 100)
    rows = np.tile(np.random.default_rng(0).permutation(400), 2)
    native.take_stats()
    m.read_parts(rows)
    assert native.take_stats()["chunks"] == 2 * chunks


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns of all rows are read in parts."""
    monkeypatch.setattr(snapshot, "_BATCH_ENTRIES", 1000)
    expected = dense((500, 40))
    m = gzarr.sparse.open(stored(expected), path="X", device="cpu")
    sizes = []
    real = snapshot.read_ranges

    def read(*arguments: Any) -> Any:
        found = real(*arguments)
        sizes.append(len(found))
        return found

    monkeypatch.setattr(snapshot, "read_ranges", read)
    np.testing.assert_array_equal(m.to_dense(columns=[3, 5]), expected[:, [3, 5]])
    to_dense(m.read_parts(columns=[3, 5]), "csr")
    assert max(sizes) <= 1000
    assert len(sizes) > 10


def test_selections_that_do_not_fit() -> None:
    m = gzarr.sparse.open(stored(dense(SHAPE)), path="X", device="cpu")
    for rows in (90, [0, 90], np.ones(89, bool), 1.5, "x", [[1, 2]], [0.5], np.ones((9, 9), bool)):
        with pytest.raises(gzarr.SelectionError, match="'/X' has 90 rows"):
            m.to_dense(rows)
    with pytest.raises(gzarr.SelectionError, match="'/X' has 40 columns"):
        m.to_dense(None, [40])
    with pytest.raises(gzarr.SelectionError, match="two dimensions, not 3"):
        m[1, 2, 3]
    for dtype in ("S3", "m8[s]", "nonsense", "O"):
        with pytest.raises(gzarr.ArgumentError, match="dtype"):
            m.to_dense(dtype=dtype)
    with pytest.raises(gzarr.ArgumentError, match="complex"):
        gzarr.sparse.open(stored(dense(SHAPE, "c8")), path="X").to_dense(dtype="f4")


def test_groups_that_are_no_matrix() -> None:
    expected = dense(SHAPE)
    parts = compressed(expected, "csr")
    root = gzarr.create_group(gzarr.MemoryStore(), attributes={"encoding-type": "anndata"})
    with pytest.raises(gzarr.NodeTypeError, match="its matrix is the group 'X'"):
        gzarr.sparse.open(root)
    root.create_array("dense", data=expected)
    with pytest.raises(gzarr.NodeTypeError, match="dense array"):
        gzarr.sparse.open(root, path="dense")
    root.create_group("obs", attributes={"encoding-type": "dataframe"})
    with pytest.raises(gzarr.NodeTypeError, match="dataframe"):
        gzarr.sparse.open(root["obs"])  # type: ignore[arg-type]
    with pytest.raises(gzarr.NodeNotFoundError):
        gzarr.sparse.open(root, path="X")
    for said, error, message in (
        ({"encoding-type": "csr_matrix"}, gzarr.MetadataError, r"shape.*two integers"),
        ({"encoding-type": "csr_matrix", "shape": [3]}, gzarr.MetadataError, "two integers"),
        ({"encoding-type": "csr_matrix", "shape": [-1, 40]}, gzarr.MetadataError, "two integers"),
        ({"encoding-type": "csr_matrix", "shape": [90, 2**31]}, gzarr.MetadataError, "2147483648 columns"),
        ({"encoding-type": "csr_matrix", "shape": [91, 40]}, gzarr.MetadataError, "91 rows needs 92"),
        ({"encoding-type": ["csr_matrix"], "shape": [90, 40]}, gzarr.NodeTypeError, "encoding-type"),
        ({"shape": [90, 40]}, gzarr.NodeTypeError, "no encoding-type"),
        ({"h5sparse_format": "coo", "shape": [90, 40]}, gzarr.NodeTypeError, "sparse matrices have"),
    ):
        store = gzarr.MemoryStore()
        write(store, SHAPE, parts, attributes=said)
        with pytest.raises(error, match=message):
            gzarr.sparse.open(store, path="X")
    for wrong, message in (
        ((parts[0], parts[1][:, None], parts[2]), "one dimension"),
        ((np.array(["a"] * len(parts[0])), parts[1], parts[2]), "must have numbers"),
    ):
        store = gzarr.MemoryStore()
        write(store, SHAPE, wrong)
        with pytest.raises(gzarr.MetadataError, match=message):
            gzarr.sparse.open(store, path="X")
    store = gzarr.MemoryStore()
    write(store, SHAPE, parts, index="f4")
    with pytest.raises(gzarr.MetadataError, match=r"'/X/indices'.*integers, not float32"):
        gzarr.sparse.open(store, path="X")
    group = write(gzarr.MemoryStore(), SHAPE, parts)
    del group["indptr"]
    with pytest.raises(gzarr.NodeNotFoundError, match="no array 'indptr'"):
        gzarr.sparse.open(group)


def test_the_older_attributes() -> None:
    expected = dense(SHAPE)
    for said in (
        {"h5sparse_format": "csr", "h5sparse_shape": list(SHAPE)},
        {"h5sparse_format": "csr", "h5sparse_shape": [1, 1], "shape": list(SHAPE)},
    ):
        m = gzarr.sparse.open(stored(expected, attributes=said, zarr_format=2), path="X", device="cpu")
        np.testing.assert_array_equal(m.to_dense(), expected)


def test_a_pickle_reads_the_same() -> None:
    expected = dense(SHAPE)
    m = pickle.loads(pickle.dumps(gzarr.sparse.open(stored(expected), path="X", device="cpu")))
    np.testing.assert_array_equal(m.to_dense([3, 2]), expected[[3, 2]])
    assert repr(m) == "<gzarr.sparse.Matrix '/X' csr (90, 40) float32 cpu>"
    del m
    gc.collect()
