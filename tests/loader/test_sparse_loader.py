"""Batches of the rows of sparse matrices, and dense views of these, beside the same of dense arrays."""

from __future__ import annotations

import http.server
import itertools
import mmap
import pickle
import threading
import warnings
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.sparse
from support.sparse_groups import compressed, dense, stored, to_dense, write

import gzarr
from gzarr.loader import Dataset, Loader, Rows, Windows, epoch
from gzarr.loader.row_slabs import RowSlabs

if TYPE_CHECKING:
    from support.devices import TestedDevice

pytestmark = pytest.mark.filterwarnings("ignore:shuffling is coarse")

SHAPE = (600, 40)
DATA = dense(SHAPE)
LABELS = np.arange(600) % 3


STATUS = Path("/proc/self/statm")


def resident() -> int:
    """Return the bytes of memory that this process has now."""
    return int(STATUS.read_text().split()[1]) * mmap.PAGESIZE


def opened(device: TestedDevice, **options: Any) -> gzarr.sparse.Matrix:
    return gzarr.sparse.open(stored(DATA, **options), path="X", device=device.name)


@pytest.mark.parametrize("shuffle", ["blocks", "full", False])
@pytest.mark.parametrize("prefetch", [0, 2])
def test_each_row_once(shuffle: Any, prefetch: int, device: TestedDevice) -> None:
    labels = gzarr.create_array({}, data=LABELS, chunks=50, device=device.name)
    # Rows of some chunks at a time, and chunks that stay decoded.
    for buffer_bytes in (20_000, 1 << 20):
        loader = Loader(
            {"x": opened(device), "label": labels}, batch_size=32, shuffle=shuffle, seed=3, drop_last=False,
            prefetch=prefetch, buffer_bytes=buffer_bytes,
        )  # fmt: skip
        for _ in range(2):
            seen = []
            for batch in loader:
                np.testing.assert_array_equal(device.to_numpy(batch["x"]), DATA[batch.samples])
                np.testing.assert_array_equal(device.to_numpy(batch["label"]), LABELS[batch.samples])
                seen += batch.samples.tolist()
            assert sorted(seen) == list(range(600))
            assert (seen == sorted(seen)) == (shuffle is False)


def test_some_columns_in_another_type(device: TestedDevice) -> None:
    genes = [30, 2, 2, 17]
    view = opened(device, index="u2").dense(columns=genes, dtype="f8")
    for batch in Loader(view, Rows(where=LABELS == 1), batch_size=16, seed=1):
        assert batch["data"].dtype == np.float64
        np.testing.assert_array_equal(device.to_numpy(batch["data"]), DATA[batch.origins[:, 0]][:, genes])


def test_entries_of_one_element(device: TestedDevice) -> None:
    values, indices, offsets = compressed(DATA, "csr")
    twice = [np.repeat(part, 2) for part in (values, indices)]
    store = gzarr.MemoryStore()
    write(store, SHAPE, (*twice, 2 * offsets))
    m = gzarr.sparse.open(store, path="X", device=device.name)
    for batch in Loader(m, batch_size=50, seed=1):
        np.testing.assert_array_equal(device.to_numpy(batch["data"]), 2 * DATA[batch.samples])


def test_ranks_and_resuming(device: TestedDevice) -> None:
    m = opened(device)
    options: dict[str, Any] = {"batch_size": 10, "seed": 5, "buffer_bytes": 20_000}
    for shuffle in ("blocks", "full", False):
        options["shuffle"] = shuffle
        expected = [batch.samples.tolist() for batch in Loader(m, **options)]
        assert sorted(number for step in expected for number in step) == list(range(600))
        together = [Loader(m, rank=rank, world_size=2, **{**options, "batch_size": 5}) for rank in range(2)]
        for one, other, step in zip(*together, expected, strict=True):
            assert sorted([*one.samples.tolist(), *other.samples.tolist()]) == sorted(step)
        loader = Loader(m, **options)
        for _ in itertools.islice(loader, 23):
            pass
        resumed = Loader(m, **options)
        resumed.load_state_dict(loader.state_dict())
        found = list(resumed)
        assert [batch.samples.tolist() for batch in found] == expected[23:]
        for batch in found:
            np.testing.assert_array_equal(device.to_numpy(batch["data"]), DATA[batch.samples])
    # Blocks are as long as their rows are in memory, so other values are another order.
    other = gzarr.sparse.open(stored(np.where(DATA > 50, DATA, 0)), path="X", device=device.name)
    with pytest.raises(gzarr.ArgumentError, match="groups of samples have changed"):
        Loader(other, **options).load_state_dict(loader.state_dict())


