"""Arguments of ``read_affine`` that are wrong, of which some would be taken for something else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gzarr

BIG = 10**5000
A = np.arange(16.0).reshape(4, 4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"shape": {1, 2}}, "shape must be 2 integers"),
        ({"shape": {1: 2, 3: 4}}, "shape must be 2 integers"),
        ({"shape": b"ab"}, "shape must be 2 integers"),
        ({"shape": [True, False]}, "shape must be 2 integers"),
        ({"shape": [BIG, 2]}, "shape must be 2 integers of at least 0, .*, not \\[<an integer of 16610 bits>, 2\\]"),
        ({"shape": 4}, "shape must be 2 integers"),
        ({"level": np.array(["auto", "auto"])}, "level=array.* is for OME images"),
        ({"level": BIG}, "level=<an integer of 16610 bits> is for OME images"),
        ({"system": BIG}, "system=<an integer of 16610 bits> is for OME images"),
        ({"device": "gpu7"}, "device must be .*gpu7"),
        ({"interpolation": BIG}, "interpolation must be one of .*, not <an integer of 16610 bits>"),
    ],
)  # fmt: skip
def test_what_is_said(arguments: dict[str, Any], message: str) -> None:
    array = gzarr.create_array({}, data=A, device="cpu")
    with pytest.raises(gzarr.ArgumentError, match=message):
        gzarr.read_affine(array, np.eye(2), **{"shape": (4, 4), **arguments})


def test_shapes_of_numpy() -> None:
    found = gzarr.read_affine(A, np.eye(2), shape=np.array([2, 3], "u1"))
    assert found.tolist() == A[:2, :3].tolist()
