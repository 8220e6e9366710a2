"""Speed of batches on a GPU: a loader's, beside a plain read of the same array and PyTorch's ``DataLoader``.

    python benchmarks/gpu loader                       512 MiB per array, about two minutes
    python benchmarks/gpu loader --codec zstd --mib 4096 --json loader.json

Samples are windows of 64³ of a volume of camera images in chunks of 64³, 16 to a batch: side by side (``grid``) and
anywhere (``anywhere``), in a shuffled order. ``read`` is ``array[...]`` to the device: what batches can reach at most.
``pinned`` are batches on a grid that are read to page-locked host memory (``pin_memory=True``) and copied to the device
while the next ones are read. ``DataLoader`` is PyTorch's, with processes that read by ``gzarr.loader.Dataset`` into
host memory; each batch is copied to the device. The first epoch of each is compared with the data, and warms caches;
the median of the others is reported, in GB of samples per second.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import fields
import numpy as np
from report import as_table
from workloads import LITTLE, Dataset, _zstd, blosc, default_data_dir

from gpu.steps import Steps
from gpu.write import failed_as_a_whole, on_device, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from gzarr.engines.cuda.device_protocol import Device

WAYS: Final = ("read", "grid", "anywhere", "pinned", "DataLoader")
BATCH: Final = 16


def datasets(nbytes: int, side: int = 512, window: int = 64) -> list[Dataset]:
    """Return the arrays, of about ``nbytes`` each; ``window`` is the length of chunks and samples."""
    shape = (max(1, nbytes // (2 * side * side * window)) * window, side, side)
    chunks, shard = (window,) * 3, (window, min(2 * window, side), min(2 * window, side))
    return [
        Dataset("blosc-lz4", fields.camera_u2, "u2", shape, chunks, (LITTLE, blosc("lz4", "shuffle", 2))),
        Dataset("zstd", fields.camera_u2, "u2", shape, chunks, (LITTLE, _zstd())),
        Dataset("zstd in shards", fields.camera_u2, "u2", shape, chunks, (LITTLE, _zstd()), shard_shape=shard),
    ]


def ways(path: Path, dataset: Dataset, device: Device, workers: int) -> dict[str, Callable[[], Iterator[Any]]]:
    """Return functions that begin an epoch, by name: of batches with ``origins``, or of the whole array."""
    import gzarr
    from gzarr.loader import Loader, Patches

    array = gzarr.open_array(path, device=device.name)
    window = dataset.chunk_shape
    grid = Loader(array, Patches(window), batch_size=BATCH, drop_last=False)
    anywhere = Loader(array, Patches(window, jitter=True, pad=None), batch_size=BATCH, drop_last=False)
    host = gzarr.open_array(path, device="cpu")
    pinned = Loader(host, Patches(window), batch_size=BATCH, drop_last=False, pin_memory=True)
    found: dict[str, Callable[[], Iterator[Any]]] = {
        "read": lambda: iter([array[...]]),
        "grid": lambda: iter(grid),
        "anywhere": lambda: iter(anywhere),
        "pinned": lambda: _copied(pinned, device),
    }
    if workers:
        found["DataLoader"] = _by_processes(path, window, device, workers)
    return found


def _copied(batches: Iterable[Any], device: Device) -> Iterator[tuple[list[int], Any]]:
    """Yield samples' numbers, and their elements as copies of page-locked batches, which are only enqueued."""
    for batch in batches:
        elements, stream = batch["data"], device.current_stream()
        memory = device.allocate(elements.nbytes, stream)
        device.copy_in(memory, elements.reshape(-1).view(np.uint8), stream)
        yield batch.samples.tolist(), device.shaped(memory, elements.dtype, elements.shape)


def _by_processes(path: Path, window: tuple[int, ...], device: Device, workers: int) -> Callable[[], Iterator[Any]]:
    """Return the function for ``DataLoader``: its batches are pairs of samples' numbers and elements on the device."""
    import torch

    import gzarr
    from gzarr.loader import Dataset as Samples
    from gzarr.loader import Patches

    samples = Samples(gzarr.open_array(path, device="cpu"), Patches(window))
    # A process that has used a GPU cannot be forked.
    options = {"num_workers": workers, "multiprocessing_context": "spawn", "persistent_workers": True}
    sampler = torch.utils.data.BatchSampler(torch.utils.data.RandomSampler(samples), BATCH, drop_last=False)
    batches = torch.utils.data.DataLoader(
        _Numbered(samples), batch_size=None, sampler=sampler, collate_fn=_as_it_is, **options
    )
    return lambda: ((numbers, on_device(device, elements)) for numbers, elements in batches)


def _as_it_is(batch: Any) -> Any:
    return batch


class _Numbered:
    """Samples of a data set, with their numbers."""

    def __init__(self, samples: Any) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, numbers: list[int]) -> tuple[list[int], Any]:
        return numbers, np.stack([sample["data"] for sample in self._samples.__getitems__(numbers)])


