"""The host-threads engine with real codecs and stores: results, absent chunks, failures, store requests."""

from __future__ import annotations

import dataclasses
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest
import zarr

from gzarr.codecs.bytes import BytesCodec
from gzarr.codecs.chain import encode_chain
from gzarr.codecs.codec import ArrayRepresentation, BytesRepresentation, Codec, CodecKind, Representation
from gzarr.codecs.crc32c import Crc32cCodec
from gzarr.codecs.deflate import GzipCodec
from gzarr.codecs.registry import codec_from_v3
from gzarr.codecs.transpose import TransposeCodec
from gzarr.codecs.zstd import ZstdCodec
from gzarr.engines.access.access import BATCH_BYTES, Access, ReadRequest
from gzarr.engines.access.choose import access_to
from gzarr.engines.access.sources import ABSENT, WHOLE, Sources
from gzarr.engines.cpu import threads
from gzarr.errors import ChunkDecodeError, ChunkReadError, MissingChunkError, StoreError
from gzarr.metadata.chunk_grid import ChunkGrid
from gzarr.metadata.model import ChunkKeyEncoding
from gzarr.plan.planner import chunk_keys, plan
from gzarr.plan.selection import Selection, parse_basic, parse_orthogonal, parse_points
from gzarr.stores.local import LocalStore
from gzarr.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gzarr.stores.base import ByteRange

ENCODING = ChunkKeyEncoding("default", "/")
CODECS: tuple[Codec, ...] = (TransposeCodec((1, 0)), BytesCodec("big"), ZstdCodec(), Crc32cCodec())


