"""Without replacement, only volumes whose weights ask for more than they have give samples twice, before classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.loaders import SHUFFLES

import gzarr
from gzarr.loader import Loader, Rows
from gzarr.loader.drawing import fitted

pytestmark = pytest.mark.filterwarnings("ignore:shuffling is coarse")

#: Classes of each of two volumes: the second has the rare one, but few rows.
CLASSES = [np.array([0, 0, 0, 0, 0, 0, 1, 1, 0, 0]), np.array([0, 2, 0, 2])]

#: Fingerprints as they were when such samples came twice: of weights 3 and 0.25, and of 1 and 0.25, where none did.
BEFORE = "12:251c.6003.d7b2.caab:eacc:b631:1117cbde9fd6a63c"
SAME = "4:251c.6003.d7b2.caab:fc9f:d983:64bec341ac19b188"


def made(weights: list[float], classes: list[Any] = CLASSES, **options: Any) -> Loader:
    ends = np.cumsum([len(one) for one in classes])
    volumes = [{"x": np.arange(end - len(one), end), "k": one} for one, end in zip(classes, ends.tolist(), strict=True)]
    return Loader(volumes, Rows(balance="k", replace=False), weights=weights, batch_size=1, drop_last=False, **options)


def times(loader: Loader, total: int, epoch: int) -> Any:
    """Return how often each sample comes in an epoch, of which nothing is read."""
    cells = loader._of_epoch(epoch).cells
    return np.bincount(cells.labels(np.arange(cells.first[-1])), minlength=total)


@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_a_volume_that_has_enough_gives_none_twice(shuffle: Any) -> None:
    loader = made([3, 0.25], shuffle=shuffle)
    for epoch in range(8):
        loader.set_epoch(epoch)
        found = np.bincount(np.concatenate([batch["x"] for batch in loader]), minlength=14)
        assert found.sum() == 12
        assert found[10:].max() == 1
        assert found[:10].max() > 1


def test_equal_weights_ask_for_more_than_some_have() -> None:
    """The second volume gives what the first has too few of: only one row of class 1."""
    loader = made([3, 3], [np.array([0] * 8 + [1]), np.array([0, 1])], seed=3)
    assert [volume.samples.expected for volume in loader._volumes.each] == [9, 3]
    assert loader._volumes.shift_classes
    for epoch in range(8):
        found = times(loader, 11, epoch)
        assert found.sum() == 12
        assert found[:9].max() == 1
    # Where all have enough, or all too few, volumes make no difference.
    assert not made([1, 1], [np.array([0] * 8 + [1]), np.array([0, 1])])._volumes.shift_classes
    assert not made([3, 3], [np.array([0, 1]), np.array([0, 1])])._volumes.shift_classes


def test_many_volumes() -> None:
    rng = np.random.default_rng(7)
    shifted = 0
    for _ in range(25):
        sizes = [int(rng.integers(8, 16)), *rng.integers(2, 8, int(rng.integers(1, 4))).tolist()]
        classes = [rng.choice(3, size, p=rng.dirichlet(np.full(3, 0.3))) for size in sizes]
        loader = made([3, *rng.choice([0.25, 0.5, 1], len(sizes) - 1)], classes)
        expected = [volume.samples.expected for volume in loader._volumes.each]
        enough = np.repeat([n <= size for n, size in zip(expected, sizes, strict=True)], sizes)
        shifted += loader._volumes.shift_classes
        for epoch in range(3):
            found = times(loader, sum(sizes), epoch)
            assert found.sum() == round(sum(expected))
            assert found[enough].max(initial=0) <= 1
    assert shifted >= 3


@pytest.mark.parametrize(
    ("weights", "replace", "shifted"), [([3, 0.25], False, True), ([3, 0.25], True, False), ([1, 0.25], False, False)]
)
def test_the_others_stay_as_they_were(weights: list[float], replace: bool, shifted: bool) -> None:
    """With replacement, or where no volume asks for more than it has, classes come as often as they can."""
    classes = np.concatenate(CLASSES)
    volumes = np.repeat([0, 1], [10, 4])
    expected = [4.0 * weights[0], 2.0 * weights[1]]
    found, said = fitted(
        1 / np.bincount(classes)[classes], volumes, classes, expected, round(sum(expected)), replace=replace
    )
    assert said == shifted
    assert found[10:].max() <= 1 or replace
    assert found.sum() <= round(sum(expected)) * (1 + 1e-9)


def test_states_of_the_draw_before_are_refused() -> None:
    loader = made([3, 0.25], seed=1)
    assert loader.fingerprint != BEFORE
    with pytest.raises(gzarr.ArgumentError, match="sampler has changed"):
        loader.load_state_dict(loader.state_dict() | {"fingerprint": BEFORE})
    # Nothing has changed here.
    assert made([1, 0.25], seed=1).fingerprint == SAME
