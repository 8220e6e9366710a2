"""Other libraries, as readers of an array in a directory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorstore
import zarr
from support.zarr_arrays import same

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Elements = np.ndarray[Any, Any]


def by_zarr_python(path: Path, zarr_format: Any) -> Any:
    # Releases without rectilinear grids ignore this option.
    zarr.config.set({"array.rectilinear_chunks": True})
    return zarr.open_array(str(path), mode="r", zarr_format=zarr_format)[...]


def by_tensorstore(path: Path, zarr_format: int) -> Any:
    driver = "zarr" if zarr_format == 2 else "zarr3"
    store = {"driver": "file", "path": f"{path}/"}
    return tensorstore.open({"driver": driver, "kvstore": store}).result().read().result()


def by_zarrs(path: Path, zarr_format: int) -> Any:
    """Read with the pipeline of zarrs, without the codecs of zarr-python around it."""
    with zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline", "codec_pipeline.strict": True}):
        return by_zarr_python(path, zarr_format)


#: By the name of the distribution.
READERS: dict[str, Callable[[Path, int], Any]] = {
    "zarr": by_zarr_python,
    "tensorstore": by_tensorstore,
    "zarrs": by_zarrs,
}


def verdict(reader: str, path: Path, expected: Elements) -> str:
    """Return a library's verdict: ``yes`` for exactly the expected result, ``no`` for an error, else ``differs``."""
    zarr_format = 3 if (path / "zarr.json").exists() else 2
    if zarr_format == 2 and not (path / ".zarray").exists():
        # No peer reads other versions of Zarr.
        return "no"
    try:
        values = np.asarray(READERS[reader](path, zarr_format))
    except Exception:
        # Other libraries may raise anything for unsupported arrays.
        return "no"
    if values.dtype == "V":
        # tensorstore's raw bytes have no size in NumPy.
        return "no"
    try:
        # zarr-python keeps the stored byte order, gzarr does not.
        same(values if values.dtype.kind == "T" else values.astype(values.dtype.newbyteorder("=")), expected)
    except AssertionError:
        return "differs"
    return "yes"
