"""Batches as JAX and PyTorch take them apart: as dicts of arrays."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.loader import Batch, Loader

X = np.arange(64, dtype="f4").reshape(16, 4)
Y = np.arange(16, dtype="i4")


def batches(**options: Any) -> list[Any]:
    # Not in the order of their names.
    return list(Loader({"y": Y, "x": X, "a/b": X[:, 0]}, batch_size=8, shuffle=False, **options))


@pytest.mark.parametrize("like", [None, "jax"])
def test_a_jitted_step_takes_a_batch(like: Any) -> None:
    jax = pytest.importorskip("jax")
    traced = []

    def step(batch: Any) -> Any:
        traced.append((type(batch), list(batch)))
        return {"sum": batch["x"].sum() + batch["y"].sum(), "batch": batch}

    jitted = jax.jit(step)
    for batch in batches(like=like):
        result = jitted(batch)
        assert float(result["sum"]) == float(np.sum(batch["x"]) + np.sum(batch["y"]))
        assert type(result["batch"]) is Batch
        for name, given in batch.items():
            assert isinstance(result["batch"][name], jax.Array)
            np.testing.assert_array_equal(result["batch"][name], given)
    # Compiled once, for all batches.
    assert traced == [(Batch, ["a/b", "x", "y"])]


def test_a_tree_of_keras_is_that_of_a_dict() -> None:
    optree = pytest.importorskip("optree")

    (batch, other) = batches()
    leaves, structure = optree.tree_flatten(batch, namespace="keras")
    assert [id(leaf) for leaf in leaves] == [id(leaf) for leaf in optree.tree_leaves(dict(batch))]
    doubled = optree.tree_map(lambda a, b: a + b, batch, other, namespace="keras")
    assert type(doubled) is Batch
    assert optree.tree_structure(doubled, namespace="keras") == structure
    np.testing.assert_array_equal(doubled["x"], X[:8] + X[8:])


def test_a_tree_of_jax_is_that_of_a_dict() -> None:
    jax = pytest.importorskip("jax")
    (batch, other) = batches()
    as_dict = dict(batch)
    leaves, structure = jax.tree.flatten(batch)
    assert [id(leaf) for leaf in leaves] == [id(leaf) for leaf in jax.tree.leaves(as_dict)]
    paths = [jax.tree_util.tree_flatten_with_path(tree)[0] for tree in (batch, as_dict)]
    assert [path for path, _ in paths[0]] == [path for path, _ in paths[1]]
    doubled = jax.tree.map(lambda a, b: a + b, batch, other)
    assert jax.tree.structure(doubled) == structure == jax.tree.structure(other)
    np.testing.assert_array_equal(doubled["x"], X[:8] + X[8:])
    on_device = jax.device_put(batch)
    assert all(isinstance(array, jax.Array) for array in on_device.values())
    np.testing.assert_array_equal(jax.vmap(lambda sample: sample["x"].sum() + sample["y"])(batch), X[:8].sum(1) + Y[:8])
    gradient = jax.grad(lambda sample: (sample["x"] ** 2).sum())({"x": on_device["x"]})
    np.testing.assert_array_equal(gradient["x"], 2 * X[:8])


def test_what_a_library_makes_of_a_batch_has_no_samples() -> None:
    jax = pytest.importorskip("jax")
    (batch, _) = batches()
    made = jax.tree.map(np.negative, batch)
    np.testing.assert_array_equal(batch.samples, np.arange(8))
    with pytest.raises(AttributeError, match="take 'samples' from the batch that the loader gave out"):
        _ = made.samples
    with pytest.raises(AttributeError, match="'Batch' object has no attribute 'labels'"):
        _ = batch.labels
    for same in (copy.copy(batch), copy.deepcopy(batch), pickle.loads(pickle.dumps(batch))):
        assert type(same) is Batch
        assert list(same) == list(batch)
        np.testing.assert_array_equal(same.samples, batch.samples)
    assert not hasattr(pickle.loads(pickle.dumps(made)), "samples")


def test_a_transform_gets_a_tree() -> None:
    jax = pytest.importorskip("jax")
    for batch in batches(transform=lambda batch: jax.tree.map(lambda array: array * 2, batch), like="jax"):
        assert isinstance(batch["x"], jax.Array)
        assert float(batch["x"][0, 1]) % 2 == 0


def test_torch_sees_arrays() -> None:
    torch = pytest.importorskip("torch")
    tree = pytest.importorskip("torch.utils._pytree")
    (batch, _) = batches(like="torch")
    leaves, structure = tree.tree_flatten(batch)
    assert [id(leaf) for leaf in leaves] == [id(batch[name]) for name in sorted(batch)]
    moved = tree.tree_map(lambda array: array.to("meta"), batch)
    assert type(moved) is Batch
    assert all(array.is_meta for array in moved.values())
    assert tree.tree_structure(moved) == structure
    paths = [str(path[0]) for path, _ in tree.tree_leaves_with_path(batch)]
    assert paths == ["['a/b']", "['x']", "['y']"]
    sums = torch.func.vmap(lambda sample: sample["x"].sum() + sample["y"])(batch)
    np.testing.assert_array_equal(sums, X[:8].sum(1) + Y[:8])
    compiled = torch.compile(lambda given: given["x"].sum() + given["y"].sum(), backend="eager")
    assert float(compiled(batch)) == float(X[:8].sum() + Y[:8].sum())


def test_a_compiled_step_is_one_graph() -> None:
    torch = pytest.importorskip("torch")

    def step(batch: Any) -> Any:
        total = batch["x"].sum().relu()
        return total + batch["y"].sum() + sum(batch[name].sum() for name in batch)

    batch, _ = batches(like="torch")
    compiled = torch.compile(step, backend="eager", fullgraph=True)
    assert float(compiled(batch)) == float(step(dict(batch)))


def test_functions_of_torch_for_batches() -> None:
    data = pytest.importorskip("torch.utils.data")
    (batch, other) = batches(like="torch")
    joined = data.default_collate([batch, other])
    assert joined["x"].shape == (2, 8, 4)
    assert data.default_convert(batch)["x"].shape == (8, 4)
    pinned = pytest.importorskip("torch.utils.data._utils.pin_memory")
    if pytest.importorskip("torch").cuda.is_available():
        assert pinned.pin_memory(batch)["x"].is_pinned()
    # As in Lightning.
    utilities = pytest.importorskip("lightning_utilities")
    moved = utilities.apply_to_collection(batch, dtype=batch["x"].__class__, function=lambda array: array + 1)
    assert type(moved) is Batch
    np.testing.assert_array_equal(moved["y"], Y[:8] + 1)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_collated_batches_have_their_arrays_only(size: int) -> None:
    data = pytest.importorskip("torch.utils.data")
    static = {"height": np.arange(2.0), "year": np.array(2000)}
    sampler = gzarr.loader.Windows(0, {"in": (0, 1), "out": (2, 2)}, static=static)
    for one in (Loader(Y, batch_size=size), Loader({"x": X, "y": Y}, sampler, batch_size=size)):
        first, second, *_ = one
        converted = data.default_convert(first)
        for same in (converted, data.default_convert(converted)):
            np.testing.assert_array_equal(same.samples, first.samples)
            assert same.seed == first.seed
        for some in ([first, second], [first] * size if size > 1 else [first, first, first]):
            joined = data.default_collate(some)
            assert type(joined) is Batch
            for name in Batch.__slots__:
                with pytest.raises(AttributeError, match=f"take '{name}' from the batch that the loader gave out"):
                    getattr(joined, name)
        assert first.samples.shape == (size,)


def test_updated_batches_keep_their_samples() -> None:
    for size in (1, 3):
        (batch, *_) = Loader({"x": X, "y": Y}, batch_size=size)
        batch.update(y=np.eye(size)[0], mean=np.float32(1))
        batch.update({"x": batch["x"][:, None], "y": batch["y"][:, None], "name": "a", "mean": 2})
        assert len(batch.samples) == size
        assert list(batch) == ["x", "y", "mean", "name"]
    (batch, *_) = Loader({"x": X, "y": Y}, batch_size=4)
    batch.update({name: array[:2] for name, array in batch.items()})
    assert not hasattr(batch, "samples")


def test_libraries_are_registered_when_they_are_there() -> None:
    """Neither is imported by a loader; those that are imported later are told of batches then, once."""
    pytest.importorskip("jax")
    script = """
        import sys
        import numpy as np
        from gzarr.loader import Loader

        loader = Loader(np.arange(12.0), batch_size=2, shuffle=False)
        batches = iter(loader)
        first = next(batches)
        assert "jax" not in sys.modules and "torch" not in sys.modules
        import jax
        for batch in batches:
            assert len(jax.tree.leaves({"one": batch})) == 1 and jax.tree.leaves(batch)[0].shape == (2,)
        # Of the class, not of an object.
        assert jax.tree.leaves(first)[0].shape == (2,)
        next(iter(loader))
        assert "torch" not in sys.modules
    """
    subprocess.run([sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)], check=True, timeout=120)


def test_a_class_that_is_known_already_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jax")
    from gzarr.loader import batch as module

    batches()
    monkeypatch.setattr(module, "_KNOWN", set())
    assert len(batches()) == 2
    assert isinstance(gzarr.loader.Batch(x=1), dict)
    # Whoever gets a batch of another process, or a copy, tells the libraries as well.
    stored = pickle.dumps(Batch(x=1))
    for same in (lambda: pickle.loads(stored), lambda: copy.copy(Batch.__new__(Batch))):
        monkeypatch.setattr(module, "_KNOWN", set())
        same()
        assert "jax" in module._KNOWN
