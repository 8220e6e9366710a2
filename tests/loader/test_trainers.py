"""Loaders inside of Lightning, Accelerate and grain; a training that was stopped goes on with the batch it had next."""

from __future__ import annotations

import copy
import json
import os
import pickle
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import accelerate
import grain.python as grain
import numpy as np
import pytest
import pytorch_lightning as lightning
import torch
from absl import flags
from accelerate.state import AcceleratorState
from support.loaders import DATA, ROWS, opened, rows
from torchdata.stateful_dataloader import StatefulDataLoader

import gzarr
from gzarr.loader import Dataset
from gzarr.loader.torch import IterableLoader

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).parents[2] / "docs" / "loader.md"

# Small buffers, to have many blocks.
pytestmark = pytest.mark.filterwarnings("ignore:shuffling is coarse")


# -- Lightning


class Model(lightning.LightningModule):
    """A model that remembers which samples it was trained with, and may stop after some steps."""

    def __init__(self, stop: int | None = None, checkpoint: Path | None = None, at_end: bool = False) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(6, 1)
        self.seen: list[tuple[int, int, list[int]]] = []
        self._stop, self._checkpoint, self._at_end = stop, checkpoint, at_end

    def training_step(self, batch: Any, index: int) -> Any:
        self.seen.append((self.current_epoch, index, batch["y"].tolist()))
        return self.layer(batch["x"].flatten(1) / DATA.max()).mean()

    def validation_step(self, batch: Any, index: int) -> None:
        pass

    def on_train_batch_end(self, *_: Any) -> None:
        if self.global_step == self._stop and not self._at_end:
            self._save()

    def on_train_epoch_end(self) -> None:
        if self.global_step == self._stop and self._at_end:
            self._save()

    def _save(self) -> None:
        assert self._checkpoint is not None
        self.trainer.save_checkpoint(self._checkpoint)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 1e-3)


