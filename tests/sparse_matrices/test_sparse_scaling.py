"""Rows scaled to a total, and their logarithms, against the formulas in NumPy; columns that a matrix has not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from gzarr_kernels.slots import sparse as slots
from support.sparse_groups import compressed, dense, stored, write

import gzarr
from gzarr.sparse import host

if TYPE_CHECKING:
    from support.devices import TestedDevice

SHAPE = (90, 700)
DATA = dense(SHAPE, share=0.9)


def scaled(values: Any, total: float | None, log1p: bool) -> Any:
    """Return what scanpy's ``normalize_total`` and ``log1p`` make of rows, computed in float64."""
    found = values.astype("f8")
    if total is not None:
        sums = found.sum(axis=1, keepdims=True)
        found = found * np.divide(total, sums, out=np.ones_like(sums), where=sums != 0)
    return np.log1p(found) if log1p else found


@pytest.mark.parametrize("stored_as", ["f4", "f8", "u1", "i2", "u4", "i8", "f2", "?"])
@pytest.mark.parametrize(("normalize", "log1p"), [(1e4, True), (1e4, False), (None, True), (3, True)])
def test_scaled_rows(stored_as: str, normalize: float | None, log1p: bool, device: TestedDevice) -> None:
    values = DATA.astype(stored_as)
    for index in ("i4", "u2", "i8"):
        m = gzarr.sparse.open(stored(values, index=index, chunks=1000), path="X", device=device.name)
        for dtype, rtol in (("f4", 1.2e-7), ("f8", 3e-15)):
            wanted = scaled(values, normalize, log1p)
            found = m.to_dense(dtype=dtype, normalize=normalize, log1p=log1p)
            assert found.dtype == dtype
            np.testing.assert_allclose(device.to_numpy(found), wanted, rtol=rtol)
        # Of all columns, though some are taken.
        genes = [5, 3, 699, 3, -1]
        view = m.dense(columns=genes, missing="zero", dtype="f8", normalize=normalize, log1p=log1p)
        wanted = np.column_stack([wanted[:, genes[:-1]], np.zeros(len(wanted))])
        np.testing.assert_allclose(device.to_numpy(view[7:31]), wanted[7:31], rtol=3e-15)


def test_entries_of_one_element(device: TestedDevice) -> None:
    """The logarithm is that of their sum."""
    values, indices, offsets = compressed(DATA, "csr")
    store = gzarr.MemoryStore()
    write(store, SHAPE, (np.repeat(values, 2) / 4, np.repeat(indices, 2), 2 * offsets), chunks=1000)
    m = gzarr.sparse.open(store, path="X", device=device.name)
    for dtype in ("f4", "f8"):
        found = device.to_numpy(m.to_dense(dtype=dtype, normalize=1e4, log1p=True))
        np.testing.assert_allclose(found, scaled(DATA / 2, 1e4, True), rtol=1.2e-7)
    turned = np.empty(SHAPE[::-1], "f4").T
    m.to_dense(out=turned, log1p=True) if device.name == "cpu" else None
    if device.name == "cpu":
        np.testing.assert_allclose(turned, np.log1p(DATA / 2), rtol=1.2e-7)


@pytest.mark.parametrize("options", [{}, {"normalize": 1e4, "log1p": True}])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_rows_written_past_the_caches(dtype: str, options: dict[str, Any]) -> None:
    """Large results are written in tiles, where indices ascend."""
    data = dense((500, 9003), dtype, share=0.02)
    data[7, :8000] = data[8, -1] = data[9, 4095] = data[10, 4096] = 3
    data[11] = 0
    data[11, :3] = 1
    values, indices, offsets = compressed(data, "csr")
    # One row in another order.
    first, last = offsets[20:22]
    values[first:last], indices[first:last] = values[first:last][::-1].copy(), indices[first:last][::-1].copy()
    store = gzarr.MemoryStore()
    write(store, data.shape, (values, indices, offsets), index="u2", chunks=3000)
    m = gzarr.sparse.open(store, path="X", device="cpu")
    wanted = scaled(data, options.get("normalize"), bool(options)) if options else data
    found = np.full((501, 9003), 7, dtype)[1:]
    m.to_dense(out=found, **options)
    np.testing.assert_allclose(found, wanted, rtol=1.2e-7 if dtype == "f4" else 3e-15)


