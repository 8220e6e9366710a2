"""Shards of different shapes, against NumPy; ``test_golden.py`` has those written by zarr-python 3.4.

Each shard by itself is what any release of zarr-python writes and reads as the only shard of an array.
"""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gzarr

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.devices import TestedDevice

    Chain = list[dict[str, Any]]
    Lengths = tuple[tuple[int, ...], ...]
    Values = np.ndarray[Any, Any]

SHAPE, INNER = (20, 12), (2, 3)
LENGTHS: Lengths = ((4, 2, 2, 6, 2, 4), (3, 6, 3))
LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}
ZSTD = {"name": "zstd", "configuration": {"level": 1, "checksum": False}}
CRC32C = {"name": "crc32c"}


def sharding(
    chunk_shape: tuple[int, ...] = INNER, codecs: Chain | None = None, index: Chain | None = None, at: str = "end"
) -> dict[str, Any]:
    configuration = {
        "chunk_shape": chunk_shape,
        "codecs": [LITTLE, ZSTD] if codecs is None else codecs,
        "index_codecs": [LITTLE, CRC32C] if index is None else index,
        "index_location": at,
    }
    return {"name": "sharding_indexed", "configuration": configuration}


#: Chains of an array.
CHAINS: dict[str, Chain] = {
    "end": [sharding()],
    "start": [sharding(at="start")],
    "no checksum": [sharding(index=[LITTLE])],
    "plain": [sharding(codecs=[LITTLE])],
    "big index": [sharding(index=[{"name": "bytes", "configuration": {"endian": "big"}}])],
    "nested": [sharding(codecs=[sharding((1, 3))])],
    "gzip behind": [sharding(), {"name": "gzip", "configuration": {"level": 1}}],
    # zarr-python wants inner chunks that divide shards as they were before the transposition, too.
    "transpose": [{"name": "transpose", "configuration": {"order": [1, 0]}}, sharding((1, 1))],
}
TRANSPOSED: Chain = [{"name": "transpose", "configuration": {"order": [1, 0]}}, sharding((3, 2))]


def document(shape: tuple[int, ...], lengths: Any, codecs: Chain, data_type: str = "int32") -> dict[str, Any]:
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": shape,
        "data_type": data_type,
        "fill_value": -1,
        "chunk_grid": {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": lengths}},
        "chunk_key_encoding": {"name": "default"},
        "codecs": codecs,
    }


def boxes(lengths: Lengths) -> Iterator[tuple[str, tuple[slice, ...]]]:
    """Yield the key and the box of each shard."""
    starts = [np.append(0, np.cumsum(along)).tolist() for along in lengths]
    for coords in itertools.product(*(range(len(along)) for along in lengths)):
        box = tuple(slice(s[c], s[c + 1]) for s, c in zip(starts, coords, strict=True))
        yield "/".join(map(str, ("c", *coords))), box


def alone(folder: Path, shape: tuple[int, ...], codecs: Chain, value: bytes | None) -> zarr.Array[Any]:
    """Return a zarr-python array whose only shard is ``value``."""
    folder.mkdir(parents=True)
    said = document(shape, None, codecs)
    said["chunk_grid"] = {"name": "regular", "configuration": {"chunk_shape": shape}}
    (folder / "zarr.json").write_text(json.dumps(said))
    if value is not None:
        (folder / "c/0").mkdir(parents=True)
        (folder / "c/0/0").write_bytes(value)
    return zarr.open_array(folder, mode="r+")


def stored(
    folder: Path, data: Values, codecs: Chain, lengths: Lengths = LENGTHS, absent: tuple[str, ...] = ()
) -> dict[str, bytes]:
    """Return an array whose shards zarr-python has written; in ``data``, absent shards are set to the fill value."""
    values = {"zarr.json": json.dumps(document(data.shape, [list(along) for along in lengths], codecs)).encode()}
    for key, box in boxes(lengths):
        if key in absent:
            data[box] = -1
            continue
        whole = np.full([s.stop - s.start for s in box], -1, data.dtype)
        part = data[box]
        whole[tuple(map(slice, part.shape))] = part
        one = folder / "shards" / key.replace("/", "-")
        alone(one, whole.shape, codecs, None)[...] = whole
        if (one / "c/0/0").exists():
            values[key] = (one / "c/0/0").read_bytes()
    return values


