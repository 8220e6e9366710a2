"""Ranks share an epoch, and a loader goes on where it was."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from support.loaders import ROWS, SHUFFLES, labels, rows

import gzarr
from gzarr.loader import Loader, Rows

if TYPE_CHECKING:
    from pathlib import Path


# Small buffers, to have many blocks.
pytestmark = pytest.mark.filterwarnings("ignore:shuffling is coarse")


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_ranks_together_give_what_one_gives(root: Path, data: st.DataObject) -> None:
    shuffle = data.draw(st.sampled_from(SHUFFLES))
    world_size = data.draw(st.sampled_from([1, 2, 4, 16]))
    last = data.draw(st.sampled_from(["drop", "keep", "pad"]))
    # At least one batch, and a sample for each rank.
    count = data.draw(st.integers(32, ROWS))
    options: dict[str, Any] = {
        "shuffle": shuffle,
        "drop_last": last == "drop",
        "pad": last == "pad",
        "prefetch": 0,
        "buffer_bytes": data.draw(st.sampled_from([1, 2000, 12000])),
    }
    sampler = Rows(where=np.arange(count))
    array = gzarr.open_array(root / "y")
    alone = labels(Loader(array, sampler, batch_size=32, **options))
    begin = data.draw(st.integers(0, len(alone)))
    resumed = Loader(array, sampler, batch_size=32, **options)
    batches = iter(resumed)
    for _ in range(begin):
        next(batches)
    state = json.loads(json.dumps(resumed.state_dict()))
    ranks = []
    for rank in range(world_size):
        loader = Loader(array, sampler, batch_size=32 // world_size, rank=rank, world_size=world_size, **options)
        loader.load_state_dict(state)
        ranks.append(labels(loader))
    if last != "keep":
        assert {len(batches) for batches in ranks} == {len(alone) - begin}
    for step, together in enumerate(alone[begin:]):
        found = [number for batches in ranks if step < len(batches) for number in batches[step]]
        assert sorted(found) == sorted(together)
    if last != "drop":
        everything = [number for batches in ranks for batch in batches for number in batch]
        before = [number for batch in alone[:begin] for number in batch]
        assert set(everything) | set(before) == set(range(count))


@pytest.mark.parametrize("shuffle", SHUFFLES)
@pytest.mark.parametrize("steps", [0, 1, 7, 31, 32])
def test_resuming_is_exact(root: Path, shuffle: Any, steps: int) -> None:
    loader = rows(root, shuffle=shuffle, seed=5)
    list(loader)
    batches = iter(loader)
    given = [next(batches)["x"].tolist() for _ in range(steps)]
    # A prefetched batch is not a given one.
    time.sleep(0.05)
    state = loader.state_dict()
    rest = [batch["x"].tolist() for batch in batches]
    resumed = rows(root, shuffle=shuffle)
    resumed.load_state_dict(state)
    assert [batch["x"].tolist() for batch in resumed] == rest
    assert len(given) + len(rest) == 32
    assert len(json.dumps(state)) < 200
    # The next epochs are the same as well.
    assert labels(resumed) == labels(loader)


def test_a_state_of_something_else_is_refused(root: Path, tmp_path: Path) -> None:
    state = rows(root).state_dict()
    longer = gzarr.create_array(tmp_path, data=np.arange(ROWS + 1), chunks=100)
    others = [
        rows(root, shuffle="full"),
        rows(root, buffer_bytes=6000),
        Loader(gzarr.open_array(root / "y")),
        Loader(longer),
    ]
    for other in others:
        with pytest.raises(gzarr.ArgumentError, match="fingerprint"):
            other.load_state_dict(state)
    for other, message in zip(
        others, ["shuffle=", "buffer_bytes=", "their shapes have", "their shapes have"], strict=True
    ):
        with pytest.raises(gzarr.ArgumentError, match=message):
            other.load_state_dict(state)
    with pytest.raises(gzarr.ArgumentError, match=r"streams=64.* has streams=32: give streams=64"):
        rows(root, streams=32).load_state_dict(state)
    with pytest.raises(gzarr.ArgumentError, match="the sampler has changed"):
        rows(root, sampler=Rows(where=np.arange(400))).load_state_dict(state)
    assert rows(root, batch_size=3, prefetch=0).load_state_dict(state) is None  # type: ignore[func-returns-value]
    for wrong in [{}, state | {"version": 9}, state | {"cursor": 501}, state | {"epoch": -1}, state | {"seed": "x"}, 5]:
        with pytest.raises(gzarr.ArgumentError, match="state"):
            rows(root).load_state_dict(wrong)  # type: ignore[arg-type]


# -- arrays that change


@pytest.mark.parametrize("count", [1, 2, 8])
def test_an_array_that_has_grown_is_named(tmp_path: Path, count: int) -> None:
    def opened() -> dict[str, gzarr.Array]:
        return {f"v{i}": gzarr.open_array(tmp_path / f"v{i}", mode="r+") for i in range(count)}

    for i in range(count):
        gzarr.create_array(tmp_path / f"v{i}", data=np.zeros((50, 3)), chunks=(10, 3))
    loader = Loader(opened(), seed=2**63 - 1)
    loader.load_state_dict(loader.state_dict() | {"epoch": 10**6, "cursor": 49})
    state = json.loads(json.dumps(loader.state_dict()))
    assert len(json.dumps(state)) < 200
    Loader(opened()).load_state_dict(state)
    for array in opened().values():
        array.append(np.ones((10, 3)))
    with pytest.raises(gzarr.ArgumentError, match="does not belong to this loader") as failure:
        Loader(opened()).load_state_dict(state)
    message = str(failure.value)
    assert "an epoch had 50 samples and has 60 now" in message
    if count <= 6:
        for i in range(count):
            assert f"array 'v{i}' has grown from shape (50, 3) to (60, 3)" in message
    else:
        assert "the arrays or their shapes have changed" in message
    assert "sampler is" not in message
    # The samples that there were can go on.
    with pytest.raises(gzarr.ArgumentError, match="sampler has changed"):
        Loader(opened(), Rows(where=np.arange(50))).load_state_dict(state)
    for array in opened().values():
        array.resize((20, 3))
    with pytest.raises(gzarr.ArgumentError, match="does not belong") as failure:
        Loader(opened()).load_state_dict(state)
    if count <= 6:
        assert "array 'v0' has shrunk from shape (50, 3) to (20, 3)" in str(failure.value)


def test_an_array_that_grows_while_a_loader_lives(tmp_path: Path) -> None:
    array = gzarr.create_array(tmp_path, data=np.arange(50), chunks=7)
    loader = Loader(array, batch_size=5, prefetch=0)
    batches = iter(loader)
    before = [next(batches).samples.tolist() for _ in range(3)]
    state = loader.state_dict()
    gzarr.open_array(tmp_path, mode="r+").append(np.arange(50, 60))
    # Another array object, as in another process: nothing changes for this one.
    rest = [batch["data"].tolist() for batch in batches]
    assert sorted(number for batch in before + rest for number in batch) == list(range(50))
    assert loader.state_dict()["fingerprint"] == state["fingerprint"]
    array.resize(60)
    with pytest.warns(UserWarning, match=r"has grown from shape \(50,\) to \(60,\), since this loader was made"):
        again = iter(loader)
    assert sorted(number for batch in again for number in batch["data"].tolist()) == list(range(50))
    assert len(list(Loader(array))) == 60
    array.resize(40)
    with pytest.raises(gzarr.ArgumentError, match=r"has shrunk from shape \(50,\) to \(40,\)"):
        iter(loader)
