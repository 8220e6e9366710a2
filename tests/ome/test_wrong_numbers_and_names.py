"""Numbers and names of images and plates: wrong ones are errors that name the argument."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr import ome

if TYPE_CHECKING:
    from collections.abc import Callable

BIG = 10**5000


def kind_of(value: object) -> str:
    return type(value).__name__


def create(**arguments: Any) -> ome.Image:
    return ome.create({}, np.zeros((8, 8), "u1"), axes="yx", progress=False, **arguments)


def plate(**arguments: Any) -> ome.Plate:
    return ome.create_plate({}, **{"rows": "A", "columns": [1], **arguments})


def field(*place: Any, **arguments: Any) -> Any:
    store: dict[str, Any] = {}
    ome.create_plate(store, rows="A", columns=[1], acquisitions=[ome.Acquisition(1)])
    return ome.create_field(store, *(place or ("A", 1)), np.zeros((8, 8), "u2"), axes="yx", progress=False, **arguments)


@pytest.mark.parametrize(
    "value", [b"AB", [None, True], {1: 2}, {"A"}, np.array("A"), [1.0], [-1], [BIG], 7], ids=kind_of
)
@pytest.mark.parametrize("name", ["rows", "columns"])
def test_names_of_rows_and_columns(name: str, value: Any) -> None:
    with pytest.raises(gzarr.ArgumentError, match=f"{name} must be different names of letters and digits"):
        plate(**{name: value})


def test_names_that_are_taken() -> None:
    assert plate(rows=np.array(["A", "B"]), columns=np.arange(2)).rows == ("A", "B")
    assert plate(columns=range(1, 3)).columns == ("1", "2")
    assert field("A", np.int64(1), field=np.uint8(3)).group.path.endswith("A/1/3")


@pytest.mark.parametrize("value", [-1, 1.0, -0.0, np.float32(3), True, "1", BIG, -BIG, math.nan], ids=kind_of)
def test_acquisitions_that_no_plate_has(value: Any) -> None:
    with pytest.raises(gzarr.ArgumentError, match="acquisition must be an integer of at least 0"):
        field(acquisition=value)


@pytest.mark.parametrize("value", [0, np.int64(3), np.array(1)], ids=repr)
def test_acquisitions_are_stored_as_integers(value: Any) -> None:
    group = field(acquisition=value).group
    listed = gzarr.open_group(group.store, path="A/1").attrs["ome"]["well"]["images"]
    assert listed == [{"path": "0", "acquisition": int(value)}]
    assert type(listed[0]["acquisition"]) is int


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: field(field=math.nan), "field: names of fields have letters and digits only, not nan"),
        (lambda: field(field=True), "field: names of fields have letters and digits only, not True"),
        (lambda: field(field=1j), "field: names of fields have letters and digits only, not 1j"),
        (lambda: field(np.array(["A", "B"]), 1), "the plate has no row array"),
        (lambda: field("A", True), "the plate has no column True"),
        (lambda: ome.open(create().group, index="0"), "has 1 images, so none has index '0'"),  # type: ignore[arg-type]
        (lambda: ome.open(create().group, index=None), "has 1 images, so none has index None"),  # type: ignore[arg-type]
        (lambda: ome.open(create().group, index=0.0), "has 1 images, so none has index 0.0"),  # type: ignore[arg-type]
        (lambda: ome.open({}, mode=np.array(["r", "r+"])), "mode must be 'r' or 'r\\+'"),  # type: ignore[arg-type]
        (lambda: create(version=np.array(["0.4", "0.5"])), "version must be '0.4' or '0.5'"),
        (lambda: create(scale=np.array(0.5)), "scale must have a value for each axis"),
        (lambda: create(scale={1.0, 2.0}), "scale must have a value for each axis"),
        (lambda: create(scale=b"ab"), "scale must have a value for each axis"),
        (lambda: create(scale=(BIG, 1)), "scale must be 2 positive numbers"),
        (lambda: create(scale=(True, 1)), "scale must be 2 positive numbers"),
        (lambda: create(translation={1.0, 2.0}), "translation must have a value for each axis"),
        (lambda: create(units=np.array("um")), "units must have a value for each axis"),
        (lambda: create(channels=np.array("a")), "channels must be a list of names"),
        (lambda: create(channels={"a"}), "channels must be a list of names"),
        (lambda: create().update_metadata(scale={1.0, 2.0}), "scale must have a value for each of the axes"),
        (lambda: create().update_metadata(scale=np.array(0.5)), "scale must have a value for each of the axes"),
        (lambda: create().level(BIG), "has levels 0 to 0, not <an integer of 16610 bits>"),
    ],
)  # fmt: skip
def test_what_is_said(call: Callable[[], object], message: str) -> None:
    with pytest.raises(gzarr.ArgumentError, match=message):
        call()


def test_numbers_of_numpy() -> None:
    image = create(scale=np.array([2, 3], "u1"), translation=[np.float32(0.5), np.int16(4)])
    assert (image.scale, image.translation) == ((2.0, 3.0), (0.5, 4.0))
