"""Where patches are: labels in memory, and a mask for each volume, by its name or in a list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.loader import Dataset, Loader, Patches

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.filterwarnings("ignore:shuffling is coarse")

SHAPES = ((8, 8, 8), (12, 8, 4))


def labels(i: int) -> np.ndarray[Any, Any]:
    found = np.zeros(SHAPES[i], "u1")
    found[5, 1, 1 : 3 + i], found[1 + i, 6, 3] = 2, 7
    return found


def volumes() -> list[dict[str, Any]]:
    return [{"image": labels(i).astype("f4"), "label": gzarr.array(labels(i), chunks=4, device="cpu")} for i in (0, 1)]


def cells(i: int) -> list[list[int]]:
    """Return first elements of the patches of (4, 4, 4) that have a label."""
    return [list(c) for c in np.unique(np.argwhere(labels(i)) // 4 * 4, axis=0).tolist()]


def places(arrays: Any, where: Any) -> list[list[list[int]]]:
    loader = Loader(arrays, Patches((4, 4, 4), where=where), batch_size=1)
    found: list[list[list[int]]] = [[] for _ in range(len(arrays) if isinstance(arrays, list) else 1)]
    for batch in loader:
        found[int(batch.volumes[0])].append(batch.origins[0].tolist())
    return [sorted(each) for each in found]


@pytest.mark.parametrize("dtype", ["u1", "i8", bool])
def test_labels_in_memory_are_masks(dtype: Any) -> None:
    array = gzarr.array(labels(0), chunks=4, device="cpu")
    assert places(array, labels(0).astype(dtype)) == [cells(0)]
    # Of a lower resolution, as labels that are stored may be.
    assert places(array, labels(0)[1::2, ::2, 1::2].astype(dtype)) == places(
        array, gzarr.array(labels(0)[1::2, ::2, 1::2].copy(), chunks=4, device="cpu")
    )


def test_coordinates_stay_coordinates() -> None:
    array = gzarr.array(np.zeros((8, 8)), device="cpu")
    (batch,) = Loader(array, Patches((4, 4), where=np.array([[0, 4], [2, 1]])), batch_size=2, shuffle=False)
    assert sorted(batch.origins.tolist()) == [[0, 4], [2, 1]]


@pytest.mark.parametrize(
    "made",
    [
        lambda given: "label",
        lambda given: [one["label"] for one in given],
        lambda given: tuple(one["label"][:] for one in given),
        lambda given: [labels(0) > 0, np.array(cells(1))],
    ],
    ids=["name", "stored", "labels", "mask and coordinates"],
)
def test_each_volume_has_its_own(made: Callable[[Any], Any]) -> None:
    given = volumes()
    assert places(given, made(given)) == [cells(0), cells(1)]
    loader = Loader(given, Patches((4, 4, 4), where=made(given)))
    assert (
        loader.fingerprint == Loader(given, Patches((4, 4, 4), where=[np.array(cells(i)) for i in (0, 1)])).fingerprint
    )


def test_wrong_ones() -> None:
    given = volumes()
    with pytest.raises(gzarr.ArgumentError, match="where='mask' names no array of volume 0, which has"):
        Loader(given, Patches((4, 4, 4), where="mask"))
    with pytest.raises(gzarr.ArgumentError, match="where= has 3 masks, one for each volume, and there are 2"):
        Loader(given, Patches((4, 4, 4), where=[labels(0)] * 3))
    for where in ("label", [labels(0)]):
        with pytest.raises(gzarr.ArgumentError, match="is for a Loader: give the mask itself"):
            Dataset(given[0], Patches((4, 4, 4), where=where))