def check_stored(folder: Path, values: dict[str, bytes], data: Values, codecs: Chain, lengths: Lengths) -> None:
    """Let zarr-python read each shard by itself, and compare it with the array."""
    keys = {key for key in values if key != "zarr.json"}
    for key, box in boxes(lengths):
        shape = tuple(s.stop - s.start for s in box)
        found = alone(folder / key.replace("/", "-"), shape, codecs, values.get(key))[...]
        part = data[box]
        np.testing.assert_array_equal(found[tuple(map(slice, part.shape))], part, key)
        keys.discard(key)
    assert not keys


def sample() -> Values:
    data = np.arange(np.prod(SHAPE), dtype="i4").reshape(SHAPE)
    # Of some shards zarr-python leaves out inner chunks, or all of them.
    data[4:6, 3:6] = data[8:14, :3] = data[14:16] = -1
    return data


def put(folder: Path, values: dict[str, bytes]) -> Path:
    for key, value in values.items():
        (folder / key).parent.mkdir(parents=True, exist_ok=True)
        (folder / key).write_bytes(value)
    return folder


@pytest.mark.parametrize("chain", CHAINS)
def test_selections(chain: str, device: TestedDevice, tmp_path: Path) -> None:
    data = sample()
    values = stored(tmp_path, data, CHAINS[chain], absent=("c/0/1", "c/3/2"))
    # Files' indexes are read by compiled code, if there are more than a few.
    for store in (values, put(tmp_path / "files", values)):
        a = device.open(store)
        for selection in (
            *(..., np.s_[3], np.s_[:, 1:3], np.s_[::-2, ::5], np.s_[2:19:6, 8], np.s_[1::9], np.s_[5:5], np.s_[19, 10]),
            *(np.s_[4:6, 3:9], np.s_[7:15, 2:4]),
        ):
            np.testing.assert_array_equal(device.read(a, selection), data[selection], str(selection))
        rows, columns = [19, 0, 7, 7, 3], [10, 0, 2, 11, 5]
        np.testing.assert_array_equal(device.read(a.oindex, (rows, columns)), data[np.ix_(rows, columns)])
        np.testing.assert_array_equal(device.read(a.vindex, (rows, columns)), data[rows, columns])
        np.testing.assert_array_equal(device.read(a.blocks, (slice(1, 4), -1)), data[4:14, 9:])
        windows = [np.s_[0:5], np.s_[4:9], np.s_[15:20]]
        many = device.to_numpy(a.read_many(windows))
        np.testing.assert_array_equal(many, np.stack([data[window] for window in windows]))
        with pytest.raises(gzarr.MissingChunkError):
            device.read(a, missing="error")
    assert list(gzarr.verify(values)) == []


