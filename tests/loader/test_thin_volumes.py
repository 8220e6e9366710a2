"""Patches at random places in volumes that are thinner than a patch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.loaders import SHUFFLES

import gzarr
from gzarr.loader import Dataset, Loader, Patches

pytestmark = pytest.mark.filterwarnings("ignore:shuffling is coarse")

SHAPES = ((24, 20), (5, 20))
DATA = [np.arange(a * b).reshape(a, b) + 1000 * i for i, (a, b) in enumerate(SHAPES)]


def volumes() -> list[gzarr.Array]:
    return [gzarr.array(data, chunks=(8, 7), fill_value=-1, device="cpu") for data in DATA]


@pytest.mark.parametrize("shuffle", SHUFFLES)
@pytest.mark.parametrize("stride", [None, 2])
@pytest.mark.parametrize("where", [None, [(0, 0), (4, 13)]])
def test_they_lie_at_0_and_are_padded(shuffle: Any, stride: Any, where: Any) -> None:
    sampler = Patches((8, 6), stride=stride, jitter=True, halo=1, pad="fill", where=where)
    padded = [np.pad(data, 16, constant_values=-1) for data in DATA]
    places = []
    loader = Loader(volumes(), sampler, batch_size=3, shuffle=shuffle, buffer_bytes=4000, drop_last=False)
    for batch in loader:
        for found, i, (y, x) in zip(batch["data"], batch.volumes, batch.origins.tolist(), strict=True):
            assert 0 <= y <= max(SHAPES[i][0] - 8, 0)
            assert 0 <= x <= SHAPES[i][1] - 6
            np.testing.assert_array_equal(found, padded[i][y + 15 : y + 25, x + 15 : x + 23])
            places.append((i, x))
    on_the_grid = Loader(volumes(), Patches((8, 6), stride=stride, pad="fill", where=where), drop_last=False)
    assert len(places) == on_the_grid.explain().samples
    if where is None:
        assert len({x for i, x in places if i == 1}) > 1


def test_posed_and_one_by_one() -> None:
    thin = volumes()[1]
    posed = Loader(thin, Patches((8, 6), jitter=True, pad="fill", flip=True, interpolation="nearest"), drop_last=False)
    padded = np.pad(DATA[1], ((0, 3), (0, 0)), constant_values=-1)
    count = 0
    for batch in posed:
        for found, (y, x) in zip(batch["data"], batch.origins.tolist(), strict=True):
            assert y == 0
            box = padded[:, x : x + 6]
            assert any(np.array_equal(found, box[::a, ::b]) for a in (1, -1) for b in (1, -1))
            count += 1
    assert count == 4
    sample = Dataset(thin, Patches((8, 20), jitter=True, pad="fill"))[0]
    np.testing.assert_array_equal(sample["data"], padded)


def test_without_padding_there_is_none() -> None:
    with pytest.raises(gzarr.ArgumentError, match=r"shape \(8, 6\) do not fit an array of \(5, 20\) without padding"):
        Loader(volumes(), Patches((8, 6), jitter=True, pad=None))
