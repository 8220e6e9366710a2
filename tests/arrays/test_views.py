"""Views: equal to NumPy's indexing, read on every device, of the chunks that have their elements and no others."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import hypothesis.extra.numpy as npst
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from support.counting_store import CountingStore

import gzarr

if TYPE_CHECKING:
    from pathlib import Path

    from support.devices import TestedDevice

BOUNDED = settings(
    max_examples=80,
    deadline=None,
    derandomize=True,
    # The fixture "device" has nothing of an example that it would have to forget.
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def elements(shape: tuple[int, ...], dtype: Any = "u2") -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).integers(0, 60_000, shape).astype(dtype)


def same(found: Any, wanted: Any) -> None:
    assert (found.shape, found.dtype) == (np.asarray(wanted).shape, np.asarray(wanted).dtype)
    np.testing.assert_array_equal(found, wanted)


@st.composite
def stored(draw: st.DrawFn) -> tuple[np.ndarray[Any, Any], dict[str, Any]]:
    """Return elements, and the store of an array of them: regular chunks, uneven ones, or shards."""
    shape = tuple(draw(st.lists(st.sampled_from([*range(14), 5, 8, 10, 12]), min_size=1, max_size=4)))
    data = elements(shape)
    kind = draw(st.sampled_from(["regular", "uneven", "shards", "F"]))
    chunks: Any = tuple(draw(st.integers(1, 5)) for _ in shape)
    options: dict[str, Any] = {}
    if kind == "uneven" and 0 not in shape:
        chunks = []
        for n in shape:
            lengths: list[int] = []
            while sum(lengths) < n:
                lengths.append(draw(st.integers(1, 5)))
            chunks.append(lengths)
    elif kind == "shards":
        options["shards"] = tuple(c * draw(st.integers(1, 3)) for c in chunks)
    elif kind == "F":
        options["order"] = "F"
    store: dict[str, Any] = {}
    gzarr.create_array(store, data=data, chunks=chunks, device="cpu", **options)
    return data, store


@st.composite
def parts(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Return a selection that mostly leaves something."""
    items: list[Any] = []
    for n in shape:
        kind = draw(st.sampled_from(["whole", "reversed", "slice", "slice", "any slice", "integer" if n else "whole"]))
        step = draw(st.sampled_from([None, 1, 2, 3, -1, -2, -3]))
        edge = draw(st.integers(0, n // 3))
        ends = (edge, n - edge) if (step or 1) > 0 else (n - 1 - edge, edge or None)
        items.append(
            {
                "whole": slice(None),
                "reversed": slice(None, None, -1),
                "slice": slice(*ends, step),
                "any slice": draw(st.slices(n)),
                "integer": draw(st.integers(-n, n - 1)) if n else None,
            }[kind]
        )
    if draw(st.integers(0, 3)) == 0:
        at = draw(st.integers(0, len(items)))
        items = [*items[:at], ...] if draw(st.booleans()) else [*items[:at], ..., *items[at:]]
    return tuple(items)


def drawn_view(data: st.DataObject, array: Any, everything: Any) -> tuple[Any, Any]:
    """Return a view of an array, or of a view of one, or of that; and its elements."""
    for _ in range(data.draw(st.integers(1, 3))):
        indices = data.draw(parts(everything.shape))
        everything = everything[indices if ... in indices else (*indices, ...)]
        array = array.view[indices]
    return array, everything


@BOUNDED
@given(data=st.data(), made=stored())
def test_views_of_views(data: st.DataObject, made: Any, device: TestedDevice) -> None:
    everything, store = made
    view, wanted = drawn_view(data, device.open(store), everything)
    assert (view.shape, view.ndim, view.dtype, view.size) == (wanted.shape, wanted.ndim, wanted.dtype, wanted.size)
    same(device.read(view), wanted)
    assert tuple(map(sum, view.chunk_lengths)) == view.shape
    out = device.empty(view.shape[::-1], view.dtype).T
    same(device.to_numpy(view.read(out=out)), wanted)


@BOUNDED
@given(data=st.data(), made=stored())
def test_reads_of_views(data: st.DataObject, made: Any, device: TestedDevice) -> None:
    """Every kind of selection, of views that may be reversed, have gaps, and lack axes."""
    everything, store = made
    view, wanted = drawn_view(data, device.open(store), everything)
    for selection in (data.draw(npst.basic_indices(wanted.shape, allow_newaxis=True)), data.draw(parts(wanted.shape))):
        indices = selection if isinstance(selection, tuple) else (selection,)
        same(device.to_numpy(view.read(selection)), wanted[indices if ... in indices else (*indices, ...)])
    if not view.ndim or not view.size:
        return
    index = [data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=6)) for n in view.shape]
    same(device.to_numpy(view.oindex[tuple(index)]), wanted[np.ix_(*index)])
    d = data.draw(st.integers(0, view.ndim - 1))
    some = [slice(None, None, -1) if i != d else index[d] for i in range(view.ndim)]
    same(device.to_numpy(view.oindex[tuple(some)]), wanted[tuple(some)])
    count = min(map(len, index))
    points = tuple(row[:count] for row in index)
    same(device.to_numpy(view.vindex[points]), wanted[points])
    mask = wanted > 30_000
    same(device.to_numpy(view.vindex[mask]), wanted[mask])
    shape = tuple(data.draw(st.integers(1, n)) for n in view.shape)
    starts = np.array(
        [[data.draw(st.integers(0, n - w)) for n, w in zip(view.shape, shape, strict=True)] for _ in range(3)]
    )
    boxes = [tuple(slice(a, a + w) for a, w in zip(start, shape, strict=True)) for start in starts.tolist()]
    windows = np.stack([wanted[box] for box in boxes])
    same(device.to_numpy(view.read_windows(starts, shape)), windows)
    same(device.to_numpy(view.read_many(boxes)), windows)
    outs = [device.empty((2, *shape), view.dtype), device.empty((1, *shape), view.dtype)]
    view.read_windows(starts, shape, out=outs, rows=[2, 0, 1])
    same(np.concatenate([device.to_numpy(out) for out in outs]), windows[[1, 2, 0]])
    grid = tuple(range(n) for n in view.cdata_shape)
    coords = [tuple(data.draw(st.sampled_from(along)) for along in grid)]
    extent = tuple(slice(*e) for e in view.metadata.chunk_grid.extent(coords[0]))
    chunk = device.empty(wanted[extent].shape, view.dtype)
    view._read_chunks(coords, [chunk], None)
    same(device.to_numpy(chunk), wanted[extent])
    same(device.to_numpy(view.blocks[coords[0]]), wanted[extent])