def test_properties(tmp_path: Path) -> None:
    values = stored(tmp_path, sample(), CHAINS["end"])
    a = gzarr.open_array(values, device="cpu")
    assert (a.chunks, a.shards, a.chunk_lengths) == (INNER, (6, 6), LENGTHS)
    present = [box for key, box in boxes(LENGTHS) if key in values]
    assert len(present) == 14
    inner = sum((rows.stop - rows.start) // 2 * ((columns.stop - columns.start) // 3) for rows, columns in present)
    assert (a.nchunks, a.nchunks_initialized) == (10 * 4, inner)
    assert a.decode_path == "cpu-native: sharding_indexed(2×3: zstd)"


def test_on_a_device(device: TestedDevice, tmp_path: Path) -> None:
    if device.is_cuda:
        a = device.open(stored(tmp_path, sample(), CHAINS["end"]))
        assert "no decoder" not in a.decode_path
        assert "cuda" in a.decode_path


def test_wide_and_one_long(device: TestedDevice, tmp_path: Path) -> None:
    """Dimensions whose shards all have one length, and a grid that extends beyond the array."""
    data = sample()[:17, :11].copy()
    values = stored(tmp_path, data, CHAINS["end"])
    meta = json.loads(values["zarr.json"])
    meta["chunk_grid"]["configuration"]["chunk_shapes"] = [[4, [2, 2], 6, 2, 4, [100, 3]], [3, 6, 3]]
    values["zarr.json"] = json.dumps(meta).encode()
    a = device.open(values)
    np.testing.assert_array_equal(device.read(a), data)
    assert a.chunk_lengths[0] == (4, 2, 2, 6, 2, 1, 0, 0, 0)
    even = ((4, 2, 2, 6, 2, 4), (6, 6))
    data = sample()
    values = stored(tmp_path / "even", data, CHAINS["end"], even)
    meta = document(SHAPE, [list(even[0]), 6], CHAINS["end"])
    np.testing.assert_array_equal(device.read(device.open({**values, "zarr.json": json.dumps(meta).encode()})), data)


def test_faults(device: TestedDevice, tmp_path: Path) -> None:
    values = stored(tmp_path, sample(), CHAINS["end"])
    # The index of a shard of another shape: one of 2 by 1 inner chunks where there are 1 by 1, and the other way round.
    for key, other in (("c/1/0", "c/0/0"), ("c/0/0", "c/1/0"), ("c/3/1", "c/0/1")):
        for store in ({**values, key: values[other]}, put(tmp_path / key, {**values, key: values[other]})):
            with pytest.raises(gzarr.ChunkDecodeError, match="index"):
                device.read(device.open(store))
            (problem,) = gzarr.verify(store)
            assert problem.key == key
            assert "index" in problem.reason
    # A chunk, whose shard has an index as it should be.
    broken = {**values, "c/5/1": b"garbage" + values["c/5/1"][7:]}
    (problem,) = gzarr.verify(broken)
    assert (problem.key, problem.chunk) == ("c/5/1", (8, 1))
    cut = {**values, "c/5/1": values["c/5/1"][:10]}
    with pytest.raises(gzarr.ChunkDecodeError, match="too short for its index"):
        device.read(device.open(cut), np.s_[16:])


@pytest.mark.parametrize(
    ("shards", "codecs", "where", "message"),
    [
        ([[4, 6, 11], [12]], [sharding()], "$.codecs[0].configuration.chunk_shape[0]", "2 do not divide shards of 11"),
        ([[4, 16], [3, 5, 4]], [sharding()], "$.codecs[0].configuration.chunk_shape[1]", "3 do not divide"),
        ([[4, 6, 10], [6, 6]], TRANSPOSED, "", ""),
        ([[4, 7, 10], [6, 6]], TRANSPOSED, "$.codecs[1].configuration.chunk_shape", "2 do not divide shards of 7"),
        ([[4, 6, 10], [4, 6, 2]], TRANSPOSED, "$.codecs[1].configuration.chunk_shape", "3 do not divide shards of 4"),
        ([[20], [12]], [sharding((2, 3, 1))], "$.codecs[0].configuration.chunk_shape", "3 dimensions"),
        (
            [[4, 16], [12]],
            [{"name": "reshape", "configuration": {"shape": [[0], [1], 1]}}, sharding((2, 3, 1))],
            "$.codecs[0]",
            "before shards of different shapes",
        ),
    ],
)
def test_what_does_not_fit(shards: Any, codecs: Chain, where: str, message: str) -> None:
    values = {"zarr.json": json.dumps(document(SHAPE, shards, codecs)).encode()}
    if not where:
        assert gzarr.open_array(values).shape == SHAPE
        return
    with pytest.raises(gzarr.MetadataError, match=message) as caught:
        gzarr.open_array(values)
    assert caught.value.json_path == where


@pytest.mark.parametrize("chain", CHAINS)
def test_writes(chain: str, tmp_path: Path) -> None:
    data = np.full(SHAPE, -1, "i4")
    values = {"zarr.json": json.dumps(document(SHAPE, [list(along) for along in LENGTHS], CHAINS[chain])).encode()}
    a = gzarr.open_array(values, mode="r+", device="cpu")
    new = np.arange(data.size, dtype="i4").reshape(SHAPE)
    for i, selection in enumerate((np.s_[...], np.s_[5:15], np.s_[3], np.s_[::3, 2:7], np.s_[8:14, :3], np.s_[7:, 11])):
        if i:
            new = new + 1000
        a[selection] = data[selection] = new[selection] if i != 4 else -1
        np.testing.assert_array_equal(a[...], data)
    a.vindex[[1, 19, 6], [0, 5, 6]] = data[[1, 19, 6], [0, 5, 6]] = [7, 8, 9]
    check_stored(tmp_path / "written", values, data, CHAINS[chain], LENGTHS)
    assert "c/3/0" not in values
    assert list(gzarr.verify(values)) == []
    with pytest.raises(gzarr.ArgumentError, match="in part"):
        a.write(np.s_[3:], data[3:], aligned=True)
    a.write(np.s_[4:8], data[4:8] + 1, aligned=True)
    data[4:8] += 1
    np.testing.assert_array_equal(a[...], data)


def test_writes_from_a_device(device: TestedDevice, tmp_path: Path) -> None:
    data = sample()
    values = {"zarr.json": json.dumps(document(SHAPE, [list(along) for along in LENGTHS], CHAINS["end"])).encode()}
    array = gzarr.open_array(values, mode="r+", device=device.name)
    array[...] = device.array(data)
    array[3:9] = device.array(data[3:9] + 5)
    data[3:9] += 5
    check_stored(tmp_path / "written", values, data, CHAINS["end"], LENGTHS)


def test_shapes_that_change(tmp_path: Path) -> None:
    data = sample()
    values = stored(tmp_path, data, CHAINS["end"])
    a = gzarr.open_array(values, mode="r+", device="cpu")
    a.resize((7, 12))
    np.testing.assert_array_equal(a[...], data[:7])
    assert "c/3/1" not in values
    a.resize((20, 12))
    data[7:] = -1
    np.testing.assert_array_equal(a[...], data)
    # More chunks, as long as the last one, are whole numbers of inner ones, too.
    a.append(np.full((5, 12), 3, "i4"))
    data = np.concatenate([data, np.full((5, 12), 3, "i4")])
    lengths = ((*LENGTHS[0], 4, 4), LENGTHS[1])
    assert a.chunk_lengths[0] == (*LENGTHS[0], 4, 1)
    check_stored(tmp_path / "written", values, data, CHAINS["end"], lengths)
    a.attrs["a"] = 1
    np.testing.assert_array_equal(gzarr.open_array(values)[...], data)


class TestCreate:
    def test_documents(self) -> None:
        """Documents are those of zarr-python 3.4."""
        for shards, grid in (
            ([[4, 6, 10], [3, 9]], [[4, 6, 10], [3, 9]]),
            ([[4, [2, 8]], 6], [[4, [2, 8]], 6]),
            (((4, 2, 2, 12), -1), [[4, [2, 2], 12], 12]),
        ):
            store: dict[str, bytes] = {}
            a = gzarr.create_array(store, shape=SHAPE, dtype="i4", chunks=INNER, shards=shards, device="cpu")
            said = json.loads(store["zarr.json"])
            assert said["chunk_grid"]["configuration"] == {"kind": "inline", "chunk_shapes": grid}
            assert said["codecs"][0]["configuration"]["chunk_shape"] == list(INNER)
            a[...] = 5
            assert (gzarr.open_array(store, device="cpu")[...] == 5).all()

    def test_automatic_chunks(self) -> None:
        a = gzarr.create_array(
            gzarr.MemoryStore(), shape=(1 << 20, 10), dtype="f8", shards=[[3 << 17, 5 << 17], 10], device="cpu"
        )
        assert a.shards == (5 << 17, 10)
        assert all(n % a.chunks[0] == 0 for n in (3 << 17, 5 << 17))
        assert a.chunks[0] * a.chunks[1] * 8 <= 1 << 20

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"chunks": (2, 3), "shards": [[4, 5, 11], [12]]}, "not multiples of chunks"),
            ({"chunks": (2, 5), "shards": [[4, 16], [6, 6]]}, "in dimension 1"),
            ({"chunks": [[4, 16], [12]], "shards": [[4, 16], [12]]}, "list the lengths of the shards"),
            ({"chunks": [[4, 16], [12]], "shards": (4, 4)}, "list the lengths of the shards"),
            ({"chunks": (2, 3), "shards": [[4, 16]]}, "1 dimensions"),
            ({"chunks": (2, 3), "shards": [[4, 4], 3]}, "do not cover"),
            ({"chunks": (2, 3), "shards": [[4, 16], 3], "zarr_format": "3-draft-2022"}, "rectilinear"),
        ],
    )
    def test_refused(self, arguments: dict[str, Any], message: str) -> None:
        store: dict[str, bytes] = {}
        with pytest.raises(gzarr.ArgumentError, match=message):
            gzarr.create_array(store, **{"shape": SHAPE, "dtype": "i4", **arguments})
        assert store == {}


