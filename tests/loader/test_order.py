"""The order of an epoch: every sample once, the same for all numbers of ranks, mixed, and local."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from gzarr.loader.order import ORDER_VERSION, EpochOrder, Order
from gzarr.loader.permutation import Permutation, Permutations, mix, uniform

SETTINGS = settings(max_examples=150, deadline=None, derandomize=True)


@SETTINGS
@given(n=st.integers(1, 5000), key=st.integers(0, 2**64))
def test_a_permutation_has_each_number_once(n: int, key: int) -> None:
    permutation = Permutation(n, (key,))
    everything = permutation.all()
    assert np.array_equal(np.sort(everything), np.arange(n))
    some = np.array([n - 1, 0, n // 2])
    assert np.array_equal(permutation(some), everything[some])


def test_a_permutation_is_the_same_everywhere_and_for_ever() -> None:
    """The orders of users' trainings must not change: these numbers are from the first version."""
    assert Permutation(10, (1, 2, 3)).all().tolist() == [2, 0, 4, 6, 5, 3, 7, 1, 8, 9]
    assert mix(1, 2, 3) == 15020427595393229491
    assert uniform(7, np.arange(6), 100).tolist() == [7, 38, 1, 90, 58, 45]


def test_blocks_are_the_same_everywhere_and_for_ever() -> None:
    """Of groups that streams share and exchange, as of whole ones: another order needs another ``ORDER_VERSION``."""
    few = EpochOrder(Order("blocks", 1000, 4, 7), 2, np.array([0, 3, 10, 12]))
    assert few.samples(np.arange(12)).tolist() == [6, 5, 7, 11, 10, 2, 8, 4, 3, 1, 0, 9]
    many = EpochOrder(Order("blocks", 10_000, 4, 7), 2, np.arange(0, 20_001, 2))
    assert many.samples(np.arange(0, 20_000, 2000)).tolist() == [
        4619,
        3921,
        9947,
        6420,
        2253,
        841,
        4345,
        13745,
        4719,
        12732,
    ]
    assert ORDER_VERSION == 4


@SETTINGS
@given(lengths=st.lists(st.integers(1, 600), max_size=6), key=st.integers(0, 2**64))
def test_permutations_of_many_lengths_have_each_number_once(lengths: list[int], key: int) -> None:
    permutations = Permutations(np.array(lengths, np.int64), (key,))
    which = np.repeat(np.arange(len(lengths)), lengths)
    numbers = np.concatenate([np.arange(0), *map(np.arange, lengths)])
    found = permutations(which, numbers)
    for i, length in enumerate(lengths):
        assert np.array_equal(np.sort(found[which == i]), np.arange(length))
    some = np.arange(len(which))[::-3]
    assert np.array_equal(permutations(which[some], numbers[some]), found[some])


@pytest.mark.parametrize("n", [3, 4, 5])
def test_permutations_of_one_length_are_uniform(n: int) -> None:
    """All permutations of few numbers are as frequent as they should be (chi-squared)."""
    total = 500 * math.factorial(n)
    permutations = Permutations(np.full(total, n), (1,))
    found = permutations(np.repeat(np.arange(total), n), np.tile(np.arange(n), total)).reshape(total, n)
    counts = np.unique(found @ n ** np.arange(n), return_counts=True)[1]
    free = math.factorial(n) - 1
    assert len(counts) == free + 1
    # Four standard deviations; the key is fixed, so it does not depend on chance.
    assert ((counts - 500) ** 2 / 500).sum() < free + 4 * math.sqrt(2 * free)


def test_a_long_permutation_of_many_needs_no_memory() -> None:
    lengths = np.array([2**62, 5, 2**40 + 12345, 1])
    permutations = Permutations(lengths, (1,))
    for which in (0, 2):
        numbers = permutations(np.full(1000, which), np.arange(1000))
        assert len(np.unique(numbers)) == 1000
        assert numbers.min() >= 0
        assert numbers.max() < lengths[which]
        assert abs(numbers.mean() / lengths[which] - 0.5) < 4 / math.sqrt(12 * 1000)


def test_permutations_are_uniform() -> None:
    """All 24 permutations of four numbers are as frequent as they should be (chi-squared, 23 degrees of freedom)."""
    counts = np.zeros((4,) * 4)
    for key in range(12000):
        counts[tuple(Permutation(4, (key,)).all())] += 1
    found = counts[counts > 0]
    assert len(found) == 24
    # Exceeded once in a thousand times by chance; the keys are fixed, so it does not depend on chance.
    assert ((found - 500) ** 2 / 500).sum() < 49.7


def test_a_long_permutation_needs_no_memory() -> None:
    permutation = Permutation(2**40 + 12345, (1,))
    numbers = permutation(np.arange(1000))
    assert len(np.unique(numbers)) == 1000
    # About uniform: the mean of a thousand numbers is within four standard errors.
    assert abs(numbers.mean() / 2**40 - 0.5) < 4 / math.sqrt(12 * 1000)


@st.composite
def orders(draw: st.DrawFn) -> EpochOrder:
    """Draw orders of all kinds, of groups of equal and different sizes."""
    sizes = draw(
        st.lists(st.integers(1, 30), max_size=60)
        | st.tuples(st.integers(1, 60), st.integers(1, 30)).map(lambda t: [t[1]] * t[0])
    )
    order = Order(
        draw(st.sampled_from(["blocks", "full", False])),
        draw(st.integers(1, 400)),
        draw(st.sampled_from([1, 2, 12, 64])),
        draw(st.integers(0, 2**70)),
    )
    return EpochOrder(order, draw(st.integers(0, 5)), np.append(0, np.cumsum(sizes)).astype(np.int64))


