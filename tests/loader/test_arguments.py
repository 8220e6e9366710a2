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
        (Rows(where=[[1, 2], [3]]), "where= cannot be made an array: its items have different shapes"),
        (Rows(samples=10**30), r"samples must be an integer of at least 0 and at most 2\*\*48"),
        (Rows(replace="no"), "replace must be True or False, not 'no'"),  # type: ignore[arg-type]
        (Patches(shape=10**30), "shape must be integers of at least 1"),  # type: ignore[arg-type]
        (Patches(shape=(2, 2), jitter="yes"), "jitter must be True or False"),  # type: ignore[arg-type]
        *((Patches(shape=some), "shape must be integers of at least 1") for some in (b"\2\2", {4: 1}, {2}, (True, 2))),  # type: ignore[arg-type]
        (Patches((2, 2), halo={1: 2}), "halo must be integers"),  # type: ignore[arg-type]
        *(
            (Patches((2, 2), axes=axes), r"no patches of 2 axes .*: axes= must be 2 different integers")
            for axes in ((False, True), (0.0, 1.0), b"\0\1", {0: 0, 1: 0})
        ),
        (Windows(0, {"x": (False, True)}), "must be a first and a last step"),
        (Windows(0, steps={"x": {0, 1}}), "steps 'x' must be integers"),  # type: ignore[dict-item]
        (Patches((2, 2), interpolation=17), "interpolation must be one of"),  # type: ignore[arg-type]
        (Patches((2, 2), interpolation={"z": "nearest"}), r"interpolation= names \['z'\]"),
        (Patches((2, 2), dtype="rubbish"), "dtype='rubbish' is neither"),
        (Patches((2, 2), dtype="float16"), "dtype=float16 is for posed patches"),
    ],
    ids=lambda value: "" if isinstance(value, str) else repr(value),
)
def test_what_is_said(arrays: dict[str, gzarr.Array], sampler: Any, message: str) -> None:
    with pytest.raises(gzarr.ArgumentError, match=message):
        Loader({"x": arrays["x"]}, sampler, batch_size=2)


@pytest.mark.parametrize("name", ["sampler", "shuffle", "on_error", "transform", "streams"])
def test_what_is_said_of_integers_of_many_digits(arrays: dict[str, gzarr.Array], name: str) -> None:
    options: dict[str, Any] = {name: 10**5000}
    with pytest.raises(gzarr.ArgumentError, match=f"{name} must be .* not <an integer of"):
        Loader(arrays["x"], **options)


@pytest.mark.parametrize("name", ["shape", "halo", "pad"])
def test_what_is_said_of_patches_of_many_digits(arrays: dict[str, gzarr.Array], name: str) -> None:
    options: dict[str, Any] = {"shape": 2, name: 10**5000}
    with pytest.raises(gzarr.ArgumentError, match=f"{name} must be .* not <an integer of"):
        Loader(arrays["x"], Patches(**options))


def test_states_of_many_digits(arrays: dict[str, gzarr.Array]) -> None:
    loader, huge = Loader(arrays, Rows(), batch_size=2), 10**5000
    for state in (huge, *({**loader.state_dict(), key: huge} for key in ("version", "streams", "epoch", "cursor"))):
        with contextlib.suppress(gzarr.ArgumentError):
            loader.load_state_dict(state)
    with pytest.raises(gzarr.ArgumentError, match="not the state of a loader"):
        loader.load_state_dict({**loader.state_dict(), "seed": float("inf")})
    with pytest.raises(IndexError, match="none with the number <an integer of"):
        Dataset(arrays)[huge]