def test_copies(tmp_path: Path) -> None:
    data = sample()
    values = stored(tmp_path, data, CHAINS["end"], absent=("c/0/1",))
    same: dict[str, bytes] = {}
    gzarr.copy(values, same)
    assert {key: value for key, value in same.items() if key != "zarr.json"} == {
        key: value for key, value in values.items() if key != "zarr.json"
    }
    for changes in (
        {"codecs": "zstd"},
        {"zarr_format": 2},
        {"shards": None},
        {"chunks": (1, 3)},
        {"shards": [[10, 2, 8], [12]]},
        {"chunks": "auto", "shards": "auto"},
    ):
        target: dict[str, bytes] = {}
        gzarr.copy(values, target, read_back=True, **changes)
        copied = gzarr.open_array(target, device="cpu")
        np.testing.assert_array_equal(copied[...], data, str(changes))
        if set(changes) <= {"codecs"}:
            assert copied.chunk_lengths == LENGTHS
        back: dict[str, bytes] = {}
        gzarr.copy(target, back, zarr_format=3, chunks=INNER, shards=[list(along) for along in LENGTHS])
        np.testing.assert_array_equal(gzarr.open_array(back, device="cpu")[...], data)
    like = gzarr.empty_like(gzarr.open_array(values), gzarr.MemoryStore(), device="cpu")
    assert (like.chunks, like.chunk_lengths) == (INNER, LENGTHS)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_any_grid(drawn: st.DataObject) -> None:
    ndim = drawn.draw(st.integers(1, 3))
    inner = [drawn.draw(st.integers(1, 3)) for _ in range(ndim)]
    counts = [drawn.draw(st.lists(st.integers(1, 3), min_size=1, max_size=4)) for _ in range(ndim)]
    shards = [[n * count for count in along] for n, along in zip(inner, counts, strict=True)]
    shape = tuple(drawn.draw(st.integers(1, sum(along))) for along in shards)
    order = drawn.draw(st.permutations(range(ndim)))
    transpose = {"name": "transpose", "configuration": {"order": order}}
    chain = [transpose, sharding(tuple(inner[d] for d in order), [LITTLE])]
    values = {"zarr.json": json.dumps(document(shape, shards, chain)).encode()}
    a = gzarr.open_array(values, mode="r+", device="cpu")
    data = np.full(shape, -1, "i4")
    for i in range(3):
        where = tuple(slice(*sorted(drawn.draw(st.tuples(*[st.integers(0, n)] * 2)))) for n in shape)
        data[where] = np.arange(data[where].size).reshape(data[where].shape) + 1000 * i
        a[where] = data[where]
    np.testing.assert_array_equal(a[...], data)
    where = tuple(drawn.draw(st.slices(n)) for n in shape)
    np.testing.assert_array_equal(a[where], data[where])
    one = gzarr.create_array(gzarr.MemoryStore(), data=data, chunks=shape, device="cpu")
    np.testing.assert_array_equal(one[where], a[where])


if hasattr(zarr.config, "get") and zarr.config.get("array.rectilinear_chunks", None) is not None:
    # Releases of zarr-python that have rectilinear grids.

    @pytest.mark.parametrize("chain", [chain for chain in CHAINS if chain != "transpose"])
    def test_against_zarr_python(chain: str, tmp_path: Path) -> None:
        data = sample()
        path = put(tmp_path / "ours", {})
        lengths = [list(along) for along in LENGTHS]
        path.mkdir()
        (path / "zarr.json").write_text(json.dumps(document(SHAPE, lengths, CHAINS[chain])))
        with zarr.config.set({"array.rectilinear_chunks": True}):
            a, theirs = gzarr.open_array(path, mode="r+", device="cpu"), zarr.open_array(path, mode="r+")
            a[...] = data
            np.testing.assert_array_equal(theirs[...], data)
            theirs[3:9, 2:] = data[3:9, 2:] = 77
            np.testing.assert_array_equal(a[...], data)
            a[5:18, 3:10] = data[5:18, 3:10] = 78
            np.testing.assert_array_equal(theirs[...], data)
