"""A state belongs to a sampler, however its options are typed, and whoever else changes how things are printed."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.loader import Loader, Patches, Rows, Windows

pytestmark = pytest.mark.filterwarnings("ignore:shuffling is coarse")

SIZE = 64
CLASSES = np.arange(3000) % 3
POSED: dict[str, Any] = {
    "axes": (1, 0),
    "rotate": 15,
    "scale": (0.8, 1.25),
    "flip": (0,),
    "shear": 0.1,
    "shift": (2, 1.5),
    "interpolation": {"x": "nearest"},
    "dtype": "float32",
}


def loader(sampler: Any = None, **more: Any) -> Loader:
    image = gzarr.array(np.arange(SIZE * SIZE * 1.0).reshape(SIZE, SIZE), chunks=(16, 16), device="cpu")
    return Loader({"x": image, **more}, sampler, batch_size=2)


def of_classes(classes: Any) -> Loader:
    return Loader({"x": np.arange(3000.0)}, Rows(balance=classes), batch_size=64)


@pytest.mark.parametrize(
    ("sampler", "fingerprint"),
    [
        (None, "64:163a:77d3:1621:10c31e6bca0e017a"),
        (Rows(1), "64:163a:a3ce:1621:d965fed7afa14c69"),
        (Rows(samples=20, replace=False), "20:163a:d454:1621:dcf8fbc3e03a9a9f"),
        (Rows(balance="y"), "64:163a.1bf9:7924:a69a:65de9bace5b0e305"),
        (Patches((16, 16)), "16:163a:36d3:3694:f3248557ddbf593d"),
        (Patches((16, 16), stride=8, jitter=True, halo=(2, 4)), "64:163a:b892:2245:f0dfd70662d6b1d1"),
        (Patches((16, 16), **POSED), "16:163a:65e2:8f55:acc085f4d87f8c7f"),
        (Windows(0, {"x": (-2, 0), "y": (1, 4)}, stride=2), "29:163a:ee49:fb1b:8388668ac6bd5939"),
        (
            Windows(0, steps={"x": (-12, -6, 0), "y": (6,)}, rollout={"x": (1, 2), "y": (1,)}, every=3),
            "15:163a:46c9:780c:fa80428f1a8e0d48",
        ),
    ],
)
def test_fingerprints_stay(sampler: Any, fingerprint: str) -> None:
    more = {"y": np.arange(SIZE) % 3} if isinstance(sampler, Rows) and sampler.balance else {}
    assert loader(sampler, **more).fingerprint == fingerprint


@pytest.mark.parametrize(
    ("sampler", "same"),
    [
        (Rows(), Rows(np.int64(0), replace=np.True_)),  # type: ignore[arg-type]
        (Rows(samples=20, replace=False), Rows(samples=np.int64(20), replace=0)),  # type: ignore[arg-type]
        (Patches((16, 16)), Patches([16, 16])),  # type: ignore[arg-type]
        (Patches((16, 16)), Patches(np.array([16, 16]))),  # type: ignore[arg-type]
        (Patches((16, 16), stride=8, jitter=True), Patches((16, 16), stride=np.int8(8), jitter=1)),  # type: ignore[arg-type]
        (
            Patches((16, 16), **POSED),
            Patches(
                [16, 16],  # type: ignore[arg-type]
                **POSED
                | {"axes": [1, 0], "rotate": np.float64(15), "scale": [0.8, 1.25], "flip": [np.int64(0)]}
                | {"shear": np.array(0.1), "shift": np.array([2, 1.5]), "dtype": np.float32},
            ),
        ),
        (Patches((16, 16), rotate=15), Patches((16, 16), rotate=15.0)),
        (Windows(0, {"x": (-2, 0), "y": (1, 4)}), Windows(0, {"y": [1, 4], "x": [-2, 0]})),  # type: ignore[dict-item]
        (
            Windows(0, steps={"x": (-2, -1, 0)}, rollout={"x": (1, 2)}),
            Windows(0, steps={"x": range(-2, 1)}, rollout={"x": np.array([1, 2])}),  # type: ignore[dict-item]
        ),
    ],
)
def test_however_options_are_typed(sampler: Any, same: Any) -> None:
    state = loader(sampler).state_dict()
    assert loader(same).fingerprint == state["fingerprint"]
    loader(same).load_state_dict(state)


@pytest.mark.parametrize(
    "others",
    [
        [{"rotate": True}, {"rotate": 1}, {"rotate": 1.5}],
        [{"flip": True}, {"flip": (1,)}, {"flip": (0, 1), "shear": 0.1}],
        [{"scale": (0.8, 1.25)}, {"scale": (0.8, 1.0)}, {"shift": (0.8, 1.25)}],
        [{"interpolation": {"x": "linear"}, "shift": 1}, {"interpolation": {"x": "nearest"}, "shift": 1}],
    ],
)
def test_other_options_are_another_sampler(others: list[dict[str, Any]]) -> None:
    found = {loader(Patches((16, 16), **options)).fingerprint for options in others}
    assert len(found) == len(others)
    with pytest.raises(gzarr.ArgumentError, match="the sampler has changed"):
        loader(Patches((16, 16), **others[0])).load_state_dict(loader(Patches((16, 16), **others[1])).state_dict())


@pytest.mark.parametrize("options", [{"threshold": 10**6}, {"edgeitems": 1}, {"linewidth": 20}, {"precision": 2}])
def test_however_numpy_prints(options: dict[str, Any]) -> None:
    state = of_classes(CLASSES).state_dict()
    own = loader(Own(ages=np.arange(2000) / 3)).state_dict()
    with np.printoptions(**options):
        of_classes(CLASSES).load_state_dict(state)
        loader(Own(ages=np.arange(2000) / 3)).load_state_dict(own)


@dataclasses.dataclass(frozen=True)
class Own(Rows):
    """A sampler with a repr of its own, of an array."""

    ages: Any = None


@dataclasses.dataclass(frozen=True, repr=False)
class Late(Rows):
    """A sampler with an option that has a unit."""

    delay: Any = None


def test_durations_are_no_numbers() -> None:
    """They are integers to NumPy."""
    delays = (5, np.timedelta64(5, "s"), np.timedelta64(5, "m"))
    assert len({loader(Late(delay=delay)).fingerprint for delay in delays}) == 3


def of_torch() -> Any:
    return pytest.importorskip("torch").from_numpy(CLASSES)


def of_jax() -> Any:
    return pytest.importorskip("jax.numpy").asarray(CLASSES)


def of_pandas() -> Any:
    return pytest.importorskip("pandas").Series(CLASSES)


def of_categories() -> Any:
    return pytest.importorskip("pandas").Series(np.array(["B", "NK", "T"])[CLASSES], dtype="category")


def of_xarray() -> Any:
    return pytest.importorskip("xarray").DataArray(CLASSES, dims="cell")


@pytest.mark.parametrize(
    "made", [CLASSES.tolist, lambda: CLASSES.astype("i1"), of_torch, of_jax, of_pandas, of_categories, of_xarray]
)
def test_classes_of_any_library(made: Any) -> None:
    plain = of_classes(CLASSES)
    other = of_classes(made())
    assert [batch.samples.tolist() for batch in other] == [batch.samples.tolist() for batch in plain]
    of_classes(made()).load_state_dict(plain.state_dict())
    assert "balance=" in repr(other)
    steps = Windows(0, {"x": (0, 1)}, balance=made())
    assert len(Loader(np.arange(3000.0), steps, batch_size=50)) == 59
    with pytest.raises(gzarr.ArgumentError, match="the sampler has changed"):
        of_classes((CLASSES + 1) // 2).load_state_dict(plain.state_dict())


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_classes_that_are_missing(missing: Any) -> None:
    classes = np.array(["B", "T", missing], object)[CLASSES]
    with pytest.raises(gzarr.ArgumentError, match=r"balance= has classes that have no order .* where="):
        of_classes(classes)
    there = Rows(balance=classes, where=CLASSES < 2)
    assert len(Loader(np.arange(3000.0), there, batch_size=100)) == 20


def test_options_of_thousands_of_digits() -> None:
    @dataclasses.dataclass(frozen=True, repr=False)
    class Own(Rows):
        key: int = 0

    prints = {Loader(np.arange(4), Own(key=key)).fingerprint for key in (7, 10**5000, 10**5000 + 1, -(10**5000))}
    assert len(prints) == 4


def test_reprs_are_as_typed() -> None:
    assert repr(Patches([16, 16], jitter=True)) == "Patches(shape=[16, 16], jitter=True)"  # type: ignore[arg-type]
    assert repr(Rows(balance=np.array([0, 1]))) == "Rows(balance=array([0, 1]))"
    assert repr(Rows()) == "Rows()"
