"""OME-Zarr in one file (``.ozx``): files of other libraries, read by gzarr, and gzarr's, read by these.

    python tests/interop/check_ozx.py

In an environment of Python 3.12 or newer with gzarr and ``ngff-zarr==0.50.0 iohub==0.3.11 bioio-ome-zarr==3.8.1``;
libraries that are not installed are left out, and named. Prints a line for each; raises for the first difference.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import tempfile
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

import gzarr

DATA = np.random.default_rng(0).integers(0, 60000, (1, 2, 6, 70, 90), dtype=np.uint16)
Levels = list[np.ndarray[Any, Any]]


def ours(folder: Path) -> tuple[Path, Levels]:
    """Write a file with gzarr; return its path and the levels."""
    path = folder / "gzarr.ozx"
    image = gzarr.ome.create(
        path, DATA, axes="tczyx", scale=(1, 1, 2, 0.5, 0.5), units=dict.fromkeys("zyx", "micrometer"),
        channels=["DAPI", "GFP"], levels=2, chunks=(1, 1, 6, 32, 32), shards=(1, 1, 6, 64, 64),
    )  # fmt: skip
    return path, [level.array[...] for level in image.levels]


def compared(path: Path, levels: Levels) -> str:
    """Read a file of another library with gzarr; return what of the RFC it keeps."""
    image = gzarr.ome.open(path, device="cpu")
    assert isinstance(image, gzarr.ome.Image)
    for found, expected in zip(image.levels, levels, strict=True):
        np.testing.assert_array_equal(np.squeeze(found.array[...]), np.squeeze(expected))
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        kept = {
            "root first": names[0] == "zarr.json",
            "comment": bool(archive.comment) and "ome" in json.loads(archive.comment),
            "stored": all(info.compress_type == zipfile.ZIP_STORED for info in archive.infolist()),
        }
    return ", ".join(f"{name}: {'yes' if said else 'no'}" for name, said in kept.items())


def ngff_zarr(folder: Path) -> str:
    import ngff_zarr as library

    path, levels = ours(folder)
    found = library.from_ngff_zarr(str(path))
    for image, expected in zip(found.images, levels, strict=True):
        np.testing.assert_array_equal(np.asarray(image.data), expected)
    assert found.images[0].scale["z"] == 2
    theirs = folder / "ngff-zarr.ozx"
    image = library.to_ngff_image(DATA[0, 0], dims=["z", "y", "x"], scale={"z": 2.0, "y": 0.5, "x": 0.5})
    scales = library.to_multiscales(image, scale_factors=[2], method=library.Methods.ITKWASM_BIN_SHRINK)
    library.to_ngff_zarr(str(theirs), scales, version="0.5")
    return compared(theirs, [np.asarray(one.data) for one in scales.images])


def zarr_python(folder: Path) -> str:
    import zarr

    path, levels = ours(folder)
    group = zarr.open_group(zarr.storage.ZipStore(path, mode="r"), mode="r")
    for i, expected in enumerate(levels):
        np.testing.assert_array_equal(group[str(i)][...], expected)
    return "reads"


def iohub(folder: Path) -> str:
    from iohub.ngff import open_ome_zarr

    path, levels = ours(folder)
    with open_ome_zarr(path) as position:
        assert position.channel_names == ["DAPI", "GFP"]
        for i, expected in enumerate(levels):
            np.testing.assert_array_equal(np.asarray(position[str(i)][:]), expected)
    return "reads"


def bioio_ome_zarr(folder: Path) -> str:
    from bioio_ome_zarr import Reader

    path, levels = ours(folder)
    reader = Reader(str(path))
    for i, expected in enumerate(levels):
        reader.set_resolution_level(i)
        np.testing.assert_array_equal(np.asarray(reader.data), expected)
    assert reader.channel_names == ["DAPI", "GFP"]
    return "reads"


def main() -> None:
    warnings.simplefilter("ignore")
    for check in (zarr_python, ngff_zarr, iohub, bioio_ome_zarr):
        name = check.__name__
        package = {"zarr_python": "zarr"}.get(name, name)
        if importlib.util.find_spec(package) is None:
            print(f"{name}: not installed")
            continue
        version = importlib.metadata.version(package.replace("_", "-"))
        with tempfile.TemporaryDirectory() as folder:
            print(f"{name} {version}: {check(Path(folder))}", flush=True)


if __name__ == "__main__":
    main()
