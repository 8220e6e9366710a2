"""The effort of compressors in large writes: when gzarr chooses it, and that files stay as small."""

from __future__ import annotations

import ctypes
import pickle
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import deflate
import numcodecs
import numpy as np
import pytest
import tensorstore
import zarr
from gzarr_kernels import libraries, searches
from support import zarr_arrays as z

import gzarr
from gzarr.codecs.zstd import ZstdCodec
from gzarr.engines.cpu import effort, native_write
from gzarr.engines.cpu.write_job import Job, encode_in_memory
from gzarr.plan.encode_program import analyse_encoding

if TYPE_CHECKING:
    from pathlib import Path

    from gzarr.engines.write_request import WriteRequest
    from gzarr.plan.encode_program import EncodingProgram

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("zstd" not in native_write.available(), reason="needs the encoders' wheels"),
]

SHAPE, CHUNKS = (64, 128, 128), (16, 64, 64)
#: With the levels that gzarr chooses.
ZSTD = [z.codec("zstd", level=3, checksum=False)]
CHECKED = [z.codec("zstd", level=3, checksum=True)]
BLOSC = [z.blosc3("zstd", "bitshuffle", 2)]
GZIP = [z.codec("gzip", level=5)]
BLOSC_ZLIB = [z.blosc3("zlib", "shuffle", 2)]
BLOSC_LZ4 = [z.blosc3("lz4", "shuffle", 2)]
BLOSC_LARGE = [z.blosc3("zstd", "noshuffle", 2, blocksize=2 << 20)]
LZ4 = [z.codec("numcodecs.lz4", acceleration=1)]


def free(codecs: list[z.Json]) -> list[z.Json]:
    """Return codecs without a level."""
    levels = ("level", "clevel", "acceleration")
    return [
        z.codec(codec["name"], **{name: v for name, v in codec["configuration"].items() if name not in levels})
        for codec in codecs
    ]


def noise() -> np.ndarray[Any, Any]:
    """Counts of a camera: a smooth image with shot noise."""
    z_, y, x = np.ogrid[: SHAPE[0], : SHAPE[1], : SHAPE[2]]
    smooth = 200 + 150 * np.sin(z_ / 20) * np.cos(y / 30) * np.sin(x / 25)
    return np.random.default_rng(0).poisson(smooth).astype("u2")


