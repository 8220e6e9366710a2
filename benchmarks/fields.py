"""The numbers in the benchmark's arrays: smooth fields with sensor noise, deterministic, generated slab by slab.

Real data compress 1.5 to 4 times because they are both smooth and noisy; random or constant data would not be
representative. Each function makes rows ``start:stop`` of the first axis of an array of shape ``shape``;
each slab has a separate random stream for its noise.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    Field = Callable[[tuple[int, ...], int, int], npt.NDArray[Any]]

#: Rows whose noise comes from one random stream.
SLAB_ROWS = 32


def _random(name: str, start: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64([zlib.crc32(name.encode()), start]))


def _waves(shape: tuple[int, ...], start: int, stop: int, periods: tuple[float, ...]) -> npt.NDArray[np.float32]:
    """Two products of waves, the second with half the amplitude and twice the frequency: values in [-1.5, 1.5]."""
    out = np.zeros((stop - start, *shape[1:]), np.float32)
    for amplitude, harmonic in ((1.0, 1.0), (0.5, 2.0)):
        term: npt.NDArray[np.float32] = np.full((1,) * len(shape), amplitude, np.float32)
        for axis, (size, period) in enumerate(zip(shape, periods, strict=True)):
            at = np.arange(start, stop) if axis == 0 else np.arange(size)
            wave = np.sin(at * (2 * np.pi * harmonic / period) + 0.7 * axis).astype(np.float32)
            term = term * wave.reshape([-1 if d == axis else 1 for d in range(len(shape))])
        out += term
    return out


def camera_u2(shape: tuple[int, ...], start: int, stop: int) -> npt.NDArray[np.uint16]:
    """Light-sheet microscopy: a 12-bit camera, a background of 100 counts and read noise of 4."""
    signal = 1400.0 + 800.0 * _waves(shape, start, stop, (230.0, 310.0, 270.0))
    noise = _random("camera", start).standard_normal(signal.shape, dtype=np.float32)
    return np.clip(signal + 4.0 * noise, 0, 4095).astype(np.uint16)


def weather_f4(shape: tuple[int, ...], start: int, stop: int) -> npt.NDArray[np.float32]:
    """Air temperature in kelvin on a grid, as unpacked from a packed archive: steps of 1/256 K."""
    periods = (40.0, 900.0, 700.0) if len(shape) == 3 else (40.0,) * len(shape)
    noise = _random("weather", start).standard_normal((stop - start, *shape[1:]), dtype=np.float32)
    kelvin = 275.0 + 20.0 * _waves(shape, start, stop, periods) + 0.15 * noise
    return (np.round(kelvin * 256.0) / 256.0).astype(np.float32)


def pressure_f4(shape: tuple[int, ...], start: int, stop: int) -> npt.NDArray[np.float32]:
    """A simulation's scalar field, rounded to 14 bits as lossy archives do."""
    noise = _random("pressure", start).standard_normal((stop - start, *shape[1:]), dtype=np.float32)
    field = 2.0 + _waves(shape, start, stop, (190.0, 260.0, 220.0)) + 0.002 * noise
    return (np.round(field * 4096.0) / 4096.0).astype(np.float32)


def flux_f8(shape: tuple[int, ...], start: int, stop: int) -> npt.NDArray[np.float64]:
    """An image cube of a telescope: counts scaled to flux, steps of 2**-10."""
    noise = _random("flux", start).standard_normal((stop - start, *shape[1:]), dtype=np.float32)
    field = 8.0 + 3.0 * _waves(shape, start, stop, (120.0, 340.0, 290.0)).astype(np.float64) + 0.1 * noise
    return np.round(field * 1024.0) / 1024.0


def slide_u1(shape: tuple[int, ...], start: int, stop: int) -> npt.NDArray[np.uint8]:
    """A stained tissue slide, (rows, columns, RGB): two stains on a bright ground, noise of about one count."""
    plane = _waves(shape[:2], start, stop, (830.0, 710.0)) + 0.3 * _waves(shape[:2], start, stop, (61.0, 47.0))
    noise = _random("slide", start).standard_normal((stop - start, *shape[1:]), dtype=np.float32)
    absorbed = np.clip(plane, 0, None)[..., None] * np.array([35.0, 80.0, 45.0], np.float32)
    return np.clip(235.0 - absorbed + 0.7 * noise, 0, 255).astype(np.uint8)


def labels_u4(shape: tuple[int, ...], start: int, stop: int) -> npt.NDArray[np.uint32]:
    """A segmentation: cells about 26 voxels wide with wavy borders, each with an arbitrary 32-bit label."""
    z = np.arange(start, stop)[:, None, None]
    y = np.arange(shape[1])[None, :, None]
    x = np.arange(shape[2])[None, None, :]
    a = (z + 6 * np.sin(y / 17) + 5 * np.sin(x / 23)) // 26
    b = (y + 6 * np.sin(x / 19) + 5 * np.sin(z / 21)) // 29
    c = (x + 6 * np.sin(z / 18) + 5 * np.sin(y / 25)) // 23
    cell = ((a + 1) * 4096 + (b + 1)) * 4096 + (c + 1)
    return (cell.astype(np.uint64) * np.uint64(2654435761) % np.uint64(1 << 32)).astype(np.uint32)


def public_u2(shape: tuple[int, ...], start: int, stop: int) -> npt.NDArray[np.uint16]:
    """The volume of the public zarrs/zarr_benchmarks: ``(x + y²/32 + z³) % 65536``, with integer division."""
    z = np.arange(start, stop, dtype=np.uint64)[:, None, None]
    y = np.arange(shape[1], dtype=np.uint64)[None, :, None]
    x = np.arange(shape[2], dtype=np.uint64)[None, None, :]
    return ((x + y * y // np.uint64(32) + z * z * z) % np.uint64(65536)).astype(np.uint16)


def station_f8(shape: tuple[int, ...], start: int, stop: int) -> npt.NDArray[np.float64]:
    """A long time series with few values per step."""
    noise = _random("station", start).standard_normal((stop - start, *shape[1:]))
    return 280.0 + 8.0 * np.sin(np.arange(start, stop) / 57.0).reshape(-1, *[1] * (len(shape) - 1)) + noise


def make(field: Field, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Return the whole field, C-ordered."""
    out: npt.NDArray[Any] | None = None
    for start in range(0, shape[0], SLAB_ROWS):
        stop = min(start + SLAB_ROWS, shape[0])
        slab = field(shape, start, stop)
        if out is None:
            out = np.empty(shape, slab.dtype)
        out[start:stop] = slab
    assert out is not None
    return out
