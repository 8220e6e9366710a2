"""Chunks that several reads of an epoch need stay decoded, as far as memory allows, and samples are what they are."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest
from support.loaders import await_end_of_threads

import gzarr
from gzarr.loader import Loader, Patches, Rows, Windows
from gzarr.loader.keeping import _AHEAD, _AT_ONCE, Keeping, Reads
from gzarr.loader.kept import Kept

if TYPE_CHECKING:
    from collections.abc import Sequence

    from support.devices import TestedDevice


class Counted(gzarr.MemoryStore):
    """A store that counts how often each chunk is asked for."""

    def __init__(self) -> None:
        super().__init__({})
        self.asked: Counter[str] = Counter()

    def get(self, key: str) -> Any:
        self._count(key)
        return super().get(key)

    def get_partial_values(self, requests: Any) -> Any:
        requests = list(requests)
        for key, *_ in requests:
            self._count(key)
        return super().get_partial_values(requests)

    def _count(self, key: str) -> None:
        if key.startswith("c/"):
            self.asked[key] += 1


def stored(shape: tuple[int, ...], chunks: Any, dtype: str = "u2", **options: Any) -> Counted:
    store = Counted()
    data = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    gzarr.create_array(store, data=data, chunks=chunks, **options)
    return store


def asked_by(store: Counted, batches: Any) -> list[int]:
    """Return how often each chunk is asked for while something is iterated over."""
    store.asked.clear()
    for _ in batches:
        pass
    return list(store.asked.values())


# -- how often chunks are decoded


@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("prefetch", [0, 2])
def test_each_chunk_is_decoded_once_if_all_fit(prefetch: int, world_size: int, device: TestedDevice) -> None:
    """16 chunks of 3200 bytes, and samples of 32 bytes."""
    store = stored((1600, 8), (100, 8), "f4")
    options: dict[str, Any] = {
        "shuffle": "full", "batch_size": 8, "drop_last": False, "buffer_bytes": world_size * 60_000,
        "prefetch": prefetch, "world_size": world_size,
    }  # fmt: skip
    for rank in range(world_size):
        loader = Loader(device.open(store), rank=rank, **options)
        for _ in range(2):
            assert asked_by(store, loader) == 16 * [1]
            assert loader.stats().chunks == 16
            assert loader.stats().uses == 1600 // world_size
        assert loader.explain().amplification == world_size
        assert loader.explain().held_bytes <= 60_000 + (prefetch + 1) * 8 * 32


BOTH: dict[str, Any] = {
    # With a step of 512 bytes, chunks of ten steps, reads of 19 runs and more.
    "runs": ((500, 128), (10, 128), Windows(0, {"x": (0, 3)}), 110_000),
    "rows": ((1000, 16), (30, 16), Rows(), 10_000),
    # Of a volume of 110 KiB in chunks of 1 KiB, a plane of 36 chunks and more stays.
    "halo": ((48, 48, 24), (8, 8, 8), Patches((8, 8, 8), halo=1, pad="edge"), 200_000),
    "stride": ((64, 64), (8, 8), Patches((8, 8), stride=4), 12_000),
}


@pytest.mark.parametrize("case", BOTH)
def test_chunks_at_the_edges_of_reads_are_decoded_once(case: str, device: TestedDevice) -> None:
    shape, chunks, sampler, buffer_bytes = BOTH[case]
    store = stored(shape, chunks)
    loader = Loader(device.open(store), sampler, shuffle=False, drop_last=False, buffer_bytes=buffer_bytes)
    assert loader._of_epoch(0).kept_bytes
    assert set(asked_by(store, loader)) == {1}
    assert loader.explain().amplification == 1
    # Without what stays, some would be decoded again.
    loader._reads = Reads(loader._of_epoch(0).reads.turns)
    assert max(asked_by(store, loader)) > 1


@pytest.mark.parametrize("world_size", [1, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("buffer_bytes", [6000, 20_000, 60_000])
@pytest.mark.parametrize("shuffle", ["full", False])
@pytest.mark.filterwarnings("ignore:shuffling is coarse")
def test_what_is_said_is_decoded(shuffle: Any, buffer_bytes: int, world_size: int) -> None:
    """Patches anywhere, which need up to eight chunks of 1 KiB, of 64 KiB."""
    store = stored((32, 32, 32), (8, 8, 8))
    sampler, total = Patches((6, 6, 6), stride=2, jitter=True, pad=None), 0
    for rank in range(world_size):
        loader = Loader(
            gzarr.open_array(store), sampler, batch_size=4, shuffle=shuffle, drop_last=False,
            buffer_bytes=buffer_bytes * world_size, rank=rank, world_size=world_size,
        )  # fmt: skip
        explanation = loader.explain()
        total += sum(asked_by(store, loader))
        assert loader.stats().chunks == sum(store.asked.values())
    assert explanation.amplification == pytest.approx(total / 64, rel=0.01)
    assert explanation.held_bytes <= buffer_bytes + 3 * 4 * explanation.mixing.sample_bytes


# -- which chunks stay


class Given:
    """An epoch of rows in chunks of one row, in a given order."""

    samples: Any
    cells: Any
    axes: ClassVar[tuple[int, ...]] = (0,)

    def __init__(self, order: Sequence[int], rows: int) -> None:
        self._order = np.array(order)
        self._loader = Loader(gzarr.create_array({}, shape=(rows,), chunks=(1,), dtype="u1"), shuffle=False)
        epoch = self._loader._of_epoch(0)
        self.samples, self.cells, self.origins = epoch.samples, epoch.cells, epoch.origins

    def numbers(self, begin: int, end: int) -> Any:
        return self._order[begin:end]


def fewest(reads: Sequence[frozenset[int]], room: int) -> int:
    """Return the fewest chunks that must be decoded, by trying everything that may stay after each read."""
    costs: dict[frozenset[int], int] = {frozenset(): 0}
    for read in reads:
        after: dict[frozenset[int], int] = {}
        for before, cost in costs.items():
            for size in range(room + 1):
                for stay in map(frozenset, itertools.combinations(sorted(before | read), size)):
                    after[stay] = min(after.get(stay, 10**9), cost + len(read - before))
        costs = after
    return min(costs.values())


@pytest.mark.parametrize("each", [1, 2, 3])
@pytest.mark.parametrize("room", [1, 2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_no_other_choice_decodes_less(seed: int, room: int, each: int) -> None:
    order = np.random.default_rng(seed).integers(0, 6, 30)
    given: Any = Given(order.tolist(), 6)
    bounds = [*range(0, 30, each), 30]
    keeping = Keeping(given, bounds, room)
    decoded = 0
    while keeping.left:
        step = keeping.step()
        assert len(step.stay) <= room
        decoded += step.decoded_bytes
    assert decoded == fewest([frozenset(order[a:b].tolist()) for a, b in itertools.pairwise(bounds)], room)


def test_only_a_part_of_the_order_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Going on in the middle of a long epoch costs no more than in a short one, and as much is known further on."""
    store = gzarr.MemoryStore({})
    array = gzarr.create_array(store, shape=(10**8, 100), chunks=(10, 100), dtype="u1")
    loader = Loader(array, shuffle="full", buffer_bytes=1 << 20)
    epoch = loader._of_epoch(0)
    bounds = epoch.bounds(5 * 10**7, 6 * 10**7)
    looked = 0
    numbers = type(epoch).numbers

    def counted(self: Any, begin: int, end: int) -> Any:
        nonlocal looked
        looked += end - begin
        return numbers(self, begin, end)

    monkeypatch.setattr(type(epoch), "numbers", counted)
    keeping = Keeping(epoch, bounds, 1 << 19)
    keeping.step()
    assert looked <= _AHEAD + _AT_ONCE
    for _ in range(50):
        keeping.step()
        assert keeping._known - keeping._done >= _AHEAD // 4
    assert looked <= keeping._done + _AHEAD + _AT_ONCE


