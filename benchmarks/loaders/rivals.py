"""Other loaders for the benchmark of loaders, each as its own documentation advises.

Each function returns :class:`loaders.own.Opened`, or a reason why the loader has no such samples. Where a loader leaves
it to its user how much is read at once, it is about as many bytes as gzarr mixes: half of 256 MiB.
"""

from __future__ import annotations

import collections
import math
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from loaders.own import Opened, data_loader, loader, same, use_pipeline, zarr_arrays

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from loaders.scenarios import Scenario

_READ_BYTES = 128 << 20
#: Part of the data that a cache holds: where training is slow, data do not fit in memory.
_CACHED = 0.25


def _permuted(count: int, size: int, number: int) -> Iterator[Any]:
    order = np.random.Generator(np.random.PCG64(number)).permutation(count)
    return (order[at : at + size] for at in range(0, count, size))


# -- tensorstore


def _opened_by_tensorstore(scenario: Scenario, home: Path, threads: int, *, cached: bool) -> list[Any]:
    """Open the arrays, with a cache of their own if there is one."""
    import tensorstore as ts

    cache_bytes = int(_CACHED * scenario.nbytes) if cached else 0
    context = ts.Context(
        {"cache_pool": {"total_bytes_limit": cache_bytes}, "data_copy_concurrency": {"limit": threads}}
    )
    arrays = []
    for name in scenario.names:
        spec = {
            "driver": "zarr3",
            "kvstore": {"driver": "file", "path": str(home / "data.zarr" / name) + "/"},
            "recheck_cached_metadata": False,
            # What is cached is not compared with what is stored again.
            "recheck_cached_data": False,
        }
        array = ts.open(spec, context=context, read=True).result()
        array[(0,) * array.ndim].read().result()
        arrays.append(array)
    return arrays


def _read_by_tensorstore(scenario: Scenario, array: Any, numbers: Any, *, cached: bool) -> Any:
    """Begin to read the samples of a batch; return a future of one array."""
    import tensorstore as ts

    if scenario.kind == "rows" and cached:
        return array[numbers].read()
    if scenario.kind == "rows":
        views = [array[number] for number in numbers.tolist()]
    else:
        views = [array[selection].translate_to[(0,) * array.ndim] for selection in scenario.selections(numbers)]
    # Reads of a batch share what they read of the store.
    with ts.Batch() as batch:
        return ts.stack(views).read(batch=batch)


def _decoded_by_tensorstore(scenario: Scenario) -> Callable[[], int] | None:
    """Return a counter of decoded chunks. Of shards, it would count the indices, too."""
    import tensorstore as ts

    def decoded() -> int:
        found = ts.experimental_collect_matching_metrics("/tensorstore/cache/kvs_cache_read")
        values = [value for one in found for value in one["values"] if "changed" in value.values()]
        return sum(int(value["value"]) for value in values)

    return None if scenario.shard else decoded


def tensorstore(scenario: Scenario, home: Path, threads: int, *, cached: bool) -> Opened:
    """Read batches of a permutation, each as one asynchronous read, two ahead."""
    opened = _opened_by_tensorstore(scenario, home, threads, cached=cached)

    def epoch(number: int) -> Iterator[list[Any]]:
        # No epoch finds what a former one has cached.
        arrays = _opened_by_tensorstore(scenario, home, threads, cached=cached) if cached else opened
        ahead: collections.deque[list[Any]] = collections.deque()
        for numbers in _permuted(len(scenario.origins), scenario.batch, number):
            ahead.append([_read_by_tensorstore(scenario, array, numbers, cached=cached) for array in arrays])
            if len(ahead) > 2:
                yield [future.result() for future in ahead.popleft()]
        while ahead:
            yield [future.result() for future in ahead.popleft()]

    return Opened(epoch, same, decoded=_decoded_by_tensorstore(scenario))


class TensorstoreSource:
    """A data source of grain: a sample by its number."""

    def __init__(self, scenario: Scenario, home: Path, threads: int) -> None:
        self.scenario = scenario
        self.arrays = _opened_by_tensorstore(scenario, home, threads, cached=True)

    def __len__(self) -> int:
        return len(self.scenario.origins)

    def __getitem__(self, number: Any) -> tuple[Any, ...]:
        (selection,) = self.scenario.selections([int(number)])
        if self.scenario.kind == "rows":
            return tuple(array[selection[0].start].read().result() for array in self.arrays)
        futures = [array[selection].read() for array in self.arrays]
        return tuple(future.result() for future in futures)