def labels(planes: int = SHAPE[0]) -> np.ndarray[Any, Any]:
    """Blobs of one number each, like a segmentation."""
    z_, y, x = np.ogrid[:planes, : SHAPE[1], : SHAPE[2]]
    cells = (z_ + y // 3) // 9 * 997 + (y + x // 5) // 11 * 31 + (x + z_ // 4) // 13
    return (cells * 2654435761 % 60000).astype("u2")


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Let small writes have trials too; collect the ways of the steps chosen for each write."""
    found: list[list[int]] = []
    real = effort.choose_search

    def choose(request: WriteRequest, program: EncodingProgram, rows: Any, available: frozenset[str]) -> Any:
        settled = real(request, program, rows, available)
        found.append([step.way for step in settled.steps])
        return settled

    monkeypatch.setattr(effort, "_TRIAL_SHARE", 1 / 4)
    monkeypatch.setattr(effort, "choose_search", choose)
    return found


def create(path: Path | str, data: np.ndarray[Any, Any], codecs: list[z.Json], **options: Any) -> gzarr.Array:
    options.setdefault("chunks", CHUNKS)
    return gzarr.create_array(
        path, shape=data.shape, dtype=data.dtype, codecs=[z.LITTLE, *codecs], device="cpu", **options
    )


def stored(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file() and p.name != "zarr.json"}


@pytest.mark.parametrize(
    "codecs",
    [ZSTD, CHECKED, BLOSC, GZIP, BLOSC_ZLIB, BLOSC_LZ4],
    ids=["zstd", "checked", "blosc", "gzip", "blosc zlib", "blosc lz4"],
)
def test_noise_is_searched_fast_and_its_files_are_as_small(
    codecs: list[z.Json], tmp_path: Path, ways: list[list[int]]
) -> None:
    data = noise()
    create(tmp_path / "a", data, free(codecs))[...] = data
    assert ways[0][0] > 0
    with zarr.config.set({"async.concurrency": 1}):
        theirs = zarr.create_array(
            tmp_path / "b", shape=data.shape, dtype=data.dtype, chunks=CHUNKS, compressors=[dict(c) for c in codecs]
        )
        theirs[...] = data
    ours, expected = (sum(map(len, stored(tmp_path / name).values())) for name in "ab")
    # What a trial finds is not quite what all chunks together are.
    assert ours <= expected * 1.03
    z.same(zarr.open_array(tmp_path / "a", mode="r")[...], data)
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(tmp_path / "a")}}
    z.same(np.asarray(tensorstore.open(spec, read=True).result().read().result()), data)


@pytest.mark.parametrize("codecs", [ZSTD, GZIP, BLOSC_ZLIB], ids=["zstd", "gzip", "blosc zlib"])
def test_structure_is_searched_as_the_level_says(codecs: list[z.Json], tmp_path: Path, ways: list[list[int]]) -> None:
    data = labels()
    create(tmp_path / "a", data, free(codecs))[...] = data
    assert ways[0] == [0]
    # Writes of one chunk have no trial.
    one = create(tmp_path / "b", data, free(codecs))
    for at in np.ndindex(*(n // c for n, c in zip(SHAPE, CHUNKS, strict=True))):
        box = tuple(slice(i * c, (i + 1) * c) for i, c in zip(at, CHUNKS, strict=True))
        one[box] = data[box]
    assert ways[1:] == [[0]] * (len(ways) - 1)
    assert stored(tmp_path / "a") == stored(tmp_path / "b")


@pytest.mark.parametrize(
    ("codecs", "chunks", "planes"),
    [(BLOSC, CHUNKS, 64), (BLOSC_LARGE, (64, 128, 128), 256)],
    ids=["blosc", "large"],
)
def test_structure_is_searched_lazily_at_high_levels(
    codecs: list[z.Json], chunks: tuple[int, ...], planes: int, tmp_path: Path, ways: list[list[int]]
) -> None:
    data = labels(planes)
    create(tmp_path / "a", data, free(codecs), chunks=chunks)[...] = data
    assert ways[0][0] in (*searches.ZSTD_LAZY[0], *searches.ZSTD_LAZY[1])
    zarr.create_array(
        tmp_path / "b", shape=data.shape, dtype=data.dtype, chunks=chunks, compressors=[dict(c) for c in codecs]
    )[...] = data
    ours, expected = (sum(map(len, stored(tmp_path / name).values())) for name in "ab")
    assert ours <= expected * 1.03
    z.same(zarr.open_array(tmp_path / "a", mode="r")[...], data)


@pytest.mark.parametrize(
    ("sizes", "taken"),
    [
        # By way, the sizes of four pieces that are 100 bytes each by way 1. Ways 2 and 3 are one group, 4 is another.
        ({2: [102] * 4, 3: [90] * 4}, 2),
        ({2: [102, 102, 102, 103], 3: [100] * 4}, 3),
        ({2: [96, 96, 120, 120], 3: [103, 103, 99, 99]}, 3),
        # Much larger in the first half: the rest is not looked at; very much: nor is the rest of the group.
        ({2: [104, 104, 0, 0], 3: [100] * 4}, 3),
        ({2: [130, 130, 0, 0], 3: [0] * 4, 4: [101] * 4}, 4),
        ({2: [130] * 4, 4: [103] * 4}, 0),
        ({2: [float("inf")] * 4, 4: [float("inf")] * 4}, 0),
        ({1: [float("inf")] * 4, 2: [float("inf")] * 4}, 0),
    ],
)
def test_the_first_way_that_is_good_enough_is_taken(
    sizes: dict[int, list[float]], taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {1: [100] * 4, 3: [103] * 4, 4: [103] * 4} | sizes

    class Program:
        way = 0

        def searching(self, way: int) -> Program:
            program = Program()
            program.way = way
            return program

    def encoded(trial: Any, program: Program, rows: Any) -> Any:
        return np.array(sizes[program.way], float)[rows]

    monkeypatch.setattr(effort, "_encoded_nbytes", encoded)
    trial: Any = SimpleNamespace(plan=range(4))
    program: Any = Program()
    assert effort._best_way(trial, program, ((2, 3), (4,)), 1) == taken


@pytest.mark.parametrize(
    ("codec", "way"),
    [
        *((codec, way) for codec in (ZSTD[0], BLOSC[0]) for way in range(len(searches.ZSTD_WAYS) + 1)),
        *((codec, way) for codec in (GZIP[0], BLOSC_ZLIB[0]) for way in range(len(searches.DEFLATE_WAYS) + 1)),
        *((codec, way) for codec in (LZ4[0], BLOSC_LZ4[0]) for way in range(searches.LZ4_LONG + 1)),
    ],
    ids=lambda value: value["name"] if isinstance(value, dict) else str(value),
)
@pytest.mark.parametrize("chunks", [CHUNKS, (64, 128, 128), (5, 7, 3)], ids=["usual", "large", "tiny"])
def test_whatever_the_way_peers_read_it(
    codec: z.Json, way: int, chunks: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = effort.choose_search

    def choose(request: WriteRequest, program: EncodingProgram, rows: Any, available: frozenset[str]) -> Any:
        assert real(request, program, rows, available) == program
        return program.searching(way)

    monkeypatch.setattr(effort, "choose_search", choose)
    data = labels() if chunks == CHUNKS else noise()
    if chunks == (5, 7, 3):
        data = data[:11, :20, :13]
    create(tmp_path, data, [codec], chunks=chunks)[...] = data
    z.same(zarr.open_array(tmp_path, mode="r")[...], data)


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch, ways: list[list[int]]) -> list[WriteRequest]:
    """Collect the trials; each finds way 2."""
    found: list[WriteRequest] = []

    def best(trial: WriteRequest, program: EncodingProgram, groups: Any, reference: int) -> int:
        found.append(trial)
        return 2

    monkeypatch.setattr(effort, "_best_way", best)
    return found


ZARR = zarr.codecs


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"codecs": "blosc"},
        {"codecs": "zstd"},
        {"codecs": [z.BIG, "gzip"]},
        {"codecs": ["transpose", "bytes", "zstd"], "order": "F"},
        {"codecs": [z.codec("zstd", checksum=True)]},
        {"codecs": z.codec("blosc", cname="zstd")},
        {"codecs": "numcodecs.lz4"},
        {"codecs": {"id": "zlib"}},
        {"compressors": "zstd"},
        {"compressors": {"id": "zstd"}, "zarr_format": 2},
        {"compressors": "blosc", "filters": None, "serializer": z.LITTLE},
        {"codecs": "zstd", "shards": SHAPE},
    ],
    ids=str,
)
def test_without_a_level_there_is_a_trial(
    arguments: dict[str, Any], tmp_path: Path, ways: list[list[int]], trials: list[WriteRequest]
) -> None:
    if arguments.pop("order", None):
        arguments["codecs"] = [z.codec("transpose", order=[2, 0, 1]), *arguments["codecs"][1:]]
    data = noise()
    options: dict[str, Any] = {"shape": SHAPE, "dtype": "u2", "chunks": (8, 64, 32), "device": "cpu", **arguments}
    array = gzarr.create_array(tmp_path / "a", **options)
    array[...] = data
    assert len(trials) == 1
    assert ways == [[2]]
    z.same(zarr.open_array(tmp_path / "a", mode="r")[...], data)
    # Also after the array has been unpickled, or has changed.
    pickle.loads(pickle.dumps(array))[...] = data
    array.attrs["a"] = 1
    array.resize((2 * SHAPE[0], *SHAPE[1:]))
    array[: SHAPE[0]] = data
    array.append(data)
    assert len(trials) == 4
    # Whoever opens it finds a level.
    gzarr.open_array(tmp_path / "a", mode="r+", device="cpu")[: SHAPE[0]] = data
    gzarr.copy(tmp_path / "a", tmp_path / "b", chunks=(8, 64, 16))
    assert len(trials) == 4
    z.same(zarr.open_array(tmp_path / "b", mode="r")[: SHAPE[0]], data)


@pytest.mark.parametrize(
    "arguments",
    [
        {"codecs": [z.codec("zstd", level=3)]},
        {"codecs": [z.codec("zstd", level=0, checksum=True)]},
        {"codecs": ["bytes", z.codec("gzip", level=5)]},
        {"codecs": z.codec("blosc", cname="zstd", clevel=5)},
        {"codecs": z.codec("numcodecs.lz4", acceleration=1)},
        {"codecs": {"id": "zlib", "level": 5}},
        {"codecs": numcodecs.Zstd(3)},
        {"codecs": ZARR.ZstdCodec()},
        {"codecs": [ZARR.BytesCodec(), ZARR.BloscCodec(cname="lz4", typesize=2)]},
        {"codecs": ZstdCodec(3)},
        {"codecs": [z.shard([8, 64, 32], [z.LITTLE, *ZSTD])], "chunks": SHAPE},
        {"compressors": z.codec("zstd", level=3), "shards": SHAPE},
        {"compressors": numcodecs.Blosc("lz4", 5), "zarr_format": 2},
        {"compressors": {"id": "zstd", "level": 3}, "zarr_format": 2},
    ],
    ids=str,
)
def test_with_a_level_there_is_none(
    arguments: dict[str, Any], tmp_path: Path, ways: list[list[int]], trials: list[WriteRequest]
) -> None:
    options: dict[str, Any] = {"shape": SHAPE, "dtype": "u2", "chunks": (8, 64, 32), "device": "cpu", **arguments}
    gzarr.create_array(tmp_path, **options)[...] = noise()
    assert trials == []
    assert ways == [[0]]


def test_an_array_that_was_made_again_has_its_own_level(tmp_path: Path, trials: list[WriteRequest]) -> None:
    data = noise()
    array = gzarr.create_array(tmp_path, shape=SHAPE, dtype="u2", chunks=(8, 64, 32), codecs="zstd", device="cpu")
    zarr.create_array(
        tmp_path, shape=SHAPE, dtype="u2", chunks=(8, 64, 32), compressors=ZARR.ZstdCodec(level=9), overwrite=True
    )
    array.append(data)
    assert trials == []


@pytest.mark.parametrize(
    "codec",
    [
        *(z.codec("zstd", level=level, checksum=c) for level in (-5, 0, 1, 3, 9, 19) for c in (False, True)),
        *(z.codec("gzip", level=level) for level in (0, 1, 5, 9)),
        *(z.codec("numcodecs.zlib", level=level) for level in (0, 1, 6, 9)),
        *(z.codec("numcodecs.lz4", acceleration=n) for n in (1, 9, 10, 100)),
        *(
            z.blosc3(cname, shuffle, 2, level)
            for cname in ("lz4", "lz4hc", "blosclz", "zstd")
            for shuffle in ("noshuffle", "shuffle", "bitshuffle")
            for level in (0, 2, 5, 9)
        ),
    ],
    ids=lambda codec: " ".join(map(str, (codec["name"], *codec["configuration"].values()))),
)
@pytest.mark.parametrize("make", [noise, labels], ids=["noise", "labels"])
def test_a_given_level_makes_the_bytes_of_the_library(
    codec: z.Json, make: Any, tmp_path: Path, ways: list[list[int]]
) -> None:
    """Each stored chunk is compared with the output of the C library for its bytes, called without gzarr."""
    data, chunks = make()[:32, :64, :64], (16, 32, 32)
    create(tmp_path / "a", data, [codec], chunks=chunks)[...] = data
    assert ways in ([], [[0]])  # nothing is chosen on the fast path
    for at in np.ndindex(2, 2, 2):
        box = tuple(slice(i * c, (i + 1) * c) for i, c in zip(at, chunks, strict=True))
        chunk = np.ascontiguousarray(data[box])
        found = (tmp_path / "a/c" / "/".join(map(str, at))).read_bytes()
        check_bytes(codec, chunk, found)


def check_bytes(codec: z.Json, chunk: np.ndarray[Any, Any], found: bytes) -> None:
    name, options = codec["name"].removeprefix("numcodecs."), dict(codec["configuration"])
    if name in ("gzip", "zlib"):
        # At libdeflate's level that stands for zlib's.
        compress = deflate.gzip_compress if name == "gzip" else deflate.zlib_compress
        assert found == bytes(compress(chunk.tobytes(), searches.DEFLATE_LEVELS[options["level"]]))
    elif name == "zstd":
        assert found == zstd(chunk.tobytes(), options["level"], checksum=options["checksum"])
    elif name == "blosc" and options["cname"] == "zstd" and options["clevel"]:
        # Numcodecs may have another version of zstd in its Blosc. Blocks are one stream each, behind its size.
        assert numcodecs.Blosc().decode(found) == chunk.tobytes()
        blocks = -(-chunk.nbytes // int.from_bytes(found[8:12], "little"))
        for begin in np.frombuffer(found[16:], "<i4", blocks).tolist():
            nbytes = int.from_bytes(found[begin : begin + 4], "little")
            stream = found[begin + 4 : begin + 4 + nbytes]
            # As c-blosc turns its levels into zstd's.
            level = 22 if options["clevel"] == 9 else 2 * options["clevel"] - 1
            assert stream == zstd(bytes(numcodecs.Zstd().decode(stream)), level)
    else:
        if name == "blosc":
            options["shuffle"] = ("noshuffle", "shuffle", "bitshuffle").index(options["shuffle"])
            del options["typesize"]
        assert found == bytes(numcodecs.get_codec({"id": name, **options}).encode(chunk))


def zstd(data: bytes, level: int, *, checksum: bool = False) -> bytes:
    """Return a frame of the library that gzarr uses: numcodecs has its own."""
    _, name = libraries.encoder_addresses()["gzarr_zstd_compress"]
    (where,) = (row for row in libraries.ENCODERS["gzarr_zstd_compress"][1] if row.name == name)
    library = ctypes.CDLL(str(next(iter(libraries._files(where)))))
    library.ZSTD_createCCtx.restype = ctypes.c_void_p
    context = ctypes.c_void_p(library.ZSTD_createCCtx())
    library.ZSTD_CCtx_setParameter(context, 100, level)
    library.ZSTD_CCtx_setParameter(context, 201, int(checksum))
    target = ctypes.create_string_buffer(len(data) + 1024)
    library.ZSTD_compress2.restype = size = ctypes.c_size_t
    nbytes = library.ZSTD_compress2(context, target, size(len(target)), data, size(len(data)))
    library.ZSTD_freeCCtx(context)
    return target.raw[:nbytes]


def test_the_same_call_makes_the_same_bytes(
    tmp_path: Path, ways: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = noise()
    found = []
    for threads in ("1", "2", "5"):
        monkeypatch.setenv("GZARR_THREADS", threads)
        create(tmp_path / threads, data, free(ZSTD))[...] = data
        found.append(stored(tmp_path / threads))
    assert found[0] == found[1] == found[2]
    assert ways[0][0] > 0
    assert ways[0] == ways[1] == ways[2]


def test_small_writes_have_no_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        pytest.fail("a trial")

    monkeypatch.setattr(effort, "_best_way", refuse)
    data = noise()
    create(tmp_path, data, free(ZSTD))[...] = data


@pytest.mark.parametrize(
    ("options", "dtype"),
    [
        ({"shards": (32, 128, 128)}, "u2"),
        ({"chunks": (1, 128, 128)}, ">f8"),
        ({"chunks": (30, 33, 41)}, "i4"),
        ({"chunks": (64, 1, 128)}, "u1"),
        ({"chunks": (64, 128, 128)}, "c16"),
        ({"zarr_format": 2, "order": "F"}, "<u2"),
    ],
    ids=["shards", "thin", "odd", "flat", "one", "F"],
)
@pytest.mark.parametrize("layout", ["C", "F", "reversed", "broadcast"])
def test_any_layout(options: dict[str, Any], dtype: str, layout: str, tmp_path: Path, ways: list[list[int]]) -> None:
    data = noise().astype(dtype)
    if layout == "F":
        data = np.asfortranarray(data)
    elif layout == "reversed":
        data = data[::-1, :, ::-1]
    elif layout == "broadcast":
        data = np.broadcast_to(data[:, :, :1], data.shape)
    codecs: Any = [z.LITTLE, *free(ZSTD)]
    if options.get("zarr_format") == 2:
        codecs = {"id": "zstd"}
    options = {"chunks": CHUNKS, **options}
    array = gzarr.create_array(tmp_path, shape=data.shape, dtype=dtype, codecs=codecs, device="cpu", **options)
    array[...] = data
    z.same(gzarr.open_array(tmp_path, device="cpu")[...], data.astype(np.dtype(dtype).newbyteorder("=")))
    assert len(ways) == 1


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
@pytest.mark.parametrize("most", [100, 1000, 5000, 1 << 20])
def test_a_trial_is_the_middle_of_chunks_as_they_are_stored(
    order: tuple[int, ...], most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[WriteRequest] = []
    real = native_write.write

    def write(request: WriteRequest, *others: Any) -> Any:
        requests.append(request)
        return real(request, *others)

    monkeypatch.setattr(native_write, "write", write)
    data = np.arange(20 * 30 * 40, dtype="i4").reshape(20, 30, 40)
    transpose = z.codec("transpose", order=list(order))
    gzarr.create_array(
        tmp_path, shape=data.shape, dtype="i4", chunks=(9, 10, 11), codecs=[transpose, z.LITTLE, *ZSTD], device="cpu"
    )[...] = data
    (request,) = requests
    program = analyse_encoding(request.codecs, request.chunk, native_write.available())
    assert program is not None
    rows = np.array([0, 5, 7])
    trial = effort._trial_request(request, program, rows, most)
    shorter = analyse_encoding(trial.codecs, trial.chunk, native_write.available())
    assert shorter is not None
    found = encode_in_memory(Job(trial, shorter, np.arange(3)), shorter, np.arange(3), 1)
    assert found.failure is None
    for i, row in enumerate(rows):
        at = request.plan.chunks[row]
        part = data[tuple(slice(int(q) * c, int(q) * c + c) for q, c in zip(at, (9, 10, 11), strict=True))]
        chunk = np.zeros((9, 10, 11), "i4")
        chunk[tuple(slice(n) for n in part.shape)] = part
        begin = i * shorter.most_nbytes
        piece = numcodecs.Zstd().decode(found.arena[begin : begin + found.nbytes[i]].tobytes())
        assert len(piece) == trial.chunk.nbytes <= max(most, 4)
        assert piece in chunk.transpose(order).tobytes()
    assert replace(program, steps=()).searching(1) == replace(program, steps=())


def test_chunks_of_the_fill_value(tmp_path: Path, ways: list[list[int]]) -> None:
    data = np.zeros(SHAPE, "u2")
    create(tmp_path, data, free(ZSTD))[...] = data
    assert stored(tmp_path) == {}
    data[3, 5, 7] = 1
    gzarr.open_array(tmp_path, mode="r+", device="cpu")[...] = data
    z.same(gzarr.open_array(tmp_path, device="cpu")[...], data)


def test_other_stores_have_it_too(ways: list[list[int]]) -> None:
    from gzarr.stores.memory import MemoryStore

    data, store = noise(), MemoryStore()
    create(store, data, free(ZSTD))[...] = data  # type: ignore[arg-type]
    assert ways[0][0] > 0
    z.same(gzarr.open_array(store, device="cpu")[...], data)
