"""gzarr's columns in the benchmark of loaders, and PyTorch's ``DataLoader`` over arrays of some libraries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from loaders.scenarios import Scenario

    Iterate = Callable[[int], Iterator[Any]]

#: What zarr-python's ``codec_pipeline.path`` is for each way of decoding.
PIPELINES = {
    "zarr-python": "zarr.core.codec_pipeline.FusedCodecPipeline",
    "zarrs": "zarrs.ZarrsCodecPipeline",
}


@dataclass
class Opened:
    """A loader of one scenario, ready to be iterated over.

    Attributes
    ----------
    epoch
        Returns an iterator over the batches of an epoch, by its number.
    parts
        Returns the arrays of a batch in the order of the scenario's names.
    together
        Consecutive samples whose chunks are read together, each once: what amplification is reckoned from. 0 if each
        chunk is read once an epoch, None if that is not known.
    origins
        Returns the first elements of a batch's samples, if the loader chooses them.
    amplification
        Returns the amplification, if the loader knows it.
    decoded
        Returns how many chunks were decoded until now, if the library counts them.
    bound
        Most bytes that the loader promises to hold.
    """

    epoch: Iterate
    parts: Callable[[Any], list[Any]]
    together: int | None = None
    origins: Callable[[Any], Any] | None = None
    amplification: Callable[[], float] | None = None
    decoded: Callable[[], int] | None = None
    bound: int | None = None


def loader(scenario: Scenario, home: Path, threads: int, *, shuffle: str = "blocks", listed: bool = False) -> Opened:
    """Return ``gzarr.Loader``; ``listed`` takes the places of random windows that the rivals take."""
    import gzarr
    from gzarr.loader import Loader

    arrays = {name: gzarr.open_array(home / "data.zarr" / name, device="cpu") for name in scenario.names}
    for array in arrays.values():
        _ = array[(slice(0, 1),) * array.ndim]
    free = scenario.kind == "random" and not listed
    buffer_bytes, prefetch = 256 << 20, 2
    made = Loader(
        arrays,
        _sampler(scenario, listed=listed),
        batch_size=scenario.batch,
        shuffle=shuffle,  # type: ignore[arg-type]
        buffer_bytes=buffer_bytes,
        prefetch=prefetch,
        drop_last=False,
    )
    explained: list[float] = []

    def amplification() -> float:
        if not explained:
            explained.append(made.explain().amplification)
        return explained[0]

    def parts(batch: Any) -> list[Any]:
        return [(batch["x"] if scenario.kind == "windows" else batch)[name] for name in scenario.names]

    return Opened(
        lambda number: iter(made),
        parts,
        origins=(lambda batch: batch.origins) if free else None,
        amplification=amplification,
        bound=buffer_bytes + (prefetch + 1) * scenario.batch * scenario.sample_nbytes,
    )


def _sampler(scenario: Scenario, *, listed: bool) -> Any:
    from gzarr.loader import Patches, Rows, Windows

    if scenario.kind == "rows":
        return Rows()
    if scenario.kind == "windows":
        return Windows(0, {"x": (0, scenario.window[0] - 1)})
    if scenario.kind == "grid":
        return Patches(scenario.window)
    if listed:
        return Patches(scenario.window, pad=None, where=scenario.origins)
    return Patches(scenario.window, jitter=True, pad=None)


# -- PyTorch's DataLoader


class Samples:
    """A map-style dataset of samples of zarr-python's arrays, which reads a batch at once where that is possible."""

    def __init__(self, scenario: Scenario, home: Path, pipeline: str, threads: int) -> None:
        self.scenario, self.home, self.pipeline, self.threads = scenario, home, pipeline, threads
        self.arrays: list[Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Each process opens the arrays itself.
        return self.__dict__ | {"arrays": None}

    def __len__(self) -> int:
        return len(self.scenario.origins)

    def open(self) -> list[Any]:
        if self.arrays is None:
            self.arrays = zarr_arrays(self.scenario, self.home, self.pipeline, self.threads)
        return self.arrays

    def __getitem__(self, number: int) -> Any:
        return self.__getitems__([number])

    def __getitems__(self, numbers: list[int]) -> list[Any]:
        import torch

        return [torch.from_numpy(read_batch(self.scenario, array, numbers)) for array in self.open()]


class OwnSamples:
    """``gzarr.loader.Dataset``, whose batches are stacked as those of :class:`Samples` are."""

    def __init__(self, scenario: Scenario, home: Path) -> None:
        import gzarr
        from gzarr.loader import Dataset

        arrays = {name: gzarr.open_array(home / "data.zarr" / name, device="cpu") for name in scenario.names}
        self.kind, self.names = scenario.kind, scenario.names
        self.dataset = Dataset(arrays, _sampler(scenario, listed=True))

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, number: int) -> Any:
        return self.dataset[number]

    def __getitems__(self, numbers: list[int]) -> list[Any]:
        return self.dataset.__getitems__(numbers)


