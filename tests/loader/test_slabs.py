"""Samples that overlap: each chunk is decoded about once, and memory holds what samples have in common once."""

from __future__ import annotations

import itertools
import threading
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.loaders import await_end_of_threads, await_that

import gzarr
from gzarr.engines import result_memory
from gzarr.engines.cpu import native
from gzarr.loader import Loader, Patches, Rows, Windows
from gzarr.loader.boxes import Boxes
from gzarr.loader.cells import Footprint, group_lengths
from gzarr.loader.explanation import _in_slabs
from gzarr.loader.slabs import Slabs

if TYPE_CHECKING:
    from pathlib import Path

# Small buffers, to have many blocks.
pytestmark = pytest.mark.filterwarnings("ignore:shuffling is coarse")

RUNS = Windows(0, {"x": (-2, 0), "y": (1, 4)})


def stored(shape: tuple[int, ...], chunks: tuple[int, ...], dtype: str = "u2") -> gzarr.Array:
    """Return an array in memory whose elements are their numbers."""
    data = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    return gzarr.create_array(gzarr.MemoryStore(), data=data, chunks=chunks)


def steps(chunk: int) -> gzarr.Array:
    return stored((2000, 64), (chunk, 64))


# With the runs, 11 of 30 steps are in samples.
SOME = (np.arange(2000) % 30 < 4) & (np.arange(2000) < 1980)
CUBE, CHUNK = (96, 96, 96), (16, 16, 16)

CASES: dict[str, Any] = {
    "rows": (lambda: stored((3000, 8), (10, 8)), Rows(), 400_000, 1.01),
    "runs of 1": (lambda: steps(1), RUNS, 60_000, 1.1),
    "runs of 8": (lambda: steps(8), RUNS, 200_000, 1.1),
    "runs of 1, stride 2": (lambda: steps(1), Windows(0, {"x": (0, 3)}, stride=2), 60_000, 1.1),
    "runs of 8, stride 2": (lambda: steps(8), Windows(0, {"x": (0, 3)}, stride=2), 200_000, 1.1),
    "some runs": (lambda: steps(1), Windows(0, {"x": (0, 7)}, where=SOME), 60_000, 1.1),
    "halo": (lambda: stored(CUBE, CHUNK), Patches(CHUNK, halo=2), 1 << 20, 2.8),
    "halo, more memory": (lambda: stored(CUBE, CHUNK), Patches(CHUNK, halo=2), 4 << 20, 1.35),
    "stride": (lambda: stored(CUBE, CHUNK), Patches(CHUNK, stride=8), 3 << 20, 1.35),
    "anywhere": (lambda: stored(CUBE, CHUNK), Patches(CHUNK, jitter=True, pad=None), 1 << 20, 1.5),
    "anywhere, halo": (lambda: stored(CUBE, CHUNK), Patches(CHUNK, jitter=True, halo=4), 2 << 20, 2.4),
    "pyramid": (
        lambda: {"fine": stored(CUBE, CHUNK), "coarse": stored((48, 48, 48), CHUNK)},
        Patches(CHUNK, halo=2),
        4 << 20,
        1.5,
    ),
    "two volumes": (
        lambda: [stored((2000, 64), (1, 64)), stored((700, 64), (8, 64))],
        RUNS,
        200_000,
        1.1,
    ),
}


def chunks_of(arrays: Any) -> int:
    if isinstance(arrays, gzarr.Array):
        return arrays.nchunks
    return sum(map(chunks_of, arrays.values() if isinstance(arrays, dict) else arrays))


def decoded_by(batches: Any) -> int:
    """Return how many chunks are decoded while something is iterated over."""
    native.take_stats()
    for _ in batches:
        pass
    return int(native.take_stats()["chunks"])


@pytest.mark.parametrize("world_size", [1, 4])
@pytest.mark.parametrize("case", CASES)
def test_decoded_chunks_are_as_said(case: str, world_size: int) -> None:
    make, sampler, buffer_bytes, most = CASES[case]
    arrays = make()
    options = {"batch_size": 4, "drop_last": False, "world_size": world_size, "buffer_bytes": buffer_bytes}
    ranks = [Loader(arrays, sampler, rank=rank, **options) for rank in range(world_size)]
    explanation = ranks[0].explain()
    decoded = sum(map(decoded_by, ranks)) / chunks_of(arrays)
    needed = 66 * 11 / 2000 if case == "some runs" else 1
    # Bytes are estimated and chunks are counted, which differ where an array of large chunks is decoded more often.
    rel = 0.05 if case == "two volumes" else 0.03
    assert explanation.amplification * needed == pytest.approx(decoded, rel=rel)
    if world_size == 1:
        assert 1 <= explanation.amplification <= most


