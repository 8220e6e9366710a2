"""Frames that are appended to images: all levels and labels have them, and readers never see a part of one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr

import gzarr
from gzarr.errors import ArgumentError, GzarrError, ReadOnlyError, SelectionError
from gzarr.ome import MetadataWarning

if TYPE_CHECKING:
    from pathlib import Path

    from support.devices import TestedDevice

FRAMES = np.random.default_rng(7).integers(0, 60000, (7, 20, 33), dtype="u2")
MASKS = (FRAMES // 9000).astype("u4")
LEVELS = 3


def make(store: Any, count: int, **options: Any) -> Any:
    """Create an image with labels of each kind that has the first frames."""
    options = {"axes": "tyx", "levels": LEVELS, "chunks": (2, 8, 8), "progress": False, **options}
    image = gzarr.ome.create(store, FRAMES[:count], **options)
    gzarr.ome.create_labels(store, "cells", MASKS[:count], progress=False)
    gzarr.ome.create_labels(store, "later", MASKS[:count], progress=False)
    gzarr.ome.create_labels(store, "cage", MASKS[0], axes="yx", progress=False)
    return image


def contents(image: Any) -> list[Any]:
    """Return all levels of an image."""
    return [image.read(level) for level in range(LEVELS)]


def check(store: Any, counts: tuple[int, ...]) -> int:
    """Check that readers see the first frames, at all levels, whole; return how many."""
    image = gzarr.ome.open(store)
    count: int = image.shape[0]
    assert count in counts
    whole = make({}, count)
    expected = contents(whole)
    for level in range(LEVELS):
        # Each time as a reader that has used nothing else before.
        fresh = gzarr.ome.open(store)
        np.testing.assert_array_equal(fresh.read(level), expected[level])
        np.testing.assert_array_equal(fresh.read(level, t=-1), expected[level][-1])
        cells = fresh.labels["cells"].level(level)
        np.testing.assert_array_equal(cells[:count], whole.labels["cells"].read(level))
        later = fresh.labels["later"].level(level)
        assert later.shape[0] >= count
    return count


@pytest.mark.parametrize("version", ["0.4", "0.5"])
@pytest.mark.parametrize("method", ["mean", "max", "nearest", "gaussian"])
def test_levels_and_labels_grow(tmp_path: Path, version: str, method: str) -> None:
    store = tmp_path
    image = make(store, 3, version=version, method=method)
    assert image.append(FRAMES[3], labels={"cells": MASKS[3]}) == (4, 20, 33)
    assert image.append(FRAMES[4:], "t", labels={"cells": MASKS[4:]}) == (7, 20, 33)
    assert [level.shape[0] for level in image.levels] == [7] * LEVELS
    whole = make({}, 7, version=version, method=method)
    again = gzarr.ome.open(store)
    for one, other in zip(contents(again), contents(whole), strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(contents(image.labels["cells"]), contents(whole.labels["cells"]), strict=True):
        np.testing.assert_array_equal(one, other)
    for later in contents(again.labels["later"]):
        assert later.shape[0] == 7
        assert later[:3].any()
        assert not later[3:].any()
    assert again.labels["cage"].shape == (20, 33)
    read = zarr.open_group(store, mode="r")
    np.testing.assert_array_equal(read["1"][...], whole.read(1))
    np.testing.assert_array_equal(read["labels/cells/2"][...], whole.labels["cells"].read(2))


def test_frames_on_a_device(device: TestedDevice) -> None:
    for method in ("mean", "max", "gaussian"):
        store: dict[str, Any] = {}
        image = make(store, 3, method=method)
        masks = {"cells": device.array(MASKS[3:5])}
        image.append(device.array(FRAMES[3:5]), labels=masks)
        image.append(device.array(FRAMES[5].astype("i8")), labels={"cells": MASKS[5]})
        whole: dict[str, Any] = {}
        make(whole, 6, method=method)
        found, expected = (gzarr.ome.open(one, device="cpu") for one in (store, whole))
        for one, other in ((found, expected), (found.labels["cells"], expected.labels["cells"])):
            for level in range(LEVELS):
                np.testing.assert_array_equal(one.read(level), other.read(level))


class Recorded(dict[str, Any]):
    """A mapping that keeps what it had after each change, once told to, and fails at one of them."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.states: list[dict[str, Any]] | None = None
        self.fails_at = -1

    def _changed(self) -> None:
        if self.states is not None:
            if len(self.states) == self.fails_at:
                self.states = None
                raise OSError(28, "no space left")
            self.states.append(dict(self))

    def __setitem__(self, key: str, value: Any) -> None:
        self._changed()
        super().__setitem__(key, value)

    def __delitem__(self, key: str) -> None:
        self._changed()
        super().__delitem__(key)


