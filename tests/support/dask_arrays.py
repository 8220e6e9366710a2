"""Arrays for the tests of dask."""

from __future__ import annotations

from typing import Any

import numpy as np

import gzarr

LAYOUTS: dict[str, dict[str, Any]] = {
    "chunks": {"chunks": (10, 6)},
    "v2": {"chunks": (10, 6), "zarr_format": 2, "order": "F"},
    "shards": {"chunks": (5, 3), "shards": (10, 12)},
    "rectilinear": {"chunks": ([10, 4, 20, 3], [6, 17])},
    "one chunk": {"chunks": (100, 100)},
}
DATA = np.random.default_rng(1).integers(-999, 999, (37, 23)).astype("i4")


def made(layout: str = "chunks", data: Any = DATA, store: Any = None, **others: Any) -> gzarr.Array:
    """Return an array, open for reading."""
    store = {} if store is None else store
    array = gzarr.create_array(store, data=data, device="cpu", **{**LAYOUTS[layout], **others})
    return gzarr.open_array(array.store, path=array.path, device="cpu")
