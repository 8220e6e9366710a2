"""Random places and poses are those of each sample alone: of each volume, and of what a patch was chosen for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.loader import Loader, Patches, Windows

if TYPE_CHECKING:
    from pathlib import Path

quiet = pytest.mark.filterwarnings("ignore:shuffling is coarse")
RAMP = np.tile(np.arange(64, dtype="f4"), (64, 1))


@quiet
@pytest.mark.parametrize(
    ("sampler", "different"),
    [
        (Patches((32, 32), jitter=True, stride=64), 20),
        (Patches((64, 64), rotate=True), 40),
        (Patches((64, 64), flip=True), 4),
        (Patches((64, 64), scale=(0.8, 1.2)), 40),
        (Patches((32, 32), shift=8, stride=64), 40),
    ],
    ids=["jitter", "rotate", "flip", "scale", "shift"],
)
def test_each_volume_has_places_and_poses_of_its_own(sampler: Any, different: int) -> None:
    image = RAMP + 100 * RAMP.T
    loader = Loader([gzarr.array(image) for _ in range(40)], sampler, batch_size=40, seed=1)
    for batch in loader:
        found = np.unique(batch["data"].reshape(40, -1), axis=0)
        assert len(found) >= different


def test_half_of_many_volumes_is_flipped() -> None:
    loader = Loader([gzarr.array(RAMP) for _ in range(200)], Patches((64, 64), flip=True), batch_size=200, seed=1)
    for _ in range(3):
        (batch,) = loader
        # Five standard errors.
        assert abs((batch["data"][:, 0, 0] > batch["data"][:, 0, -1]).mean() - 0.5) < 5 * 0.5 / 200**0.5


def test_volumes_go_on_from_a_state() -> None:
    volumes = [gzarr.array(RAMP + i) for i in range(24)]
    loader = Loader(volumes, Patches((32, 32), jitter=True, stride=64), batch_size=4, seed=3)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    rest = [batch["data"] for batch in batches]
    other = Loader(volumes, Patches((32, 32), jitter=True, stride=64), batch_size=4, seed=3)
    other.load_state_dict(state)
    for expected, batch in zip(rest, other, strict=True):
        np.testing.assert_array_equal(batch["data"], expected)


@quiet
@pytest.mark.parametrize("ndim", [2, 3])
@pytest.mark.parametrize("stored", [True, False], ids=["stored", "numpy"])
def test_patches_of_a_mask_show_it(tmp_path: Path, ndim: int, stored: bool) -> None:
    """Wherever they lie; and what is shown lies anywhere in them."""
    side, length = (512, 64) if ndim == 2 else (96, 24)
    rng = np.random.default_rng(0)
    mask = np.zeros((side,) * ndim, "u1")
    for begin in rng.integers(0, side - 3, (30, ndim)):
        mask[tuple(slice(b, b + 3) for b in begin)] = 1
    array = gzarr.create_array(tmp_path / "m", data=mask, chunks=length)
    where: Any = "label" if stored else mask != 0
    loader = Loader(
        {"label": array}, Patches((length,) * ndim, where=where, jitter=True), batch_size=4, seed=1, drop_last=False
    )
    places, origins = [], []
    for _ in range(12):
        for batch in loader:
            origins += batch.origins.tolist()
            for found in batch["label"]:
                assert found.any()
                places.append(np.argwhere(found).mean(axis=0))
    # Uniform over the patch but for what the borders of the array leave.
    mean, spread = np.mean(places, axis=0), np.std(places, axis=0)
    assert (abs(mean - length / 2) < length / 8).all()
    assert (spread > 0.2 * length).all()
    assert len(np.unique(origins, axis=0)) > 0.9 * len(origins)


def test_masks_of_a_lower_resolution_show_what_they_stand_for() -> None:
    mask = np.zeros((16, 16), bool)
    mask[3, 5] = mask[15, 15] = mask[0, 9] = True
    array = gzarr.array(np.kron(mask, np.ones((8, 8), "u1")), chunks=32)
    loader = Loader(array, Patches((32, 32), where=mask, jitter=True), batch_size=1, seed=1, drop_last=False)
    for _ in range(20):
        for batch in loader:
            assert batch["data"].any()


@pytest.mark.parametrize("origin", [0, 32, 64])
def test_patches_lie_around_coordinates(origin: int) -> None:
    array = gzarr.array(np.zeros((96, 96), "u1"), chunks=32)
    loader = Loader(array, Patches((32, 32), where=[[origin, origin]] * 64, jitter=True), batch_size=64, seed=1)
    begins = np.concatenate([batch.origins for batch in loader])
    assert begins.min() >= origin - 22
    assert begins.max() <= origin + 22
    # No place comes much more often than others, at borders neither.
    assert np.bincount(begins[:, 0]).max() <= 14
    assert len(np.unique(begins[:, 0])) >= 12


@quiet
@pytest.mark.parametrize(
    "choice",
    [{}, {"samples": 16}, {"weights": np.ones(16)}, {"where": np.ones((4, 4), bool)},
     {"where": 16 * np.argwhere(np.ones((4, 4)))}],
    ids=["all", "samples", "weights", "grid", "coordinates"],
)  # fmt: skip
def test_all_places_are_met(choice: dict[str, Any]) -> None:
    array = gzarr.array(np.zeros((64, 64), "u1"), chunks=16)
    loader = Loader(array, Patches((4, 4), stride=16, jitter=True, **choice), batch_size=16, seed=1, drop_last=False)
    begins = np.concatenate([batch.origins for _ in range(150) for batch in loader])
    found = np.bincount(begins[:, 0], minlength=61)
    assert found.min() > 0.2 * found.mean()
    assert found.max() < 3 * found.mean()


@quiet
def test_masks_without_elements() -> None:
    volumes = [gzarr.array(np.zeros(shape, "u1")) for shape in ((20, 20), (0, 20))]
    for jitter in (False, True):
        sampler = Patches((4, 4), jitter=jitter, pad="fill", where=[np.ones((20, 20), bool), np.zeros((0, 20), bool)])
        assert len(list(Loader(volumes, sampler, batch_size=5, drop_last=False))) == 5
        assert len(list(Loader(volumes, Patches((4, 4), jitter=jitter, pad="edge"), batch_size=5))) == 5


@quiet
def test_groups_are_as_wide_as_their_patches() -> None:
    """Also where cells are more than places."""
    array = gzarr.array(np.zeros(130, "u1"), chunks=8)
    for sampler in (Patches((32,), jitter=True, samples=4, stride=1), Patches((3,), jitter=True, samples=20)):
        loader = Loader(array, sampler, batch_size=4, seed=1)
        for number in range(30):
            epoch = loader._of_epoch(number)
            (cells,), (volume,) = epoch.cells.each, epoch.samples.each
            low, high = volume.samples.spans(cells)
            numbers = np.arange(cells.offsets[-1])
            places, group = epoch.origins(numbers), cells.groups(numbers)
            assert (places >= low[group]).all()
            assert (places <= high[group]).all()


@quiet
def test_a_small_volume_that_comes_often_is_in_all_batches() -> None:
    volumes = [gzarr.array(np.ones((64,) * 3, "f4"), chunks=32)]
    volumes += [gzarr.array(np.zeros((128,) * 3, "f4"), chunks=32) for _ in range(4)]
    for jitter in (False, True):
        loader = Loader(
            volumes,
            Patches((16,) * 3, jitter=jitter),
            weights=[8, 1, 1, 1, 1],
            batch_size=16,
            seed=6,
            buffer_bytes=8 << 20,
        )
        counts = np.array([(batch.volumes == 0).sum() for batch in loader])
        several = [part.sum() for part in np.array_split(counts, 10)]
        assert min(several) > 0.3 * np.mean(several), jitter


def test_every_does_not_meet_the_same_phase_in_all_volumes() -> None:
    series = [gzarr.array(np.arange(240.0), chunks=24) for _ in range(12)]
    loader = Loader(series, Windows(0, {"x": (0, 0)}, every=24), batch_size=12, seed=1, drop_last=False)
    phases = {int(x) % 24 for batch in loader for x in batch["x"].ravel()}
    assert len(phases) > 4


@quiet
def test_flips_of_random_places_read_what_these_do() -> None:
    volume = gzarr.create_array({}, shape=(96, 96, 96), dtype="u2", chunks=16)
    plain, flipped = (
        Loader(volume, Patches((8, 8, 8), jitter=True, flip=flip), batch_size=4, buffer_bytes=1 << 20).explain()
        for flip in (False, True)
    )
    assert flipped.amplification == plain.amplification
    assert flipped.mixing.groups == plain.mixing.groups
