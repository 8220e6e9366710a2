"""Large values of remote stores: fetched in parts side by side, of one generation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.errors import ChunkReadError, StoreError
from gzarr.stores.base import Answer, ByteRange
from tests.support.counting_store import CountingStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gzarr.stores.base import Request

PART = 1000
DATA = np.random.default_rng(5).integers(0, 255, (4, 9000), dtype="u1")


class ChangingStore(CountingStore):
    """A store in which something happens at the first part of a value."""

    change: Callable[[], Answer | None] | None = None

    def _answer(self, request: Request) -> Answer:
        if self.change is not None and request.byte_range.length:
            change, self.change = self.change, None
            if (answer := change()) is not None:
                return answer
        return super()._answer(request)


def made(**options: Any) -> tuple[ChangingStore, gzarr.Array]:
    store = ChangingStore(None, calls=16, most_bytes=PART, gap_bytes=0)
    gzarr.create_array(store, device="cpu", **{"data": DATA, "chunks": (1, 9000), "compressors": None, **options})
    array = gzarr.open_array(store, device="cpu")
    store.asked.clear()
    return store, array


def asked(store: CountingStore) -> Sequence[tuple[int, int | None]]:
    return sorted((request.byte_range.offset, request.byte_range.length) for request in store.asked)


def test_a_large_value_is_fetched_in_parts() -> None:
    store, array = made()
    np.testing.assert_array_equal(array[1], DATA[1])
    # Its size first.
    assert asked(store) == [(0, 0), *((PART * i, PART) for i in range(9))]
    assert len({request.version for request in store.asked[1:]}) == 1


def test_many_values_are_not_divided() -> None:
    store, array = made(chunks=(1, 2250))
    np.testing.assert_array_equal(array[...], DATA)
    assert [request.byte_range for request in store.asked] == [ByteRange()] * 16


def test_values_of_several_sizes() -> None:
    data = DATA.copy()
    data[2] = 7
    store, array = made(data=data, compressors="zstd")
    np.testing.assert_array_equal(array[...], data)
    # What compresses well is one request after the one for its size.
    assert sum(request.key == "c/2/0" for request in store.asked) == 2
    assert len(store.asked) > 30


def test_absent_values() -> None:
    store, array = made()
    store.erase("c/3/0")
    np.testing.assert_array_equal(array[...], np.concatenate([DATA[:3], np.zeros_like(DATA[:1])]))


@pytest.mark.parametrize("budget_bytes", [None, 1, 10_000])
def test_a_budget_smaller_than_a_value(budget_bytes: int | None) -> None:
    _, array = made()
    np.testing.assert_array_equal(array.read(..., budget_bytes=budget_bytes), DATA)


def test_a_value_that_is_replaced_meanwhile() -> None:
    store, array = made()
    new = DATA[1][::-1].copy()
    store.change = lambda: store.set("c/1/0", new.tobytes())
    np.testing.assert_array_equal(array[1], new)


def test_a_part_that_fails() -> None:
    store, array = made()
    store.change = lambda: Answer(None, error=StoreError("status 403"))
    with pytest.raises(ChunkReadError, match="status 403") as caught:
        array[...]
    assert caught.value.key.startswith("c/")
    np.testing.assert_array_equal(array[...], DATA)


def test_a_large_chunk_of_a_shard() -> None:
    store, array = made(shards=(4, 9000))
    np.testing.assert_array_equal(array[2], DATA[2])
    index, *parts = asked(store)
    assert index[0] < 0
    assert [length for _, length in parts] == [PART] * 9
