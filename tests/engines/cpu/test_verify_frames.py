"""``verify="cpu"``: a device's decoders get only frames that the host has decoded, or that have a correct crc32c."""

from __future__ import annotations

import json
import pickle
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import cramjam
import numcodecs
import numpy as np
import pytest
from gzarr_kernels.slots import context as c
from gzarr_kernels.slots import frames as f
from hypothesis import given, settings
from hypothesis import strategies as st
from support import zarr_arrays as z
from support.devices import use
from support.nvcomp_encoders import gdeflate_frame
from support.staged_chunks import Undecodable, blosc, blosc_snappy, decode_frame, with_crc

import gzarr
from gzarr.codecs import native
from gzarr.engines import kernels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.devices import TestedDevice
    from support.watched_device import WatchedDevice

pytestmark = pytest.mark.slow

N, CHUNK = 6, 1200
# Most of all streams compress, also the planes of Blosc.
DATA = (np.arange(N * CHUNK) // 23 % 200 + np.random.default_rng(1).integers(0, 20, N * CHUNK) // 19).astype("<i4")

#: Compressor of a version 2 document, and an encoder that is not gzarr's.
CHAINS: dict[str, tuple[dict[str, Any], Callable[[bytes], Any]]] = {
    "zstd": ({"id": "zstd", "level": 3}, numcodecs.Zstd(3).encode),
    "lz4": ({"id": "lz4", "acceleration": 1}, numcodecs.LZ4().encode),
    "gzip": ({"id": "gzip", "level": 5}, numcodecs.GZip(5).encode),
    "zlib": ({"id": "zlib", "level": 5}, numcodecs.Zlib(5).encode),
    "snappy": ({"id": "nvcomp_batch", "algorithm": "snappy"}, cramjam.snappy.compress_raw),
    "deflate": ({"id": "nvcomp_batch", "algorithm": "deflate"}, lambda plain: zlib.compress(plain, wbits=-15)),
    "gdeflate": ({"id": "nvcomp_batch", "algorithm": "gdeflate"}, gdeflate_frame),
    "blosc-snappy": ({"id": "blosc", "cname": "snappy", "clevel": 5, "shuffle": 1, "blocksize": 0}, blosc_snappy),
    **{
        f"blosc-{name}-{shuffle}": (
            {"id": "blosc", "cname": name, "clevel": 5, "shuffle": shuffle, "blocksize": 0},
            lambda plain, name=name, shuffle=shuffle: blosc(plain, name, shuffle, 4, 2048),
        )
        for name in ("lz4", "lz4hc", "zlib", "zstd")
        for shuffle in (0, 1, 2)
    },
}
#: Nothing can vouch for them: the CPU engine decodes them.
LEFT_TO_THE_HOST = ("gdeflate",)
_CODES = {"lz4": f.LZ4, "zstd": f.ZSTD, "snappy": f.SNAPPY, "deflate": f.DEFLATE}


def stored(name: str) -> dict[str, bytes]:
    """Return an array of :data:`DATA`."""
    document, encode = CHAINS[name]
    chunks = DATA.reshape(N, CHUNK)
    return {
        ".zarray": json.dumps(z.v2((N * CHUNK,), (CHUNK,), "<i4", document)).encode(),
        **{str(i): bytes(encode(chunks[i].tobytes())) for i in range(N)},
    }


def outcome(read: Callable[[], Any]) -> Any:
    """Return the bytes read, or the error."""
    try:
        return read().tobytes()
    except gzarr.ChunkDecodeError as error:
        return str(error), error.node, error.chunk, error.key


@contextmanager
def on_host() -> Iterator[tuple[TestedDevice, WatchedDevice]]:
    with use("on host") as tested:
        assert tested.watched is not None
        yield tested, tested.watched


@pytest.fixture
def device() -> Iterator[tuple[TestedDevice, WatchedDevice]]:
    with on_host() as made:
        yield made


def is_sound(algorithm: str, frame: bytes, nbytes: int) -> bool:
    """Return whether a frame decodes, by decoders other than gzarr's."""
    if algorithm == "gdeflate":
        decode = native.gdeflate()
        assert decode is not None
        return len(decode(np.frombuffer(frame, np.uint8), nbytes)) == nbytes
    try:
        return len(decode_frame(_CODES[algorithm], frame, nbytes)) == nbytes
    except Undecodable:
        return False


def damaged(good: bytes) -> Iterator[bytes]:
    """Yield a chunk with single bits flipped at various positions, and with some bytes overwritten."""
    for at in np.linspace(0, 8 * len(good) - 1, 40).astype(int).tolist():
        bad = bytearray(good)
        bad[at // 8] ^= 1 << at % 8
        yield bytes(bad)
    rng = np.random.default_rng(len(good))
    for at in rng.integers(len(good) // 3, len(good) - 8, 25).tolist():
        yield good[:at] + rng.bytes(8) + good[at + 8 :]


def check(store: dict[str, bytes], tested: TestedDevice, device: WatchedDevice, sound: int) -> Any:
    """Read on the CPU, and verified on a device; return both results, and the number of frames given to the device."""
    expected = outcome(lambda: gzarr.open_array(store, device="cpu")[...])
    device.given = []
    array = gzarr.open_array(store, device=tested.name, verify="cpu")
    found = outcome(lambda: tested.to_numpy(array.read(decode="cuda")))
    assert found == expected
    assert all(is_sound(*frame) for frame in device.given)
    # The chunks that are as they were are decoded on the device all the same.
    assert len(device.given) >= sound
    return expected


@pytest.mark.parametrize("name", CHAINS)
def test_no_damaged_frame_reaches_the_device(name: str, device: tuple[TestedDevice, WatchedDevice]) -> None:
    tested, watched = device
    store = stored(name)
    watched.given = []
    np.testing.assert_array_equal(tested.to_numpy(gzarr.open_array(store, device="cuda").read(decode="cuda")), DATA)
    frames = len(watched.given)
    assert frames >= N
    sound = 0 if name in LEFT_TO_THE_HOST else frames // N
    assert check(store, tested, watched, sound * N) == DATA.tobytes()
    good = store["3"]
    failures = reached = 0
    for bad in damaged(good):
        store["3"] = bad
        failures += isinstance(check(store, tested, watched, sound * (N - 1)), tuple)
        watched.given = []
        # The decoder of GDeflate here has no oracle beside it.
        if name != "gdeflate":
            outcome(lambda: tested.to_numpy(gzarr.open_array(store, device="cuda").read(decode="cuda")))
            reached += not all(is_sound(*frame) for frame in watched.given)
    assert failures
    assert reached or name == "gdeflate", "nothing was there to be kept from the device"


@settings(max_examples=150, deadline=None)
@given(draw=st.data())
def test_random_damage(draw: st.DataObject) -> None:
    name = draw.draw(st.sampled_from([name for name in CHAINS if name not in LEFT_TO_THE_HOST]))
    store = stored(name)
    for i in draw.draw(st.lists(st.integers(0, N - 1), min_size=1, max_size=3, unique=True)):
        bad = bytearray(store[str(i)])
        for _ in range(draw.draw(st.integers(1, 4))):
            at = draw.draw(st.integers(0, len(bad) - 1))
            end = min(at + draw.draw(st.integers(1, 40)), len(bad))
            match draw.draw(st.sampled_from(["flip", "set", "cut", "repeat"])):
                case "flip":
                    bad[at] ^= 1 << draw.draw(st.integers(0, 7))
                case "set":
                    bad[at:end] = draw.draw(st.binary(min_size=end - at, max_size=end - at))
                case "cut" if len(bad) > end - at:
                    del bad[at:end]
                case _:
                    bad[at:at] = bad[at:end]
        store[str(i)] = bytes(bad)
    with on_host() as (tested, device):
        check(store, tested, device, 0)


# -- what needs not be decoded twice


def decoded_here() -> bool:
    """Return whether a worker of the native loop has decoded anything since :func:`forget`."""
    return any(worker.context[c.FIRST] or worker.context[c.own("zstd")] for worker in kernels.idle_workers())


def forget() -> None:
    kernels._idle.clear()


ZSTD = z.codec("zstd", level=1, checksum=False)
DOCUMENTS: dict[str, tuple[list[z.Json], bool]] = {
    "crc32c": ([z.LITTLE, ZSTD, z.CRC32C], False),
    "uncompressed": ([z.LITTLE], False),
    "uncompressed blosc": ([z.LITTLE, z.blosc3("zstd", "shuffle", 4, clevel=0)], False),
    "crc32c in a shard": ([z.shard([CHUNK], [z.LITTLE, ZSTD, z.CRC32C])], False),
    "zstd": ([z.LITTLE, ZSTD], True),
    "a shard": ([z.shard([CHUNK], [z.LITTLE, ZSTD])], True),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_only_frames_without_checksum_are_decoded_here(
    name: str, tmp_path: Any, device: tuple[TestedDevice, WatchedDevice]
) -> None:
    tested, _ = device
    codecs, decodes = DOCUMENTS[name]
    z.write(tmp_path, z.v3(DATA.shape, (2 * CHUNK if "shard" in name else CHUNK,), "int32", codecs), DATA)
    for store in (tmp_path, z.in_memory(tmp_path)):
        array = gzarr.open_array(store, device="cuda")
        for verify, expected in (("none", False), ("cpu", decodes)):
            forget()
            result = array.read(decode="cuda", verify=verify)
            np.testing.assert_array_equal(tested.to_numpy(result), DATA)
            assert decoded_here() == expected


def test_a_checksum_that_does_not_match_keeps_a_chunk_from_the_device(
    device: tuple[TestedDevice, WatchedDevice],
) -> None:
    tested, watched = device
    document = z.v3(DATA.shape, (CHUNK,), "int32", [z.LITTLE, ZSTD, z.CRC32C])
    chunks = DATA.reshape(N, CHUNK)
    store = {"zarr.json": json.dumps(document).encode()}
    store |= {f"c/{i}": with_crc(bytes(numcodecs.Zstd(1).encode(chunks[i].tobytes()))) for i in range(N)}
    bad = bytearray(store["c/2"])
    bad[len(bad) // 2] ^= 4
    store["c/2"] = bytes(bad)
    error = check(store, tested, watched, N - 1)
    assert error[2] == (2,)
    assert "crc32c" in error[0]
    assert len(watched.given or ()) == N - 1


# -- where it is said


def test_where_it_is_said(device: tuple[TestedDevice, WatchedDevice]) -> None:
    tested, watched = device
    store = stored("zstd")
    good = store["3"]
    # The header of the frame and of its block are as they were.
    store["3"] = next(bad for bad in damaged(good) if bad[:20] == good[:20] and not is_sound("zstd", bad, 4 * CHUNK))
    careful = gzarr.open_array(store, device="cuda", verify="cpu")
    careless = gzarr.open_array(store, device="cuda")
    everything = [slice(None)]
    group_store = {".zgroup": b'{"zarr_format": 2}', **{f"a/{key}": value for key, value in store.items()}}
    group = gzarr.open_group(group_store, device="cuda", verify="cpu")
    node = gzarr.open(store, device="cuda", verify="cpu")
    assert isinstance(node, gzarr.Array)
    readers: list[Callable[[], Any]] = [
        lambda: careful.read(decode="cuda"),
        lambda: node.read(decode="cuda"),
        lambda: pickle.loads(pickle.dumps(careful)).read(decode="cuda"),
        lambda: group["a"].read(decode="cuda"),
        lambda: pickle.loads(pickle.dumps(group))["a"].read(decode="cuda"),
        lambda: careless.read(decode="cuda", verify="cpu"),
        lambda: careless.read_many(everything, decode="cuda", verify="cpu"),
        lambda: careless.oindex.read(np.arange(3 * CHUNK, 4 * CHUNK), decode="cuda", verify="cpu"),
        lambda: careless.vindex.read(np.arange(3 * CHUNK, 4 * CHUNK), decode="cuda", verify="cpu"),
        lambda: careless.blocks.read(3, decode="cuda", verify="cpu"),
    ]
    for read in readers:
        watched.given = []
        with pytest.raises(gzarr.ChunkDecodeError, match=r"chunk \(3,\)"):
            read()
        assert all(is_sound(*frame) for frame in watched.given)
    for read in (lambda: careful.read(decode="cuda", verify="none"), lambda: careless.read(decode="cuda")):
        watched.given = []
        with pytest.raises(gzarr.ChunkDecodeError, match=r"chunk \(3,\)"):
            read()
        assert not all(is_sound(*frame) for frame in watched.given)
    made = gzarr.create_array({}, shape=8, dtype="i4", device="cuda", verify="cpu")
    assert "verify" in made.decode_path
    made = gzarr.create_group({}, device="cuda", verify="cpu").create_array("a", shape=8, dtype="i4")
    assert "verify" in made.decode_path
    assert tested.watched is watched


def test_auto_decodes_on_the_host_what_it_would_have_to_decode_there_first(
    device: tuple[TestedDevice, WatchedDevice],
) -> None:
    tested, watched = device
    # So many chunks that the device wins.
    large = {"zarr.json": json.dumps(z.v3((1 << 30,), (1 << 14,), "int32", [z.LITTLE, ZSTD])).encode()}
    assert gzarr.open_array(large, device="cuda").decode_path == "cuda: zstd"
    path = gzarr.open_array(large, device="cuda", verify="cpu").decode_path
    assert path == 'cuda, decoded on the host (cpu-native; verify="cpu" decodes on the CPU anyway): zstd'
    for codecs in ([z.LITTLE], [z.LITTLE, ZSTD, z.CRC32C]):
        large = {"zarr.json": json.dumps(z.v3((1 << 30,), (1 << 14,), "int32", codecs)).encode()}
        assert gzarr.open_array(large, device="cuda", verify="cpu").decode_path.startswith("cuda: ")
    watched.given = []
    array = gzarr.open_array(stored("zstd"), device="cuda", verify="cpu")
    np.testing.assert_array_equal(tested.to_numpy(array[...]), DATA)
    assert not watched.given


def test_arguments() -> None:
    store = stored("zstd")
    for verify in ("host", None, True, "", 1):
        for call in (
            lambda verify: gzarr.open(store, verify=verify),
            lambda verify: gzarr.open_array(store, device="cpu", verify=verify),
            lambda verify: gzarr.open_group({".zgroup": b'{"zarr_format": 2}'}, verify=verify),
            lambda verify: gzarr.create_array({}, shape=3, dtype="i4", verify=verify),
            lambda verify: gzarr.create_group({}, verify=verify),
        ):
            with pytest.raises(gzarr.ArgumentError, match="verify must be 'none' or 'cpu'"):
                call(verify)
    array = gzarr.open_array(store, device="cpu", verify="cpu")
    np.testing.assert_array_equal(array.read(verify="none"), DATA)
    np.testing.assert_array_equal(array.blocks.read(1, verify="cpu"), DATA[CHUNK : 2 * CHUNK])
    with pytest.raises(gzarr.ArgumentError, match="verify"):
        array.read(verify="gpu")
    with pytest.raises(gzarr.ArgumentError, match="verify"):
        array.read_many([0], verify="gpu")
