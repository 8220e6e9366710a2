"""A call that has failed keeps nothing, once its error is gone: no cycle has to wait for the garbage collector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.garbage import kept_by_cycles

import gzarr

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.devices import TestedDevice

DATA = np.arange(40 * 60, dtype="f4").reshape(40, 60)
LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}
KINDS: dict[str, dict[str, Any]] = {
    "blosc": {},
    "gzip": {"codecs": [LITTLE, {"name": "gzip", "configuration": {"level": 1}}]},
    "threads": {"codecs": [LITTLE, {"name": "numcodecs.lzma", "configuration": {}}]},
    "shards": {"shards": (20, 30)},
}


def failing(value: Any) -> Any:
    raise ZeroDivisionError


def empty() -> gzarr.Array:
    return gzarr.create_array({}, shape=DATA.shape, dtype="f4", chunks=(10, 15))


CALLS: dict[str, Callable[[gzarr.Array], object]] = {
    "read": lambda array: array[...],
    "small": lambda array: array[0:2, 0:2],
    "out": lambda array: array.read(out=np.empty(DATA.shape, "f4")) if array.device == "cpu" else array.read(),
    "converted": lambda array: array.read(dtype="f8"),
    "many": lambda array: array.read_many([(slice(0, 12), slice(0, 20))] * 3),
    "points": lambda array: array.vindex[np.arange(20), np.arange(20)],
    "write": lambda array: array.write((slice(0, 3), slice(0, 3)), 1.0),
    "append": lambda array: array.append(np.zeros((5, 60), "f4")),
    "copy": lambda array: gzarr.copy(array, {}, chunks=(7, 7)),
    "map_blocks": lambda array: gzarr.map_blocks(np.negative, array, out=empty()),
}


def outcome(call: Callable[[], object]) -> type[Exception] | None:
    try:
        call()
    except Exception as error:
        return type(error)
    return None


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("name", list(CALLS))
def test_of_a_damaged_chunk(tmp_path: Path, device: TestedDevice, kind: str, name: str) -> None:
    gzarr.create_array(tmp_path, data=DATA, chunks=(10, 15), **KINDS[kind])
    array = gzarr.open_array(tmp_path, mode="r+", device=device.name)
    path = tmp_path / "c" / "0" / "0"
    path.write_bytes(b"bad" + path.read_bytes()[3:-8])
    # What is compiled and cached once.
    outcome(lambda: CALLS[name](array))
    path.write_bytes(b"bad" + path.read_bytes()[3:-8])
    with kept_by_cycles() as kept:
        failed = outcome(lambda: CALLS[name](array))
    assert kept == []
    if name in ("read", "small", "many", "converted", "map_blocks"):
        assert failed is not None


class Failing(gzarr.MemoryStore):
    """A store that fails for chunks when it is told to."""

    fails = False

    def get(self, key: str) -> Any:
        self._fail(key)
        return super().get(key)

    def set(self, key: str, value: Any) -> None:
        self._fail(key)
        super().set(key, value)

    def _fail(self, key: str) -> None:
        if self.fails and key.startswith("c/"):
            raise gzarr.StoreError("no answer")


@pytest.mark.parametrize("name", [*CALLS, "write all", "function"])
def test_of_a_store(device: TestedDevice, name: str) -> None:
    store = Failing()
    gzarr.create_array(store, data=DATA, chunks=(10, 15))
    array = gzarr.open_array(store, mode="r+", device=device.name)
    calls: dict[str, Callable[[gzarr.Array], object]] = {
        **CALLS,
        "write all": lambda array: array.write(..., device.array(DATA)),
        "function": lambda array: gzarr.map_blocks(failing, array, out=empty()),
    }
    store.fails = name != "function"
    outcome(lambda: calls[name](array))
    with kept_by_cycles() as kept:
        failed = outcome(lambda: calls[name](array))
    assert kept == []
    assert failed is not None


def test_a_cycle_is_found() -> None:
    with kept_by_cycles() as kept:
        cycle: list[Any] = [np.zeros(3), gzarr.MemoryStore({})]
        cycle.append(cycle)
        del cycle
    assert sorted(kept) == ["gzarr.stores.memory.MemoryStore", "numpy.ndarray"]