def test_chunks_are_decoded_about_once() -> None:
    store = gzarr.MemoryStore()
    data = dense((4000, 200), share=0.2)
    write(store, data.shape, compressed(data, "csr"), chunks=100, index="u2")
    m = gzarr.sparse.open(store, path="X", device="cpu")
    chunks = 2 * -(-m.nnz // 100)
    for shuffle, most in (("blocks", 1.1), (False, 1.1)):
        loader = Loader(m, batch_size=100, shuffle=shuffle, seed=1, buffer_bytes=m.nnz)
        for _ in loader:
            pass
        assert loader.stats().chunks <= most * chunks
        assert abs(loader.explain().amplification - loader.stats().chunks / chunks) < 0.05
    # All of it fits.
    loader = Loader(m, batch_size=100, shuffle="full", seed=1, buffer_bytes=20 * m.nnz)
    for _ in loader:
        pass
    assert loader.stats().chunks <= 1.6 * chunks


def test_weights_and_volumes(device: TestedDevice) -> None:
    m, other = opened(device), opened(device, chunks=100)
    loader = Loader([{"x": m}, {"x": other}], weights=[1, 2], batch_size=30, seed=1)
    counts = np.zeros(1200, int)
    for batch in loader:
        np.add.at(counts, batch.samples, 1)
        np.testing.assert_array_equal(device.to_numpy(batch["x"]), DATA[batch.samples % 600])
    assert counts[:600].sum() == 600
    assert counts[600:].sum() == 1200
    loader = Loader({"x": m}, Rows(balance=np.arange(600) < 60), batch_size=30, seed=1)
    few = sum(int((batch.samples < 60).sum()) for batch in loader)
    assert abs(few - 300) <= 30


def test_memory_is_that_of_what_is_stored() -> None:
    """Of entries: their indices and values as they are stored, while batches are dense."""
    m = gzarr.sparse.open(stored(DATA, index="u2"), path="X", device="cpu")
    entries = (2 + 4) * m.nnz + 8 * 600
    for buffer_bytes in (entries // 2, 2 * entries + 1000):
        loader = Loader(m, batch_size=10, buffer_bytes=buffer_bytes, seed=1)
        assert loader.explain().held_bytes <= buffer_bytes + 3 * 10 * 160
        mixed = 600 if buffer_bytes > entries else 150
        assert mixed / 2 < loader.explain().mixing.block_samples <= mixed
    # Values of eight bits stay so until they are made float32.
    narrow = gzarr.sparse.open(stored(DATA.astype("u1"), index="u2"), path="X", device="cpu")
    small = Loader(narrow.dense(dtype="f4"), batch_size=10, buffer_bytes=entries // 2, seed=1)
    assert small.explain().mixing.block_samples > 150
    for batch in small:
        np.testing.assert_array_equal(batch["data"], DATA[batch.samples])


def of_lengths(lengths: Any, columns: int = 20_000) -> gzarr.sparse.Matrix:
    """Return a matrix whose rows have some numbers of entries, without storing them."""
    group = gzarr.create_group(gzarr.MemoryStore())
    count = int(np.sum(lengths))
    group.create_array("data", shape=(count,), dtype="f4", chunks=1 << 12, fill_value=1.0)
    group.create_array("indices", shape=(count,), dtype="i4", chunks=1 << 12, fill_value=7)
    group.create_array("indptr", data=np.append(0, np.cumsum(lengths)))
    group.update_attributes({"encoding-type": "csr_matrix", "shape": [len(lengths), columns]})
    return gzarr.sparse.open(group, device="cpu")


@pytest.mark.parametrize("ranks", [1, 2])
def test_reads_of_rows_of_other_lengths(ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In their own order, long rows follow each other, and are not as long as the mean."""
    read: list[int] = []
    fill = RowSlabs.read

    def counted(slabs: RowSlabs, *arguments: Any) -> None:
        read.append(slabs.nbytes)
        fill(slabs, *arguments)

    monkeypatch.setattr(RowSlabs, "read", counted)
    rng = np.random.default_rng(0)
    short, long = np.full(4000, 5), np.full(400, 1000)
    for lengths in (np.append(short, long), np.append(long, short), rng.permutation(np.append(short, long))):
        view = of_lengths(lengths).dense(columns=[3, 7])
        expected = [list(range(begin, begin + 40)) for begin in range(0, 4400, 40)]
        for where in (None, np.arange(4400) % 3 > 0):
            for buffer_bytes, most in ((1 << 20, 1 << 19), (1 << 16, 40 * 8010)):
                read.clear()
                seen = []
                for rank in range(ranks):
                    loader = Loader(
                        view, Rows(where=where), batch_size=40 // ranks, shuffle=False, buffer_bytes=buffer_bytes,
                        rank=rank, world_size=ranks,
                    )  # fmt: skip
                    explained = loader.explain()
                    first = len(read)
                    seen.append([batch.samples.tolist() for batch in loader])
                    # A read in memory while the next one is made, and batches.
                    assert 2 * max(read[first:]) <= explained.held_bytes
                    assert max(read[first:]) <= most // ranks
                    if buffer_bytes == 1 << 20:
                        assert explained.held_bytes <= buffer_bytes // ranks + 3 * 40 * 8
                if where is None:
                    together = [sorted(itertools.chain(*steps)) for steps in zip(*seen, strict=True)]
                    assert together == expected
                # Not in more reads than that takes.
                total = sum(read)
                assert len(read) <= 2 * total // (most // ranks) + 20 * ranks or most != 1 << 19


def test_rows_are_looked_at_once_for_all_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    cut = epoch.cut_by_bytes

    def counted(*arguments: Any) -> Any:
        calls.append(arguments)
        return cut(*arguments)

    monkeypatch.setattr(epoch, "cut_by_bytes", counted)
    loader = Loader(of_lengths(np.arange(400)).dense(), batch_size=40, shuffle=False, buffer_bytes=1 << 16)
    for _ in range(3):
        assert [batch.samples[0] for batch in loader] == list(range(0, 400, 40))
    loader.explain()
    assert len(calls) == 1


def test_the_longest_sparse_batches_count() -> None:
    m = of_lengths(np.repeat([10, 1000, 20], [4000, 400, 100]))
    options: dict[str, Any] = {"batch_size": 40, "buffer_bytes": 1 << 20, "shuffle": False}
    loader = Loader(m, dense=False, like="numpy", **options)
    longest = max(batch["data"].data.nbytes + batch["data"].indices.nbytes for batch in loader)
    assert longest == 40 * 8000
    held = loader.explain().held_bytes - Loader(m.dense(columns=[7]), **options).explain().held_bytes
    assert 3 * longest <= held + 3 * 160 <= 3 * (longest + 40 * 8)


@pytest.mark.parametrize("shuffle", ["blocks", "full", False])
def test_matrices_without_rows(shuffle: Any) -> None:
    m, none = (gzarr.sparse.open(stored(data), path="X", device="cpu") for data in (DATA, DATA[:0]))
    options: dict[str, Any] = {"batch_size": 50, "seed": 1, "shuffle": shuffle, "buffer_bytes": 20_000}
    alone = [batch.samples.tolist() for batch in Loader(m, **options)]
    for volumes in ([m, none], [none, m], [none, m, none]):
        for made_dense in (True, False):
            loader = Loader(volumes, dense=made_dense, **options)
            seen = []
            for batch in loader:
                found = batch["data"] if made_dense else batch["data"].toarray()
                np.testing.assert_array_equal(found, DATA[batch.samples])
                seen.append(batch.samples.tolist())
            assert seen == alone
            assert loader.explain().mixing.sample_bytes > 40
    for made_dense in (True, False):
        with pytest.raises(gzarr.ArgumentError, match="there are no samples"):
            Loader(none, dense=made_dense, **options)


@pytest.mark.skipif(not STATUS.exists(), reason="there is no /proc to tell the memory of now")
@pytest.mark.parametrize("like", [None, "numpy"])
def test_batches_of_many_lengths_use_memory_again(like: Any) -> None:
    """Each sparse batch has another number of entries."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(200, 1200, 24_000)
    offsets = np.append(0, np.cumsum(lengths))
    indices = np.sort(rng.integers(0, 20_000, offsets[-1]).astype("i4"))
    matrix = scipy.sparse.csr_array((np.ones(offsets[-1], "f4"), indices, offsets), shape=(24_000, 20_000))
    m = gzarr.sparse.create({}, matrix, chunks=1 << 16, device="cpu")
    loader = Loader(m, batch_size=64, buffer_bytes=16 << 20, dense=False, like=like)
    before = rss = resident()
    for i, batch in enumerate(loader):
        assert batch["data"].shape == (64, 20_000)
        rss = max(rss, resident()) if not i % 20 else rss
    # The entries of the epoch have 134 MB.
    assert rss - before < 64 << 20


def test_a_matrix_that_grows(tmp_path: Path) -> None:
    block = scipy.sparse.csr_array(DATA)
    m = gzarr.sparse.create(tmp_path, block, chunks=500, device="cpu")
    loader = Loader(m, batch_size=100, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(loader)
    gzarr.sparse.open(tmp_path, mode="r+").append(block)
    with pytest.warns(UserWarning, match=r"grown from shape \(600, 40\) to \(1200, 40\)"):
        seen = [number for batch in loader for number in batch.samples.tolist()]
    assert sorted(seen) == list(range(600))
    gzarr.sparse.create(tmp_path, block[:50], overwrite=True)
    with pytest.raises(gzarr.ArgumentError, match="shrunk"):
        list(loader)


def test_damage_is_one_batch() -> None:
    values, indices, offsets = compressed(DATA, "csr")
    store = gzarr.MemoryStore()
    group = write(store, SHAPE, (values, indices, offsets), chunks=20)
    group["indices"][offsets[333]] = 40  # type: ignore[index]
    m = gzarr.sparse.open(store, path="X", device="cpu")
    skipped = []
    loader = Loader(m, batch_size=20, seed=1, on_error=lambda error, number: skipped.append((str(error), number)))
    seen = [number for batch in loader for number in batch.samples.tolist()]
    assert sorted(seen) == [number for number in range(600) if number != 333]
    ((message, number),) = skipped
    assert "row 333 has an entry in column 40" in message
    assert number == 333


def test_other_samplers_and_datasets() -> None:
    m = gzarr.sparse.open(stored(DATA), path="X", device="cpu")
    whole = gzarr.create_array({}, data=DATA, chunks=m.dense().chunks, device="cpu")
    pairs = [Loader(array, Windows(0, {"x": (-1, 0), "y": (1, 1)}), batch_size=10, seed=1) for array in (m, whole)]
    for batch, expected in zip(*pairs, strict=True):
        np.testing.assert_array_equal(batch["x"], expected["x"])
        np.testing.assert_array_equal(batch["y"], expected["y"])
    dataset = Dataset(m)
    np.testing.assert_array_equal(dataset[17]["data"], DATA[17])
    for number, sample in zip([5, 3, 5], dataset.__getitems__([5, 3, 5]), strict=True):
        np.testing.assert_array_equal(sample["data"], DATA[number])


@pytest.mark.parametrize("shuffle", ["blocks", False])
def test_a_matrix_in_a_remote_store(shuffle: Any, tmp_path: Path) -> None:
    """Chunks of the arrays beside it are asked for ahead, those of the matrix when its rows are read."""
    write(str(tmp_path / "a.zarr"), SHAPE, compressed(DATA, "csr"), chunks=500)
    gzarr.create_array(tmp_path / "label.zarr", data=LABELS, chunks=20)

    class Files(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *arguments: Any) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Files, directory=str(tmp_path))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        root = f"http://127.0.0.1:{server.server_port}"
        m = gzarr.sparse.open(f"{root}/a.zarr", path="X", device="cpu")
        loader = Loader(
            {"x": m, "label": f"{root}/label.zarr"}, batch_size=50, seed=1, buffer_bytes=30_000, shuffle=shuffle
        )
        seen = []
        for batch in loader:
            np.testing.assert_array_equal(batch["x"], DATA[batch.samples])
            np.testing.assert_array_equal(batch["label"], LABELS[batch.samples])
            seen += batch.samples.tolist()
        server.shutdown()
    assert sorted(seen) == list(range(600))


# -- rows that stay sparse


def with_arrays(batch: Any) -> Any:
    """Leave sparse rows as their arrays, of which a host without cuSPARSE makes no matrices."""
    x = batch["x"]
    batch["x"] = {"data": x.data, "indices": x.indices, "indptr": x.indptr}
    return batch


def as_dense(found: Any, device: TestedDevice) -> np.ndarray[Any, Any]:
    """Return a batch of sparse rows, as their arrays, as a dense array."""
    assert isinstance(found, gzarr.sparse.Parts)
    return to_dense(found, "csr", device.to_numpy)


@pytest.mark.parametrize("shuffle", ["blocks", "full", False])
@pytest.mark.parametrize("prefetch", [0, 2])
def test_sparse_batches(shuffle: Any, prefetch: int, device: TestedDevice) -> None:
    labels = gzarr.create_array({}, data=LABELS, chunks=50, device=device.name)
    options: dict[str, Any] = {
        "batch_size": 32, "shuffle": shuffle, "seed": 3, "drop_last": False, "prefetch": prefetch,
        "buffer_bytes": 20_000,
    }  # fmt: skip
    for index, genes in (("u2", None), ("i4", [30, 2, -1, 17])):
        view = opened(device, index=index).dense(columns=genes, missing="zero", dtype="f4", normalize=100, log1p=True)
        wanted = device.to_numpy(view.read(...))
        expected = [batch.samples.tolist() for batch in Loader({"x": view, "label": labels}, **options)]
        seen = []
        loader = Loader(
            {"x": view, "label": labels}, dense=False, transform=with_arrays, **options
        )  # fmt: skip
        for batch in loader:
            x = gzarr.sparse.Parts(**batch["x"], shape=(len(batch.samples), view.shape[1]))
            np.testing.assert_allclose(as_dense(x, device), wanted[batch.samples], rtol=2e-7)
            np.testing.assert_array_equal(device.to_numpy(batch["label"]), LABELS[batch.samples])
            seen.append(batch.samples.tolist())
        assert seen == expected


def test_sparse_batches_of_libraries() -> None:
    m = gzarr.sparse.open(stored(DATA), path="X", device="cpu")
    for like in (None, "scipy"):
        for batch in Loader(m, batch_size=50, seed=1, like=like, dense=False):
            assert isinstance(batch["data"], scipy.sparse.csr_array)
            np.testing.assert_array_equal(batch["data"].toarray(), DATA[batch.samples])
    for refused, options, words in (
        (LABELS, {"dense": False}, "there is none"),
        (m, {"like": "scipy"}, "pass dense=False"),
        ({"x": m, "y": m}, {"dense": False, "stack": ("x", "y")}, "Rows"),
        (m, {"dense": False, "flip": 1}, "Rows"),
    ):
        with pytest.raises(gzarr.ArgumentError, match=words):
            Loader(refused, batch_size=5, **options)
    with pytest.raises(gzarr.ArgumentError, match="Rows"):
        Loader(m, Windows(0, {"x": (-1, 0)}), batch_size=5, dense=False)


def test_sparse_batches_of_torch() -> None:
    torch = pytest.importorskip("torch")
    m = gzarr.sparse.open(stored(DATA), path="X", device="cpu")
    for batch in Loader({"x": m, "label": LABELS}, batch_size=50, seed=1, like="torch", dense=False):
        assert batch["x"].layout == torch.sparse_csr
        np.testing.assert_array_equal(batch["x"].to_dense().numpy(), DATA[batch.samples])
        assert isinstance(batch["label"], torch.Tensor)


def test_sparse_batches_of_jax() -> None:
    pytest.importorskip("jax")
    m = gzarr.sparse.open(stored(DATA), path="X", device="cpu")
    for batch in Loader(m, batch_size=50, seed=1, like="jax", dense=False):
        assert type(batch["data"]).__name__ == "BCSR"
        np.testing.assert_array_equal(batch["data"].todense(), DATA[batch.samples])


def test_sparse_batches_of_several_matrices_and_damage() -> None:
    values, indices, offsets = compressed(DATA, "csr")
    store = gzarr.MemoryStore()
    group = write(store, SHAPE, (values, indices, offsets), chunks=20)
    group["indices"][offsets[333]] = 40  # type: ignore[index]
    broken = gzarr.sparse.open(store, path="X", device="cpu")
    m = gzarr.sparse.open(stored(DATA, chunks=100), path="X", device="cpu")
    skipped = []
    loader = Loader(
        [m, broken], batch_size=20, seed=1, dense=False, buffer_bytes=30_000,
        on_error=lambda error, number: skipped.append(number),
    )  # fmt: skip
    seen = []
    for batch in loader:
        np.testing.assert_array_equal(batch["data"].toarray(), DATA[batch.samples % 600])
        seen += batch.samples.tolist()
    assert skipped == [933]
    assert sorted(seen) == [number for number in range(1200) if number != 933]


def test_matrices_of_other_genes(device: TestedDevice) -> None:
    """Each brings its columns into one order, and has zeros where it lacks one."""
    other = opened(device, chunks=100)
    genes = np.array([-1, 5, 39, -1, 0])
    views = [opened(device).dense(columns=[7, 5, 39, 1, 0]), other.dense(columns=genes, missing="zero")]
    wanted = np.concatenate([DATA[:, [7, 5, 39, 1, 0]], np.where(genes < 0, 0, DATA[:, genes])])
    for batch in Loader(views, batch_size=30, seed=1, weights=[1, 2]):
        np.testing.assert_array_equal(device.to_numpy(batch["data"]), wanted[batch.samples])


# -- volumes in which a name is rows of a matrix in some, and an array in others

THREE = [dense((150, 20), seed=seed) for seed in range(3)]
TOGETHER = np.concatenate(THREE)
NUMBERS = np.arange(450)


def of_rows(data: Any, device: str = "cpu") -> gzarr.sparse.Matrix:
    return gzarr.sparse.open(stored(data), path="X", device=device)


@pytest.mark.parametrize("shuffle", ["blocks", "full", False])
def test_matrices_in_some_volumes(shuffle: Any, device: TestedDevice) -> None:
    def array(data: Any) -> gzarr.Array:
        return gzarr.create_array({}, data=data, chunks=(10, *data.shape[1:]), device=device.name)

    def sparse(data: Any) -> gzarr.sparse.Matrix:
        return of_rows(data, device.name)

    # Names that are rows in one volume, in all, in none, and each the other way round.
    volumes = [
        {
            "x": (sparse if i == 1 else array)(data),
            "y": sparse(data),
            "z": (array if i == 1 else sparse)(data + 1),
            "label": array(NUMBERS[150 * i : 150 * (i + 1)]),
        }
        for i, data in enumerate(THREE)
    ]
    for some in (volumes, volumes[::-1]):
        order = np.concatenate([np.arange(150) + 150 * i for i in (0, 1, 2)[:: 1 if some is volumes else -1]])
        for buffer_bytes in (20_000, 1 << 22):
            loader = Loader(
                some, batch_size=32, shuffle=shuffle, seed=2, drop_last=False, buffer_bytes=buffer_bytes, prefetch=0
            )
            seen = []
            for batch in loader:
                rows = order[batch.samples]
                for name, wanted in (("x", TOGETHER), ("y", TOGETHER), ("z", TOGETHER + 1), ("label", NUMBERS)):
                    np.testing.assert_array_equal(device.to_numpy(batch[name]), wanted[rows])
                seen += batch.samples.tolist()
            assert sorted(seen) == list(range(450))


@pytest.mark.parametrize("matrix_in", [0, 1])
def test_rows_do_not_stay_sparse_in_some_volumes(matrix_in: int) -> None:
    volumes: list[Any] = [gzarr.array(THREE[0]), gzarr.array(THREE[1])]
    volumes[matrix_in] = of_rows(THREE[0])
    words = f"is a sparse matrix in volume {matrix_in}, .* no sparse matrix in volume {1 - matrix_in}"
    with pytest.raises(gzarr.ArgumentError, match=f"'the array' {words}"):
        Loader(volumes, batch_size=8, dense=False)
    others = of_rows(THREE[2])
    with pytest.raises(gzarr.ArgumentError, match=f"'x' {words}"):
        Loader([{"y": others, "x": volume} for volume in volumes], batch_size=8, dense=False)


# -- dense views


def test_a_view_reads_as_numpy_does(device: TestedDevice) -> None:
    view = opened(device).dense()
    assert (view.shape, view.dtype, view.ndim, view.device) == (SHAPE, np.dtype("f4"), 2, device.name)
    for selection in (
        ..., 7, np.s_[3:9], np.s_[::-7], np.s_[100:5:-1, 3:30:4], np.s_[:, 5], np.s_[4, 5], np.s_[10:20, ::-1],
        [5, 3, 5], LABELS == 2, np.s_[:, np.newaxis, 3:4], np.s_[5:5],
    ):  # fmt: skip
        np.testing.assert_array_equal(device.to_numpy(view[selection]), DATA[selection])
    many = view.read_many([np.s_[3:9, 2:5], np.s_[50:56, 30:33]])
    np.testing.assert_array_equal(device.to_numpy(many), np.stack([DATA[3:9, 2:5], DATA[50:56, 30:33]]))
    np.testing.assert_array_equal(device.to_numpy(view.read(np.s_[9:3:-1], dtype="i4")), DATA[9:3:-1].astype("i4"))
    out = device.array(np.full((6, 80), 7, "f4"))
    view.read(np.s_[3:9], out=out[:, ::-2])
    np.testing.assert_array_equal(device.to_numpy(out)[:, ::-2], DATA[3:9])


def test_what_views_refuse() -> None:
    m = gzarr.sparse.open(stored(DATA), path="X", device="cpu")
    view = m.dense(columns=[3, 1])
    assert repr(view) == "<gzarr.sparse.DenseView /X[:, 2 columns] (600, 2) float32 cpu>"
    for read in (
        lambda: view[:, [1, 0]],
        lambda: view.get_coordinate_selection(([1, 2], [0, 1])),
        lambda: view[view[...] > 3],
    ):
        with pytest.raises(gzarr.ArgumentError, match=r"m\.dense\(columns="):
            read()
    with pytest.raises(gzarr.SelectionError, match="40 columns"):
        m.dense(columns=[40])
    with pytest.raises(gzarr.ArgumentError, match="dtype"):
        m.dense(dtype="U3")
    turned = gzarr.sparse.open(stored(DATA, "csc"), path="X", device="cpu")
    with pytest.raises(gzarr.ArgumentError, match="is CSC"):
        turned.dense()
    with pytest.raises(gzarr.ArgumentError, match="is CSC"):
        Loader(turned)
    assert m.dense(columns=[3, 1]) == view
    assert m.dense(columns=[1, 3]) != view
    again = pickle.loads(pickle.dumps(view))
    np.testing.assert_array_equal(again[...], DATA[:, [3, 1]])
    empty = gzarr.sparse.open(stored(DATA[:0]), path="X", device="cpu").dense()
    assert empty[...].shape == (0, 40)
