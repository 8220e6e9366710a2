"""Posed patches: what SciPy resamples from the whole volume, in poses that depend on seed, epoch and sample only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import ndimage

import gzarr
from gzarr.errors import ArgumentError
from gzarr.loader import Loader, Patches
from gzarr.loader.poses import Poses, checked_poses
from gzarr.loader.posing import Posing

if TYPE_CHECKING:
    from pathlib import Path

# Small arrays, which are a block or two.
pytestmark = pytest.mark.filterwarnings("ignore:shuffling is coarse")

KEYS = np.random.default_rng(1).integers(-(1 << 62), 1 << 62, 20_000)
#: Names of SciPy.
MODES = {"reflect": "mirror", "symmetric": "reflect", "edge": "nearest", "fill": "grid-constant"}


def volume(shape: tuple[int, ...], dtype: str = "f4") -> np.ndarray[Any, Any]:
    return (np.random.default_rng(3).random(shape) * 1000).astype(dtype)


class Seen:
    """The maps of all patches that were made, by the bytes of the sample's origin."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.maps: dict[bytes, Any] = {}
        own = Posing.maps

        def maps(posing: Posing, origins: Any) -> Any:
            found = own(posing, origins)
            for origin, one in zip(origins, found, strict=True):
                self.maps[origin[:-1].tobytes()] = one
            return found

        monkeypatch.setattr(Posing, "maps", maps)

    def of(self, origin: Any) -> Any:
        return self.maps[np.ascontiguousarray(origin, np.int64).tobytes()]


def expected(data: Any, affine: Any, shape: tuple[int, ...], order: int, pad: str) -> Any:
    """Return what SciPy resamples, in float64."""
    return ndimage.affine_transform(
        data.astype("f8"), affine.matrix, affine.offset, shape, order=order, mode=MODES[pad], cval=-5.0
    )


options = st.fixed_dictionaries(
    {},
    optional={
        "rotate": st.sampled_from([True, 30.0]),
        "scale": st.sampled_from([(0.8, 1.25), (0.6, 0.6), (1.5, 2.0)]),
        "flip": st.just(True),
        "shear": st.sampled_from([0.1, 0.4]),
        "shift": st.sampled_from([0.5, 3.0]),
    },
).filter(bool)


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    posed=options,
    k=st.sampled_from([2, 3]),
    pad=st.sampled_from(sorted(MODES)),
    nearest=st.booleans(),
    shuffle=st.sampled_from([False, "blocks", "full"]),
    halo=st.sampled_from([0, 1]),
)
def test_patches_are_what_scipy_resamples(
    posed: dict[str, Any], k: int, pad: Any, nearest: bool, shuffle: Any, halo: int
) -> None:
    data = volume((40, 36) if k == 2 else (20, 24, 18))
    a = gzarr.create_array({}, data=data, chunks=(7,) * k, fill_value=-5.0)
    shape = (8, 6, 5)[:k]
    interpolation: Any = "nearest" if nearest else "linear"
    sampler = Patches(shape, pad=pad, halo=halo, interpolation=interpolation, **posed)
    with pytest.MonkeyPatch.context() as patch:
        seen = Seen(patch)
        loader = Loader(a, sampler, batch_size=4, shuffle=shuffle, seed=7, drop_last=False)
        whole = tuple(n + 2 * halo for n in shape)
        count = 0
        for batch in loader:
            for origin, found in zip(batch.origins, batch["data"], strict=True):
                assert len(origin) == k
                affine = seen.of(origin)
                right = expected(data, affine, whole, 0 if nearest else 1, pad)
                if nearest:
                    # Ties of rounding errors are anybody's.
                    assert (found == right).mean() > 0.99
                else:
                    np.testing.assert_allclose(found, right, rtol=3e-6, atol=1e-3)
                count += 1
        assert count > 1


# -- poses


def poses(k: int = 3, **given: Any) -> Poses:
    every: dict[str, Any] = dict.fromkeys(("rotate", "scale", "flip", "shear", "shift"))
    return checked_poses(k, **{**every, **given})


def degrees(matrices: Any) -> Any:
    k = matrices.shape[-1]
    trace = np.trace(matrices, axis1=1, axis2=2)
    cosine = trace / 2 if k == 2 else (trace - 1) / 2
    return np.degrees(np.arccos(np.clip(cosine, -1, 1)))


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("rotate", [True, 30.0])
def test_rotations(k: int, rotate: Any) -> None:
    found = poses(k, rotate=rotate).matrices(KEYS)
    np.testing.assert_allclose(found @ found.transpose(0, 2, 1), np.broadcast_to(np.eye(k), found.shape), atol=1e-12)
    np.testing.assert_allclose(np.linalg.det(found), 1)
    if rotate is True:
        # Each axis is turned to anywhere as often: cosines have the mean 0, and their squares 1/k.
        np.testing.assert_allclose(found.mean(0), 0, atol=0.03)
        np.testing.assert_allclose((found**2).mean(0), 1 / k, atol=0.02)
        assert degrees(found).max() > 175
    else:
        assert 29 < degrees(found).max() <= 30 + 1e-9
        # As often to either side.
        np.testing.assert_allclose((found - found.transpose(0, 2, 1)).mean(0), 0, atol=0.02)


def test_rotations_about_axes() -> None:
    found = poses(3, rotate=(20, 0, 0)).matrices(KEYS)
    np.testing.assert_array_equal(found[:, 0], np.broadcast_to([1.0, 0.0, 0.0], (len(KEYS), 3)))
    assert 19 < degrees(found).max() <= 20 + 1e-9


