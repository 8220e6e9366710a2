"""Documents that several threads or processes change at a time: no change is lost."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import obstore.store
import pytest
from support import servers

import gzarr
from gzarr.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ONES = np.ones((8, 8), "u2")


def in_threads(work: Callable[[int], object], count: int = 8) -> None:
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(work, range(count)))


def in_processes(work: Callable[[int], object], count: int) -> None:
    """Do some work in several forked processes at a time."""
    context = multiprocessing.get_context("fork")
    begin = context.Barrier(count)

    def run(i: int) -> None:
        begin.wait(60)
        work(i)

    running = [context.Process(target=run, args=(i,)) for i in range(count)]
    for process in running:
        process.start()
    for process in running:
        process.join(100)
    codes = [process.exitcode for process in running]
    for process in running:
        process.kill()
    assert codes == [0] * count


def store_of(kind: str, tmp_path: Path) -> Any:
    if kind == "zip":
        return gzarr.ZipStore(tmp_path / "x.zip", mode="w")
    if kind == "obstore":
        return gzarr.open_store(obstore.store.MemoryStore(), read_only=False)
    return {} if kind == "memory" else tmp_path / "x.zarr"


@pytest.mark.parametrize("version", ["0.4", "0.5"])
@pytest.mark.parametrize("kind", ["memory", "directory", "zip", "obstore"])
def test_threads_add_fields_wells_and_labels(kind: str, version: Any, tmp_path: Path) -> None:
    store = store_of(kind, tmp_path)
    gzarr.ome.create_plate(store, rows="AB", columns=range(1, 5), version=version)

    def add(i: int) -> None:
        for _ in range(2):
            gzarr.ome.create_field(store, "AB"[i // 4], i % 4 + 1, ONES, axes="yx", progress=False)

    in_threads(add)
    plate = gzarr.ome.open(store)
    assert sorted(plate) == sorted(f"{row}/{column}" for row in "AB" for column in range(1, 5))
    assert all(len(plate[well]) == 2 for well in plate)
    # Fields of one well, whose numbers are chosen.
    in_threads(lambda _: gzarr.ome.create_field(store, "A", 1, ONES, axes="yx", progress=False), 6)
    assert sorted(image.group.basename for image in gzarr.ome.open(store)["A/1"]) == sorted(map(str, range(8)))
    image = {"path": "A/1/0"}
    in_threads(lambda i: gzarr.ome.create_labels(store, f"l{i}", ONES.astype("u4"), progress=False, **image))
    assert sorted(gzarr.ome.open(store, path="A/1/0").labels) == [f"l{i}" for i in range(8)]


def test_threads_change_attributes_while_metadata_is_consolidated(tmp_path: Path) -> None:
    """Consolidating, and dropping what was consolidated, rewrites the documents of groups in version 3."""
    gzarr.create_group(tmp_path)
    for i in range(4):
        gzarr.create_group(tmp_path, path=f"g{i}")

    def work(i: int) -> None:
        for k in range(10):
            if i == 0:
                gzarr.consolidate_metadata(tmp_path)
            elif i < 4:
                gzarr.open_group(tmp_path, path=f"g{i}", mode="r+").attrs[f"k{k}"] = k
            else:
                gzarr.open_group(tmp_path, mode="r+").attrs[f"k{i}-{k}"] = k

    in_threads(work, 6)
    assert len(gzarr.open_group(tmp_path).attrs) == 20
    assert all(len(gzarr.open_group(tmp_path, path=f"g{i}").attrs) == 10 for i in (1, 2, 3))


def test_a_change_that_fails_changes_nothing() -> None:
    group = gzarr.create_group({}, attributes={"a": [1]})

    def wrong(found: dict[str, Any]) -> dict[str, Any]:
        found["a"].append(2)
        raise KeyError("b")

    with pytest.raises(KeyError):
        group.attrs.change(wrong)
    assert group.attrs["a"] == [1]
    group.attrs.change(lambda found: {"b": np.int8(len(found))})
    assert group.attrs == {"b": 1}
    with pytest.raises(ArgumentError, match="no locks between processes"):
        group.attrs.change(dict, lock=True)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_processes_set_attributes(zarr_format: Any, tmp_path: Path) -> None:
    gzarr.create_array(tmp_path / "a", shape=(3,), dtype="u1", zarr_format=zarr_format)

    def work(process: int) -> None:
        node = gzarr.open(tmp_path / "a", mode="r+")
        for i in range(50):
            own = {f"{process}-{i}": i}
            if i % 2:
                node.update_attributes(own, lock=True)
            else:
                node.attrs.change(lambda found, own=own: {**found, **own}, lock=True)

    in_processes(work, 2)
    assert len(gzarr.open_array(tmp_path / "a").attrs) == 100


def test_processes_add_wells_and_labels(tmp_path: Path) -> None:
    gzarr.ome.create_plate(tmp_path, rows="ABCDE", columns=range(1, 7))
    gzarr.ome.create_field(tmp_path, "E", 1, ONES, axes="yx", progress=False)

    def work(i: int) -> None:
        common: dict[str, Any] = {"lock": True, "progress": False}
        for column in range(1, 7):
            gzarr.ome.create_field(tmp_path, "ABCD"[i], column, ONES, axes="yx", **common)
            gzarr.ome.create_labels(tmp_path, f"l{i}-{column}", ONES.astype("u4"), path="E/1/0", **common)

    in_processes(work, 4)
    assert len(gzarr.ome.open(tmp_path)) == 25
    assert len(gzarr.ome.open(tmp_path, path="E/1/0").labels) == 24


# -- object stores: no locks, but conditions


@pytest.fixture(scope="module")
def s3() -> Iterator[tuple[str, int]]:
    with servers.s3_server(atomic=True) as address:
        servers.make_bucket(address, "bucket")
        yield address


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_processes_set_attributes_in_s3(zarr_format: Any, s3: tuple[str, int]) -> None:
    options = servers.s3_options("http://{}:{}".format(*s3), **servers.PATIENT)
    name = f"s3://bucket/v{zarr_format}"
    gzarr.create_group(name, zarr_format=zarr_format, storage_options=options)

    def work(process: int) -> None:
        node = gzarr.open_group(name, mode="r+", storage_options=options)
        for i in range(50):
            node.attrs[f"{process}-{i}"] = i

    in_processes(work, 2)
    assert len(gzarr.open_group(name, storage_options=options).attrs) == 100


def test_a_conflict_is_tried_again(s3: tuple[str, int]) -> None:
    """Between reading and replacing; also of consolidated metadata, and where a group has no document yet."""
    url = "http://{}:{}".format(*s3)
    store = gzarr.open_store("s3://bucket/c", read_only=False, storage_options=servers.s3_options(url))
    other = gzarr.open_group(store, mode="a", attributes={"first": 0})
    gzarr.create_group(store, path="below")
    gzarr.consolidate_metadata(store)
    calls = []

    def change(found: dict[str, Any]) -> dict[str, Any]:
        calls.append(sorted(found))
        if len(calls) < 3:
            # As another process would: without this one's locks.
            document = store.get("zarr.json")
            assert document is not None
            store.set("zarr.json", document.replace(b'"first"', b'"x%d": 1, "first"' % len(calls)))
        return {**found, "own": len(found)}

    other.attrs.change(change)
    assert calls == [["first"], ["first", "x1"], ["first", "x1", "x2"]]
    assert dict(gzarr.open_group(store).attrs) == {"first": 0, "x1": 1, "x2": 1, "own": 3}