def trainer(folder: Path, **options: Any) -> Any:
    return lightning.Trainer(
        accelerator="cpu",
        **({"max_epochs": 3} | options),
        default_root_dir=folder,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


@pytest.mark.parametrize("kind", ["loader", "stateful, 0 workers", "stateful, 2 workers"])
def test_lightning_goes_on_exactly(root: Path, tmp_path: Path, kind: str) -> None:
    def batches() -> Any:
        loader = rows(root, like="torch")
        if kind == "loader":
            return loader
        return StatefulDataLoader(IterableLoader(loader), batch_size=None, num_workers=int(kind.split()[1]))

    checkpoint = tmp_path / "model.ckpt"
    # In the middle of the second epoch of 32 batches.
    whole = Model(stop=37, checkpoint=checkpoint)
    trainer(tmp_path).fit(whole, batches())
    assert len(whole.seen) == 3 * 32
    for epoch in range(3):
        assert sorted(i for e, _, some in whole.seen if e == epoch for i in some) == list(range(ROWS))
    resumed = Model()
    trainer(tmp_path).fit(resumed, batches(), ckpt_path=checkpoint, weights_only=False)
    assert resumed.seen == whole.seen[37:]


def orders(root: Path, epochs: int) -> list[list[list[int]]]:
    """Return the rows of the batches of the first epochs."""
    plain = rows(root)
    return [[batch["y"].tolist() for batch in plain] for _ in range(epochs)]


@pytest.mark.parametrize("reload", [0, 1])
@pytest.mark.parametrize("validate", [False, True])
@pytest.mark.parametrize("at", ["first batch", "last batch", "end of the epoch"])
def test_lightning_goes_on_with_the_next_epoch(
    root: Path, tmp_path: Path, at: str, validate: bool, reload: int
) -> None:
    """A checkpoint of the end of an epoch, the usual one, has a state of the loader that Lightning does not load."""
    wanted = [some for epoch in orders(root, 4) for some in epoch]
    several: dict[str, Any] = {"max_epochs": 4, "reload_dataloaders_every_n_epochs": reload}

    def fitted(model: Model, **options: Any) -> list[list[int]]:
        valid = rows(root, like="torch") if validate else None
        trainer(tmp_path, **several).fit(model, rows(root, like="torch"), valid, **options)
        return [some for _, _, some in model.seen]

    for epochs in (1, 2):
        checkpoint = tmp_path / f"{epochs}.ckpt"
        done = {"first batch": 32 * epochs + 1, "last batch": 32 * epochs, "end of the epoch": 32 * epochs}[at]
        whole = Model(stop=done, checkpoint=checkpoint, at_end=at == "end of the epoch")
        assert fitted(whole) == wanted
        assert fitted(Model(), ckpt_path=checkpoint, weights_only=False) == wanted[done:]


def test_a_loader_is_copied_in_the_midst_of_an_epoch(root: Path) -> None:
    """Also while its iterator is there: workers of a library may be started then."""
    loader = rows(root)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    for made in (pickle.loads(pickle.dumps(loader)), copy.deepcopy(loader), copy.copy(loader)):
        assert made.state_dict() == state
        made.load_state_dict(state)
        assert [batch["y"].tolist() for batch in made] == orders(root, 1)[0][1:]


def test_another_training_goes_on_with_the_loader_s_epochs(root: Path, tmp_path: Path) -> None:
    loader = rows(root, like="torch")
    seen = []
    for _ in range(2):
        model = Model()
        trainer(tmp_path, max_epochs=2).fit(model, loader)
        seen += [some for _, _, some in model.seen]
    wanted = orders(root, 5)
    assert seen == [some for epoch in wanted[:4] for some in epoch]
    assert [batch["y"].tolist() for batch in loader] == wanted[4]
    # As Lightning's strategy for DeepSpeed asks.
    assert loader.batch_sampler.batch_size == len(wanted[0][0])


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("done", [32, 37])
def test_lightning_with_workers_is_told_the_epoch(root: Path, tmp_path: Path, workers: int, done: int) -> None:
    """As the page says: before ``fit``, which goes on within an epoch if the checkpoint is of the middle of one."""

    def loader(epoch: int) -> Any:
        batches = IterableLoader(rows(root, like="torch"))
        batches.set_epoch(epoch)
        return StatefulDataLoader(batches, batch_size=None, num_workers=workers)

    checkpoint = tmp_path / "model.ckpt"
    whole = Model(stop=done, checkpoint=checkpoint, at_end=done == 32)
    trainer(tmp_path).fit(whole, loader(0))
    resumed = Model()
    trainer(tmp_path).fit(resumed, loader(1), ckpt_path=checkpoint, weights_only=False)
    assert resumed.seen == whole.seen[done:]


@pytest.mark.parametrize("workers", [None, 0, 2])
def test_epochs_of_lightning_are_those_of_the_plain_loader(root: Path, tmp_path: Path, workers: int | None) -> None:
    """With PyTorch's own loader, whose workers end with each epoch, and with the loader itself."""
    loader: Any = rows(root, like="torch")
    if workers is not None:
        loader = torch.utils.data.DataLoader(IterableLoader(loader), batch_size=None, num_workers=workers)
    model = Model()
    trainer(tmp_path).fit(model, loader)
    plain = rows(root)
    for epoch in range(3):
        wanted = sorted(batch["y"].tolist() for batch in plain)
        given = [some for e, _, some in model.seen if e == epoch]
        if workers != 2:
            assert sorted(given) == wanted
        assert sorted(i for some in given for i in some) == list(range(ROWS))
    orders = [tuple(i for e, _, some in model.seen if e == epoch for i in some) for epoch in range(3)]
    assert len(set(orders)) == 3


# -- Accelerate


RANKS = """
import json, sys, accelerate, torch, gzarr
from gzarr.loader.torch import IterableLoader
accelerator = accelerate.Accelerator(cpu=True)
prepares, root = sys.argv[1] == "prepare", sys.argv[2]
options = {} if prepares else {"rank": accelerator.process_index, "world_size": accelerator.num_processes}
array = gzarr.open_array(root, device="cpu")
size = 8 if prepares else 4
loader = gzarr.Loader(array, batch_size=size, like="torch", pad=not prepares, drop_last=False, **options)
batches = torch.utils.data.DataLoader(IterableLoader(loader), batch_size=None)
batches = accelerator.prepare(batches) if prepares else batches
for _ in range(2):
    rows = [row for batch in batches for row in batch["data"][:, 0].tolist()]
    every = [None] * accelerator.num_processes
    torch.distributed.all_gather_object(every, rows)
    if accelerator.is_main_process:
        print(json.dumps(every))
torch.distributed.destroy_process_group()
"""


@pytest.mark.parametrize("way", ["prepare", "ranks"])
def test_processes_of_accelerate_have_all_samples(tmp_path: Path, way: str) -> None:
    """As the page says: a prepared loader of all samples, or ranks of one that is not prepared."""
    gzarr.create_array(tmp_path / "x", data=np.arange(202).reshape(101, 2), chunks=(4, 2))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    processes = []
    for rank in ("0", "1"):
        env = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        command = [sys.executable, "-c", RANKS, way, str(tmp_path / "x")]
        env |= {"ACCELERATE_USE_CPU": "1"}
        processes.append(subprocess.Popen(command, env=os.environ | env, stdout=subprocess.PIPE, text=True))
    outputs = [process.communicate(timeout=100)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    epochs = [json.loads(line) for line in outputs[0].splitlines() if line.startswith("[[")]
    assert len(epochs) == 2
    for first, second in epochs:
        assert {*first, *second} == set(range(0, 202, 2))
        assert len(first) == len(second)
        assert len(first) + len(second) <= 104


@pytest.fixture
def _fresh_accelerator() -> Iterator[None]:
    yield
    # Its settings are the process's.
    AcceleratorState._reset_state(reset_partial_state=True)


@pytest.mark.usefixtures("_fresh_accelerator")
@pytest.mark.parametrize("stateful", [False, True])
def test_accelerate_goes_on_exactly(root: Path, tmp_path: Path, stateful: bool) -> None:
    def prepared() -> tuple[Any, Any]:
        options = accelerate.DataLoaderConfiguration(use_stateful_dataloader=stateful)
        accelerator = accelerate.Accelerator(cpu=True, dataloader_config=options)
        loader = torch.utils.data.DataLoader(IterableLoader(rows(root, like="torch")), batch_size=None)
        return accelerator, accelerator.prepare(loader)

    accelerator, loader = prepared()
    batches = iter(loader)
    given = [next(batches)["y"].tolist() for _ in range(10)]
    accelerator.save_state(tmp_path)
    rest = [batch["y"].tolist() for batch in batches]
    assert sorted(i for some in given + rest for i in some) == list(range(ROWS))
    accelerator, loader = prepared()
    if stateful:
        accelerator.load_state(tmp_path)
        again = loader
    else:
        again = accelerate.skip_first_batches(loader, 10)
    assert [batch["y"].tolist() for batch in again] == rest
    # The next epoch is whole.
    assert sorted(i for batch in loader for i in batch["y"].tolist()) == list(range(ROWS))


@pytest.mark.usefixtures("_fresh_accelerator")
@pytest.mark.parametrize("workers", [0, 2])
def test_accelerate_sets_the_epoch(root: Path, workers: int) -> None:
    """Its loop calls ``set_epoch``, with the number of its own iteration, or with one that it was told."""

    def prepared() -> Any:
        dataset = IterableLoader(rows(root, like="torch"))
        loader = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=workers)
        return accelerate.Accelerator(cpu=True).prepare(loader)

    loader = prepared()
    orders = [[batch["y"].tolist() for batch in loader] for _ in range(3)]
    assert orders[0] != orders[1] != orders[2] != orders[0]
    loader = prepared()
    for epoch in (2, 0):
        loader.set_epoch(epoch)
        assert [batch["y"].tolist() for batch in loader] == orders[epoch]
    if not workers:
        plain = rows(root)
        assert orders == [[batch["y"].tolist() for batch in plain] for _ in range(3)]


# -- grain


def test_grain_maps_and_resumes_samples(root: Path) -> None:
    dataset = Dataset(opened(root))
    assert isinstance(dataset, grain.RandomAccessDataSource)

    def batches() -> Any:
        return iter(grain.MapDataset.source(dataset).shuffle(seed=3).batch(16).to_iter_dataset())

    some = batches()
    for _ in range(5):
        batch = next(some)
        assert np.array_equal(batch["x"], DATA[batch["y"]])
    state = some.get_state()
    rest = [batch["y"].tolist() for batch in some]
    assert len(rest) == 27
    resumed = batches()
    resumed.set_state(state)
    assert [batch["y"].tolist() for batch in resumed] == rest


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])  # Starts processes.
def test_the_workers_of_grain_read_samples(root: Path, workers: int) -> None:
    # The processes are told all flags.
    flags.FLAGS.mark_as_parsed()
    dataset = Dataset(opened(root))
    # A read in the parent first.
    dataset[0]
    sampler = grain.IndexSampler(ROWS, shard_options=grain.NoSharding(), shuffle=True, num_epochs=1, seed=0)
    loader = grain.DataLoader(data_source=dataset, sampler=sampler, operations=[grain.Batch(16)], worker_count=workers)
    seen = []
    for batch in loader:
        assert np.array_equal(batch["x"], DATA[batch["y"]])
        seen.extend(batch["y"].tolist())
    assert sorted(seen) == list(range(ROWS))


