"""Two processes that train one model by PyTorch's DDP over gloo: gzarr.Loader beside DataLoader and DistributedSampler.

    python benchmarks/loader_ddp.py

Images of 64 x 64 x 3 bytes in chunks of 32, Blosc-lz4, in local files with a warm page cache. Each process takes half
of the samples of an epoch, shuffled, in batches of 64; a small network is trained on them. The rivals are PyTorch's
``DataLoader`` over zarr-python with ``DistributedSampler``, with one worker process and with none; gzarr's own dataset
in the same ``DataLoader``; and batches in memory, the bound. All are read in turn, for some rounds; medians are given.
``DistributedSampler`` shuffles all samples, so each needs a chunk of its own; the loader mixes blocks of chunks.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import zarr
from torch.utils.data import DataLoader, DistributedSampler

import gzarr
from gzarr.loader import Dataset, Loader

if TYPE_CHECKING:
    from collections.abc import Iterator

IMAGES, SIDE, BATCH, RANKS = 8192, 64, 64, 2


class _ZarrImages(torch.utils.data.Dataset[Any]):  # type: ignore[misc]
    """What one writes over zarr-python."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._array: Any = None

    def __len__(self) -> int:
        return IMAGES

    def __getitem__(self, number: int) -> Any:
        if self._array is None:
            # In the worker.
            self._array = zarr.open_array(self._path, mode="r")
        return torch.from_numpy(np.asarray(self._array[number]))


def _batches(way: str, path: str, rank: int, epoch: int, loaders: dict[str, Any]) -> Iterator[Any]:
    if way == "in memory":
        batch = torch.zeros((BATCH, SIDE, SIDE, 3), dtype=torch.uint8)
        for _ in range(IMAGES // RANKS // BATCH):
            yield batch
        return
    if way == "gzarr.Loader":
        if way not in loaders:
            loaders[way] = Loader(path, batch_size=BATCH, rank=rank, world_size=RANKS, like="torch")
        for batch in loaders[way]:
            yield batch["data"]
        return
    if way not in loaders:
        dataset: Any = Dataset(path) if way == "gzarr Dataset" else _ZarrImages(path)
        sampler: Any = DistributedSampler(dataset, RANKS, rank, shuffle=True)
        workers = 1 if way == "zarr-python, 1 worker" else 0
        loaders[way] = (
            sampler,
            DataLoader(
                dataset, BATCH, sampler=sampler, num_workers=workers, drop_last=True, persistent_workers=workers > 0
            ),
        )
    sampler, loader = loaders[way]
    sampler.set_epoch(epoch)
    for batch in loader:
        yield torch.as_tensor(batch["data"]) if isinstance(batch, dict) else batch


WAYS = ("gzarr.Loader", "gzarr Dataset", "zarr-python, 1 worker", "zarr-python, no worker", "in memory")


def _train(rank: int, path: str, rounds: int, results: Any) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{path}.rendezvous", rank=rank, world_size=RANKS)
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(torch.nn.AvgPool2d(8), torch.nn.Flatten(), torch.nn.Linear(3 * (SIDE // 8) ** 2, 10))
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    loaders: dict[str, Any] = {}
    for epoch in range(rounds + 1):
        for way in WAYS:
            dist.barrier()
            begin, count = time.perf_counter(), 0
            for images in _batches(way, path, rank, epoch, loaders):
                x = images.permute(0, 3, 1, 2).float() / 255
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()
                count += len(images)
            dist.barrier()
            # The first round starts workers and fills caches.
            if rank == 0 and epoch:
                results.put((way, RANKS * count / (time.perf_counter() - begin)))
    dist.destroy_process_group()


def main() -> None:
    """Print samples per second of both processes together."""
    parser = argparse.ArgumentParser(description="Measure loaders of two processes that train by DDP.")
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    os.environ["GZARR_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as root:
        path = f"{root}/images.zarr"
        images = np.random.default_rng(0).integers(0, 64, (IMAGES, SIDE, SIDE, 3)).astype("u1")
        gzarr.create_array(path, data=images, chunks=(32, SIDE, SIDE, 3), codecs="blosc")
        results = mp.get_context("spawn").SimpleQueue()
        mp.spawn(_train, args=(path, rounds, results), nprocs=RANKS)
        found: dict[str, list[float]] = {}
        while not results.empty():
            way, rate = results.get()
            found.setdefault(way, []).append(rate)
    ours = statistics.median(found["gzarr.Loader"])
    for way in WAYS:
        median = statistics.median(found[way])
        print(f"{way:24} {median:9.0f} samples/s; gzarr.Loader is {ours / median:5.2f} times as fast")


if __name__ == "__main__":
    main()
