"""The fast path of small writes: whole chunks that are files. zarr-python reads what was written."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr
from support import zarr_arrays as z
from support.forks import in_child

import gzarr
from gzarr.engines.cpu import native_write, small_writes, write_job, write_threads
from gzarr.errors import ChunkWriteError, ReadOnlyError
from gzarr.stores.temporary_names import TEMPORARY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.skipif("files" not in native_write.available(), reason="needs the compiled loop")

#: The last chunks along the first axis are cut.
SHAPE, CHUNKS = (22, 12, 8), (4, 3, 4)
ZSTD = z.codec("zstd", level=3, checksum=False)
CODECS: dict[str, list[z.Json]] = {
    "raw": [z.LITTLE],
    "big": [z.codec("bytes", endian="big"), ZSTD],
    "transposed": [z.codec("transpose", order=[1, 2, 0]), z.LITTLE, z.blosc3("lz4", "shuffle", 2)],
    "checked": [z.LITTLE, ZSTD, z.CRC32C],
}


@pytest.fixture
def only_quickly(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function after whose call the normal path fails."""

    def forbid() -> None:
        for module in (native_write, write_threads):
            monkeypatch.setattr(module, "write", lambda *_, **__: pytest.fail("written by the normal path"))

    return forbid


def create(
    path: Path, codecs: list[z.Json], dtype: str = "uint16", separator: str = "/", **options: Any
) -> gzarr.Array:
    path.mkdir(parents=True)
    keys = z.codec("default", separator=separator)
    fill: Any = {"bool": False, "complex128": [0, 0]}.get(dtype, 0)
    (path / "zarr.json").write_text(json.dumps(z.v3(SHAPE, CHUNKS, dtype, codecs, fill, keys)))
    array = gzarr.open_array(path, mode="r+", device="cpu")
    return gzarr.Array(array.metadata, array.store, array.path, device="cpu", mode="r+", **options)


