"""Patches in random poses: what they show, that they are resumed, and that places are drawn evenly."""

from __future__ import annotations

from contextlib import nullcontext
from fractions import Fraction
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import pytest

import gzarr
import gzarr.ome
from gzarr.loader import Dataset, Merge, Patches
from gzarr.loader.permutation import hashed
from gzarr.loader.poses import checked_poses
from gzarr.loader.posing import Posing
from gzarr.loader.reading import Target
from gzarr.loader.samples import Part
from gzarr.poses.boxes import MARGIN

if TYPE_CHECKING:
    from support.devices import TestedDevice

EVERYTHING: dict[str, Any] = {
    "rotate": True, "scale": (0.8, 1.25), "flip": True, "shear": 0.1, "shift": 1.5,
}  # fmt: skip
KEYS = hashed(7, np.arange(2000)).view(np.int64)


def array(shape: tuple[int, ...] = (40, 45, 50), dtype: str = "f4", chunk: int = 16, **options: Any) -> gzarr.Array:
    data = np.random.default_rng(0).random(shape) * 1000
    store: dict[str, bytes] = {}
    gzarr.create_array(store, data=data.astype(dtype), chunks=(chunk,) * len(shape), device="cpu")
    return gzarr.open_array(store, **{"device": "cpu", **options})


def batches(loader: gzarr.Loader) -> list[Any]:
    return list(loader)


def wanted(a: Any, loader: Any, batch: Any, i: int, length: tuple[int, ...], interpolation: Any = "linear") -> Any:
    """Return a patch, read by itself in the pose of its sample."""
    epoch = loader._of_epoch(loader._position.place.epoch)
    numbers = np.flatnonzero((epoch.origins(np.arange(epoch.samples.count))[:, :-1] == batch.origins[i]).all(axis=1))
    (number,) = [n for n in numbers if epoch.cells.labels(np.array([n]))[0] == batch.samples[i]]
    posing = epoch.samples.each[0].sources[0].part.posed
    assert posing is not None
    (affine,) = posing.maps(epoch.origins(np.array([number])))
    return gzarr.read_affine(
        a, affine.matrix, offset=affine.offset, shape=length, boundary="reflect", interpolation=interpolation
    )


@pytest.mark.parametrize("shuffle", ["blocks", "full", False])
@pytest.mark.parametrize("jitter", [False, True])
@pytest.mark.parametrize("interpolation", ["linear", "cubic"])
def test_patches_are_those_of_read_affine(shuffle: Any, jitter: bool, interpolation: Any) -> None:
    a = array()
    sampler = Patches((10, 12, 14), jitter=jitter, interpolation=interpolation, **EVERYTHING)
    loader = gzarr.Loader(a, sampler, batch_size=4, shuffle=shuffle, seed=3, drop_last=False)
    seen = 0
    for batch in loader:
        assert batch["data"].shape[1:] == (10, 12, 14)
        assert batch.origins.shape[1] == 3
        for i in range(len(batch["data"])):
            expected = wanted(a, loader, batch, i, (10, 12, 14), interpolation)
            np.testing.assert_allclose(batch["data"][i], expected, rtol=1e-5, atol=1e-3)
            seen += 1
    assert seen == 4 * 4 * 4


@pytest.mark.parametrize("pad", ["reflect", "symmetric", "edge", "fill"])
@pytest.mark.parametrize("options", [{"rotate": 30}, {"rotate": (180, 5, 5)}, {"scale": (1.2, 1.5)}, {"flip": (0,)}])
@pytest.mark.parametrize("interpolation", ["linear", "cubic"])
def test_windows_are_large_enough(options: dict[str, Any], pad: Any, interpolation: Any) -> None:
    """At each place of the grid, also beyond the ends, the patch is that of the whole array."""
    a = array((30, 20, 25) if interpolation == "linear" else (90, 20, 25))
    sampler = Patches((12, 13, 14), halo=2, pad=pad, interpolation=interpolation, **options)
    loader = gzarr.Loader(a, sampler, batch_size=1, drop_last=False)
    epoch = loader._of_epoch(0)
    posing = epoch.samples.each[0].sources[0].part.posed
    assert posing is not None
    for batch, number in zip(loader, epoch.numbers(0, 99), strict=False):
        (affine,) = posing.maps(epoch.origins(np.array([number])))
        found = gzarr.read_affine(
            a, affine.matrix, offset=affine.offset, shape=(16, 17, 18), boundary="constant" if pad == "fill" else pad,
            interpolation=interpolation,
        )  # fmt: skip
        np.testing.assert_allclose(batch["data"][0], found, rtol=1e-5, atol=1e-4)


