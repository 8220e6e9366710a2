"""Write files for ``ci/newcomer`` with another library, and what they hold: ``SCRIPT WRITER DIRECTORY``."""

import sys
from pathlib import Path

import numpy as np


def volume():
    """Return the elements of ``volume.zarr``."""
    z, y, x = np.ogrid[:64, :256, :256]
    noise = np.random.default_rng(64).integers(0, 50, (64, 256, 256))
    return (1000 + 10 * z + y + x % 17 + noise).astype("u2")


def temperatures():
    """Return the elements of ``t2m`` in ``era5.zarr``."""
    return (280 + np.random.default_rng(65).random((24, 91, 180)) * 20).astype("f4")


def write_volume(directory):
    """Write an array with the zarr-python that is installed, version 2 or 3."""
    import zarr

    values = volume()
    if zarr.__version__.startswith("2."):
        array = zarr.open_array(
            str(directory / "volume.zarr"), mode="w", shape=values.shape, chunks=(16, 64, 64), dtype="u2"
        )
        array[...] = values
    else:
        path = str(directory / "volume.zarr")
        zarr.create_array(path, data=values, chunks=(8, 64, 64), shards=(32, 128, 128))
    np.save(directory / "volume.npy", values)


def write_era5(directory):
    """Write a dataset with xarray, packed into integers as such files often are."""
    import xarray as xr

    values = temperatures()
    coordinates = {
        "time": np.datetime64("2026-11-23T00", "ns") + np.arange(24) * np.timedelta64(1, "h"),
        "latitude": np.linspace(90, -90, 91),
        "longitude": np.arange(0, 360, 2.0),
    }
    attributes = {"units": "K", "long_name": "2 metre temperature"}
    data = xr.DataArray(values, coords=coordinates, dims=list(coordinates), attrs=attributes)
    dataset = xr.Dataset({"t2m": data}, attrs={"Conventions": "CF-1.7"})
    dataset.to_zarr(directory / "era5.zarr", encoding={"t2m": {"chunks": (1, 91, 180)}})
    np.save(directory / "era5.npy", values)


def write_image(directory):
    """Write an image of OME-Zarr 0.5 with ome-zarr-py, and its second level as zarr-python reads it."""
    import zarr
    from ome_zarr.io import parse_url
    from ome_zarr.writer import write_image as write

    values = volume()[:16]
    root = zarr.group(store=parse_url(str(directory / "image.ome.zarr"), mode="w").store)
    scales = [[{"type": "scale", "scale": [2.0, 0.5 * 2**i, 0.5 * 2**i]}] for i in range(5)]
    axes = [{"name": name, "type": "space", "unit": "micrometer"} for name in "zyx"]
    write(image=values, group=root, axes=axes, coordinate_transformations=scales)
    stored = zarr.open_group(str(directory / "image.ome.zarr"), mode="r")
    paths = [name for name, _ in sorted(stored.arrays())]
    np.save(directory / "image.npy", stored[paths[1]][0])


WRITERS = {
    "zarr-python-2": write_volume,
    "zarr-python-3": write_volume,
    "xarray": write_era5,
    "ome-zarr-py": write_image,
}


if __name__ == "__main__":
    WRITERS[sys.argv[1]](Path(sys.argv[2]))