def boxes() -> list[tuple[slice, ...]]:
    """All boxes of whole chunks that no axis cuts, of up to two chunks along each axis."""
    along = [
        [slice(i * c, (i + n) * c) for n in (1, 2) for i in range(s // c - n + 1)]
        for s, c in zip(SHAPE, CHUNKS, strict=True)
    ]
    return list(itertools.product(*along))


@pytest.mark.parametrize("layout", ["C", "F", "part", "reversed", "one"])
@pytest.mark.parametrize("codecs", CODECS)
def test_every_box(codecs: str, layout: str, tmp_path: Path, only_quickly: Callable[[], None]) -> None:
    a = create(tmp_path / "a", CODECS[codecs], separator="." if layout == "C" else "/")
    only_quickly()
    expected = np.zeros(SHAPE, "u2")
    random = np.random.default_rng(0)
    some = boxes()
    for which in random.permutation(len(some))[:60].tolist():
        box = some[which]
        shape = expected[box].shape
        # Now and then chunks that hold the fill value alone, which are erased.
        value: Any = random.integers(0, 1000, shape, dtype="u2") * (random.random() < 0.8)
        if layout == "F":
            value = np.asfortranarray(value)
        elif layout == "part":
            whole = np.full([n + 3 for n in shape], 7, "u2")
            whole[1:-2, 1:-2, 1:-2] = value
            value = whole[1:-2, 1:-2, 1:-2]
        elif layout == "reversed":
            value = value[::-1, :, ::-1]
        elif layout == "one":
            value = int(value.flat[0])
        a[box] = value
        expected[box] = value
    z.same(zarr.open_array(tmp_path / "a", mode="r")[...], expected)
    z.same(a[...], expected)
    stored = {p.relative_to(tmp_path / "a" / "c").as_posix().replace(".", "/") for p in chunk_files(tmp_path / "a")}
    assert stored == {
        "/".join(map(str, at))
        for at in np.ndindex(*(-(-n // c) for n, c in zip(SHAPE, CHUNKS, strict=True)))
        if expected[tuple(slice(i * c, (i + 1) * c) for i, c in zip(at, CHUNKS, strict=True))].any()
    }


def chunk_files(path: Path) -> list[Path]:
    if not (path / "c").is_dir():
        # With ".", the names of files begin with "c.".
        (path / "c").mkdir()
        for file in path.glob("c.*"):
            file.rename(path / "c" / file.name[2:])
    return [file for file in (path / "c").rglob("*") if file.is_file()]


@pytest.mark.parametrize("dtype", ["bool", "float32", "complex128", "int64"])
def test_data_types(dtype: str, tmp_path: Path, only_quickly: Callable[[], None]) -> None:
    a = create(tmp_path / "a", [z.codec("bytes", endian="big"), ZSTD], dtype)
    only_quickly()
    data = z.sample((8, 6, 8), a.dtype)
    a[4:12, 3:9] = data
    z.same(zarr.open_array(tmp_path / "a", mode="r")[4:12, 3:9], data)


def test_version_2(tmp_path: Path, only_quickly: Callable[[], None]) -> None:
    theirs = zarr.create_array(tmp_path, shape=(12, 8), chunks=(4, 4), dtype=">i4", zarr_format=2, order="F")
    a = gzarr.open_array(tmp_path, mode="r+", device="cpu")
    only_quickly()
    data = np.arange(64, dtype="i4").reshape(8, 8)
    a[4:] = data
    np.testing.assert_array_equal(theirs[4:], data)


def test_fill_values_are_stored_on_request(tmp_path: Path, only_quickly: Callable[[], None]) -> None:
    a = create(tmp_path / "a", CODECS["checked"], write_empty_chunks=True)
    only_quickly()
    a[:8, :6] = 0
    assert len(chunk_files(tmp_path / "a")) == 8


def test_slabs(tmp_path: Path, only_quickly: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Uncompressed chunks are written in parts; those that begin with fill values are stored completely."""
    monkeypatch.setattr(write_job, "_LEAST_SLABS_BYTES", 0)
    monkeypatch.setattr(write_job, "_SLAB_BYTES", 24)
    a = create(tmp_path / "a", CODECS["raw"])
    only_quickly()
    data = np.zeros((8, 6, 8), "u2")
    data[2] = 3
    a[:8, :6] = data
    z.same(zarr.open_array(tmp_path / "a", mode="r")[:8, :6], data)


def test_other_writes_take_the_normal_path(tmp_path: Path) -> None:
    a = create(tmp_path / "a", CODECS["checked"])
    expected = np.zeros(SHAPE, "u2")
    random = np.random.default_rng(1)
    for box in (np.s_[20:, :3], np.s_[1:5], np.s_[:8:2], np.s_[:, 2], np.s_[..., 0], np.s_[5, 5, 5]):
        value = random.integers(1, 1000, expected[box].shape, dtype="u2")
        a[box] = value
        expected[box] = value
    z.same(zarr.open_array(tmp_path / "a", mode="r")[...], expected)


@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_failed_write(threads: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The normal path reports the error. Every chunk is the old one or the new one, and no temporary file is left."""
    monkeypatch.setenv("GZARR_THREADS", threads)
    monkeypatch.setattr(small_writes, "FEW_BYTES", 0)
    a = create(tmp_path / "a", CODECS["checked"])
    a[...] = 1
    blocked = tmp_path / "a" / "c" / "1" / "1" / "0"
    blocked.unlink()
    (blocked / "x").mkdir(parents=True)
    with pytest.raises(ChunkWriteError, match=r"c/1/1/0"):
        a[:8, :6] = 2
    (blocked / "x").rmdir()
    blocked.rmdir()
    assert set(np.unique(a[...]).tolist()) <= {0, 1, 2}
    assert not list(tmp_path.rglob(f"{TEMPORARY}*"))
    a[:8, :6] = 3
    assert (a[:8, :6] == 3).all()


def test_a_store_that_fails_to_erase(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a = create(tmp_path / "a", CODECS["checked"])
    a[...] = 1

    def erase(self: object, key: str) -> None:
        raise OSError(5, f"no {key}")

    monkeypatch.setattr(gzarr.LocalStore, "erase", erase)
    with pytest.raises(ChunkWriteError, match="no c/0/0/0"):
        a[:4, :3, :4] = 0
    assert (a[:4, :3, :4] == 1).all()


def test_a_store_that_becomes_read_only(tmp_path: Path) -> None:
    a = create(tmp_path / "a", CODECS["checked"])
    a[:4] = 1
    a.store.read_only = True  # type: ignore[attr-defined]
    with pytest.raises(ReadOnlyError):
        a[:4] = 2
    assert (a[:4] == 1).all()


def test_a_forked_child(tmp_path: Path, only_quickly: Callable[[], None]) -> None:
    """Its temporary files have names of its own."""
    a = create(tmp_path / "a", CODECS["checked"])
    a[:8, :6] = 1
    only_quickly()

    def work() -> None:
        writer = a.store.file_writer()  # type: ignore[attr-defined]
        a[:8, :6] = 2
        assert a._writer._small_writes._temporary == writer.temporary_prefix()  # type: ignore[union-attr]

    before = a._writer._small_writes._temporary  # type: ignore[union-attr]
    assert in_child(work) == 0
    assert (a[:8, :6] == 2).all()
    a[:8, :6] = 3
    assert a._writer._small_writes._temporary == before  # type: ignore[union-attr]


def test_leftovers_of_killed_writers_are_removed(tmp_path: Path, only_quickly: Callable[[], None]) -> None:
    path = tmp_path / "a"
    a = create(path, CODECS["checked"])
    only_quickly()
    (path / "c/0/0").mkdir(parents=True)
    prefix = subprocess.run(
        [sys.executable, "-c", "from gzarr.stores.temporary_names import temporary_prefix; print(temporary_prefix())"],
        stdout=subprocess.PIPE, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    left = path / "c/0/0" / f"{prefix}0123456789abcdef"
    left.write_bytes(b"x")
    a[:4, :3] = 1
    assert not left.exists()
    z.same(zarr.open_array(path, mode="r")[:4, :3], np.ones((4, 3, 8), "u2"))


def test_threads(tmp_path: Path, only_quickly: Callable[[], None]) -> None:
    """Writers of the same chunks take turns: each is of one of them."""
    a = create(tmp_path / "a", CODECS["checked"])
    only_quickly()

    def write(i: int) -> None:
        a[:8, :6] = i
        a[4:12, 3:9] = 100 + i

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(write, range(1, 40)))
    found = zarr.open_array(tmp_path / "a", mode="r")[...]
    for at in np.ndindex(5, 4, 2):
        chunk = found[tuple(slice(i * c, (i + 1) * c) for i, c in zip(at, CHUNKS, strict=True))]
        assert len(np.unique(chunk)) == 1
    assert (found[:8, :6] > 0).all()
    assert (found[4:12, 3:9] > 0).all()


def test_without_memory_the_normal_path_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a = create(tmp_path / "a", CODECS["checked"])

    def no_memory(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(small_writes.SmallWrites, "_run", no_memory)
    a[:4, :3] = 1
    assert (a[:4, :3] == 1).all()


def test_a_store_that_becomes_durable(tmp_path: Path) -> None:
    a = create(tmp_path / "a", CODECS["checked"])
    a[:4] = 1
    a.store.durable = True  # type: ignore[attr-defined]
    writer = a._writer._small_writes
    assert writer is not None
    assert not writer.write([((0, 0, 4, 0), (0, 0, 3, 0), (0, 0, 4, 0))], np.ones((4, 3, 4), "u2"))
    a[:4] = 2
    assert (a[:4] == 2).all()
