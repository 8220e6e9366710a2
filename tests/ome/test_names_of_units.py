"""Units that are written: by their names in the specification, or with a warning."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr import ome
from gzarr.ome.metadata.model import Axis
from gzarr.ome.metadata.units import SPACE_UNITS, TIME_UNITS

DATA = np.zeros((2, 16, 24), "u2")
# "Mm" is none of them: it is not the symbol of millimetres.
NAMES = {
    "micrometer": ("micrometer", "micrometre", "Micrometers", "um", "µm", "μm", "micron", "microns"),
    "nanometer": ("nanometer", "nanometres", "nm"),
    "millimeter": ("mm", "millimetre"),
    "centimeter": ("cm",),
    "picometer": ("pm",),
    "meter": ("m", "metre", "meters"),
    "angstrom": ("Å", "å", "Angstrom", "angstroms"),
    "inch": ("in", "inch"),
}
TIMES = {
    "second": ("s", "sec", "second", "Seconds"),
    "millisecond": ("ms", "milliseconds"),
    "microsecond": ("us", "µs"),
    "nanosecond": ("ns",),
    "minute": ("min", "minutes"),
    "hour": ("h", "hours"),
    "day": ("day", "days"),
}


def units_in(group: gzarr.Group) -> list[str | None]:
    """Return the units of the axes as they are in the document."""
    found = dict(group.attrs)
    return [axis.get("unit") for axis in found.get("ome", found)["multiscales"][0]["axes"]]


def test_other_names() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind, known, names in (("space", SPACE_UNITS, NAMES), ("time", TIME_UNITS, TIMES)):
            assert set(names) <= set(known)
            for name, others in (*names.items(), *((unit, (unit,)) for unit in known)):
                for other in others:
                    axes = [Axis("t", "time"), *(Axis(axis, "space") for axis in "yx")]
                    units: dict[str, Any] = {"space": {"x": other}, "time": {"t": other}}[kind]
                    image = ome.create({}, shape=DATA.shape, dtype="u1", axes=axes, units=units)
                    assert image.units == ((None, None, name) if kind == "space" else (name, None, None))
    assert ome.create({}, DATA, axes="tyx", units="um", levels=1).scale == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_wherever_they_are_written(version: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store: dict[str, Any] = {}
        axes = [Axis("t", "time", "s"), Axis("y", "space", "mm"), Axis("x", "space")]
        image = ome.create(store, DATA, axes=axes, units={"x": "µm"}, version=version, levels=1)
        assert units_in(image.group) == ["second", "millimeter", "micrometer"]
        assert units_in(ome.create_labels(store, "cells", DATA).group) == ["second", "millimeter", "micrometer"]
        image.update_metadata(units={"y": "nm"})
        assert units_in(image.group) == ["second", "nanometer", "micrometer"]
        image.update_metadata(units=["min", "um", None])
        assert units_in(image.group) == ["minute", "micrometer", None]
        plate: dict[str, Any] = {}
        ome.create_plate(plate, rows="A", columns="1", version=version)
        field = ome.create_field(plate, "A", 1, DATA, axes="tyx", units="microns", levels=1)
        assert units_in(field.group) == [None, "micrometer", "micrometer"]
        group = gzarr.create_group({}, zarr_format=2 if version == "0.4" else 3)
        group["a"] = DATA
        ome.pyramid(group.store, path="a", axes="tyx", units="um", factors=2, levels=2)
        assert units_in(gzarr.open_group(group.store)) == [None, "micrometer", "micrometer"]


def test_units_that_the_specification_does_not_have() -> None:
    with pytest.warns(ome.MetadataWarning) as caught:
        image = ome.create({}, DATA, axes="tyx", units={"t": "frames", "x": "Mm"}, levels=1)
    texts = [str(warning.message) for warning in caught]
    assert texts == [
        "axis 't': 'frames' is no unit of time that OME-Zarr recommends, such as 'second', and is written as it is; "
        "other programs may not know it",
        "axis 'x': 'Mm' is no unit of space that OME-Zarr recommends, such as 'micrometer', and is written as it is; "
        "other programs may not know it",
    ]
    assert caught[0].filename == __file__
    assert image.units == ("frames", None, "Mm")
    with warnings.catch_warnings():
        # What a change does not name stays, without a word.
        warnings.simplefilter("error")
        image.update_metadata(scale={"x": 2}, units={"y": "mm"})
        assert image.units == ("frames", "millimeter", "Mm")
        # A unit of other axes may be any.
        ome.create({}, DATA, axes=[Axis("c", "channel", "mM"), "y", "x"], levels=1)
    with pytest.warns(ome.MetadataWarning, match="axis 'x': 'pixel' is no unit of space"):
        image.update_metadata(units={"x": "pixel"})
