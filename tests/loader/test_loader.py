"""The samples of a loader's batches, on each device."""

from __future__ import annotations

import math
import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.loaders import DATA, ROWS, SHUFFLES, labels, rows

import gzarr
from gzarr.loader import Loader, Part, Patches, Rows, Sampler, Samples, Windows

if TYPE_CHECKING:
    from pathlib import Path

    from support.devices import TestedDevice

# Small buffers, to have many blocks.
pytestmark = pytest.mark.filterwarnings("ignore:shuffling is coarse")


@pytest.mark.parametrize("shuffle", SHUFFLES)
@pytest.mark.parametrize("prefetch", [0, 2])
def test_each_row_comes_once_with_its_own_values(root: Path, shuffle: Any, prefetch: int, device: TestedDevice) -> None:
    loader = rows(root, device, shuffle=shuffle, prefetch=prefetch)
    seen = []
    for batch in loader:
        x, y = device.to_numpy(batch["x"]), device.to_numpy(batch["y"])
        assert np.array_equal(x, DATA[batch.samples])
        assert np.array_equal(y, batch.samples)
        assert np.array_equal(batch.origins, batch.samples[:, None])
        seen.extend(batch.samples.tolist())
    assert sorted(seen) == list(range(ROWS))
    assert (seen == list(range(ROWS))) == (shuffle is False)


def test_one_array_is_data(root: Path) -> None:
    loader = Loader(gzarr.open_array(root / "y"), batch_size=5, shuffle=False)
    assert len(loader) == 100
    assert next(iter(loader))["data"].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_epochs_differ_and_can_be_repeated(root: Path, shuffle: Any) -> None:
    loader = rows(root, shuffle=shuffle)
    first, second = labels(loader), labels(loader)
    assert (first == second) == (shuffle is False)
    again = rows(root, shuffle=shuffle, prefetch=0)
    assert [labels(again), labels(again)] == [first, second]
    other = labels(rows(root, shuffle=shuffle, seed=1))
    assert (other == first) == (shuffle is False)


def test_an_axis_other_than_the_first(tmp_path: Path) -> None:
    a = gzarr.create_array(tmp_path, data=DATA, chunks=(100, 1, 3))
    for batch in Loader(a, Rows(axis=2), batch_size=2, drop_last=False):
        assert np.array_equal(batch["data"], np.moveaxis(DATA, 2, 0)[batch.samples])


def test_rows_that_are_chosen(root: Path) -> None:
    chosen = [400, 3, 3, 77]
    loader = Loader(gzarr.open_array(root / "y"), Rows(where=chosen), batch_size=4)
    (batch,) = loader
    assert sorted(batch["data"].tolist()) == [3, 3, 77, 400]
    assert np.array_equal(np.array(chosen)[batch.samples], batch["data"])
    mask = np.zeros(ROWS, bool)
    mask[50:60] = True
    (batch,) = Loader(gzarr.open_array(root / "y"), Rows(where=mask), batch_size=10)
    assert sorted(batch["data"].tolist()) == list(range(50, 60))


def test_runs_of_steps(tmp_path: Path, device: TestedDevice) -> None:
    steps = np.arange(60)[:, None] * np.ones((1, 4), "i4")
    gzarr.create_array(tmp_path / "t", data=steps.astype("i4"), chunks=(5, 4))
    gzarr.create_array(tmp_path / "u", data=steps.astype("i2"), chunks=(60, 2))
    arrays = {name: device.open(tmp_path / name) for name in "tu"}
    for stride in (1, 3):
        loader = Loader(arrays, Windows(0, {"x": (-2, 0), "y": (1, 4)}, stride=stride), batch_size=4, drop_last=False)
        seen = []
        for batch in loader:
            for i, origin in enumerate(batch.origins[:, 0].tolist()):
                for name in "tu":
                    assert device.to_numpy(batch["x"][name])[i, :, 0].tolist() == [origin - 2, origin - 1, origin]
                    assert device.to_numpy(batch["y"][name])[i, :, 1].tolist() == list(range(origin + 1, origin + 5))
                seen.append(origin)
        assert sorted(seen) == list(range(2, 56, stride))
    (batch,) = Loader(arrays["t"], Windows(0, {"x": (0, 1)}, where=[7]), batch_size=1)
    assert device.to_numpy(batch["x"])[0, :, 0].tolist() == [7, 8]


