"""Arrays whose shape is far larger than their stored data: operations cost only as much as the stored data."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.copies import planned_copy

import gzarr
from gzarr.arrays.array import Array
from gzarr.arrays.stored_chunks import grid_points, stored_chunks
from gzarr.cli.main import main
from gzarr.errors import ArgumentError, ChunkWriteError
from gzarr.hierarchy.create import create_array
from gzarr.stores.memory import MemoryStore
from gzarr.tools.copy import copy
from gzarr.tools.verify import verify

if TYPE_CHECKING:
    from pathlib import Path

SHAPE = (2**62, 2**40)
#: What no array has whole chunks up to.
LONGEST = 2**63 - 1


def huge(store: Any, shape: tuple[int, ...] = SHAPE, **options: Any) -> gzarr.Array:
    """Make an array with a few chunks: near the beginning, in the middle and at the end."""
    array = create_array(store, shape=shape, dtype="i4", **{"chunks": (100,) * len(shape), **options})
    for number, place in enumerate((0, 1, 2), 1):
        array[tuple((n - 1) * place // 2 for n in shape)] = number
    return array


def values(array: gzarr.Array) -> list[int]:
    return [int(array[tuple((n - 1) * place // 2 for n in array.shape)]) for place in (0, 1, 2)]


@pytest.mark.parametrize(
    "options",
    [{}, {"codecs": "gzip"}, {"chunks": (30, 70)}, {"chunks": (10, 10), "shards": (40, 40)}, {"zarr_format": 2}],
    ids=["as it is", "codecs", "chunks", "shards", "version 2"],
)
@pytest.mark.parametrize("shape", [SHAPE, (LONGEST, 5)])
def test_copies(shape: tuple[int, ...], options: dict[str, Any]) -> None:
    source: dict[str, bytes] = {}
    target: dict[str, bytes] = {}
    huge(source, shape)
    made = copy(source, target, read_back=True, **options)
    assert isinstance(made, Array)
    assert made.shape == shape
    assert values(made) == [1, 2, 3]
    assert sum(1 for _ in stored_chunks(made.store, made.metadata, made.path)) == 3
    again = planned_copy(source, target, resume=True, **options)
    assert again.total > 2**40
    again.run()
    assert (again.written, again.kept) == (0, 3)


def test_resuming_erases_what_the_source_has_not() -> None:
    source: dict[str, bytes] = {}
    target: dict[str, bytes] = {}
    huge(source, codecs="gzip")
    huge(target, chunks=(50, 70), codecs="gzip")[2**55, 2**33] = 9
    planned = planned_copy(source, target, chunks=(50, 70), resume=True)
    planned.run()
    assert (planned.written, planned.kept) == (1, 3)
    made = gzarr.open_array(target)
    assert made.nchunks_initialized == 3
    assert made[2**55, 2**33] == 0
    assert values(made) == [1, 2, 3]


def test_a_copy_reads_and_writes_what_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    source: dict[str, bytes] = {}
    array = create_array(source, shape=(1 << 30, 4), dtype="i4", chunks=(100, 2), codecs="gzip")
    for i in range(0, array.shape[0], 1 << 24):
        array[i, 3] = i + 1
    read: list[int] = []
    whole_read = Array.read

    def counted(self: gzarr.Array, selection: Any, **options: Any) -> Any:
        result = whole_read(self, selection, **options)
        read.append(result.size)
        return result

    monkeypatch.setattr(Array, "read", counted)
    made = copy(source, {}, chunks=(128, 4))
    monkeypatch.undo()
    assert isinstance(made, Array)
    assert made.nchunks_initialized == len(read) == 64
    # A chunk of the source has elements of two of the copy at most.
    assert max(read) <= 2 * 128 * 4
    assert [int(made[i, 3]) for i in range(0, made.shape[0], 1 << 24)] == list(range(1, 1 << 30, 1 << 24))


def test_optimizing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    huge(tmp_path / "a")
    assert main(["optimize", str(tmp_path / "a"), str(tmp_path / "b"), "--read-back"]) == 0
    assert "parts written, read back and compared" in capsys.readouterr().out
    assert values(gzarr.open_array(tmp_path / "b")) == [1, 2, 3]


@pytest.mark.parametrize("options", [{}, {"chunks": (10, 10), "shards": (100, 100)}], ids=["chunks", "shards"])
def test_verifying(options: dict[str, Any]) -> None:
    store: dict[str, bytes] = {}
    huge(store, **options)
    checked = verify(store)
    assert list(checked) == []
    assert checked.chunks == 3
    key = f"c/{2**61 // 100}/{2**39 // 100}"
    store[key] = store[key][:-3]
    assert [problem.key for problem in verify(store)] == [key]


def test_verifying_what_ends_within_the_last_chunk_that_there_can_be() -> None:
    store: dict[str, bytes] = {}
    huge(store, (LONGEST,))
    assert list(verify(store)) == []
    key = f"c/{LONGEST // 100}"
    store[key] = b"damaged"
    assert [(problem.key, problem.chunk) for problem in verify(store)] == [(key, (LONGEST // 100,))]


def test_absent_chunks_are_counted_where_they_cannot_be_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("gzarr.tools.verify.MAX_ABSENT", 5)
    huge(tmp_path)
    *listed, last = verify(tmp_path, missing="error")
    assert [problem.chunk for problem in listed] == [(0, j) for j in range(1, 6)]
    absent = -(-SHAPE[0] // 100) * -(-SHAPE[1] // 100) - 3
    assert (last.kind, last.key, last.chunk) == ("missing", None, None)
    assert f"{absent - 5:,} more" in last.reason
    assert main(["verify", str(tmp_path), "--missing", "error", "--json"]) == 1
    assert len(json.loads(capsys.readouterr().out)["problems"]) == 6


@pytest.mark.parametrize("stored", [0, 300, 1035, 1040])
def test_every_absent_chunk_is_listed_where_there_are_few(stored: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any absent chunks are found, across the masks that record them; exactly the absent chunks are listed."""
    shape = (13, 8, 10)
    everywhere = list(np.ndindex(shape))
    there = {everywhere[i] for i in np.random.default_rng(stored).permutation(len(everywhere))[:stored]}
    array = create_array(store := {}, shape=shape, dtype="i1", chunks=(1, 1, 1), codecs=[])
    for coords in there:
        array[coords] = 1
    assert [problem.chunk for problem in verify(store, missing="error")] == [c for c in everywhere if c not in there]
    monkeypatch.setattr("gzarr.tools.verify.MAX_ABSENT", 1040 - stored)
    assert all(problem.key is not None for problem in verify(store, missing="error"))


