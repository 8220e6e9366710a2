"""Changing the shape of arrays: growing, shrinking, appending; in turns; and with failures of the store in between."""

from __future__ import annotations

import errno
import tempfile
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import zarr_arrays as z

import gzarr
from gzarr.arrays import resize
from gzarr.stores.local import LocalStore
from gzarr.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LAYOUTS: dict[str, dict[str, Any]] = {
    "v3": {"chunks": (3, 4)},
    "v3 sharded": {"chunks": (2, 3), "shards": (6, 6)},
    "v2": {"chunks": (3, 4), "zarr_format": 2},
    "v2 nested": {"chunks": (3, 4), "zarr_format": 2, "chunk_key_encoding": {"name": "v2", "separator": "/"}},
}


def make(path: Path, shape: tuple[int, ...] = (10, 9), **options: Any) -> gzarr.Array:
    zarr.create_array(path, **{"shape": shape, "dtype": "i4", "fill_value": -1, **options})
    return opened(path)


def documents(shape: tuple[int, ...], layout: dict[str, Any]) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder), shape, **layout)
        return z.in_memory(Path(folder))


def opened(path: Path) -> gzarr.Array:
    metadata = gzarr.open_array(path, device="cpu").metadata
    return gzarr.Array(metadata, LocalStore(path), "", device="cpu", mode="r+")


def filled(old: np.ndarray[Any, Any], shape: Sequence[int], fill: int = -1) -> np.ndarray[Any, Any]:
    new = np.full(shape, fill, old.dtype)
    both = tuple(slice(min(a, b)) for a, b in zip(old.shape, shape, strict=True))
    new[both] = old[both]
    return new


def check(array: gzarr.Array, path: Path, expected: np.ndarray[Any, Any]) -> None:
    z.same(array[...], expected)
    z.same(gzarr.open_array(path, device="cpu")[...], expected)
    z.same(np.asarray(zarr.open_array(path, mode="r")[...]), expected)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_shrinking_and_growing(layout: str, tmp_path: Path) -> None:
    array = make(tmp_path, attributes={"units": "m"}, **LAYOUTS[layout])
    data = np.arange(90, dtype="i4").reshape(10, 9)
    array[...] = data
    for shape in [(7, 9), (10, 9), (10, 5), (14, 4), (1, 13), (0, 13), (5, 5)]:
        array.resize(shape)
        data = filled(data, shape)
        assert array.shape == shape
        check(array, tmp_path, data)
        # Chunks outside are gone, and so are those that became nothing but the fill value.
        assert array.nchunks_initialized <= array.nchunks
        assert len(list(array.store.list())) <= array.nchunks + 3  # type: ignore[attr-defined]
    assert dict(array.attrs) == {"units": "m"}
    assert array.nchunks_initialized == 0


def test_what_is_not_erased_comes_back(tmp_path: Path) -> None:
    array = make(tmp_path, chunks=(3, 4))
    data = np.arange(90, dtype="i4").reshape(10, 9)
    array[...] = data
    array.resize((4, 9), erase=False)
    check(array, tmp_path, data[:4])
    array.resize((10, 9))
    check(array, tmp_path, data)


def test_one_dimension_takes_a_number(tmp_path: Path) -> None:
    array = make(tmp_path, (5,), chunks=(2,))
    array[...] = np.arange(5)
    array.resize(3)
    assert array[...].tolist() == [0, 1, 2]


