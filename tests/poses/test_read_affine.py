"""Boxes in any pose, compared with SciPy's."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any
from unittest import mock

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.ndimage as ndimage
from hypothesis import given, settings

import gzarr
from gzarr.poses import host
from gzarr.poses.boxes import Need
from gzarr.poses.maps import checked_map

if TYPE_CHECKING:
    from support.devices import TestedDevice

#: NumPy's names of boundaries, and SciPy's.
MODES = {
    "constant": "grid-constant",
    "edge": "nearest",
    "reflect": "mirror",
    "symmetric": "reflect",
    "wrap": "grid-wrap",
}
ORDERS = {"nearest": 0, "linear": 1, "cubic": 3}


def stored(data: np.ndarray[Any, Any], device: str = "cpu", chunk: int = 7, **options: Any) -> gzarr.Array:
    store: dict[str, bytes] = {}
    gzarr.create_array(store, data=data, chunks=(chunk,) * data.ndim, device="cpu", **options)
    return gzarr.open_array(store, device=device)


def rotation(rng: np.random.Generator, k: int) -> np.ndarray[Any, Any]:
    q, r = np.linalg.qr(rng.normal(size=(k, k)))
    found: np.ndarray[Any, Any] = q * np.sign(np.diag(r))
    return found


@st.composite
def cases(draw: st.DrawFn, shortest: int = 1) -> dict[str, Any]:
    k = draw(st.sampled_from([2, 3]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    size = tuple(draw(st.integers(shortest, 40)) for _ in range(k))
    shape = tuple(draw(st.integers(1, 30)) for _ in range(k))
    matrix = rotation(rng, k) * np.exp(rng.normal(size=k) * 0.7) + rng.normal(size=(k, k)) * draw(
        st.sampled_from([0, 0.3])
    )
    # Around the array, and sometimes far away.
    centre = rng.uniform(-0.3, 1.3, k) * size * draw(st.sampled_from([1, 1, 1, 5]))
    offset = centre - matrix @ ((np.array(shape) - 1) / 2)
    return {
        "matrix": matrix,
        "offset": offset,
        "size": size,
        "shape": shape,
        "mode": draw(st.sampled_from(sorted(MODES))),
        "leading": draw(st.sampled_from([(), (2,)])),
        "data": rng.uniform(1, 2, (2, *size)),
    }


def scipys(data: np.ndarray[Any, Any], case: dict[str, Any], order: int, **options: Any) -> np.ndarray[Any, Any]:
    """Return SciPy's result; float64 for floats."""
    whole = data.reshape(-1, *case["size"])
    found = [
        ndimage.affine_transform(
            one, case["matrix"], case["offset"], case["shape"], order=order, mode=MODES[case["mode"]], **options
        )
        for one in whole
    ]
    result: np.ndarray[Any, Any] = np.stack(found).reshape(*case["leading"], *case["shape"])
    return result


@settings(max_examples=150, deadline=None)
@given(cases(), st.sampled_from(["u1", "u2", "i2", "f4", "f8"]), st.sampled_from(["nearest", "linear"]))
def test_as_scipy(case: dict[str, Any], dtype: str, interpolation: Any) -> None:
    top = {"u1": 120, "u2": 30_000, "i2": 16_000}.get(dtype, 1)
    data = (case["data"] * top).astype(dtype)
    data = data if case["leading"] else data[0]
    a = stored(data)
    out = np.empty((*case["leading"], *case["shape"]), "f4")
    arguments = {"offset": case["offset"], "interpolation": interpolation, "boundary": case["mode"]}
    same = gzarr.read_affine(a, case["matrix"], shape=case["shape"], out=out, **arguments)
    assert same is out
    wanted = scipys(data.astype("f8"), case, ORDERS[interpolation])
    np.testing.assert_array_max_ulp(out, wanted.astype("f4"), 2)
    own = gzarr.read_affine(a, case["matrix"], shape=case["shape"], **arguments)
    assert own.dtype == data.dtype
    if data.dtype.kind in "iu":
        # Rounded as by SciPy, but where a float64 that is half a number differs in its last bit.
        assert (np.abs(own - wanted) <= 0.5 + 1e-6).all()
    else:
        np.testing.assert_allclose(own, wanted, rtol=3e-7 if dtype == "f4" else 1e-12)


