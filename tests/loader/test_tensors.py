"""Several arrays in one tensor, and arrays that are reversed, gathered in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.loaders import SHUFFLES

import gzarr
from gzarr.loader import Loader, Patches, Rows, Windows

if TYPE_CHECKING:
    from pathlib import Path

    from support.devices import TestedDevice

pytestmark = pytest.mark.filterwarnings("ignore:shuffling is coarse")

NAMES = ("t2m", "u10", "v10")


def write(root: Path) -> dict[str, Any]:
    """Write three variables of one shape, and one of another."""
    data = {name: np.arange(60 * 8 * 9, dtype="f4").reshape(60, 8, 9) + 10**5 * i for i, name in enumerate(NAMES)}
    for i, (name, values) in enumerate(data.items()):
        gzarr.create_array(root / name, data=values, chunks=(2 + i, 5, 9), dimension_names=("time", "lat", "lon"))
    data["scalar"] = np.arange(60)
    gzarr.create_array(root / "scalar", data=data["scalar"], chunks=7, dimension_names=("time",))
    return data


def opened(root: Path, device: TestedDevice, *names: str) -> dict[str, gzarr.Array]:
    return {name: device.open(root / name) for name in names}


@pytest.mark.parametrize("shuffle", SHUFFLES)
@pytest.mark.parametrize("flip", [None, "lat", ("lat", "lon"), 1])
def test_rows(tmp_path: Path, shuffle: Any, flip: Any, device: TestedDevice) -> None:
    data = write(tmp_path)
    order = ("v10", "t2m")
    loader = Loader(
        opened(tmp_path, device, *NAMES, "scalar"), Rows(), batch_size=8, shuffle=shuffle, stack=order, flip=flip,
        buffer_bytes=20_000, drop_last=False,
    )  # fmt: skip
    turned = (
        ...,
        *(slice(None, None, -1 if flip and d in (flip if flip != 1 else "lat") else 1) for d in ("lat", "lon")),
    )
    for batch in loader:
        assert set(batch) == {"data", "u10", "scalar"}
        wanted = np.stack([data[name][batch.samples] for name in order], axis=1)
        assert batch["data"].shape == (len(batch.samples), 2, 8, 9)
        assert (device.to_numpy(batch["data"]) == wanted[turned]).all()
        assert (device.to_numpy(batch["u10"]) == data["u10"][batch.samples][turned]).all()
        assert (device.to_numpy(batch["scalar"]) == data["scalar"][batch.samples]).all()
        if device.name == "cpu":
            # In place: nothing was put together afterwards.
            assert batch["data"].flags.c_contiguous


@pytest.mark.parametrize("shuffle", SHUFFLES)
@pytest.mark.parametrize("sampler", ["runs", "steps"])
def test_windows(tmp_path: Path, shuffle: Any, sampler: str, device: TestedDevice) -> None:
    data = write(tmp_path)
    relative = {"x": (-2, -1, 0), "y": (1, 2)} if sampler == "runs" else {"x": (-4, -2, 0), "y": (3,)}
    windows = Windows(0, {"x": (-2, 0), "y": (1, 2)}) if sampler == "runs" else Windows(0, steps=relative)
    loader = Loader(
        opened(tmp_path, device, *NAMES), windows, batch_size=8, shuffle=shuffle, stack=NAMES, flip="lat",
        buffer_bytes=60_000, drop_last=False,
    )  # fmt: skip
    for batch in loader:
        assert set(batch) == {"x", "y"}
        for run, steps in relative.items():
            times = batch.origins + np.array(steps)
            wanted = np.stack([data[name][times] for name in NAMES], axis=1)[..., ::-1, :]
            found = device.to_numpy(batch[run])
            assert found.shape == wanted.shape
            assert (found == wanted).all()


@settings(max_examples=40, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    halo=st.integers(0, 3),
    pad=st.sampled_from(["reflect", "symmetric", "edge", "fill"]),
    flip=st.sampled_from([None, 0, 1, (0, 1)]),
    shuffle=st.sampled_from(SHUFFLES),
    buffer=st.sampled_from([500, 10_000]),
)
def test_patches(shape: tuple[int, int], halo: int, pad: Any, flip: Any, shuffle: Any, buffer: int) -> None:
    data = {name: np.arange(11 * 13).reshape(11, 13) + 1000 * i for i, name in enumerate("ab")}
    arrays = {
        name: gzarr.create_array(gzarr.MemoryStore(), data=values, chunks=(4, 5), fill_value=7)
        for name, values in data.items()
    }
    loader = Loader(
        arrays, Patches(shape, halo=halo, pad=pad), stack={"both": ("b", "a")}, flip=flip, shuffle=shuffle,
        buffer_bytes=buffer, batch_size=3, drop_last=False,
    )  # fmt: skip
    room = halo + 5
    mode: dict[str, Any] = {"mode": pad} if pad != "fill" else {"mode": "constant", "constant_values": 7}
    padded = {name: np.pad(values, room, **mode) for name, values in data.items()}
    axes = {None: (), 0: (0,), 1: (1,), (0, 1): (0, 1)}[flip]
    for batch in loader:
        for found, (y, x) in zip(batch["both"], batch.origins.tolist(), strict=True):
            box = tuple(slice(o + room - halo, o + room + n + halo) for o, n in zip((y, x), shape, strict=True))
            wanted = np.stack([padded[name][box] for name in "ba"])
            assert (found == np.flip(wanted, [1 + axis for axis in axes])).all()


def test_volumes_and_skipped_samples(tmp_path: Path) -> None:
    for i in range(2):
        write(tmp_path / str(i))
    (tmp_path / "1/t2m/c/3/0/0").write_bytes(b"nothing")
    volumes = [{name: tmp_path / str(i) / name for name in NAMES} for i in range(2)]
    loader = Loader(volumes, Rows(), batch_size=4, stack=NAMES, on_error="skip", drop_last=False)
    count = 0
    for batch in loader:
        assert batch["data"].shape[1:] == (3, 8, 9)
        assert (batch["data"][:, 1] - batch["data"][:, 0] == 10**5).all()
        count += len(batch.samples)
    assert count == 118


def test_as_tensors(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    data = write(tmp_path)
    arrays = {name: tmp_path / name for name in NAMES}
    batch = next(iter(Loader(arrays, Rows(), batch_size=4, stack=NAMES, flip="lat", like="torch", shuffle=False)))
    assert isinstance(batch["data"], torch.Tensor)
    assert batch["data"].is_contiguous()
    assert (batch["data"].numpy()[:, 0] == data["t2m"][:4, ::-1]).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stack": "t2m"}, "stack must be names"),
        ({"stack": 3}, "stack must be names"),
        ({"stack": ("t2m", 1)}, "stack must be names"),
        ({"stack": ("t2m",)}, "at least two"),
        ({"stack": ("t2m", "w")}, r"stack names \['w'\]"),
        ({"stack": ("t2m", "u10", "t2m")}, "twice"),
        ({"stack": ("t2m", "scalar")}, "cannot be stacked"),
        ({"stack": {"u10": ("t2m", "v10")}}, "leaves out 'u10'"),
        ({"flip": "latitude"}, "is not a dimension"),
        ({"flip": 5}, "is not a dimension"),
        ({"flip": 1.5}, "flip must be"),
        ({"flip": "time"}, "axis along which samples lie"),
    ],
)
def test_bad_arguments(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    write(tmp_path)
    with pytest.raises(gzarr.ArgumentError, match=message):
        Loader({name: tmp_path / name for name in (*NAMES, "scalar")}, Rows(), **options)


def test_windows_have_no_place_beside_a_tensor(tmp_path: Path) -> None:
    write(tmp_path)
    arrays = {name: tmp_path / name for name in NAMES}
    windows = Windows(0, {"x": (0, 1)})
    with pytest.raises(gzarr.ArgumentError, match="leaves out 'v10'"):
        Loader(arrays, windows, stack=("t2m", "u10"))
    batch = next(iter(Loader(arrays, windows, stack={"wind": ("u10", "v10")}, batch_size=2)))
    assert batch["x"]["wind"].shape == (2, 2, 2, 8, 9)
    assert batch["x"]["t2m"].shape == (2, 2, 8, 9)
