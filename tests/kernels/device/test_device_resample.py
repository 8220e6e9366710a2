"""The kernels of boxes in any pose, as compiled for a GPU, against the host's, in memory whose ends are guarded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gzarr_kernels.device import cubic
from gzarr_kernels.device import resample as k
from support.guarded_memory import Guarded
from support.kernel_ir_launch import launch

from gzarr.engines.kernels import address
from gzarr.poses.device import job_of
from gzarr.poses.host import Host, Posed
from gzarr.poses.maps import AffineMap
from gzarr.windows.boundary import MODES

pytestmark = pytest.mark.slow


def _turned(rng: np.random.Generator, k: int) -> np.ndarray[Any, Any]:
    q, r = np.linalg.qr(rng.normal(size=(k, k)))
    matrix: np.ndarray[Any, Any] = q * np.sign(np.diag(r)) * np.exp(rng.normal(size=k) * 0.4)
    return matrix


def _guarded(nbytes: int) -> np.ndarray[Any, Any]:
    return Guarded(nbytes).array


@pytest.mark.parametrize("mode", ["constant", *MODES])
@pytest.mark.parametrize(
    ("order", "source", "final"),
    [
        (0, "u1", "u1"), (0, "i2", "f4"), (0, "f4", "u8"), (0, "c16", "c16"),
        (1, "u1", "u1"), (1, "i2", "f4"), (1, "f4", "u8"), (1, "f8", "f8"),
        (3, "f8", "f8"), (3, "f8", "u2"),
    ],
)  # fmt: skip
def test_boxes_whose_ends_are_guarded(order: int, source: str, final: str, mode: str) -> None:
    """Places are kept inside of a box, also of boxes that are too small for them."""
    rng = np.random.default_rng(order)
    for axes, size, shape in ((3, (7, 6, 8), (5, 3, 9)), (2, (9, 11), (4, 13)), (3, (1, 1, 1), (2, 2, 2))):
        count = 3
        low = [int(n > 6) for n in size]
        lengths = [max(n - 2, 1) for n in size]
        boxes = _guarded(count * int(np.prod(lengths)) * np.dtype(source).itemsize).view(source)
        boxes = boxes.reshape(count, *lengths)
        boxes[...] = rng.uniform(1, 100, boxes.shape)
        results = [
            _guarded(count * int(np.prod(shape)) * np.dtype(final).itemsize).view(final).reshape(count, *shape)
            for _ in range(2)
        ]
        maps = [AffineMap(_turned(rng, axes), rng.uniform(-3, 3, axes) + low) for _ in range(count)]
        host, device = (
            [Posed(b, low, size, m, r, 2 + i) for i, (b, m, r) in enumerate(zip(boxes, maps, result, strict=True))]
            for result in results
        )
        if order == 0 and source != final:
            # The host rounds elements that it has copied.
            copies = np.empty((count, *shape), source)
            host = [Posed(p.box, low, size, p.affine, copy, p.fill) for p, copy in zip(host, copies, strict=True)]
            Host().resample(host, order, mode)
            Host().store(results[0], copies)
        else:
            Host().resample(host, order, mode)
        columns, sources, targets, elements = job_of(device, order, mode, address)
        assert (sources, targets) == (address(boxes), address(results[1]))
        used = _guarded(columns.nbytes).view("i8")
        used[:] = columns
        memories = (x.reshape(-1).view("u1") for x in (boxes, results[1]))
        kernel = cubic.resample_cubic if order == 3 else k.resample
        launch(kernel, *memories, used, 0, blocks=min(k.blocks(elements), 2), threads=64)
        np.testing.assert_array_equal(results[1], results[0])
        np.testing.assert_array_equal(used, columns)


def _both(box: np.ndarray[Any, Any], affine: AffineMap, shape: tuple[int, ...], order: int, mode: str) -> Any:
    """Return the result of the host, which is that of the device."""
    results = [np.empty(shape) for _ in range(2)]
    host, device = ([Posed(box, (0,) * box.ndim, box.shape, affine, result, np.nan)] for result in results)
    Host().resample(host, order, mode)
    columns, _, _, elements = job_of(device, order, mode, address)
    kernel = cubic.resample_cubic if order == 3 else k.resample
    memories = (x.reshape(-1).view("u1") for x in (box, results[1]))
    launch(kernel, *memories, columns, 0, blocks=min(k.blocks(elements), 2), threads=64)
    np.testing.assert_array_equal(results[1], results[0])
    return results[0]


@pytest.mark.parametrize("source", ["f4", "f8"])
def test_elements_without_weight_and_without_differences(source: str) -> None:
    # Inside, at the edges, and beyond the ends.
    shape, largest = (6, 12), float(np.finfo(source).max)
    affine = AffineMap(np.diag([1, 0.5]), np.zeros(2))
    box = np.arange(30, dtype=source).reshape(5, 6)
    box[3, 3], box[2, 2], box[1] = np.nan, np.inf, largest
    box[1, 1::2] = -largest
    found = _both(box, affine, shape, 1, "constant")
    wanted = np.full((6, 13), np.nan)
    wanted[:5, :-2:2] = box
    with np.errstate(invalid="ignore"):
        wanted[:5, 1:-2:2] = box[:, :-1].astype("f8") / 2 + box[:, 1:].astype("f8") / 2
    np.testing.assert_array_equal(found, wanted[:, :12])


def test_what_is_hardly_below_the_first_element() -> None:
    """Its distance from the one before is 1 by rounding."""
    box = np.array([[5.0, 1], [7, 2]])
    found = _both(box, AffineMap(np.eye(2), np.array([-1e-20, 0.5])), (2, 1), 1, "constant")
    np.testing.assert_array_equal(found, [[3], [4.5]])


@pytest.mark.parametrize("order", [1, 3])
def test_places_far_beyond_the_ends(order: int) -> None:
    box = np.arange(8.0).reshape(4, 2)
    found = _both(box, AffineMap(np.diag([1e19, 1]), np.array([3.0, 0])), (2, 1), order, "edge")
    back = _both(box, AffineMap(np.diag([-1e300, 1]), np.array([3.0, 0])), (2, 1), order, "edge")
    near = _both(box, AffineMap(np.diag([9.0, 1]), np.array([3.0, 0])), (2, 1), order, "edge")
    near_back = _both(box, AffineMap(np.diag([-9.0, 1]), np.array([3.0, 0])), (2, 1), order, "edge")
    np.testing.assert_array_equal([found, back], [near, near_back])


@pytest.mark.parametrize("shape", [(2,), (300, 7), (5, 9), (3, 70, 13), (2, 1, 65)])
def test_filter_of_splines(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(2).uniform(-1, 1, shape)
    wanted = x.copy()
    Host().filter(wanted, 1)
    found = _guarded(x.nbytes)
    found.view("f8")[:] = x.ravel()
    n = shape[-1]
    launch(cubic.filter_lines, found, n, 1, x.size // n, blocks=2, threads=64)
    np.testing.assert_array_equal(found.view("f8").reshape(shape), wanted)
    if len(shape) > 1 and shape[0] > 1:
        swapped = np.ascontiguousarray(np.moveaxis(x, 0, -1))
        Host().filter(swapped, 1)
        found.view("f8")[:] = x.ravel()
        launch(cubic.filter_lines, found, shape[0], x.size // shape[0], x.size // shape[0], blocks=2, threads=64)
        np.testing.assert_array_equal(found.view("f8").reshape(shape), np.moveaxis(swapped, -1, 0))