def test_logarithms() -> None:
    special = [np.inf, np.nan, -1, -2, 1e-30, -0.9999, -1e-9, 1e30, 1, 3e-5, 0.4142, 0.4143, -0.2928, -0.2929, 5e-324]
    rng = np.random.default_rng(0)
    numbers = np.concatenate([special, rng.normal(size=2000), 10.0 ** rng.uniform(-20, 20, 2000)])
    store = gzarr.MemoryStore()
    write(store, (1, len(numbers)), (numbers, np.arange(len(numbers)), [0, len(numbers)]))
    m = gzarr.sparse.open(store, path="X", device="cpu")
    with np.errstate(all="ignore"):
        wanted = np.log1p(numbers)
    np.testing.assert_array_max_ulp(m.to_dense(log1p=True)[0][np.isfinite(wanted)], wanted[np.isfinite(wanted)], 1)
    np.testing.assert_array_equal(m.to_dense(log1p=True)[0][~np.isfinite(wanted)], wanted[~np.isfinite(wanted)])


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
def test_zeros_have_no_sign(dtype: str, device: TestedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in SciPy, whatever the size of the result."""
    values = np.array([[-0.0, 1.0, 0.0, -0.0, 5e-45]]).astype(dtype)
    if dtype[0] == "c":
        values.imag = [2, -0.0, -0.0, -0.0, 0.0]
    store = gzarr.MemoryStore()
    write(store, values.shape, (values[0], np.arange(5), [0, 5]))
    m = gzarr.sparse.open(store, path="X", device=device.name)
    for _ in range(2):
        for options in ({}, {"log1p": True}) if dtype[0] == "f" else ({},):
            wanted = np.log1p(values) if options else values
            np.testing.assert_array_equal(device.to_numpy(m.to_dense(**options)).tobytes(), (wanted + 0).tobytes())
        found = device.to_numpy(m.to_dense(columns=[3, 0]))
        np.testing.assert_array_equal(found.tobytes(), (values[:, [3, 0]] + 0).tobytes())
        # As large results are written.
        monkeypatch.setattr(host, "STREAM_BYTES", 0)
    assert device.to_numpy(m.read_parts().data).tobytes() == values.tobytes()


def test_sums_at_the_ends_of_a_type(device: TestedDevice) -> None:
    """The number that a row is multiplied by may be no float64."""
    values = np.array([[1e-310, 1e-310], [5e-324, 0], [-1e-310, 3e-310]])
    m = gzarr.sparse.open(stored(values), path="X", device=device.name)
    for dtype in ("f4", "f8"):
        found = device.to_numpy(m.to_dense(dtype=dtype, normalize=1e4))
        np.testing.assert_allclose(found, [[5000, 5000], [10000, 0], [-5000, 15000]], rtol=1e-7)
    large = gzarr.sparse.open(stored(np.array([[1e30, 3e30]])), path="X", device=device.name)
    found = device.to_numpy(large.to_dense(normalize=1e-300))
    np.testing.assert_allclose(found, [[2.5e-301, 7.5e-301]], rtol=1e-15)


@pytest.mark.parametrize("stored_as", ["f4", "f8", "u2"])
def test_order_of_entries(stored_as: str, device: TestedDevice) -> None:
    """Of rows whose indices do not ascend, too, results are rounded once."""
    values, indices, offsets = compressed(DATA, "csr")
    order = np.lexsort((np.random.default_rng(1).random(len(values)), np.repeat(np.arange(90), np.diff(offsets))))
    turned = gzarr.MemoryStore()
    write(turned, SHAPE, (values[order].astype(stored_as), indices[order], offsets), index="u2", chunks=1000)
    turned_csc = gzarr.MemoryStore()
    write(turned_csc, SHAPE[::-1], (values[order].astype(stored_as), indices[order], offsets), "csc", chunks=1000)
    m, n, c = (
        gzarr.sparse.open(store, path="X", device=device.name)
        for store in (stored(DATA.astype(stored_as)), turned, turned_csc)
    )
    for options in ({"normalize": 1e4, "log1p": True}, {"log1p": True}, {"normalize": 1e4}):
        for dtype in ("f4", "f8"):
            wanted = device.to_numpy(m.to_dense(dtype=dtype, **options))
            np.testing.assert_array_equal(device.to_numpy(n.to_dense(dtype=dtype, **options)), wanted)
            genes = [5, 3, 699, 3]
            found = device.to_numpy(n.dense(columns=genes, dtype=dtype, **options)[7:31])
            np.testing.assert_array_equal(found, wanted[7:31, genes])
            if "normalize" not in options:
                np.testing.assert_array_equal(device.to_numpy(c.to_dense(dtype=dtype, **options)), wanted.T)


def test_sums_are_rounded_once(device: TestedDevice) -> None:
    store = gzarr.MemoryStore()
    parts = (np.array([1e300, 3.0, 1e300, 2.0**24, 1, 1, 1]), [2, 1, 2, 3, 0, 3, 3], [0, 3, 7])
    write(store, (2, 4), parts)
    m = gzarr.sparse.open(store, path="X", device=device.name)
    found = device.to_numpy(m.to_dense(dtype="f4", log1p=True))
    wanted = np.log1p([[0, 3, 2e300, 0], [1, 0, 0, 2**24 + 2]]).astype("f4")
    np.testing.assert_array_max_ulp(found, wanted, 1)
    for options in ({}, {"columns": [3, 1, 3, 0]}):
        found = device.to_numpy(m.to_dense([1, 1], dtype="f4", normalize=2**24 + 3, **options))
        wanted = np.array([1, 0, 0, 2**24 + 2], "f4")[options.get("columns", ...)]
        np.testing.assert_array_equal(found, [wanted, wanted])


def test_too_little_memory_for_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    store = gzarr.MemoryStore()
    write(store, (2, 3), (np.array([1.0, 3, 5, 7]), [0, 2, 2, 1], [0, 2, 4]))
    m = gzarr.sparse.open(store, path="X", device="cpu")
    run = host._Job.run

    def run_large(job: Any, name: str, items: int) -> None:
        job.slots[slots.INDEXED] = 1 << 58
        run(job, name, items)

    with monkeypatch.context() as patch:
        patch.setattr(host._Job, "run", run_large)
        with pytest.raises(MemoryError, match="in 8 bytes for each of their 288230376151711744 elements"):
            m.to_dense(log1p=True)
        # Nothing is added up in rows whose indices ascend.
        np.testing.assert_allclose(m.to_dense(0, log1p=True), np.log1p([[1, 0, 3]]), rtol=3e-15)
    np.testing.assert_allclose(m.to_dense(log1p=True), np.log1p([[1, 0, 3], [0, 7, 5]]), rtol=3e-15)


def test_devices_give_the_same(device: TestedDevice) -> None:
    rng = np.random.default_rng(3)
    for dtype in ("f4", "f8"):
        store = stored((DATA * rng.random(SHAPE)).astype(dtype))
        m, n = (gzarr.sparse.open(store, path="X", device=name) for name in ("cpu", device.name))
        for log1p in (False, True):
            wanted = m.to_dense(normalize=1e4, log1p=log1p)
            np.testing.assert_array_equal(device.to_numpy(n.to_dense(normalize=1e4, log1p=log1p)), wanted)


def test_missing_columns(device: TestedDevice) -> None:
    m = gzarr.sparse.open(stored(DATA), path="X", device=device.name)
    for genes in ([-1, 4, -1, 2], [-1], [4, 2]):
        wanted = np.where(np.array(genes) < 0, 0, DATA[:, genes])
        np.testing.assert_array_equal(device.to_numpy(m.to_dense(None, genes, missing="zero")), wanted)
        np.testing.assert_array_equal(m.dense(columns=genes, missing="zero").shape, wanted.shape)
        parts = m.read_parts([3, 80], genes, missing="zero")
        assert parts.shape == (2, len(genes))
        assert len(parts.data) == np.count_nonzero(wanted[[3, 80]])
        np.testing.assert_array_equal(device.to_numpy(m.to_dense(None, genes)), DATA[:, genes])
    with pytest.raises(gzarr.SelectionError, match="-2 is among them"):
        m.dense(columns=[-2, 3], missing="zero")
    with pytest.raises(gzarr.SelectionError, match="700 columns"):
        m.dense(columns=[-1, 700], missing="zero")
    with pytest.raises(gzarr.ArgumentError, match="missing must be"):
        m.dense(columns=[3], missing="nan")  # type: ignore[arg-type]


def test_what_is_refused() -> None:
    m = gzarr.sparse.open(stored(DATA), path="X", device="cpu")
    # On some machines, these are the numbers of float64, and texts of others are warnings.
    is_longer = np.finfo(np.longdouble).maxexp > 16_000
    beyond = [np.longdouble(text) for text in ("1e4000", "1e-4000")] if is_longer else []
    for wrong in (0, -1, np.nan, np.inf, "1e4", True, 10**400, 10**5000, *beyond):
        with pytest.raises(gzarr.ArgumentError, match="normalize must be"):
            m.dense(normalize=wrong)  # type: ignore[arg-type]
    with pytest.raises(gzarr.ArgumentError, match="log1p must be"):
        m.dense(log1p="no")  # type: ignore[arg-type]
    with pytest.raises(gzarr.ArgumentError, match="float32 or float64, not int32"):
        m.dense(dtype="i4", log1p=True)
    turned = gzarr.sparse.open(stored(DATA, "csc"), path="X", device="cpu")
    with pytest.raises(gzarr.ArgumentError, match="CSC"):
        turned.to_dense(normalize=1e4)
    np.testing.assert_allclose(turned.to_dense(log1p=True), np.log1p(DATA), rtol=1.2e-7)


@pytest.mark.parametrize(
    ("values", "normalize"),
    [
        (np.array([[1e39, 3e39], [1e-50, 3e-50]]), 1e4),
        (np.array([[1e39, 3e39], [1e-50, 3e-50]]), None),
        (np.array([[2**24 + 1, -(2**24), 1]]), 1),
        (np.array([[2**24 + 1, -(2**24), 1]], "i4"), 1),
        (np.array([[2**40 + 1, 5]], "u8"), 2**40 + 6),
    ],
    ids=["floats", "logarithms", "int64", "int32", "uint64"],
)
def test_values_are_rounded_once(values: Any, normalize: float | None, device: TestedDevice) -> None:
    """Not before they are added up."""
    m = gzarr.sparse.open(stored(values), path="X", device=device.name)
    wanted = scaled(values, normalize, normalize is None)
    options: dict[str, Any] = {"dtype": "f4", "normalize": normalize, "log1p": normalize is None}
    found = m.to_dense(**options)
    assert found.dtype == np.float32
    np.testing.assert_array_max_ulp(device.to_numpy(found), wanted.astype("f4"), 1)
    # Of rows that are kept, and of those in which an index does not ascend.
    turned = gzarr.MemoryStore()
    parts = compressed(values[:1], "csr")
    write(turned, values[:1].shape, (parts[0][::-1], parts[1][::-1], parts[2]))
    last = gzarr.sparse.open(turned, path="X", device=device.name)
    for view, rows in ((m.dense(**options), wanted), (m.dense(columns=[1, 0], **options), wanted[:, [1, 0]])):
        (batch,) = gzarr.Loader(view, batch_size=len(rows), shuffle=False)
        np.testing.assert_array_max_ulp(device.to_numpy(batch["data"]), rows.astype("f4"), 1)
    if normalize is not None:
        found = device.to_numpy(last.to_dense(**options))
        np.testing.assert_array_max_ulp(found, wanted[:1].astype("f4"), 1)