def test_labels_have_the_pose_of_their_image() -> None:
    index = np.indices((40, 40, 40))
    ball = ((index - 20) ** 2).sum(axis=0) < 15**2
    image, mask = ball * 1000.0, (ball * 7).astype("u2")
    channels = np.stack([image, 2 * image])
    loader = gzarr.Loader(
        {"image": channels, "mask": mask},
        Patches((16, 16, 16), interpolation={"mask": "nearest"}, jitter=True, **EVERYTHING),
        batch_size=8,
    )
    for batch in loader:
        assert batch["image"].shape == (8, 2, 16, 16, 16)
        assert batch["mask"].dtype == np.uint16
        assert set(np.unique(batch["mask"])) <= {0, 7}
        np.testing.assert_allclose(batch["image"][:, 1], 2 * batch["image"][:, 0])
        # Where all neighbours are alike, so is the label.
        assert (batch["mask"][batch["image"][:, 0] == 1000] == 7).all()
        assert (batch["mask"][batch["image"][:, 0] == 0] == 0).all()


def test_levels_of_one_region() -> None:
    """An array that is smaller by 2 shows the same in the same pose: places of centres."""
    z, y, x = np.indices((48, 48, 48)).astype("f8")
    fine = 3 * z + 5 * y - 7 * x
    coarse = fine.reshape(24, 2, 24, 2, 24, 2).mean(axis=(1, 3, 5))
    sampler = Patches((8, 8, 8), where=np.array([[20, 20, 20], [16, 22, 18]]), rotate=True, scale=(0.9, 1.1))
    for batch in gzarr.Loader({"fine": fine, "coarse": coarse}, sampler, batch_size=1):
        mean = batch["fine"].reshape(-1, 4, 2, 4, 2, 4, 2).mean(axis=(2, 4, 6))
        np.testing.assert_allclose(batch["coarse"], mean, rtol=1e-9)


def test_spacing_makes_volumes_alike() -> None:
    def image(scale: tuple[float, ...], shape: tuple[int, ...]) -> Any:
        places = [s * i for s, i in zip(scale, np.indices(shape), strict=True)]
        data = 1000.0 + 3 * places[0] + 5 * places[1] - 7 * places[2]
        return gzarr.ome.create({}, data, axes="zyx", scale=scale, chunks=(8, 8, 8), levels=2, progress=False)

    one, other = image((2, 0.5, 0.5), (20, 80, 80)), image((1, 1, 1), (40, 40, 40))
    sampler = Patches((6, 8, 8), spacing=(2.0, 1.0, 1.0), where=np.array([[4, 10, 10]]), stride=1)
    loader = gzarr.Loader([one, other], sampler, batch_size=1, shuffle=False)
    # The coarsest level that is fine enough: of 0.5, the second one.
    assert [next(iter(v.values())).shape for v in loader._arrays] == [(20, 40, 40), (40, 40, 40)]
    for batch in loader:
        (patch,) = batch["data"]
        np.testing.assert_allclose(np.diff(patch, axis=0), 3 * 2)
        np.testing.assert_allclose(np.diff(patch, axis=1), 5)
        np.testing.assert_allclose(np.diff(patch, axis=2), -7)


def places(spacing: float, levels: int, size: float = 48) -> Any:
    """Return an image of two channels: the distances y and x of elements from the corner."""
    centres = (np.indices((round(size / spacing),) * 2) + 0.5) * spacing
    return gzarr.ome.create(
        {}, centres, axes="cyx", scale=(1, spacing, spacing), levels=levels, chunks=(1, 16, 16), progress=False
    )


@pytest.mark.parametrize("options", [{}, EVERYTHING], ids=["plain", "posed"])
@pytest.mark.parametrize("spacing", [0.5, 2])
@pytest.mark.parametrize("first", ["image", "mask", "odd"])
def test_each_image_has_the_spacing(first: str, spacing: float, options: dict[str, Any]) -> None:
    """In one sample, images of other voxel sizes show one box in elements of one size."""
    images = {"fine": places(0.125, 3), "image": places(0.5, 3), "mask": places(1, 1), "odd": places(0.64, 1)}
    sampler = Patches((6, 8), spacing=(spacing, spacing), stride=7, pad="fill", **options)
    loader = gzarr.Loader({first: images[first], **images}, sampler, batch_size=4, seed=1)
    seen = 0
    for batch in loader:
        assert {name: batch[name].shape[1:] for name in images} == dict.fromkeys(images, (2, 6, 8))
        for patches in zip(*(batch[name] for name in images), strict=True):
            # Beside the edges, which are filled up with zeros.
            if min(patch.min() for patch in patches) > 1.5 and max(patch.max() for patch in patches) < 46.5:
                for patch in patches:
                    np.testing.assert_allclose(patch, patches[0], atol=1e-5)
                    if "rotate" not in options:
                        np.testing.assert_allclose(np.diff(patch[0], axis=0), spacing, atol=1e-5)
                        np.testing.assert_allclose(np.diff(patch[1], axis=1), spacing, atol=1e-5)
                seen += 1
    assert seen


