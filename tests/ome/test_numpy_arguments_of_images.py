"""Numbers and arrays of NumPy are taken wherever numbers and lists are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.errors import ArgumentError, SelectionError
from gzarr.ome.metadata.model import Acquisition, Channel, Window

DATA = np.random.default_rng(5).integers(0, 1000, (3, 8, 64, 64)).astype("u2")
FLAT = DATA[0, 0]


@pytest.fixture
def image() -> Any:
    return gzarr.ome.create(
        {}, DATA, axes="czyx", channels=list("abc"), levels=3, units="micrometer", chunks=(1, 4, 16, 16)
    )


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (np.array([0, 2]), [0, 2]),
        (np.array([2, -3], "i1"), [2, 0]),
        (range(0, 3, 2), [0, 2]),
        ((0, 2), [0, 2]),
        (np.array([True, False, True]), [0, 2]),
        ([True, False, True], [0, 2]),
        (np.array(["a", "c"]), [0, 2]),
        (np.int64(2), 2),
        (np.array(2), 2),
    ],
)
def test_channels(image: Any, selection: Any, expected: Any) -> None:
    np.testing.assert_array_equal(image.read(c=selection), DATA[expected])
    np.testing.assert_array_equal(image.read("auto", pixels=10**5, c=selection), image.read(0, c=expected))
    np.testing.assert_array_equal(image.read("auto", pixels=3000, c=selection), image.read(2, c=expected))
    np.testing.assert_array_equal(image.render(c=selection), image.render(c=expected))
    assert image.thumbnail(c=selection) == image.thumbnail(c=expected)


def test_lists_keep_the_order_of_axes(image: Any) -> None:
    some = np.array([1, 2])
    np.testing.assert_array_equal(image.read(z=some, x=3), DATA[:, 1:3, :, 3])
    np.testing.assert_array_equal(image.read(c=some, z=some), DATA[1:3, 1:3])


def test_other_axes_at_a_chosen_level(image: Any) -> None:
    """Integers of a list count elements of the first level, as single ones do."""
    for given in ([0, 7], np.array([0, 7]), (0, 7), range(0, 8, 7), np.arange(8) % 7 == 0):
        found = image.read("auto", pixels=3000, z=given)
        np.testing.assert_array_equal(found, image.read(2)[:, [0, 1]])
    assert image.choose_level(pixels=3 * 64 * 64, z=np.arange(8) == 5) == 0
    np.testing.assert_array_equal(image.read("auto", pixels=100, c="b", z=-1), image.read(2, c=1, z=-1))
    assert image.choose_level(pixels=64 * 64, C="b", Z=np.int64(3)) == 0
    with pytest.raises(ArgumentError, match="has the axes c, z, y, x, not 'w'"):
        image.choose_level(pixels=5, w=3)
    for wrong in (True, 1.0, None, "b"):
        with pytest.raises(SelectionError, match="takes an integer, a slice or a list of integers, not"):
            image.read("auto", pixels=3000, z=wrong)
    with pytest.raises(SelectionError, match="a mask of 2 elements does not fit an axis of 8"):
        image.read("auto", pixels=3000, z=[True, False])
    with pytest.raises(SelectionError, match="index 8 is out of bounds"):
        image.read("auto", pixels=3000, z=[0, 8])


def test_masks_of_frames() -> None:
    movie = gzarr.ome.create({}, DATA[0], axes="tyx", levels=2)
    # As an append leaves it that was killed.
    movie.level(1).append(np.ones((1, 32, 32), "u2"))
    again = gzarr.ome.open(movie.group.store)
    mask = np.arange(8) % 3 == 0
    np.testing.assert_array_equal(again.read(1, t=mask), movie.level(1)[:8][mask])
    with pytest.raises(SelectionError, match="a mask of 9 elements does not fit an axis of 8"):
        again.read(1, t=np.ones(9, bool))


@pytest.mark.parametrize("wrong", [np.array([[0, 1]]), np.array([0.5]), {0, 1}, 1.5, np.array([object()])])
def test_wrong_channels(image: Any, wrong: Any) -> None:
    with pytest.raises(ArgumentError, match="'c' takes an integer"):
        image.render(c=wrong)
    for axis in ("t", "z"):
        movie = gzarr.ome.create({}, DATA, axes="tzyx", levels=1)
        with pytest.raises(ArgumentError, match="takes an integer"):
            movie.render(**{axis: wrong})
    with pytest.raises(SelectionError, match="a mask of 2 elements"):
        image.render(c=[True, False])


@pytest.mark.parametrize("three", [np.int64(3), np.uint8(3), np.float32(3), np.float64(3), np.array(3)])
def test_lengths(image: Any, three: Any) -> None:
    np.testing.assert_array_equal(image.read_um((4, 32, 32), three), image.read_um((4, 32, 32), 3))
    assert image.choose_level(resolution=three) == image.choose_level(resolution=3) == 1
    assert image.choose_level(resolution={"x": three}) == 1


@pytest.mark.parametrize("two", [np.int64(2), np.uint8(2), np.array(2)])
def test_numbers_of_levels(two: Any) -> None:
    image = gzarr.ome.create({}, FLAT, axes="yx", levels=two)
    assert [level.shape for level in image.levels] == [(64, 64), (32, 32)]
    assert len(gzarr.ome.pyramid(image.group.store, levels=two, overwrite=True).levels) == 2
    for factors in (np.array([2, 4]), [two, 4], [{"y": two, "x": 2}, 4]):
        image = gzarr.ome.create({}, FLAT, axes="yx", factors=factors)
        assert [level.shape for level in image.levels] == [(64, 64), (32, 32), (8, 8)]
    for wrong in (np.array([2, 4]), np.float32(2), np.True_):
        with pytest.raises(ArgumentError, match="levels must be"):
            gzarr.ome.create({}, FLAT, axes="yx", levels=wrong)
        with pytest.raises(ArgumentError, match="without data, only level 0 is made"):
            gzarr.ome.create({}, shape=(8, 8), dtype="u1", axes="yx", levels=wrong)
    with pytest.raises(ArgumentError, match="factors must be positive integers"):
        gzarr.ome.create({}, FLAT, axes="yx", factors=np.array([[2, 2]]))


def test_wrong_levels(image: Any) -> None:
    with pytest.raises(ArgumentError, match="has levels 0 to 2"):
        image.read(np.array([0, 1]))
    with pytest.raises(ArgumentError, match="has levels 0 to 2"):
        image.read_um((4, 32, 32), 3, np.array([0, 1]))


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_plates(version: Any) -> None:
    store: dict[str, Any] = {}
    passes = [Acquisition(np.int64(0), maximum_field_count=np.uint8(4)), Acquisition(1)]
    gzarr.ome.create_plate(store, rows="AB", columns=np.array([1, 2]), acquisitions=passes, version=version)
    gzarr.ome.create_field(store, "B", np.int64(2), FLAT, axes="yx", acquisition=np.int64(1), field=np.int64(0))
    plate: Any = gzarr.ome.open(store)
    assert [one.id for one in plate.acquisitions] == [0, 1]
    well = plate.well(np.int64(1), np.int64(-1))
    assert well.fields[0].acquisition == 1
    assert plate.thumbnail(np.int64(64), field=np.int64(0)) == plate.thumbnail(64, field=0)
    assert well.thumbnail(np.int64(64)) == well.thumbnail(64)
    with pytest.raises(ArgumentError, match="one of the plate's, 0, 1, not"):
        gzarr.ome.create_field(store, "A", 1, FLAT, axes="yx", acquisition=np.int64(2))


def test_sizes_of_pictures(image: Any) -> None:
    np.testing.assert_array_equal(image.render(size=np.int64(20)), image.render(size=20))
    assert image.thumbnail(np.uint16(20)) == image.thumbnail(20)


def test_windows() -> None:
    channel = Channel("a", "FFFFFF", Window(np.float32(0), np.int64(5), np.uint8(0), np.float64(9)), np.True_)
    image = gzarr.ome.create({}, FLAT, axes="yx", channels=[channel])
    assert image.channels == (Channel("a", "FFFFFF", Window(0, 5, 0, 9), True),)
    image.update_metadata(channels=[Channel("b", "FFFFFF", Window(0, np.uint16(7), 0, 9))])
    assert image.channels[0].window == Window(0, 7, 0, 9)


def test_levels(image: Any) -> None:
    for level in (np.int64(1), np.uint8(1), np.array(-2)):
        assert image.level(level).shape == image.level(1).shape
        np.testing.assert_array_equal(image.read(level), image.read(1))
        np.testing.assert_array_equal(image.render(level=level), image.render(level=1))
    with pytest.raises(ArgumentError, match=r"has levels 0 to 2, not np\.float64"):
        image.level(np.float64(1))


ROWS = np.arange(300) % 7 == 0


@pytest.mark.parametrize(
    "given",
    [
        ROWS,
        np.flatnonzero(ROWS),
        np.array([5, -1, 5, 0, -300], "i2"),
        np.array([0, 255], "u1"),
        np.array([0, 299], "u8"),
        np.array([], "i8"),
        np.zeros(300, bool),
    ],
)
def test_arrays_are_read_as_lists_are(given: Any) -> None:
    data = np.arange(300 * 4, dtype="u2").reshape(300, 4)
    image = gzarr.ome.create({}, data, axes="yx", factors=[{"y": 3}, {"y": 2}], chunks=8)
    for options in ({}, {"level": 0}, {"level": "auto", "pixels": 10**6}):
        np.testing.assert_array_equal(image.read(y=given, **options), data[given])
        np.testing.assert_array_equal(image.read(y=given.tolist(), **options), data[given.tolist() or given])
    for pixels in (70, 1):
        listed = image.read("auto", pixels=pixels, y=given.tolist())
        np.testing.assert_array_equal(image.read("auto", pixels=pixels, y=given), listed)
        assert image.choose_level(pixels=pixels, y=given) == image.choose_level(pixels=pixels, y=given.tolist())


def test_arrays_stay_arrays(image: Any) -> None:
    """As lists, those of millions of elements take far longer than the read."""

    class Unlisted(np.ndarray[Any, Any]):
        def tolist(self) -> Any:
            raise AssertionError("made a list")

    mask = (np.arange(64) % 5 == 0).view(Unlisted)
    for options in ({}, {"level": 1}, {"level": "auto", "pixels": 10**6}, {"level": "auto", "pixels": 3000}):
        for given in (mask[: 32 if options.get("level") == 1 else 64], np.array([3, -1]).view(Unlisted)):
            image.read(y=given, **options)


@pytest.mark.parametrize(
    ("wrong", "shown"), [([0, 8], "8"), ([-9], "-9"), (np.array([3, 2**64 - 1], "u8"), str(2**64 - 1))]
)
def test_indexes_beyond_the_axis(image: Any, wrong: Any, shown: str) -> None:
    with pytest.raises(SelectionError, match=f"index {shown} is out of bounds for an axis of 8 elements"):
        image.read("auto", pixels=3000, z=np.asarray(wrong))
    with pytest.raises(SelectionError, match="out of bounds"):
        image.read(z=np.asarray(wrong))
    with pytest.raises(SelectionError, match="a mask of 2 elements does not fit an axis of 8"):
        image.read("auto", pixels=3000, z=np.array([True, False]))


def test_arrays_of_frames() -> None:
    movie = gzarr.ome.create({}, DATA[0], axes="tyx", levels=2)
    # As an append leaves it that was killed.
    movie.level(1).append(np.ones((1, 32, 32), "u2"))
    again = gzarr.ome.open(movie.group.store)
    np.testing.assert_array_equal(again.read(1, t=np.array([-1, 0])), movie.level(1)[:8][[-1, 0]])
    with pytest.raises(SelectionError, match="index 8 is out of bounds for an axis of 8 elements"):
        again.read(1, t=np.array([0, 8]))


def test_durations_are_no_numbers(image: Any) -> None:
    """NumPy counts them among its integers."""
    one = np.timedelta64(1, "ns")
    for use in (
        lambda: image.coordinate_map(one, "physical"),
        lambda: image.choose_level(pixels=one),
        lambda: gzarr.ome.create({}, FLAT, axes="yx", scale=[one, one]),
        lambda: gzarr.ome.create({}, FLAT, axes="yx", translation={"y": one}),
        lambda: gzarr.ome.create({}, FLAT, axes="yx", levels=one),
    ):
        with pytest.raises(ArgumentError, match=r"timedelta64\(1"):
            use()