class Watched:
    """A store that records its requests, and fails on demand."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.gets: list[str] = []
        self.partial: list[list[tuple[str, ByteRange]]] = []
        self.refused: set[Any] = set()
        self.cut = 0

    def get(self, key: str) -> bytes | None:
        self.gets.append(key)
        if key in self.refused:
            raise StoreError(f"{key} is refused", key=key)
        value: bytes | None = self.store.get(key)
        return value

    def get_partial_values(self, key_ranges: Sequence[tuple[str, ByteRange]]) -> list[bytes | None]:
        self.partial.append(list(key_ranges))
        for key, byte_range in key_ranges:
            assert byte_range.length is not None
            if any(byte_range.offset <= at < byte_range.offset + byte_range.length for at in self.refused):
                raise StoreError(f"{key} is refused", key=key)
        values = self.store.get_partial_values(key_ranges)
        return [value if value is None else value[: len(value) - self.cut] for value in values]


@dataclass
class Volume:
    """Store an array chunk by chunk, each under its own key or all packed into one."""

    array: np.ndarray[Any, Any]
    block: tuple[int, ...]
    codecs: tuple[Codec, ...]
    store: Any
    packed: bool = False
    prefix: str = "a/b/"

    def write(self, absent: Sequence[tuple[int, ...]] = ()) -> Volume:
        self.absent = {tuple(coords) for coords in absent}
        self.at: dict[tuple[int, ...], tuple[int, int]] = {}
        value = b""
        for coords in np.ndindex(*(-(-s // b) for s, b in zip(self.array.shape, self.block, strict=True))):
            if coords in self.absent:
                continue
            chunk = np.zeros(self.block, self.array.dtype)
            box = tuple(slice(c * b, (c + 1) * b) for c, b in zip(coords, self.block, strict=True))
            part = self.array[(*box, ...)]
            chunk[(*(slice(0, n) for n in part.shape), ...)] = part
            data = bytes(encode_chain(self.codecs, chunk, self.chunk))
            if self.packed:
                self.at[coords] = (len(value), len(data))
                value += data
            else:
                self.store.set(self.key(coords), data)
        if self.packed:
            self.store.set(self.prefix + "shard", value)
        return self

    @property
    def chunk(self) -> ArrayRepresentation:
        return ArrayRepresentation(self.block, self.array.dtype)

    def key(self, coords: tuple[int, ...]) -> str:
        return self.prefix + ENCODING.encode(coords)

    def request(
        self,
        *selections: Selection,
        store: Any = None,
        missing: Any = "fill",
        fill_value: Any = 7,
        field: str | None = None,
    ) -> tuple[ReadRequest, list[Any]]:
        dtype = self.array.dtype if field is None else self.array.dtype[field]
        outputs = [np.full(selection.result_shape, None if dtype.hasobject else 99, dtype) for selection in selections]
        planned = plan(selections, ChunkGrid.regular(self.array.shape, self.block))
        n = len(planned)
        if self.packed:
            rows = [self.at.get(tuple(coords), (0, ABSENT)) for coords in planned.chunks.tolist()]
            columns = np.array(rows, np.int64).reshape(n, 2)
            sources = Sources(
                [self.prefix + "shard"], np.zeros(n, np.int64), columns[:, 0].copy(), columns[:, 1].copy()
            )
        else:
            keys = chunk_keys(ENCODING, self.prefix, planned.chunks)
            sources = Sources(keys, np.arange(n), np.zeros(n, np.int64), np.full(n, WHOLE, np.int64))
        views: list[Any] = [selection.view(output) for selection, output in zip(selections, outputs, strict=True)]
        request = ReadRequest(
            "/a/b",
            access_to(self.store if store is None else store),
            self.codecs,
            self.chunk,
            planned,
            sources,
            tuple(views),
            field,
            fill_value,
            missing,
            1 << 20,
        )
        return request, outputs

    def read(self, *selections: Selection, **options: Any) -> list[Any]:
        request, outputs = self.request(*selections, **options)
        threads.read(request)
        return outputs


def sample() -> np.ndarray[Any, Any]:
    return np.arange(23 * 17, dtype=np.uint16).reshape(23, 17)


@pytest.fixture(params=["1", "4"])
def thread_count(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setenv("GZARR_THREADS", request.param)
    return int(request.param)


@pytest.mark.parametrize("packed", [False, True], ids=["whole", "ranges"])
@pytest.mark.parametrize("kind", ["memory", "local"])
def test_every_kind_of_selection(thread_count: int, kind: str, packed: bool, tmp_path: Path) -> None:
    array = sample()
    store = MemoryStore() if kind == "memory" else LocalStore(tmp_path / "store")
    volume = Volume(array, (5, 4), CODECS, store, packed).write()
    [whole] = volume.read(parse_basic(..., array.shape))
    np.testing.assert_array_equal(whole, array)
    for selection in [(slice(None, None, -3), 5), (2, slice(3, 3)), (None, 4, [9, 9, -1, 0]), array % 7 == 2]:
        [got] = volume.read(parse_basic(selection, array.shape))
        np.testing.assert_array_equal(got, array[selection])
    mesh = ([22, 0, 5, 5], [16, 1])
    [got] = volume.read(parse_orthogonal(mesh, array.shape))
    np.testing.assert_array_equal(got, array[np.ix_(*mesh)])
    windows = [(slice(a, a + 6), slice(b, b + 3)) for a, b in [(0, 0), (3, 2), (17, 14), (2, 2)]]
    for got, window in zip(
        volume.read(*(parse_basic(window, array.shape) for window in windows)), windows, strict=True
    ):
        np.testing.assert_array_equal(got, array[window])


def test_reads_what_zarr_python_wrote(tmp_path: Path) -> None:
    array = np.random.default_rng(0).normal(size=(20, 30)).astype("f4")
    written = zarr.create_array(tmp_path / "z", shape=array.shape, chunks=(7, 8), dtype="f4", compressors=None)
    written[...] = array
    packed = zarr.create_array(
        tmp_path / "y",
        shape=array.shape,
        chunks=(7, 8),
        dtype="f4",
        compressors=zarr.codecs.GzipCodec(level=1),
        serializer=zarr.codecs.BytesCodec(endian="big"),
    )
    packed[...] = array
    for name, codecs in [("z", (BytesCodec("little"),)), ("y", (BytesCodec("big"), GzipCodec(1)))]:
        volume = Volume(array, (7, 8), codecs, LocalStore(tmp_path / name), prefix="")
        [got] = volume.read(parse_basic((slice(3, 19), slice(None, None, 2)), array.shape))
        np.testing.assert_array_equal(got, array[3:19, ::2])


def test_points_into_an_output_of_any_strides() -> None:
    array = sample()
    volume = Volume(array, (5, 4), CODECS, MemoryStore()).write()
    points = (np.array([[1, 22, 0], [4, 4, 4]]), np.array([[16, 0, 3], [4, 5, 4]]))
    parsed = parse_points(points, array.shape)
    request, _ = volume.request(parsed)
    for out in (np.zeros((2, 3), "u2"), np.zeros((2, 3), "u2", order="F"), np.zeros((4, 6), "u2")[::-2, ::2]):
        changed = ReadRequest(
            **{name: getattr(request, name) for name in ReadRequest.__slots__ if name != "outputs"}, outputs=(out,)
        )
        threads.read(changed)
        np.testing.assert_array_equal(out, array[points])


def test_a_field_of_a_structured_dtype() -> None:
    array = np.zeros((6, 5), [("x", "i4"), ("y", "f8")])
    array["x"] = np.arange(30).reshape(6, 5)
    array["y"] = -array["x"] / 2
    volume = Volume(array, (4, 4), (BytesCodec("little"), ZstdCodec()), MemoryStore()).write(absent=[(1, 1)])
    fill = np.array((5, 0.5), array.dtype)[()]
    array[4:, 4:] = fill
    whole = parse_basic(..., array.shape)
    np.testing.assert_array_equal(volume.read(whole, field="y", fill_value=fill)[0], array["y"])
    np.testing.assert_array_equal(volume.read(whole, fill_value=fill)[0], array)


def test_objects() -> None:
    array = np.array([f"word {i}" for i in range(12)], object).reshape(3, 4)
    words = codec_from_v3("vlen-utf8", "$")
    volume = Volume(array, (2, 2), (words, ZstdCodec()), MemoryStore()).write(absent=[(0, 1)])
    [got] = volume.read(parse_basic(..., array.shape), fill_value="none")
    array[:2, 2:] = "none"
    np.testing.assert_array_equal(got, array)
    single = np.empty((), object)
    single[()] = "alone"
    volume = Volume(single, (), (words,), MemoryStore()).write()
    assert volume.read(parse_basic((), ()))[0][()] == "alone"


@pytest.mark.parametrize("packed", [False, True], ids=["whole", "ranges"])
def test_absent_chunks(thread_count: int, packed: bool) -> None:
    array = sample() + 1
    volume = Volume(array, (5, 4), CODECS, MemoryStore(), packed).write(absent=[(1, 2), (4, 4)])
    everything = parse_basic(..., array.shape)
    for fill_value, expected in [(np.uint16(7), 7), (None, 0)]:
        array[5:10, 8:12] = array[20:, 16:] = expected
        np.testing.assert_array_equal(volume.read(everything, fill_value=fill_value)[0], array)
    np.testing.assert_array_equal(volume.read(parse_basic(0, array.shape), missing="error")[0], array[0])
    with pytest.raises(MissingChunkError, match=r"array '/a/b', chunk \(1, 2\), key 'a/b/.*missing='error'") as caught:
        volume.read(parse_basic((slice(0, 12), slice(0, 12)), array.shape), missing="error")
    assert caught.value.chunk == (1, 2)
    assert caught.value.node == "/a/b"
    assert caught.value.key == ("a/b/shard" if packed else "a/b/c/1/2")


def test_an_absent_shard_makes_its_chunks_absent() -> None:
    array = sample()
    volume = Volume(array, (5, 4), CODECS, MemoryStore(), packed=True).write()
    volume.store.erase("a/b/shard")
    [got] = volume.read(parse_basic(..., array.shape))
    assert (got == 7).all()
    with pytest.raises(MissingChunkError):
        volume.read(parse_basic(..., array.shape), missing="error")


@pytest.mark.parametrize("packed", [False, True], ids=["whole", "ranges"])
def test_a_failing_store_is_never_a_missing_chunk(thread_count: int, packed: bool) -> None:
    array = sample()
    volume = Volume(array, (5, 4), CODECS, MemoryStore(), packed).write()
    store = Watched(volume.store)
    store.refused = {volume.at[3, 1][0] + 2} if packed else {"a/b/c/3/1"}
    with pytest.raises(ChunkReadError, match=r"chunk \(3, 1\).*the store failed: .*is refused") as caught:
        volume.read(parse_basic(..., array.shape), store=store)
    assert caught.value.chunk == (3, 1)
    assert isinstance(caught.value, OSError)
    # What does not touch that chunk is read as ever.
    [got] = volume.read(parse_basic((slice(0, 15), slice(0, 4)), array.shape), store=store)
    np.testing.assert_array_equal(got, array[:15, :4])


def test_short_and_impossible_ranges_are_failures() -> None:
    array = sample()
    volume = Volume(array, (5, 4), CODECS, MemoryStore(), packed=True).write()
    store = Watched(volume.store)
    store.cut = 1
    with pytest.raises(ChunkReadError, match=r"returned \d+ bytes of 'a/b/shard' from byte 0 on, expected"):
        volume.read(parse_basic((0, 0), array.shape), store=store)
    volume.at[0, 1] = (volume.at[0, 1][0], 2**40)
    with pytest.raises(ChunkDecodeError, match=r"chunk \(0, 1\).*truncated"):
        volume.read(parse_basic(..., array.shape))


@pytest.mark.parametrize("packed", [False, True], ids=["whole", "ranges"])
def test_corrupt_chunks_are_named(thread_count: int, packed: bool) -> None:
    array = sample()
    volume = Volume(array, (5, 4), CODECS, MemoryStore(), packed).write()
    key = "a/b/shard" if packed else "a/b/c/2/3"
    value = bytearray(volume.store.get(key))
    value[(volume.at[2, 3][0] if packed else 0) + 9] ^= 1
    volume.store.set(key, bytes(value))
    with pytest.raises(ChunkDecodeError, match=rf"array '/a/b', chunk \(2, 3\), key '{key}': crc32c") as caught:
        volume.read(parse_basic(..., array.shape))
    assert caught.value.chunk == (2, 3)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("data", [b"", b"\0" * 39, b"\0" * 41])
def test_chunks_of_another_size_are_named(data: bytes) -> None:
    array = sample()
    volume = Volume(array, (5, 4), (BytesCodec("little"),), MemoryStore()).write()
    volume.store.set("a/b/c/0/0", data)
    with pytest.raises(ChunkDecodeError, match=rf"chunk \(0, 0\).*got {len(data)} bytes, expected 40"):
        volume.read(parse_basic(..., array.shape))


@dataclass(frozen=True)
class Odd(Codec):
    """A codec whose library behaves badly."""

    kind: ClassVar[CodecKind] = "array_to_bytes"
    result: Any

    @property
    def label(self) -> str:
        return "odd"

    def to_json(self) -> dict[str, Any]:
        return {"name": "odd"}

    def encoded(self, decoded: Representation) -> Representation:
        return BytesRepresentation(None)

    def decode(self, encoded: Any, decoded: Representation) -> Any:
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result

    def encode(self, decoded: Any, representation: Representation) -> Any:
        return b"odd"


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (RuntimeError("error -4"), "odd cannot decode it: error -4"),
        (MemoryError(), "odd cannot decode it: MemoryError"),
        (np.zeros((4, 5), "u2"), r"decoded to shape \(4, 5\), uint16, expected shape \(5, 4\), uint16"),
        (np.zeros((5, 4), "i2"), "int16, expected"),
        (b"abc", "decoded to bytes, expected"),
    ],
    ids=lambda value: str(type(value).__name__),
)
def test_codecs_that_misbehave_give_our_error(result: Any, message: str) -> None:
    array = sample()
    volume = Volume(array, (5, 4), (Odd(result),), MemoryStore()).write()
    with pytest.raises(ChunkDecodeError, match=message):
        volume.read(parse_basic(..., array.shape))


class Slow(Watched):
    """A store whose first chunk waits until another thread also has one."""

    others = threading.Event()

    def get(self, key: str) -> bytes | None:
        if not key.endswith("/0/0"):
            self.others.set()
            time.sleep(0.0005)
        elif threads.pool.thread_count() > 1:
            self.others.wait(10)
        return super().get(key)


def test_the_first_error_stops_the_read(thread_count: int) -> None:
    array = np.zeros((4000, 2), np.uint8)
    volume = Volume(array, (1, 2), (BytesCodec(),), MemoryStore()).write()
    volume.store.set("a/b/c/0/0", b"too long")
    store = Slow(volume.store)
    with pytest.raises(ChunkDecodeError, match=r"chunk \(0, 0\)"):
        volume.read(parse_basic(..., array.shape), store=store)
    assert len(store.gets) < 2000


def test_each_chunk_of_many_windows_is_fetched_once() -> None:
    array = sample()
    volume = Volume(array, (5, 4), CODECS, MemoryStore()).write()
    store = Watched(volume.store)
    rows = np.random.default_rng(3).integers(0, 17, 40)
    windows = [parse_basic((slice(a, a + 6), slice(None)), array.shape) for a in rows]
    for got, a in zip(volume.read(*windows, store=store), rows, strict=True):
        np.testing.assert_array_equal(got, array[a : a + 6])
    assert len(store.gets) == len(set(store.gets))


def test_adjacent_ranges_are_fetched_as_one() -> None:
    array = np.arange(4096, dtype="u4").reshape(64, 64)
    volume = Volume(array, (4, 4), (BytesCodec("little"),), MemoryStore(), packed=True).write()
    store = Watched(volume.store)
    [got] = volume.read(parse_basic(slice(0, 16), array.shape), store=store)
    np.testing.assert_array_equal(got, array[:16])
    # 64 chunks that lie behind each other: every batch is one range, and together they are read once.
    ranges = [entry for call in store.partial for entry in call]
    assert len(ranges) == len(store.partial) < 64
    assert sum(byte_range.length or 0 for _, byte_range in ranges) == 64 * 64
    # Gaps are not read.
    store.partial.clear()
    sources = Sources(
        ["a/b/shard", "a/b/none"],
        np.array([0, 0, 1, 0, 0]),
        np.array([64, 0, 320, 256, 128]),  # the second key goes on where the first ends
        np.array([64, 64, 8, 64, ABSENT]),
    )
    values = Access(store).values(sources, np.array([3, 0, 1, 2, 4]), 1 << 20)
    whole = volume.store.get("a/b/shard")
    assert values[:3] == [whole[256:320], whole[64:128], whole[0:64]]
    assert values[3:] == [None, None]
    [asked] = store.partial
    assert [(key, r.offset, r.length) for key, r in asked] == [
        ("a/b/shard", 0, 128),
        ("a/b/shard", 256, 64),
        ("a/b/none", 320, 8),
    ]


@pytest.mark.parametrize(("dtype", "sizes", "most"), [("u1", 10, 8), ("u1", 3 << 20, 2), ("O", WHOLE, 1)])
def test_batches_are_bounded(dtype: str, sizes: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the number of chunks, by their bytes, and one by one where these are not known."""
    array = np.zeros((64, 64), dtype)
    volume = Volume(array, (8, 8), (BytesCodec("little"),), MemoryStore())
    request, _ = volume.request(parse_basic(..., array.shape))
    columns = np.arange(64)[::-1] * sizes, np.full(64, sizes)
    sources = Sources(["x"], np.zeros(64, np.int64), *columns)
    request = dataclasses.replace(request, access=Access(volume.store), sources=sources)
    # There are no such values: only what is asked for matters.
    monkeypatch.setattr(Access, "fetch", lambda self, request, rows: [None] * len(rows))
    batches: list[list[int]] = []
    rows = np.arange(64)
    request.access.each(request, rows, 2, lambda some, _: batches.append(some.tolist()) is None, least_batches=4)
    assert sorted(row for batch in batches for row in batch) == list(range(64))
    assert {len(batch) for batch in batches} == {most}
    assert most * sizes <= BATCH_BYTES


def test_many_callers_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GZARR_THREADS", "3")
    array = sample()
    volume = Volume(array, (5, 4), CODECS, MemoryStore(), packed=True).write()
    results: list[Any] = []
    callers = [
        threading.Thread(target=lambda: results.append(volume.read(parse_basic(..., array.shape))[0])) for _ in range(8)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(results) == 8
    for result in results:
        np.testing.assert_array_equal(result, array)


def test_nothing_to_read() -> None:
    array = sample()
    volume = Volume(array, (5, 4), CODECS, MemoryStore())
    store = Watched(volume.store)
    [got] = volume.read(parse_basic(slice(3, 3), array.shape), store=store, missing="error")
    assert got.shape == (0, 17)
    assert store.gets == []
