"""Arrays and masks of another resolution: which elements they stand for, also where lengths do not say it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gzarr
import gzarr.ome
from gzarr.loader import Patches, samplers
from gzarr.loader.factors import whole_factors

pytestmark = pytest.mark.filterwarnings("ignore:shuffling is coarse")


def image_of(data: np.ndarray, levels: int, factors: Any = 2, scale: Any = None, **options: Any) -> Any:
    return gzarr.ome.create(
        {}, data, axes="zyx"[-data.ndim :], scale=scale or (1,) * data.ndim, levels=levels, factors=factors,
        progress=False, **options,
    )  # fmt: skip


def origins(image: Any, sampler: Patches) -> list[list[int]]:
    loader = gzarr.Loader(image, sampler, batch_size=1, shuffle=False, drop_last=False)
    return [batch.origins[0].tolist() for batch in loader]


@pytest.mark.parametrize(("size", "levels"), [(1921, 6), (97, 4), (113, 5), (21, 3)])
def test_levels_as_masks_choose_the_same_patches(size: int, levels: int) -> None:
    data = np.zeros((64, size), "u1")
    data[:, size - size // 6 : size - 2] = 1
    image = image_of(data, levels, {"y": 1, "x": 2}, method="max")
    width = 2 ** (levels - 1)
    wanted = origins(image, Patches((64, width), where=data > 0))
    assert 0 < len(wanted) < size / width
    for level in image.levels:
        found = np.asarray(level.array[...])
        scaled = image_of(found, 1, scale=level.scale)
        for where in (level.array, found > 0, level, scaled):
            assert origins(image, Patches((64, width), where=where)) == wanted
    # A mask of one element to a patch of another size, though it has the grid's shape: the scale says so.
    single = image_of(np.ones((1, 2), "u1"), 1, scale=(64, size - 1))
    assert origins(image, Patches((64, size // 2 + 1), where=single)) == [[0, 0], [0, size // 2 + 1]]


@pytest.mark.parametrize(
    ("shape", "levels", "factors", "patch"),
    [
        ((10, 48, 48), 3, 2, (4, 8, 8)),
        ((9, 48, 48), 3, 2, (4, 8, 8)),
        ((6, 50, 40), 3, 2, (4, 8, 8)),
        ((10, 66, 66), 2, 3, (3, 6, 6)),
        ((50, 1000), 3, 3, (9, 18)),
        ((1921,), 6, 2, (64,)),
        ((5, 97), 4, {"y": 1, "x": 2}, (2, 16)),
    ],
)
def test_levels_in_a_sample_show_its_region(shape: Any, levels: int, factors: Any, patch: Any) -> None:
    if len(shape) == 1:
        shape, patch, factors = (2, *shape), (2, *patch), {"y": 1, "x": factors}
    places = np.indices(shape)
    image = image_of((places[-1] + 1000 * places[0]).astype("f4"), levels, factors)
    for coarse in (image.levels[-1].array, image.levels[-1]):
        loader = gzarr.Loader({"fine": image, "coarse": coarse}, Patches(patch, pad="edge"), batch_size=1)
        by = [round(a / b) for a, b in zip(image.levels[-1].scale, image.scale, strict=True)]
        for batch in loader:
            fine, found = batch["fine"][0], batch["coarse"][0]
            assert found.shape == tuple(n // f for n, f in zip(patch, by, strict=True))
            inside = tuple(
                slice(0, max((n - o) // f, 0))
                for n, o, f in zip(shape, batch.origins[0].tolist(), by, strict=True)
            )  # fmt: skip
            parts = [m for n, f in zip(patch, by, strict=True) for m in (n // f, f)]
            means = fine.astype("f8").reshape(parts).mean(axis=tuple(range(1, 2 * len(patch), 2)))
            np.testing.assert_allclose(found[inside], means[inside], rtol=1e-6)


@pytest.mark.parametrize(("base", "filled"), [(2, True), (2, False), (3, True)])
def test_lengths_are_right_or_refused(base: int, filled: bool) -> None:
    """Whether the last element of a level is filled up or left out."""
    told = 0
    for size in range(1, 500):
        for factor in (base**i for i in range(1, 6)):
            length, other = (-(-n // factor) if filled else n // factor for n in (size, 96))
            # Of one element, all are a part.
            if length < 2:
                continue
            # Scales tell it.
            assert whole_factors("x", (size, 7), (length, 7), (factor, 1)) == (factor, 1)
            if base == 2:
                # So does another axis.
                assert whole_factors("x", (size, 96), (length, other), None)[0] == factor
            try:
                (found,) = whole_factors("x", (size,), (length,), None)
            except gzarr.ArgumentError:
                assert length < 2 * factor
                continue
            # What is divided by a power of two is taken to be that.
            assert found == factor or (base == 3 and size == found * length and found in (2, 8, 16, 64, 128))
            told += 1
    assert told > 900


@pytest.mark.parametrize(
    ("size", "lengths", "factor"),
    [
        ((2000, 2160), (40, 43), 50), ((1000, 12345), (10, 123), 100), ((2560, 2560), (51, 51), 50),
        ((512, 512), (25, 25), 20), ((2304, 2560), (48, 53), 48), ((2160, 2560), (540, 640), 4),
        ((1921, 64), (61, 2), 32),
    ],
)  # fmt: skip
def test_one_factor_of_all_axes(size: tuple[int, int], lengths: tuple[int, int], factor: int) -> None:
    """Where lengths leave several open, exact divisors, powers of two and round numbers come first."""
    assert whole_factors("x", size, lengths, None) == (factor, factor)


def test_a_mask_whose_elements_may_stand_for_several_numbers() -> None:
    """Of level 7 of a pyramid, or of a grid of 8 by 8 places: repeated, they stand for one number only."""
    mask = np.eye(8, dtype=bool)
    with pytest.raises(gzarr.ArgumentError, match=r"125 or 128 of them; .*np\.repeat"):
        gzarr.Loader(np.zeros((1000, 1000), "u1"), Patches((250, 250), where=mask))
    repeated = mask.repeat(5, 0).repeat(5, 1)
    found = origins(np.zeros((1000, 1000), "u1"), Patches((125, 125), where=repeated))
    assert found == [[125 * i, 125 * i] for i in range(8)]


def test_a_mask_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a warning says how large a buffer would be needed."""
    calls = []
    own = samplers.cells_of_mask

    def counted(*arguments: Any, **named: Any) -> Any:
        calls.append(arguments)
        return own(*arguments, **named)

    monkeypatch.setattr(samplers, "cells_of_mask", counted)
    mask = gzarr.create_array({}, data=np.ones((64, 64), bool), chunks=(32, 32))
    array = gzarr.create_array({}, data=np.zeros((64, 64), "u1"), chunks=(8, 8))
    loader = gzarr.Loader(array, Patches((8, 8), where=mask), batch_size=16, buffer_bytes=1024)
    with pytest.warns(UserWarning, match="shuffling is coarse"):
        next(iter(loader))
    loader.explain()
    assert len(calls) == 1