def zarr_arrays(scenario: Scenario, home: Path, pipeline: str, threads: int) -> list[Any]:
    """Return the arrays by zarr-python with some codec pipeline."""
    import zarr

    use_pipeline(pipeline, threads)
    group = zarr.open_group(str(home / "data.zarr"), mode="r")
    arrays = [group[name] for name in scenario.names]
    for array in arrays:
        _ = array[(slice(0, 1),) * array.ndim]
    return arrays


def use_pipeline(pipeline: str, threads: int) -> None:
    """Choose zarr-python's codec pipeline for the process."""
    import zarr
    import zarr.core.codec_pipeline

    path = PIPELINES[pipeline]
    if path.startswith("zarr.") and not hasattr(zarr.core.codec_pipeline, path.rpartition(".")[2]):
        # Before zarr-python 3.4.
        path = "zarr.core.codec_pipeline.BatchedCodecPipeline"
    zarr.config.set({"codec_pipeline.path": path, "threading.max_workers": threads})


def read_batch(scenario: Scenario, array: Any, numbers: list[int]) -> Any:
    """Return the windows of some samples, by zarr-python: rows in one selection, others one by one."""
    if scenario.kind == "rows":
        return np.asarray(array.oindex[np.asarray(numbers)])
    return np.stack([array[selection] for selection in scenario.selections(numbers)])


def same(batch: Any) -> Any:
    """Return a batch that is stacked already."""
    return batch


def data_loader(scenario: Scenario, home: Path, threads: int, *, library: str, workers: int) -> Opened:
    """Return PyTorch's ``DataLoader``: batches of a permutation of all samples."""
    import torch

    dataset: Any = OwnSamples(scenario, home) if library == "gzarr" else Samples(scenario, home, library, threads)
    if library != "gzarr":
        # With workers, each process has its share of the threads.
        dataset.threads = max(threads // max(workers, 1), 1)
        if library == "zarr-python" or not workers:
            dataset.open()
    options: dict[str, Any] = {}
    if workers:
        # zarrs' threads do not survive a fork.
        context = "spawn" if library == "zarrs" else "fork"
        options = {"persistent_workers": True, "prefetch_factor": 2, "multiprocessing_context": context}
    batches = torch.utils.data.DataLoader(
        dataset,
        batch_size=scenario.batch,
        shuffle=True,
        num_workers=workers,
        # gzarr's samples are views of one batch, and stacked as any library's are.
        collate_fn=None if library == "gzarr" else same,
        **options,
    )

    def parts(batch: Any) -> list[Any]:
        if library != "gzarr":
            return list(batch)
        return [(batch["x"] if scenario.kind == "windows" else batch)[name] for name in scenario.names]

    per_batch = library == "gzarr" or scenario.kind == "rows"
    return Opened(lambda number: iter(batches), parts, together=scenario.batch if per_batch else 1)
