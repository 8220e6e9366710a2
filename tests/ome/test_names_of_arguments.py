"""Arguments that functions pass on are refused under the name of the function that was called."""

from __future__ import annotations

import numpy as np
import pytest

import gzarr


def test_unknown_arguments() -> None:
    store: dict[str, bytes] = {}
    gzarr.ome.create(store, np.zeros((4, 4), "u1"), axes="yx")
    before = dict(store)
    for name, value in (("properties", 1), ("version", "0.4")):
        with pytest.raises(TypeError, match=rf"^create_labels\(\) got an unexpected keyword argument '{name}'$"):
            gzarr.ome.create_labels(store, "cells", np.zeros((4, 4), "u1"), **{name: value})
    assert store == before
    plate: dict[str, bytes] = {}
    gzarr.ome.create_plate(plate, rows=["A"], columns=["1"])
    with pytest.raises(TypeError, match=r"^create_field\(\) got an unexpected keyword argument 'propertis'$"):
        gzarr.ome.create_field(plate, "A", "1", np.zeros((4, 4), "u1"), axes="yx", propertis=1)
    with pytest.raises(TypeError, match=r"^create_field\(\) missing 1 required keyword-only argument: 'axes'$"):
        gzarr.ome.create_field(plate, "A", "1", np.zeros((4, 4), "u1"))


def test_acquisitions_by_their_public_name() -> None:
    store: dict[str, bytes] = {}
    passes = [gzarr.ome.Acquisition(id=1), gzarr.ome.Acquisition(id=2)]
    plate = gzarr.ome.create_plate(store, rows=["A"], columns=["1"], acquisitions=passes)
    assert plate.metadata.plate is not None
    assert [one.id for one in plate.metadata.plate.acquisitions] == [1, 2]
    with pytest.raises(gzarr.ArgumentError, match=r"sequence of gzarr\.ome\.Acquisition"):
        gzarr.ome.create_plate({}, rows=["A"], columns=["1"], acquisitions=[{"id": 1}])  # type: ignore[list-item]
