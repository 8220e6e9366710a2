"""Arrays of several resolutions show one region wherever a patch lies."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.loader import Dataset, Loader, Patches

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.filterwarnings("ignore:shuffling is coarse")


def place_of(shape: Sequence[int]) -> np.ndarray:
    """Return an array whose elements tell where they are."""
    return np.arange(math.prod(shape), dtype="i8").reshape(shape)


def expected(whole: np.ndarray, origin: Sequence[int], factors: Sequence[int], shape: Sequence[int], halo: int) -> Any:
    """Return what an array shows of a region of the first array, its last elements repeated."""
    assert all(o % f == 0 for o, f in zip(origin, factors, strict=True))
    along = [
        np.clip(np.arange((o - halo) // f, (o + n + halo) // f), 0, length - 1)
        for o, f, n, length in zip(origin, factors, shape, whole.shape, strict=True)
    ]
    return whole[np.ix_(*along)]


def masked(shape: Sequence[int]) -> np.ndarray:
    """Return a mask with few true elements, of which one is the last."""
    mask = np.random.default_rng(0).random(shape) < 0.02
    mask[(-1,) * mask.ndim] = True
    return mask


CASES: dict[str, tuple[tuple[int, ...], list[tuple[int, ...]], Patches]] = {
    "anywhere": ((96, 96), [(4, 4)], Patches((16, 16), jitter=True, pad=None)),
    "two factors": ((96, 96), [(2, 2), (3, 3)], Patches((12, 12), jitter=True)),
    "a factor for each axis": ((60, 90), [(1, 3), (2, 1)], Patches((8, 9), jitter=True, stride=(4, 6))),
    "ragged": ((97, 71), [(4, 4)], Patches((16, 16), jitter=True, pad="edge")),
    "ragged without padding": ((97, 71), [(4, 4)], Patches((16, 16), jitter=True, pad=None)),
    "halo": ((96, 96), [(4, 4)], Patches((16, 16), jitter=True, halo=8, pad="edge")),
    "volume": ((32, 40, 48), [(1, 2, 2), (2, 4, 4)], Patches((8, 8, 8), jitter=True)),
    "mask": ((97, 71), [(4, 4)], Patches((16, 16), jitter=True, where=masked((97, 71)), pad="edge")),
    "wide cells": ((97, 71), [(4, 4)], Patches((8, 8), 24, jitter=True, where=masked((97, 71)), pad="edge")),
    "listed": ((96, 96), [(4, 4)], Patches((16, 16), jitter=True, where=[[4, 8], [80, 80], [40, 0]] * 5)),
    "drawn": ((96, 96), [(4, 4)], Patches((16, 16), jitter=True, samples=20)),
    "thin": ((96, 10), [(4, 4)], Patches((16, 16), jitter=True, pad="edge")),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("shuffle", ["blocks", "full", False])
def test_random_patches_show_one_region(name: str, shuffle: Any) -> None:
    size, factors, sampler = CASES[name]
    arrays = {"fine": place_of(size)}
    for i, each in enumerate(factors):
        arrays[f"level {i}"] = place_of([-(-n // f) for n, f in zip(size, each, strict=True)])
    given = {key: gzarr.array(whole, chunks=16) for key, whole in arrays.items()}
    loader = Loader(given, sampler, batch_size=4, seed=1, shuffle=shuffle, drop_last=False)
    halo = 8 if sampler.halo else 0
    origins = []
    for batch in [batch for _ in range(3) for batch in loader]:
        for i, origin in enumerate(batch.origins.tolist()):
            origins.append(origin)
            for key, each in zip(arrays, [(1,) * len(size), *factors], strict=True):
                wanted = expected(arrays[key], origin, each, sampler.shape, halo)  # type: ignore[arg-type]
                np.testing.assert_array_equal(batch[key][i], wanted)
    # At places that are no multiples of a patch, too.
    assert (np.array(origins) % np.array(sampler.shape)).any()


def test_all_places_that_levels_have_are_met() -> None:
    """To the last element, for which there is a whole one of the level."""
    for pad, last in (("edge", 52), (None, 48)):
        loader = Loader(
            {"fine": np.zeros(66, "u1"), "coarse": np.zeros(17, "u1")},
            Patches((16,), jitter=True, pad=pad), batch_size=4, seed=1, shuffle=False, drop_last=False,
        )  # fmt: skip
        found = [origin for _ in range(80) for batch in loader for origin in batch.origins[:, 0].tolist()]
        places, counts = np.unique(found, return_counts=True)
        assert places.tolist() == list(range(0, last + 1, 4))
        assert counts.min() > 0.3 * counts.mean()


@pytest.mark.parametrize("size", [(97, 71), (96, 72)])
@pytest.mark.parametrize("stride", [8, 16, 24])
def test_patches_of_a_mask_show_it_beside_a_level(size: tuple[int, int], stride: int) -> None:
    for seed in range(20):
        mask = np.zeros(size, bool)
        at = np.random.default_rng(seed).integers(0, size)
        at = np.array(size) - 1 if seed == 0 else at
        mask[tuple(at)] = True
        coarse = np.zeros([-(-n // 4) for n in size], "u1")
        coarse[tuple(at // 4)] = 1
        sampler = Patches((16, 16), stride, jitter=True, where=mask, pad="fill")
        arrays = {"fine": mask, "coarse": gzarr.array(coarse, chunks=8)}
        for batch in Loader(arrays, sampler, batch_size=1, seed=seed):
            assert batch["fine"].sum() == batch["coarse"].sum() == 1
            np.testing.assert_array_equal(np.argwhere(batch["fine"]) // 4, np.argwhere(batch["coarse"]))


@pytest.mark.parametrize("jitter", [False, True])
def test_places_between_elements_of_a_level_are_refused(jitter: bool) -> None:
    arrays = {"fine": np.zeros((96, 96)), "coarse": np.zeros((48, 32)), "same": np.zeros((96, 96))}
    message = (
        r"patch at \(34, 32\), where no element of coarse begins: it is smaller than the first array by \(2, 3\); the "
        r"first elements of patches must be multiples of \(2, 3\), such as \(34, 30\)"
    )
    for make in (Loader, Dataset):
        with pytest.raises(gzarr.ArgumentError, match=message):
            make(arrays, Patches((12, 12), where=[[2, 3], [34, 32]], jitter=jitter))
    assert len(Dataset(arrays, Patches((12, 12), where=[[2, 3], [34, 33]], jitter=jitter))) == 2
    # Posed patches are resampled at any place.
    assert len(Dataset(arrays, Patches((12, 12), where=[[2, 3], [34, 32]], jitter=jitter, shift=1))) == 2


def test_samples_of_datasets_show_one_region() -> None:
    fine, coarse = place_of((97, 71)), place_of((25, 18))
    dataset = Dataset({"fine": fine, "coarse": coarse}, Patches((16, 16), jitter=True, pad=None))
    for sample in dataset.__getitems__([*range(len(dataset))] * 3):
        origin = divmod(int(sample["fine"][0, 0]), 71)
        np.testing.assert_array_equal(sample["coarse"], expected(coarse, origin, (4, 4), (16, 16), 0))


def test_states_of_other_places_are_refused() -> None:
    arrays = {"fine": np.zeros((96, 96)), "coarse": np.zeros((48, 48))}
    # Levels have a say in places that are random.
    assert Loader(arrays, Patches((16, 16))).fingerprint == "36:202b.e995:36d3:66ea:6d24ea41e2899375"
    assert (
        Loader({"fine": arrays["fine"]}, Patches((16, 16), jitter=True)).fingerprint
        == "36:e995:7faa:66ea:061b7ec5002e1311"
    )
    assert Loader(arrays, Patches((16, 16), jitter=True)).fingerprint == "36:202b.e995:c820:66ea:53d4b8ffc9593893"
