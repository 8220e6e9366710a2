"""Variables of netCDF that state the type of packed numbers: images have the numbers that they give."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import netCDF4
import numpy as np
import pytest

import gzarr
from gzarr import ome

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PACKED = np.arange(16 * 16).reshape(16, 16) * 0.5 + 10
UNSIGNED = np.arange(256, dtype="u1").reshape(16, 16)


@pytest.fixture
def variables(tmp_path: Path) -> Iterator[Any]:
    with netCDF4.Dataset(tmp_path / "x.nc", "w") as file:
        file.createDimension("y", 16)
        file.createDimension("x", 16)
        packed = file.createVariable("packed", "i2", ("y", "x"))
        packed.scale_factor, packed.add_offset = 0.5, 10.0
        packed[:] = PACKED
        unsigned = file.createVariable("unsigned", "i1", ("y", "x"))
        unsigned.setncattr("_Unsigned", "true")
        unsigned[:] = UNSIGNED
        yield file.variables


@pytest.mark.parametrize(("name", "expected"), [("packed", PACKED), ("unsigned", UNSIGNED)])
def test_images(variables: Any, name: str, expected: Any) -> None:
    image = ome.create({}, variables[name], axes="yx", chunks=8, levels=2)
    same = ome.create({}, expected, axes="yx", chunks=8, levels=2)
    for level in (0, 1):
        found = image.read(level)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, same.read(level))


def test_labels(variables: Any) -> None:
    store: dict[str, Any] = {}
    ome.create(store, PACKED, axes="yx", levels=1)
    np.testing.assert_array_equal(ome.create_labels(store, "ids", variables["unsigned"]).read(), UNSIGNED)
    with pytest.raises(gzarr.ArgumentError, match="labels are integers, not float64"):
        ome.create_labels(store, "packed", variables["packed"])


def test_one_thread_reads_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """NetCDF-C is not safe for threads, and netCDF4 has no lock."""
    reading: list[int] = []
    most = 0

    class Variable:
        shape, dtype = UNSIGNED.shape, UNSIGNED.dtype

        def __getitem__(self, box: Any) -> Any:
            nonlocal most
            reading.append(0)
            most = max(most, len(reading))
            time.sleep(0.01)
            reading.pop()
            return UNSIGNED[box]

    monkeypatch.setattr("gzarr.ome.writing.building._BOX_BYTES", 64)
    monkeypatch.setenv("GZARR_THREADS", "4")
    Variable.__module__ = "netCDF4._netCDF4"
    ome.create({}, Variable(), axes="yx", chunks=4, levels=2)
    assert most == 1