@pytest.mark.parametrize("pad", ["reflect", "symmetric", "edge", "fill"])
@pytest.mark.parametrize("halo", [0, 3])
@pytest.mark.parametrize("shape", [(16, 16, 16), (8, 60, 16)])
def test_patches_with_padding(
    tmp_path: Path, pad: Any, halo: int, shape: tuple[int, ...], device: TestedDevice
) -> None:
    data = np.random.default_rng(0).integers(1, 1000, (50, 45, 30)).astype("u2")
    gzarr.create_array(tmp_path, data=data, chunks=(8, 8, 8), fill_value=7)
    width = 70
    around: dict[str, Any] = {"mode": "constant", "constant_values": 7} if pad == "fill" else {"mode": pad}
    padded = np.pad(data, width, **around)
    loader = Loader(device.open(tmp_path), Patches(shape, halo=halo, pad=pad), batch_size=4, drop_last=False)
    seen = set()
    for batch in loader:
        found = device.to_numpy(batch["data"])
        for origin, patch in zip(batch.origins.tolist(), found, strict=True):
            box = tuple(slice(o - halo + width, o + n + halo + width) for o, n in zip(origin, shape, strict=True))
            assert np.array_equal(patch, padded[box])
            seen.add(tuple(origin))
    assert seen == {
        (a, b, c) for a in range(0, 50, shape[0]) for b in range(0, 45, shape[1]) for c in range(0, 30, shape[2])
    }


OVERLAPPING: dict[str, Patches] = {
    "stride": Patches((16, 16), stride=(8, 5), pad="reflect"),
    "inside": Patches((16, 16), stride=3, pad=None),
    "halo": Patches((16, 16), halo=(4, 9), pad="fill"),
    "anywhere": Patches((16, 16), stride=8, jitter=True, halo=6, pad="edge"),
    "mask": Patches((16, 16), stride=4, where=np.random.default_rng(1).random((25, 18)) < 0.6, pad="edge"),
    "apart": Patches((16, 16), halo=8, where=[(0, 0), (1, 2), (80, 60), (3, 60), (4, 60), (5, 60)], pad="edge"),
    "weights": Patches((16, 16), stride=4, weights=np.arange(25 * 18)),
    "long": Patches((300, 16), stride=8, pad="edge"),
}


@pytest.mark.parametrize("sampler", OVERLAPPING.values(), ids=OVERLAPPING.keys())
def test_patches_that_overlap(tmp_path: Path, sampler: Patches, device: TestedDevice) -> None:
    """Batches are gathered from what samples have in common, and kept ones stay what they are."""
    data = np.random.default_rng(0).integers(1, 1000, (100, 70)).astype("u2")
    gzarr.create_array(tmp_path / "fine", data=data, chunks=(16, 16), fill_value=7)
    gzarr.create_array(tmp_path / "other", data=data.astype(">f8"), chunks=(5, 100), fill_value=7)
    arrays = {name: device.open(tmp_path / name) for name in ("fine", "other")}
    loader = Loader(arrays, sampler, batch_size=7, drop_last=False, buffer_bytes=200_000)
    assert loader._of_epoch(0).shares_slabs
    width = 310
    mode = {"mode": "constant", "constant_values": 7} if sampler.pad == "fill" else {"mode": sampler.pad or "edge"}
    padded = np.pad(data, width, **mode)  # type: ignore[arg-type]
    halo = sampler.halo if isinstance(sampler.halo, tuple) else (sampler.halo,) * 2
    for _ in range(2):
        batches = list(loader)
        assert sum(len(batch.samples) for batch in batches) == loader.explain().samples
        if sampler.weights is None:
            assert len({int(n) for batch in batches for n in batch.samples}) == loader.explain().samples
        for batch in batches:
            found = {name: device.to_numpy(batch[name]) for name in arrays}
            for i, origin in enumerate(batch.origins.tolist()):
                box = tuple(
                    slice(o - h + width, o + n + h + width) for o, n, h in zip(origin, sampler.shape, halo, strict=True)
                )
                assert np.array_equal(found["fine"][i], padded[box])
                assert np.array_equal(found["other"][i], padded[box])


