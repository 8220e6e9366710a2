"""Batches that compiled code gathers from slabs, beside NumPy's padding and slicing of whole arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.engines.cpu import batch as batches_of
from gzarr.loader import Loader, Patches, Windows, slabs
from gzarr.loader.reading import Source

if TYPE_CHECKING:
    from collections.abc import Iterator

# Small buffers, to have many blocks.
pytestmark = pytest.mark.filterwarnings("ignore:shuffling is coarse")

DTYPES = ("bool", "i1", ">u2", "f4", ">f8", "c8", ">c16", "S5", "<U3", [("a", "u1"), ("b", "<f4")])
PADS: dict[str, Any] = {
    "reflect": {"mode": "reflect"},
    "symmetric": {"mode": "symmetric"},
    "edge": {"mode": "edge"},
    "fill": {"mode": "constant", "constant_values": 0},
}


def noise(shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    numbers = np.random.default_rng(3).integers(1, 120, shape)
    if not isinstance(dtype, list):
        return numbers.astype(dtype)
    result = np.zeros(shape, dtype)
    result["a"], result["b"] = numbers, numbers / 3
    return result


def stored(data: np.ndarray[Any, Any], chunks: Any) -> gzarr.Array:
    return gzarr.create_array(gzarr.MemoryStore(), data=data, chunks=chunks, zarr_format=2)


def check(loader: Loader, padded: dict[str, np.ndarray[Any, Any]], width: int, low: Any, shape: tuple[int, ...]) -> int:
    """Compare each sample with a box of its padded array; return how many there were."""
    count = 0
    for batch in loader:
        for i, origin in enumerate(batch.origins.tolist()):
            box = tuple(slice(o + a + width, o + a + width + n) for o, a, n in zip(origin, low, shape, strict=False))
            for name, data in padded.items():
                assert np.array_equal(batch[name][i], data[box])
            count += 1
    return count


@pytest.fixture(params=["compiled", "small plans, threads", "python"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """How slabs are gathered; the first two never by Python, sample by sample."""
    if request.param == "python":
        monkeypatch.setattr(slabs, "available", lambda: False)
        yield
        return
    monkeypatch.setattr(Source, "pad", None)
    if request.param != "compiled":
        monkeypatch.setattr(slabs, "PLANNED", 5)
        monkeypatch.setattr(batches_of, "WORKER_BYTES", 1)
        monkeypatch.setenv("GZARR_THREADS", "4")
    yield


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_any_elements(dtype: Any) -> None:
    data = noise((90, 7), dtype)
    options: dict[str, Any] = {"batch_size": 4, "drop_last": False, "buffer_bytes": 900}
    loader = Loader(stored(data, (8, 4)), Windows(0, {"x": (0, 5)}, stride=2), **options)
    assert loader._of_epoch(0).shares_slabs
    seen = 0
    for batch in loader:
        for window, origin in zip(batch["x"], batch.origins[:, 0].tolist(), strict=True):
            assert window.dtype == data.dtype.newbyteorder("=")
            assert np.array_equal(window, data[origin : origin + 6])
            seen += 1
    assert seen == 43


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("pad", PADS)
@pytest.mark.parametrize("jitter", [False, True])
def test_three_axes_with_halos(pad: Any, *, jitter: bool) -> None:
    """Windows are moved into the array along any of the axes, and larger than the array along the last one."""
    data = {"x": noise((30, 26, 9), ">u2"), "y": noise((30, 26, 9), "f8")}
    arrays = {"x": stored(data["x"], (8, 8, 8)), "y": stored(data["y"], (30, 5, 3))}
    shape, halo = (8, 6, 7), (2, 3, 4)
    sampler = Patches(shape, stride=(4, 6, 7), halo=halo, jitter=jitter, pad=pad)
    loader = Loader(arrays, sampler, batch_size=5, drop_last=False, buffer_bytes=400_000)
    assert loader._of_epoch(0).shares_slabs
    padded = {name: np.pad(each, 40, **PADS[pad]) for name, each in data.items()}
    low = [-h for h in halo]
    found = check(loader, padded, 40, low, tuple(n + 2 * h for n, h in zip(shape, halo, strict=True)))
    assert found == loader.explain().samples


@pytest.mark.usefixtures("way")
def test_several_volumes_of_other_shapes() -> None:
    data = [noise((60, 20), "u2"), noise((17, 41), "u2"), noise((9, 9), "u2")]
    sampler = Patches((8, 8), stride=3, halo=2, pad="edge")
    loader = Loader([stored(each, (8, 8)) for each in data], sampler, batch_size=8, drop_last=False, buffer_bytes=8000)
    assert loader._of_epoch(0).shares_slabs
    padded = [np.pad(each, 30, mode="edge") for each in data]
    volumes = set()
    for batch in loader:
        for i, (volume, (a, b)) in enumerate(zip(batch.volumes.tolist(), batch.origins.tolist(), strict=True)):
            assert np.array_equal(batch["data"][i], padded[volume][a + 28 : a + 40, b + 28 : b + 40])
            volumes.add(volume)
    assert volumes == {0, 1, 2}


def test_text_beside_numbers() -> None:
    """Objects are copied by Python, the other arrays of the same samples by compiled code."""
    numbers = noise((50, 3), "i4")
    texts = gzarr.create_array(gzarr.MemoryStore(), shape=50, dtype="string", chunks=4)
    texts[...] = np.array([f"step {i}" for i in range(50)], object)
    arrays = {"t": texts, "n": stored(numbers, (4, 3))}
    for batch in Loader(arrays, Windows(0, {"x": (0, 5)}), batch_size=5):
        for i, origin in enumerate(batch.origins[:, 0].tolist()):
            assert batch["x"]["t"][i].tolist() == [f"step {n}" for n in range(origin, origin + 6)]
            assert np.array_equal(batch["x"]["n"][i], numbers[origin : origin + 6])


@pytest.mark.usefixtures("way")
def test_samples_without_elements() -> None:
    array = gzarr.create_array(gzarr.MemoryStore(), shape=(30, 0), dtype="u2", chunks=(4, 1))
    assert {batch["x"].shape for batch in Loader(array, Windows(0, {"x": (0, 4)}), batch_size=3)} == {(3, 5, 0)}