@BOUNDED
@given(data=st.data(), made=stored())
def test_only_chunks_with_elements_are_read(data: st.DataObject, made: Any) -> None:
    everything, values = made
    store = CountingStore()
    for key, value in values.items():
        store.set(key, value)
    array = gzarr.open_array(store, device="cpu")
    numbers = np.arange(everything.size).reshape(everything.shape)
    store.asked.clear()
    view, wanted = drawn_view(data, array, numbers)
    assert not store.asked, "a view reads nothing"
    if array.shards is not None or not everything.size:
        return
    view.read()
    places = np.stack(np.unravel_index(wanted.reshape(-1), everything.shape), axis=1)
    chunks = {tuple(row) for row in array.metadata.chunk_grid.chunk_of(places).tolist()}
    assert sum("c/" in request.key for request in store.asked) == len(chunks)
    assert view.nchunks == len(chunks)


# -- what it tells of itself


def image(**options: Any) -> tuple[np.ndarray[Any, Any], gzarr.Array]:
    data = elements((3, 40, 50))
    options = {"chunks": (1, 16, 16), "dimension_names": ["c", "y", "x"], "attributes": {"a": 1}, **options}
    return data, gzarr.create_array({}, path="i", data=data, device="cpu", **options)


def test_properties() -> None:
    data, array = image(fill_value=7)
    view = array.view[1, :, 10:42]
    assert isinstance(view, gzarr.ArrayView)
    assert (view.shape, view.chunks, view.shards, view.dimension_names) == ((40, 32), (16, 16), None, ("y", "x"))
    assert view.chunk_lengths == ((16, 16, 8), (6, 16, 10))
    assert (view.fill_value, dict(view.attrs), view.nbytes) == (7, {"a": 1}, 40 * 32 * 2)
    assert (view.name, view.path, len(view), view.cdata_shape) == ("/i[1, 0:40, 10:42]", "i", 40, (3, 3))
    assert repr(view).startswith(
        "<gzarr.ArrayView /i[1, 0:40, 10:42] (40, 32) uint16, chunks (16, 16), cpu-native: blo"
    )
    assert repr(view.view) == f"{view!r}.view"
    assert "[1, 0:40, 10:42]" in str(view.info)
    assert view._repr_html_() is None
    assert array.view[2, ::-2, :5].name == "/i[2, 39::-2, 0:5]"
    np.testing.assert_array_equal(np.asarray(view), data[1, :, 10:42])
    np.testing.assert_array_equal(list(view), data[1, :, 10:42])
    np.testing.assert_array_equal(np.from_dlpack(view), data[1, :, 10:42])
    assert view[3, 4] == data[1, 3, 14]
    # Whole chunks stay chunks of one length.
    assert array.view[:, 16:].chunk_lengths == ((1, 1, 1), (16, 8), (16, 16, 16, 2))
    assert array.view[:, 16:].metadata.chunk_grid.is_regular
    assert array.view[:, ::4].chunks == (1, 4, 16)
    assert array.view[:, ::20].chunks == (1, 1, 16)


