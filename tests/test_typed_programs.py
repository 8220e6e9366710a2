"""Programs of users who check types: what works is accepted, and what always fails is refused."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gzarr.stores import ByteRange

ROOT = Path(__file__).parents[1]

#: Other packages are skipped, but for those whose objects are passed.
CONFIGURATION = """
[mypy]
strict = true
mypy_path = {root}:{root}/kernels
[mypy-gzarr.*,gzarr_kernels.*]
follow_imports = silent
[mypy-cupy.*,cupyx.*,dask.*,distributed.*,jax.*,numba.*,pandas.*,scipy.*,torch.*,xarray.*]
ignore_missing_imports = true
follow_imports = skip
"""

RIGHT = """
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np

    import gzarr
    from gzarr.loader import Loader, Patches, Windows
    from gzarr.stores import ByteRange

    n, numbers = np.int64(2), np.array([2, 2])
    a = gzarr.open_array(Path("a.zarr"))

    # Submodules, as the documentation has them.
    gzarr.ome.open("image.ome.zarr")
    gzarr.sparse.open("atlas.zarr", path="X")
    gzarr.blocks.label(a, out="labels.zarr", block=n, halo=numbers)
    gzarr.integrations.zarr.enable()
    error: type[gzarr.errors.GzarrError] = gzarr.errors.ArgumentError
    gzarr.codecs, gzarr.loader.Rows, gzarr.stores.MemoryStore

    # Integers and several of them, of any kind.
    Patches((32, 32)), Patches([32, 32]), Patches(32), Patches((n, n)), Patches(numbers), Patches(range(1, 3))
    Patches((32, 32), stride=[16, 16], halo=[1, 2], axes=[0, 1], scale=[0.8, 1.2], shift=[1, 2], spacing=[1, 1])
    Patches((32, 32), stride=n, halo=numbers)
    Windows(0, {"x": [0, 1], "y": (0, n)}), Windows(0, {"x": numbers}, rollout={"x": [1, 2]})
    Windows(0, steps={"x": np.arange(3), "y": [2]})
    gzarr.Loader([a, a], weights=np.array([1.0, 2.0]), batch_size=n, seed=n, streams=n).split(n, n)
    Loader([a, a], weights=[1, np.float32(2)], rank=n, world_size=n, prefetch=n, buffer_bytes=n)
    a.resize((n, n))
    a.resize(numbers)
    a.resize(n)
    a.resize([1, 2])
    a.resize(3)
    a.append(numbers, axis=n)
    a.read_windows([[0, 0]], numbers), a.read_windows(numbers, (n, n), step=numbers), a.read_windows(numbers, n)
    gzarr.map_blocks(np.sum, a, block=n, halo=n), gzarr.map_blocks(np.sum, a, block=numbers, halo=numbers)
    gzarr.map_blocks(np.sum, a, block=(n, None), halo=[(1, n), (0, 0)], drop_axis=n, scale=np.array([0.5, 2]))
    gzarr.map_blocks(np.sum, a, block={"y": n}, halo=[[1, 2], [0, 0]], new_axis=[0])
    gzarr.blocks.join(a, overlap=n, block=numbers)

    # Arguments that are passed on.
    gzarr.require_array("x", shape=3, dtype="u1", chunks=2, device="cpu", allow_pickle=False, zarr_format=2)
    gzarr.require_group("x", device="cpu", attributes={"a": 1}), gzarr.group("x", path="g", overwrite=True)
    gzarr.open_consolidated("x", path="g", mode="r", use_consolidated=True, storage_options={})
    gzarr.zeros(3, dtype="u1", chunks=2), gzarr.ones(3, {}, path="x"), gzarr.full(3, 7, shards=2, overwrite=True)
    gzarr.empty(3, fill_value=1, zarr_format="3-draft-2022"), gzarr.array([1], chunks=1, fill_value=2, dtype="u1")
    gzarr.zeros_like(a, shape=3), gzarr.full_like(a, 1, dtype="u1"), gzarr.empty_like(a, "x", fill_value=2)
    gzarr.group().require_array("x", shape=3, chunks=2, fill_value=3, data=[1, 2, 3])


    class Bytes:
        def get(self, name: str) -> bytes | None:
            return None

        def get_partial_values(self, ranges: Sequence[tuple[str, ByteRange]]) -> list[bytes | None]:
            return []


    class Others:
        def get(self, key: str, default: None = None) -> memoryview | None:
            return default

        def get_partial_values(self, key_ranges: Sequence[tuple[str, ByteRange]]) -> tuple[bytearray, ...]:
            return ()


    gzarr.open(Bytes()), gzarr.open_array(Others())
    gzarr.CachedStore(Bytes(), "cache", max_bytes=1 << 30)
