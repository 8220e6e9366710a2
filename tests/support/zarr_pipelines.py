"""Arrays of zarr-python with gzarr's codec pipeline."""

from __future__ import annotations

from typing import Any

import numpy as np
import zarr

import gzarr.integrations.zarr as ours

Values = np.ndarray[Any, Any]

SHAPE = (37, 23)


def elements(dtype: str, seed: int = 0) -> Values:
    numbers = np.random.default_rng(seed).integers(0, 100, SHAPE)
    return numbers.astype("i8").astype(dtype) if dtype[-1] != "]" else numbers.astype("i8").view(dtype)


def opened(array: zarr.Array[Any], *, strict: bool = True, mode: str = "r+") -> zarr.Array[Any]:
    """Open an array again, with gzarr's pipeline."""
    with ours.enable(strict=strict):
        again = zarr.open_array(array.store, path=array.path, mode=mode)  # type: ignore[arg-type]
    assert type(again._async_array.codec_pipeline) is ours.CodecPipeline
    return again
