"""Loaders inside of PyTorch's and torchdata's, batches as tensors of PyTorch and arrays of JAX."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support import devices
from support.loaders import DATA, ROWS, opened

import gzarr
from gzarr.loader import Dataset, Loader, Patches, Rows, Windows

if TYPE_CHECKING:
    from pathlib import Path

    from support.devices import TestedDevice

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

# Small buffers, to have many blocks.
pytestmark = pytest.mark.filterwarnings("ignore:shuffling is coarse")


def as_it_is(value: Any) -> Any:
    """Collate nothing; spawned workers need a name for it."""
    return value


# -- samples by number


def test_samples_by_number(root: Path) -> None:
    dataset = Dataset(opened(root))
    assert len(dataset) == ROWS
    assert np.array_equal(dataset[-1]["x"], DATA[-1])
    some = dataset.__getitems__([5, 2, 5])
    assert [int(sample["y"]) for sample in some] == [5, 2, 5]
    assert np.array_equal(some[1]["x"], DATA[2])
    assert sum(1 for _ in dataset) == ROWS
    for wrong in (ROWS, -ROWS - 1):
        with pytest.raises(IndexError):
            dataset[wrong]
    with pytest.raises(gzarr.SelectionError):
        dataset.__getitems__([0, ROWS])
    with pytest.raises(gzarr.ArgumentError, match="weights"):
        Dataset(gzarr.open_array(root / "x"), Patches((1, 1), where=[(0, 0)], weights=[1]))
    steps = Dataset(opened(root), Windows(0, {"a": (0, 1), "b": (2, 2)}))
    assert steps[7]["b"]["y"].tolist() == [9]


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_the_workers_of_a_dataloader_read_samples(root: Path, context: str) -> None:
    dataset = Dataset(opened(root))
    # A read in the parent first: its threads do not exist in a forked child.
    dataset[0]
    loader = torch.utils.data.DataLoader(
        dataset, batch_size=32, shuffle=True, num_workers=2, multiprocessing_context=context
    )
    seen = []
    for batch in loader:
        assert torch.equal(batch["x"], torch.from_numpy(DATA)[batch["y"]])
        seen.extend(batch["y"].tolist())
    assert sorted(seen) == list(range(ROWS))


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (2, True)])
def test_random_places_of_a_dataset_differ_in_each_epoch(root: Path, workers: int, persistent: bool) -> None:
    dataset = Dataset(gzarr.open_array(root / "y"), Patches((1,), stride=(100,), jitter=True))
    loader = torch.utils.data.DataLoader(dataset, batch_size=1, num_workers=workers, persistent_workers=persistent)
    epochs = [[int(batch["data"]) for batch in loader] for _ in range(4)]
    assert len({tuple(epoch) for epoch in epochs}) == 4
    # Each sample stays in its cell, and is elsewhere in it.
    assert all(100 * i <= place < 100 * (i + 1) for epoch in epochs for i, place in enumerate(epoch))
    assert all(len({epoch[i] for epoch in epochs}) > 1 for i in range(5))
    dataset.set_epoch(7)
    assert len({tuple(int(batch["data"]) for batch in loader) for _ in range(2)}) == (1 if not persistent else 2)
    with pytest.raises(gzarr.ArgumentError, match="epoch must be an integer of at least 0"):
        dataset.set_epoch(-1)


# -- batches in workers


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("shuffle", ["blocks", "full", False])
def test_a_dataloader_gives_out_each_sample_once(root: Path, workers: int, shuffle: Any) -> None:
    from gzarr.loader.torch import IterableLoader

    dataset = IterableLoader(
        Loader(opened(root), Rows(), batch_size=16, shuffle=shuffle, drop_last=False, buffer_bytes=6000)
    )
    loader = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=workers, persistent_workers=workers > 0)
    epochs = []
    for _ in range(2):
        seen = []
        for batch in loader:
            assert torch.equal(batch["x"], torch.from_numpy(DATA)[batch["y"]])
            seen.extend(batch["y"].tolist())
        assert sorted(seen) == list(range(ROWS))
        epochs.append(seen)
    assert (epochs[0] == epochs[1]) == (shuffle is False)


def test_workers_that_fill_no_batch_are_an_error(root: Path) -> None:
    from gzarr.loader.torch import IterableLoader

    dataset = IterableLoader(Loader(opened(root), Rows(), batch_size=300))
    assert len(list(torch.utils.data.DataLoader(dataset, batch_size=None))) == len(dataset) == 1
    with pytest.raises(gzarr.ArgumentError, match="500 samples, and one batch of 300 for 1 rank of 2 workers"):
        list(torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=2))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("steps", [0, 1, 6, 13])
def test_a_stateful_dataloader_resumes_exactly(root: Path, workers: int, steps: int) -> None:
    from torchdata.stateful_dataloader import StatefulDataLoader

    from gzarr.loader.torch import IterableLoader

    def made() -> Any:
        dataset = IterableLoader(Loader(opened(root), Rows(), batch_size=16, drop_last=False, buffer_bytes=6000))
        return StatefulDataLoader(dataset, batch_size=None, num_workers=workers)

    whole = [batch["y"].tolist() for batch in made()]
    loader = made()
    batches = iter(loader)
    for _ in range(steps):
        next(batches)
    state = loader.state_dict()
    rest = [batch["y"].tolist() for batch in batches]
    assert rest == whole[steps:]
    resumed = made()
    resumed.load_state_dict(state)
    assert [batch["y"].tolist() for batch in resumed] == rest


# -- tensors


# PyTorch's build for the CPU takes nothing of a device.
@pytest.mark.parametrize("device", devices.KINDS if devices.ON_GPU else devices.KINDS[:1], indirect=True)
@pytest.mark.parametrize("copy", [True, False])
def test_batches_are_tensors(root: Path, device: TestedDevice, copy: bool) -> None:
    arrays = {name: device.open(root / name) for name in "xy"}
    seen = []
    for batch in Loader(arrays, batch_size=16, like="torch", copy=copy, drop_last=False, transform=as_it_is):
        assert isinstance(batch["x"], torch.Tensor)
        assert batch["y"].tolist() == batch.samples.tolist()
        seen.extend(batch.samples.tolist())
    assert sorted(seen) == list(range(ROWS))


def test_batches_are_arrays_of_jax(root: Path) -> None:
    import jax

    (batch, *_) = Loader(gzarr.open_array(root / "x"), batch_size=16, like="jax", shuffle=False)
    assert isinstance(batch["data"], jax.Array)
    assert np.array_equal(np.asarray(batch["data"]), DATA[:16])


def test_libraries_that_do_not_fit_are_refused(root: Path) -> None:
    array = gzarr.open_array(root / "x")
    for like, message in [("tensorflow", "like must be"), ("cupy", "leave like= out")]:
        with pytest.raises(gzarr.ArgumentError, match=message):
            Loader(array, like=like)  # type: ignore[arg-type]
    assert next(iter(Loader(array, like="numpy")))["data"].shape == (1, 2, 3)


def test_a_state_is_json(root: Path) -> None:
    loader = Loader(opened(root), Rows(), batch_size=16)
    next(iter(loader))
    assert json.loads(json.dumps(loader.state_dict())) == loader.state_dict()
