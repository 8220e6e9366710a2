"""Levels made in one pass, beside levels made of whole volumes, and what the pass costs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from support.counting_store import CountingStore
from support.whole_levels import Computed, whole_levels

import gzarr
from gzarr.cli.main import main
from gzarr.errors import ArgumentError, GzarrError
from gzarr.ome.writing import building
from gzarr.ome.writing.gaussian import smoothed_box

HALVES = (2, 2, 2)


def volume(shape: tuple[int, ...], dtype: str = "u2", few: bool = False) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(5)
    if few:
        return rng.integers(0, 3, shape).astype(dtype)
    if np.dtype(dtype).kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)


def levels_of(folder: Path) -> list[np.ndarray[Any, Any]]:
    """Return all levels of an image, by zarr-python."""
    group = zarr.open_group(folder, mode="r")
    attributes: Any = dict(group.attrs)
    (image,) = attributes.get("ome", attributes)["multiscales"]
    return [np.asarray(group[entry["path"]][...]) for entry in image["datasets"]]


def check(found: list[np.ndarray[Any, Any]], expected: list[np.ndarray[Any, Any]]) -> None:
    assert [a.shape for a in found] == [a.shape for a in expected]
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        if a.dtype.kind == "f":
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
        else:
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("method", ["mean", "max", "mode", "nearest"])
@pytest.mark.parametrize(
    "layout",
    [
        {"version": "0.4", "chunks": (16, 16, 16)},
        {"version": "0.5", "chunks": (7, 16, 13)},
        {"version": "0.5", "chunks": (8, 8, 8), "shards": (16, 32, 16)},
        {"version": "0.5", "chunks": (16, 16, 16), "shards": "auto"},
    ],
    ids=["0.4", "odd chunks", "sharded", "one shard"],
)
def test_levels_are_those_of_the_whole_volume(tmp_path: Path, method: str, layout: dict[str, Any]) -> None:
    data = volume((37, 90, 71), few=method == "mode")
    gzarr.ome.create(tmp_path / "a", data, axes="zyx", method=method, levels=5, **layout)
    check(levels_of(tmp_path / "a"), whole_levels(data, [HALVES] * 4, method))


@pytest.mark.parametrize("dtype", ["u1", "u4", "u8", "i1", "i2", "i4", "i8", "f4", "f8"])
def test_types(tmp_path: Path, dtype: str) -> None:
    data = volume((40, 41, 42), dtype)
    for method in ("max", *(() if dtype[1] == "8" else ("mean",)), *(() if dtype[0] == "f" else ("mode",))):
        folder = tmp_path / method
        gzarr.ome.create(folder, data, axes="zyx", method=method, levels=3, chunks=16)
        check(levels_of(folder), whole_levels(data, [HALVES] * 2, method))


def test_factors_per_axis_and_axes_that_are_kept(tmp_path: Path) -> None:
    data = volume((2, 3, 20, 50, 64))
    factors = [{"y": 2, "x": 2}, {"z": 2, "y": 3, "x": 2}]
    gzarr.ome.create(tmp_path, data, axes="tczyx", factors=factors, chunks=(1, 2, 4, 16, 16), overwrite=True)
    check(levels_of(tmp_path), whole_levels(data, [(1, 1, 1, 2, 2), (1, 1, 2, 3, 2)], "mean"))


def test_channels_last(tmp_path: Path) -> None:
    data = volume((50, 60, 3), "u1")
    with pytest.raises(ArgumentError, match="expected the axis of time first and the axes of space last"):
        gzarr.ome.create(tmp_path, data, axes="yxc", levels=2)
    assert not (tmp_path / "zarr.json").exists()


def test_gaussian(tmp_path: Path) -> None:
    data = volume((30, 70, 50))
    image = gzarr.ome.create(tmp_path, data, axes="zyx", method="gaussian", levels=3, chunks=(8, 16, 16))
    whole = [data]
    for shape in ((15, 35, 25), (8, 18, 13)):
        whole.append(smoothed_box(whole[-1], tuple(slice(0, n) for n in shape), HALVES))
    check(levels_of(tmp_path), whole)
    assert image.group.attrs["ome"]["multiscales"][0]["type"] == "gaussian"


@pytest.mark.parametrize("source", ["array", "stored", "sharded", "zarr-python", "computed", "list"])
def test_sources(tmp_path: Path, source: str) -> None:
    data = volume((33, 40, 50))
    given: Any = data
    if source in ("stored", "sharded"):
        shards = (24, 20, 40) if source == "sharded" else None
        given = gzarr.create_array(tmp_path / "s", data=data, chunks=(12, 10, 20), shards=shards)
    elif source == "zarr-python":
        given = zarr.create_array(tmp_path / "s", data=data, chunks=(12, 10, 20))
    elif source == "computed":
        given = Computed(data.shape, "u2")
        data = given[tuple(slice(0, n) for n in data.shape)]
    elif source == "list":
        data = data.astype(np.int64)
        given = data.tolist()
    gzarr.ome.create(tmp_path / "a", given, axes="zyx", chunks=8, levels=3)
    check(levels_of(tmp_path / "a"), whole_levels(data, [HALVES] * 2, "mean"))


@pytest.mark.parametrize("method", ["mean", "mode", "max", "nearest", "gaussian"])
def test_on_a_device(device: Any, tmp_path: Path, method: str) -> None:
    data = volume((21, 30, 37), few=method == "mode")
    gzarr.create_array(tmp_path / "s", data=data, chunks=(8, 8, 8))
    gzarr.ome.create(tmp_path / "cpu", data, axes="zyx", method=method, levels=3, chunks=8)
    stored = device.open(tmp_path / "s")
    gzarr.ome.create(tmp_path / "a", stored, axes="zyx", method=method, levels=3, chunks=8)
    gzarr.ome.create(tmp_path / "b", data, axes="zyx", levels=1, chunks=8)
    gzarr.ome.pyramid(tmp_path / "b", method=method, levels=3, device=device.name)
    expected = levels_of(tmp_path / "cpu")
    check(levels_of(tmp_path / "a"), expected)
    check(levels_of(tmp_path / "b"), expected)


@pytest.mark.parametrize("threads", ["1", "4"])
def test_any_number_of_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: str) -> None:
    monkeypatch.setenv("GZARR_THREADS", threads)
    data = volume((64, 48, 40))
    for i in range(2):
        # Boxes of level 0 that are smaller than those of level 1, so that threads fill the same ones.
        monkeypatch.setattr(building, "_BOX_BYTES", 4096)
        gzarr.ome.create(tmp_path / str(i), data, axes="zyx", chunks=8, shards=32, levels=4)
        gzarr.ome.create(tmp_path / f"p{i}", data, axes="zyx", chunks=8, levels=1)
        gzarr.ome.pyramid(tmp_path / f"p{i}", levels=4)
        expected = whole_levels(data, [HALVES] * 3, "mean")
        check(levels_of(tmp_path / str(i)), expected)
        check(levels_of(tmp_path / f"p{i}"), expected)


# -- what a pass costs


@pytest.mark.parametrize("shards", [None, (16, 16, 16)])
def test_every_chunk_is_read_once(shards: Any) -> None:
    store = CountingStore()
    data = volume((48, 40, 72))
    gzarr.ome.create(store, data, axes="zyx", chunks=8, shards=shards, levels=1)
    store.asked.clear()
    gzarr.ome.pyramid(store, levels=5)
    chunks = Counter((r.key, r.byte_range) for r in store.asked if "/c/" in r.key)
    if shards is None:
        assert len(chunks) == 6 * 5 * 9
        assert set(chunks.values()) == {1}
    else:
        # Indexes may be read by several threads at a time.
        whole = Counter({c: n for c, n in chunks.items() if c[1].offset >= 0})
        assert whole
        assert set(whole.values()) == {1}
    assert not any(key.startswith(("1/", "2/", "3/")) for key, _ in chunks)


def test_every_chunk_of_a_source_is_read_once_where_it_is_written_with_others() -> None:
    store = CountingStore()
    source = gzarr.create_array(store, data=volume((48, 40, 72)), chunks=(12, 20, 8))
    store.asked.clear()
    gzarr.ome.create({}, source, axes="zyx", chunks=8, levels=4)
    chunks = Counter(r.key for r in store.asked if r.key.startswith("c/"))
    assert len(chunks) == 4 * 2 * 9
    assert set(chunks.values()) == {1}


_CHILD = """
import sys
import gzarr
from support.peak_memory import peak_nbytes
from support.whole_levels import Computed
small = Computed((64, 64, 64))
gzarr.ome.create({}, small, axes="zyx", chunks=32, levels=2, shards=eval(sys.argv[2]), method=sys.argv[3])
before = peak_nbytes()
data = Computed((512, 1024, 1024))
gzarr.ome.create(sys.argv[1], data, axes="zyx", chunks=(64, 128, 128), shards=eval(sys.argv[2]), method=sys.argv[3])
print(peak_nbytes() - before)
"""


@pytest.mark.parametrize(("shards", "method"), [("None", "mean"), ("'auto'", "mode")])
def test_memory_is_bounded(tmp_path: Path, shards: str, method: str) -> None:
    """A volume of 512 MiB, in a process of its own: the highest mark of a process never sinks."""
    command = [sys.executable, "-c", _CHILD, str(tmp_path / "a"), shards, method]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[1])
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < building.DEFAULT_BUDGET_BYTES
    image = gzarr.open_group(tmp_path / "a")
    assert image["1"].shape == (256, 512, 512)


def test_few_boxes_of_each_level_are_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    most: Counter[int] = Counter()
    original = building._Level._part

    def watched(self: Any, *args: Any) -> Any:
        part = original(self, *args)
        most[id(self)] = max(most[id(self)], len(self._parts))
        return part

    monkeypatch.setattr(building._Level, "_part", watched)
    monkeypatch.setattr(building, "_BOX_BYTES", 1)
    monkeypatch.setenv("GZARR_THREADS", "1")
    gzarr.ome.create({}, Computed((64, 64, 64)), axes="zyx", chunks=4, levels=5)
    assert list(most.values()) == [1, 1, 1, 1]


def test_threads_are_as_many_as_the_budget_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GZARR_THREADS", "4")
    seen: set[int] = set()

    class Watched(Computed):
        def __getitem__(self, box: Any) -> Any:
            # Before, a part without elements says which type they have.
            if isinstance(box, tuple):
                seen.add(threading.get_ident())
            return super().__getitem__(box)

    gzarr.ome.create({}, Watched((64, 64, 64)), axes="zyx", chunks=8, levels=3, budget_bytes=1)
    assert len(seen) == 1


# -- failures


class Failing(Computed):
    def __getitem__(self, box: Any) -> Any:
        if len(self.asked) == 5:
            raise OSError("the disk is gone")
        return super().__getitem__(box)


@pytest.mark.parametrize("method", ["mean", "gaussian"])
def test_a_failure_leaves_no_image(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "_BOX_BYTES", 4096)
    store: dict[str, Any] = {}
    with pytest.raises(OSError, match="the disk is gone") as caught:
        gzarr.ome.create(store, Failing((64, 64, 64)), axes="zyx", chunks=16, levels=3, method=method)
    assert any("of level 0" in note for note in caught.value.__notes__)
    assert dict(gzarr.open_group(store).attrs) == {}
    gzarr.ome.create(store, Computed((64, 64, 64)), axes="zyx", chunks=16, levels=3, overwrite=True)
    assert "ome" in gzarr.open_group(store).attrs


def test_a_failed_pyramid_leaves_level_0() -> None:
    store: dict[str, Any] = {}
    data = volume((40, 40, 40))
    gzarr.ome.create(store, data, axes="zyx", chunks=8, levels=3, name="mine")
    good = store["0/c/4/4/4"]
    store["0/c/4/4/4"] = b"damaged"
    with pytest.raises(GzarrError, match=r"0/c/4/4/4"):
        gzarr.ome.pyramid(store, overwrite=True, levels=2)
    (found,) = gzarr.open_group(store).attrs["ome"]["multiscales"]
    assert [entry["path"] for entry in found["datasets"]] == ["0"]
    assert found["name"] == "mine"
    store["0/c/4/4/4"] = good
    image = gzarr.ome.pyramid(store, levels=4, overwrite=True)
    expected = whole_levels(data, [HALVES] * 3, "mean")
    check([image.level(i).read() for i in range(4)], expected)


def test_the_path_of_an_array_is_enough(tmp_path: Path) -> None:
    data = volume((40, 40))
    gzarr.create_array(tmp_path / "g.zarr", path="raw/0", data=data, chunks=16)
    image = gzarr.ome.pyramid(tmp_path / "g.zarr" / "raw" / "0", axes="yx", levels=2)
    assert image.group.store.directory() == os.fsencode(tmp_path / "g.zarr" / "raw")
    check([image.level(i).read() for i in range(2)], whole_levels(data, [(2, 2)], "mean"))
    gzarr.create_array(tmp_path / "alone.zarr", data=data, chunks=16)
    with pytest.raises(ArgumentError, match="in a group: pass the store of the group"):
        gzarr.ome.pyramid(tmp_path / "alone.zarr", axes="yx")


def test_dimensions_of_a_plain_array_get_the_names_of_the_axes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = volume((40, 40))
    gzarr.create_array(tmp_path, path="raw", data=data, chunks=16, attributes={"own": 1})
    image = gzarr.ome.pyramid(tmp_path, path="raw", axes="yx")
    for level in image.levels:
        assert level.array.dimension_names == ("y", "x")
        assert zarr.open_array(tmp_path / level.array.path, mode="r").metadata.dimension_names == ("y", "x")
    assert len(image.levels) > 1
    assert image.level(0).attrs == {"own": 1}
    np.testing.assert_array_equal(image.level(0)[...], data)
    assert main(["info", "--strict", str(tmp_path)]) == 0
    other = {"dimension_names": ("a", "b"), "chunks": 16}
    gzarr.create_array(tmp_path, path="b/raw", data=data, **other)
    with pytest.raises(ArgumentError, match="names its dimensions a, b, and axes= says y, x"):
        gzarr.ome.pyramid(tmp_path, path="b/raw", axes="yx")
    # Absent names, and a level that lacks rows, are found.
    document = json.loads((tmp_path / "raw_1/zarr.json").read_text())
    del document["dimension_names"]
    document["shape"][0] -= 3
    (tmp_path / "raw_1/zarr.json").write_text(json.dumps(document))
    document = json.loads((tmp_path / "zarr.json").read_text())
    document["attributes"]["ome"]["multiscales"][0]["datasets"][1]["coordinateTransformations"][0]["scale"][0] = 1
    (tmp_path / "zarr.json").write_text(json.dumps(document))
    capsys.readouterr()
    assert main(["info", "--strict", str(tmp_path)]) == 1
    report = capsys.readouterr().out
    assert "level 'raw_1' must have the names of the axes as dimension names, and has none" in report
    assert "level 1 has 17 elements along 'y', and level 0 has 40" in report
