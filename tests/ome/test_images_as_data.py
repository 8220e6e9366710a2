"""Images, and levels of images, in place of arrays: level 0 counts, and the level itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr import ome

DATA = np.arange(3 * 16 * 24, dtype="u2").reshape(3, 16, 24)


def image() -> ome.Image:
    return ome.create({}, DATA, axes="tyx", chunks=(1, 8, 8), levels=2)


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_new_images(version: Any) -> None:
    given = image()
    made = ome.create({}, given, axes="tyx", chunks=(1, 8, 8), levels=2, version=version)
    np.testing.assert_array_equal(made.read(0), DATA)
    np.testing.assert_array_equal(made.read(1), given.read(1))
    small = ome.create({}, given.levels[1], axes="tyx", levels=1, version=version)
    np.testing.assert_array_equal(small.read(), given.read(1))


def test_labels_and_fields() -> None:
    given = image()
    store: dict[str, Any] = {}
    ome.create(store, DATA, axes="tyx", levels=1)
    np.testing.assert_array_equal(ome.create_labels(store, "same", given).read(), DATA)
    plate: dict[str, Any] = {}
    ome.create_plate(plate, rows="A", columns="1")
    np.testing.assert_array_equal(ome.create_field(plate, "A", 1, given, axes="tyx").read(), DATA)


def test_frames() -> None:
    store: dict[str, Any] = {}
    movie = ome.create(store, DATA, axes="tyx", chunks=(1, 8, 8), levels=2)
    ome.create_labels(store, "cells", DATA, chunks=(1, 8, 8))
    movie = ome.open(store, mode="r+")
    assert movie.append(image(), labels={"cells": image().levels[0]}) == (6, 16, 24)
    again = ome.open(store)
    for level in (0, 1):
        half = image().read(level)
        np.testing.assert_array_equal(again.read(level), np.concatenate([half, half]))
    np.testing.assert_array_equal(again.labels["cells"].read(), np.concatenate([DATA, DATA]))


def test_an_image_is_not_written_over_itself() -> None:
    given = image()
    with pytest.raises(gzarr.ArgumentError, match=r"ome\.create"):
        ome.create(given.group.store, given, axes="tyx", overwrite=True)
    np.testing.assert_array_equal(given.read(), DATA)


def test_what_holds_images_is_no_image() -> None:
    plate: dict[str, Any] = {}
    ome.create_plate(plate, rows="A", columns="1")
    field = ome.create_field(plate, "A", 1, image(), axes="tyx", chunks=(1, 8, 8))
    ome.create_labels(plate, "cells", DATA, path="A/1/0", chunks=(1, 8, 8))
    field = ome.open(plate, path="A/1/0", mode="r+")
    before = dict(plate)
    for given, example in (
        (ome.open(plate)["A/1"], r"not a Well: .* such as well\[0\]"),
        (ome.open(plate), r"not a Plate: .* such as plate\['A/1'\]\[0\]"),
        (field.labels, r"not a Labels: .* such as labels\['nuclei'\]"),
    ):
        for use in (
            lambda given=given: ome.create({}, given, axes="tyx"),
            lambda given=given: ome.create_labels(plate, "cells", given, path="A/1/0", overwrite=True),
            lambda given=given: ome.create_field(plate, "A", 1, given, axes="tyx"),
            lambda given=given: field.append(given),
            lambda given=given: field.append(DATA, labels={"cells": given}),
        ):
            with pytest.raises(gzarr.ArgumentError, match=example):
                use()
    assert plate == before