def test_views_are_equal_if_they_are_of_the_same_elements() -> None:
    _, array = image()
    view = array.view[1, :, 10:42]
    assert view == array.view[1].view[:, 10:].view[..., :32]
    assert view != array.view[1, :, 10:43]
    assert view != array
    assert view.base == array


def test_a_pickled_view(tmp_path: Path, device: TestedDevice) -> None:
    data = elements((20, 30))
    gzarr.create_array(tmp_path / "a", data=data, chunks=7)
    view = device.open(tmp_path / "a").view[3::2, 5]
    again = pickle.loads(pickle.dumps(view))
    assert again == view
    assert again.device == view.device
    np.testing.assert_array_equal(device.read(again), data[3::2, 5])


def test_it_stays_as_it_is_when_the_array_changes() -> None:
    data, array = image(fill_value=7)
    view = array.view[1:, ::-1]
    array.resize((2, 40, 50))
    assert view.shape == (2, 40, 50)
    np.testing.assert_array_equal(view[0], data[1, ::-1])
    assert (view[1] == 7).all()
    array[1] = 3
    assert (view[0] == 3).all()


def test_shards() -> None:
    data, array = image(chunks=(1, 8, 8), shards=(3, 16, 24))
    view = array.view[1, 3:33:3]
    assert (view.shape, view.shards, view.chunks) == ((10, 50), None, (3, 8))
    np.testing.assert_array_equal(view[...], data[1, 3:33:3])


def test_records_and_missing_chunks() -> None:
    data = np.zeros((6, 8), [("a", "i4"), ("b", "f8")])
    data["a"], data["b"] = np.arange(48).reshape(6, 8), np.arange(48).reshape(6, 8) / 3
    array = gzarr.create_array({}, data=data, chunks=4, device="cpu")
    np.testing.assert_array_equal(array.view[::-1, 3]["a"], data["a"][::-1, 3])
    np.testing.assert_array_equal(array.view[1:, ::3].read("b"), data["b"][1:, ::3])
    empty = gzarr.create_array({}, shape=(6, 8), chunks=4, dtype="i4", fill_value=5, device="cpu")
    assert (empty.view[2][...] == 5).all()
    with pytest.raises(gzarr.MissingChunkError, match=r"chunk \(0, 1\), key .c/0/1.: the store has no such"):
        gzarr.open_array(empty.store, device="cpu", missing="error").view[2].view[4:].read()


# -- what is refused


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        (np.newaxis, r"a view takes integers, slices and '...', for an array of shape \(3, 40, 50\)"),
        ([0, 1], "a view takes"),
        (np.array([0, 1]), "a view takes"),
        (True, "a view takes"),
        ("a", "a view takes"),
        (1.5, "a view takes"),
        (3, "out of bounds"),
        ((0, 0, 0, 0), "."),
        ((..., 0, ...), "."),
        (slice(0, 2, 0), "."),
    ],
    ids=repr,
)
def test_wrong_selections(selection: Any, message: str) -> None:
    _, array = image()
    with pytest.raises(gzarr.SelectionError, match=message):
        array.view[selection]


def test_views_are_for_reading() -> None:
    _, array = image()
    view = array.view[0]
    for write in (
        lambda: view.__setitem__(..., 0),
        lambda: view.oindex.__setitem__(([0],), 0),
        lambda: view.attrs.update(a=2),
        lambda: view.update_attributes({"a": 2}),
    ):
        with pytest.raises(gzarr.ReadOnlyError):
            write()
    assert not hasattr(view, "resize")
    for ask in (lambda: view.nchunks_initialized, view.info_complete, view.nbytes_stored):
        with pytest.raises(gzarr.ArgumentError, match=r"what is stored is the array's: ask view\.base\."):
            ask()


def test_chunks_that_cannot_be_counted() -> None:
    array = gzarr.create_array({}, shape=(2**40,), chunks=1000, dtype="u1", device="cpu")
    assert array.view[3000:].nchunks == -(-(2**40 - 3000) // 1000)
    assert array.view[5:10_005].shape == (10_000,)
    with pytest.raises(gzarr.SelectionError, match="begin at the first element of a chunk"):
        array.view[5:]