def test_what_readers_see_at_each_moment_and_after_a_kill() -> None:
    """Each state of the store is what a reader sees then, and what a process that is killed then leaves."""
    store = Recorded()
    image = make(store, 3)
    store.states = []
    image.append(FRAMES[3:5], labels={"cells": MASKS[3:5]})
    states, store.states = [*store.states, dict(store)], None
    assert len(states) > 20
    seen = [check(state, (3, 5)) for state in states]
    assert seen == sorted(seen)
    assert set(seen) == {3, 5}
    for state, count in zip(states, seen, strict=True):
        # One frame now, so that nothing of the two is in its way.
        gzarr.ome.open(state, mode="r+").append(FRAMES[count], labels={"cells": MASKS[count]})
        assert check(state, (count + 1,)) == count + 1
        image = gzarr.ome.open(state)
        arrays = [*image.levels, *image.labels["cells"].levels, *image.labels["later"].levels]
        assert [level.shape[0] for level in arrays] == [count + 1] * 3 * LEVELS
        assert not any(level.array[3:].any() for level in image.labels["later"].levels)


def test_the_first_frame_after_a_kill() -> None:
    """The labels that a kill leaves have one frame, as labels for all frames have."""
    store = Recorded()
    gzarr.ome.create(store, FRAMES[:0], axes="tyx", levels=2, chunks=(2, 8, 8))
    gzarr.ome.create_labels(store, "cells", MASKS[:0], chunks=(2, 8, 8))
    store.states = []
    gzarr.ome.open(store, mode="r+").append(FRAMES[0], labels={"cells": MASKS[0]})
    states = [*store.states, dict(store)]
    counts = []
    for state in states:
        image = gzarr.ome.open(state, mode="r+")
        count = image.shape[0]
        counts.append(count)
        image.append(FRAMES[1], labels={"cells": MASKS[1]})
        again = gzarr.ome.open(state)
        np.testing.assert_array_equal(again.read(0), FRAMES[1 - count : 2])
        np.testing.assert_array_equal(again.labels["cells"].read(0), MASKS[1 - count : 2])
        assert [level.shape[0] for level in (*again.levels, *again.labels["cells"].levels)] == [count + 1] * 4
    assert set(counts) == {0, 1}


def test_a_call_that_fails_leaves_the_image_as_it_was() -> None:
    store = Recorded()
    image = make(store, 3)
    store.states = []
    image.append(FRAMES[3:5], labels={"cells": MASKS[3:5]})
    for moment in range(0, len(store.states), 3):
        failing = Recorded()
        image = make(failing, 3)
        failing.states, failing.fails_at = [], moment
        with pytest.raises(GzarrError):
            image.append(FRAMES[3:5], labels={"cells": MASKS[3:5]})
        check(dict(failing), (3,))
        image = gzarr.ome.open(failing, mode="r+")
        arrays = [*image.levels, *image.labels["cells"].levels, *image.labels["later"].levels]
        assert [level.shape[0] for level in arrays] == [3] * 3 * LEVELS


