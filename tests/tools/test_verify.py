"""``gzarr verify``: every damaged chunk, shard and document is reported, whatever else is damaged, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr
from support import zarr_arrays as z

import gzarr
from gzarr.cli.main import main
from gzarr.errors import ArgumentError, NodeNotFoundError, StoreError
from gzarr.stores.memory import MemoryStore
from gzarr.tools.verify import verify

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

LITTLE_ZSTD = [z.LITTLE, z.codec("zstd", level=1, checksum=True)]
DATA = z.sample((50, 41), "i4")


def hierarchy(path: Path) -> Path:
    """Write arrays of several kinds to a group, with zarr-python."""
    group = zarr.open_group(path, mode="w")
    group.create_group("deep/er")
    z.write(path / "plain", z.v3((50, 41), (16, 16), "int32", LITTLE_ZSTD), DATA)
    z.write(path / "deep/blosc", z.v3((50, 41), (16, 16), "int32", [z.LITTLE, z.blosc3("lz4", "shuffle", 4)]), DATA)
    z.write(path / "deep/er/shards", z.v3((50, 41), (32, 32), "int32", [z.shard([8, 8], LITTLE_ZSTD)]), DATA)
    z.write(path / "deep/er/crc", z.v3((50, 41), (20, 20), "int32", [z.LITTLE, z.CRC32C]), DATA)
    return path


def flip(path: Path, offset: int) -> None:
    """Invert the bits of one byte of a file."""
    data = bytearray(path.read_bytes())
    data[offset] ^= 0xFF
    path.write_bytes(data)


def found(store: Any, **options: Any) -> list[tuple[str, str, str | None, tuple[int, ...] | None]]:
    return [(p.kind, p.node, p.key, p.chunk) for p in verify(store, **options)]


def run(*args: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gzarr", "verify", *map(str, args)]
    return subprocess.run(command, capture_output=True, encoding="utf-8", env=os.environ, check=False)


def test_nothing_is_wrong(tmp_path: Path) -> None:
    path = hierarchy(tmp_path / "x")
    verification_of = verify(path)
    assert list(verification_of) == []
    assert (verification_of.arrays, verification_of.groups) == (4, 3)
    assert verification_of.chunks == 4 * 3 + 4 * 3 + 2 * 2 + 3 * 3
    # Another kind of store, where values are not files.
    assert found(z.in_memory(path)) == []
    assert found(path, path="deep/er", missing="error") == []


def test_every_bad_chunk_is_listed(tmp_path: Path) -> None:
    path = hierarchy(tmp_path / "x")
    flip(path / "plain/c/0/1", -6)
    (path / "plain/c/3/2").write_bytes(b"")
    flip(path / "deep/blosc/c/1/1", 3)
    flip(path / "deep/er/crc/c/2/2", 100)
    expected = [
        ("chunk", "/deep/blosc", "deep/blosc/c/1/1", (1, 1)),
        ("chunk", "/deep/er/crc", "deep/er/crc/c/2/2", (2, 2)),
        ("chunk", "/plain", "plain/c/0/1", (0, 1)),
        ("chunk", "/plain", "plain/c/3/2", (3, 2)),
    ]
    assert sorted(found(path)) == expected
    assert sorted(found(z.in_memory(path))) == expected
    assert sorted(found(path, path="plain")) == expected[2:]


def test_damage_beyond_the_end_of_the_array_is_found(tmp_path: Path) -> None:
    """A read skips unneeded blocks of a container."""
    document = z.v3((10,), (100_000,), "int32", [z.LITTLE, z.blosc3("lz4", "shuffle", 4, blocksize=1 << 14)])
    store = tmp_path / "x"
    z.write(store, document, np.arange(10, dtype="i4"))
    array = zarr.open_array(store, mode="r+")
    # What lies beyond the end is data, as a larger array leaves it behind.
    array.resize((100_000,))
    array[...] = z.sample((100_000,), "i4")
    array.resize((10,))
    flip(store / "c/0", -40)
    assert found(store) == [("chunk", "/", "c/0", (0,))]


def test_shards(tmp_path: Path) -> None:
    path = hierarchy(tmp_path / "x") / "deep/er/shards"
    key = "c/0/1"
    shard = (path / key).read_bytes()
    index = np.frombuffer(shard[-4 - 16 * 16 : -4], "<u8").reshape(4, 4, 2)
    # Two inner chunks of one shard: of the second, the bytes; of the first, where it is.
    flip(path / key, int(index[1, 0].sum()) - 2)
    assert found(path) == [("chunk", "/", key, (1, 4))]
    flip(path / key, int(index[3, 1].sum()) - 2)
    assert found(path) == [("chunk", "/", key, (1, 4)), ("chunk", "/", key, (3, 5))]
    # The index of another shard, which is then one problem, not one a chunk.
    flip(path / "c/1/0", -1)
    assert sorted(found(path), key=str) == [
        ("chunk", "/", "c/0/1", (1, 4)),
        ("chunk", "/", "c/0/1", (3, 5)),
        ("chunk", "/", "c/1/0", None),
    ]
    (path / key).write_bytes(shard[:50])
    assert sorted(found(path), key=str) == [("chunk", "/", "c/0/1", None), ("chunk", "/", "c/1/0", None)]


@pytest.mark.parametrize("batch_bytes", [1, 4 << 10, 64 << 20])
def test_batches_of_any_size_find_the_same(batch_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = hierarchy(tmp_path / "x")
    flip(path / "plain/c/0/1", -6)
    shard = path / "deep/er/shards/c/1/1"
    flip(shard, 40)
    monkeypatch.setattr("gzarr.tools.verify.BATCH_BYTES", batch_bytes)
    problems = found(path)
    assert len(problems) == 2
    assert {p[1] for p in problems} == {"/plain", "/deep/er/shards"}


def test_documents_that_cannot_be_used_are_problems_and_no_end(tmp_path: Path) -> None:
    path = hierarchy(tmp_path / "x")
    (path / "deep/blosc/zarr.json").write_text('{"zarr_format": 3, "node_type": "array"}')
    (path / "deep/er/crc/zarr.json").write_bytes(b"\0\1\2")
    flip(path / "plain/c/0/1", -6)
    problems = list(verify(path))
    assert [(p.kind, p.node, p.key) for p in problems] == [
        ("metadata", "/deep/blosc", "deep/blosc/zarr.json"),
        ("metadata", "/deep/er/crc", "deep/er/crc/zarr.json"),
        ("chunk", "/plain", "plain/c/0/1"),
    ]
    assert all(p.reason and p.node in str(p) for p in problems)


def test_missing_chunks_are_listed_when_asked_for(tmp_path: Path) -> None:
    path = hierarchy(tmp_path / "x")
    (path / "plain/c/1/2").unlink()
    (path / "deep/er/shards/c/1/1").unlink()
    document = z.v3((8, 8), (8, 8), "int32", [z.shard([4, 4], LITTLE_ZSTD)])
    partly = np.zeros((8, 8), "i4")
    partly[4:, :4] = 1
    with zarr.config.set({"array.write_empty_chunks": False}):
        z.write(path / "partly", document, None)
        zarr.open_array(path / "partly", mode="r+")[...] = partly
    assert found(path) == []
    expected = [
        ("missing", "/deep/er/shards", "deep/er/shards/c/1/1", None),
        ("missing", "/partly", "partly/c/0/0", (0, 0)),
        ("missing", "/partly", "partly/c/0/0", (0, 1)),
        ("missing", "/partly", "partly/c/0/0", (1, 1)),
        ("missing", "/plain", "plain/c/1/2", (1, 2)),
    ]
    assert found(path, missing="error") == expected


class Unlisted:
    """A store that supports only reading."""

    def __init__(self, values: dict[str, bytes]) -> None:
        self._store = MemoryStore(values)

    def get(self, key: str) -> bytes | None:
        return self._store.get(key)

    def get_partial_values(self, key_ranges: Any) -> list[bytes | None]:
        return self._store.get_partial_values(key_ranges)


def test_store_that_cannot_list(tmp_path: Path) -> None:
    path = hierarchy(tmp_path / "x")
    flip(path / "plain/c/0/1", -6)
    (path / "plain/c/1/1").unlink()
    values = z.in_memory(path / "plain")
    assert found(Unlisted(values)) == [("chunk", "/", "c/0/1", (0, 1))]
    assert sorted(found(Unlisted(values), missing="error")) == [
        ("chunk", "/", "c/0/1", (0, 1)),
        ("missing", "/", "c/1/1", (1, 1)),
    ]
    (problem,) = verify(Unlisted(z.in_memory(path)))
    assert (problem.kind, problem.node) == ("store", "/")


class Refusing(MemoryStore):
    """A store that fails to return some values, or to list all groups."""

    def get(self, key: str) -> bytes | None:
        if "refused" in key and "/c/" in key:
            raise StoreError(f"{self!r} refuses", key=key)
        return super().get(key)

    def list_dir(self, prefix: str) -> Any:
        if "refused" in prefix:
            raise StoreError(f"{self!r} refuses to list", key=prefix)
        return super().list_dir(prefix)


def test_a_store_that_refuses_is_a_problem_and_no_end(tmp_path: Path) -> None:
    path = hierarchy(tmp_path / "x")
    values = z.in_memory(path)
    for key in list(values):
        if key.startswith("deep/er/"):
            values[key.replace("deep/er", "deep/refused")] = values[key]
    flip(path / "plain/c/0/1", -6)
    values["plain/c/0/1"] = (path / "plain/c/0/1").read_bytes()
    values["plain/c/1/refused"] = b""
    assert found(Refusing(values)) == [
        ("store", "/deep/refused", "deep/refused/", None),
        ("chunk", "/plain", "plain/c/0/1", (0, 1)),
    ]
    refused = {"refused/" + key: value for key, value in z.in_memory(path / "plain").items()}
    problems = list(verify(Refusing(refused), path="refused"))
    assert len(problems) == 12
    assert all("the store failed" in problem.reason for problem in problems)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_odd_arrays(zarr_format: Any, tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path / "x", mode="w", zarr_format=zarr_format)
    group.create_array("scalar", shape=(), dtype="f8")[...] = 2.5
    group.create_array("none", shape=(0, 3), chunks=(1, 3), dtype="i8")
    group.create_array("text", shape=(5,), chunks=(2,), dtype=str)[...] = np.array(["a", "bb", "", "ü", "x"], object)
    verification_of = verify(tmp_path / "x")
    assert list(verification_of) == []
    assert verification_of.chunks == 4
    (key,) = [k for k in ("scalar/c", "scalar/0") if (tmp_path / "x" / k).exists()]
    (tmp_path / "x" / key).write_bytes(b"nothing")
    assert found(tmp_path / "x") == [("chunk", "/scalar", key, ())]


def test_arguments() -> None:
    with pytest.raises(NodeNotFoundError):
        verify({})
    with pytest.raises(ArgumentError, match="missing"):
        verify({}, missing=True)  # type: ignore[arg-type]


def test_command_line(tmp_path: Path) -> None:
    path = hierarchy(tmp_path / "x")
    result = run(path)
    assert result.returncode == 0
    assert result.stdout.splitlines() == [
        "12 stored chunks without a checksum: damage that can still be decoded is not found there",
        "37 stored chunks of 4 arrays: no problems",
    ]
    flip(path / "plain/c/0/1", -6)
    (path / "plain/c/1/1").unlink()
    result = run(path, "--path", "plain")
    assert result.returncode == 1
    bad, summary = result.stdout.splitlines()
    assert bad.startswith("chunk: /plain, chunk (0, 1), key 'plain/c/0/1': ")
    assert summary == "11 stored chunks of 1 array: 1 problem"
    result = run(path, "--json", "--missing", "error")
    document = json.loads(result.stdout)
    assert (result.returncode, document["ok"], document["chunks"]) == (1, False, 36)
    assert [p["kind"] for p in document["problems"]] == ["chunk", "missing"]
    assert document["problems"][1]["chunk"] == [1, 1]
    assert run(tmp_path / "nothing").returncode == 1
    assert gzarr.open(path)["plain"].shape == (50, 41)


def test_chunks_without_a_checksum_are_counted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    checked = {"gzip", "crc32c", "checked zstd", "bz2", "lzma", "shards", "zlib", "fletcher32"}
    zstd = {"name": "zstd", "configuration": {"level": 1, "checksum": True}}
    codecs: dict[str, Any] = {
        "none": [],
        "blosc": ["blosc"],
        "zstd": ["zstd"],
        "lz4": [{"id": "lz4"}],
        "gzip": ["gzip"],
        "zlib": [{"id": "zlib"}],
        "bz2": [{"id": "bz2"}],
        "lzma": [{"id": "lzma"}],
        "raw lzma": [{"id": "lzma", "format": 3, "filters": [{"id": 33, "preset": 1}]}],
        "fletcher32": [{"id": "fletcher32"}],
        "crc32c": ["crc32c"],
        "checked zstd": [zstd],
        "shards": [zstd],
        "shards without": ["zstd"],
    }
    for name, chain in codecs.items():
        shards = {"shards": 4} if "shards" in name else {}
        data = np.arange(8, dtype="u1")
        path = tmp_path / name
        gzarr.create_array(path, data=data, chunks=2, codecs=chain, **shards)
        found = verify(path)
        assert list(found) == []
        assert found.unchecked == (0 if name in checked else found.chunks), name
        # What has a checksum is indeed found to be damaged, whichever byte of the data it is; raw elements are not.
        key = next(key for key in (path / "c").iterdir() if key.is_file())
        value = bytearray(key.read_bytes())
        value[len(value) // 2 if name == "none" else 0] ^= 1
        if name in ("none", "crc32c", "fletcher32"):
            key.write_bytes(value)
            assert bool(list(verify(path))) == (name in checked), name
    assert main(["verify", str(tmp_path / "blosc")]) == 0
    assert "4 stored chunks without a checksum: damage that can still" in capsys.readouterr().out
    assert main(["verify", str(tmp_path / "gzip"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["unchecked"] == 0


def test_a_shard_is_checked_with_its_index() -> None:
    """At each level: an index without a checksum may lose an entry, and its chunk reads as missing."""
    with_checksum, without = [z.LITTLE, z.CRC32C], [z.LITTLE]
    for outer, inner, last, is_checked in (
        (with_checksum, with_checksum, [], True),
        (without, with_checksum, [], False),
        (with_checksum, without, [], False),
        (without, without, [z.CRC32C], True),
    ):
        chain = [z.shard([2], [z.LITTLE, z.CRC32C], index=inner)]
        store: dict[str, Any] = {}
        codecs = [z.shard([4], chain, index=outer), *last]
        gzarr.create_array(store, data=np.arange(1, 9, dtype="i4"), chunks=8, codecs=codecs, zarr_format=3)
        checked = verify(store)
        assert list(checked) == []
        assert checked.unchecked == (0 if is_checked else 1)