def test_patches_anywhere(tmp_path: Path) -> None:
    data = np.arange(100 * 90).reshape(100, 90)
    a = gzarr.create_array(tmp_path, data=data, chunks=(16, 16))
    loader = Loader(a, Patches((16, 16), jitter=True), batch_size=7, drop_last=False)
    met = np.zeros((85, 75), int)
    for _ in range(200):
        for batch in loader:
            for (y, x), patch in zip(batch.origins.tolist(), batch["data"], strict=True):
                met[y, x] += 1
                assert np.array_equal(patch, data[y : y + 16, x : x + 16])
    assert met.sum() == 200 * 7 * 6
    # Along each axis, every place is met about as often as any other.
    for axis in (0, 1):
        along = met.sum(axis)
        assert along.min() > 0.3 * along.mean()
        assert along.max() < 4 * along.mean()


def test_levels_of_a_pyramid_show_one_region(tmp_path: Path) -> None:
    fine = np.arange(64 * 48).reshape(64, 48)
    arrays = {
        "fine": gzarr.create_array(tmp_path / "0", data=fine, chunks=(16, 16)),
        "coarse": gzarr.create_array(tmp_path / "1", data=fine[::2, ::2], chunks=(16, 16)),
    }
    for batch in Loader(arrays, Patches((16, 8), halo=2, pad="edge"), batch_size=3, drop_last=False):
        for i in range(len(batch.samples)):
            assert batch["fine"][i].shape == (20, 12)
            inner = batch["fine"][i, 2:-2, 2:-2]
            assert np.array_equal(batch["coarse"][i, 1:-1, 1:-1], inner[::2, ::2])


def test_patches_of_a_mask_and_weights(tmp_path: Path) -> None:
    a = gzarr.create_array(tmp_path, data=np.arange(64 * 64).reshape(64, 64), chunks=(16, 16))
    mask = np.zeros((64, 64), bool)
    mask[20, 40] = mask[63, 0] = True
    loader = Loader(a, Patches((16, 16), where=mask), batch_size=1)
    assert sorted(tuple(batch.origins[0].tolist()) for batch in loader) == [(16, 32), (48, 0)]
    grid = np.zeros((4, 4), bool)
    grid[1, 1] = True
    (batch,) = Loader(a, Patches((16, 16), where=grid), batch_size=1)
    assert batch.origins.tolist() == [[16, 16]]
    loader = Loader(a, Patches((16, 16), where=[(0, 0), (5, 7), (30, 30)], weights=[0, 1, 2]), batch_size=3)
    drawn = np.concatenate([next(iter(loader)).samples for _ in range(300)])
    assert np.bincount(drawn, minlength=3).tolist()[0] == 0
    assert abs(np.mean(drawn == 2) - 2 / 3) < 0.02


def test_several_volumes(tmp_path: Path, device: TestedDevice) -> None:
    """Volumes of different shapes, chunks and fill values make up one epoch."""
    shapes = [(40, 30), (16, 16), (7, 50)]
    data = [1000 * i + np.arange(np.prod(shape), dtype="i4").reshape(shape) for i, shape in enumerate(shapes)]
    volumes = []
    for i, values in enumerate(data):
        gzarr.create_array(tmp_path / str(i), data=values, chunks=(8 + i, 9), fill_value=-i)
        volumes.append(device.open(tmp_path / str(i)))
    padded = [np.pad(values, 20, constant_values=-i) for i, values in enumerate(data)]
    loader = Loader(volumes, Patches((8, 8), pad="fill"), batch_size=5, drop_last=False, buffer_bytes=4000)
    for _ in range(2):
        seen = []
        for batch in loader:
            patches = device.to_numpy(batch["data"])
            for volume, (y, x), patch in zip(batch.volumes, batch.origins.tolist(), patches, strict=True):
                assert np.array_equal(patch, padded[volume][y + 20 : y + 28, x + 20 : x + 28])
            seen.extend(batch.samples.tolist())
        assert sorted(seen) == list(range(5 * 4 + 2 * 2 + 1 * 7))
    assert loader.explain().samples == 31