def test_samples_that_overlap_are_mixed_better_in_the_same_memory() -> None:
    """Runs of eight steps, of which each step is in memory once: a buffer has several times as many groups."""
    array = steps(1)
    loader = Loader(array, RUNS, batch_size=16, buffer_bytes=400_000)
    mixing = loader.explain().mixing
    one_by_one = 200_000 / (7 * 64 * 2)
    assert mixing.block_samples > 4 * one_by_one
    lengths = loader._volumes.each[0].samples.lengths[0]
    assert mixing.groups > 4 * one_by_one / lengths
    # What it advises would do.
    assert not mixing.is_enough
    assert Loader(array, RUNS, batch_size=16, buffer_bytes=mixing.buffer_bytes_wanted).explain().mixing.is_enough


def test_slabs_are_within_the_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most two blocks of slabs are in memory, and as many bytes as said."""
    alive: weakref.WeakSet[Slabs] = weakref.WeakSet()
    most: list[int] = []
    read = Slabs.read

    def counted(slabs: Slabs, *arguments: Any, **named: Any) -> None:
        alive.add(slabs)
        most.append(sum(each.nbytes for each in alive))
        read(slabs, *arguments, **named)

    monkeypatch.setattr(Slabs, "read", counted)
    for case in ("runs of 1", "runs of 8", "halo", "stride", "two volumes", "anywhere, halo"):
        make, sampler, buffer_bytes, _ = CASES[case]
        loader = Loader(make(), sampler, batch_size=4, buffer_bytes=buffer_bytes, prefetch=1, seed=1)
        epoch = loader._of_epoch(0)
        assert epoch.shares_slabs
        bounds = epoch.bounds(0, epoch.end(0))
        sizes = [epoch.slabs(a, b).nbytes for a, b in itertools.pairwise(bounds)]
        assert len(sizes) >= 2
        assert max(sizes) <= epoch.most_slab_bytes
        assert 2 * epoch.most_slab_bytes <= buffer_bytes
        batches = 2 * 4 * epoch.samples.sample_nbytes
        assert loader.explain().held_bytes == 2 * epoch.most_slab_bytes + batches
        most.clear()
        for number, _ in enumerate(loader):
            if number == 0:
                # However fast batches are taken, the second block is read while the first one's are given.
                await_that(lambda: len(most) > 1)
        assert epoch.most_slab_bytes < max(most) <= 2 * epoch.most_slab_bytes


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("steps_before", [1, 13, 60])
def test_going_on_decodes_one_block_again(steps_before: int, prefetch: int) -> None:
    array = steps(8)
    options: dict[str, Any] = {"batch_size": 8, "buffer_bytes": 60_000, "prefetch": prefetch, "seed": 4}
    whole = [batch["y"].tolist() for batch in Loader(array, RUNS, **options)]
    loader = Loader(array, RUNS, **options)
    batches = iter(loader)
    for _ in range(steps_before):
        next(batches)
    resumed = Loader(array, RUNS, **options)
    resumed.load_state_dict(loader.state_dict())
    # Reading ahead ends before its chunks are counted.
    batches.close()  # type: ignore[attr-defined]
    await_end_of_threads()
    epoch = resumed._of_epoch(0)
    bounds = epoch.order.bounds.tolist()
    block = int(np.searchsorted(bounds, 8 * steps_before, "right")) - 1
    most = sum(len(chunks) for left in range(block, len(bounds) - 1) for _, chunks in _in_slabs(epoch, left, 0))
    native.take_stats()
    assert [batch["y"].tolist() for batch in resumed] == whole[steps_before:]
    assert 0 < native.take_stats()["chunks"] <= most


@pytest.mark.parametrize("world_size", [2, 8, 64])
def test_ranks_give_what_one_gives(world_size: int) -> None:
    array = steps(8)
    options: dict[str, Any] = {"buffer_bytes": 60_000, "prefetch": 0, "pad": True}
    alone = [sorted(batch.samples.tolist()) for batch in Loader(array, RUNS, batch_size=64, **options)]
    ranks = [
        list(Loader(array, RUNS, batch_size=64 // world_size, world_size=world_size, rank=rank, **options))
        for rank in range(world_size)
    ]
    for together, wanted in zip(zip(*ranks, strict=True), alone, strict=True):
        assert sorted(n for batch in together for n in batch.samples.tolist()) == wanted
        for batch in together:
            assert np.array_equal(batch["y"][:, :, 0], (64 * (batch.origins + np.arange(1, 5))).astype("u2"))


@pytest.mark.parametrize("sampler", [Rows(), RUNS], ids=["rows", "runs"])
def test_a_group_may_be_larger_than_the_buffer(sampler: Any) -> None:
    """A batch that waits for the next block does not keep that block from being read."""
    array = stored((300, 8), (30, 8))
    loader = Loader(array, sampler, batch_size=8, buffer_bytes=0, drop_last=False)
    seen: list[int] = []
    thread = threading.Thread(target=lambda: [seen.extend(batch.samples.tolist()) for batch in loader], daemon=True)
    thread.start()
    thread.join(30)
    assert sorted(seen) == list(range(loader.explain().samples))


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_damaged_chunk_spoils_its_own_samples_only(prefetch: int) -> None:
    array = steps(8)
    array.store.set("c/10/0", b"damaged")  # type: ignore[attr-defined]
    options: dict[str, Any] = {"batch_size": 4, "buffer_bytes": 60_000, "drop_last": False, "prefetch": prefetch}
    # The runs that have one of the steps 80 to 87.
    bad = set(range(74, 88))
    told: list[int] = []
    loader = Loader(array, RUNS, on_error=lambda _, number: told.append(number), **options)
    seen = []
    for batch in loader:
        assert np.array_equal(batch["x"][:, :, 0], (64 * (batch.origins + np.arange(-2, 1))).astype("u2"))
        seen.extend(batch.samples.tolist())
    assert set(told) == bad
    assert sorted(seen) == sorted(set(range(loader.explain().samples)) - bad)
    batches = iter(Loader(array, RUNS, **options))
    failures = []
    for _ in range(len(loader)):
        try:
            next(batches)
        except gzarr.ChunkDecodeError as error:
            failures.append(error.chunk)
    assert set(failures) == {(10, 0)}
    assert list(batches) == []


def test_memory_is_used_again_but_not_while_someone_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    array = stored((400, 64, 64), (1, 64, 64), "f4")
    sampler = Windows(0, {"x": (0, 1), "y": (2, 3)})
    loader = Loader(array, sampler, batch_size=4, shuffle=False, buffer_bytes=1 << 20)
    made: list[int] = []
    make = result_memory.mapped

    def counted(nbytes: int, *, exact: bool = False) -> Any:
        made.append(nbytes)
        return make(nbytes, exact=exact)

    with monkeypatch.context() as patch:
        patch.setattr(result_memory, "mapped", counted)
        count = sum(1 for _ in loader)
    # Two arrays of 128 KiB to a batch, in memory of 8 MiB.
    assert 0 < len(made) * 64 < 2 * count
    kept = [batch["y"][:, :, 3] for batch in loader]
    assert len({part.ctypes.data for part in kept}) == len(kept)
    for i, part in enumerate(kept):
        steps_of = 4 * i + np.arange(4)[:, None] + np.arange(2, 4)
        assert np.array_equal(part[..., 5], steps_of * 4096 + 3 * 64 + 5)


def test_boxes_are_never_larger_than_what_is_in_them() -> None:
    starts = np.array([[0, 0], [2, 1], [50, 50], [0, 3], [90, 0]])
    found = Boxes.of(starts, (4, 4), np.array([0, 0, 1, 0, 1]))
    assert found.which.tolist()[0] == found.which.tolist()[1] == found.which.tolist()[3]
    boxes = list(zip(found.low.tolist(), found.high.tolist(), strict=True))
    assert sorted(boxes) == [([0, 0], [6, 7]), ([50, 50], [54, 54]), ([90, 0], [94, 4])]
    for start, box in zip(starts.tolist(), found.which.tolist(), strict=True):
        assert boxes[box][0] <= start
    assert found.size == 6 * 7 + 16 + 16


def test_groups_grow_only_where_that_decodes_less() -> None:
    """Of 8 cells along an axis, groups of 5, 6 or 7 are two groups as well, so nothing is gained over 4."""
    nbytes = 512 * 512 * 512
    patches = Footprint((64,) * 3, (-8,) * 3, (80,) * 3, (64,) * 3, (512,) * 3, nbytes)
    for part in (100, 30, 10, 6, 4, 2):
        lengths = group_lengths([patches], (8, 8, 8), 1.1, nbytes // part)
        assert set(lengths) <= {1, 2, 3, 4, 8}
    assert group_lengths([patches], (8, 8, 8), 1.1, nbytes) == (8, 8, 8)


def test_another_meaning_of_the_order_is_another_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    state = Loader(steps(1), RUNS).state_dict()
    monkeypatch.setattr("gzarr.loader.fingerprint.ORDER_VERSION", 1)
    with pytest.raises(gzarr.ArgumentError, match="fingerprint"):
        Loader(steps(1), RUNS).load_state_dict(state)


def test_text_has_no_slabs_of_bytes(tmp_path: Path) -> None:
    texts = np.array([f"step {i}" for i in range(40)], object)
    array = gzarr.create_array(tmp_path, shape=40, dtype="string", chunks=4)
    array[...] = texts
    for batch in Loader(array, Windows(0, {"x": (0, 5)}), batch_size=5):
        for origin, found in zip(batch.origins[:, 0].tolist(), batch["x"].tolist(), strict=True):
            assert found == texts[origin : origin + 6].tolist()
