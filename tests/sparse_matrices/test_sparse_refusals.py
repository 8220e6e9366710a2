"""What a sparse matrix does not take is refused before anything is erased or written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.sparse as sp
from support.sparse_groups import dense, write

import gzarr

if TYPE_CHECKING:
    from collections.abc import Callable

SHAPE = (50, 300)
OLD = sp.csr_array(dense(SHAPE))
NEW = sp.csr_array(dense((5, 300), "f4", seed=1) * np.float32(1000.5))

#: Arguments of ``create`` that are wrong, and what the error says.
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "codecs": ({"codecs": "nope"}, "'nope'"),
    "chunks": ({"chunks": 0}, "chunks"),
    "shards": ({"shards": 5, "chunks": 3}, r"shards.*multiples of chunks"),
    "shards in version 2": ({"shards": 64, "chunks": 16, "zarr_format": 2}, "shard"),
    "zarr_format": ({"zarr_format": 7}, "zarr_format"),
    "format without groups": ({"zarr_format": 1}, "groups?"),
    "dtype": ({"dtype": "nope"}, "dtype='nope'"),
    "strings": ({"dtype": "U5"}, "dtype must be a type of numbers.*'U5'"),
    "times": ({"dtype": "datetime64[s]"}, "dtype must be a type of numbers"),
    "bfloat16": ({"dtype": "bfloat16"}, "dtype must be a type of numbers"),
    "values that do not fit": ({"dtype": "uint8"}, r"cannot be stored as uint8"),
    "floats as indices": ({"index_dtype": "float32"}, "index_dtype must be a type of integers.*'float32'"),
    "no type of indices": ({"index_dtype": "nope"}, "index_dtype must be a type of integers.*'nope'"),
    "None as type of indices": ({"index_dtype": None}, "index_dtype must be a type of integers"),
    "too narrow indices": ({"index_dtype": "uint8"}, "index_dtype is uint8.*256 columns.*300"),
    "too narrow, signed": ({"index_dtype": "int8"}, "index_dtype is int8.*128 columns.*300"),
    "attributes": ({"attributes": {"a": object()}}, "attributes"),
    "shape": ({"shape": 5}, "two integers"),
    "another shape": ({"shape": (4, 300)}, r"\(5, 300\)"),
}


def contents(store: gzarr.MemoryStore) -> dict[str, bytes]:
    return {key: bytes(store.get(key) or b"") for key in store.list()}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_there_survives_wrong_arguments(case: str) -> None:
    arguments, message = WRONG[case]
    store = gzarr.MemoryStore()
    gzarr.sparse.create(store, OLD, path="X")
    before = contents(store)
    with pytest.raises(gzarr.ArgumentError, match=message):
        gzarr.sparse.create(store, NEW, path="X", overwrite=True, **arguments)
    assert contents(store) == before
    if "zarr_format" not in arguments:
        with pytest.raises(gzarr.ArgumentError, match=message):
            gzarr.sparse.create(gzarr.open_group(store, mode="r+"), NEW, path="X", overwrite=True, **arguments)
        assert contents(store) == before


@pytest.mark.parametrize("case", WRONG)
def test_nothing_is_left_of_a_refused_matrix(case: str) -> None:
    arguments, message = WRONG[case]
    store = gzarr.MemoryStore()
    with pytest.raises(gzarr.ArgumentError, match=message):
        gzarr.sparse.create(store, NEW, path="X", **arguments)
    assert contents(store) == {}
    np.testing.assert_array_equal(gzarr.sparse.create(store, NEW, path="X").to_dense(), NEW.toarray())


def test_types_of_indices_hold_all_columns() -> None:
    for form, shape, what in (("csr", (0, 300), "columns"), ("csc", (300, 0), "rows")):
        with pytest.raises(gzarr.ArgumentError, match=f"uint8.*256 {what}, but there are 300"):
            gzarr.sparse.create({}, shape=shape, index_dtype="uint8", format=form)  # type: ignore[arg-type]
    for index, most in (("u1", 256), ("i1", 128), ("u2", 65536), (">i2", 32768)):
        m = gzarr.sparse.create({}, shape=(0, most), index_dtype=index)
        m.append(sp.csr_array(([1.5], [most - 1], [0, 1]), (1, most), dtype="f4"))
        assert m.to_dense()[0, most - 1] == 1.5
        with pytest.raises(gzarr.ArgumentError, match="index_dtype"):
            gzarr.sparse.create({}, shape=(0, most + 1), index_dtype=index)


def test_a_narrow_matrix_of_others_takes_what_fits() -> None:
    nothing = np.empty(0, "f4"), np.empty(0, "i4"), [0]
    store = gzarr.MemoryStore()
    m = gzarr.sparse.open(write(store, (0, 500), nothing, index="u1"))
    before = contents(store)
    with pytest.raises(gzarr.ArgumentError, match="cannot be stored as uint8"):
        m.append(sp.csr_array(dense((3, 500))))
    assert contents(store) == before
    few = sp.csr_array(([2.5], ([1], [255])), (3, 500), dtype="f4")
    m.append(few)
    np.testing.assert_array_equal(m.to_dense(), few.toarray())


def changed(matrix: Any, **arrays: Any) -> Any:
    """Return a copy of a matrix with other elements in one of its arrays, or another array."""
    result = matrix.copy()
    for name, value in arrays.items():
        array = np.array(getattr(result, name))
        if isinstance(value, tuple):
            array[value[0]] = value[1]
        else:
            array = np.asarray(value)
        setattr(result, name, array)
    return result


BLOCK = sp.csr_array(dense((6, 300), seed=2))
ENTRIES = len(BLOCK.data)

#: Blocks that are malformed, and what the error says.
MALFORMED: dict[str, tuple[Callable[[], Any], str]] = {
    "a column too many": (lambda: changed(BLOCK, indices=(2, 300)), "row 0 has an entry in column 300.*300 columns"),
    "a negative column": (lambda: changed(BLOCK, indices=(-1, -1)), "row 5 has an entry in column -1"),
    "descending": (lambda: changed(BLOCK, indptr=(4, 1)), "row 3 has values from .* to 1: 'indptr' descends"),
    "negative": (lambda: changed(BLOCK, indptr=(1, -4)), "row 0 has values from 0 to -4"),
    "beyond the values": (lambda: changed(BLOCK, indptr=(-1, 10**6)), f"ends with 1000000.*only {ENTRIES}"),
    "beyond the values, within": (lambda: changed(BLOCK, indptr=(3, 10**6)), "row 3 has values from 1000000"),
    "not from 0": (lambda: changed(BLOCK, indptr=(0, 1)), "begins with 1"),
    "fewer values": (lambda: changed(BLOCK, data=BLOCK.data[:-1]), f"ends with {ENTRIES}.*only {ENTRIES - 1}"),
    "fewer indices": (lambda: changed(BLOCK, indices=BLOCK.indices[:-1]), f"only {ENTRIES - 1}"),
    "fewer rows": (lambda: changed(BLOCK, indptr=BLOCK.indptr[:-1]), "'indptr' has 6 elements, but there are 6 rows"),
    "no integers": (lambda: changed(BLOCK, indices=BLOCK.indices + 0.5), "'indices' is float64"),
    "csc": (lambda: changed(BLOCK.tocsc(), indices=(0, 6)), "has an entry in row 6, but there are 6 rows"),
    "csc, descending": (lambda: changed(BLOCK.tocsc(), indptr=(200, 0)), "column 199 .*descends"),
    "bsr": (lambda: changed(BLOCK.tobsr((2, 3)), indices=(0, 100)), "row of blocks 0 .* 100 column of blocks"),
    "coo": (lambda: changed(BLOCK.tocoo(), col=(7, 300)), "entry 7 is in column 300"),
    "coo, row": (lambda: changed(BLOCK.tocoo(), row=(7, -1)), "entry 7 is in row -1"),
    "coo, lengths": (lambda: changed(BLOCK.tocoo(), data=BLOCK.data[:-1]), f"and {ENTRIES - 1} values"),
}


@pytest.mark.parametrize("form", ["csr", "csc"])
@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_blocks(case: str, form: Any) -> None:
    make, message = MALFORMED[case]
    start = OLD if form == "csr" else sp.csc_array(dense((6, 20)))
    store = gzarr.MemoryStore()
    m = gzarr.sparse.create(store, start, path="X", format=form)
    before = contents(store)
    with pytest.raises(gzarr.ArgumentError, match=rf"'/X': the block is malformed: .*{message}.*Nothing was changed"):
        m.append(make())
    with pytest.raises(gzarr.ArgumentError, match=message):
        gzarr.sparse.create(store, make(), path="X", format=form, overwrite=True)
    assert contents(store) == before
    np.testing.assert_array_equal(m.to_dense(), start.toarray())
    m.append(BLOCK)


class OnDevice:
    """A matrix of CuPy, as far as appending knows it: what it copies to the host is not checked by CuPy."""

    __module__ = "cupyx.scipy.sparse._csr"

    def __init__(self, arrays: tuple[Any, Any, Any], shape: tuple[int, int]) -> None:
        self.arrays, self.shape, self.ndim = arrays, shape, 2

    def get(self) -> Any:
        return sp.csr_matrix(self.arrays, self.shape)


def test_malformed_blocks_of_a_device() -> None:
    store = gzarr.MemoryStore()
    m = gzarr.sparse.create(store, OLD)
    before = contents(store)
    ones = np.ones(3, "f4")
    for indices, offsets in (
        ([1, 2, 300], [0, 1, 3]),
        ([1, -2, 3], [0, 1, 3]),
        ([1, 2, 3], [0, 4, 3]),
        # SciPy refuses this itself.
        ([1, 2, 3], [0, 1, 9]),
    ):
        with pytest.raises(gzarr.ArgumentError, match="block is malformed"):
            m.append(OnDevice((ones, np.array(indices), np.array(offsets)), (2, 300)))
    assert contents(store) == before
    m.append(OnDevice((ones, np.array([1, 2, 299]), np.array([0, 1, 3])), (2, 300)))
    assert (m.shape, m.to_dense(51).sum()) == ((52, 300), 2)


def test_values_after_the_last_row_are_not_stored() -> None:
    m = gzarr.sparse.create({}, shape=(0, 300))
    longer = changed(BLOCK, data=np.append(BLOCK.data, 1), indices=np.append(BLOCK.indices, 999))
    m.append(longer)
    assert len(m.data) == len(m.indices) == m.nnz == ENTRIES
    np.testing.assert_array_equal(m.to_dense(), BLOCK.toarray())


def test_arguments_that_contradict_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    store = gzarr.MemoryStore()
    group = gzarr.create_group(store, device="cpu")
    before = contents(store)
    wrong: tuple[tuple[dict[str, Any], str], ...] = (
        ({"zarr_format": 2}, "zarr_format is 2, but the group '/' has Zarr format 3"),
        ({"storage_options": {"anon": True}}, "storage_options"),
        ({"device": "tpu"}, "device must be"),
    )
    for arguments, message in wrong:
        with pytest.raises(gzarr.ArgumentError, match=message):
            gzarr.sparse.create(group, OLD, path="X", **arguments)
        assert contents(store) == before
    m = gzarr.sparse.create(group, OLD, path="X", zarr_format=3, device="cpu")
    assert (m.device, m.group.zarr_format) == ("cpu", 3)
    for arguments, message in wrong[1:]:
        with pytest.raises(gzarr.ArgumentError, match=message):
            gzarr.sparse.open(group, path="X", **arguments)
    monkeypatch.setattr("gzarr.sparse.creating.resolve_device", lambda device: {"cuda": "cuda:0"}.get(device, device))
    for call in (gzarr.sparse.open, gzarr.sparse.create):
        with pytest.raises(
            gzarr.ArgumentError, match="device is 'cuda', but what is in the group '/' is read to 'cpu'"
        ):
            call(group, path="X", device="cuda")  # type: ignore[operator]
    with pytest.raises(gzarr.ArgumentError, match="opened for reading only"):
        gzarr.sparse.open(gzarr.open_group(store), path="X", mode="r+")
    with pytest.raises(gzarr.ArgumentError, match="mode must be"):
        gzarr.sparse.open(group, path="X", mode="w")  # type: ignore[arg-type]


def test_attributes_of_another_matrix() -> None:
    old = {"h5sparse_format": "csr", "h5sparse_shape": [9, 9], "encoding-type": "csr_matrix", "kept": 1}
    store = gzarr.MemoryStore()
    for data in (None, sp.csc_array(OLD)):
        shape = SHAPE if data is None else None
        m = gzarr.sparse.create(store, data, shape=shape, format="csc", attributes=old, overwrite=True, device="cpu")
        assert (m.format, m.shape[0]) == ("csc", 50)
        group = gzarr.open_group(store)
        assert dict(group.attrs) == {
            "kept": 1,
            "encoding-type": "csc_matrix",
            "encoding-version": "0.1.0",
            "shape": list(m.shape),
        }
    np.testing.assert_array_equal(m.to_dense(), OLD.toarray())
