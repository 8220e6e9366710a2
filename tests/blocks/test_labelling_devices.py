"""Labels of what functions find in blocks on each device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import gzarr

if TYPE_CHECKING:
    from support.devices import TestedDevice

#: Two objects, each in several blocks, and a third in one.
MASK = np.zeros((20, 24), bool)
MASK[2:9, 3:20] = True
MASK[12:18, 1:11] = True
MASK[13:15, 17:19] = True
LABELS = np.zeros(MASK.shape, np.uint32)
LABELS[2:9, 3:20], LABELS[12:18, 1:11], LABELS[13:15, 17:19] = 1, 2, 3


def stored() -> gzarr.Array:
    return gzarr.create_array({}, data=MASK.astype("u2") * 7, chunks=8, device="cpu")


def test_masks(device: TestedDevice) -> None:
    given = set()

    def bright(x: Any) -> Any:
        given.add(type(x))
        return device.array(device.to_numpy(x) > 3)

    found, count = gzarr.blocks.label(stored(), function=bright, block=8, device=device.name)
    assert count == 3
    np.testing.assert_array_equal(found, LABELS)
    assert given == {type(device.empty((1,), "u2"))}


def test_instances(device: TestedDevice) -> None:
    """Each block numbers what it has anew, in the order of its last elements."""

    def instances(x: Any) -> Any:
        values = device.to_numpy(x) > 3
        rows = values.any(axis=1)
        numbers = np.cumsum(np.diff(np.concatenate([[False], rows]).astype(int)) == 1)
        return device.array(np.where(values, 9 - numbers[:, None], 0).astype("i4"))

    data = MASK.copy()
    # Objects beside each other would have one number in these.
    data[13:15, 17:19] = False
    source = gzarr.create_array({}, data=data.astype("u2") * 7, chunks=8, device="cpu")
    found, count = gzarr.blocks.label(source, function=instances, block=8, halo=3, boundary=0, device=device.name)
    assert count == 2
    np.testing.assert_array_equal(found, np.where(data, LABELS, 0))


def test_an_output_that_was_given_is_returned(device: TestedDevice) -> None:
    """Labels are written on the CPU, to whatever device the output is opened on."""
    out = gzarr.create_array({}, shape=MASK.shape, chunks=8, dtype="u4", device=device.name)
    found, count = gzarr.blocks.label(stored(), function=lambda x: x > 3, out=out, block=8, device=device.name)
    assert found is out
    assert count == 3
    np.testing.assert_array_equal(device.to_numpy(out[...]), LABELS)