@settings(max_examples=100, deadline=None)
# With fewer elements, SciPy's filter is not exact at ends that it calls "reflect"; see the next test.
@given(cases(16))
def test_cubic_as_scipy(case: dict[str, Any]) -> None:
    data = case["data"] if case["leading"] else case["data"][0]
    found = gzarr.read_affine(
        stored(data), case["matrix"], offset=case["offset"], shape=case["shape"], interpolation="cubic",
        boundary=case["mode"],
    )  # fmt: skip
    # SciPy continues constants and edges for 12 elements only, after which the weight is 1e-7.
    few = case["mode"] in ("constant", "edge")
    np.testing.assert_allclose(found, scipys(data, case, 3), rtol=0, atol=1e-6 if few else 1e-11)
    if not few:
        np.testing.assert_array_max_ulp(found.astype("f4"), scipys(data, case, 3).astype("f4"), 2)


@pytest.mark.parametrize("size", [(1, 2), (3, 7), (12, 1), (25, 4)])
@pytest.mark.parametrize("boundary", MODES)
def test_cubic_is_that_of_the_padded_array(boundary: Any, size: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    data = rng.uniform(1, 2, size)
    how: dict[str, Any] = {"constant_values": 0.5} if boundary == "constant" else {}
    padded = np.pad(data, 99, boundary, **how)
    for _ in range(20):
        matrix, centre = rotation(rng, 2) * np.exp(rng.normal(size=2) * 0.3), rng.uniform(-2, 2, 2) + np.array(size) / 2
        found = gzarr.read_affine(
            data, matrix, centre=centre, shape=(15, 16), interpolation="cubic", device="cpu",
            boundary=0.5 if boundary == "constant" else boundary,
        )  # fmt: skip
        offset = centre + 99 - matrix @ (7, 7.5)
        np.testing.assert_allclose(
            found, ndimage.affine_transform(padded, matrix, offset, (15, 16), mode="mirror"), rtol=1e-12
        )


@settings(max_examples=100, deadline=None)
@given(cases(), st.sampled_from([0, 1, 3]))
def test_the_box_is_enough_and_no_chunk_more(case: dict[str, Any], order: int) -> None:
    """What is outside of the box may be anything; each side of the box has something that counts."""
    affine = checked_map(case["matrix"], case["offset"])
    need = Need.of(affine, case["shape"], order, case["mode"], case["size"])
    data = case["data"][0]
    hidden = np.full_like(data, np.nan)
    hidden[need.selection] = data[need.selection]
    interpolation: Any = next(name for name, value in ORDERS.items() if value == order)
    arguments: dict[str, Any] = {
        "offset": case["offset"], "shape": case["shape"], "interpolation": interpolation, "boundary": case["mode"],
    }  # fmt: skip
    plain = gzarr.read_affine(stored(data), case["matrix"], **arguments)
    np.testing.assert_array_equal(gzarr.read_affine(stored(hidden), case["matrix"], **arguments), plain)
    assert np.isfinite(plain).all()
    if order == 3 or case["mode"] == "wrap":
        return
    # Without a side, another result.
    for d, side in enumerate(need.selection):
        for at in {side.start, side.stop - 1} if side.stop > side.start and len(data) else ():
            cut = data.copy()
            cut[(slice(None),) * d + (at,)] = np.nan
            if order == 1 and plain.size:
                rows = np.indices(case["shape"]).reshape(len(case["size"]), -1)
                places = affine.matrix @ rows + affine.offset[:, None]
                # Other axes may be beyond the ends everywhere.
                if case["mode"] == "constant" and not all(
                    ((p > -1) & (p < n)).any() for p, n in zip(places, case["size"], strict=True)
                ):
                    continue
                if case["mode"] == "edge":
                    assert np.isnan(gzarr.read_affine(stored(cut), case["matrix"], **arguments)).any()


@pytest.mark.parametrize("boundary", ["reflect", "symmetric", "edge", "wrap", 7])
@pytest.mark.parametrize("interpolation", ORDERS)
@pytest.mark.parametrize("dtype", ["u8", "u1", "f4"])
def test_exchanged_axes_and_flips_are_copies(dtype: str, interpolation: Any, boundary: Any) -> None:
    rng = np.random.default_rng(0)
    data = np.frombuffer(rng.bytes(9 * 10 * 11 * np.dtype(dtype).itemsize), dtype).reshape(9, 10, 11)
    matrix = np.array([[0, 0, -1], [1, 0, 0], [0, -1, 0]])
    found = gzarr.read_affine(
        stored(data), matrix, offset=(8, 0, 10), shape=(10, 11, 9), interpolation=interpolation, boundary=boundary
    )
    np.testing.assert_array_equal(
        found.view("u1"), np.ascontiguousarray(data[::-1, :, ::-1].transpose(1, 2, 0)).view("u1")
    )
    if dtype == "f4":
        return
    # Beyond the ends, as numpy.pad has it.
    more = gzarr.read_affine(
        stored(data), np.eye(3), offset=-5, shape=(19, 20, 21), interpolation=interpolation, boundary=boundary
    )
    how: dict[str, Any] = {"mode": "constant", "constant_values": 7} if boundary == 7 else {"mode": boundary}
    np.testing.assert_array_equal(more, np.pad(data, 5, **how))


def test_only_needed_chunks_are_read() -> None:
    data = np.random.default_rng(0).random((64, 64, 64))
    a = stored(data, chunk=8)
    turn = np.array([[0, -1, 0], [1, 0, 0], [0, 0, 1.0]])
    with mock.patch.object(type(a), "read", autospec=True, side_effect=type(a).read) as read:
        gzarr.read_affine(a, turn, centre=(27.5, 27.5, 27.5), shape=(8, 8, 8), interpolation="linear")
        assert read.call_args.args[1] == (slice(24, 32),) * 3
        gzarr.read_affine(a, np.eye(3), offset=(8.5, 8, 8), shape=(8, 8, 8))
        assert read.call_args.args[1] == (slice(8, 17), slice(8, 16), slice(8, 16))
        read.reset_mock()
        assert (gzarr.read_affine(a, np.eye(3), offset=200.5, shape=(2, 2, 2), boundary=3) == 3).all()
        assert not read.called


def test_devices(device: TestedDevice) -> None:
    rng = np.random.default_rng(1)
    data = rng.integers(0, 4000, (2, 20, 21, 22)).astype("u2")
    a = stored(data, device.name)
    matrix = rotation(rng, 3)
    for interpolation in ("nearest", "linear", "cubic"):
        way: dict[str, Any] = {"centre": (10, 11, 12), "shape": (9, 8, 7), "interpolation": interpolation}
        wanted = gzarr.read_affine(data, matrix, device="cpu", **way)
        out = device.empty((2, 9, 8, 7), "f4")
        with nothing_on_host(device):
            found = gzarr.read_affine(a, matrix, **way)
            assert gzarr.read_affine(a, matrix, out=out, **way) is out
        np.testing.assert_array_equal(device.to_numpy(found), wanted)
        np.testing.assert_allclose(device.to_numpy(out).clip(0, 65535), wanted, atol=0.5 + 1e-3)


@pytest.mark.parametrize("shape", [(1,), (2,), (300, 7), (5, 9), (3, 70, 130), (2, 1, 65), (4, 3, 2, 64), (40, 1000)])
def test_filter_of_splines(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's bits are those of the two filters as they are written in books."""
    monkeypatch.setattr(host, "_WORKER_ELEMENTS", 100)
    x = np.random.default_rng(2).uniform(-1, 1, shape)
    pole = np.sqrt(3) - 2
    for axes in range(1, min(len(shape), 3) + 1):
        wanted = x.copy()
        for d in range(len(shape) - axes, len(shape)):
            if shape[d] < 2:
                continue
            along = np.moveaxis(wanted, d, 0)
            along *= 6
            for i in range(1, len(along)):
                along[i] += pole * along[i - 1]
            along[-1] *= pole / (pole - 1)
            for i in range(len(along) - 2, -1, -1):
                along[i] = pole * (along[i + 1] - along[i])
        found = x.copy()
        host.Host().filter(found, axes)
        np.testing.assert_array_equal(found, wanted)
    host.Host().filter(np.empty((0, 5)), 2)


def nothing_on_host(device: TestedDevice) -> Any:
    """Make copies of a device's arrays to host memory an error."""
    if device.watched is None:
        return nullcontext()
    return mock.patch.object(type(device.watched), "to_host", side_effect=AssertionError("copied to host memory"))


@pytest.mark.parametrize("boundary", [*MODES, 3])
@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f4", "f8"])
def test_a_device_makes_the_bits_of_the_host(device: TestedDevice, dtype: str, boundary: Any) -> None:
    # Each case has two maps of its own.
    rng = np.random.default_rng(list(f"{dtype} {boundary}".encode()))
    low, high = (-100, 100) if dtype in ("i1", "f4", "f8") else (0, 250)
    for size in ((2, 3, 17, 21), (1, 12, 13)):
        data = rng.uniform(low, high, size).astype(dtype)
        k = len(size) - 1 if len(size) == 3 else 3
        data = data[0] if k == 2 else data
        a = stored(data, device.name)
        matrix = rotation(rng, k) * np.exp(rng.normal(size=k) * 0.5)
        for interpolation, out in (
            ("nearest", dtype), ("linear", dtype), ("linear", "f4"), ("linear", "u1"), ("cubic", dtype),
            ("cubic", "f8"),
        ):  # fmt: skip
            way: dict[str, Any] = {
                "centre": rng.uniform(0, 1, k) * data.shape[-k:], "shape": (9, 14, 11)[-k:], "dtype": out,
                "interpolation": interpolation, "boundary": boundary,
            }  # fmt: skip
            wanted = gzarr.read_affine(data, matrix, device="cpu", **way)
            with nothing_on_host(device):
                found = gzarr.read_affine(a, matrix, **way)
            np.testing.assert_array_equal(device.to_numpy(found), wanted)
    if device.watched is not None:
        # Coefficients of splines are filtered along each axis in a copy of the box.
        assert device.watched.counts["launch resample"] == 2 * (4 + 2)
        assert device.watched.counts["launch resample_cubic"] == 2 * 2
        assert device.watched.counts["launch filter_lines"] == 2 * (2 + 3)


@pytest.mark.parametrize("boundary", MODES)
def test_a_device_as_scipy(device: TestedDevice, boundary: Any) -> None:
    rng = np.random.default_rng(6)
    data = rng.uniform(1, 2, (18, 19, 20)).astype("f4")
    matrix, offset = rotation(rng, 3) * 0.8, np.array([2.5, -1.25, 4.0])
    case = {
        "matrix": matrix, "offset": offset, "size": data.shape, "shape": (14, 15, 16), "mode": boundary, "leading": (),
    }  # fmt: skip
    for interpolation, order in (("nearest", 0), ("linear", 1)):
        found = gzarr.read_affine(
            stored(data, device.name), matrix, offset=offset, shape=(14, 15, 16), interpolation=interpolation,
            boundary=boundary,
        )  # fmt: skip
        wanted = scipys(data.astype("f8"), case, order).astype("f4")
        np.testing.assert_array_max_ulp(device.to_numpy(found), wanted, 2)
    found = gzarr.read_affine(
        stored(data, device.name), matrix, offset=offset, shape=(14, 15, 16), interpolation="cubic", boundary=boundary
    )
    wanted = scipys(data.astype("f8"), case, 3).astype("f4")
    # SciPy continues constants and edges for 12 elements only.
    few = boundary in ("constant", "edge")
    np.testing.assert_allclose(device.to_numpy(found), wanted, rtol=0, atol=1e-6 if few else 3e-7)


def test_a_device_copies_exchanged_axes_and_flips(device: TestedDevice) -> None:
    rng = np.random.default_rng(7)
    turned = [[0, -1, 0], [0, 0, 1], [1, 0, 0]]
    for dtype in ("bool", "u1", "i8", "f2", "f8", "c8", "c16"):
        data = rng.integers(0, 2**16, (5, 6, 7)).astype(dtype)
        wanted = data.transpose(2, 0, 1)[:, ::-1]
        way: dict[str, Any] = {"offset": (4, 0, 0), "shape": (7, 5, 6), "interpolation": "nearest"}
        for out in (None, device.empty((7, 6, 5), data.dtype).transpose(0, 2, 1)):
            with nothing_on_host(device):
                found = gzarr.read_affine(stored(data, device.name), turned, out=out, **way)
            np.testing.assert_array_equal(device.to_numpy(found), wanted)


@pytest.mark.parametrize(
    ("source", "final", "interpolation"),
    [
        ("f4", "i2", "nearest"), ("f8", "u1", "nearest"), ("f2", "f2", "linear"), ("u2", "f2", "linear"),
        ("f2", "i2", "nearest"), ("f4", "u4", "nearest"), ("u2", "f4", "nearest"), ("i8", "u4", "nearest"),
        ("f4", "f8", "nearest"), ("bool", "i4", "nearest"),
    ],
)  # fmt: skip
def test_a_device_converts(device: TestedDevice, source: str, final: str, interpolation: Any) -> None:
    rng = np.random.default_rng(8)
    data = (rng.uniform(-40, 300, (12, 13))).astype(source)
    if data.dtype.kind == "f":
        data[3, 4], data[6:8] = np.nan, data[6:8].round() + 0.5
        # Small floats do not hold this number and a half.
        data[9:] = {2: 1025, 4: 2**23 + 1, 8: 200}[data.itemsize]
    # A uint8 of a float below 0 is 0.
    way: dict[str, Any] = {"offset": (0.3, -2), "dtype": final, "interpolation": interpolation, "boundary": "edge"}
    matrix = [[0.9, 0.2], [-0.1, 0.8]]
    wanted = gzarr.read_affine(data, matrix, device="cpu", **way)
    with nothing_on_host(device):
        found = gzarr.read_affine(stored(data, device.name), matrix, **way)
        far = gzarr.read_affine(stored(data, device.name), matrix, **{**way, "offset": 90, "boundary": "constant"})
    np.testing.assert_array_equal(device.to_numpy(found), wanted)
    assert not device.to_numpy(far).any()
    if final in ("i2", "u4") and source in ("f2", "f4"):
        assert wanted.max() == min(np.nanmax(data), np.iinfo(final).max)


@pytest.mark.parametrize("interpolation", ORDERS)
def test_results_at_odd_addresses(device: TestedDevice, interpolation: Any) -> None:
    """Kernels store words at multiples of their size only."""
    data = np.random.default_rng(9).uniform(1, 2, (11, 12)).astype("f4")
    way: dict[str, Any] = {"offset": (1.5, 2), "shape": (5, 6), "interpolation": interpolation}
    matrix = [[0.9, 0.2], [-0.1, 0.8]]
    wanted = gzarr.read_affine(data, matrix, device="cpu", **way)
    memory = device.empty((5 * 6 * 4 + 3,), "u1")
    for shift in (1, 2, 3):
        out = memory[shift : shift + 120].view("f4").reshape(5, 6)
        gzarr.read_affine(stored(data, device.name), matrix, out=out, **way)
        np.testing.assert_array_equal(device.to_numpy(out), wanted)


@pytest.mark.parametrize("dtype", ["i1", "u2", "i4", "u4", "i8", "u8"])
def test_what_is_beyond_a_type_becomes_its_end(device: TestedDevice, dtype: str) -> None:
    info = np.iinfo(dtype)
    for number, source in ((1e30, "f8"), (-1e30, "f8"), (3e30, "f4"), (np.nan, "f8")):
        data = np.full((4, 5), number, source)
        wanted = info.max if data[0, 0] > 0 else info.min
        for interpolation in ("nearest", "linear"):
            found = gzarr.read_affine(
                stored(data, device.name), np.eye(2) * 0.7, dtype=dtype, interpolation=interpolation, boundary="edge"
            )
            np.testing.assert_array_equal(device.to_numpy(found), np.full((4, 5), wanted, dtype))


def test_types() -> None:
    rng = np.random.default_rng(2)
    data = rng.random((12, 13))
    matrix = [[0.9, 0.2], [-0.1, 0.8]]
    exact = gzarr.read_affine(data, matrix, device="cpu", boundary="edge")
    half = gzarr.read_affine(data.astype("f2"), matrix, device="cpu", boundary="edge")
    assert half.dtype == np.float16
    np.testing.assert_allclose(half, exact, atol=2e-3)
    signs = gzarr.read_affine(data * 400 - 200, matrix, dtype="i1", device="cpu", boundary="edge")
    wanted = exact * 400 - 200
    np.testing.assert_array_equal(
        signs, np.clip(np.where(wanted > 0, np.floor(wanted + 0.5), np.ceil(wanted - 0.5)), -128, 127)
    )
    for dtype in (bool, "c8", "M8[s]"):
        other = (data * 10).astype("i8").astype(dtype)
        with pytest.raises(gzarr.ArgumentError, match="cannot be interpolated"):
            gzarr.read_affine(other, matrix, device="cpu")
        found = gzarr.read_affine(other, matrix, interpolation="nearest", boundary="edge", device="cpu")
        assert found.dtype == other.dtype
        index = np.clip(
            np.floor(np.array(matrix) @ np.indices((12, 13)).reshape(2, -1) + 0.5).astype(int), 0, [[11], [12]]
        )
        np.testing.assert_array_equal(found.ravel(), other[tuple(index)])


def test_other_matrices() -> None:
    data = np.random.default_rng(3).random((12, 13))
    a = np.array([[0.9, 0.2, 1.5], [-0.1, 0.8, 2.5]])
    np.testing.assert_array_equal(
        gzarr.read_affine(data, a, device="cpu"),
        gzarr.read_affine(data, a[:2, :2], offset=a[:2, 2], device="cpu"),
    )
    np.testing.assert_array_equal(
        gzarr.read_affine(data, (0.5, 0.25), device="cpu"), gzarr.read_affine(data, np.diag((0.5, 0.25)), device="cpu")
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"matrix": np.eye(4)}, "matrix must be"),
        ({"matrix": [[np.nan, 0], [0, 1]]}, "finite"),
        ({"matrix": np.eye(2), "offset": (1, 2, 3)}, "offset one for each axis"),
        ({"matrix": np.eye(2), "offset": 1, "centre": (1, 2)}, "not both"),
        ({"matrix": np.eye(3)}, "cannot be of an array of shape"),
        ({"matrix": np.eye(2), "shape": (3,)}, "shape must be 2 integers"),
        ({"matrix": np.eye(2), "interpolation": "bicubic"}, "'nearest', 'linear', 'cubic'"),
        ({"matrix": np.eye(2), "boundary": "mirror"}, "'reflect' in NumPy"),
        ({"matrix": np.eye(2), "level": 1}, "for OME images"),
        ({"matrix": np.eye(2), "dtype": "c8"}, "integers or floats"),
        ({"matrix": np.eye(2), "interpolation": "nearest", "boundary": 0.5}, "not a value of uint8"),
        ({"matrix": [[10**400, 0], [0, 1]]}, "finite numbers"),
        ({"matrix": np.eye(2) * 1j}, "finite numbers"),
        ({"matrix": [[1, 0], [0]]}, "finite numbers"),
        ({"matrix": np.eye(2), "offset": 10**400}, "finite numbers"),
        ({"matrix": np.eye(2), "centre": 10**400}, "finite numbers"),
        ({"matrix": np.eye(2), "boundary": 1j}, "is complex"),
        ({"matrix": np.eye(2), "boundary": 10**5000}, "not a number of 64 bits"),
        ({"matrix": np.eye(2), "dtype": "nonsense"}, "neither a NumPy dtype"),
    ],
)
def test_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(gzarr.ArgumentError, match=words):
        gzarr.read_affine(np.zeros((5, 6), "u1"), device="cpu", **arguments)