@SETTINGS
@given(order=orders(), data=st.data())
def test_every_sample_is_there_once(order: EpochOrder, data: st.DataObject) -> None:
    everything = order.samples(np.arange(order.count))
    assert np.array_equal(np.sort(everything), np.arange(order.count))
    assert order.bounds[0] == 0
    assert order.bounds[-1] == order.count
    assert (np.diff(order.bounds) > 0).all()
    if order.count:
        some = np.array(data.draw(st.lists(st.integers(0, order.count - 1))), np.int64)
        assert np.array_equal(order.samples(some), everything[some])


@SETTINGS
@given(order=orders())
def test_a_block_has_whole_groups_and_at_most_its_samples(order: EpochOrder) -> None:
    if order.order.shuffle != "blocks":
        return
    sizes = np.diff(order.offsets)
    for block in range(len(order.bounds) - 1):
        begin, end = order.bounds[block], order.bounds[block + 1]
        samples = order.samples(np.arange(begin, end))
        groups = order.groups(block)
        wanted = np.concatenate([np.arange(order.offsets[g], order.offsets[g + 1]) for g in groups])
        assert np.array_equal(np.sort(samples), np.sort(wanted))
        assert end - begin <= max(order.order.block_samples, 2 * sizes.max())


@SETTINGS
@given(order=orders(), data=st.data())
def test_the_groups_of_a_rank_are_those_of_its_samples(order: EpochOrder, data: st.DataObject) -> None:
    sizes = [n for n in range(1, order.order.streams + 1) if order.order.streams % n == 0]
    world_size = data.draw(st.sampled_from(sizes))
    if order.order.shuffle != "blocks" or not order.has_whole_groups(world_size):
        return
    for block in range(len(order.bounds) - 1):
        for rank in range(world_size):
            positions = np.arange(order.bounds[block], order.bounds[block + 1])
            samples = order.samples(positions[positions % world_size == rank])
            wanted = np.unique(np.searchsorted(order.offsets, samples, "right") - 1)
            found = order.groups_of_rank(block, rank, world_size)
            # Of a group at the edge of its share, chance may leave a rank none that is its own.
            assert set(wanted) <= set(found)
            assert len(found) <= len(wanted) + 2


@pytest.mark.parametrize("world_size", [1, 2, 4, 8, 16])
def test_ranks_share_few_groups(world_size: int) -> None:
    """In a long epoch, each rank decodes its own groups, but for those at which the shares of two ranks meet."""
    groups, size = 4096, 10
    order = EpochOrder(Order("blocks", 64 * size, 64, 1), 0, np.arange(0, groups * size + 1, size))
    decoded = 0
    for begin, end in zip(order.bounds, order.bounds[1:], strict=False):
        for rank in range(world_size):
            positions = np.arange(begin + (rank - begin) % world_size, end, world_size)
            decoded += len(np.unique(order.samples(positions) // size))
    blocks = len(order.bounds) - 1
    assert decoded <= groups + blocks * (world_size - 1)


def test_seed_and_epoch_change_the_order_and_nothing_else_does() -> None:
    offsets = np.arange(0, 2001, 20)

    def everything(seed: int, epoch: int, shuffle: str) -> list[int]:
        order = EpochOrder(Order(shuffle, 500, 64, seed), epoch, offsets)  # type: ignore[arg-type]
        return order.samples(np.arange(2000)).tolist()

    for shuffle in ("blocks", "full"):
        assert everything(1, 2, shuffle) == everything(1, 2, shuffle)
        different = [everything(1, 2, shuffle), everything(2, 2, shuffle), everything(1, 3, shuffle)]
        for i in range(3):
            for j in range(i):
                equal = np.mean(np.array(different[i]) == np.array(different[j]))
                assert equal < 0.01


@pytest.mark.parametrize("groups", [8, 32, 128])
def test_the_loss_of_entropy_is_as_computed(groups: int) -> None:
    """Where each group has one class, a batch from R groups loses about (K − 1) / (2 ln 2 · R) bits of entropy.

    Batches from a fully shuffled order lose (K − 1) / (2 ln 2 · batch) themselves; the bound is on the rest.
    """
    size, classes, batch = 40, 4, 64
    total = groups * 20
    rng = np.random.default_rng(0)
    label = rng.permutation(np.arange(total) % classes)
    offsets = np.arange(0, total * size + 1, size)

    def mean_entropy(shuffle: str) -> float:
        found = []
        for epoch in range(4):
            # A block has at most so many samples that it has the wanted groups.
            order = EpochOrder(Order(shuffle, (groups + 1) * size, 64, 3), epoch, offsets)  # type: ignore[arg-type]
            labels = label[order.samples(np.arange(total * size)) // size]
            for at in range(0, len(labels) - batch, batch):
                share = np.bincount(labels[at : at + batch], minlength=classes) / batch
                share = share[share > 0]
                found.append(-(share * np.log2(share)).sum())
        return float(np.mean(found))

    lost = mean_entropy("full") - mean_entropy("blocks")
    expected = (classes - 1) / (2 * math.log(2) * groups)
    assert lost <= 1.35 * expected + 0.005
