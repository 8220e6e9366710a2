"""Choices that may mean two things: weights of rows or of a list, and masks of integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.loader import Loader, Patches, Rows, Windows

pytestmark = pytest.mark.filterwarnings("ignore:shuffling is coarse")

N = 60
LISTED = np.random.default_rng(1).integers(0, N, N)


def rows(sampler: Any) -> list[int]:
    """Return the rows that an epoch has, in order."""
    loader = Loader(np.arange(N), sampler, batch_size=4, drop_last=False)
    return sorted(int(row) for batch in loader for row in batch.origins[:, 0])


@pytest.mark.parametrize(
    "made", [Rows, lambda **options: Windows(0, {"x": (0, 0)}, **options)], ids=["rows", "windows"]
)
def test_weights_of_a_list_as_long_as_the_array(made: Any) -> None:
    few = (LISTED < 6).astype(float)
    with pytest.raises(gzarr.ArgumentError, match=r"weights= has 60 numbers, as many as where= and as the arrays"):
        rows(made(where=LISTED, weights=few))
    # What the message says.
    of_list = rows(made(weights=np.bincount(LISTED, few, minlength=N)))
    assert len(of_list) == N
    assert set(of_list) == set(LISTED[LISTED < 6].tolist())
    of_rows = rows(made(weights=(np.arange(N) < 6) * np.bincount(LISTED, minlength=N)))
    assert of_rows == of_list
    # Shorter and longer lists leave no doubt.
    assert set(rows(made(where=LISTED[1:], weights=few[1:]))) == set(LISTED[1:][LISTED[1:] < 6].tolist())
    assert set(rows(made(where=LISTED[1:], weights=np.arange(N) < 6))) == set(LISTED[1:][LISTED[1:] < 6].tolist())


def test_weights_of_a_list_of_which_some_are_invalid() -> None:
    valid = np.arange(N) % 4 > 0
    few = (LISTED < 6).astype(float)
    with pytest.raises(gzarr.ArgumentError, match=r"weights= has 60 numbers, as many as where= and as the arrays"):
        rows(Windows(0, {"x": (0, 0)}, where=LISTED, weights=few, valid=valid))
    # Weights that mean the same are taken, and so are those of the steps for a shorter list.
    assert len(rows(Windows(0, {"x": (0, 0)}, where=LISTED, weights=np.ones(N), valid=valid))) == valid[LISTED].sum()
    found = rows(Windows(0, {"x": (0, 0)}, where=LISTED[1:], weights=np.arange(N) < 6, valid=valid))
    assert set(found) == set(LISTED[1:][(LISTED[1:] < 6) & valid[LISTED[1:]]].tolist())


def test_weights_that_mean_the_same_are_taken() -> None:
    assert len(rows(Rows(where=LISTED, weights=np.full(N, 2.0)))) == N
    own = np.arange(N) % 3
    assert rows(Rows(where=np.ones(N, bool), weights=own)) == rows(Rows(weights=own))
    # Classes are those of the rows.
    found = rows(Rows(where=LISTED, balance=np.arange(N) % 2))
    assert abs(sum(row % 2 for row in found) - N // 2) <= 1


@pytest.mark.parametrize("runs", [(0, 0), (-2, 1)], ids=str)
def test_a_mask_with_a_stride(runs: tuple[int, int]) -> None:
    mask = np.random.default_rng(2).random(N) < 0.5
    mask[:2] = mask[-1] = False
    sampler = Windows(0, {"x": runs}, stride=4, where=mask)
    # The grid is that of all samples.
    wanted = [step for step in Windows(0, {"x": runs}, stride=4).rows(N).tolist() if mask[step]]
    assert rows(sampler) == sampler.rows(N).tolist() == wanted
    valid = np.arange(N) % 7 > 0
    both = Windows(0, {"x": runs}, stride=4, where=mask, valid=valid)
    needed = [np.roll(valid, -step) for step in range(runs[0], runs[1] + 1)]
    assert rows(both) == [step for step in wanted if all(each[step] for each in needed)]
    weighed = Windows(0, {"x": runs}, stride=4, where=mask, weights=np.arange(N) == wanted[1])
    assert set(rows(weighed)) == {wanted[1]}


def test_a_list_with_a_stride() -> None:
    with pytest.raises(gzarr.ArgumentError, match=r"stride=4 is for all steps, .* such as where\[::4\]"):
        rows(Windows(0, {"x": (0, 0)}, stride=4, where=[1, 5, 6]))
    assert rows(Windows(0, {"x": (0, 0)}, every=2, where=[1, 5, 6, 8])) in ([1, 6], [5, 8])


@pytest.mark.parametrize(
    "made",
    [
        lambda where: Rows(where=where),
        lambda where: Windows(0, {"x": (0, 0)}, where=where),
        lambda where: Patches((1,), where=where),
    ],
    ids=["rows", "windows", "patches"],
)
@pytest.mark.parametrize("dtype", ["u1", "i8"])
def test_a_mask_of_integers(made: Any, dtype: str) -> None:
    mask = (np.arange(N) % 3 == 0).astype(dtype)
    with pytest.raises(gzarr.ArgumentError, match=r"where= has 60 integers, all of them 0 or 1, .* where.astype\(bool"):
        rows(made(mask))
    assert rows(made(mask.astype(bool))) == list(range(0, N, 3))
    assert rows(made(mask[:, np.newaxis])) == mask[np.argsort(mask)].tolist()
    assert rows(made(mask[1:])) == mask[1:][np.argsort(mask[1:])].tolist()
    assert rows(made(np.array([1, 0], dtype))) == [0, 1]


def test_a_mask_of_the_grid_of_integers() -> None:
    with pytest.raises(gzarr.ArgumentError, match="where= has 15 integers, all of them 0 or 1"):
        rows(Patches((4,), where=np.arange(15) % 2))