"""

WRONG = """
    import gzarr
    from gzarr.loader import Patches, Windows

    a = gzarr.open_array("x")
    gzarr.open(3)  # wrong
    gzarr.open([1])  # wrong
    gzarr.open(b"x")  # wrong
    gzarr.open(a)  # wrong
    gzarr.open(gzarr.open_group("x"))  # wrong
    gzarr.open(object())  # wrong
    gzarr.create_array("x", shape=3, dtype="u1", zarr_format="n5")  # wrong
    gzarr.create_group("x", zarr_format="n5")  # wrong
    gzarr.save("x", [1], zarr_format="n5")  # wrong
    gzarr.require_array("x", shape=3, chnks=2)  # wrong
    gzarr.require_group("x", atributes={})  # wrong
    gzarr.group("x", atributes={})  # wrong
    gzarr.open_consolidated("x", use_consolidated=False)  # wrong
    gzarr.open_consolidated("x", pth="g")  # wrong
    gzarr.group().require_array("x", shape=3, chnks=2)  # wrong
    gzarr.group().create_array("x", shape=3, chnks=2)  # wrong
    gzarr.array([1], chnks=2)  # wrong
    gzarr.zeros(3, ztype="u1")  # wrong
    gzarr.ones(3, chnks=2)  # wrong
    gzarr.full(3, 1, chnks=2)  # wrong
    gzarr.empty(3, chnks=2)  # wrong
    gzarr.zeros(3, fill_value=2)  # wrong
    gzarr.zeros_like(a, chnks=2)  # wrong
    gzarr.ones_like(a, chnks=2)  # wrong
    gzarr.full_like(a, 1, chnks=2)  # wrong
    gzarr.empty_like(a, chnks=2)  # wrong
    a.resize("3")  # wrong
    a.resize(3.5)  # wrong
    a.append([1], axis=0.5)  # wrong
    a.read_windows([[0]], 1.5)  # wrong
    Patches("32")  # wrong
    Patches((32.5, 32))  # wrong
    Windows(0, {"x": (0.5, 1)})  # wrong
    gzarr.Loader(a, batch_size=1.5)  # wrong
    gzarr.Loader(a, weights="12")  # wrong
    gzarr.map_blocks(abs, a, halo=1.5)  # wrong
    gzarr.map_blocks(abs, a, block="atuo")  # wrong
    gzarr.omee  # wrong
    gzarr.integrations.zar  # wrong