@pytest.mark.parametrize("boundary", [np.timedelta64(1), np.datetime64(1, "s"), np.str_("1"), np.bytes_(b"1")])
def test_a_boundary_of_another_kind(boundary: Any) -> None:
    with pytest.raises(gzarr.ArgumentError, match="is no number"):
        gzarr.read_affine(np.zeros((5, 6), "u1"), np.eye(2), boundary=boundary, device="cpu")


def without_fill_value(data: np.ndarray[Any, Any], device: str = "cpu") -> gzarr.Array:
    """Return an array whose document has null for a fill value."""
    store: dict[str, bytes] = {}
    gzarr.create_array(store, data=data, chunks=4, zarr_format=2, device="cpu")
    store[".zarray"] = json.dumps({**json.loads(bytes(store[".zarray"])), "fill_value": None}).encode()
    array = gzarr.open_array(store, mode="r", device=device)
    assert array.fill_value is None
    return array


@pytest.mark.parametrize("interpolation", ORDERS)
@pytest.mark.parametrize("boundary", ["constant", "reflect"])
@pytest.mark.parametrize(
    "dtype",
    ["i2", "u1", "i8", "f4", "?", "c8", "M8[s]", "m8[s]", "S3", "U2", "V3", [("a", "u1"), ("b", "<f4")]],
    ids=str,
)
def test_without_a_fill_value(dtype: Any, boundary: str, interpolation: Any) -> None:
    absent = np.full((), "NaT", dtype) if np.dtype(dtype).kind in "mM" else np.zeros((), dtype)
    data = np.arange(1, 57).reshape(8, 7).astype(dtype)
    found, v2 = [], {"zarr_format": 2}
    for fill_value in (None, absent[()]):
        array = without_fill_value(data) if fill_value is None else stored(data, chunk=4, fill_value=fill_value, **v2)
        for matrix in (np.eye(2), [[0.9, 0.1], [-0.1, 1.1]]):
            options: dict[str, Any] = {"offset": -1.0, "shape": (9, 9), "boundary": boundary}
            if np.dtype(dtype).kind not in "iuf" and interpolation != "nearest":
                with pytest.raises(gzarr.ArgumentError, match="cannot be interpolated"):
                    gzarr.read_affine(array, matrix, interpolation=interpolation, **options)
                continue
            found.append(gzarr.read_affine(array, matrix, interpolation=interpolation, **options))
    half = len(found) // 2
    for one, other in zip(found[:half], found[half:], strict=True):
        assert one.dtype == other.dtype == data.dtype
        assert one.tobytes() == other.tobytes()
    if found and boundary == "constant":
        assert found[0][0].tobytes() == np.full(9, absent).tobytes()


