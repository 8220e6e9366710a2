"""gzarr's codec pipeline in zarr-python with buffers in GPU memory: zarr-python's own, made of CuPy's arrays."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr
from support.volumes import SHAPE, volume, written

import gzarr
import gzarr.integrations.zarr as ours

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.devices import TestedDevice


@contextmanager
def gpu_buffers(device: TestedDevice) -> Iterator[None]:
    """Let zarr-python's buffers be in the memory of a device."""
    with zarr.config.enable_gpu() if device.is_cuda else zarr.config.set({}):
        yield


def opened(path: Path) -> Any:
    with ours.enable(strict=True):
        return zarr.open_array(path, mode="r+")


@pytest.fixture(autouse=True)
def strict() -> Iterator[None]:
    with zarr.config.set({"gzarr.strict": True}):
        yield


@pytest.mark.parametrize("codec", ["zstd", "blosc-lz4-1", "gzip"])
def test_reading(codec: str, tmp_path: Path, device: TestedDevice) -> None:
    """Results are device arrays, filled by the engine of the device."""
    data = volume()
    array = opened(written(tmp_path / "a", codec, data))
    with gpu_buffers(device):
        for selection in (np.s_[...], np.s_[3:17, ::2, 5], np.s_[1:2]):
            result = array[selection]
            assert isinstance(result, type(device.empty((1,), "u1")))
            np.testing.assert_array_equal(device.to_numpy(result), data[selection])
        rows = [1, 19, 3]
        np.testing.assert_array_equal(device.to_numpy(array.oindex[rows, 2:9]), data[rows, 2:9])
    if device.watched is not None:
        assert device.watched.counts["copy_in"]


def test_writing(tmp_path: Path, device: TestedDevice) -> None:
    data = volume()
    array = opened(written(tmp_path / "a", "zstd", data))
    new = data[::-1].copy()
    with gpu_buffers(device):
        array[...] = device.array(new)
        array[3:5] = device.array(data[3:5])
        new[3:5] = data[3:5]
        np.testing.assert_array_equal(device.to_numpy(array[...]), new)
    np.testing.assert_array_equal(gzarr.open_array(tmp_path / "a", device="cpu")[...], new)


def test_results_in_both_memories(tmp_path: Path, device: TestedDevice) -> None:
    """One array gives results in host and in device memory."""
    data = volume()
    array = opened(written(tmp_path / "a", "zstd", data))
    assert type(array[...]) is np.ndarray
    with gpu_buffers(device):
        np.testing.assert_array_equal(device.to_numpy(array[...]), data)
    np.testing.assert_array_equal(array[...], data)


def test_what_a_device_has_not(tmp_path: Path, device: TestedDevice) -> None:
    """CuPy has no times: with strict, that is gzarr's own error."""
    times = np.arange(SHAPE[0]).astype("M8[s]")
    zarr.create_array(tmp_path, data=times, chunks=(7,))
    array = opened(tmp_path)
    with gpu_buffers(device):
        if not device.is_cuda:
            np.testing.assert_array_equal(array[...], times)
            return
        # CuPy itself refuses to make the result.
        with pytest.raises((gzarr.DeviceError, ValueError, TypeError)):
            array[...]
