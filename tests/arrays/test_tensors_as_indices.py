"""Arrays of other libraries as indices: those of one element are arrays, which their libraries take for integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import gzarr
from gzarr.errors import SelectionError

torch = pytest.importorskip("torch")
pa = pytest.importorskip("pyarrow")

DATA = np.arange(24).reshape(4, 6)
INDICES: list[Any] = [[2], [[2]], [-1, 1], 2, [False, True, True, False], [True]]


def of_dask(value: Any) -> Any:
    import dask.array

    return dask.array.from_array(np.array(value))


def parameter(value: Any) -> Any:
    return torch.nn.Parameter(torch.tensor(value), requires_grad=False)


def array() -> gzarr.Array:
    return gzarr.array(DATA, chunks=2, device="cpu")


def outcome(function: Any) -> Any:
    """Return a result or, of an error, only that it is one of a selection."""
    try:
        return np.asarray(function()).tolist()
    except (SelectionError, gzarr.ArgumentError):
        return "refused"


@pytest.mark.parametrize("library", [torch.tensor, parameter, of_dask], ids=["tensor", "parameter", "dask"])
@pytest.mark.parametrize("index", INDICES, ids=str)
def test_they_select_what_those_of_numpy_do(index: Any, library: Any) -> None:
    a, given, plain = array(), library(index), np.array(index)
    for read in (
        lambda k: a[k],
        lambda k: a[:, k],
        lambda k: a.oindex[k],
        lambda k: a.vindex[k, 0],
        lambda k: a.blocks[k],
        lambda k: a.get_orthogonal_selection(k),
        lambda k: a.read_many([k])[0],
        lambda k: a.view[1:][k],
    ):
        assert outcome(lambda: read(given)) == outcome(lambda: read(plain))  # noqa: B023


def test_a_mask_of_one_element_writes_nothing() -> None:
    one = gzarr.array([5], device="cpu")
    one[torch.tensor([False])] = -1
    assert one[...].tolist() == [5]
    one[torch.tensor([True])] = 7
    assert one[torch.tensor([True])].tolist() == [7]
    assert one[torch.tensor([False])].tolist() == []
    plane = gzarr.array([[5]], device="cpu")
    assert plane.vindex[torch.tensor([[False]])].tolist() == []


def test_a_truth_value_is_no_index() -> None:
    for index in (torch.tensor(True), of_dask(True)):
        for indexed in (array(), array().oindex, array().blocks):
            with pytest.raises(SelectionError, match="a single boolean selects nothing"):
                indexed[index]


def test_selections_of_zarr_python_take_masks_of_tensors() -> None:
    a, mask = array(), DATA % 5 == 1
    given = torch.tensor(mask)
    assert a.get_mask_selection(given).tolist() == DATA[mask].tolist()
    a.set_mask_selection(given, -1)
    assert np.array_equal(a[...], np.where(mask, -1, DATA))
    one = gzarr.array([5], device="cpu")
    assert one.get_mask_selection(torch.tensor([False])).tolist() == []
    with pytest.raises(SelectionError, match="read a mask with get_mask_selection"):
        a.get_coordinate_selection(given)
    with pytest.raises(SelectionError, match="one boolean array of the array's shape"):
        a.get_mask_selection(torch.tensor(True))


def test_selections_of_zarr_python_know_masks_of_tables() -> None:
    a = gzarr.array(DATA[0], device="cpu")
    for mask in (pd.Series(DATA[0] > 2, dtype="boolean"), pa.array(DATA[0] > 2)):
        assert a.get_mask_selection(mask).tolist() == [3, 4, 5]
        with pytest.raises(SelectionError, match="read a mask with get_mask_selection"):
            a.get_coordinate_selection(mask)


@pytest.mark.parametrize("index", [torch.tensor(True), torch.tensor(2.0), torch.tensor([1])], ids=str)
def test_views_take_integers(index: Any) -> None:
    with pytest.raises(SelectionError, match="a view takes integers"):
        array().view[index]
    assert array().view[torch.tensor(1)][...].tolist() == DATA[1].tolist()


def test_places_of_windows_with_gradients() -> None:
    places = torch.ones(2, requires_grad=True)
    flat = gzarr.array(DATA[0], device="cpu")
    with pytest.raises(SelectionError, match="starts must be integers"):
        flat.read_windows(places, 2)
    with pytest.raises(SelectionError, match="rows must be 2 integers"):
        flat.read_windows([0, 1], 2, out=np.empty((2, 2), DATA.dtype), rows=places)
    assert flat.read_windows([1], torch.tensor(2), step=np.array(2)).tolist() == [[1, 3]]