# -- samples

GRID = np.arange(45 * 37 * 5).reshape(45, 37, 5)

CASES: dict[str, Any] = {
    "halo": (Patches((8, 8), halo=3, pad="reflect", axes=(0, 1)), {}),
    "halo of fill values": (Patches((8, 8), halo=(3, 9), pad="fill", axes=(0, 1)), {}),
    "wide": (Patches((8, 60), pad="edge", axes=(0, 1)), {}),
    "anywhere": (Patches((8, 8), stride=4, jitter=True, axes=(0, 1)), {}),
    "shards": (Patches((8, 8), stride=4, pad="edge", axes=(0, 1)), {"shards": (16, 16, 6)}),
    "rectilinear": (Patches((8, 8), halo=2, pad="edge", axes=(0, 1)), {"chunks": [[5, 11, 9, 20], [7, 30], 5]}),
    "runs": (Windows(0, {"x": (-2, 0), "y": (1, 2)}), {}),
    "rows of an axis": (Rows(axis=1), {}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("shuffle", ["full", False])
@pytest.mark.parametrize("room", [3000, 1 << 20])
def test_samples_are_what_they_are(shuffle: Any, case: str, room: int, device: TestedDevice) -> None:
    """With little and much that stays, beside what is read with nothing that stays."""
    sampler, options = CASES[case]
    arrays, volumes = [], []
    for i, dtype in enumerate(("u2", ">f8")):
        arrays.append(GRID + 10_000 * i)
        gzarr.create_array(
            store := gzarr.MemoryStore({}),
            data=arrays[-1].astype(dtype),
            fill_value=7,
            **{"chunks": (8, 8, 3), **options},
        )
        volumes.append(device.open(store))
    volume = dict(zip("ab", volumes, strict=True))
    given: list[list[Any]] = []
    rates = []
    for reads in (Reads(11), Reads(11, room)):
        loader = Loader([volume, volume], sampler, batch_size=7, shuffle=shuffle, drop_last=False)
        loader._reads = reads
        batches = list(loader)
        given.append([(batch.samples.tolist(), batch.origins.tolist()) for batch in batches])
        given[-1].append([[device.to_numpy(x) for x in leaves(batch)] for batch in batches])
        rates.append(loader.stats().hit_rate)
    # In their own order, no two patches as wide as the array share a chunk.
    assert rates[0] < rates[1] or (case == "wide" and not shuffle) or room == 3000
    assert given[0][:-1] == given[1][:-1]
    for plain, kept in zip(given[0][-1], given[1][-1], strict=True):
        for x, y in zip(plain, kept, strict=True):
            np.testing.assert_array_equal(x, y)
    # And these are right, for one that is easily told.
    if case == "runs":
        for batch in batches:
            for i, t in enumerate(batch.origins[:, 0].tolist()):
                np.testing.assert_array_equal(device.to_numpy(batch["y"]["b"])[i], arrays[1][t + 1 : t + 3])


def leaves(value: Any) -> list[Any]:
    return [leaf for v in value.values() for leaf in leaves(v)] if isinstance(value, dict) else [value]


@pytest.mark.parametrize("steps_before", [1, 20, 39])
def test_going_on_is_exact_and_decodes_what_is_left_once(steps_before: int) -> None:
    store = stored((1600, 8), (100, 8), "f4")
    options: dict[str, Any] = {"shuffle": "full", "batch_size": 40, "buffer_bytes": 60_000, "seed": 3}
    whole = [batch["data"].tolist() for batch in Loader(gzarr.open_array(store), **options)]
    loader = Loader(gzarr.open_array(store), **options)
    batches: Any = iter(loader)
    for _ in range(steps_before):
        next(batches)
    state = loader.state_dict()
    close(batches)
    resumed = Loader(gzarr.open_array(store), **options)
    resumed.load_state_dict(state)
    store.asked.clear()
    rest = [batch["data"].tolist() for batch in resumed]
    assert set(store.asked.values()) == {1}
    assert rest == whole[steps_before:]


def close(batches: Any) -> None:
    batches.close()
    await_end_of_threads()


@pytest.mark.parametrize("shuffle", ["full", False])
@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_damaged_chunk_spoils_its_own_samples_only(prefetch: int, shuffle: Any) -> None:
    store = stored((500, 128), (10, 128))
    store.set("c/10/0", b"damaged")
    array = gzarr.open_array(store)
    loader = Loader(
        array, Windows(0, {"x": (0, 3)}), batch_size=4, shuffle=shuffle, drop_last=False, on_error="skip",
        buffer_bytes=120_000, prefetch=prefetch,
    )  # fmt: skip
    assert loader._of_epoch(0).kept_bytes
    seen = []
    for batch in loader:
        steps = batch.origins + np.arange(4)
        np.testing.assert_array_equal(batch["x"][:, :, 0], (128 * steps).astype("u2"))
        seen.extend(batch.samples.tolist())
    assert sorted(seen) == [n for n in range(497) if not 97 <= n < 110]
    loader = Loader(array, batch_size=4, shuffle=shuffle, drop_last=False, buffer_bytes=120_000, prefetch=prefetch)
    batches, good, bad = iter(loader), 0, []
    for _ in range(len(loader)):
        try:
            good += len(next(batches).samples)
        except gzarr.ChunkDecodeError as error:
            bad.append(error.chunk)
    assert set(bad) == {(10, 0)}
    assert good + 4 * len(bad) == 500
    assert len(bad) >= 3


# -- memory


def test_what_stays_is_within_the_buffer(monkeypatch: pytest.MonkeyPatch, device: TestedDevice) -> None:
    """Two arrays, of chunks of two sizes, both cut at the array's end."""
    a, b = stored((900, 8), (40, 8), "u1"), stored((900, 64), (30, 64), "f4")
    loader = Loader(
        {"a": device.open(a), "b": device.open(b)}, batch_size=8, shuffle="full", drop_last=False, buffer_bytes=100_000
    )
    loader._reads = Reads(20, 60_000)
    most, counts = [0], []
    read = Kept.read

    def measured(self: Kept, *arguments: Any, **named: Any) -> int:
        # The chunks that stay, and what their memory takes, in pieces of some chunks each.
        uses = read(self, *arguments, **named)
        most.append(self.nbytes)
        counts.append(len(self._arrays))
        return uses

    monkeypatch.setattr(Kept, "read", measured)
    batches = list(loader)
    assert 30_000 < max(most) <= 60_000
    assert counts[-1] == 0
    for batch in batches:
        rows = batch.samples[:, None]
        np.testing.assert_array_equal(device.to_numpy(batch["a"]), (8 * rows + np.arange(8)).astype("u1"))
        np.testing.assert_array_equal(device.to_numpy(batch["b"]), (64 * rows + np.arange(64)).astype("f4"))


@pytest.mark.parametrize("prefetch", [0, 2])
def test_nothing_stays_when_an_epoch_is_left(prefetch: int) -> None:
    store = stored((1600, 8), (100, 8), "f4")
    loader = Loader(gzarr.open_array(store), shuffle="full", batch_size=8, buffer_bytes=60_000, prefetch=prefetch)
    batches: Any = iter(loader)
    for _ in range(5):
        next(batches)
    kept = batches._work.kept
    assert kept.nbytes
    close(batches)
    assert not kept.nbytes
