"""Codes of one list of categories as arrays of dask."""

from __future__ import annotations

import pickle

import numpy as np

import gzarr
from gzarr.loader.categories import with_one_list
from gzarr.windows.columns import inputs_of


def test_codes_stay_mapped_in_other_processes() -> None:
    volumes = []
    for categories in (["x", "y"], ["z", "x"]):
        column = gzarr.create_group({}, attributes={"encoding-type": "categorical"})
        column.create_array("codes", data=np.array([0, 1, -1], "i1"))
        column.create_array("categories", data=np.array(categories, object), dtype=str)
        volumes.append(inputs_of("c", column))
    one, other = (volume["c"] for volume in with_one_list(volumes))
    lazy = pickle.loads(pickle.dumps(gzarr.to_dask(other)))
    np.testing.assert_array_equal(lazy.compute(scheduler="sync"), [2, 0, -1])
    np.testing.assert_array_equal(gzarr.to_dask(one).compute(scheduler="sync"), [0, 1, -1])
    assert gzarr.to_dask(other).name != gzarr.to_dask(other.base.view[:]).name