class Unlisted:
    """A store that cannot list its keys."""

    def __init__(self, values: dict[str, bytes]) -> None:
        self._store = MemoryStore(values)
        self.get = self._store.get
        self.get_partial_values = self._store.get_partial_values
        self.get_small_values = self._store.get_small_values


def test_stores_that_do_not_list_are_gone_through_without_listing_the_grid() -> None:
    store: dict[str, bytes] = {}
    huge(store, chunks=(10, 10))
    assert next(verify(Unlisted(store)).steps()) == []
    assert next(planned_copy(Unlisted(store), {}).steps()) == 64
    target: dict[str, bytes] = {}
    # Of a few chunks, for all regions are gone through.
    assert next(planned_copy(Unlisted(store), target, chunks=(20, 20), budget_bytes=1 << 16).steps()) == 1
    assert "c/0/0" in target


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 2**62), (2**62, 0), (2, 1, 3)])
def test_points_of_a_grid(shape: tuple[int, ...]) -> None:
    assert list(grid_points(shape)) == list(itertools.product(*map(range, shape if 0 not in shape else (0,))))


def test_points_of_a_huge_grid() -> None:
    assert list(itertools.islice(grid_points((2**62, 2**80)), 3)) == [(0, 0), (0, 1), (0, 2)]


def test_regions_that_are_too_large_to_be_written_at_once() -> None:
    array = create_array({}, shape=SHAPE, dtype="i4", chunks=(100, 100))
    for region in (np.s_[:, 0], np.s_[...]):
        with pytest.raises(ArgumentError, match="more elements than can be written at once"):
            array[region] = 1
    with pytest.raises(ArgumentError, match="does not broadcast"):
        array[:, 0] = [1, 2]


def test_rectilinear_grids_do_not_grow_without_bounds() -> None:
    array = create_array({}, shape=(4,), dtype="i1", chunks=[[1, 3]])
    with pytest.raises(ArgumentError, match="a rectilinear grid has at most"):
        array.resize(2**50)
    assert array.shape == (4,)


def test_an_index_that_no_memory_can_hold() -> None:
    array = create_array({}, shape=10, dtype="i4", chunks=1, shards=2**38)
    for selection in (np.s_[...], np.s_[3]):
        with pytest.raises(ChunkWriteError, match="not enough memory"):
            array[selection] = 1
    assert array[...].tolist() == [0] * 10
