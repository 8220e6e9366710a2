"""Tokens of arrays: the same for every opening, another one after a write."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
from dask.base import tokenize
from support.dask_arrays import DATA, made

import gzarr

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_tokens(tmp_path: Path) -> None:
    for place in (tmp_path / "a", gzarr.MemoryStore()):
        array = made(store=place)
        token = tokenize(array)
        assert tokenize(gzarr.open_array(place, device="cpu")) == token
        assert tokenize(pickle.loads(pickle.dumps(array))) == token
        assert tokenize(gzarr.open_array(place, device="cpu", missing="error")) != token
        name = array.to_dask().name
        assert gzarr.open_array(place, device="cpu").to_dask().name == name
        assert array.to_dask({}).name != name
        gzarr.open_array(place, mode="r+", device="cpu")[3, 4] = 1 << 20
        assert tokenize(array) != token
        assert array.to_dask().name != name
        assert array.to_dask(name=False).name != array.to_dask(name=False).name
        assert array.to_dask(name="mine").name == "mine"
    code = "import sys, dask, gzarr; print(dask.base.tokenize(gzarr.open_array(sys.argv[1], device='cpu')))"
    told = subprocess.run([sys.executable, "-c", code, tmp_path / "a"], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == tokenize(gzarr.open_array(tmp_path / "a", device="cpu"))


def test_tokens_of_different_arrays_differ(tmp_path: Path) -> None:
    arrays = [
        made(store=tmp_path / "a"),
        made(store=tmp_path / "b"),
        made("v2", store=tmp_path / "c"),
        made(store=tmp_path / "d", path="e"),
        made(),
        made(data=DATA + 1),
    ]
    assert len({tokenize(array) for array in arrays}) == len(arrays)


def test_token_through_a_cache(tmp_path: Path) -> None:
    array = made(store=tmp_path / "a")
    cached = gzarr.CachedStore(gzarr.LocalStore(tmp_path / "a"), tmp_path / "cache", 1 << 20)
    assert tokenize(gzarr.open_array(cached, device="cpu")) == tokenize(array)
    listed = dict(cached.list_versions("c/1/"))
    assert sorted(listed) == sorted(array.store.list_prefix("c/1/"))
    gzarr.open_array(cached, mode="r+", device="cpu")[10, 0] += 1
    changed = dict(array.store.list_versions("c/1/"))
    assert {key for key in listed if changed[key] != listed[key]} == {"c/1/0"}


def test_options_can_be_asked_for() -> None:
    array = gzarr.create_array({}, 5, "u1", missing="error", verify="cpu", write_empty_chunks=True, device="cpu")
    assert (array.missing, array.verify, array.write_empty_chunks) == ("error", "cpu", True)
    array.synchronize()


def test_token_of_an_archive(tmp_path: Path) -> None:
    before: set[str] = set()
    for value in (1, 2):
        with gzarr.ZipStore(tmp_path / "a.zip", mode="w") as archive:
            gzarr.create_array(archive, data=np.full(50, value, "u1"), device="cpu")
        tokens = {tokenize(gzarr.open_array(tmp_path / "a.zip", device="cpu")) for _ in range(2)}
        assert len(tokens) == 1
        assert tokens != before
        before = tokens


def test_token_of_a_store_without_versions() -> None:
    class Nameless:
        def __init__(self, mapping: dict[str, bytes]) -> None:
            self.mapping = mapping

        def get(self, key: str) -> bytes | None:
            return self.mapping.get(key)

        def get_partial_values(self, key_ranges: Any) -> Any:
            return [self.mapping.get(key) for key, _ in key_ranges]

    class Named(Nameless):
        def location(self) -> str:
            return "example:1"

    mapping = made().store.mapping
    nameless = gzarr.open_array(Nameless(mapping), device="cpu")
    assert tokenize(nameless) != tokenize(nameless)
    named = gzarr.open_array(Named(mapping), device="cpu")
    assert tokenize(named) == tokenize(gzarr.open_array(Named(mapping), device="cpu"))


def test_too_many_values_get_a_new_token(monkeypatch: pytest.MonkeyPatch) -> None:
    array = made()
    assert tokenize(array) == tokenize(array)
    monkeypatch.setattr("gzarr.arrays.token.MOST_VALUES", 5)
    assert tokenize(array) != tokenize(array)