@pytest.mark.parametrize("factor", [Fraction(1, 8), Fraction(1, 2), Fraction(13, 10), 3])
@pytest.mark.parametrize("order", [1, 3])
def test_windows_of_other_voxel_sizes_are_large_enough(factor: Any, order: int) -> None:
    poses = checked_poses(2, 30, (0.8, 1.25), True, 0.1, 1.5)
    for spacing in (0.25, 1.0, 6.0):
        room = (round(9 * spacing), round(14 * spacing))
        posing = Posing(poses, (0, 1), (9, 14), room, (spacing,) * 2, (1.0,) * 2, (factor,) * 2, order)
        origins = np.column_stack([np.arange(4000).reshape(-1, 2), KEYS])
        part = Part(("x",), "x", (1, 1), tuple(low for low, _ in posing.around()), (0, 1), (factor,) * 2, posed=posing)
        more = MARGIN if order == 3 else 0
        for start, affine in zip(part.starts(origins[:, :-1]), posing.maps(origins), strict=True):
            for low, high, first, (_, count) in zip(*affine.extent((9, 14)), start, posing.around(), strict=True):
                assert first <= np.floor(low) - more
                assert np.floor(high) + 1 + more < first + count


def test_images_of_other_regions_are_refused() -> None:
    for other in (places(1, 1, 40), places(1, 1, 60)):
        with pytest.raises(gzarr.ArgumentError, match=r"other shows .* where the first image shows 48"):
            gzarr.Loader({"image": places(0.5, 1), "other": other}, Patches((8, 8), spacing=(1, 1)))


def test_rotations_are_physical() -> None:
    """A ball of an anisotropic image stays one."""
    scale = np.array([2, 0.5, 0.5])
    # The patch below is of 16 x 32 x 32 elements.
    centre = scale * (np.array([6, 20, 20]) + np.array([15, 31, 31]) / 2)
    index = np.moveaxis(np.indices((30, 80, 80)), 0, -1) * scale
    ball = np.clip(6.5 - np.linalg.norm(index - centre, axis=-1), 0, 3)
    image = gzarr.ome.create({}, ball, axes="zyx", scale=(2, 0.5, 0.5), chunks=(8, 8, 8), levels=1, progress=False)
    plain, turned = (
        gzarr.Loader(image, Patches((16, 16, 16), where=np.array([[6, 20, 20]]), spacing=(2, 1, 1), **options))
        for options in ({}, {"rotate": True})
    )
    (before,), (after,) = (batch["data"] for (batch,) in (plain, turned))
    assert abs(after.sum() / before.sum() - 1) < 0.05
    assert np.abs(after - before).max() < 1


