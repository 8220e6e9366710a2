"""Arguments of functions of blocks: wrong ones are errors that name them, numbers of NumPy are numbers."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.blocks import join, label, measure

if TYPE_CHECKING:
    from collections.abc import Callable

X = np.array([0, 0, 1, 1, 0], "i4")
BIG = 10**5000


def map_blocks(**arguments: Any) -> Any:
    return gzarr.map_blocks(lambda x: x, np.arange(12.0), **arguments)


BACKGROUNDS: list[Any] = [
    None, "1", 1.7, math.nan, math.inf, 1j, [0], np.array([0, 1]), np.datetime64("NaT"), np.timedelta64(1), int
]  # fmt: skip
OUTSIDE: list[Any] = [2**64, -(2**31) - 1, BIG, 1e300]


@pytest.mark.parametrize("function", [label, join, measure])
@pytest.mark.parametrize("value", BACKGROUNDS, ids=lambda v: type(v).__name__)
def test_backgrounds_that_are_no_integers(function: Callable[..., Any], value: Any) -> None:
    with pytest.raises(gzarr.ArgumentError, match="background must be an integer, not"):
        function(X, background=value)


@pytest.mark.parametrize("value", OUTSIDE, ids=["2**64", "-2**31-1", "10**5000", "1e300"])
def test_backgrounds_that_no_label_can_be(value: Any) -> None:
    for call in (lambda: join(X, background=value), lambda: measure(X, background=value)):
        with pytest.raises(gzarr.ArgumentError, match="elements of int32 cannot be background="):
            call()
    with pytest.raises(gzarr.ArgumentError, match="elements of int32 cannot be background="):
        label(X, background=value, by_value=True)
    # All elements of a mask are another value.
    assert label(X, background=value)[1] == 1


@pytest.mark.parametrize(
    "value", [1, 1.0, np.uint8(1), np.float32(1), np.array(1), True, np.True_, Fraction(1)], ids=repr
)
def test_backgrounds_that_are_one(value: Any) -> None:
    assert label(X, background=value)[1] == join(X, background=value)[1] + 1 == 2
    assert measure(X, background=value)["label"].tolist() == [0]


def test_backgrounds_of_floats() -> None:
    mask = np.array([0.5, 1, 0.5, np.nan, np.inf], "f4")
    assert label(mask, background=0.5)[0].tolist() == [0, 1, 0, 2, 2]
    assert label(mask, background=math.inf)[0].tolist() == [1, 1, 1, 1, 0]
    for value, text in ((math.nan, "nan"), (BIG, "<an integer of 16610 bits>"), (1j, "1j"), ("1", "'1'")):
        with pytest.raises(gzarr.ArgumentError, match=f"background must be a number .*other than NaN, not {text}"):
            label(mask, background=value)


@pytest.mark.parametrize("kind", ["i1", "u1", "i2", "u2", "u8"])
def test_integers_of_numpy(kind: str) -> None:
    x, one = np.arange(400, dtype="i4"), np.dtype(kind).type
    assert gzarr.map_blocks(lambda b: b.repeat(2), x, block=100, scale=one(2)).tolist() == x.repeat(2).tolist()
    assert join(x, block=100, overlap=one(10))[1] == 320
    for spacing in (one(2), np.array([2], kind), [one(2)], np.float32(2), Fraction(2), Decimal(2)):
        assert measure((x > 9).astype("i4"), spacing=spacing)["area"].tolist() == [780.0]
    assert (
        gzarr.map_blocks(lambda b: b[:: int(1 / 0.5)], x, block=100, scale=np.float32(0.5)).tolist() == x[::2].tolist()
    )


TENSOR_LIKE: Any = type("Tensor", (), {"dtype": object(), "shape": (5,), "__repr__": lambda self: "Tensor"})()
CHOICE: Any = np.array(["numpy", "iou"])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: measure(X, like=CHOICE), "like must be 'numpy' or 'pandas', not array"),
        (lambda: measure(X, like=[]), "like must be 'numpy' or 'pandas', not \\[\\]"),
        (lambda: join(X, measure=CHOICE), "measure must be 'iou' or 'smaller', not array"),
        (lambda: map_blocks(blend=CHOICE), "blend must be 'hann' or None, not array"),
        (lambda: join(X, threshold=math.nan), "threshold must be a number from 0 to below 1, not nan"),
        (lambda: map_blocks(block={2, 3}), "block must be lengths"),
        (lambda: map_blocks(block=b"a"), "block must be lengths"),
        (lambda: map_blocks(block=[True]), "block must be lengths"),
        (lambda: map_blocks(block=int), "block must be lengths"),
        (lambda: map_blocks(block={"x": BIG}), "block={'x': <an integer of 16610 bits>}: there is no axis 'x'"),
        (lambda: map_blocks(halo={2}), "halo must be whole numbers"),
        (lambda: map_blocks(halo=[{1: 2, 3: 4}]), "halo must be whole numbers"),
        (lambda: map_blocks(halo=-BIG), "halo must be whole numbers .*, not <an integer of 16610 bits>"),
        (lambda: map_blocks(halo=int), "halo must be whole numbers"),
        (lambda: map_blocks(boundary=complex), "boundary must be one of"),
        (lambda: map_blocks(scale={2}), "scale must be whole numbers or their inverses"),
        (lambda: map_blocks(scale=math.inf), "scale must be whole numbers or their inverses: .*, not inf"),
        (lambda: map_blocks(scale=int), "scale must be whole numbers or their inverses"),
        (lambda: map_blocks(scale=BIG), "scale must be whole numbers or their inverses"),
        (lambda: map_blocks(scale=1e300), "scale must be whole numbers or their inverses"),
        (lambda: map_blocks(drop_axis={0}), "drop_axis must be different axes of 1, not \\{0\\}"),
        (lambda: map_blocks(drop_axis=int), "drop_axis must be different axes of 1, not <class 'int'>"),
        (lambda: map_blocks(dtype="a\udc80"), "dtype='a.*' is not a data type of NumPy"),
        (lambda: map_blocks(dtype=TENSOR_LIKE), "dtype=Tensor is not a data type of NumPy"),
        (lambda: join(X, overlap={1}), "overlap must be whole numbers"),
        (lambda: join(X, overlap=int), "overlap must be whole numbers"),
        (lambda: join(X, overlap=BIG), "labels of shape|chunks of \\(5,\\) are not blocks with an overlap of"),
        (lambda: join(X, dtype=TENSOR_LIKE), "dtype must be 'uint32' or 'uint64', for labels, not Tensor"),
        (lambda: label(X, dtype="a\udc80"), "dtype must be 'uint32' or 'uint64'"),
        (lambda: label(X, out=TENSOR_LIKE), "out= has elements of .*; labels are integers"),
        (lambda: label(X, connectivity=np.array([1])), "connectivity must be a number of axes from 1 to 1"),
        (lambda: label(X, connectivity="1"), "connectivity must be a number of axes from 1 to 1, not '1'"),
        (lambda: label(X, halo="x"), "halo must be whole numbers"),
        (lambda: label(X, boundary=[...]), "boundary must be one of"),
        (lambda: measure(X, spacing=1j), "spacing must be lengths above 0: .*, not 1j"),
        (lambda: measure(X, spacing=True), "spacing must be lengths above 0"),
        (lambda: measure(X, spacing={2.0}), "spacing must be lengths above 0"),
        (lambda: measure(X, spacing=BIG), "spacing must be lengths above 0"),
        (lambda: measure(X, spacing=np.timedelta64(1)), "spacing must be lengths above 0"),
    ],
)  # fmt: skip
def test_what_is_said(call: Callable[[], object], message: str) -> None:
    with pytest.raises(gzarr.ArgumentError, match=message):
        call()


@pytest.mark.parametrize("power", [6, 12, 20, 5000])
def test_halos_that_do_not_fit_in_memory(power: int) -> None:
    with pytest.raises(gzarr.ArgumentError, match=r"halo=.* is far longer than /, of shape \(12,\), and a block"):
        map_blocks(block=4, halo=10**power, budget_bytes=1 << 20)
    # The array's ends are those of the halo.
    found = gzarr.map_blocks(
        lambda x: np.array([x.sum()]), np.arange(12.0), block=1, halo=10**power, boundary=None, scale=0.25
    )
    assert found.tolist() == [66.0] * 3