def test_as_many_streams_as_are_of_use(arrays: dict[str, gzarr.Array]) -> None:
    for options in ({"streams": 10**8}, {"world_size": 10**8}):
        with pytest.raises(gzarr.ArgumentError, match="streams must be at most 65536, and so must world_size"):
            Loader(arrays, Rows(), drop_last=False, pad=True, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("made", [np.array, "torch"], ids=["numpy", "torch"])
def test_integers_that_are_arrays_without_axes(arrays: dict[str, gzarr.Array], made: Any) -> None:
    make = pytest.importorskip("torch").tensor if made == "torch" else made
    x = arrays["x"]
    for given, plain in (
        (Rows(samples=make(3)), Rows(samples=3)),
        (Windows(0, {"x": (0, 1)}, samples=make(3)), Windows(0, {"x": (0, 1)}, samples=3)),
        (
            Patches(make(2), stride=make(1), halo=make(1), axes=make([2]), samples=make(3)),
            Patches(2, stride=1, halo=1, axes=(2,), samples=3),
        ),
    ):
        loader, wanted = (Loader(x, sampler, batch_size=3) for sampler in (given, plain))
        assert loader.fingerprint == wanted.fingerprint
        (batch,), (other,) = loader, wanted
        for name, array in other.items():
            np.testing.assert_array_equal(batch[name], array)


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


@pytest.mark.parametrize("axis", [1, np.int64(1), np.uint8(1), (np.int16(1),), np.array([1]), -2, np.int8(-2)])
def test_integers_of_numpy_are_axes(arrays: dict[str, gzarr.Array], axis: Any) -> None:
    x = arrays["x"]
    (batch, *_) = Loader(x, flip=axis, batch_size=12, shuffle=False)
    np.testing.assert_array_equal(batch["data"], x[...][:, ::-1])
    if np.min(axis) >= 0:
        by_name, plain = (Loader(x, Patches((4, 6, 6), flip=of), batch_size=3, shuffle=False) for of in (axis, (1,)))
        for one, other in zip(by_name, plain, strict=True):
            np.testing.assert_array_equal(one["data"], other["data"])


DURATION = np.timedelta64(1)
DURATIONS = np.arange(1, 13).astype("m8[s]")


@pytest.mark.parametrize(
    ("sampler", "options"),
    [
        (Rows(), {"flip": True}),
        (Rows(), {"flip": np.True_}),
        (Rows(), {"flip": DURATION}),
        (Rows(), {"flip": 1.0}),
        (Rows(), {"batch_size": DURATION}),
        (Rows(), {"drop_last": DURATION}),
        (Rows(), {"shuffle": DURATION}),
        (Rows(), {"weights": DURATIONS[:1]}),
        (Rows(), {"weights": [DURATION]}),
        (Rows(), {"weights": ["1"]}),
        (Rows(weights=DURATIONS), {}),
        (Rows(weights=DURATIONS.view("M8[s]")), {}),
        (Rows(weights=np.arange(12) + 1j), {}),
        (Rows(weights=list("123456789123")), {}),
        (Windows(0, {"x": (0, 1)}, weights=DURATIONS), {}),
        (Patches((12, 6, 6), where=[[0, 0, 0]], weights=DURATIONS[:1]), {}),
        (Patches((4, 6, 6), flip=DURATION), {}),
        (Patches((4, 6, 6), flip=(DURATION,)), {}),
        (Patches((4, 6, 6), flip=(True, False, True)), {}),
        (Patches((4, 6, 6), shift=DURATION), {}),
        (Patches((4, 6, 6), rotate="90"), {}),
        (Patches((4, 6, 6), rotate=True, spacing=DURATIONS[:3]), {}),
        (Patches((4, 6, 6), jitter=DURATION), {}),
    ],
    ids=str,
)
def test_what_numpy_takes_for_numbers(arrays: dict[str, gzarr.Array], sampler: Any, options: dict[str, Any]) -> None:
    with pytest.raises(gzarr.ArgumentError, match=r"must be|not a dimension"):
        next(iter(Loader(arrays["x"], sampler, **{"batch_size": 1, **options})))


@pytest.mark.parametrize("numbers", [[1.5], [DURATION], ["1"], [True], [[0]], 0])
def test_numbers_of_samples(arrays: dict[str, gzarr.Array], numbers: Any) -> None:
    dataset = Dataset(arrays["x"])
    with pytest.raises(gzarr.SelectionError, match="by a list of their numbers"):
        dataset.__getitems__(numbers)
    assert dataset.__getitems__([]) == []
    last, first = len(dataset) - 1, -len(dataset)
    for some, wanted in (([1, -1], [1, last]), ([first], [0])):
        found = [sample["data"] for sample in dataset.__getitems__(some)]
        np.testing.assert_array_equal(found, [dataset[i]["data"] for i in wanted])
    for wrong in (last + 1, first - 1, 2**64 - 1):
        with pytest.raises(gzarr.SelectionError, match=f"none with the number {wrong}"):
            dataset.__getitems__([wrong])
    assert len(dataset.__getitems__(np.array([0, 3], "u1"))) == 2  # type: ignore[arg-type]