def test_many_chunks_are_found_by_listing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    array = make(tmp_path, (10**9, 10**9), chunks=(2, 3))
    array[:2, :3] = 1
    array[10**9 - 4 :, 10**9 - 4 :] = 2
    array[12, 5:7] = 3
    array.resize((13, 6))
    assert sorted(array.store.list_prefix("c/")) == ["c/0/0", "c/6/1"]  # type: ignore[attr-defined]
    array.resize((10**9, 10**9))
    assert array[12, :9].tolist() == [-1, -1, -1, -1, -1, 3, -1, -1, -1]
    # What an interrupted change has left behind, beyond the array, goes with the next one.
    array.resize((4, 4), erase=False)
    monkeypatch.setattr(resize, "MAX_NAMED", 0)
    array.resize((3, 3))
    assert sorted(array.store.list_prefix("c/")) == ["c/0/0"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_appending(layout: str, axis: int, tmp_path: Path) -> None:
    array = make(tmp_path, (0, 9) if axis == 0 else (10, 0), **LAYOUTS[layout])
    data = np.empty(array.shape, "i4")
    for length in (1, 3, 0, 5, 1, 7):
        shape = (length, 9) if axis == 0 else (10, length)
        more = np.random.default_rng(length).integers(0, 99, shape, "i4")
        data = np.concatenate([data, more], axis)
        assert array.append(more, axis) == data.shape
        assert array.shape == data.shape
    check(array, tmp_path, data)
    assert array.append(np.zeros(array.shape, "u1").tolist(), axis)[axis] == 2 * data.shape[axis]


def test_appending_to_other_types(tmp_path: Path) -> None:
    zarr.create_array(tmp_path, shape=(0,), chunks=(2,), dtype=str, fill_value="")
    array = opened(tmp_path)
    array.append(["a", "longer", "ß"])
    array.append(np.array(["d"]))
    assert array[...].tolist() == ["a", "longer", "ß", "d"]


@pytest.mark.parametrize(
    ("value", "axis", "message"),
    [
        (np.zeros((2, 8), "i4"), 0, r"of shape \(2, 8\) cannot be appended along axis 0 to one of shape \(10, 9\)"),
        (np.zeros(9, "i4"), 0, r"of shape \(9,\)"),
        (np.zeros((2, 9), "i4"), 2, "axis must be an integer from -2 to 1, not 2"),
        (np.zeros((2, 9), "i4"), 0.5, "axis must be an integer"),
        (np.full((2, 9), 0.5), 0, "cannot be stored as int32"),
    ],
)
def test_what_cannot_be_appended(value: Any, axis: Any, message: str, tmp_path: Path) -> None:
    array = make(tmp_path, chunks=(3, 4))
    array[...] = 5
    before = {key: array.store.get(key) for key in array.store.list()}  # type: ignore[attr-defined]
    with pytest.raises(gzarr.ArgumentError, match=message):
        array.append(value, axis)
    assert {key: array.store.get(key) for key in array.store.list()} == before  # type: ignore[attr-defined]
    assert array.shape == (10, 9)


class Full(MemoryStore):
    """A store with room for a few more chunks."""

    room = 1000

    def set_parts(self, key: str, parts: Any) -> None:
        if key.startswith("c/"):
            if not self.room:
                raise OSError(errno.ENOSPC, "No space left on device")
            self.room -= 1
        super().set_parts(key, parts)


@pytest.mark.parametrize("room", [0, 1, 2, 3])
@pytest.mark.parametrize("options", [{}, {"shards": 4}], ids=["chunks", "shards"])
def test_an_append_that_fails_leaves_nothing_behind_the_end(room: int, options: dict[str, Any]) -> None:
    store = Full()
    array = gzarr.create_array(store, shape=5, chunks=2, dtype="i4", device="cpu", **options)
    array[...] = 1
    store.room = room
    with pytest.raises(gzarr.ChunkWriteError):
        array.append(np.full(20, 9, "i4"))
    assert array.shape == (5,)
    store.room = 1000
    array.resize(25)
    assert array[...].tolist() == [1] * 5 + [0] * 20


@pytest.mark.parametrize("shape", [(10,), (10, 9, 1), (-1, 9), (2**63, 9), "ab", (1.5, 2), None])
def test_what_is_no_shape(shape: Any, tmp_path: Path) -> None:
    array = make(tmp_path, chunks=(3, 4))
    with pytest.raises(gzarr.ArgumentError):
        array.resize(shape)
    assert gzarr.open_array(tmp_path, device="cpu").shape == (10, 9)


def test_read_only_arrays_and_scalars(tmp_path: Path) -> None:
    make(tmp_path / "a", chunks=(3, 4))
    array = gzarr.open_array(tmp_path / "a", device="cpu")
    with pytest.raises(gzarr.ReadOnlyError):
        array.resize((1, 1))
    with pytest.raises(gzarr.ReadOnlyError):
        array.append(np.zeros((1, 9)))
    scalar = make(tmp_path / "b", ())
    with pytest.raises(gzarr.ArgumentError, match="zero dimensions"):
        scalar.append(3)


def test_an_array_that_is_gone_or_another(tmp_path: Path) -> None:
    array = make(tmp_path / "a", chunks=(3, 4))
    zarr.create_array(tmp_path / "a", shape=(10, 9), chunks=(2, 2), dtype="i4", overwrite=True)
    for change in (lambda: array.resize((3, 3)), lambda: array.append(np.zeros((1, 9), "i4"))):
        with pytest.raises(gzarr.ArgumentError, match="replaced by another array"):
            change()
    (tmp_path / "a" / "zarr.json").unlink()
    for change in (lambda: array.resize((3, 3)), lambda: array.append(np.zeros((1, 9), "i4"))):
        with pytest.raises(gzarr.NodeNotFoundError):
            change()


@pytest.mark.parametrize("lock", [False, True])
def test_threads_that_append_lose_nothing(lock: bool, tmp_path: Path) -> None:
    make(tmp_path, (0, 4), chunks=(5, 4))
    start = threading.Barrier(4)

    def run(i: int) -> None:
        # One array a thread: each was opened when there was nothing.
        array = opened(tmp_path)
        start.wait()
        for step in range(12):
            array.append(np.full((1 + step % 3, 4), 100 * i + step, "i4"), lock=lock)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, range(4)))
    rows = gzarr.open_array(tmp_path, device="cpu")[...]
    assert (rows == rows[:, :1]).all()
    assert Counter(rows[:, 0].tolist()) == Counter(
        100 * i + step for i in range(4) for step in range(12) for _ in range(1 + step % 3)
    )


