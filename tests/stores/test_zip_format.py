"""Damaged and hostile zip archives: an error of gzarr soon and in bounded memory, or the same as zipfile reads."""

from __future__ import annotations

import io
import random
import struct
import time
import tracemalloc
import warnings
import zipfile
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support import zip_archives
from support.zip_archives import elements

import gzarr
from gzarr.errors import ChunkError, GzarrError, StoreError, ValueSizeError
from gzarr.stores import ByteRange, MemoryStore, zip_format
from gzarr.stores.zip_store import zip_in

if TYPE_CHECKING:
    from pathlib import Path

METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)


def archive_of(values: dict[str, bytes], method: int = zipfile.ZIP_STORED, **fields: Any) -> bytes:
    """Return an archive by zipfile, whose entries have some fields of ``ZipInfo`` set."""
    target = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(target, "w") as archive:
        warnings.simplefilter("ignore")
        for name, value in values.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = method
            archive.writestr(info, value)
            for field, changed in fields.items():
                setattr(info, field, changed)
    return target.getvalue()


def in_memory(raw: bytes) -> Any:
    return zip_in(MemoryStore({"k": raw}), "k")


def random_archive(rng: random.Random) -> bytes:
    target = io.BytesIO()
    if rng.random() < 0.2:
        target.write(rng.randbytes(rng.randrange(1, 50)))
    with zipfile.ZipFile(target, "a" if target.tell() else "w") as archive:
        for _ in range(rng.randrange(6)):
            name = rng.choice(["a", "b/c", "zarr.json", "é", "../up", "dir/", "/root"]) + rng.choice(["", "1"])
            info = zipfile.ZipInfo(name)
            info.compress_type = rng.choice(METHODS)
            info.extra = rng.choice([b"", b"\xfe\xca\x03\0abc"])
            with archive.open(info, "w", force_zip64=rng.random() < 0.2) as entry:
                entry.write(rng.choice([rng.randbytes(rng.randrange(40)), bytes(rng.randrange(3000))]))
        archive.comment = rng.choice([b"", rng.randbytes(10)])
    return target.getvalue()


def damaged(raw: bytes, rng: random.Random) -> bytes:
    data = bytearray(raw)
    for _ in range(rng.choice([0, 1, 1, 1, 2, 5])):
        # Mostly near the end, where the directory is.
        i = rng.randrange(len(data)) if rng.random() < 0.5 else len(data) - 1 - rng.randrange(min(len(data), 150))
        what = rng.random()
        if what < 0.5:
            data[i] = rng.choice([rng.randrange(256), 0, 255, data[i] ^ 1 << rng.randrange(8)])
        elif what < 0.65:
            del data[i : i + rng.randrange(1, 40)]
        elif what < 0.8:
            data[i:i] = rng.randbytes(rng.randrange(1, 20))
        elif what < 0.9:
            del data[i:]
        else:
            data[i : i + 4] = b"\xff" * 4
        data = data or bytearray(b"x")
    return bytes(data)


