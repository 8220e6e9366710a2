"""Rows of sparse matrices, beside other readers of the same files: rows a second.

    python benchmarks/sparse_rows.py [--cells 60000] [--genes 20000] [--rounds 5] [--only "random rows"] [FOLDER]
    python benchmarks/sparse_rows.py --quick                                # a matrix of a tenth, one round: hints only

A matrix of made-up counts is written twice: in lz4 chunks, a file each, and in zstd chunks in shards. Read are

- random rows, as a sparse matrix;
- runs of rows in a random order, as a loader draws them, as a sparse matrix;
- the same as a dense array;
- some columns of these;
- epochs of a loader, in dense and in sparse batches, and in dense ones that are scaled.

gzarr.sparse is measured beside gzarr's ``read_many`` with a slice for each row, anndata's ``sparse_dataset`` and
tensorstore, and batches of an epoch beside annbatch, where that is installed (``--group benchmark-loader``). All take
turns, so that other work on the machine hits all; printed are medians. Each result is compared with SciPy's before it
is timed. Files are in the page cache, results in new memory.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

import gzarr

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: How the matrix is stored.
LAYOUTS: Mapping[str, dict[str, Any]] = {"lz4": {}, "zstd shards": {"codecs": "zstd", "shards": 256 << 15}}
#: Rows of a run, and number of runs that are read together.
RUN, RUNS = 512, 32
RANDOM_ROWS = 10_000
#: Rows of a dense result and of a batch.
DENSE_ROWS, BATCH = 2048, 512


def counts(cells: int, genes: int, share: float) -> Any:
    """Return a matrix: each row has as many values, at random places."""
    rng = np.random.default_rng(0)
    each = max(int(genes * share), 1)
    width = genes // each
    columns = rng.integers(0, width, (cells, each), dtype=np.int32) + width * np.arange(each, dtype=np.int32)
    values = rng.geometric(0.5, cells * each).astype(np.float32)
    return sp.csr_array((values, columns.ravel(), each * np.arange(cells + 1)), shape=(cells, genes))


def readers(path: str, layout: str) -> dict[str, Callable[[np.ndarray[Any, Any]], Any]]:
    """Return functions that read rows as a sparse matrix, by reader."""
    m = gzarr.sparse.open(path, path=layout, device="cpu")
    offsets, shape = m.indptr, m.shape

    def matrix(rows: np.ndarray[Any, Any], values: Any, indices: Any) -> Any:
        ends = np.append(0, np.cumsum(offsets[rows + 1] - offsets[rows]))
        return sp.csr_array((values, indices, ends), shape=(len(rows), shape[1]))

    def six_lines(rows: np.ndarray[Any, Any]) -> Any:
        parts = [slice(a, b) for a, b in zip(offsets[rows].tolist(), offsets[rows + 1].tolist(), strict=True)]
        values, indices = (np.concatenate(list(array.read_many(parts))) for array in (m.data, m.indices))
        return matrix(rows, values, indices)

    found: dict[str, Any] = {"gzarr": m.read, "gzarr, read_many": six_lines}
    if importlib.util.find_spec("anndata") is not None:
        import anndata
        import zarr

        dataset = anndata.io.sparse_dataset(zarr.open_group(path, mode="r")[layout])
        found["anndata"] = lambda rows: dataset[rows]
    if importlib.util.find_spec("tensorstore") is not None:
        import tensorstore as ts

        arrays = [
            ts.open({"driver": "zarr3", "kvstore": f"file://{path}/{layout}/{name}/"}, open=True, read=True).result()
            for name in ("data", "indices")
        ]

        def tensorstore(rows: np.ndarray[Any, Any]) -> Any:
            elements = np.concatenate([np.arange(offsets[row], offsets[row + 1]) for row in rows])
            reads = [array[elements].read() for array in arrays]
            return matrix(rows, *(read.result() for read in reads))

        found["tensorstore"] = tensorstore
    return found


def timed(works: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Return the median seconds of each work; they take turns, after one round that is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for i in range(rounds + 1):
        for name, work in works.items():
            begun = time.perf_counter()
            result = work()
            took = time.perf_counter() - begun
            # Freeing it is not part of it.
            del result
            if i:
                seconds[name].append(took)
    return {name: statistics.median(each) for name, each in seconds.items()}


def told(what: str, rows: int, seconds: Mapping[str, float]) -> None:
    """Print a line for each reader, and how many times as fast gzarr is."""
    print(f"\n{what}: rows/s, and gzarr's as a multiple")
    for name, took in seconds.items():
        print(f"  {name:24} {rows / took:12,.0f} {took / seconds['gzarr']:8.2f}")


def loaders(path: str, layout: str, batches: int, kind: str) -> dict[str, Callable[[], Any]]:
    """Return functions that take some batches of an epoch, from its beginning.

    Parameters
    ----------
    path, layout
        Where the matrix is.
    batches
        How many batches.
    kind
        ``"dense"``, ``"sparse"`` or ``"scaled"``: dense ones with the sum 10,000 and ``log1p``.
    """
    m = gzarr.sparse.open(path, path=layout, device="cpu")
    # As many rows are mixed as by the others; rows are kept as they are stored.
    row_bytes = (m.data.dtype.itemsize + m.indices.dtype.itemsize) * m.nnz // m.shape[0] + 8
    view = m.dense(normalize=1e4, log1p=True) if kind == "scaled" else m
    loader = gzarr.Loader(
        view, batch_size=BATCH, seed=0, buffer_bytes=2 * RUN * RUNS * row_bytes, dense=kind != "sparse"
    )
    print(f"\ngzarr mixes {loader.explain().mixing.block_samples:,.0f} rows, others {RUN * RUNS:,}")

    def made(batch: Any) -> Any:
        """Return what is made of a sparse batch of another loader."""
        if kind == "sparse":
            return batch
        found = batch.toarray()
        if kind == "scaled":
            found *= 1e4 / found.sum(axis=1, keepdims=True)
            np.log1p(found, out=found)
        return found

    def take(of: Any) -> None:
        for _, _ in zip(range(batches), of, strict=False):
            pass

    found: dict[str, Callable[[], Any]] = {"gzarr": lambda: take(loader)}
    if importlib.util.find_spec("annbatch") is not None:
        import annbatch
        import anndata
        import zarr

        # As its documentation advises.
        faster = importlib.util.find_spec("zarrs") is not None
        pipeline = {"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"} if faster else {}

        def of_annbatch() -> None:
            with zarr.config.set(pipeline):
                take_annbatch()

        def take_annbatch() -> None:
            dataset = anndata.io.sparse_dataset(zarr.open_group(path, mode="r")[layout])
            own = annbatch.Loader(
                chunk_size=RUN, preload_nchunks=RUNS, batch_size=BATCH, shuffle=True, preload_to_gpu=False, to=None
            )
            own.add_dataset(dataset)
            for _, batch in zip(range(batches), own, strict=False):
                made(batch["X"])

        found["annbatch"] = of_annbatch
    return found


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Rows of sparse matrices, beside other readers.")
    parser.add_argument("folder", nargs="?", help="where the matrix is, or is written; a temporary folder by default")
    parser.add_argument("--cells", type=int, default=60_000)
    parser.add_argument("--genes", type=int, default=20_000)
    parser.add_argument("--share", type=float, default=0.06, help="values that are not zero (default: 0.06)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a tenth of the cells, one round")
    parser.add_argument("--only", help="only what begins so: random rows, runs, dense, columns, epoch")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.cells, arguments.rounds = arguments.cells // 10, 1
    with tempfile.TemporaryDirectory() as temporary:
        run(Path(arguments.folder or temporary), arguments)


def run(folder: Path, arguments: argparse.Namespace) -> None:
    """Write the matrix unless it is there, and measure."""
    whole = counts(arguments.cells, arguments.genes, arguments.share)
    path = str(folder / f"{arguments.cells}x{arguments.genes}.zarr")
    for layout, options in LAYOUTS.items():
        if not (Path(path) / layout / "indptr").exists():
            gzarr.sparse.create(path, whole, path=layout, **options)
    rng = np.random.default_rng(1)
    random = rng.permutation(arguments.cells)[: min(RANDOM_ROWS, arguments.cells)]
    starts = RUN * rng.permutation(max(arguments.cells // RUN, 1))[:RUNS]
    runs = (starts[:, None] + np.arange(min(RUN, arguments.cells))).ravel()
    mixed = rng.permutation(runs)
    for layout in LAYOUTS:
        _measure(path, layout, whole, {"random rows": random, "runs of rows": mixed}, arguments)


def _measure(
    path: str, layout: str, whole: Any, rows_of: Mapping[str, np.ndarray[Any, Any]], arguments: argparse.Namespace
) -> None:
    """Measure what is read of one matrix."""
    found, m = readers(path, layout), gzarr.sparse.open(path, path=layout, device="cpu")
    mixed = rows_of["runs of rows"]
    some, chosen = mixed[:DENSE_ROWS], np.arange(0, arguments.genes, 10)

    def wanted(what: str) -> bool:
        return arguments.only is None or what.startswith(arguments.only)

    for what, rows in rows_of.items():
        if wanted(what):
            for name, read in found.items():
                if abs(read(rows) - whole[rows]).nnz:
                    raise SystemExit(f"{name} reads something else")
            works = {name: partial(read, rows) for name, read in found.items()}
            told(f"{what}, {layout}", len(rows), timed(works, arguments.rounds))
    if wanted("dense"):
        np.testing.assert_array_equal(m.to_dense(some), whole[some].toarray())
        works = {name: partial(_dense, read, some) for name, read in found.items()}
        works["gzarr"] = partial(m.to_dense, some)
        told(f"dense rows of runs, {layout}", len(some), timed(works, arguments.rounds))
    if wanted("columns"):
        if abs(m[mixed, chosen] - whole[mixed][:, chosen]).nnz:
            raise SystemExit("gzarr reads other columns")
        works = {name: partial(_columns, read, mixed, chosen) for name, read in found.items()}
        works["gzarr"] = partial(m.read, mixed, chosen)
        told(f"every tenth column of runs, {layout}", len(mixed), timed(works, arguments.rounds))
    if wanted("epoch"):
        # All of it: a part would leave out what is read ahead.
        batches = max(arguments.cells // BATCH, 1)
        for kind in ("dense", "sparse", "scaled"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                seconds = timed(loaders(path, layout, batches, kind), max(arguments.rounds // 2, 1))
            told(f"epoch in {kind} batches of {BATCH}, {layout}", batches * BATCH, seconds)


def _dense(read: Callable[..., Any], rows: np.ndarray[Any, Any]) -> Any:
    return read(rows).toarray()


def _columns(read: Callable[..., Any], rows: np.ndarray[Any, Any], columns: np.ndarray[Any, Any]) -> Any:
    return read(rows)[:, columns]


if __name__ == "__main__":
    main()