def test_attributes_that_others_changed_meanwhile_stay(tmp_path: Path) -> None:
    array = make(tmp_path, chunks=(3, 4))
    zarr.open_array(tmp_path, mode="r+").attrs["units"] = "K"
    array.append(np.zeros((1, 9), "i4"))
    assert dict(gzarr.open_array(tmp_path, device="cpu").attrs) == {"units": "K"}
    zarr.open_array(tmp_path, mode="r+").attrs["units"] = "°C"
    array.resize((3, 3))
    assert dict(array.attrs) == dict(gzarr.open_array(tmp_path, device="cpu").attrs) == {"units": "°C"}


class FailingStore(MemoryStore):
    """A store whose n-th change fails."""

    def __init__(self, values: dict[str, bytes]) -> None:
        super().__init__(values)
        self.left = 10**9

    def _step(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise OSError(28, "No space left on device")

    def set(self, key: str, value: bytes) -> None:
        self._step()
        super().set(key, value)

    def erase(self, key: str) -> None:
        self._step()
        super().erase(key)

    def erase_values(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.erase(key)


@pytest.mark.parametrize("sharded", [False, True])
def test_wherever_it_fails_the_array_is_the_old_or_the_new_one(sharded: bool) -> None:
    layout = LAYOUTS["v3 sharded"] if sharded else LAYOUTS["v3"]
    values = documents((10, 9), layout)
    metadata = gzarr.open_array(dict(values), device="cpu").metadata
    data = np.arange(90, dtype="i4").reshape(10, 9)
    gzarr.Array(metadata, MemoryStore(values), "", device="cpu", mode="r+")[...] = data
    more = np.arange(54, dtype="i4").reshape(6, 9)
    changes: list[tuple[Any, np.ndarray[Any, Any]]] = [
        (lambda array: array.append(more), np.concatenate([data, more])),
        (lambda array: array.resize((4, 5)), data[:4, :5]),
        (lambda array: array.resize((16, 16)), filled(data, (16, 16))),
    ]
    for change, after in changes:
        for steps in range(30):
            store = FailingStore(dict(values))
            array = gzarr.Array(metadata, store, "", device="cpu", mode="r+")
            store.left = steps
            try:
                change(array)
            except (gzarr.ChunkError, gzarr.StoreError, OSError) as error:
                found = gzarr.open_array(store, device="cpu")
                assert found.shape in (data.shape, after.shape)
                z.same(found[...], data if found.shape == data.shape else after)
                assert array.shape == found.shape
                notes = "".join(getattr(error, "__notes__", []))
                assert (f"is {after.shape} already" in notes) == (found.shape == after.shape)
                if notes:
                    # What it left is erased before it can be seen.
                    store.left = 10**9
                    array.resize(data.shape)
                    z.same(array[...], filled(after, data.shape))
            else:
                z.same(array[...], after)
                break
        else:
            pytest.fail("it does not end")
        assert steps > 0


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_sequence_of_changes(data: st.DataObject) -> None:
    layout = data.draw(st.sampled_from(list(LAYOUTS.values())))
    values = documents((4, 5), layout)
    array = gzarr.Array(
        gzarr.open_array(dict(values), device="cpu").metadata, MemoryStore(values), "", device="cpu", mode="r+"
    )
    model = np.full((4, 5), -1, "i4")
    lengths = st.integers(0, 9)
    for number in range(data.draw(st.integers(1, 8))):
        action = data.draw(st.sampled_from(["resize", "append", "write"]))
        if action == "resize":
            shape = data.draw(st.tuples(lengths, lengths))
            array.resize(shape)
            model = filled(model, shape)
        elif action == "append":
            axis = data.draw(st.integers(0, 1))
            length = data.draw(st.integers(0, 4))
            more = np.full((length, model.shape[1]) if axis == 0 else (model.shape[0], length), number, "i4")
            array.append(more, axis)
            model = np.concatenate([model, more], axis)
        else:
            box = tuple(slice(*sorted(data.draw(st.tuples(lengths, lengths)))) for _ in range(2))
            array[box] = number
            model[box] = number
        z.same(array[...], model)
    z.same(gzarr.open_array(values, device="cpu")[...], model)
