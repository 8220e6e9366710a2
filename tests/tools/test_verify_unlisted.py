"""``gzarr verify`` where nothing can be listed: what it counts as stored is stored, as where it can."""

from __future__ import annotations

import functools
import http.server
import json
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.web_server import running

import gzarr
from gzarr.cli.main import main
from gzarr.errors import StoreError
from gzarr.tools import verify as verification

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

ABSENT = ((0, 1), (2, 2), (3, 0))


class Unlisted:
    """A store that supports only reading, and refuses some keys."""

    def __init__(self, values: dict[str, Any], refused: Sequence[str] = ()) -> None:
        self._store = gzarr.MemoryStore(values)
        self._refused = refused

    def get(self, key: str) -> Any:
        if key in self._refused:
            raise StoreError(f"{key} is refused", key=key)
        return self._store.get(key)

    def get_partial_values(self, key_ranges: Any) -> list[Any]:
        ranges = list(key_ranges)
        for key, _ in ranges:
            self.get(key)
        return self._store.get_partial_values(ranges)


def values(**options: Any) -> dict[str, Any]:
    store: dict[str, Any] = {}
    data = np.arange(1, 1601, dtype="i4").reshape(40, 40)
    gzarr.create_array(store, data=data, chunks=(10, 10), codecs=["zstd"], **options)
    return store


def counts(of: Any, **options: Any) -> tuple[int, int, list[tuple[str, str | None]]]:
    found = gzarr.verify(of, **options)
    problems = sorted((problem.kind, problem.key) for problem in found)
    return found.chunks, found.unchecked, problems


@pytest.mark.parametrize("missing", ["fill", "error"])
def test_as_where_it_can_be_listed(missing: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "_ASKED", 3)
    store = values()
    for coords in ABSENT:
        del store[f"c/{coords[0]}/{coords[1]}"]
    store["c/1/1"] = b"garbage"
    expected = counts(store, missing=missing)
    assert expected[:2] == (13, 13)
    assert len(expected[2]) == 1 + (missing == "error") * len(ABSENT)
    assert counts(Unlisted(store), missing=missing) == expected


@pytest.mark.parametrize("missing", ["fill", "error"])
def test_shards(missing: Any) -> None:
    store = values(shards=(20, 20))
    del store["c/0/1"]
    expected = counts(store, missing=missing)
    assert expected[0] == 3
    assert counts(Unlisted(store), missing=missing) == expected


def test_a_key_that_is_refused_is_a_problem_of_its_own() -> None:
    store = values()
    del store["c/0/1"]
    assert counts(Unlisted(store, ["c/2/1"])) == (15, 15, [("chunk", "c/2/1")])


def test_keys_that_cannot_be_looked_for_are_asked_for_side_by_side() -> None:
    store, lock, most = values(), threading.Lock(), [0, 0]

    class Failing(Unlisted):
        def get(self, key: str) -> Any:
            if not key.startswith("c/"):
                return super().get(key)
            with lock:
                most[0] += 1
                most[1] = max(most)
            time.sleep(0.05)
            with lock:
                most[0] -= 1
            raise StoreError("the server does not answer", key=key)

    assert counts(Failing(store))[0] == 16
    assert most[1] > 4


def test_absent_chunks_are_listed_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "MAX_ABSENT", 4)
    store = {"zarr.json": values()["zarr.json"]}
    problems = [str(problem) for problem in gzarr.verify(Unlisted(store), missing="error")]
    assert problems == [str(problem) for problem in gzarr.verify(store, missing="error")]
    assert problems[-1] == "/: the store has no chunk at 12 more places"


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass

    def list_directory(self, path: Any) -> None:
        self.send_error(404)


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    gzarr.create_array(tmp_path / "x", data=np.ones((100, 100), "i4"), chunks=(25, 25), codecs=["gzip"])
    with running(functools.partial(Handler, directory=str(tmp_path))) as address:
        yield f"{address}/x"


def test_a_web_server(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said(where: Any) -> list[Any]:
        found = []
        for options in ([], ["--json"]):
            assert main(["verify", str(where), *options]) == 0
            found.append(capsys.readouterr().out)
        return [found[0], json.loads(found[1])]

    assert said(url) == said(tmp_path / "x")
    for file in (tmp_path / "x/c/0").iterdir():
        file.unlink()
    lost = said(url)
    assert lost == said(tmp_path / "x")
    assert lost[0] == "12 stored chunks of 1 array: no problems\n"
    assert lost[1]["chunks"] == 12
