"""Arrays of dask on each device, with a scheduler: dask-cuda's cluster, if the device is a GPU.

In other runs, the workers are threads of this process, because CUDA in host memory is in no other.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from distributed import Client, LocalCluster

import gzarr

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.devices import TestedDevice

DATA = np.random.default_rng(1).integers(0, 999, (64, 48)).astype("i4")


@pytest.fixture
def client(device: TestedDevice) -> Iterator[Client]:
    """A cluster for the device: one worker for each GPU, or one in this process."""
    on_gpu = device.is_cuda and device.watched is None
    if on_gpu:
        cuda: Any = importlib.import_module("dask_cuda")
        cluster = cuda.LocalCUDACluster(dashboard_address=":0")
    else:
        cluster = LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0", memory_limit=0
        )
    with cluster, Client(cluster) as client:
        yield client


def test_workers_read_and_write_on_their_devices(client: Client, device: TestedDevice, tmp_path: Path) -> None:
    gzarr.create_array(tmp_path / "a", data=DATA, chunks=(16, 12), device="cpu")
    array = device.open(tmp_path / "a")
    x = array.to_dask((32, 24))
    assert type(x._meta) is type(array[:1])
    kinds = x.map_blocks(_kind, dtype="U40", meta=np.empty((0, 0), "U40"), chunks=((1, 1), (1, 1))).compute()
    assert set(kinds.ravel()) == {type(array[:1]).__name__}
    b = gzarr.from_dask(x, tmp_path / "b", device=device.name, codecs="zstd")
    assert b.device == device.name
    np.testing.assert_array_equal(gzarr.open_array(tmp_path / "b", device="cpu")[...], DATA)
    c = gzarr.create_array(tmp_path / "c", DATA.shape, "i4", chunks=(20, 20), device=device.name)
    gzarr.store(array.to_dask((16, 12)), c, rechunk=True)
    np.testing.assert_array_equal(gzarr.open_array(tmp_path / "c", device="cpu")[...], DATA)


def test_copies_on_the_devices_of_workers(client: Client, device: TestedDevice, tmp_path: Path) -> None:
    gzarr.create_array(tmp_path / "a", data=DATA, chunks=(16, 12), device="cpu")
    copied = gzarr.copy(tmp_path / "a", tmp_path / "b", chunks=(20, 20), device=device.name, client=client)
    np.testing.assert_array_equal(gzarr.open_array(tmp_path / "b", device="cpu")[...], DATA)
    assert copied.device == device.name


def test_sums(client: Client, device: TestedDevice, tmp_path: Path) -> None:
    gzarr.create_array(tmp_path / "a", data=DATA, chunks=(16, 12), device="cpu")
    x = device.open(tmp_path / "a").to_dask((32, 24))
    assert int(device.to_numpy((x * 2).sum().compute())) == DATA.sum() * 2


def _kind(block: Any) -> Any:
    return np.array(type(block).__name__).reshape((1,) * block.ndim)
