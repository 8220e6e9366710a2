"""``.ozx`` files of ngff-zarr, read by gzarr, and gzarr's, read by ngff-zarr and zarr-python.

Other libraries need other versions of zarr-python than the tests; ``tests/interop/check_ozx.py`` has them, too.
"""

from __future__ import annotations

import json
import warnings
import zipfile
from typing import TYPE_CHECKING

import ngff_zarr
import numpy as np
import zarr

import gzarr

if TYPE_CHECKING:
    from pathlib import Path

DATA = np.random.default_rng(3).integers(0, 60000, (6, 70, 90), dtype=np.uint16)


def test_files_of_ngff_zarr_are_read(tmp_path: Path) -> None:
    path = tmp_path / "theirs.ozx"
    scale = {"z": 2.0, "y": 0.5, "x": 0.25}
    image = ngff_zarr.to_ngff_image(DATA, dims=["z", "y", "x"], scale=scale, name="image")
    scales = ngff_zarr.to_multiscales(image, scale_factors=[], chunks=32)
    ngff_zarr.to_ngff_zarr(str(path), scales, version="0.5")
    assert path.is_file()
    found = gzarr.ome.open(path, device="cpu")
    assert isinstance(found, gzarr.ome.Image)
    np.testing.assert_array_equal(found.read(), DATA)
    assert found.scale == (2.0, 0.5, 0.25)
    with zipfile.ZipFile(path) as archive:
        theirs = json.loads(archive.comment.decode().rstrip("\0"))
    # What is changed here keeps what their reader needs.
    gzarr.ome.create_labels(path, "cells", (DATA > 30000).astype("u1"))
    with zipfile.ZipFile(path) as archive:
        assert archive.namelist()[0] == "zarr.json"
        assert json.loads(archive.comment) == theirs
    again = ngff_zarr.from_ngff_zarr(str(path)).images[0]
    np.testing.assert_array_equal(np.asarray(again.data), DATA)


def test_ours_are_read_by_ngff_zarr_and_zarr_python(tmp_path: Path) -> None:
    path = tmp_path / "ours.ozx"
    ours = gzarr.ome.create(
        path,
        DATA,
        axes="zyx",
        scale=(2, 0.5, 0.25),
        units="micrometer",
        levels=2,
        chunks=(6, 32, 32),
        shards=(6, 64, 64),
    )
    levels = [level.array[...] for level in ours.levels]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = ngff_zarr.from_ngff_zarr(str(path))
    assert len(found.images) == 2
    group = zarr.open_group(zarr.storage.ZipStore(path, mode="r"), mode="r")
    for i, (image, expected) in enumerate(zip(found.images, levels, strict=True)):
        np.testing.assert_array_equal(np.asarray(image.data), expected)
        np.testing.assert_array_equal(group[str(i)][...], expected)
    assert found.images[0].scale == {"z": 2.0, "y": 0.5, "x": 0.25}