def grain(scenario: Scenario, home: Path, threads: int) -> Opened:
    """Read samples in a global order, in 16 threads (the default), by tensorstore with a cache."""
    import grain.python as pygrain

    # 500 samples ahead is the default, for samples of 1 to 10 KiB.
    ahead = int(np.clip(_READ_BYTES // scenario.sample_nbytes, 16, 500))
    options = pygrain.ReadOptions(num_threads=16, prefetch_buffer_size=ahead)

    def epoch(number: int) -> Iterator[Any]:
        source = TensorstoreSource(scenario, home, threads)
        shuffled = pygrain.MapDataset.source(source).shuffle(seed=number)
        return iter(shuffled.to_iter_dataset(options).batch(scenario.batch, drop_remainder=False))

    return Opened(epoch, list, decoded=_decoded_by_tensorstore(scenario))


# -- annbatch, insitubatch, scDataset, xbatcher, MONAI


def annbatch(scenario: Scenario, home: Path, threads: int) -> Opened | str:
    """Read runs of rows in a random order, by the pipeline of zarrs."""
    if scenario.kind != "rows":
        return "its samples are rows"
    import annbatch as library

    arrays = zarr_arrays(scenario, home, "zarrs", threads)
    # As in its tutorial, runs are aligned with the chunks of a dense array; the default is 32 of 512 rows.
    run = scenario.chunk[0]
    many = int(np.clip(_READ_BYTES // (run * scenario.sample_nbytes), 1, len(scenario.origins) // run))
    # What is read at once must be whole batches.
    step = scenario.batch // math.gcd(run, scenario.batch)
    many = max(many // step, 1) * step
    batches = library.Loader(
        chunk_size=run,
        preload_nchunks=many,
        batch_size=scenario.batch,
        shuffle=True,
        preload_to_gpu=False,
        to=None,
    ).add_datasets(arrays)
    return Opened(lambda number: iter(batches), lambda batch: [batch["X"]], together=run * many)


def insitubatch(scenario: Scenario, home: Path, threads: int) -> Opened | str:
    """Read blocks of 16 chunks (the default) in a random order."""
    if scenario.kind not in ("rows", "windows"):
        return "its samples are indices along one axis"
    import insitubatch as library

    store = library.obstore_store(f"file://{(home / 'data.zarr').resolve()}")
    plain = library.open_geometries(store, variables=list(scenario.names))
    steps = scenario.window[0] if scenario.kind == "windows" else 1
    shifted = {f"{name}+{k}": plain[name].shift(k) for name in scenario.names for k in range(steps)}
    first = plain[scenario.names[0]]

    def epoch(number: int) -> Iterator[Any]:
        # No epoch finds what a former one has cached.
        dataset = library.InSituDataset(
            store,
            library.split_by_chunk(first, fractions=(1.0, 0.0, 0.0)),
            geometries=shifted,
            batch_size=scenario.batch,
            block_chunks=max(16, 4 * scenario.batch // first.chunks[0]),
        )
        dataset.set_epoch(number)
        for batch in dataset.train:
            labels = [[f"{name}+{k}" for k in range(steps)] for name in scenario.names]
            yield [batch.stack(some) if scenario.kind == "windows" else batch.arrays[some[0]] for some in labels]

    return Opened(epoch, same, together=None if steps > 1 else 0)


def scdataset(scenario: Scenario, home: Path, threads: int) -> Opened | str:
    """Read blocks of rows in a random order, many batches at once, by tensorstore."""
    if scenario.kind not in ("rows", "windows"):
        return "blocks of neighbouring samples are runs along one axis"
    import tensorstore as ts
    from scdataset import BlockShuffling, scDataset

    arrays = _opened_by_tensorstore(scenario, home, threads, cached=False)
    steps = scenario.window[0] if scenario.kind == "windows" else 1

    def fetch(collection: Any, numbers: Any) -> list[Any]:
        # The numbers are sorted: each run of neighbours is one read.
        cuts = np.flatnonzero(np.diff(numbers) != 1) + 1
        runs = [(int(run[0]), int(run[-1]) + steps) for run in np.split(np.asarray(numbers), cuts)]
        result = []
        for array in arrays:
            views = [array[begin:end].translate_to[(0,) * array.ndim] for begin, end in runs]
            read = np.asarray(ts.concat(views, axis=0).read().result())
            # Of each run, the first step of each sample.
            ends = np.cumsum([end - begin for begin, end in runs])
            firsts = [
                np.arange(at - (end - begin), at - steps + 1) for at, (begin, end) in zip(ends, runs, strict=True)
            ]
            result.append((read, np.concatenate(firsts)))
        return result

    def take(parts: list[Any], numbers: Any) -> list[Any]:
        if steps == 1:
            return [read[firsts[numbers]] for read, firsts in parts]
        return [read[firsts[numbers][:, None] + np.arange(steps)] for read, firsts in parts]

    count = len(scenario.origins)
    fetched = int(np.clip(_READ_BYTES // (scenario.sample_nbytes * scenario.batch), 1, count // scenario.batch))
    dataset = scDataset(
        range(count),
        BlockShuffling(block_size=max(scenario.chunk[0], 8)),
        batch_size=scenario.batch,
        fetch_factor=fetched,
        fetch_callback=fetch,
        batch_callback=take,
        seed=0,
    )
    return Opened(lambda number: iter(dataset), same, together=fetched * scenario.batch)


def xbatcher(scenario: Scenario, home: Path, threads: int) -> Opened | str:
    """Read samples of a permutation, each by its own selection of xarray, by the pipeline of zarrs."""
    if scenario.kind == "random":
        return "its samples lie on a grid"
    import torch
    import xarray
    import xbatcher as library
    import xbatcher.loaders.torch

    use_pipeline("zarrs", threads)
    data = xarray.open_zarr(str(home / "data.zarr"), chunks=None, consolidated=False)
    dimensions = data[scenario.names[0]].dims
    inputs = dict(zip(dimensions, scenario.window, strict=True))
    overlap = {dimensions[0]: scenario.window[0] - 1} if scenario.kind == "windows" else {}

    def tensor(sample: Any) -> Any:
        stacked = np.stack([sample[name].values for name in scenario.names])
        return torch.from_numpy(stacked[:, 0] if scenario.kind == "rows" else stacked)

    samples = library.loaders.torch.MapDataset(
        library.BatchGenerator(data, inputs, input_overlap=overlap), transform=tensor
    )
    batches = torch.utils.data.DataLoader(samples, batch_size=scenario.batch, shuffle=True)
    # One tensor: the variables are the second axis.
    return Opened(
        lambda number: iter(batches),
        lambda batch: [batch[:, i] for i in range(len(scenario.names))],
        together=1,
    )


class _WithChannel:
    """An array of zarr-python with a first axis of one channel, which MONAI expects."""

    def __init__(self, array: Any) -> None:
        self._array = array
        self.shape, self.ndim = (1, *array.shape), array.ndim + 1

    def __getitem__(self, selection: Any) -> Any:
        return self._array[selection[1:]][None]


def monai(scenario: Scenario, home: Path, threads: int) -> Opened | str:
    """Read the patches of the grid in order, by the pipeline of zarrs, through a shuffle buffer of 256 of them."""
    if scenario.kind != "grid":
        return (
            "its random crops are cut from volumes in memory"
            if scenario.kind == "random"
            else "its samples are patches"
        )
    from monai.data import DataLoader, GridPatchDataset, PatchIter, ShuffleBuffer

    (array,) = zarr_arrays(scenario, home, "zarrs", threads)
    patches = GridPatchDataset([_WithChannel(array)], PatchIter(scenario.window, mode=None), with_coordinates=False)

    def epoch(number: int) -> Iterator[Any]:
        size = max(_READ_BYTES // scenario.sample_nbytes, 1)
        return iter(DataLoader(ShuffleBuffer(patches, buffer_size=size, seed=number), batch_size=scenario.batch))

    return Opened(epoch, lambda batch: [batch[:, 0]], together=1)


#: gzarr's columns; ``gzarr fresh`` keeps no memory of former results, like its rivals.
OWN: dict[str, Callable[..., Opened | str]] = {
    "gzarr": loader,
    "gzarr fresh": loader,
    "gzarr listed": partial(loader, listed=True),
    "gzarr full": partial(loader, shuffle="full"),
    "gzarr DataLoader": partial(data_loader, library="gzarr", workers=0),
    "gzarr DataLoader 2": partial(data_loader, library="gzarr", workers=2),
}
RIVALS: dict[str, Callable[..., Opened | str]] = {
    "annbatch": annbatch,
    "insitubatch": insitubatch,
    "scDataset": scdataset,
    "xbatcher": xbatcher,
    "MONAI": monai,
    "grain": grain,
    "tensorstore": partial(tensorstore, cached=False),
    "tensorstore cache": partial(tensorstore, cached=True),
    "zarr-python": partial(data_loader, library="zarr-python", workers=0),
    "zarr-python 2": partial(data_loader, library="zarr-python", workers=2),
    "zarrs": partial(data_loader, library="zarrs", workers=0),
    "zarrs 2": partial(data_loader, library="zarrs", workers=2),
}
COLUMNS = {**OWN, **RIVALS}
#: Packages that a column needs beside NumPy; in the order in which their versions are printed.
PACKAGES = {
    "annbatch": ("annbatch", "zarrs"),
    "insitubatch": ("insitubatch",),
    "scDataset": ("scDataset", "tensorstore", "torch"),
    "xbatcher": ("xbatcher", "torch", "zarrs"),
    "MONAI": ("monai", "torch", "zarrs"),
    "grain": ("grain", "tensorstore"),
    "tensorstore": ("tensorstore",),
    "tensorstore cache": ("tensorstore",),
    "zarr-python": ("torch", "zarr"),
    "zarr-python 2": ("torch", "zarr"),
    "zarrs": ("torch", "zarrs"),
    "zarrs 2": ("torch", "zarrs"),
    "gzarr DataLoader": ("torch",),
    "gzarr DataLoader 2": ("torch",),
}


def left_out(name: str, scenario: Scenario) -> str | None:
    """Return why a column of gzarr's has no such scenario."""
    if name == "gzarr listed" and scenario.kind != "random":
        return "only random windows have places that can be listed"
    return None
