"""Samples that are steps of a series: some steps, gaps, starts, rollouts, and arrays that all batches have."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.loaders import SHUFFLES

import gzarr
from gzarr.loader import Dataset, Loader, Windows

if TYPE_CHECKING:
    from pathlib import Path

    from support.devices import TestedDevice

# Small buffers, to have many blocks.
pytestmark = pytest.mark.filterwarnings("ignore:shuffling is coarse")

TIMES = 120
STEPS = {"x": (-12, -6, 0), "y": (6,)}


def fields(root: Path, axis: int = 0) -> npt.NDArray[np.int64]:
    """Write two variables whose elements tell their place, with steps along an axis; return the first one."""
    shape = [4, 6]
    shape.insert(axis, TIMES)
    data = np.arange(np.prod(shape)).reshape(shape)
    chunks = [4, 3]
    chunks.insert(axis, 5)
    for i, name in enumerate("tu"):
        gzarr.create_array(root / name, data=data + i * 10**6, chunks=chunks)
    return data


def expected(data: npt.NDArray[Any], axis: int, step: int, steps: tuple[int, ...]) -> npt.NDArray[Any]:
    return data.take([step + s for s in steps], axis=axis)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_some_steps(tmp_path: Path, axis: int, shuffle: Any, device: TestedDevice) -> None:
    data = fields(tmp_path, axis)
    arrays = {name: device.open(tmp_path / name) for name in "tu"}
    loader = Loader(
        arrays, Windows(axis, steps=STEPS), batch_size=8, shuffle=shuffle, buffer_bytes=60_000, drop_last=False
    )
    seen = []
    for batch in loader:
        for run, steps in STEPS.items():
            for i, name in enumerate("tu"):
                found = device.to_numpy(batch[run][name])
                for row, step in zip(found, batch.origins[:, 0].tolist(), strict=True):
                    assert (row == expected(data, axis, step, steps) + i * 10**6).all()
        seen += batch.origins[:, 0].tolist()
    assert sorted(seen) == list(range(12, TIMES - 6))


@settings(max_examples=60, deadline=None)
@given(
    x=st.lists(st.integers(-7, 7), min_size=1, max_size=4),
    y=st.lists(st.integers(-7, 7), min_size=1, max_size=3),
    stride=st.integers(1, 3),
    chunk=st.integers(1, 9),
    shuffle=st.sampled_from(SHUFFLES),
    buffer=st.sampled_from([2000, 20_000, 1 << 20]),
)
def test_any_steps(x: list[int], y: list[int], stride: int, chunk: int, shuffle: Any, buffer: int) -> None:
    data = np.arange(40 * 3).reshape(40, 3)
    array = gzarr.create_array(gzarr.MemoryStore(), data=data, chunks=(chunk, 3))
    low, high = min(x + y), max(x + y)
    wanted = list(range(-low, 40 - high, stride))
    loader = Loader(
        array, Windows(0, steps={"x": x, "y": y}, stride=stride), shuffle=shuffle, buffer_bytes=buffer, batch_size=3,
        drop_last=False,
    )  # fmt: skip
    seen = []
    for batch in loader:
        steps = batch.origins[:, 0]
        for name, relative in (("x", x), ("y", y)):
            assert (batch[name] == data[steps[:, np.newaxis] + np.array(relative)]).all()
        seen += steps.tolist()
    assert sorted(seen) == wanted


def test_what_lies_between_steps_is_not_read(tmp_path: Path) -> None:
    gzarr.create_array(tmp_path, data=np.arange(4000).reshape(400, 10), chunks=(1, 10))
    loader = Loader(
        gzarr.open_array(tmp_path), Windows(0, steps={"x": (-12, -6, 0), "y": (6,)}, where=[50, 200]), batch_size=2
    )
    (batch,) = loader
    assert batch["x"].shape == (2, 3, 10)
    assert batch["y"].shape == (2, 1, 10)
    assert loader.stats().chunks == 8
    # A chunk for a step of each sample, once in all: those of an epoch are shared.
    everything = Loader(gzarr.open_array(tmp_path), Windows(0, steps=STEPS), batch_size=16, drop_last=False)
    for _ in everything:
        pass
    assert everything.stats().chunks == 400
    assert everything.explain().amplification == pytest.approx(1.0)


def test_steps_by_number(tmp_path: Path) -> None:
    data = fields(tmp_path)
    samples = Dataset(gzarr.open_array(tmp_path / "t"), Windows(0, steps=STEPS))
    assert (samples[3]["x"] == data[[3, 9, 15]]).all()
    assert (samples[3]["y"] == data[[21]]).all()


def test_samples_across_a_gap_are_left_out(tmp_path: Path) -> None:
    fields(tmp_path)
    valid = np.ones(TIMES, bool)
    valid[[40, 41, 90]] = False
    array = gzarr.open_array(tmp_path / "t")
    for sampler, needs in (
        (Windows(0, {"x": (-2, 0), "y": (1, 4)}, valid=valid), range(-2, 5)),
        (Windows(0, steps=STEPS, valid=valid), (-12, -6, 0, 6)),
        (Windows(0, {"x": (-1, 1)}, stride=3, valid=valid), range(-1, 2)),
        (Windows(0, {"x": (0, 1)}, where=[38, 39, 40, 42], valid=valid), range(2)),
    ):
        low = min(needs)
        loader = Loader(array, sampler, batch_size=4, drop_last=False)
        found = sorted(int(step) for batch in loader for step in batch.origins[:, 0])
        candidates = range(-low, TIMES - max(needs), sampler.stride) if sampler.where is None else sampler.where
        assert found == [t for t in candidates if all(valid[t + s] for s in needs)]
        assert found


def test_each_epoch_has_other_starts(tmp_path: Path) -> None:
    fields(tmp_path)
    loader = Loader(gzarr.open_array(tmp_path / "t"), Windows(0, {"x": (0, 1)}, every=24), drop_last=False)
    total, firsts = TIMES - 1, []
    counts: Counter[int] = Counter()
    for _ in range(240):
        steps = sorted(int(batch.origins[0, 0]) for batch in loader)
        assert np.diff(steps).tolist() == [24] * (len(steps) - 1)
        assert len(steps) == len(loader) == total // 24
        firsts.append(steps[0])
        counts.update(steps)
    # Each hour of the day comes before one comes again, in a random order.
    for begin in (0, 24):
        hours = [first % 24 for first in firsts[begin : begin + 24]]
        assert sorted(hours) == list(range(24)) != hours
    assert sorted(counts) == list(range(total))
    of_hours = np.bincount([step % 24 for step in counts.elements()])
    assert (of_hours == of_hours[0]).all()
    (only,) = Loader(gzarr.open_array(tmp_path / "t"), Windows(0, {"x": (0, 1)}, every=500))
    assert only["x"].shape[:2] == (1, 2)
    # Pure functions of the epoch.
    loader.set_epoch(5)
    assert min(int(batch.origins[0, 0]) for batch in loader) == firsts[5]


@pytest.mark.parametrize("steps", [False, True])
def test_rollouts_grow(tmp_path: Path, steps: bool) -> None:
    data = fields(tmp_path)
    runs: Any = {"steps": {"x": (-1, 0), "y": (1, 2, 3, 4)}} if steps else {"runs": {"x": (-1, 0), "y": (1, 4)}}
    sampler = Windows(0, rollout={"y": (1, 1, 3)}, **runs)
    loader = Loader(gzarr.open_array(tmp_path / "t"), sampler, batch_size=4, drop_last=False)
    for lead in (1, 1, 3, 3, 3):
        seen = []
        for batch in loader:
            assert batch["x"].shape[1] == 2
            assert batch["y"].shape[1] == lead
            for i, step in enumerate(batch.origins[:, 0].tolist()):
                assert (batch["x"][i] == data[step - 1 : step + 1]).all()
                assert (batch["y"][i] == data[step + 1 : step + 1 + lead]).all()
            seen += batch.origins[:, 0].tolist()
        assert sorted(seen) == list(range(1, TIMES - 4))
    # What is not wanted yet is not read, and states go on in the right stage.
    loader.set_epoch(1)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    rest = [batch["y"] for batch in batches]
    other = Loader(gzarr.open_array(tmp_path / "t"), sampler, batch_size=4, drop_last=False)
    other.load_state_dict(state)
    assert all((a == b["y"]).all() for a, b in zip(rest, other, strict=True))
    assert next(iter(other))["y"].shape[1] == 3


def test_arrays_that_all_batches_have(tmp_path: Path, device: TestedDevice) -> None:
    fields(tmp_path)
    gzarr.create_array(tmp_path / "orography", data=np.arange(24.0).reshape(4, 6))
    sampler = Windows(0, {"x": (0, 1)}, static={"orography": device.open(tmp_path / "orography"), "mask": np.ones(3)})
    seen = []
    loader = Loader(
        device.open(tmp_path / "t"), sampler, batch_size=8, transform=lambda batch: seen.append(set(batch)) or batch
    )
    for batch in loader:
        assert (device.to_numpy(batch["orography"]) == np.arange(24.0).reshape(4, 6)).all()
        assert device.to_numpy(batch["mask"]).tolist() == [1, 1, 1]
        assert batch["x"].shape == (8, 2, 4, 6)
    assert seen[0] == {"x", "orography", "mask"}


def test_samples_by_number_have_none(tmp_path: Path) -> None:
    fields(tmp_path)
    with pytest.raises(gzarr.ArgumentError, match="static= is for batches"):
        Dataset(gzarr.open_array(tmp_path / "t"), Windows(0, {"x": (0, 1)}, static={"o": np.ones(3)}))


@pytest.mark.parametrize("like", ["torch", "jax"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_some_steps_as_tensors(tmp_path: Path, axis: int, like: Any) -> None:
    pytest.importorskip(like)
    data = fields(tmp_path, axis)
    loader = Loader(
        gzarr.open_array(tmp_path / "t"), Windows(axis, steps=STEPS), batch_size=4, like=like, shuffle=False
    )
    batch = next(iter(loader))
    for i in range(4):
        assert (np.asarray(batch["x"])[i] == expected(data, axis, i + 12, STEPS["x"])).all()


def test_such_arrays_as_tensors(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    fields(tmp_path)
    sampler = Windows(0, {"x": (0, 1)}, static={"orography": np.ones((4, 6), "f4")})
    batch = next(iter(Loader(gzarr.open_array(tmp_path / "t"), sampler, like="torch", batch_size=2)))
    assert isinstance(batch["orography"], torch.Tensor)
    assert batch["orography"].shape == (4, 6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "give runs="),
        ({"runs": {"x": (0, 1)}, "steps": {"x": (0,)}}, "give runs="),
        ({"steps": {"x": ()}}, "steps 'x' must be integers"),
        ({"steps": {"x": 3}}, "steps 'x' must be integers"),
        ({"steps": {"x": (0, 500)}}, "takes 501 steps"),
        ({"steps": {}}, "at least one run"),
        ({"runs": {"x": (0, 1)}, "valid": np.ones(3, bool)}, "valid must be a mask of shape"),
        ({"runs": {"x": (0, 1)}, "valid": np.ones(TIMES)}, "valid must be a mask of shape"),
        ({"runs": {"x": (0, 1)}, "every": 0}, "every must be"),
        ({"runs": {"x": (0, 1)}, "every": 2, "weights": np.ones(TIMES)}, "every must be"),
        ({"runs": {"x": (0, 1)}, "rollout": {"x": (1, 3)}}, "rollout must have"),
        ({"runs": {"x": (0, 1)}, "rollout": {"y": (1,)}}, "rollout must have"),
        ({"runs": {"x": (0, 1)}, "rollout": {"x": ()}}, "rollout must have"),
        ({"runs": {"x": (0, 1)}, "static": {"x": np.ones(2)}}, "same names"),
        ({"runs": {"x": (0, 1)}, "static": {"z": object()}}, "a loader takes"),
    ],
)
def test_bad_arguments(tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    fields(tmp_path)
    with pytest.raises(gzarr.ArgumentError, match=message):
        Loader(gzarr.open_array(tmp_path / "t"), Windows(0, **arguments))


@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_each_chunk_is_decoded_about_once(tmp_path: Path, shuffle: Any) -> None:
    # Of 400 KiB, a part fits the buffer: as many as are needed until they are done with, or blocks of them.
    data = np.arange(400 * 256, dtype="f4").reshape(400, 256)
    gzarr.create_array(tmp_path, data=data, chunks=(1, 256), codecs=None)
    buffer = {"blocks": 200 << 10, "full": 1 << 20, False: 100 << 10}[shuffle]
    loader = Loader(
        gzarr.open_array(tmp_path), Windows(0, steps=STEPS), batch_size=4, shuffle=shuffle, buffer_bytes=buffer
    )
    held = loader.explain().held_bytes
    for batch in loader:
        assert (batch["x"][:, 0] == data[batch.origins[:, 0] - 12]).all()
    decoded = loader.stats().chunks / 400
    # At the edges of blocks, steps are needed in two of them.
    assert decoded <= {"blocks": 1.6, "full": 1.0, False: 1.0}[shuffle]
    assert loader.explain().amplification == pytest.approx(decoded, abs=0.15)
    assert held <= buffer + 3 * 4 * 4096


def test_the_memory_of_far_steps_counts(tmp_path: Path) -> None:
    gzarr.create_array(tmp_path, data=np.zeros((2000, 256), "f4"), chunks=(1, 256))
    loader = Loader(gzarr.open_array(tmp_path), Windows(0, steps={"x": (0, 500)}), buffer_bytes=400 << 10)
    epoch = loader._of_epoch(0)
    bounds = epoch.order.bounds.tolist()
    sizes = [epoch.slabs(*block).nbytes for block in pairwise(bounds)]
    assert max(sizes) <= 200 << 10
