"""xarray with gzarr's engine beside its own: opening 200 variables, and reading 100 windows of a reanalysis.

    python benchmarks/xarray_open.py                       both parts, some minutes
    python benchmarks/xarray_open.py --part open
    python benchmarks/xarray_open.py --part windows --rounds 9

The stores are written once, to ``--data-dir``. Half of the 200 variables are floats, half are packed integers. The
reanalysis has layouts of the public copies of ERA5: 721 × 1440 floats, one time step to a chunk, compressed with
blosc-lz4 (``maps``; also as integers, ``packed``), or chunks for series of times, with zstd (``series``). The fields
are made up. Windows are boxes at random places, the same for both engines; each is selected with ``isel`` and read as
NumPy. What both engines return is compared before anything is timed. Rounds are interleaved, and the median is
reported. All in one process, warm page cache.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fields
import numpy as np
import xarray as xr
from zarr.codecs import BloscCodec, ZstdCodec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ENGINES = ("zarr", "gzarr")
#: The project's targets: multiples of xarray's own engine.
LEAST = {"open": 3.0, "windows": 2.0}
_VARIABLES, _WINDOWS = 200, 100
_SHAPE = (48, 721, 1440)
_CHUNKS = {"maps": (1, 721, 1440), "series": (48, 103, 144)}
#: Lengths of the windows of each layout, and of a tall one for both.
_BOXES = {"maps": (4, 80, 80), "series": (48, 8, 8), "packed": (4, 80, 80)}


def write_variables(path: Path, zarr_format: int) -> None:
    """Write a store of many variables, which are as small as can be: they are not read."""
    times = np.arange("2020-01-01", "2020-02-01", dtype="datetime64[h]").astype("datetime64[ns]")
    sides = {"time": times, "lat": np.linspace(-90, 90, 8), "lon": np.linspace(0, 315, 8)}
    values = np.zeros(tuple(len(side) for side in sides.values()), "f4")
    dataset = xr.Dataset(coords=sides)
    for i in range(_VARIABLES):
        attributes = {"units": "K", "long_name": f"Variable number {i}", "standard_name": f"variable_{i}"}
        dataset[f"v{i:03}"] = (tuple(sides), values, attributes)
        if i % 2:
            dataset[f"v{i:03}"].encoding = {
                "dtype": "i2",
                "scale_factor": 0.1,
                "add_offset": 250.0,
                "_FillValue": -32767,
            }
    dataset.to_zarr(path, zarr_format=zarr_format, consolidated=True)


def write_reanalysis(path: Path, layout: str) -> None:
    """Write one variable of a reanalysis in a layout."""
    values = fields.make(fields.weather_f4, _SHAPE)
    names = ("time", "latitude", "longitude")
    hours = np.arange(_SHAPE[0]).astype("timedelta64[h]") + np.datetime64("2020-01-01", "ns")
    sides = dict(zip(names, (hours, np.linspace(90, -90, 721), np.linspace(0, 359.75, 1440)), strict=True))
    dataset = xr.Dataset({"t2m": (names, values, {"units": "K"})}, coords=sides)
    encoding: dict[str, Any] = {"chunks": _CHUNKS.get(layout, _CHUNKS["maps"])}
    if layout == "packed":
        low, high = float(values.min()), float(values.max())
        scale = (high - low) / 65000
        encoding |= {"dtype": "i2", "scale_factor": scale, "add_offset": (low + high) / 2, "_FillValue": -32767}
    if layout == "series":
        encoding["compressors"] = (ZstdCodec(level=3),)
        dataset.to_zarr(path, zarr_format=3, encoding={"t2m": encoding}, consolidated=True)
    else:
        encoding["compressors"] = (BloscCodec(cname="lz4", shuffle="shuffle"),)
        dataset.to_zarr(path, zarr_format=3, encoding={"t2m": encoding}, consolidated=True)


def interleaved(jobs: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Return the seconds that each job took in each round."""
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(rounds):
        for name, job in jobs.items():
            begin = time.perf_counter()
            job()
            times[name].append(time.perf_counter() - begin)
    return times


def report(what: str, times: dict[str, list[float]]) -> float:
    """Print the medians of the engines and their ratio; return that."""
    medians = {engine: statistics.median(seconds) for engine, seconds in times.items()}
    ratio = medians["zarr"] / medians["gzarr"]
    print(
        f"{what:48} zarr {medians['zarr'] * 1e3:8.1f} ms   gzarr {medians['gzarr'] * 1e3:8.1f} ms   {ratio:5.2f} ×",
        flush=True,
    )
    return ratio


def opening(data: Path, rounds: int) -> list[float]:
    """Measure :func:`xarray.open_dataset`; return the ratios that the target is about."""
    ratios = []
    for zarr_format in (2, 3):
        path = data / f"variables-{zarr_format}.zarr"
        if not path.exists():
            write_variables(path, zarr_format)
        for label, options in {
            "": {},
            ", chunks={}": {"chunks": {}},
            ", not consolidated": {"consolidated": False},
        }.items():
            jobs = {engine: functools.partial(xr.open_dataset, path, engine=engine, **options) for engine in ENGINES}
            xr.testing.assert_identical(*(job() for job in jobs.values()))
            ratio = report(f"open {_VARIABLES} variables, version {zarr_format}{label}", interleaved(jobs, rounds))
            if not options:
                ratios.append(ratio)
    return ratios


def read(array: xr.DataArray, boxes: Sequence[dict[str, slice]]) -> None:
    """Read boxes of an array."""
    for box in boxes:
        array.isel(box).to_numpy()


def windows(data: Path, rounds: int) -> list[float]:
    """Measure the reading of windows; return the ratios."""
    ratios = []
    for layout, box in _BOXES.items():
        path = data / f"{layout}.zarr"
        if not path.exists():
            write_reanalysis(path, layout)
        random = np.random.default_rng(1)
        starts = [[int(random.integers(n - m + 1)) for n, m in zip(_SHAPE, box, strict=True)] for _ in range(_WINDOWS)]
        names = ("time", "latitude", "longitude")
        boxes = [{name: slice(i, i + m) for name, i, m in zip(names, start, box, strict=True)} for start in starts]
        opened = {engine: xr.open_dataset(path, engine=engine, cache=False).t2m for engine in ENGINES}
        for one in boxes[:3]:
            np.testing.assert_array_equal(*(array.isel(one).values for array in opened.values()))
        jobs = {engine: functools.partial(read, array, boxes) for engine, array in opened.items()}
        shape = " × ".join(map(str, box))
        ratios.append(report(f"{_WINDOWS} windows of {shape}, {layout}", interleaved(jobs, rounds)))
    return ratios


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and return 1 if a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=tuple(LEAST), action="append")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--data-dir", type=Path, default=Path(tempfile.gettempdir()) / "gzarr-benchmarks" / "xarray")
    arguments = parser.parse_args(argv)
    arguments.data_dir.mkdir(parents=True, exist_ok=True)
    warnings.filterwarnings("ignore", message="Consolidated metadata is currently not part")
    missed = 0
    for part in arguments.part or LEAST:
        measure = opening if part == "open" else windows
        for ratio in measure(arguments.data_dir, arguments.rounds):
            missed += ratio < LEAST[part]
    print(f"{missed} below the target ({', '.join(f'{part} {least} ×' for part, least in LEAST.items())})")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
