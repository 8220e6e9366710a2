"""The levels of a pyramid, and the order of a pass over level 0."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gzarr.errors import ArgumentError
from gzarr.ome.writing.downsample import cells_of
from gzarr.ome.writing.plan import PlannedGrid, in_order, plan_levels

SPACE = (True, True, True)


def planned(shape, axes="zyx", spacing=None, chunks=None, **options):
    space = [name in "zyx" for name in axes]
    return plan_levels(shape, axes, space, spacing or (1,) * len(axes), chunks or (64,) * len(axes), **options)


def test_halves_until_a_level_fits_a_chunk() -> None:
    levels = planned((512, 500, 131))
    assert [level.shape for level in levels] == [(256, 250, 66), (128, 125, 33), (64, 63, 17)]
    assert [level.scale for level in levels] == [(2,) * 3, (4,) * 3, (8,) * 3]


def test_z_is_kept_until_the_voxel_is_isotropic() -> None:
    levels = planned((100, 4096, 4096), spacing=(5, 1, 1))
    assert [level.factors for level in levels][:4] == [(1, 2, 2), (1, 2, 2), (2, 2, 2), (2, 2, 2)]
    assert [level.shape for level in levels][:3] == [(100, 2048, 2048), (100, 1024, 1024), (50, 512, 512)]
    # 3 : 1 comes closest to a cube as 3 : 4.
    levels = planned((100, 4096, 4096), spacing=(3, 1, 1))
    assert [level.factors for level in levels][:3] == [(1, 2, 2), (1, 2, 2), (2, 2, 2)]
    # A single plane says nothing about the others' spacing, and cannot be reduced.
    levels = planned((1, 512, 512), spacing=(0.1, 1, 1), levels=3)
    assert [level.factors for level in levels] == [(1, 2, 2), (1, 2, 2)]


def test_only_axes_of_space_are_reduced() -> None:
    levels = planned((7, 3, 64, 300, 300), "tczyx", chunks=(1, 1, 64, 64, 64))
    assert {level.shape[:2] for level in levels} == {(7, 3)}
    assert math.prod(levels[-1].shape[2:]) <= 64**3


def test_levels_and_factors() -> None:
    assert planned((512,) * 3, levels=1) == []
    assert len(planned((512,) * 3, levels=4)) == 3
    assert [x.shape for x in planned((512,) * 3, levels=3, factors=4)] == [(128,) * 3, (32,) * 3]
    assert [x.shape for x in planned((10, 20, 30), levels=2, factors={"z": 1, "x": 3})] == [(10, 20, 10)]
    each = [x.scale for x in planned((100, 100, 100), factors=[2, {"y": 5}, 3])]
    assert each == [(2, 2, 2), (2, 10, 2), (6, 30, 6)]
    # Nothing is left.
    assert [x.shape for x in planned((2, 2, 3), levels=9)] == [(1, 1, 2), (1, 1, 1)]
    assert planned((0, 5, 5)) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"levels": 0}, "levels must be 'auto' or a number from 1 to 64"),
        ({"levels": True}, "levels must be"),
        ({"levels": "all"}, "levels must be"),
        ({"levels": 10**9}, "levels must be"),
        ({"factors": 0}, "positive integers"),
        ({"factors": 2.5}, "positive integers"),
        ({"factors": "2"}, "positive integers"),
        ({"factors": {"q": 2}}, "there is no axis 'q'; the axes are t, z, y, x"),
        ({"factors": {"t": 2}}, "only axes of space are reduced, and 't' is none"),
        ({"factors": 17}, "at most 4,096 elements"),
        ({"factors": [2, 2], "levels": 4}, "factors= has 2 entries"),
        ({"factors": [2] * 64}, "at most 64 levels"),
    ],
)
def test_bad_arguments(options, message) -> None:
    with pytest.raises(ArgumentError, match=message):
        planned((2, 50, 50, 50), "tzyx", **options)


def test_z_order() -> None:
    grids = [
        PlannedGrid((8, 8), (2, 2), None),
        PlannedGrid((4, 4), (2, 2), (2, 2)),
        PlannedGrid((2, 2), (2, 2), (2, 2)),
    ]
    begins = [(box[0].start, box[1].start) for box in in_order(grids)]
    assert begins[:8] == [(0, 0), (0, 2), (2, 0), (2, 2), (0, 4), (0, 6), (2, 4), (2, 6)]


@settings(deadline=None, max_examples=80)
@given(st.data())
def test_every_box_comes_once(data: st.DataObject) -> None:
    ndim = data.draw(st.integers(1, 3))
    lengths = st.lists(st.integers(1, 30), min_size=ndim, max_size=ndim).map(tuple)
    small = st.lists(st.integers(1, 5), min_size=ndim, max_size=ndim).map(tuple)
    shape = data.draw(lengths)
    grids = [PlannedGrid(shape, data.draw(small), None)]
    for _ in range(data.draw(st.integers(0, 3))):
        factors = data.draw(small)
        shape = cells_of(shape, factors)
        grids.append(PlannedGrid(shape, data.draw(small), factors))
    found = [tuple((s.start, s.stop) for s in box) for box in in_order(grids)]
    first = grids[0]
    everything = itertools.product(*map(range, cells_of(first.shape, first.unit)))
    assert sorted(found) == sorted(tuple((s.start, s.stop) for s in first.box(place)) for place in everything)
    assert len(found) == first.count