"""

FOREIGN = """
    import icechunk
    import obstore.store
    import zarr
    import zarr.storage
    from upath import UPath

    import gzarr

    gzarr.open(obstore.store.MemoryStore()), gzarr.open(obstore.store.LocalStore("x"))
    gzarr.open(obstore.store.from_url("s3://bucket"))
    gzarr.open(zarr.storage.MemoryStore()), gzarr.open(zarr.storage.LocalStore("x"))
    gzarr.open(zarr.storage.StorePath(zarr.storage.MemoryStore(), "x"))
    group = zarr.open_group("x")
    gzarr.open_group(group), gzarr.copy(group, "z"), gzarr.open_group(group.store)
    gzarr.open_array(zarr.create_array("y", shape=(1,), dtype="f4"))
    repository = icechunk.Repository.open(icechunk.in_memory_storage())
    gzarr.open(repository.readonly_session("main").store)
    gzarr.open(UPath("memory://x"))
    gzarr.save(UPath("memory://x"), [1])
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[int, str]]:
    """Check all programs at once; return the errors by file and line."""
    folder = tmp_path_factory.mktemp("programs")
    (folder / "mypy.ini").write_text(CONFIGURATION.format(root=ROOT))
    programs = {"right.py": RIGHT, "wrong.py": WRONG, "foreign.py": FOREIGN}
    for name, text in programs.items():
        (folder / name).write_text(dedent(text))
    run = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "--no-pretty", *programs]
    done = subprocess.run(
        run, cwd=folder, capture_output=True, text=True, env={**os.environ, "MYPY_CACHE_DIR": str(folder / "cache")}
    )
    assert done.returncode == 1, done.stdout + done.stderr
    errors: dict[str, dict[int, str]] = {name: {} for name in programs}
    for path, line, message in re.findall(r"^(.+?):(\d+): error: (.*)$", done.stdout, re.M):
        # An error elsewhere has a key of its own, and fails here.
        errors[path][int(line)] = message
    return errors


@pytest.mark.slow  # mypy is installed for one Python, which is enough.
def test_calls_that_work_are_accepted(found: dict[str, dict[int, str]]) -> None:
    assert found["right.py"] == {}


@pytest.mark.slow  # mypy is installed for one Python, which is enough.
def test_calls_that_fail_are_refused(found: dict[str, dict[int, str]]) -> None:
    lines = dedent(WRONG).splitlines()
    wrong = {number: line for number, line in enumerate(lines, 1) if line.endswith("# wrong")}
    accepted = [line for number, line in wrong.items() if number not in found["wrong.py"]]
    assert not accepted
    assert set(found["wrong.py"]) == set(wrong)


@pytest.mark.slow  # mypy is installed for one Python, which is enough.
def test_stores_of_other_packages_are_accepted(found: dict[str, dict[int, str]]) -> None:
    assert found["foreign.py"] == {}


class Buffers:
    """A store whose values are buffers of some kind, and several of them a tuple."""

    def __init__(self, values: dict[str, bytes], kind: Callable[[bytes], Any]) -> None:
        self._values, self._kind = values, kind

    def get(self, name: str) -> Any:
        value = self._values.get(name)
        return None if value is None else self._kind(value)

    def get_partial_values(self, ranges: Sequence[tuple[str, ByteRange]]) -> tuple[Any, ...]:
        return tuple(self._part(name, part) for name, part in ranges)

    def _part(self, name: str, part: ByteRange) -> Any:
        value = self._values.get(name)
        if value is None:
            return None
        begin = part.offset % len(value) if value else 0
        return self._kind(value[begin:] if part.length is None else value[begin : begin + part.length])


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("shards", [None, (8, 8)])
def test_values_may_be_buffers_of_any_kind(kind: Callable[[bytes], Any], shards: tuple[int, int] | None) -> None:
    values: dict[str, bytes] = {}
    data = np.arange(256.0).reshape(16, 16)
    gzarr.create_array(values, path="x", data=data, chunks=(4, 4), shards=shards, attributes={"a": 1})
    gzarr.create_array(values, path="texts", data=np.array(["a", "bb"] * 8), chunks=4)
    group = gzarr.open_group(Buffers(values, kind))
    x = group["x"]
    assert isinstance(x, gzarr.Array)
    assert x.attrs["a"] == 1
    assert np.array_equal(x[3:9, 2:7], data[3:9, 2:7])
    assert gzarr.open_array(Buffers(values, kind), path="texts")[1:4].tolist() == ["bb", "a", "bb"]