@pytest.mark.parametrize("dtype", ["i2", "f4", "c8"])
def test_without_a_fill_value_on_devices(dtype: str, device: TestedDevice) -> None:
    data = np.arange(1, 57).reshape(8, 7).astype(dtype)
    array = without_fill_value(data, device.name)
    found = gzarr.read_affine(array, np.eye(2), offset=-1.0, shape=(9, 8), interpolation="nearest")
    np.testing.assert_array_equal(device.to_numpy(found), np.pad(data, ((1, 0), (1, 0))))
    beyond = gzarr.read_affine(array, np.eye(2), offset=-99.0, shape=(2, 2), interpolation="nearest")
    np.testing.assert_array_equal(device.to_numpy(beyond), np.zeros((2, 2), dtype))


def test_nothing() -> None:
    data = np.zeros((0, 5))
    assert (gzarr.read_affine(data, np.eye(2), shape=(2, 2), boundary=3, device="cpu") == 3).all()
    assert gzarr.read_affine(data, np.eye(2), shape=(0, 2), boundary="edge", device="cpu").shape == (0, 2)
    with pytest.raises(gzarr.ArgumentError, match="no elements to continue"):
        gzarr.read_affine(data, np.eye(2), shape=(2, 2), boundary="edge", device="cpu")


@pytest.mark.parametrize("interpolation", ["nearest", "linear"])
@pytest.mark.parametrize("dtype", ["u1", "i4", "i8", "u8"])
def test_rounding_of_what_is_almost_a_half_or_whole(device: TestedDevice, interpolation: Any, dtype: str) -> None:
    """A half is not added where the sum would be rounded to another integer."""
    large = [2**52 - 1, 2**52 + 1, 2**53 - 1] if dtype in ("i8", "u8") else [3, 5, 7]
    values = [np.nextafter(0.5, 0), 0.5, np.nextafter(1.5, 0), 1.5, 2.0, *large, np.nextafter(-0.5, 0), -0.5, -1.5]
    rounded = [0, 1, 1, 2, 2, *large, *([-0, -1, -2] if dtype[0] == "i" else [0, 0, 0])]
    for value, expected in zip(values, rounded, strict=True):
        data = stored(np.full((4, 4), value), device.name)
        found = gzarr.read_affine(
            data, np.eye(2), shape=(2, 2), boundary="edge", interpolation=interpolation, dtype=dtype
        )
        assert np.unique(device.to_numpy(found)).tolist() == [expected], value
