"""What poses depend on: their options, however these are typed, and the sample, whatever the order of samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.loader import Loader, Patches

IMAGE = np.random.default_rng(0).random((96, 96)).astype("f4")
OTHER = np.random.default_rng(1).random((64, 80)).astype("f4")


def arrays(*images: np.ndarray[Any, Any]) -> list[gzarr.Array]:
    return [gzarr.array(image, chunks=(16, 16), device="cpu") for image in images]


def patches_of(volumes: Any, sampler: Patches, **options: Any) -> dict[tuple[int, ...], list[bytes]]:
    """Return the patches of an epoch by the sample that they are of."""
    found: dict[tuple[int, ...], list[bytes]] = {}
    for batch in Loader(volumes, sampler, batch_size=1, seed=5, **options):
        found.setdefault(tuple(batch.samples.tolist()), []).append(batch["data"].tobytes())
    return {sample: sorted(patches) for sample, patches in found.items()}


@pytest.mark.filterwarnings("ignore:shuffling is coarse")
@pytest.mark.parametrize(
    "sampler",
    [
        Patches((8, 8), rotate=True, pad="edge"),
        Patches((8, 8), flip=True, shift=2, pad="edge", where=np.argwhere(np.ones((6, 6))) * 8),
        Patches((8, 8), rotate=True, pad="edge", samples=300),
    ],
    ids=["grid", "listed", "repeated"],
)
@pytest.mark.parametrize("images", [(IMAGE,), (IMAGE, OTHER)], ids=["one volume", "two volumes"])
def test_poses_are_of_samples(sampler: Patches, images: Any) -> None:
    volumes = arrays(*images)
    wanted = patches_of(volumes, sampler, shuffle=False)
    for options in (
        {"shuffle": "full"}, {"shuffle": "blocks"}, {"shuffle": "blocks", "buffer_bytes": 20_000},
    ):  # fmt: skip
        assert patches_of(volumes, sampler, **options) == wanted
    # Each time, a sample is in another pose.
    several = [patches for patches in wanted.values() if len(patches) > 1]
    assert bool(several) == (sampler.samples is not None)
    assert all(len(set(patches)) == len(patches) for patches in several)


@pytest.mark.parametrize("option", ["rotate", "flip"])
def test_truth_values_of_numpy(option: str) -> None:
    (image,) = arrays(IMAGE)

    def patches(value: Any) -> Any:
        return patches_of([image], Patches((8, 8), pad="edge", **{option: value}), shuffle=False)

    assert patches(np.True_) == patches(True)
    assert patches(np.False_) == patches(None) != patches(True)
    assert not Patches((8, 8), **{option: np.False_}).is_posed


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("shear", True),
        ("shear", np.True_),
        ("shift", True),
        ("shift", np.True_),
        ("shift", (True, 2)),
        ("scale", True),
        ("rotate", (True,)),
    ],
    ids=str,
)
def test_truth_values_are_no_numbers(option: str, value: Any) -> None:
    with pytest.raises(gzarr.ArgumentError, match=f"{option} must be"):
        Loader(arrays(IMAGE), Patches((8, 8), pad="edge", **{option: value}))
