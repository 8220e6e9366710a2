"""What becomes of the arrays of a batch that a transform returns in tuples and lists."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
import pytest

import gzarr
from gzarr.loader import Loader

DATA = np.arange(12, dtype="f4").reshape(6, 2)


class Pair(NamedTuple):
    """Two arrays."""

    x: Any
    y: Any


class Items(list[Any]):
    """A list of a kind of its own."""


@pytest.mark.parametrize("like", ["torch", "jax"])
def test_in_a_dict(like: Any) -> None:
    library = pytest.importorskip(like)
    kind = library.Tensor if like == "torch" else library.Array
    own, plain, items = Items([DATA]), ("a", 1, None), [1, 2]

    def transform(batch: Any) -> Any:
        x = batch["data"]
        tree = OrderedDict(pair=Pair(x, (x, "text")), items=[x, {"deep": (x,)}])
        return {"tree": tree, "own": own, "plain": plain, "list": items}

    for batch in Loader(gzarr.array(DATA, device="cpu"), batch_size=3, shuffle=False, like=like, transform=transform):
        tree = batch["tree"]
        assert type(tree) is OrderedDict
        assert type(tree["pair"]) is Pair
        assert type(tree["pair"].y) is tuple
        assert tree["pair"].y[1] == "text"
        assert type(tree["items"]) is list
        found = [tree["pair"].x, tree["pair"].y[0], tree["items"][0], tree["items"][1]["deep"][0]]
        assert all(isinstance(one, kind) for one in found)
        assert len({np.asarray(one).tobytes() for one in found}) == 1
        # What has no arrays, or is of another type, is the same object.
        assert batch["own"] is own
        assert batch["plain"] is plain
        assert batch["list"] is items


def test_an_array_in_a_tuple_is_named() -> None:
    pytest.importorskip("torch")
    loader = Loader(
        gzarr.array(DATA, device="cpu"), batch_size=3, like="torch", transform=lambda batch: {"a": (1, np.array(["b"]))}
    )
    with pytest.raises(gzarr.ArgumentError, match="it has no strings") as raised:
        next(iter(loader))
    assert raised.value.__notes__ == ["(in batch['a'][1])"]


@pytest.mark.parametrize("like", ["torch", "jax"])
def test_alone_and_in_tuples(like: Any) -> None:
    library = pytest.importorskip(like)
    kind = library.Tensor if like == "torch" else library.Array
    array = gzarr.array(DATA, device="cpu")

    def first(transform: Any) -> Any:
        return next(iter(Loader(array, batch_size=3, shuffle=False, like=like, transform=transform)))

    assert isinstance(first(lambda batch: batch["data"]), kind)
    for made in (lambda x: (x, x), lambda x: [x, x], lambda x: Pair(x, x)):
        found = first(lambda batch, made=made: made(batch["data"]))
        assert type(found) is type(made(0))
        for one in found:
            assert isinstance(one, kind)
            np.testing.assert_array_equal(np.asarray(one), DATA[:3])