def test_scales_flips_shears_and_shifts() -> None:
    found = 1 / poses(3, scale=(0.5, 2)).matrices(KEYS)[:, 0, 0]
    assert found.min() >= 0.5
    assert found.max() <= 2
    np.testing.assert_allclose(np.log2(found).mean(), 0, atol=0.03)
    flipped = poses(3, flip=(0, 2)).matrices(KEYS)
    np.testing.assert_array_equal(abs(flipped), np.broadcast_to(np.eye(3), flipped.shape))
    np.testing.assert_allclose(np.diagonal(flipped, axis1=1, axis2=2).mean(0), [0, 1, 0], atol=0.03)
    # Independent of each other.
    assert abs((flipped[:, 0, 0] * flipped[:, 2, 2]).mean()) < 0.03
    sheared = poses(2, shear=0.25).matrices(KEYS)
    assert 0.24 < abs(sheared[:, 0, 1]).max() <= 0.25
    moved = poses(2, shift=(2.5, 0)).shifts(KEYS)
    assert 2.4 < moved[:, 0].max() <= 2.5
    np.testing.assert_array_equal(moved[:, 1], 0)


# -- samples


def by_sample(loader: Loader) -> dict[int, Any]:
    found: dict[int, Any] = {}
    for batch in loader:
        for number, patch in zip(batch.samples.tolist(), batch["data"], strict=True):
            assert number not in found
            found[number] = np.array(patch)
    return found


def check_equal(some: dict[int, Any], whole: dict[int, Any]) -> None:
    for number, patch in some.items():
        np.testing.assert_array_equal(patch, whole[number])


@pytest.fixture
def array(tmp_path: Path) -> gzarr.Array:
    return gzarr.create_array(tmp_path / "a", data=volume((24, 20, 16), "u2"), chunks=(8, 8, 8))


POSED = Patches((5, 5, 5), pad="symmetric", rotate=True, scale=(0.8, 1.25), jitter=True)


def test_poses_are_of_seed_epoch_and_sample(array: gzarr.Array) -> None:
    options: dict[str, Any] = {"batch_size": 7, "seed": 3, "drop_last": False}
    loader = Loader(array, POSED, **options)
    first = by_sample(loader)
    assert len(first) == 5 * 4 * 4
    second = by_sample(loader)
    same = Loader(array, POSED, **options)
    check_equal(by_sample(same), first)
    check_equal(by_sample(same), second)
    assert not any(np.array_equal(first[n], second[n]) for n in first)
    # Another seed.
    other = by_sample(Loader(array, POSED, **{**options, "seed": 4}))
    assert not any(np.array_equal(first[n], other[n]) for n in first)
    # Places depend on the order, too; on a grid, patches are the same in any.
    fixed = Patches((5, 5, 5), pad="symmetric", rotate=True, scale=(0.8, 1.25))
    whole = by_sample(Loader(array, fixed, **options))
    for shuffle in ("blocks", "full", False):
        check_equal(by_sample(Loader(array, fixed, shuffle=shuffle, **{**options, "batch_size": 3})), whole)


def test_ranks_and_resuming(array: gzarr.Array) -> None:
    options: dict[str, Any] = {"batch_size": 4, "seed": 3, "drop_last": False}
    whole = by_sample(Loader(array, POSED, **options))
    seen: set[int] = set()
    for rank in range(2):
        some = by_sample(Loader(array, POSED, rank=rank, world_size=2, **options))
        check_equal(some, whole)
        seen |= set(some)
    assert seen == set(whole)
    loader = Loader(array, POSED, **options)
    for batch, _ in zip(loader, range(6), strict=False):
        del batch
    resumed = Loader(array, POSED, **options)
    resumed.load_state_dict(loader.state_dict())
    rest = by_sample(resumed)
    assert 0 < len(rest) < len(whole)
    check_equal(rest, whole)


def test_flipped_patches_are_copies() -> None:
    data = volume((12, 12), "i8") + (1 << 60)
    a = gzarr.create_array({}, data=data, chunks=5)
    seen = set()
    loader = Loader(a, Patches((4, 4), flip=True, pad="edge", interpolation="nearest"), batch_size=9, drop_last=False)
    for batch in loader:
        for (y, x), patch in zip(batch.origins.tolist(), batch["data"], strict=True):
            own = data[y : y + 4, x : x + 4]
            forms = [own, own[::-1], own[:, ::-1], own[::-1, ::-1]]
            (form,) = [i for i, one in enumerate(forms) if np.array_equal(one, patch)]
            seen.add(form)
    assert len(seen) > 1


def test_chunks_that_are_damaged_are_errors() -> None:
    values: dict[str, bytes] = {}
    gzarr.create_array(values, data=volume((24, 24)), chunks=8)
    values["c/1/1"] = b"no chunk"
    loader = Loader(gzarr.open_array(values), Patches((6, 6), rotate=True, pad="edge"), batch_size=4)
    with pytest.raises(gzarr.errors.ChunkDecodeError, match=r"1, 1"):
        list(loader)


def test_dtypes_that_have_no_values_between() -> None:
    a = gzarr.create_array({}, data=np.array([["a", "b"], ["c", "d"]]), chunks=2)
    with pytest.raises(ArgumentError):
        list(Loader(a, Patches((2, 2), rotate=True, pad="edge"), batch_size=1))
    loader = Loader(a, Patches((2, 2), flip=True, pad="edge", interpolation="nearest"), batch_size=1)
    assert sorted(next(iter(loader))["data"].ravel().tolist()) == ["a", "b", "c", "d"]
