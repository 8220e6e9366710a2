"""What a store can do is found by its methods, as with any protocol, and asked of its class once."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any, Protocol, runtime_checkable

import pytest

import gzarr
from gzarr.stores import base
from gzarr.stores.base import LocalFiles, RemoteValues, SizedStore, Store, VersionedStore
from gzarr.stores.capability import Capability

CAPABILITIES = [value for value in vars(base).values() if type(value) is Capability]


class Reads:
    """A store of a user."""

    def __init__(self, values: dict[str, bytes]) -> None:
        self.values = values

    def get(self, key: str) -> bytes | None:
        return self.values.get(key)

    def get_partial_values(self, key_ranges: Any) -> list[Any]:
        return [self.values.get(key) for key, _ in key_ranges]


def as_protocol(capability: Any) -> Any:
    """Return a plain protocol of the same methods."""
    members = {
        name: value
        for kind in reversed(capability.__mro__)
        if type(kind) is Capability
        for name, value in vars(kind).items()
        if not name.startswith("_")
    }
    return runtime_checkable(type(Protocol)(capability.__name__, (Protocol,), members))  # type: ignore[call-overload]


def test_answers_are_those_of_protocols(tmp_path: Any) -> None:
    stores: list[Any] = [
        gzarr.LocalStore(tmp_path),
        gzarr.MemoryStore({}),
        gzarr.ZipStore(tmp_path / "a.zip", mode="w"),
        gzarr.open_store("http://127.0.0.1:9/a"),
        Reads({}),
        {},
        None,
        "path",
    ]
    assert len(CAPABILITIES) > 15
    found = 0
    for capability in CAPABILITIES:
        protocol = as_protocol(capability)
        for store in stores:
            for _ in range(2):
                assert isinstance(store, capability) == isinstance(store, protocol), (capability, store)
            found += isinstance(store, capability)
    assert 20 < found < len(CAPABILITIES) * len(stores) - 20


def test_methods_of_objects_and_made_up_ones() -> None:
    plain, sized = Reads({}), Reads({})
    sized.get_small_values = sized.list_sizes = lambda *_: None  # type: ignore[attr-defined]
    for name in vars(SizedStore):
        if not name.startswith("_"):
            setattr(sized, name, lambda *_: None)
    assert not isinstance(plain, SizedStore)
    assert isinstance(sized, SizedStore)
    assert not isinstance(plain, SizedStore)

    class MadeUp(Reads):
        def __getattr__(self, name: str) -> Any:
            if name == "version":
                return lambda key: 1
            raise AttributeError(name)

    assert isinstance(MadeUp({}), VersionedStore) == isinstance(MadeUp({}), as_protocol(VersionedStore))
    assert not isinstance(MadeUp({}), RemoteValues)


def test_a_method_that_is_none_is_none() -> None:
    class Without(gzarr.LocalStore):
        file_root = None  # type: ignore[assignment]

    assert issubclass(Without, gzarr.LocalStore)
    assert not isinstance(Without("."), LocalFiles)
    assert isinstance(gzarr.LocalStore("."), LocalFiles)


def test_classes_are_forgotten_with_their_last_reference() -> None:
    code = (
        "import gc, weakref\n"
        "from gzarr.stores.base import Store\n"
        "class A: pass\n"
        "assert not isinstance(A(), Store)\n"
        "found = weakref.ref(A)\n"
        "del A\n"
        "gc.collect()\n"
        "assert found() is None\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})


@pytest.mark.parametrize("name", ["get", "list", "erase"])
def test_stores_need_all_methods(name: str) -> None:
    class Without(gzarr.MemoryStore):
        pass

    setattr(Without, name, None)
    assert not isinstance(Without({}), Store)