PROGRAM = """
import sys, numpy as np, gzarr
image = gzarr.ome.open(sys.argv[1], mode="r+")
while True:
    count = image.shape[0]
    image.append(np.full((64, 64), count + 1, "u2"), labels={"cells": np.full((64, 64), count + 1, "u4")}, lock=True)
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL")
def test_a_killed_process(tmp_path: Path) -> None:
    store = tmp_path / "live.zarr"
    empty = np.zeros((0, 64, 64), "u2")
    gzarr.ome.create(store, empty, axes="tyx", levels=LEVELS, chunks=(4, 32, 32), progress=False)
    gzarr.ome.create_labels(store, "cells", empty.astype("u4"), chunks=(4, 32, 32), progress=False)

    def see() -> int:
        image = gzarr.ome.open(store)
        count: int = image.shape[0]
        for part in (image, image.labels["cells"]):
            for level in range(LEVELS):
                frames = part.level(level)[:count]
                np.testing.assert_array_equal(
                    frames, np.broadcast_to(np.arange(1, count + 1)[:, None, None], frames.shape)
                )
        for level in range(LEVELS):
            assert image.read(level).shape[0] == count
        return count

    for before in (0, 8):
        process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(store)])
        try:
            deadline = time.monotonic() + 60
            while see() < before + 5:
                assert process.poll() is None
                assert time.monotonic() < deadline
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        count = see()
        image = gzarr.ome.open(store, mode="r+")
        image.append(np.full((64, 64), count + 1), labels={"cells": np.full((64, 64), count + 1)})
        assert see() == count + 1
        assert {level.shape[0] for level in (*image.levels, *image.labels["cells"].levels)} == {count + 1}


def test_levels_that_lack_frames() -> None:
    """Somebody has appended to level 0 only: that is said, no other frame is read, and the next append mends it."""
    store: dict[str, Any] = {}
    image = make(store, 3)
    image.level(0).append(FRAMES[3:6])
    with pytest.warns(MetadataWarning, match=r"level 1 has 3 elements along 't', and level 0 has 6") as caught:
        behind = gzarr.ome.open(store)
    assert caught[0].filename == __file__
    with pytest.raises(SelectionError):
        behind.read(1, t=-1)
    image.append(FRAMES[6], labels={"cells": MASKS[6]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = gzarr.ome.open(store)
    for one, other in zip(contents(again), contents(make({}, 7)), strict=True):
        np.testing.assert_array_equal(one, other)
    assert [level.shape[0] for level in again.labels["cells"].levels] == [7] * LEVELS
    assert not again.labels["cells"].read(1, t=slice(3, 6)).any()


def test_a_level_that_was_opened_before() -> None:
    store: dict[str, Any] = {}
    image = make(store, 3)
    reader = gzarr.ome.open(gzarr.open_group(store))
    reader.level(1)
    image.append(FRAMES[3])
    assert reader.shape[0] == 3
    np.testing.assert_array_equal(reader.read(1, t=-1), image.read(1, t=2))
    other = gzarr.ome.Image(gzarr.open_group(store), reader.metadata)
    other.level(1)
    image.append(FRAMES[4])
    assert other.shape[0] == 5
    np.testing.assert_array_equal(other.read(1, t=-1), image.read(1, t=4))
    np.testing.assert_array_equal(other.read(1, t=[-1, 0]), image.read(1, t=[4, 0]))
    np.testing.assert_array_equal(other.read(1, t=slice(None, None, -1)), image.read(1)[::-1])


def test_frames_beyond_level_0_are_not_read() -> None:
    store: dict[str, Any] = {}
    image = make(store, 4)
    image.level(0).resize((3, 20, 33))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        reader = gzarr.ome.open(store)
    level = reader.level(1)[:3]
    np.testing.assert_array_equal(reader.read(1), level)
    np.testing.assert_array_equal(reader.read(1, t=slice(-2, None)), level[1:])
    np.testing.assert_array_equal(reader.read(1, t=slice(None, None, -1)), level[::-1])
    np.testing.assert_array_equal(reader.to_xarray(1).values, level)
    with pytest.raises(SelectionError, match="index 3 is out of bounds"):
        reader.read(1, t=3)


def test_threads_take_turns() -> None:
    store: dict[str, Any] = {}
    make(store, 1)

    def work(value: int) -> None:
        image = gzarr.ome.open(store, mode="r+")
        for _ in range(3):
            image.append(np.full((20, 33), value, "u2"), labels={"cells": np.full((20, 33), value, "u4")})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(1, 5)))
    image = gzarr.ome.open(store)
    values = image.read(0)[1:, 0, 0]
    assert sorted(values.tolist()) == sorted([1, 2, 3, 4] * 3)
    for part in (image, image.labels["cells"]):
        for level in range(LEVELS):
            frames = part.read(level)[1:]
            np.testing.assert_array_equal(frames, np.broadcast_to(values[:, None, None], frames.shape))


def test_labels_that_hold_for_all_frames() -> None:
    store: dict[str, Any] = {}
    image = gzarr.ome.create(store, FRAMES[:3], axes="tyx", levels=2)
    gzarr.ome.create_labels(store, "cage", MASKS[:1])
    image.append(FRAMES[3])
    assert image.labels["cage"].shape == (1, 20, 33)
    for name, text in (("cage", "one frame, which holds for all 4"), ("none", "has no labels 'none'")):
        with pytest.raises(ArgumentError, match=text):
            image.append(FRAMES[4], labels={name: MASKS[4]})


def test_an_axis_that_is_not_of_time() -> None:
    store: dict[str, Any] = {}
    image = gzarr.ome.create(store, FRAMES[:3], axes="zyx", scale=(9, 1, 1), levels=2, chunks=8)
    assert image.append(FRAMES[3:], "z") == (7, 20, 33)
    whole = gzarr.ome.create({}, FRAMES, axes="zyx", scale=(9, 1, 1), levels=2, chunks=8)
    np.testing.assert_array_equal(gzarr.ome.open(store).read(1), whole.read(1))


def test_levels_of_other_programs_without_their_last_cell() -> None:
    """Level 1 is cut to whole cells."""
    store: dict[str, Any] = {}
    image = gzarr.ome.create(store, FRAMES[:3], axes="tyx", levels=2, chunks=8)
    image.level(1).resize((3, 10, 16))
    image.append(FRAMES[3])
    expected = gzarr.ome.create({}, FRAMES[:4], axes="tyx", levels=2, chunks=8).read(1)[:, :, :16]
    np.testing.assert_array_equal(gzarr.ome.open(store).read(1), expected)


def test_what_is_refused() -> None:
    store: dict[str, Any] = {}
    image = make(store, 3)
    before = dict(store)
    frame = FRAMES[3]
    for arguments, text in (
        ((FRAMES[3:, 1:],), r"they must have the shape \(n, 20, 33\)"),
        ((frame[0],), r"they must have the shape \(n, 20, 33\)"),
        ((np.full((20, 33), -1),), "cannot be stored as uint16"),
        ((frame, "y"), "levels are reduced along 'y'"),
        ((frame, "q"), "has the axes t, y, x, not 'q'"),
    ):
        with pytest.raises(ArgumentError, match=text):
            image.append(*arguments)
    for options, text in (
        ({"method": "best"}, "method must be one of"),
        ({"labels": {"cells": MASKS[3:5]}}, "1 frames are needed"),
        ({"labels": {"cage": MASKS[3]}}, "hold for all frames"),
        ({"labels": {"cells": FRAMES[3].astype("f4") + 0.5}}, "cannot be stored as uint32"),
    ):
        with pytest.raises(ArgumentError, match=text):
            image.append(frame, **options)
    with pytest.raises(ReadOnlyError, match=r"mode='r\+'"):
        gzarr.ome.open(store).append(frame)
    with pytest.raises(ArgumentError, match="mode must be 'r'"):
        gzarr.ome.open(store, mode="w")
    channels = gzarr.ome.create({}, FRAMES[:2], axes="cyx", channels=["a", "b"], levels=2)
    with pytest.raises(ArgumentError, match="names its 2 channels"):
        channels.append(frame, "c")
    assert store == before
