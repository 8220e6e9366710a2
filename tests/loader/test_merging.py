"""Predictions for patches that overlap, put together: compared with sums over whole arrays."""

from __future__ import annotations

import itertools
import re
import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.devices import KINDS, on_host

import gzarr
from gzarr.loader import Loader, Merge, Patches, Rows, merge_memory, merge_tiles, merging
from gzarr.metadata.chunk_grid import RegularAxis

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.devices import TestedDevice

    from gzarr.loader import Batch

    Values = np.ndarray[Any, Any]

pytestmark = pytest.mark.filterwarnings("ignore:shuffling is coarse")
WINDOWS = ["hann", "gaussian", "flat"]
#: What the elements of ``out`` are before.
BEFORE = -7


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tiles be about as large as patches, however small these are."""
    monkeypatch.setattr(merge_tiles, "TILE_BYTES", 1)


def elements(*shape: int, dtype: Any = "f4") -> Values:
    return (np.random.default_rng(3).random(shape) * 100).astype(dtype)


def stored(data: Values, chunks: Any = "auto", **options: Any) -> gzarr.Array:
    return gzarr.create_array({}, data=data, chunks=chunks, **{"device": "cpu", **options})


def target(shape: Any, dtype: Any = "f4", chunks: Any = "auto", **options: Any) -> gzarr.Array:
    return stored(np.full(shape, BEFORE, dtype), chunks, **options)


def model(patches: Any) -> Any:
    """Return predictions that depend on where in a patch an element is, so that patches disagree."""
    ramp = np.linspace(0, 3, int(np.prod(patches.shape[1:]))).reshape(patches.shape[1:])
    return (patches + ramp).astype("f4")


def window_of(name: Any, shape: tuple[int, ...]) -> Values:
    """Return the weights of a patch, computed in another way than the library does."""
    if not isinstance(name, str):
        return np.asarray(name)
    along = []
    for n in shape:
        at = [(i + 0.5) / n for i in range(n)]
        along.append(
            {
                "hann": [(1 - np.cos(2 * np.pi * x)) / 2 for x in at],
                "gaussian": [np.exp(-0.5 * (8 * x - 4) ** 2) for x in at],
                "flat": [1.0] * n,
            }[name]
        )
    grids = np.meshgrid(*along, indexing="ij")
    return np.prod(np.array(grids), axis=0)


def whole(
    batches: Any, shape: tuple[int, ...], patch: tuple[int, ...], halo: tuple[int, ...], window: Any = "hann"
) -> Values:
    """Return the weighted mean over a whole array of predictions ``(n, *channels, *patch)``, by their origins."""
    k = len(patch)
    sums, weights, weight = np.zeros(shape), np.zeros(shape), window_of(window, patch)
    seen = set()
    for predictions, origins in batches:
        for prediction, origin in zip(np.asarray(predictions, "f8"), origins.tolist(), strict=True):
            if tuple(origin) in seen:
                continue
            seen.add(tuple(origin))
            for place in itertools.product(*(range(n) for n in patch)):
                at = tuple(o + p for o, p in zip(origin, place, strict=True))
                if all(a < n for a, n in zip(at, shape[-k:], strict=True)):
                    moved = tuple(p + h for p, h in zip(place, halo, strict=True))
                    sums[(..., *at)] += weight[place] * prediction[(..., *moved)]
                    weights[(..., *at)] += weight[place]
    return np.where(weights > 0, sums / np.where(weights > 0, weights, 1), BEFORE)


def merged(merge: Merge, batches: Any) -> list[tuple[Any, Any]]:
    """Put predictions for batches together; return them."""
    given = []
    with merge:
        for batch in batches:
            predictions = model(batch["data"])
            given.append((predictions, batch.origins))
            merge.add(predictions, batch)
    return given


class Exported:
    """An array of another library, known by its exchange only."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


def add_all(merge: Merge, batches: Any, *, stop_at: int | None = None) -> None:
    """Add what batches have; stop by a KeyError at one of them."""
    for i, batch in enumerate(batches):
        if i == stop_at:
            raise KeyError
        merge.add(batch["data"], batch)