@pytest.mark.parametrize("interpolation", ["nearest", "cubic"])
@pytest.mark.parametrize("shuffle", ["full", False])
def test_windows_around_poses_are_within_the_memory(
    shuffle: Any, interpolation: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = array((120, 120, 120), "u2", 32)
    sampler = Patches((10, 12, 14), samples=60, jitter=True, interpolation=interpolation, **EVERYTHING)
    expected = [batch["data"] for batch in gzarr.Loader(a, sampler, batch_size=8, shuffle=shuffle, seed=3)]
    held: list[int] = []
    made = Target.__init__

    def noted(self: Target, *arguments: Any) -> None:
        made(self, *arguments)
        held.append(sum(output.nbytes for output in self.outputs))

    monkeypatch.setattr(Target, "__init__", noted)
    for buffer_bytes in (4 << 20, 16 << 20):
        held.clear()
        loader = gzarr.Loader(a, sampler, batch_size=8, shuffle=shuffle, seed=3, buffer_bytes=buffer_bytes)
        for wanted, batch in zip(expected, loader, strict=True):
            np.testing.assert_array_equal(batch["data"], wanted)
        # Those of a batch are read together, however large they are: of cubic interpolation, 13 MB.
        batch_bytes = 8 * loader._of_epoch(0).samples.apart_nbytes
        assert max(held) <= max(buffer_bytes / 2, batch_bytes)
        explained = loader.explain()
        assert max(held) <= explained.held_bytes <= max(1.1 * buffer_bytes, 2.2 * batch_bytes)
        assert loader.stats().chunks == pytest.approx(explained.amplification * a.nchunks, rel=0.1)


@pytest.mark.parametrize("shuffle", ["blocks", "full", False])
def test_resume_is_exact(shuffle: Any) -> None:
    def loader(**options: Any) -> gzarr.Loader:
        return gzarr.Loader(
            array(), Patches((10, 12, 14), jitter=True, **EVERYTHING), batch_size=4, shuffle=shuffle, seed=3, **options
        )

    whole, state = [], None
    first = loader()
    for epoch in range(2):
        for step, batch in enumerate(first):
            whole.append(batch["data"])
            if epoch == 1 and step == 4:
                state, at = first.state_dict(), len(whole)
    assert not np.array_equal(whole[0], whole[len(whole) // 2])
    assert state is not None
    second = loader(prefetch=0)
    second.load_state_dict(state)
    rest = [batch["data"] for batch in second]
    np.testing.assert_array_equal(rest, whole[at:])
    # Ranks share the same samples in the same poses.
    ranks = [loader(rank=rank, world_size=2) for rank in range(2)]
    samples: dict[int, Any] = {}
    for rank in ranks:
        for batch in rank:
            samples |= dict(zip(batch.samples.tolist(), batch["data"], strict=True))
    for batch in loader():
        for sample, data in zip(batch.samples.tolist(), batch["data"], strict=True):
            if sample in samples:
                np.testing.assert_array_equal(samples[sample], data)


def test_fingerprint_has_the_poses() -> None:
    a = array()
    fingerprints = {
        gzarr.Loader(a, Patches((8, 8, 8), **options)).fingerprint
        for options in ({}, {"rotate": True}, {"rotate": 10}, {"scale": (0.8, 1.25)}, {"scale": (0.8, 1.2)},
                        {"flip": True}, {"flip": (0,)}, {"shear": 0.1}, {"shift": 1})
    }  # fmt: skip
    assert len(fingerprints) == 9
    # That of patches without poses is as before there were any.
    assert repr(Patches((8, 8, 8))) == "Patches(shape=(8, 8, 8))"


@pytest.mark.parametrize("stride", [None, 5])
def test_places_are_drawn_evenly(stride: Any) -> None:
    """Each place is drawn as often as the others, wherever it is in slabs of chunks."""
    # Of 88 places along each axis, each bin has as many.
    n, patch = 95, 8
    sampler = Patches((patch, patch), jitter=True, stride=stride, rotate=True, scale=(0.8, 1.25))
    loader = gzarr.Loader(array((n, n), chunk=16), sampler, batch_size=8, seed=5)
    assert loader.explain().mixing.groups > 1
    origins = np.concatenate([batch.origins for _ in range(40) for batch in loader])
    counts = np.histogram2d(*origins.T, bins=8, range=[[0, 88]] * 2)[0]
    expected = counts.sum() / 64
    # Not more uneven than independent places would be: 63 degrees of freedom.
    assert ((counts - expected) ** 2 / expected).sum() < 103
    # Also within bins: at the edges of groups, of chunks and of cells.
    for along in origins.T:
        each = np.bincount(along, minlength=88)
        assert ((each - each.mean()) ** 2 / each.mean()).sum() < 132


def test_devices(device: TestedDevice) -> None:
    sampler = Patches((10, 12, 14), jitter=True, dtype="f4", **EVERYTHING)
    wanted = batches(gzarr.Loader(array(dtype="u2"), sampler, batch_size=4))
    for shuffle in ("blocks", False):
        for batch in gzarr.Loader(array(dtype="u2", device=device.name), sampler, batch_size=4, shuffle=shuffle):
            data = device.to_numpy(batch["data"])
            assert data.dtype == np.float32
            if shuffle == "blocks":
                np.testing.assert_array_equal(data, wanted.pop(0)["data"])


@pytest.mark.parametrize("interpolation", ["nearest", "linear", "cubic"])
def test_a_device_makes_the_bits_of_the_host(device: TestedDevice, interpolation: Any) -> None:
    sampler = Patches((10, 12, 14), interpolation=interpolation, **EVERYTHING)
    for dtype in ("u2", "f2"):
        wanted = batches(gzarr.Loader(array(dtype=dtype), sampler, batch_size=4))
        if device.watched is not None:
            refused = mock.patch.object(type(device.watched), "to_host", side_effect=AssertionError("copied to host"))
        with refused if device.watched is not None else nullcontext():
            found = batches(gzarr.Loader(array(dtype=dtype, device=device.name), sampler, batch_size=4))
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(device.to_numpy(one["data"]), other["data"])


def test_types() -> None:
    sampler = Patches((10, 12, 14), rotate=True)
    for dtype in ("u1", "f2"):
        loader, exact = (gzarr.Loader(array(dtype=kind), sampler, batch_size=4) for kind in (dtype, "f8"))
        for found, other in zip(loader, exact, strict=True):
            assert found["data"].dtype == dtype
            if dtype == "f2":
                np.testing.assert_allclose(found["data"], other["data"], atol=1)
    for flips in gzarr.Loader(array(dtype="u8"), Patches((10, 12, 14), flip=True), batch_size=4):
        assert np.isin(flips["data"], array(dtype="u8")[...]).all()


def test_dataset() -> None:
    dataset = Dataset(array(), Patches((10, 12, 14), **EVERYTHING))
    assert not np.array_equal(dataset[3]["data"], dataset[3]["data"])
    dataset.set_epoch(2)
    np.testing.assert_array_equal(dataset[3]["data"], dataset[3]["data"])


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("rotate", [None, True, 20, (10, 20, 30)])
@pytest.mark.parametrize("more", [{}, {"scale": (0.5, 1.5), "shear": 0.2, "flip": True, "shift": 2}])
def test_reach(k: int, rotate: Any, more: dict[str, Any]) -> None:
    if k == 2 and isinstance(rotate, tuple):
        return
    options: dict[str, Any] = {"rotate": rotate, "scale": None, "flip": None, "shear": None, "shift": None, **more}
    poses = checked_poses(k, **options)
    length = (9, 20, 14)[:k]
    posing = Posing(poses, tuple(range(k)), length, length, (1.0,) * k, (1.0,) * k, (1,) * k, 1)
    origins = np.column_stack([np.zeros((len(KEYS), k), np.int64), KEYS])
    around = posing.around()
    for affine in posing.maps(origins):
        for low, high, (first, count) in zip(*affine.extent(length), around, strict=True):
            assert first <= np.floor(low)
            assert np.ceil(high) < first + count
    # Nor much larger than they need be.
    lows, highs = (np.array(ends) for ends in zip(*(m.extent(length) for m in posing.maps(origins)), strict=True))
    spread = highs.max(axis=0) - lows.min(axis=0)
    assert (np.array([n for _, n in around]) <= (2.1 if more else 1.35) * spread + 7).all()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rotate": -3}, "rotate must be"),
        ({"rotate": (1, 2)}, "rotate must be"),
        ({"scale": (1.2, 0.8)}, "scale must be"),
        ({"scale": 2}, "scale must be"),
        ({"flip": (3,)}, "flip must be"),
        ({"shear": -1}, "shear must be"),
        ({"shift": (1, 2)}, "shift must be"),
        ({"rotate": True, "pad": None}, "need pad="),
        ({"rotate": True, "interpolation": {"mask": "nearest"}}, "interpolation= names"),
        ({"rotate": True, "dtype": "c8"}, "integers or floats"),
        ({"spacing": (1, 1, 1)}, "is for OME images"),
        ({"spacing": "far"}, "spacing must be"),
        ({"spacing": (10**400, 1, 1)}, "spacing must be"),
        ({"rotate": 10**5000}, "rotate must be"),
        ({"rotate": True, "dtype": "nonsense"}, "neither a NumPy dtype"),
        ({"scale": (1e-300, 1)}, "elements in some poses"),
        ({"shear": 1e300}, "elements in some poses"),
        ({"shift": 1e300}, "elements in some poses"),
    ],
)
def test_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(gzarr.ArgumentError, match=words):
        gzarr.Loader(array(), Patches((8, 8, 8), **options))


def test_posed_patches_are_not_merged() -> None:
    with pytest.raises(gzarr.ArgumentError, match="lie on no grid"):
        Merge(
            gzarr.create_array({}, shape=(40, 40, 40), chunks=8, dtype="f4", device="cpu"),
            Patches((8, 8, 8), rotate=True),
        )