# -- JAX


@pytest.mark.slow  # Starts a process. One Python is enough.
def test_the_example_for_several_devices(tmp_path: Path) -> None:
    image = np.random.default_rng(0).integers(0, 1000, (96, 80, 64)).astype("u2")
    gzarr.create_array(tmp_path / "image.zarr", data=image, chunks=32)
    (example,) = [code for code in PAGE.read_text().split("```") if code.startswith("python\nimport jax\n")]
    before = """
        import gzarr
        from gzarr.loader import Patches

        image = gzarr.open_array("image.zarr")
    """
    after = """
        wanted = [b["data"] for b in gzarr.Loader(image, Patches((32, 32, 32)), batch_size=8)][-1]
        assert jax.device_count() == 4
        assert (sharded == wanted).all()
        assert [s.data.shape for s in sharded.addressable_shards] == [(2, 32, 32, 32)] * 4
        assert [s.device for s in sharded.addressable_shards] == jax.devices()
        for i, shard in enumerate(sharded.addressable_shards):
            assert (shard.data == wanted[2 * i : 2 * i + 2]).all()
        print("done")
    """
    code = textwrap.dedent(before) + example.removeprefix("python\n") + textwrap.dedent(after)
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=tmp_path,
        env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stdout) == (0, "done\n"), result.stderr