def check(way: str, epoch: Iterator[Any], host: np.ndarray[Any, Any], window: tuple[int, ...], device: Device) -> None:
    """Compare all samples of an epoch with the data.

    Raises
    ------
    AssertionError
        If one is wrong, missing or there twice.
    """
    stream = device.current_stream()
    grid = [range(0, n - w + 1, w) for n, w in zip(host.shape, window, strict=True)]
    corners = list(itertools.product(*grid))
    seen: list[tuple[int, ...]] = []
    for batch in epoch:
        if way == "read":
            seen = corners
            right = np.array_equal(device.to_host(batch, stream), host)
        else:
            numbered = isinstance(batch, tuple)
            elements = device.to_host(batch[1] if numbered else batch["data"], stream)
            origins = [corners[i] for i in batch[0]] if numbered else [tuple(o) for o in batch.origins.tolist()]
            seen += origins
            right = all(
                np.array_equal(sample, host[tuple(slice(o, o + n) for o, n in zip(origin, window, strict=True))])
                for origin, sample in zip(origins, elements, strict=True)
            )
        if not right:
            raise AssertionError("WRONG RESULT")
    if len(seen) != len(corners) or (way != "anywhere" and set(seen) != set(corners)):
        raise AssertionError(f"{len(seen)} samples, {len(set(seen))} of them different, instead of {len(corners)}")


def measure(
    device: Device,
    dataset: Dataset,
    folder: Path,
    seconds: float,
    rounds: int,
    workers: int,
    steps: Steps | None = None,
) -> dict[str, Any]:
    """Check and time the ways to read one array; return figures by name, or errors."""
    import gzarr

    steps = steps or Steps()
    deadline = time.monotonic() + seconds
    window = dataset.chunk_shape
    host = np.tile(fields.make(dataset.field, (window[0], *dataset.shape[1:])), (dataset.shape[0] // window[0], 1, 1))
    name, document = dataset.document()
    (folder / name).write_text(json.dumps(document))
    gzarr.open_array(folder, mode="r+", device="cpu")[...] = host
    all_of: dict[str, dict[str, Any]] = {
        way: {"right": False, "error": why} for way, why in steps.failed(dataset.name).items()
    }
    found: dict[str, Any] = {"nbytes": host.nbytes, "codecs": dataset.codecs, "ways": all_of}
    begin = ways(folder, dataset, device, workers)
    times: dict[str, list[float]] = {}
    for way, epoch in begin.items():
        if way in all_of:
            continue
        steps.begin(dataset.name, way)
        try:
            check(way, epoch(), host, window, device)
            all_of[way] = {"right": True}
            times[way] = []
        except Exception as error:  # a way that fails is a line of the table, not the end of the run
            all_of[way] = {"right": False, "error": steps.error(error)}
        steps.found(dataset.name, found)
    for turn in range(rounds):
        for way, done in list(times.items()):
            # Each is timed at least once.
            if turn and time.monotonic() > deadline:
                continue
            steps.begin(dataset.name, way)
            start = time.perf_counter()
            try:
                for _ in begin[way]():
                    pass
                device.current_stream().synchronize()
            except Exception as error:  # the others go on
                del times[way]
                all_of[way] = {"right": False, "error": steps.error(error)}
                continue
            done.append(time.perf_counter() - start)
            median = statistics.median(done)
            all_of[way] |= {"ms": 1e3 * median, "gb_per_s": host.nbytes / median / 1e9, "rounds": len(done)}
        steps.found(dataset.name, found)
    return found


def table(results: dict[str, dict[str, Any]]) -> str:
    """Return the plain text table: GB of samples per second, and the share of what a read reaches."""
    rows = [["GB/s", *WAYS, "grid / read", "anywhere / read"]]
    for name, found in results.items():
        speed = {way: figures.get("gb_per_s") for way, figures in found["ways"].items()}
        cells = [f"{speed[way]:.2f}" if speed.get(way) else "failed" if way in speed else "-" for way in WAYS]
        shares = [
            f"{speed[way] / speed['read']:.2f}" if speed.get(way) and speed.get("read") else "-" for way in WAYS[1:3]
        ]
        rows.append([name, *cells, *shares])
    errors = [
        f"{name}, {way}: {figures['error']}"
        for name, found in results.items()
        for way, figures in found["ways"].items()
        if not figures["right"]
    ]
    return "\n".join([as_table(rows), *errors])


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--mib", type=int, default=512, help="size of each array (default 512)")
    found.add_argument("--side", type=int, default=512, help="length of each row and column (default 512)")
    found.add_argument("--seconds", type=float, default=120.0, help="approximate time limit (default 120)")
    found.add_argument("--rounds", type=int, default=5, help="timed epochs, at most (default 5)")
    found.add_argument("--workers", type=int, default=min(16, os.cpu_count() or 1), help="processes of DataLoader")
    found.add_argument("--codec", action="append", metavar="TEXT", help="only arrays whose name contains TEXT")
    found.add_argument("--data", type=Path, default=default_data_dir(), help="directory for the arrays")
    found.add_argument("--json", type=Path, metavar="FILE")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; return 1 if there is no device, or a way to read failed."""
    arguments = parser().parse_args(argv)
    found = run(
        "loader", argv, arguments, datasets(arguments.mib << 20, arguments.side, min(64, arguments.side // 2)),
        lambda device, dataset, folder, seconds, steps: measure(
            device, dataset, folder, seconds, arguments.rounds, arguments.workers, steps
        ),
    )  # fmt: skip
    if found is None:
        return 0
    print(table(found.figures))
    wrong = any(not figures["right"] for one in found.figures.values() for figures in one["ways"].values())
    return int(failed_as_a_whole(found) or wrong)


if __name__ == "__main__":
    sys.exit(main())
