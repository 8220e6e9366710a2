"""Functions that return the same memory in each call, as captured graphs of CUDA do."""

from __future__ import annotations

import collections
from typing import Any, NamedTuple

import numpy as np
import pytest

import gzarr

Array = np.ndarray[Any, Any]
DATA = np.random.default_rng(5).normal(size=(20, 12))


class Pair(NamedTuple):
    low: Any
    high: Any


def stored() -> gzarr.Array:
    return gzarr.create_array({}, data=DATA, chunks=4, device="cpu")


def filling(function: Any, wrap: Any = lambda x: x) -> Any:
    """Return a function that gives its results in the same memory as before, if they have the same shape."""
    buffers: dict[Any, Array] = {}

    def filled(x: Array) -> Any:
        result = function(x)
        buffer = buffers.setdefault(result.shape, np.empty_like(result))
        buffer[...] = result
        return wrap(buffer)

    return filled


def test_blended_results() -> None:
    double: Any = lambda x: x * np.linspace(1, 2, x.size).reshape(x.shape)  # noqa: E731
    options: dict[str, Any] = {"block": 4, "halo": 2, "blend": "hann", "overlap": False}
    expected = gzarr.map_blocks(double, stored(), **options)
    np.testing.assert_array_equal(gzarr.map_blocks(filling(double), stored(), **options), expected)


@pytest.mark.parametrize(
    "wrap",
    [lambda x: x, lambda x: {"sums": [x]}, lambda x: (x, None), lambda x: Pair(x, x), np.ma.asarray],
    ids=["array", "dict", "tuple", "named", "masked"],
)
def test_values_that_wait_to_be_reduced(wrap: Any) -> None:
    sums: Any = lambda x: x.sum(axis=0)[None]  # noqa: E731
    every: list[Any] = gzarr.map_blocks(
        filling(sums, lambda x: [wrap(x)]), stored(), block=4, reduce=lambda a, b: a + b, overlap=False
    )
    plain = gzarr.map_blocks(lambda x: [wrap(sums(x))], stored(), block=4, reduce=lambda a, b: a + b)
    assert len(every) == 15
    assert repr(every) == repr(plain)
    assert {type(one) for one in every} == {type(one) for one in plain}


def test_tensors_that_wait_to_be_reduced() -> None:
    torch = pytest.importorskip("torch")
    buffer = torch.empty(())

    def total(x: Array) -> Any:
        return [buffer.copy_(torch.as_tensor(x.sum()))]

    every = gzarr.map_blocks(total, stored(), block=4, reduce=lambda a, b: a + b, overlap=False)
    plain = gzarr.map_blocks(lambda x: [x.sum()], stored(), block=4, reduce=lambda a, b: a + b)
    np.testing.assert_allclose(every, plain, rtol=1e-6)


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict])
def test_mappings_of_memory_that_is_used_again(kind: Any) -> None:
    array, memory = gzarr.array(np.repeat([1.0, 5, 9, 13], 2), chunks=2), np.zeros(1)

    def function(block: Any) -> Any:
        memory[0] = block[0]
        return kind(first=memory)

    found = gzarr.map_blocks(
        function, array, block=2, reduce=lambda a, b: kind(first=np.concatenate([a["first"], b["first"]]))
    )
    assert found["first"].tolist() == [1, 5, 9, 13]