def test_several_factors_are_refused_unless_scales_tell() -> None:
    data = np.zeros((100, 100), "u1")
    data[99] = 1
    image = image_of(data, 3, 3, method="max")
    coarse = image.levels[2]
    assert coarse.shape == (12, 12)
    for arrays, where in (({"fine": data, "coarse": coarse.array}, None), (image, coarse.array)):
        with pytest.raises(
            gzarr.ArgumentError, match=r"has 12 elements where the first array has 100: one may stand for 8 or 9"
        ):
            gzarr.Loader(arrays, Patches((90, 90), where=where))
    assert origins(image, Patches((9, 9), where=coarse)) == [[99, 9 * i] for i in range(12)]
    loader = gzarr.Loader({"fine": image, "coarse": coarse.array}, Patches((9, 9), pad="edge"))
    assert next(iter(loader))["coarse"].shape[1:] == (1, 1)
    # Scales that are not of these lengths are left out.
    wrong = image_of(np.zeros((50, 50), "u1"), 1, scale=(7, 7))
    assert next(iter(gzarr.Loader({"a": image, "b": wrong}, Patches((10, 10)))))["b"].shape[1:] == (5, 5)
    with pytest.raises(gzarr.ArgumentError, match="has 70 elements where the first array has 100"):
        gzarr.Loader([{"a": image, "b": np.zeros((70, 100))}], Patches((10, 10)))


def test_labels_choose_patches_of_a_coarser_level() -> None:
    data = np.zeros((96, 90), "u1")
    data[50:52, 33] = 1
    image = image_of(data, 3, 2, scale=(0.5, 0.5))
    for where in (image_of(data, 1, 2, scale=(0.5, 0.5)), image.levels[0]):
        # Patches of 8 by 8 elements of the level of 1 micrometre, so of 16 by 16 elements of the mask.
        found = origins(image, Patches((8, 8), spacing=(1, 1), where=where))
        assert found == [[24, 16]]
        assert origins(image, Patches((8, 8), spacing=(2, 2), where=where)) == [[8, 8]]
    assert origins(image, Patches((16, 16), where=image_of(data, 1, 2, scale=(0.5, 0.5)))) == [[48, 32]]
    with pytest.raises(gzarr.ArgumentError, match="nor a shape that is smaller"):
        gzarr.Loader(image, Patches((8, 8), spacing=(1, 1), where=data > 0))
