"""Loaders that are split among workers whose number divides no number of streams."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest

import gzarr
from gzarr.loader import Loader, Windows
from gzarr.loader.epoch import LISTED

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def loader(tmp_path: Path) -> Loader:
    """Many samples that overlap much, in more groups than one of several ranks has."""
    n = 14 * 22_000
    array = gzarr.create_array(tmp_path / "a", shape=(n,), chunks=(14,), shards=(n,), dtype="f4", compressors=None)
    array[:] = np.arange(n)
    return Loader(
        gzarr.open(tmp_path / "a", device="cpu"),
        Windows(0, {"x": (-13, 0)}),
        batch_size=50_000,
        buffer_bytes=1 << 29,
        drop_last=False,
        prefetch=0,
    )


def test_each_sample_comes_once_and_is_right(loader: Loader) -> None:
    found = []
    for part in range(3):
        own = loader.split(part, 3)
        epoch = own._of_epoch(0)
        assert epoch.reads_groups
        assert not epoch.order.has_whole_groups(3)
        assert all(b - a > LISTED for a, b in pairwise(epoch.bounds(0, epoch.end(0))))
        for batch in own:
            assert np.array_equal(batch["x"], batch.origins + np.arange(-13, 1))
            found.append(batch.samples)
    assert np.array_equal(np.sort(np.concatenate(found)), np.arange(loader._volumes.count))


@pytest.mark.parametrize("parts", [3, 5, 7, 12])
def test_groups_of_a_rank_are_those_of_its_samples(loader: Loader, parts: int) -> None:
    order = loader._of_epoch(0).order
    begin, end = order.bounds[:2].tolist()
    for rank in (0, parts - 1):
        positions = np.arange(begin, end)
        numbers = order.samples(positions[positions % parts == rank])
        needed = np.unique(np.searchsorted(order.offsets, numbers, "right") - 1)
        assert np.isin(needed, order.groups_of_rank(0, rank, parts)).all()


def test_groups_that_were_not_read_are_no_neighbours(loader: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    own = loader.split(0, 3)
    monkeypatch.setattr("gzarr.loader.epoch.Epoch._groups_of", lambda self, begin, end: np.arange(10))
    with pytest.raises(AssertionError, match="not read"):
        next(iter(own))
