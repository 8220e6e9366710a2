"""What users do with batches: change them in place, put other values into them, stop, and ask where samples begin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support import garbage
from support.loaders import DATA, SHUFFLES, rows, write_rows

import gzarr
from gzarr.loader import Loader, Patches, Rows, Windows

if TYPE_CHECKING:
    from pathlib import Path

    from support.devices import TestedDevice

# Small buffers, to have many blocks.
pytestmark = pytest.mark.filterwarnings("ignore:shuffling is coarse")

HEIGHT = np.arange(24, dtype="f4").reshape(4, 6)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_rows(tmp_path)
    gzarr.create_array(tmp_path / "height", data=HEIGHT)
    return tmp_path


def with_height(root: Path, device: TestedDevice, **options: Any) -> Loader:
    static = {"height": device.open(root / "height"), "year": np.array(2000)}
    sampler = Windows(0, {"x": (0, 1)}, static=static)
    return Loader(device.open(root / "x"), sampler, batch_size=100, **options)


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("prefetch", [0, 2])
def test_arrays_of_all_batches_may_be_changed(root: Path, device: TestedDevice, prefetch: int, copy: bool) -> None:
    loader = with_height(root, device, prefetch=prefetch, copy=copy)
    for _ in range(2):
        for batch in loader:
            assert list(batch) == ["height", "year", "x"]
            assert np.array_equal(device.to_numpy(batch["height"]), HEIGHT)
            assert (batch["year"].shape, batch["year"].dtype, int(batch["year"])) == ((), np.dtype("i8"), 2000)
            batch["height"] *= 10
            batch["year"] += 1


@pytest.mark.parametrize("copy", [True, False])
def test_a_transform_may_change_them(root: Path, device: TestedDevice, copy: bool) -> None:
    def transform(batch: Any) -> Any:
        batch["height"] *= 10
        return batch

    loader = with_height(root, device, transform=transform, copy=copy)
    for _ in range(2):
        for batch in loader:
            assert np.array_equal(device.to_numpy(batch["height"]), 10 * HEIGHT)


def test_tensors_of_all_batches_may_be_changed(root: Path) -> None:
    pytest.importorskip("torch")
    sampler = Windows(0, {"x": (0, 1)}, static={"height": root / "height"})
    loader = Loader(gzarr.open_array(root / "x"), sampler, batch_size=100, like="torch")
    batches = list(loader)
    for batch in batches:
        assert np.array_equal(batch["height"], HEIGHT)
        batch["height"].div_(10)


def test_the_memory_of_their_copies_counts(root: Path) -> None:
    height = np.zeros(1000, "u1")
    loaders = [
        Loader(gzarr.open_array(root / "x"), Windows(0, {"x": (0, 1)}, static=static), prefetch=2)
        for static in (None, {"height": height})
    ]
    without, held = (loader.explain().held_bytes for loader in loaders)
    # Of three batches, and what they are copied from.
    assert held - without == 4000


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("way", ["transform=", "on_error="])
def test_stop_iteration_does_not_end_an_epoch(prefetch: int, way: str) -> None:
    store = gzarr.MemoryStore()
    gzarr.create_array(store, data=DATA, chunks=(7, 2, 3))
    if way == "on_error=":
        store.set("c/3/0/0", b"damaged")

    def stop(given: Any, *number: int) -> Any:
        if number or 22 in given.samples:
            raise StopIteration(22)
        return given

    def fail(batch: Any) -> Any:
        if 22 in batch.samples:
            raise ValueError("22")
        return batch

    stops: dict[str, Any] = {"transform": stop} if way == "transform=" else {"on_error": stop}
    array = gzarr.open_array(store)
    options: dict[str, Any] = {"batch_size": 16, "shuffle": False, "drop_last": False, "prefetch": prefetch}
    loader = Loader(array, Rows(), **options, **stops)
    other = Loader(gzarr.array(DATA, chunks=(7, 2, 3)), Rows(), **options, transform=fail)
    with garbage.kept_by_cycles() as kept:
        batches, others = iter(loader), iter(other)
        assert next(batches).samples[0] == next(others).samples[0] == 0
        with pytest.raises(RuntimeError, match=f"^{way} raised StopIteration$") as raised:
            next(batches)
        assert isinstance(raised.value.__cause__, StopIteration)
        assert raised.value.__cause__.value == 22
        with pytest.raises(ValueError, match="22"):
            next(others)
        state, wanted = loader.state_dict(), other.state_dict()
        assert (state["epoch"], state["cursor"]) == (wanted["epoch"], wanted["cursor"]) == (0, 32)
        rest = [batch.samples[0] for batch in batches]
        assert rest == list(range(32, len(DATA), 16)) == [batch.samples[0] for batch in others]
        del raised, batches, others
    assert not kept


@pytest.mark.filterwarnings("ignore:JAX makes")
@pytest.mark.parametrize("like", ["torch", "jax"])
@pytest.mark.parametrize("prefetch", [0, 2])
def test_other_values_of_a_transform_stay(root: Path, like: Any, prefetch: int) -> None:
    library = pytest.importorskip(like)
    own = library.ones(2) if like == "torch" else library.numpy.ones(2)
    others = {"name": "a", "count": 3, "none": None, "list": [1, 2], "own": own, "text": np.str_("b")}

    def transform(batch: Any) -> Any:
        return {"x": batch["x"], "mean": np.float32(2), "inner": {"y": batch["y"], **others}, **others}

    kind = library.Tensor if like == "torch" else library.Array
    for batch in rows(root, like=like, transform=transform, prefetch=prefetch):
        for found in (batch, batch["inner"]):
            assert all(found[name] is value for name, value in others.items())
        assert all(isinstance(found, kind) for found in (batch["x"], batch["mean"], batch["inner"]["y"]))


@pytest.mark.parametrize("like", ["torch", "jax"])
def test_an_array_that_a_library_cannot_hold_is_named(root: Path, like: Any) -> None:
    pytest.importorskip(like)
    loader = rows(root, like=like, transform=lambda batch: {"a": {"names": np.array(["b", "c"])}})
    with pytest.raises(gzarr.ArgumentError, match="it has no strings") as raised:
        next(iter(loader))
    assert raised.value.__notes__ == ["(in batch['a']['names'])"]


@pytest.mark.parametrize("shuffle", SHUFFLES)
@pytest.mark.parametrize(
    "sampler",
    [Rows(), Windows(0, {"x": (-1, 0)}), Windows(0, steps={"x": (-1, 1)}), Patches((2,), axes=(0,))],
    ids=["rows", "runs", "steps", "patches"],
)
@pytest.mark.parametrize("shape", [(5, 0), (5, 0, 3)], ids=str)
def test_samples_without_bytes(shape: tuple[int, ...], sampler: Any, shuffle: Any) -> None:
    loader = Loader(np.zeros(shape), sampler, batch_size=2, shuffle=shuffle)
    explanation = loader.explain()
    assert explanation.amplification == 1
    assert "samples of 0 bytes" in str(explanation)
    assert "There are no chunks to draw." in loader._repr_html_()
    assert len(list(loader.progress())) == len(loader)
    beside = Loader({"a": np.zeros(shape), "b": np.ones((5, 2))}, sampler, batch_size=2, shuffle=shuffle)
    assert beside.explain().amplification >= 1
    assert "There are no chunks to draw." in beside._repr_html_()
    assert len(list(beside)) == len(beside)


@pytest.mark.parametrize("shuffle", SHUFFLES)
@pytest.mark.parametrize(
    "options",
    [
        {"runs": {"x": (-2, 0)}},
        {"runs": {"x": (-2, -1), "y": (1, 3)}},
        {"runs": {"x": (1, 2)}},
        {"steps": {"x": (-4, -2), "y": (3,)}},
        {"runs": {"x": (-2, 0), "y": (1, 3)}, "rollout": {"y": (1, 3)}, "static": {"height": HEIGHT}},
        {"runs": {"x": (-1, 0)}, "stride": 3},
        {"runs": {"x": (-1, 0)}, "valid": np.arange(60) % 7 > 0},
    ],
    ids=["before", "around", "after", "steps", "rollout", "stride", "valid"],
)
def test_a_sample_begins_at_its_own_step(options: dict[str, Any], shuffle: Any) -> None:
    arrays = {name: gzarr.array(np.arange(60) + i, chunks=7, device="cpu") for i, name in enumerate("tu")}
    sampler = Windows(0, **options)
    loader = Loader([arrays, arrays], sampler, batch_size=4, shuffle=shuffle, buffer_bytes=300, drop_last=False)
    relative = options.get("steps") or {name: range(a, b + 1) for name, (a, b) in options["runs"].items()}
    for _ in range(2):
        seen = []
        for batch in loader:
            for run, steps in relative.items():
                wanted = batch.origins + np.array(steps)[: batch[run]["t"].shape[1]]
                assert np.array_equal(batch[run]["t"], wanted)
                assert np.array_equal(batch[run]["u"], wanted + 1)
            seen += batch.origins[:, 0].tolist()
        assert sorted(seen) == sorted(2 * sampler.rows(60).tolist())


def test_chosen_steps_and_those_of_errors(tmp_path: Path) -> None:
    array = gzarr.array(np.arange(60), chunks=5, device="cpu")
    (batch,) = Loader(array, Windows(0, {"x": (-2, 0)}, where=[5, 7]), batch_size=2, shuffle=False)
    assert batch.origins.tolist() == [[5], [7]]
    gzarr.create_array(tmp_path, data=np.arange(60), chunks=5)
    (tmp_path / "c" / "4").write_bytes(b"damaged")
    sampler = Windows(0, {"x": (-2, 0)}, where=[5, 21, 30])
    options: dict[str, Any] = {"batch_size": 3, "shuffle": False}
    with pytest.raises(gzarr.ChunkDecodeError) as raised:
        next(iter(Loader(gzarr.open_array(tmp_path), sampler, **options)))
    assert raised.value.__notes__ == ["(in sample 1, which begins at (21,))"]
    (batch,) = Loader(gzarr.open_array(tmp_path), sampler, on_error="skip", **options)
    assert batch.origins.tolist() == [[5], [30]]
