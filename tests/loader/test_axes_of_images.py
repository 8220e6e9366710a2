"""Images of a loader whose axes have other units, or another order, than those of the first one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gzarr
import gzarr.ome
from gzarr.loader import Dataset, Loader, Patches

DATA = np.random.default_rng(0).integers(0, 255, (32, 32)).astype("u1")
SPACED: dict[str, Any] = {"pad": "edge", "spacing": (1, 1)}


def image(data: np.ndarray[Any, Any] = DATA, axes: str = "yx", scale: Any = (1, 1), **options: Any) -> Any:
    return gzarr.ome.create({}, data, axes=axes, scale=scale, chunks=8, progress=False, **{"levels": 1, **options})


@pytest.mark.parametrize("options", [{}, {"rotate": True, "pad": "edge"}, SPACED], ids=["plain", "rotated", "spaced"])
def test_images_of_another_order_are_refused(options: dict[str, Any]) -> None:
    other = image(DATA.T.copy(), "xy")
    for turned in (other, other.levels[0]):
        for make in (Loader, Dataset):
            with pytest.raises(gzarr.ArgumentError, match=r"mask'? has the axes x, y where the first image has y, x"):
                make({"image": image(), "mask": turned}, Patches((8, 8), **options))


def test_masks_and_volumes_of_another_order_are_refused() -> None:
    other = image(DATA.T.copy(), "xy")
    with pytest.raises(gzarr.ArgumentError, match="where= has the axes x, y where the first image has y, x"):
        Loader(image(), Patches((8, 8), where=other))
    with pytest.raises(gzarr.ArgumentError, match="has the axes x, y where the first image has y, x"):
        Loader([image(), other], Patches((8, 8), **SPACED))


def test_images_of_other_axes_are_read() -> None:
    channels = image(np.stack([DATA, DATA]), "cyx", (1, 1, 1))
    frames = image(np.stack([DATA, DATA]), "tyx", (1, 1, 1))
    for options in ({}, SPACED):
        loader = Loader({"a": channels, "b": frames, "c": image()}, Patches((8, 8), **options), batch_size=1)
        for batch in loader:
            np.testing.assert_array_equal(batch["a"], batch["b"])
            np.testing.assert_array_equal(batch["a"][:, 0], batch["c"])


@pytest.mark.parametrize("levels", [1, 3])
def test_units_are_those_of_the_first_image(levels: int) -> None:
    micro = image(scale=(0.5, 0.5), units="micrometer", levels=levels)
    nano = image(scale=(500, 500), units="nanometer", levels=levels)
    (alone,) = Loader(micro, Patches((8, 8), **SPACED), batch_size=4, shuffle=False)
    for first, second, spacing in ((micro, nano, 1), (nano, micro, 1000)):
        sampler = Patches((8, 8), pad="edge", spacing=(spacing, spacing))
        found = list(Loader([first, second], sampler, batch_size=4, shuffle=False))
        assert len(found) == 2
        for batch in found:
            np.testing.assert_array_equal(batch["data"], alone["data"])
        (pairs,) = Loader({"a": first, "b": second}, sampler, batch_size=4, shuffle=False)
        np.testing.assert_array_equal(pairs["a"], alone["data"])
        np.testing.assert_array_equal(pairs["b"], alone["data"])


def test_scales_in_other_units_tell_the_factor() -> None:
    """100 elements may have become 12 by 8 or by 9: lengths alone do not tell it."""
    first = image(np.zeros((100, 100), "u1"), scale=(0.5, 0.5), units="micrometer")
    coarse = image(np.zeros((12, 12), "u1"), scale=(4500, 4500), units="nanometer")
    batch = next(iter(Loader({"a": first, "b": coarse}, Patches((90, 90)), batch_size=1)))
    assert batch["b"].shape == (1, 10, 10)


def test_units_that_cannot_be_converted() -> None:
    first, other = image(units="micrometer"), image()
    options: dict[str, Any] = {"batch_size": 32, "drop_last": False}
    # Numbers without a unit are in that of the first image.
    assert len(Loader([first, other], Patches((8, 8), **SPACED), **options)) == 1
    document = other.group.attrs["ome"]
    for axis in document["multiscales"][0]["axes"]:
        axis["unit"] = "cubit"
    other.group.attrs["ome"] = document
    other = gzarr.ome.open(other.group.store)
    assert len(Loader([other, other], Patches((8, 8), **SPACED), **options)) == 1
    with pytest.raises(gzarr.ArgumentError, match="'cubit', which cannot be converted to 'micrometer'"):
        Loader([first, other], Patches((8, 8), **SPACED))
