"""Images and plates that ome-zarr-py, ngff-zarr and iohub wrote, as ngff-zarr's reader reads them.

``ci/interop ome-zarr`` writes them (``tests/interop/write_ome_zarr.py``). The libraries need a newer Python and other
versions of zarr-python than the tests, so what they wrote is kept instead.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import gzarr

FOLDER = Path(os.environ.get("GZARR_GOLDEN_OME") or Path(__file__).parents[1] / "golden" / "ome")


@cache
def files():
    (archive,) = FOLDER.glob("*.tar.xz")
    with tarfile.open(archive) as source:
        return {member.name: source.extractfile(member).read() for member in source.getmembers()}


def expected():
    names = sorted(name for name in files() if name.startswith("expected/") and name.endswith(".json"))
    return [json.loads(files()[name]) for name in names]


def opened(path):
    store, _, below = path.partition("/")
    values = {key.removeprefix(f"{store}/"): value for key, value in files().items() if key.startswith(f"{store}/")}
    with warnings.catch_warnings():
        # What these libraries write keeps the rules.
        warnings.simplefilter("error")
        return gzarr.ome.open(values, path=below, device="cpu")


@pytest.mark.parametrize("said", expected(), ids=lambda said: said["store"])
def test_images(said):
    image = opened(said["store"])
    assert len(image.levels) == len(said["levels"])
    for level, found in zip(image.levels, said["levels"], strict=True):
        assert list(image.axes) == found["axes"]
        np.testing.assert_allclose(level.scale, found["scale"], rtol=1e-12)
        np.testing.assert_allclose(level.translation, found["translation"], rtol=1e-12)
        data = np.load(io.BytesIO(files()[f"expected/{found['file']}"]))
        result = image.read(level.index)
        assert result.dtype == data.dtype
        np.testing.assert_array_equal(result, data)
        assert [unit for unit in found["units"] if unit is not None] in ([], [u for u in image.units if u is not None])


def test_all_are_there():
    assert len(expected()) == 10
    assert {said["store"].split("-")[0] for said in expected()} == {"iohub", "ngff", "ome"}


@pytest.mark.parametrize("version", ["0.4", "0.5"])
@pytest.mark.parametrize("writer", ["ome-zarr-py", "iohub"])
def test_channels(writer, version):
    image = opened(f"{writer}-{version}")
    assert [channel.label for channel in image.channels] == ["DAPI", "GFP"]
    np.testing.assert_array_equal(image.read(c="GFP", t=1, z=slice(1, 3)), image.read()[1, 1, 1:3])


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_labels(version):
    labels = opened(f"ome-zarr-py-{version}").labels
    assert list(labels) == ["nuclei"]
    assert labels["nuclei"].image_label is not None
    np.testing.assert_array_equal(labels["nuclei"].read(), opened(f"ome-zarr-py-{version}").read()[0, 0] > 2000)


@pytest.mark.parametrize(
    ("store", "wells"), [("ome-zarr-py-plate", {"A/1": 2, "B/3": 2}), ("iohub-plate", {"A/1": 2, "H/12": 1})]
)
def test_plates(store, wells):
    plate = opened(store)
    assert {path: len(well) for path, well in plate.items()} == wells
    data = [image.read() for well in plate.values() for image in well]
    assert len({array.tobytes() for array in data}) > 1
