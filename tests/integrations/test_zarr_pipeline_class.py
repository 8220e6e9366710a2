"""gzarr's codec pipeline of zarr-python as an object: equality, pickles, processes, imports; and its batches."""

from __future__ import annotations

import ast
import multiprocessing
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr
import zarr.errors
import zarr.storage
from support.zarr_pipelines import elements, opened
from zarr.core.config import config

import gzarr.integrations.zarr as ours
from gzarr.integrations.zarr_batches import KeysOfBatch, NotOursError, join

if TYPE_CHECKING:
    from collections.abc import Iterator

    Values = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def strict() -> Iterator[None]:
    with config.set({"gzarr.strict": True}):
        yield


# -- pipelines


def test_equality_and_pickles(tmp_path: Path) -> None:
    one = zarr.create_array(tmp_path / "a", data=elements("i4"), chunks=(10, 6))
    two = zarr.create_array(tmp_path / "b", data=elements("i4"), chunks=(10, 5))
    pipeline = opened(one)._async_array.codec_pipeline
    assert pipeline == opened(one)._async_array.codec_pipeline
    assert pipeline != opened(two)._async_array.codec_pipeline
    assert pipeline != one._async_array.codec_pipeline
    assert pickle.loads(pickle.dumps(pipeline)) == pipeline
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(opened(one)))[...], elements("i4"))


def total(array: zarr.Array[Any]) -> int:
    return int(array[...].sum())


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_other_processes(tmp_path: Path, method: str) -> None:
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip("this system has no fork")
    data = elements("i4")
    array = opened(zarr.create_array(tmp_path, data=data, chunks=(10, 6)))
    assert total(array) == data.sum()
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.apply_async(total, (array,)).get(60) == data.sum()


BY_NAME = """
import sys, zarr
array = zarr.open_array(sys.argv[1])
kind = type(array._async_array.codec_pipeline)
print(kind.__module__, int(array[...].sum()))
"""


IMPORTED = """
import sys
import zarr
before = set(sys.modules)
import gzarr.integrations.zarr
new = {name.partition(".")[0] for name in set(sys.modules) - before}
print(*sorted(new & {"numba", "llvmlite", "cupy", "blosc2", "fsspec", "obstore"}))
"""


def test_the_import_is_quick() -> None:
    """zarr-python imports the pipeline whenever an array is made or opened, whether it is used or not."""
    run = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout.split() == []


def test_the_import_needs_only_what_is_public() -> None:
    """It must not fail with any release: that would break zarr-python for those who do not use the pipeline."""
    found = set()
    for path in Path(ours.__file__).parent.glob("zarr*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Import):
                found |= {name.name for name in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found.add(str(node.module))
    named = {name for name in found if name.partition(".")[0] == "zarr"}
    assert named == {"zarr", "zarr.abc.codec", "zarr.registry", "zarr.storage"}


def test_by_an_environment_variable(tmp_path: Path) -> None:
    """The pipeline is known by its name, without an import."""
    zarr.create_array(tmp_path, data=elements("i4"), chunks=(10, 6))
    run = subprocess.run(
        [sys.executable, "-c", BY_NAME, str(tmp_path)],
        env={**os.environ, "ZARR_CODEC_PIPELINE__PATH": "gzarr.integrations.zarr.CodecPipeline"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert run.stdout.split() == ["gzarr.integrations.zarr", str(elements("i4").sum())]


# -- batches


class Place:
    def __init__(self, path: str) -> None:
        self.path = path


def box(path: str, inside: Any, outside: Any, *, complete: bool = False) -> Any:
    return Place(path), None, inside, outside, complete


@pytest.mark.parametrize(
    ("entries", "match"),
    [
        ([box("a/c/0", (slice(0, 4),), (slice(0, 4),)), box("b/c/1", (slice(0, 4),), (slice(4, 8),))], "several"),
        ([box("a/c/0", (slice(0, 4),), (slice(0, 4),)), box("a/c/0", (slice(0, 4),), (slice(4, 8),))], "twice"),
        ([box("a/c/0", (slice(0, 4),), (slice(0, 4),)), box("a/c/2", (slice(0, 4),), (slice(4, 8),))], "follow"),
        ([box("a/c/0", (slice(0, 4),), (slice(0, 4),)), box("a/c/1", (slice(0, 4),), (slice(3, 7),))], "follow"),
        ([box("a/c/0", (slice(0, 4),), (slice(1, 5),))], "follow"),
        ([box("a/x/0", (slice(0, 4),), (slice(0, 4),))], "not the key"),
        ([box("a/c/x", (slice(0, 4),), (slice(0, 4),))], "not a chunk's coordinate"),
        ([box("c/0", (slice(0, 4), slice(0, 4)), (slice(0, 4),))], "one index for each dimension"),
        ([box("c/0", (np.array([1, 2]),), (np.array([0, 0]),))], "same place"),
        ([box("c/0", (np.array([1, 2]),), np.array([0, 5]))], "differ"),
    ],
)
def test_batches_that_are_no_selection(entries: Any, match: str) -> None:
    with pytest.raises(NotOursError, match=match):
        join(entries, KeysOfBatch(1, "/", prefix=True), (4,))


def test_batches() -> None:
    keys = KeysOfBatch(1, "/", prefix=True)
    joined = join(
        [box("c/1", (slice(0, 2),), (slice(2, 4),), complete=True), box("c/0", (slice(2, 4),), (slice(0, 2),))],
        keys,
        (4,),
        find_end=True,
    )
    assert (joined.path, joined.kind, joined.index, joined.shape) == ("", "basic", (slice(2, 6, 1),), (4,))
    assert (joined.extent, joined.end) == ((8,), (None,))
    joined = join([box("c/1", (slice(0, 2),), (slice(0, 2),), complete=True)], keys, (4,), find_end=True)
    assert joined.end == (6,)