@pytest.mark.parametrize("seed", range(4))
def test_damaged_archives(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    path = tmp_path / "x.zip"
    outcomes = {"opened": 0, "read": 0, "refused": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(25):
            raw = random_archive(rng)
            for _ in range(20):
                data = damaged(raw, rng)
                path.write_bytes(data)
                compare(data, path, outcomes)
    assert min(outcomes.values()) > 100


def compare(data: bytes, path: Path, outcomes: dict[str, int]) -> None:
    try:
        oracle = zipfile.ZipFile(io.BytesIO(data))
    except (zipfile.BadZipFile, ValueError, NotImplementedError, struct.error, OverflowError):
        oracle = None
    begin = time.monotonic()
    for store in (lambda: gzarr.ZipStore(path), lambda: in_memory(data)):
        try:
            opened = store()
        except GzarrError:
            outcomes["refused"] += 1
            continue
        outcomes["opened"] += 1
        keys = list(opened.list())
        # Names as they are: zipfile cuts them at a NUL.
        infos = {} if oracle is None else {info.orig_filename: info for info in oracle.infolist()}
        if oracle is not None:
            assert {name for name in infos if is_key(name)} == set(keys)
        for key in keys:
            try:
                value = opened.get(key)
            except StoreError:
                outcomes["refused"] += 1
                continue
            if key in infos and oracle is not None:
                try:
                    expected = oracle.read(infos[key])
                # Whatever zipfile raises here, it does not read the entry.
                except Exception:
                    continue
                assert value == expected
                outcomes["read"] += 1
            extents = opened.extents([key], parts=True)
            if extents is not None:
                offset, nbytes = int(extents.offset[0]), int(extents.nbytes[0])
                assert data[offset : offset + nbytes] == value
            assert opened.get_partial_values([(key, ByteRange())]) == [value]
        assert opened.get("absent") is None
    assert time.monotonic() - begin < 20


def is_key(name: str) -> bool:
    return not any(part in ("", ".", "..") or "\0" in part for part in name.split("/"))


def test_names_that_would_leave_the_root_are_no_keys() -> None:
    names = ["../a", "/a", "a/../b", "a//b", "./a", "a/", "ok", "é\\x"]
    store = in_memory(archive_of(dict.fromkeys(names, b"1")))
    assert list(store.list()) == ["ok", "é\\x"]
    for name in names[:6]:
        with pytest.raises(gzarr.ArgumentError):
            store.get(name)


def test_the_last_of_several_entries_of_one_name_wins() -> None:
    target = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(target, "w") as archive:
        warnings.simplefilter("ignore")
        for value in (b"first", b"second"):
            archive.writestr("k", value)
    store = in_memory(target.getvalue())
    assert store.get("k") == b"second"
    assert list(store.list()) == ["k"]


def test_a_comment_that_looks_like_an_end() -> None:
    raw = bytearray(archive_of({"k": b"1"}))
    comment = b"PK\5\6" + bytes(30)
    raw[-2:] = struct.pack("<H", len(comment))
    assert in_memory(bytes(raw) + comment).get("k") == b"1"


def test_names_of_old_writers() -> None:
    """Without the flag of UTF-8, names are in code page 437."""
    raw = archive_of({"aXb": b"1"}).replace(b"aXb", b"a\x82b")
    assert in_memory(raw).get("aéb") == b"1"
    assert in_memory(raw).extents(["aéb"], parts=True) is not None
    with pytest.raises(StoreError, match="not UTF-8"):
        in_memory(archive_of({"aéb": b"1"}).replace("é".encode(), b"\xff\xff"))


def with_unicode_name(target: io.BytesIO, raw: bytes, name: bytes, *, crc: int | None = None, version: int = 1) -> None:
    """Write an archive of one value as Info-ZIP does: a name in another code, and beside it the one in UTF-8."""
    crc = zlib.crc32(raw) if crc is None else crc
    fields = struct.pack("<2HBB", 0x5455, 2, 7, 7) + struct.pack("<2HBL", 0x7075, 5 + len(name), version, crc) + name
    sizes = zlib.crc32(b"value"), 5, 5, len(raw)
    local = struct.pack("<4s5H3L2H", b"PK\3\4", 10, 0, 0, 0, 0, *sizes, 0) + raw + b"value"
    record = struct.pack("<4s6H3L5H2L", b"PK\1\2", 0, 10, 0, 0, 0, 0, *sizes, len(fields), 0, 0, 0, 0, 0) + raw + fields
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, len(record), len(local), 0)
    target.write(local + record + end)


@pytest.mark.parametrize("raw", [b"d/\x8e\x9f", b"#U65e5", "日本".encode()], ids=["code", "escaped", "utf8"])
def test_names_beside_those_in_another_code(raw: bytes, tmp_path: Path) -> None:
    target = io.BytesIO()
    with_unicode_name(target, raw, "日本/c".encode())
    store = in_memory(target.getvalue())
    assert list(store.list()) == ["日本/c"]
    assert store.get("日本/c") == b"value"
    assert store.get_partial_values([("日本/c", ByteRange(1, 2))]) == [b"al"]
    for suffix in ("zip", "ozx"):
        path = tmp_path / f"x.{suffix}"
        path.write_bytes(target.getvalue())
        with gzarr.ZipStore(path, mode="a") as store:
            store.set("é", b"more")
            assert store.get("日本/c") == b"value"
        assert {key: gzarr.ZipStore(path).get(key) for key in gzarr.ZipStore(path).list()} == {
            "日本/c": b"value", "é": b"more"
        }  # fmt: skip
        with zipfile.ZipFile(path) as archive:
            assert archive.testzip() is None
            assert suffix == "zip" or set(archive.namelist()) == {"日本/c", "é"}


def test_names_that_are_not_of_the_entry() -> None:
    """Of a name before it was changed by a program that does not know the field, of another version, not UTF-8."""
    wrong: list[tuple[bytes, dict[str, int]]] = [(b"x", {"crc": 1}), (b"x", {"version": 2}), (b"\xff", {})]
    for name, fields in wrong:
        target = io.BytesIO()
        with_unicode_name(target, b"k", name, **fields)
        assert list(in_memory(target.getvalue()).list()) == ["k"]
        assert in_memory(target.getvalue()).get("k") == b"value"
    target = io.BytesIO()
    with_unicode_name(target, b"k", b"../k")
    assert list(in_memory(target.getvalue()).list()) == []


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"flag_bits": 1}, "encrypted"),
        ({"compress_type": 14}, "lzma, method 14 of zip"),
        ({"compress_type": 93}, "zstd, method 93 of zip"),
        ({"compress_type": 77}, "method 77 of zip"),
        ({"header_offset": 5}, "no header of it at byte 5|overlap"),
        ({"header_offset": 1 << 40}, "overlap|leave the file"),
        ({"CRC": 7}, "CRC-32"),
        ({"file_size": 7}, "it is stored, but has"),
        ({"compress_size": 1 << 40, "file_size": 1 << 40}, "overlap|leave the file"),
    ],
)
def test_entries_that_cannot_be_read(fields: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    path.write_bytes(archive_of({"k": b"value"}, **fields))
    for store in (gzarr.ZipStore(path), in_memory(path.read_bytes())):
        with pytest.raises(StoreError, match=message) as info:
            store.get("k")
        assert info.value.key == "k"
        assert store.extents(["k"], parts=False) is None or "CRC" in fields


def test_chunks_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    zip_archives.by_zarr(path)
    raw = path.read_bytes()
    name = b"chunked/c/1/2"
    # The method, in the directory's record of this chunk.
    at = raw.rfind(b"PK\1\2", 0, raw.rfind(name))
    path.write_bytes(raw[: at + 10] + b"\x5d" + raw[at + 11 :])
    array = gzarr.open_array(path, path="chunked", device="cpu")
    with pytest.raises(ChunkError, match="zstd, method 93") as info:
        array[...]
    assert (info.value.chunk, info.value.key) == ((1, 2), name.decode())
    np.testing.assert_array_equal(array[:30], elements()[:30])
    # Another entry's header where this one's should be.
    header = raw.index(name) - 30
    path.write_bytes(raw[: header + 30] + b"chunked/c/1/3" + raw[header + 43 :])
    with pytest.raises(ChunkError, match="no header of it") as info:
        array[...]
    assert info.value.key == name.decode()


def test_a_shard_whose_index_leads_out_of_it_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with gzarr.ZipStore(path, mode="w") as store:
        index = [{"name": "bytes", "configuration": {"endian": "little"}}]
        inner = {"chunk_shape": [4], "codecs": index, "index_codecs": index}
        codecs = [{"name": "sharding_indexed", "configuration": inner}]
        gzarr.create_array(store, shape=8, dtype="i4", chunks=8, codecs=codecs)
        store.set("c/0", np.arange(8, dtype="i4").tobytes() + struct.pack("<4Q", 0, 16, 30, 16 + 20))
        store.set("secret", bytes(range(100)))
    array = gzarr.open_array(path, device="cpu")
    np.testing.assert_array_equal(array[:4], np.arange(4))
    with pytest.raises(ChunkError, match=r"index gives it|bytes from byte 30"):
        array[4:]


def test_bombs_are_refused_in_bounded_memory(tmp_path: Path) -> None:
    bomb = archive_of({"zarr.json": bytes(50 << 20)}, zipfile.ZIP_DEFLATED)
    small = archive_of({"zarr.json": bytes(50 << 20)}, zipfile.ZIP_DEFLATED, file_size=1000)
    huge = archive_of({"zarr.json": b"1"}, zipfile.ZIP_DEFLATED, file_size=1 << 40)
    tracemalloc.start()
    try:
        with pytest.raises(ValueSizeError, match="at most 1048576 are read"):
            in_memory(bomb).get_small_values(["zarr.json"], 1 << 20)
        with pytest.raises(StoreError, match="more bytes instead of 1000"):
            in_memory(small).get("zarr.json")
        with pytest.raises(StoreError, match="cannot unpack to 1099511627776 bytes"):
            in_memory(huge).get("zarr.json")
        # A directory that claims to be as large as a file that is mostly a hole.
        path = tmp_path / "x.zip"
        with path.open("wb") as file:
            file.truncate(1 << 40)
            file.seek(0, io.SEEK_END)
            begin = file.tell()
            file.write(zip_format.end_records(begin - (200 << 30), 200 << 30, 1 << 31))
        with pytest.raises(StoreError, match="at most 268435456 are read"):
            gzarr.ZipStore(path)
        with path.open("r+b") as file:
            file.truncate(begin)
            file.seek(begin)
            file.write(zip_format.end_records(begin - (1 << 20), 1 << 20, 1 << 31))
        with pytest.raises(StoreError, match="too few for 2147483648 entries"):
            gzarr.ZipStore(path)
        assert tracemalloc.get_traced_memory()[1] < 40 << 20
    finally:
        tracemalloc.stop()


def test_overlapping_entries_are_refused() -> None:
    """Many entries that share the bytes of one make small archives of huge size."""
    data = bytes(1000)
    stream = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = stream.compress(data) + stream.flush()
    raw = archive_of({"a": b"", "b": data}, zipfile.ZIP_DEFLATED)
    assert packed in raw
    at = raw.rindex(b"PK\1\2")
    # The header of "b", quoted within "a".
    first = raw.index(b"PK\1\2")
    record = bytearray(raw[first:at])
    record[20:24] = struct.pack("<L", 2 + 31 + len(packed))
    store = in_memory(raw[:first] + bytes(record) + raw[at:])
    assert store.get("b") == data
    with pytest.raises(StoreError, match="overlap"):
        store.get("a")


# -- bytes after the end


@pytest.mark.parametrize("nbytes", [1, 2, 21, 100, 4096, 60000])
@pytest.mark.parametrize("comment", [b"", b"a comment", b"zeros\0\0"])
@pytest.mark.parametrize("place", ["memory", "file"])
def test_zeros_after_the_end(nbytes: int, comment: bytes, place: str, tmp_path: Path) -> None:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("a", b"1234")
        archive.comment = comment
    raw = target.getvalue() + bytes(nbytes)
    assert zipfile.ZipFile(io.BytesIO(raw)).read("a") == b"1234"
    if place == "memory":
        store = in_memory(raw)
    else:
        (tmp_path / "x.zip").write_bytes(raw)
        store = gzarr.ZipStore(tmp_path / "x.zip")
    assert store.get("a") == b"1234"
    assert zip_format.comment_of(raw[-zip_format.TAIL_BYTES :]) == comment


def test_an_archive_with_zeros_after_its_end_is_added_to(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    path.write_bytes(archive_of({"a": b"1234"}) + bytes(100))
    with gzarr.ZipStore(path, mode="a") as store:
        store.set("b", b"5678")
    with zipfile.ZipFile(path) as archive:
        assert [archive.read(name) for name in "ab"] == [b"1234", b"5678"]


def test_what_else_is_after_the_end_is_refused(tmp_path: Path) -> None:
    """An archive within one that was cut off must not be taken for it."""
    inner = archive_of({"a": b"inner"})
    outer = archive_of({"a": b"outer", "z.zip": inner})
    cut = outer[: outer.index(inner) + len(inner)]
    padded = cut + bytes(500)
    for raw in (padded, archive_of({"a": b"1"}) + b"more", archive_of({"a": b"1"}) + bytes(zip_format.TAIL_BYTES)):
        (tmp_path / "x.zip").write_bytes(raw)
        with pytest.raises(StoreError, match="cannot be opened as a zip archive"):
            gzarr.ZipStore(tmp_path / "x.zip")
