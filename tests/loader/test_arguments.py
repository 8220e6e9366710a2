"""Whatever is given as an argument, it works or is an error that says what it may be."""

from __future__ import annotations

import contextlib
import inspect
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.loader import Dataset, Loader, Patches, Rows, Windows

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.filterwarnings("ignore")

SAMPLERS: list[tuple[Any, dict[str, Any]]] = [
    (Rows, {}),
    (Patches, {"shape": (2, 2)}),
    (Windows, {"axis": 0, "runs": {"x": (0, 1)}}),
    (Windows, {"axis": 0, "steps": {"x": (0, 2)}}),
]
VALUES: list[Any] = [
    *(0, 5, -1, 10**30, 1.5, float("nan"), True, None, "a", "", b"x", object(), len),
    *((), (1,), (1, 2, 3, 4, 5), [None], [[1, 2], [3]], range(4)),
    *({}, {"x": 1}, {"x": None}, {"z": (0, 1)}, {"x": (1.5, 2)}, {3: (0, 1)}, {"x": range(10**30, 10**30 + 2)}),
    *(np.arange(3), np.zeros((2, 2), bool), np.array(2.5), np.array(["a", "b"])),
]


@pytest.fixture(scope="module")
def arrays() -> dict[str, gzarr.Array]:
    data = np.arange(12 * 6 * 6, dtype="f4").reshape(12, 6, 6)
    x = gzarr.create_array({}, data=data, chunks=(4, 3, 3), device="cpu")
    return {"x": x, "y": gzarr.create_array({}, data=np.arange(12), chunks=4, device="cpu")}


def use(arrays: Mapping[str, gzarr.Array], sampler: Any, options: dict[str, Any]) -> None:
    """Make a loader and take a batch of it."""
    with contextlib.suppress(gzarr.GzarrError):
        loader = Loader(arrays, sampler, **{"batch_size": 2, **options})
        loader.explain()
        next(iter(loader), None)


@pytest.mark.parametrize(
    ("kind", "given", "name"),
    [
        pytest.param(kind, given, name, id=f"{kind.__name__}-{'-'.join(given)}-{name}")
        for kind, given in SAMPLERS
        for name in inspect.signature(kind).parameters
    ],
)
def test_arguments_of_samplers(arrays: dict[str, gzarr.Array], kind: Any, given: dict[str, Any], name: str) -> None:
    some = arrays if kind is not Patches else {"x": arrays["x"]}
    for value in VALUES:
        use(some, kind(**{**given, name: value}), {})


@pytest.mark.parametrize("name", list(inspect.signature(Loader).parameters)[1:])
def test_arguments_of_loaders(arrays: dict[str, gzarr.Array], name: str) -> None:
    for value in VALUES:
        if name == "sampler":
            use(arrays, value, {})
        # A function is called.
        elif not (name in ("transform", "on_error") and callable(value)):
            use(arrays, Rows(), {name: value})


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_arrays_of_loaders(value: Any) -> None:
    use(value, Rows(), {})


@pytest.mark.parametrize(
    ("sampler", "message"),
    [
        (Windows(0, runs=(0, 1)), r"runs must be a dict by name, such as {\"x\": \(-2, 0\)}, not \(0, 1\)"),  # type: ignore[arg-type]
        (Windows(0, steps=range(4)), "steps must be a dict by name"),  # type: ignore[arg-type]
        (Windows(0, {"x": (0, 1)}, static=5), "static must be a dict by name"),  # type: ignore[arg-type]
        (Windows(0, {"x": (0, 1)}, rollout=[1]), "rollout must be a dict by name"),  # type: ignore[arg-type]
        (Windows(0, {"x": (0, 1)}, stride=1.5), "stride must be an integer of at least 1, not 1.5"),  # type: ignore[arg-type]
        (Rows(axis=1.5), "axis must be an integer of at least 0, not 1.5"),  # type: ignore[arg-type]
        (Rows(where=[[1, 2], [3]]), "where= cannot be made an array"),
        (Rows(samples=10**30), r"samples must be an integer of at least 0 and at most 2\*\*48"),
        (Rows(replace="no"), "replace must be True or False, not 'no'"),  # type: ignore[arg-type]
        (Patches(shape=10**30), "shape must be integers of at least 1"),  # type: ignore[arg-type]
        (Patches(shape=(2, 2), jitter="yes"), "jitter must be True or False"),  # type: ignore[arg-type]
    ],
    ids=lambda value: "" if isinstance(value, str) else repr(value),
)
def test_what_is_said(arrays: dict[str, gzarr.Array], sampler: Any, message: str) -> None:
    with pytest.raises(gzarr.ArgumentError, match=message):
        Loader({"x": arrays["x"]}, sampler, batch_size=2)


def test_batches_ahead_beyond_the_epoch_take_nothing(arrays: dict[str, gzarr.Array]) -> None:
    assert len(list(Loader(arrays, Rows(), batch_size=2, prefetch=2**40))) == 6


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_parts_states_and_datasets(arrays: dict[str, gzarr.Array], value: Any) -> None:
    loader = Loader(arrays, Rows(), batch_size=2)
    for call in (
        lambda: loader.split(value, 2),
        lambda: loader.split(0, value),
        lambda: loader.set_epoch(value),
        lambda: loader.load_state_dict(value),
        lambda: Dataset(value),
        lambda: Dataset(arrays, value),
        lambda: Dataset(arrays, seed=value),
        lambda: Dataset(arrays).set_epoch(value),
        lambda: Dataset(arrays)[value],
    ):
        with contextlib.suppress(gzarr.GzarrError, IndexError):
            call()
    assert len(list(loader)) == 6