def test_weights_of_volumes(tmp_path: Path) -> None:
    volumes = [gzarr.create_array(tmp_path / str(i), data=np.arange(100) + 1000 * i, chunks=10) for i in range(3)]
    loader = Loader(volumes, Rows(), batch_size=10, weights=[1, 2, 0.5], drop_last=False)
    halves = []
    for _ in range(3):
        values = np.concatenate([batch["data"] for batch in loader])
        assert np.bincount(values // 1000).tolist() == [100, 200, 50]
        assert sorted(values[values < 1000].tolist()) == list(range(100))
        assert (np.bincount(values[values // 1000 == 1] - 1000) == 2).all()
        halves.append(sorted(values[values >= 2000].tolist()))
    assert halves[0] != halves[1] or halves[1] != halves[2]
    for wrong in ([1, 2], [1, 2, -1], [1, 2, math.nan]):
        with pytest.raises(gzarr.ArgumentError, match="weights"):
            Loader(volumes, Rows(), weights=wrong)
    with pytest.raises(
        gzarr.ArgumentError, match=r"one shape and dtype; .* and those of volume 2 have \[\(\(1, 3\), 'float64'"
    ):
        Loader([*volumes[:2], gzarr.create_array(tmp_path / "x", data=np.zeros((3, 3)))], Rows())


@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data())
def test_masks_of_lower_resolution(data: st.DataObject) -> None:
    """A patch is taken if one of its elements has a true one in the mask."""
    k = data.draw(st.integers(1, 3))
    size = tuple(data.draw(st.integers(1, 12)) for _ in range(k))
    shape = tuple(data.draw(st.integers(1, n)) for n in size)
    factors = [data.draw(st.integers(1, 4)) for _ in range(k)]
    mask_shape = tuple(-(-n // f) for n, f in zip(size, factors, strict=True))
    # No other factor leads to these lengths.
    for n, m in zip(size, mask_shape, strict=True):
        assume(m in (1, n) or sum(m in (-(-n // f), n // f) for f in range(1, n + 1)) == 1)
    counts = tuple(-(-n // w) for n, w in zip(size, shape, strict=True))
    assume(mask_shape != counts)
    mask = np.random.default_rng(data.draw(st.integers(0, 99))).random(mask_shape) < 0.3
    full = mask
    for d, f in enumerate(factors):
        full = np.repeat(full, f, axis=d)
    full = full[tuple(map(slice, size))]
    wanted = [
        tuple(i * w for i, w in zip(cell, shape, strict=True))
        for cell in np.ndindex(counts)
        if full[tuple(slice(i * w, (i + 1) * w) for i, w in zip(cell, shape, strict=True))].any()
    ]
    kind = data.draw(st.sampled_from(["numpy", "gzarr", "labels"]))
    where: Any = {
        "numpy": lambda: mask,
        "gzarr": lambda: gzarr.array(mask, device="cpu"),
        "labels": lambda: gzarr.array(mask.astype("u2")[np.newaxis] * 7, device="cpu"),
    }[kind]()
    array, sampler = gzarr.array(np.zeros(size), device="cpu"), Patches(shape, where=where)
    if not wanted:
        with pytest.raises(gzarr.ArgumentError, match="no sample is chosen"):
            Loader(array, sampler)
        return
    loader = Loader(array, sampler, drop_last=False, prefetch=0)
    assert sorted(tuple(origin) for batch in loader for origin in batch.origins.tolist()) == wanted


def test_a_mask_of_labels(tmp_path: Path) -> None:
    data = np.zeros((2, 64, 64), "u2")
    image = gzarr.ome.create(tmp_path / "x", data=data, axes="zyx", levels=3)
    nuclei = data.copy()
    nuclei[1, 40:50, 3:9] = 5
    of_nuclei = gzarr.ome.create_labels(tmp_path / "x", "nuclei", data=nuclei)
    loader = Loader(image.levels[0].array, Patches((2, 16, 16), where=of_nuclei), batch_size=1)
    assert len(of_nuclei.levels) > 1
    assert sorted(batch.origins[0].tolist() for batch in loader) == [[0, 32, 0], [0, 48, 0]]
    with pytest.raises(gzarr.ArgumentError, match=r"mask where= has shape \(2, 64, 64\), neither"):
        Loader(image.levels[0].array, Patches((16, 16), where=image.levels[0].array))


def test_a_mask_takes_no_more_memory_than_itself() -> None:
    mask = np.ones((2048, 2048), bool)
    array = gzarr.create_array({}, shape=mask.shape, dtype="u1", chunks=512)
    tracemalloc.start()
    try:
        loader = Loader(array, Patches((256, 256), where=mask))
        assert tracemalloc.get_traced_memory()[1] < mask.nbytes
    finally:
        tracemalloc.stop()
    assert len(loader) == 64


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 13}, "12 samples, and one batch of 13 for 1 rank takes 13"),
        ({"batch_size": 4, "world_size": 4}, "12 samples, and one batch of 4 for 4 ranks takes 16"),
        ({"world_size": 16, "rank": 13, "drop_last": False}, "12 samples for 16 ranks, one of which would have none"),
    ],
)
def test_no_batches_are_an_error(options: dict[str, Any], message: str) -> None:
    array = gzarr.array(np.arange(12), chunks=3)
    with pytest.raises(gzarr.ArgumentError, match=message):
        Loader(array, **options)
    loader = Loader(array, **(options | {"pad": True}))
    assert len(list(loader)) == len(loader) == 1


class EveryThird(Sampler):
    """A sampler of one's own: every third row, with what follows."""

    def bind(self, arrays: Any, most_bytes: int) -> Samples:
        parts, size = [], 0
        for name, array in arrays.items():
            size = array.shape[0]
            rest = array.shape[1:]
            axes = (0, *(None for _ in rest))
            parts.append(Part((name,), name, (2, *rest), (0,) * array.ndim, axes, (1,) * array.ndim))
        return Samples(tuple(parts), ((size - 2) // 3 + 1,), (3,), (4,), (size,))


def test_samples_that_share_no_chunk_are_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first batch comes soon and little is held, but all of a block are mixed."""
    monkeypatch.setattr("gzarr.loader.epoch._BUSY_BYTES", 0)
    array = gzarr.create_array({}, shape=(1000, 3), chunks=(1, 3), dtype="i4")
    array[...] = data = np.arange(3000, dtype="i4").reshape(1000, 3)
    loader = Loader(array, batch_size=5, buffer_bytes=2 * 500 * 12, drop_last=False)
    epoch = loader._of_epoch(0)
    assert epoch.bounds(0, 1000)[:6] == [0, 5, 15, 35, 75, 139]
    assert max(np.diff(epoch.bounds(0, 1000))) == 64
    assert loader.explain().mixing.groups == 500
    assert loader.explain().held_bytes == (2 * 64 + 3 * 5) * 12
    batches = list(loader)
    given = np.concatenate([batch.samples for batch in batches])
    assert sorted(given) == list(range(1000))
    # The first block has samples of everywhere.
    assert given[:500].min() < 50
    assert given[:500].max() > 950
    np.testing.assert_array_equal(np.concatenate([batch["data"] for batch in batches]), data[given])


def test_memory_for_decoding_is_reckoned_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of three threads has an encoded and a decoded chunk; at most a quarter of a buffer is left for them."""
    monkeypatch.setenv("GZARR_THREADS", "3")
    array = gzarr.create_array({}, shape=(1000, 5), chunks=(10, 5), dtype="i4")
    for buffer_bytes, most in ((10_000, 10_000 - 2 * 3 * 200), (4_000, 3_000)):
        loader = Loader(array, batch_size=5, buffer_bytes=buffer_bytes)
        batches: Any = iter(loader)
        assert batches._work.most == most
        batches.close()


def test_a_sampler_of_ones_own(root: Path) -> None:
    arrays = {name: gzarr.open_array(root / name) for name in "xy"}
    loader = Loader(arrays, EveryThird(), batch_size=5, drop_last=False, buffer_bytes=3000)
    seen = []
    for batch in loader:
        assert (batch["y"][:, 1] == batch["y"][:, 0] + 1).all()
        assert np.array_equal(batch["x"], DATA[batch["y"]])
        seen.extend(batch["y"][:, 0].tolist())
    assert sorted(seen) == list(range(0, 499, 3))
    # Its fingerprint does not depend on where it is in memory.
    again = Loader(arrays, EveryThird(), batch_size=5, buffer_bytes=3000)
    assert again.fingerprint == loader.fingerprint
