"""Workers of PyTorch's ``DataLoader`` read from an object store, forked or spawned after reads in the parent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support import servers
from torchdata.stateful_dataloader import StatefulDataLoader

import gzarr
from gzarr.loader import Dataset, Loader
from gzarr.loader.torch import IterableLoader

if TYPE_CHECKING:
    from collections.abc import Iterator

# Small buffers, to have many blocks.
pytestmark = pytest.mark.filterwarnings("ignore:shuffling is coarse")

VALUES = np.arange(200 * 3, dtype="f4").reshape(200, 3)


@pytest.fixture(scope="module")
def arrays() -> Iterator[dict[str, gzarr.Array]]:
    """Plain and sharded rows on an S3 server, with their numbers."""
    with servers.s3_server() as (host, port):
        servers.make_bucket((host, port), "bucket")
        options = servers.s3_options(f"http://{host}:{port}", **servers.PATIENT)

        def stored(name: str, data: Any, **layout: Any) -> gzarr.Array:
            url = f"s3://bucket/{name}"
            gzarr.create_array(url, data=data, storage_options=options, **layout)
            return gzarr.open_array(url, storage_options=options)

        yield {
            "x": stored("x", VALUES, chunks=(10, 3)),
            "s": stored("s", VALUES, chunks=(5, 3), shards=(50, 3)),
            "y": stored("y", np.arange(200), chunks=40),
        }


def check(batches: Any) -> None:
    seen = []
    for batch in batches:
        for name in "xs":
            assert torch.equal(torch.as_tensor(batch[name]), torch.from_numpy(VALUES)[batch["y"]])
        seen.extend(batch["y"].tolist())
    assert sorted(seen) == list(range(200))


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_read_samples(arrays: dict[str, gzarr.Array], context: str) -> None:
    dataset = Dataset(arrays)
    assert dataset[7]["y"] == 7
    options: dict[str, Any] = {"num_workers": 2, "multiprocessing_context": context, "timeout": 60}
    check(torch.utils.data.DataLoader(dataset, batch_size=32, shuffle=True, **options))
    # The parent still reads.
    assert dataset[8]["y"] == 8


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_make_batches(arrays: dict[str, gzarr.Array], context: str) -> None:
    loader = Loader(arrays, batch_size=16, drop_last=False, buffer_bytes=2000)
    assert len(next(iter(loader))["y"]) == 16
    options: dict[str, Any] = {"num_workers": 2, "multiprocessing_context": context, "timeout": 60}
    check(torch.utils.data.DataLoader(IterableLoader(loader), batch_size=None, **options))
    check(loader)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stateful_dataloader_resumes_exactly(arrays: dict[str, gzarr.Array], workers: int) -> None:
    def made() -> Any:
        dataset = IterableLoader(Loader(arrays, batch_size=16, drop_last=False, buffer_bytes=2000))
        return StatefulDataLoader(dataset, batch_size=None, num_workers=workers)

    loader = made()
    batches = iter(loader)
    given = [next(batches)["y"].tolist() for _ in range(5)]
    state = loader.state_dict()
    rest = [batch["y"].tolist() for batch in batches]
    assert sorted(number for some in given + rest for number in some) == list(range(200))
    resumed = made()
    resumed.load_state_dict(state)
    assert [batch["y"].tolist() for batch in resumed] == rest