CASES: dict[str, Any] = {
    "1 axis": ((50,), Patches((9,), stride=4), {}),
    "1 axis, no overlap": ((48,), Patches((8,)), {}),
    "1 axis, gaps": ((50,), Patches((5,), stride=8), {}),
    "2 axes": ((21, 26), Patches((8, 6), stride=(5, 3)), {}),
    "2 axes, edge": ((21, 26), Patches((8, 6), stride=4, pad="edge"), {}),
    "2 axes, fill, halo": ((21, 26), Patches((8, 6), stride=4, halo=(2, 3), pad="fill"), {}),
    "2 axes, inside": ((21, 26), Patches((8, 6), stride=4, pad=None), {}),
    "2 axes, patch larger than the array": ((5, 26), Patches((8, 6), stride=4), {}),
    "3 axes, halo": ((11, 13, 12), Patches((6, 4, 5), stride=(3, 4, 5), halo=1), {}),
    "first axes": ((21, 26, 3), Patches((8, 6), stride=(4, 3), axes=(0, 1)), {}),
    "swapped axes": ((21, 26), Patches((6, 8), stride=(3, 4), axes=(1, 0)), {}),
    "channels": ((3, 21, 26), Patches((8, 6), stride=(4, 3), halo=1), {}),
    "mask": ((21, 26), Patches((8, 6), stride=(4, 3), where=np.tri(6, 9, dtype=bool)), {}),
    "listed": ((21, 26), Patches((8, 6), where=[[13, 4], [0, 0], [3, 2], [20, 25], [3, 2]]), {}),
    "sharded": ((40, 44), Patches((8, 6), stride=4), {"chunks": (4, 4), "shards": (12, 8)}),
    "large chunks": ((40, 44), Patches((8, 6), stride=4), {"chunks": (40, 30)}),
    "uneven chunks": ((21, 26), Patches((8, 6), stride=4), {"chunks": ((4, 7, 10), (20, 6))}),
}


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("case", CASES)
def test_as_over_whole_arrays(case: str) -> None:
    shape, sampler, options = CASES[case]
    image = stored(elements(*shape))
    axes = sampler.axes or tuple(range(len(shape) - len(sampler.shape), len(shape)))
    halo = np.broadcast_to(sampler.halo, len(axes))
    for shuffle, window in [(False, "hann"), ("blocks", "gaussian"), ("full", "flat")]:
        out = target(shape, **{"chunks": 4, **options})
        merge = Merge(out, sampler, window)
        batches = Loader(image, sampler, batch_size=5, shuffle=shuffle, seed=4, drop_last=False)
        given = merged(merge, batches)
        assert merge.missing == merge.held_bytes == 0
        if shuffle is False:
            assert 0 < merge.most_held_bytes == merge._in_order
        # The patch's axes last, in their order.
        moved = [(np.moveaxis(p, [a + 1 for a in axes], range(-len(axes), 0)), o) for p, o in given]
        last = np.moveaxis(np.empty(shape), axes, range(-len(axes), 0)).shape
        wanted = whole(moved, last, sampler.shape, tuple(halo.tolist()), window)
        np.testing.assert_allclose(np.moveaxis(out[...], axes, range(-len(axes), 0)), wanted, rtol=2e-6)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_shapes(data: st.DataObject) -> None:
    """Tiles of any size, patches of any shape and stride, batches of any size and order, repeated."""
    draw = data.draw
    k = draw(st.integers(1, 3))
    lengths = st.integers(1, 13 if k < 3 else 7)
    shape, patch, stride, chunks = (tuple(draw(st.lists(lengths, min_size=k, max_size=k))) for _ in range(4))
    halo = tuple(draw(st.lists(st.integers(0, 2), min_size=k, max_size=k)))
    pad = draw(st.sampled_from(["reflect", "edge", "fill", None]))
    if pad is None:
        halo, patch = (0,) * k, tuple(min(n, m) for n, m in zip(patch, shape, strict=True))
    channels = draw(st.sampled_from([(), (2,)]))
    window = draw(st.sampled_from(["hann", "gaussian", "flat", "array"]))
    weights = 0.5 + elements(*patch) if window == "array" else window
    sampler = Patches(patch, stride, halo=halo, pad=pad)
    counts = [(n - w) // s + 1 if pad is None else -(-n // s) for n, w, s in zip(shape, patch, stride, strict=True)]
    cells = np.argwhere(np.ones(counts, bool)) * np.array(stride)
    origins = np.array(draw(st.permutations(cells.tolist())), "i8").reshape(-1, k)
    origins = np.concatenate([origins, origins[: draw(st.integers(0, 3))]])
    with_halo = draw(st.booleans())
    own = tuple(w + 2 * h for w, h in zip(patch, halo, strict=True)) if with_halo else patch
    predictions = elements(len(origins), *channels, *own)
    # What comes again does not matter, even if it is another prediction.
    predictions[len(cells) :] = 1e6
    out = target((*channels, *shape), chunks=(*channels, *chunks))
    size = draw(st.integers(1, len(origins)))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(merge_tiles, "TILE_BYTES", draw(st.sampled_from([1, 200, 1 << 20])))
        with Merge(out, sampler, weights) as merge:
            for i in range(0, len(origins), size):
                merge.add(predictions[i : i + size], origins[i : i + size])
    cut = halo if with_halo else (0,) * k
    wanted = whole([(predictions, origins)], (*channels, *shape), patch, cut, weights)
    np.testing.assert_allclose(out[...], wanted, rtol=1e-5)


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("window", WINDOWS)
def test_an_identity_gives_the_image_back(device: TestedDevice, window: Any) -> None:
    data = elements(2, 37, 29, dtype="u2")
    sampler = Patches((16, 8), stride=(8, 4), halo=2)
    store: dict[str, bytes] = {}
    gzarr.create_array(store, data=np.zeros_like(data), chunks=(1, 8, 8), device="cpu")
    out = device.open(store, mode="r+")
    image: dict[str, bytes] = {}
    gzarr.create_array(image, data=data, chunks=(2, 16, 16), device="cpu")
    with Merge(out, sampler, window) as merge:
        for batch in Loader(device.open(image), sampler, batch_size=7, drop_last=False):
            merge.add(batch["data"], batch)
    np.testing.assert_array_equal(device.to_numpy(out[...]), data)


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize(("flip", "reversed_axes"), [(1, (0,)), (("y", 2), (0, 1)), ("x", (1,)), ("c", ())])
@pytest.mark.parametrize("halo", [0, 2])
def test_reversed_patches_are_turned_back(device: TestedDevice, flip: Any, reversed_axes: Any, halo: int) -> None:
    data = elements(2, 37, 29, dtype="u2")
    sampler = Patches((16, 8), stride=(8, 4), halo=halo)
    store: dict[str, bytes] = {}
    gzarr.create_array(store, data=np.zeros_like(data), chunks=(1, 8, 8), device="cpu")
    image: dict[str, bytes] = {}
    gzarr.create_array(image, data=data, chunks=(2, 16, 16), device="cpu", dimension_names=("c", "y", "x"))
    loader = Loader(device.open(image), sampler, batch_size=7, drop_last=False, flip=flip)
    for cut in {0, halo}:
        out = device.open(store, mode="r+")
        out[...] = 0
        with Merge(out, sampler) as merge:
            for batch in loader:
                assert batch.flipped == reversed_axes
                inner = slice(cut, -cut or None)
                merge.add(batch["data"][:, :, inner, inner], batch)
        # Channels are those of the predictions.
        wanted = data[::-1] if flip == "c" else data
        np.testing.assert_array_equal(device.to_numpy(out[...]), wanted)


def test_arrays_that_are_not_reversed_alike_are_refused() -> None:
    data = elements(16, 12)
    named = gzarr.create_array({}, data=data, dimension_names=("y", "x"), device="cpu")
    out, sampler = target((16, 12)), Patches((4, 4))
    with Merge(out, sampler) as merge:
        for batch in Loader({"x": named, "other": stored(data)}, sampler, batch_size=3, drop_last=False, flip="y"):
            with pytest.raises(gzarr.ArgumentError, match=r"pass batch\.origins instead"):
                merge.add(batch["x"], batch)
            merge.add(batch["other"], batch.origins)
    np.testing.assert_allclose(out[...], data, rtol=1e-6)


def test_predictions_for_origins_lie_as_the_array_does() -> None:
    data = elements(16, 12)
    out, sampler = target((16, 12)), Patches((4, 4), stride=2)
    with Merge(out, sampler) as merge:
        for batch in Loader(stored(data), sampler, batch_size=5, drop_last=False, flip=0):
            merge.add(batch["data"][:, ::-1], batch.origins)
    np.testing.assert_allclose(out[...], data, rtol=1e-6)


@pytest.mark.usefixtures("small_tiles")
def test_on_devices(device: TestedDevice) -> None:
    """Predictions of the device and of the host, with gaps where the old elements stay, and on several streams."""
    shape, sampler = (2, 21, 30), Patches((6, 5), stride=(5, 8), halo=1)
    store: dict[str, bytes] = {}
    gzarr.create_array(store, data=np.full(shape, BEFORE, "f4"), chunks=(2, 6, 4), device="cpu")
    out = device.open(store, mode="r+")
    image, given = stored(elements(*shape)), []
    streams: list[Any] = []
    kept: list[Any] = []
    with Merge(out, sampler) as merge:
        for i, batch in enumerate(Loader(image, sampler, batch_size=3, drop_last=False, shuffle="full")):
            predictions = model(batch["data"])
            given.append((predictions, batch.origins))
            if not device.is_cuda or i % 3 == 0:
                merge.add(predictions, batch)
                continue
            import cupy

            streams.append(cupy.cuda.Stream(non_blocking=True))
            with streams[-1]:
                kept.append(device.array(predictions))
                if i % 3 == 1:
                    merge.add(kept[-1], batch)
                    continue
            streams[-1].synchronize()
            merge.add(Exported(kept[-1]), batch)
            with streams[-1]:
                # Whoever has its memory next need not know who reads it.
                kept[-1].fill(1e9)
    for stream in streams:
        stream.synchronize()
    wanted = whole(given, shape, (6, 5), (1, 1))
    assert (wanted == BEFORE).any()
    np.testing.assert_allclose(device.to_numpy(out[...]), wanted, rtol=2e-6)


@pytest.mark.parametrize("device", KINDS[1:], indirect=True)
def test_streams(device: TestedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work belongs to the stream of its predictions."""
    import cupy

    store: dict[str, bytes] = {}
    gzarr.create_array(store, shape=(64, 64), dtype="f4", chunks=64, device="cpu")
    data, origins = elements(8, 64, 8), np.argwhere(np.ones((1, 8), bool)) * 8
    out, sampler = device.open(store, mode="r+"), Patches((64, 8))
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in data]
    # As PyTorch's current stream, of which CuPy knows nothing.
    with Merge(out, sampler) as merge:
        for stream, part, origin in zip(streams, data, origins, strict=True):
            monkeypatch.setattr(merge_memory, "consumer_stream", lambda *_, stream=stream: stream)
            with stream:
                late = device.array(part[np.newaxis])
            merge.add(late, origin[np.newaxis])
            with stream:
                late.fill(-1)
        monkeypatch.undo()
    np.testing.assert_allclose(device.to_numpy(out[...]), np.concatenate(list(data), axis=1), rtol=1e-6)


@pytest.mark.parametrize("device", KINDS[1:], indirect=True)
def test_the_host_waits_before_memory_is_used_again(device: TestedDevice) -> None:
    """That of other libraries, when a call returns; that of sums, which CuPy gives to another stream, at the end."""
    import cupy

    if device.watched is None:
        pytest.skip("streams of a GPU are not held back")
    store: dict[str, bytes] = {}
    gzarr.create_array(store, shape=(64, 64), dtype="f4", chunks=64, device="cpu")
    data, other = elements(8, 64, 8), cupy.cuda.Stream(non_blocking=True)
    merge = Merge(device.open(store, mode="r+"), Patches((64, 8)))
    merge.add(data[:1], [[0, 0]])
    stream = device.watched.as_stream(other)
    with other:
        later = [device.array(data[i : i + 1]) for i in (1, 2)]
        other.synchronize()
        with device.watched.held_back(stream) as gate:
            gate.open_after(0.2)
            merge.add(Exported(later[0]), [[0, 8]])
            assert gate.passed
        with device.watched.held_back(stream) as gate:
            merge.add(later[1], [[0, 16]])
            assert not gate.passed
            gate.open_after(0.2)
            merge.__exit__(KeyError, KeyError(), None)
            assert gate.passed


def test_predictions_of_other_libraries() -> None:
    jax = pytest.importorskip("jax.numpy")
    torch = pytest.importorskip("torch")
    data = elements(20, 20)
    kinds = [np.asarray, jax.asarray, torch.from_numpy, list]
    image, sampler, out = stored(data), Patches((8, 8), stride=4), target((20, 20))
    with Merge(out, sampler) as merge:
        for kind, batch in zip(itertools.cycle(kinds), Loader(image, sampler, batch_size=3, drop_last=False)):
            merge.add(kind(batch["data"]), batch.origins)
    np.testing.assert_allclose(out[...], data, rtol=1e-6)
    merge = Merge(out, sampler)
    with pytest.raises(gzarr.ArgumentError, match=r"requires gradients.*detach"):
        merge.add(torch.zeros(1, 8, 8, requires_grad=True), [[0, 0]])
    half = torch.full((1, 8, 8), 1.5, dtype=torch.bfloat16)
    with Merge(out, Patches((8, 8), where=[[4, 4]])) as merge:
        merge.add(half, [[4, 4]])
    np.testing.assert_allclose(out[4:12, 4:12], 1.5, rtol=1e-6)


# -- elements


def test_integers_are_rounded_and_clipped(device: TestedDevice) -> None:
    predictions = np.array([-3.0, 0.4, 0.6, 1.5, 254.7, 255.4, 300.0, 1e30, np.inf], "f8")
    for dtype, wanted in {
        "u1": [0, 0, 1, 2, 255, 255, 255, 255, 255],
        "i8": [-3, 0, 1, 2, 255, 255, 300, 2**63 - 1, 2**63 - 1],
        "u8": [0, 0, 1, 2, 255, 255, 300, 2**64 - 1, 2**64 - 1],
    }.items():
        store: dict[str, bytes] = {}
        gzarr.create_array(store, shape=9, dtype=dtype, chunks=3, device="cpu")
        out = device.open(store, mode="r+")
        with Merge(out, Patches((9,)), "flat") as merge:
            merge.add(device.array(predictions[np.newaxis]), [[0]])
        assert device.to_numpy(out[...]).tolist() == wanted
    merge = Merge(out, Patches((9,)))
    with pytest.raises(gzarr.ArgumentError, match=r"NaN, which cannot be stored as uint64"):
        merge.add(device.array(np.full((1, 9), np.nan)), [[0]])


def test_precision() -> None:
    exact = 1 + np.arange(8) * 2.0**-40
    out = target(8, "f8")
    with Merge(out, Patches((8,)), "flat") as merge:
        merge.add(exact[np.newaxis].astype("f8"), [[0]])
    np.testing.assert_array_equal(out[...], exact)
    # float16 is summed in float32, in which 2048 thirds are no round number.
    out = target(1, "f4")
    with Merge(out, Patches((1,)), "flat") as merge:
        merge.add(np.full((1, 1), 2049 / 2, "f4"), [[0]])
    assert out[0] == 1024.5
    large = np.array([[2**53 - 1]])
    out = target(1, "i8")
    with Merge(out, Patches((1,))) as merge:
        merge.add(large, [[0]])
    assert out[0] == 2**53 - 1
    out = target(1, "f2")
    merge = Merge(out, Patches((1,)))
    with pytest.raises(gzarr.ArgumentError, match="out of the range of float16"):
        merge.add(np.full((1, 1), 1e6, "f4"), [[0]])


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("stride", [2, 3, 8])
def test_means_of_the_largest_numbers_are_finite(window: Any, stride: int) -> None:
    most = np.finfo("f4").max
    data = np.full((24, 32), -most, "f4")
    data[12:] = most
    data[0, 0], data[-1, -1] = np.inf, -np.inf
    for where in (None, np.argwhere(np.ones((12, 16), bool)) * 2):
        out, sampler = (
            target(data.shape, chunks=(8, 8)),
            Patches((8, 8), stride=None if where is not None else stride, where=where),
        )
        with Merge(out, sampler, window) as merge:
            add_all(merge, batches_of(stored(data), sampler))
        np.testing.assert_allclose(out[...], data, rtol=1e-5)


def test_where_no_patches_overlap_the_smallest_numbers_stay() -> None:
    data = np.finfo("f4").smallest_subnormal * np.arange(16, dtype="f4")
    out, sampler = target(16, chunks=4), Patches((4,))
    with Merge(out, sampler, "flat") as merge:
        add_all(merge, batches_of(stored(data), sampler))
    np.testing.assert_array_equal(out[...], data)


@pytest.mark.parametrize(
    ("dtype", "predicted", "least"),
    [("f4", "f4", 1.2e-38), ("f4", "f8", 1e-43), ("f8", "f4", 2.3e-308), ("f8", "f8", 1e-43)],
)
def test_windows_have_the_numbers_that_sums_have(dtype: str, predicted: str, least: float) -> None:
    # The first element has no other weight.
    window = [least, 1, 1, 1]
    data = elements(12, dtype=predicted)
    out, sampler = target(12, dtype, chunks=4), Patches((4,), stride=2)
    with Merge(out, sampler, window) as merge:
        add_all(merge, batches_of(stored(data), sampler))
    np.testing.assert_allclose(out[...], data, rtol=1e-6)


@pytest.mark.parametrize(("dtype", "least"), [("f4", "1.1e-38"), ("f8", "2.2e-308"), ("f8", "0.0e+00")])
def test_windows_with_smaller_numbers_are_refused(dtype: str, least: str) -> None:
    out, sampler = target(12, dtype), Patches((4,), stride=2)
    merge = Merge(out, sampler, [10, 10 * float(least) or 5e-324, 1, 1])
    bits = 8 * np.dtype(dtype).itemsize
    for _ in range(2):
        with pytest.raises(gzarr.ArgumentError, match=f"{re.escape(least)} of the largest.* sums of {bits} bits"):
            merge.add(np.ones((1, 4), "f4"), [[0]])
    assert merge.missing == 6


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("case", ["3 axes, halo", "listed"])
def test_weights_are_scaled_exactly(case: str) -> None:
    """As if they were not: the same bits."""
    shape, sampler, _ = CASES[case]
    found = []
    for scale in (1, 2, 1024):
        out = target(shape, chunks=4)
        merge = Merge(out, sampler)
        merge._window = merge._window * scale
        merged(merge, batches_of(stored(elements(*shape)), sampler, batch_size=5))
        found.append(out[...])
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


# -- memory


@pytest.mark.usefixtures("small_tiles")
def test_memory_is_bounded_in_order() -> None:
    """In C order, two rows of patches and of tiles, however long the array is."""
    peaks = {}
    sampler = Patches((16, 32, 32), stride=(8, 16, 16))
    zeros = np.zeros((1, 16, 32, 32), "f4")
    for length in (128, 512):
        out = gzarr.create_array(
            gzarr.MemoryStore(), shape=(length, 64, 64), dtype="f4", chunks=(8, 16, 16), device="cpu"
        )
        merge = Merge(out, sampler)
        cells = np.argwhere(np.ones((length // 8, 4, 4), bool)) * [8, 16, 16]
        gzarr.release_memory()
        tracemalloc.start()
        for origin in cells:
            merge.add(zeros, origin[np.newaxis])
        peaks[length] = merge.most_held_bytes, tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        merge.close()
    assert peaks[128][0] == peaks[512][0] <= 2 * (16 + 16) * 64 * 64 * 4
    assert peaks[512][1] < 1.2 * peaks[128][1] < 512 * 64 * 64 * 4 / 2


@pytest.mark.usefixtures("small_tiles")
def test_each_chunk_is_written_once_as_soon_as_it_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = Patches((8, 8), stride=4)
    out = target((40, 32), chunks=(4, 4), shards=(8, 8))
    written: list[Any] = []
    write = gzarr.Array.write

    def recorded(array: Any, box: Any, values: Any, **options: Any) -> None:
        assert options["aligned"]
        written.append(tuple((one.start, one.stop) for one in box))
        write(array, box, values, **options)

    image, boxes = stored(elements(40, 32)), list(itertools.product(range(0, 40, 8), range(0, 32, 8)))
    monkeypatch.setattr(gzarr.Array, "write", recorded)
    with Merge(out, sampler) as merge:
        for batch in Loader(image, sampler, shuffle=False):
            merge.add(batch["data"], batch)
            y, x = batch.origins[0].tolist()
            # Later patches begin further to the right, or below.
            assert sorted(written) == [((i, i + 8), (j, j + 8)) for i, j in boxes if (y, x) >= (i + 4, j + 4)]
    assert len(written) == len(boxes)


@pytest.mark.usefixtures("small_tiles")
def test_listed_patches_are_in_the_order_of_the_list() -> None:
    """Whichever order takes least memory: here, along the second axis first."""
    columns = np.argwhere(np.ones((16, 4), bool))[:, ::-1] * 4
    columns = np.concatenate([columns[:3], columns])
    out, held = target((20, 68), chunks=(4, 4)), []
    for where in (columns, np.argwhere(np.ones((4, 16), bool)) * 4):
        sampler = Patches((8, 8), where=where)
        with Merge(out, sampler) as merge:
            for origin in where:
                merge.add(np.zeros((1, 8, 8), "f4"), origin[np.newaxis])
        assert merge.most_held_bytes == merge._in_order
        held.append(merge.most_held_bytes)
    assert held[0] < held[1] / 2


def test_small_chunks_share_a_tile() -> None:
    def shape(axes: Any, patch: Any, nbytes: int = 8) -> list[int]:
        return [min(axis.longest, axis.size) for axis in merge_tiles.tile_axes(axes, patch, nbytes)]

    cube = [RegularAxis(1000, 16)] * 3
    assert shape(cube, (64, 64, 64)) == [64, 64, 64]
    assert shape(cube, (40, 64, 64), 4) == [32, 64, 128]
    assert shape(cube, (16, 16, 16)) == [16, 16, 512]
    assert shape([RegularAxis(1000, 500)] * 3, (64, 64, 64)) == [500, 500, 500]
    assert shape([RegularAxis(10**9, 16)], (64,)) == [1 << 17]
    # The second axis is short.
    assert shape([RegularAxis(5000, 16), RegularAxis(70, 16)], (64, 64)) == [64 * 29, 70]


@pytest.mark.usefixtures("small_tiles")
def test_too_little_memory() -> None:
    sampler, data = Patches((8, 8), stride=4), elements(80, 64)
    image, out = stored(data), target((80, 64), chunks=(8, 8))
    needed = Merge(out, sampler)._in_order
    with pytest.raises(gzarr.ArgumentError, match=r"even if patches come in their own order.*larger budget_bytes"):
        Merge(out, sampler, budget_bytes=needed - 1)
    merge = Merge(out, sampler, budget_bytes=needed)
    with pytest.raises(gzarr.ArgumentError, match=r"shuffle=False\), they take .* at most"), merge:
        add_all(merge, Loader(image, sampler, shuffle="full"))
    assert merge.most_held_bytes <= needed
    # What was refused was not added, so order can still be restored.
    merge = Merge(out, sampler, budget_bytes=needed)
    refused = 0
    for batch in Loader(image, sampler, shuffle="full", batch_size=2):
        try:
            merge.add(batch["data"], batch)
        except gzarr.ArgumentError:
            refused += 1
    assert refused
    assert merge.missing
    with Merge(out, sampler, budget_bytes=needed) as merge:
        add_all(merge, Loader(image, sampler, shuffle=False))
    np.testing.assert_allclose(out[...], data, rtol=1e-6)
    doubled = Merge(out, sampler, budget_bytes=needed)
    with pytest.raises(gzarr.ArgumentError, match=r"patches need .*: pass a larger budget_bytes"):
        add_all(doubled, Loader(stored(data.astype("f8")), sampler, shuffle=False))


# -- which patches have come


@pytest.fixture
def line() -> tuple[Values, gzarr.Array, Patches, gzarr.Array]:
    """An image of 40 elements, patches of 8 with a stride of 4, and an output in chunks of 4."""
    data = elements(40)
    return data, stored(data), Patches((8,), stride=4), target(40, chunks=4)


def batches_of(image: gzarr.Array, sampler: Patches, **options: Any) -> Iterator[Batch]:
    return iter(Loader(image, sampler, **{"batch_size": 4, "shuffle": False, "drop_last": False, **options}))


@pytest.mark.usefixtures("small_tiles")
def test_missing_patches_are_an_error(line: Any) -> None:
    data, image, sampler, out = line
    merge = Merge(out, sampler)
    with pytest.raises(gzarr.ArgumentError, match=r"2 of 10 patches.* begins at \(32,\).*drop_last=False"), merge:
        add_all(merge, batches_of(image, sampler, drop_last=True))
    # Complete tiles are stored, and no others.
    np.testing.assert_allclose(out[:32], data[:32], rtol=1e-6)
    np.testing.assert_array_equal(out[32:], BEFORE)
    with pytest.raises(gzarr.ArgumentError, match="closed"):
        merge.add(data[np.newaxis, 32:], [[32]])
    # Without a with statement, they may still come.
    out[...] = BEFORE
    merge = Merge(out, sampler)
    add_all(merge, batches_of(image, sampler, drop_last=True))
    with pytest.raises(gzarr.ArgumentError, match="2 of 10"):
        merge.close()
    assert merge.missing == 2
    merge.add(np.stack([data[32:], np.append(data[36:], [0] * 4)]), [[32], [36]])
    merge.close()
    merge.close()
    np.testing.assert_allclose(out[...], data, rtol=1e-6)


@pytest.mark.usefixtures("small_tiles")
def test_partial(line: Any) -> None:
    data, _, sampler, out = line
    with Merge(out, sampler, partial=True) as merge:
        merge.add(data[np.newaxis, 8:16], [[8]])
        np.testing.assert_array_equal(out[...], BEFORE)
    np.testing.assert_allclose(out[8:16], data[8:16], rtol=1e-6)
    np.testing.assert_array_equal(out[:8], BEFORE)
    np.testing.assert_array_equal(out[16:], BEFORE)
    assert merge.missing == 9


def test_elements_without_patches_are_the_fill_value() -> None:
    out = gzarr.create_array({}, shape=20, dtype="f4", chunks=20, fill_value=5, device="cpu")
    out = gzarr.Array(out.metadata, out.store, out.path, mode="r+", missing="error", device="cpu")
    with Merge(out, Patches((4,), stride=10)) as merge:
        merge.add(np.ones((2, 4)), [[10], [0]])
    np.testing.assert_array_equal(out[...], ([1] * 4 + [5] * 6) * 2)


def test_repeated_patches_count_once(line: Any) -> None:
    """A loader with ``pad=True`` fills up its last batch by samples from the beginning."""
    data, image, sampler, out = line
    batches = list(batches_of(image, sampler, pad=True))
    assert sum(len(batch.samples) for batch in batches) == 12
    with Merge(out, sampler) as merge:
        for i, batch in enumerate(batches):
            merge.add(batch["data"] + (batch.origins < 8) * 100.0 * i, batch)
    np.testing.assert_allclose(out[...], data, rtol=1e-6)


@pytest.mark.usefixtures("small_tiles")
def test_after_an_exception_nothing_is_written(line: Any) -> None:
    data, image, sampler, out = line
    with pytest.raises(KeyError), Merge(out, sampler, partial=True) as merge:
        add_all(merge, batches_of(image, sampler), stop_at=1)
    assert merge.held_bytes == len(merge._live) == 0
    np.testing.assert_allclose(out[:16], data[:16], rtol=1e-6)
    np.testing.assert_array_equal(out[16:], BEFORE)


@pytest.mark.usefixtures("small_tiles")
def test_failed_writes_are_tried_again(line: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    data, image, sampler, out = line
    merge = Merge(out, sampler)
    write, failures = gzarr.Array.write, [None] * 3

    def failing(array: Any, *arguments: Any, **options: Any) -> None:
        if failures:
            failures.pop()
            raise gzarr.errors.StoreError("the disk is full")
        write(array, *arguments, **options)

    monkeypatch.setattr(gzarr.Array, "write", failing)
    for batch in batches_of(image, sampler, batch_size=1):
        try:
            merge.add(batch["data"], batch)
        except gzarr.errors.StoreError:
            # Nothing is added twice.
            with_more = batch["data"] + 1000
            merge.add(with_more, batch)
    merge.close()
    assert not failures
    np.testing.assert_allclose(out[...], data, rtol=1e-6)


def interrupted(*args: Any) -> Any:
    raise KeyboardInterrupt


def check_refusal(merge: Merge, data: Values) -> None:
    for _ in range(2):
        with pytest.raises(gzarr.ArgumentError, match=r"interrupted while it changed sums.*by a new Merge"):
            merge.add(data[np.newaxis, 4:12], [[4]])
        with pytest.raises(gzarr.ArgumentError, match="interrupted while it changed sums"):
            merge.close()


@pytest.mark.usefixtures("small_tiles")
def test_an_interrupted_patch_is_not_added_again(line: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is anything written of the parts that it touches: one has it already."""
    data, _, sampler, out = line
    merge = Merge(out, sampler, partial=True)
    merge.add(data[np.newaxis, :8], [[0]])
    box, calls = merge._box, itertools.count()
    # One for a new tile, and two for each piece: the first piece is added, the second not.
    monkeypatch.setattr(merge, "_box", lambda *args: (interrupted if next(calls) == 3 else box)(*args))
    with pytest.raises(KeyboardInterrupt):
        merge.add(data[np.newaxis, 4:12], [[4]])
    monkeypatch.undo()
    check_refusal(merge, data)
    assert merge.missing == 9
    np.testing.assert_array_equal(out[...], BEFORE)


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("by_close", [False, True])
def test_sums_are_not_divided_twice(line: Any, monkeypatch: pytest.MonkeyPatch, by_close: bool) -> None:
    data, _, sampler, out = line
    merge, divide = Merge(out, sampler, partial=True), merging._divide
    merge.add(data[np.newaxis, :8], [[0]])
    monkeypatch.setattr(merging, "_divide", lambda *args: interrupted(divide(*args)))
    with pytest.raises(KeyboardInterrupt):
        merge.close() if by_close else merge.add(data[np.newaxis, 4:12], [[4]])
    monkeypatch.undo()
    check_refusal(merge, data)
    np.testing.assert_array_equal(out[...], BEFORE)


@pytest.mark.usefixtures("small_tiles")
def test_memory_that_is_refused_is_not_counted(line: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    data, image, sampler, out = line
    zeros, calls = merge_memory.HostMergeMemory.zeros, itertools.count()

    def refused(*args: Any) -> Any:
        # The second tile's sums, when those of the first are made.
        if next(calls) == 2:
            raise MemoryError
        return zeros(*args)

    monkeypatch.setattr(merge_memory.HostMergeMemory, "zeros", refused)
    merge = Merge(out, sampler)
    with pytest.raises(MemoryError):
        merge.add(data[np.newaxis, 4:12], [[4]])
    assert merge.held_bytes == 0
    merge.add(data[np.newaxis, 4:12], [[4]])
    assert merge.held_bytes == 2 * 8 * 8
    add_all(merge, batches_of(image, sampler))
    assert merge.held_bytes == 0
    merge.close()
    np.testing.assert_allclose(out[...], data, rtol=1e-6)


def test_a_window_that_memory_is_refused_to_is_copied_again(line: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    data, _, sampler, out = line
    merge = Merge(out, sampler, partial=True)
    monkeypatch.setattr(merge_memory.HostMergeMemory, "copied", interrupted)
    with pytest.raises(KeyboardInterrupt):
        merge.add(data[np.newaxis, :8], [[0]])
    monkeypatch.undo()
    monkeypatch.setattr(merge_tiles, "TILE_BYTES", 1)
    merge.add(data[np.newaxis, :8], [[0]])
    merge.close()
    np.testing.assert_allclose(out[:8], data[:8], rtol=1e-6)


@pytest.mark.usefixtures("small_tiles")
def test_nothing_is_added_once_parts_that_lack_patches_are_written(line: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    data, _, sampler, out = line
    merge = Merge(out, sampler, partial=True)
    merge.add(data[np.newaxis, 12:20], [[12]])
    write, calls = gzarr.Array.write, itertools.count()

    def failing(*args: Any, **options: Any) -> None:
        if next(calls) == 1:
            raise gzarr.StoreError("the disk is full")
        write(*args, **options)

    monkeypatch.setattr(gzarr.Array, "write", failing)
    with pytest.raises(gzarr.StoreError, match="full"):
        merge.close()
    with pytest.raises(gzarr.ArgumentError, match=r"has begun to write.*call close\(\) again"):
        merge.add(data[np.newaxis, 16:24], [[16]])
    merge.close()
    np.testing.assert_allclose(out[12:20], data[12:20], rtol=1e-6)
    np.testing.assert_array_equal(np.delete(out[...], range(12, 20)), BEFORE)


def test_patches_that_come_again_after_a_failed_close_are_ignored(line: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    data, image, sampler, out = line
    merge, batches = Merge(out, sampler), list(batches_of(image, sampler))

    def failing(*args: Any, **options: Any) -> None:
        raise gzarr.StoreError("the disk is full")

    add_all(merge, batches[:-1])
    monkeypatch.setattr(gzarr.Array, "write", failing)
    for call in (lambda: add_all(merge, batches[-1:]), merge.close):
        with pytest.raises(gzarr.StoreError, match="full"):
            call()
    assert merge.missing == 0
    monkeypatch.undo()
    add_all(merge, batches[-1:])
    merge.close()
    np.testing.assert_allclose(out[...], data, rtol=1e-6)


# -- what is refused


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((2, 3, 8, 7), r"\(2, 3, 8, 7\); for 2 patches in .*must be \(2, 3, 8, 6\), or \(2, 3, 10, 8\) with the halo"),
        ((3, 3, 8, 6), r"must be \(2, 3, 8, 6\)"),
        ((2, 8, 6), r"must be \(2, 3, 8, 6\)"),
        ((2, 3, 10, 6), r"must be \(2, 3, 8, 6\)"),
    ],
)
def test_wrong_shapes(shape: tuple[int, ...], message: str) -> None:
    merge = Merge(target((3, 20, 20)), Patches((8, 6), halo=1))
    with pytest.raises(gzarr.ArgumentError, match=message):
        merge.add(np.zeros(shape, "f4"), [[0, 0], [8, 6]])
    assert merge.missing == 12


@pytest.mark.parametrize("listed", [None, [[0, 0], [4, 4]], []], ids=["grid", "listed", "none"])
def test_unknown_patches(listed: Any) -> None:
    where = None if listed is None else np.array(listed, "i8").reshape(-1, 2)
    merge = Merge(target((20, 20)), Patches((8, 8), stride=4, where=where))
    for origin in [(0, 3), (20, 0), (-4, 0), (0, 40)]:
        with pytest.raises(gzarr.ArgumentError, match=rf"begins at \({origin[0]}, {origin[1]}\).* shape of"):
            merge.add(np.zeros((1, 8, 8)), [origin])
    for wrong in ([0, 0], [[0]], [[0.0, 0.0]]):
        with pytest.raises(gzarr.ArgumentError, match=r"integers of shape \(n, 2\)"):
            merge.add(np.zeros((1, 8, 8)), wrong)


def test_wrong_arguments(line: Any) -> None:
    _, image, sampler, out = line
    refused: list[tuple[Any, str]] = [
        ((np.zeros(40), sampler), "array of gzarr"),
        ((target(40, "bool"), sampler), "no means"),
        ((target(40, "c8"), sampler), "no means"),
        ((out, Rows()), "must be the loader's Patches"),
        ((out, Patches((8,), jitter=True)), "random places"),
        ((out, Patches((8,), weights=[1] * 5)), "random places"),
        ((out, Patches((8,), samples=3)), "random places"),
        ((out, Patches((8, 8))), "no patches of 2 axes"),
        ((out, sampler, "hanning"), "window must be 'hann', 'gaussian', 'flat'"),
        ((out, sampler, np.ones(7)), r"the window has shape \(7,\)"),
        ((out, sampler, np.zeros(8)), "positive"),
        ((out, sampler, [np.nan] * 8), "positive"),
        ((out, sampler, ["a"] * 8), "numbers"),
    ]
    for arguments, message in refused:
        with pytest.raises(gzarr.ArgumentError, match=message):
            Merge(*arguments)
    wrong_axes: list[Any] = [(1,), (0, 0), "a", (False,), (0.0,), b"\0", {0: 0}]
    for options in ({"budget_bytes": 0}, {"budget_bytes": 1.5}, *({"axes": axes} for axes in wrong_axes)):
        with pytest.raises(gzarr.ArgumentError, match=r"budget_bytes|no patches"):
            Merge(out, sampler, **options)
    with pytest.raises(gzarr.errors.ReadOnlyError):
        Merge(gzarr.open_array(out.store, device="cpu"), sampler)
    merge = Merge(out, sampler)
    with pytest.raises(gzarr.ArgumentError, match="complex64 have no means"):
        merge.add(np.zeros((1, 8), "c8"), [[0]])
    two = next(iter(Loader([image, image], sampler, batch_size=20)))
    with pytest.raises(gzarr.ArgumentError, match="several volumes"):
        merge.add(two["data"], two)
    assert repr(merge).startswith("<Merge of 0 of 10 patches of (8,) into / (40,) float32, 0 bytes")


def test_arrays_without_elements() -> None:
    for sampler in (Patches((8, 8)), Patches((8, 8), where=np.empty((0, 2), "i8"))):
        with Merge(target((0, 20)), sampler) as merge:
            merge.add(np.zeros((0, 8, 8)), np.zeros((0, 2), "i8"))
        assert merge.missing == 0


def test_the_host_waits_for_work_without_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """No stream can wait for it later."""

    def refused(*args: Any) -> None:
        raise gzarr.DeviceError("refused")

    waited: list[None] = []
    with on_host() as device:
        memory = merge_memory.merge_memory(device.name)
        with memory.using() as place:
            kind = type(place.stream)
        with monkeypatch.context() as patch:
            wait = kind.synchronize
            patch.setattr(kind, "synchronize", lambda own: [waited.append(None), wait(own)])
            patch.setattr(kind, "record", refused)
            with pytest.raises(gzarr.DeviceError, match="refused"), memory.using():
                assert not waited
            assert len(waited) == 1
        with memory.using() as place:
            assert place.zeros((4,), np.dtype("f4")).shape == (4,)
        memory.close()
        del memory, place
