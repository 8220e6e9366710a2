"""Arrays with a rectilinear chunk grid, chunk by chunk encoded by numcodecs, against NumPy."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import numcodecs
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gzarr
from gzarr.metadata.chunk_grid import ChunkGrid, RectilinearAxis, RegularAxis
from gzarr.plan.planner import by_shape, plan
from gzarr.plan.selection import parse_basic, parse_points

if TYPE_CHECKING:
    from pathlib import Path

    from support.devices import TestedDevice

SHAPE = (20, 11, 7)
GRID: list[Any] = [[3, [4, 3], 5], [[1, 2], 6, 3], 4]
LENGTHS = ((3, 4, 4, 4, 5), (1, 1, 6, 3), (4, 4))


def document(shape: tuple[int, ...], grid: Any, dtype: str = "int16", **more: Any) -> dict[str, Any]:
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": shape,
        "data_type": dtype,
        "fill_value": -1,
        "chunk_grid": {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": grid}},
        "chunk_key_encoding": {"name": "default"},
        "codecs": [
            {"name": "bytes", "configuration": {"endian": "little"}},
            {"name": "zstd", "configuration": {"level": 1}},
        ],
        **more,
    }


def stored(
    data: np.ndarray[Any, Any], grid: Any, lengths: Any, absent: tuple[tuple[int, ...], ...] = (), **more: Any
) -> dict[str, bytes]:
    """Return the store of an array; in ``data``, absent chunks are set to the fill value."""
    values = {"zarr.json": json.dumps(document(data.shape, grid, data.dtype.name, **more)).encode()}
    starts = [np.append(0, np.cumsum(along)) for along in lengths]
    padded = np.zeros([s[-1] for s in starts], data.dtype)
    padded[tuple(map(slice, data.shape))] = data
    for coords in itertools.product(*(range(len(along)) for along in lengths)):
        box = tuple(slice(s[c], s[c + 1]) for s, c in zip(starts, coords, strict=True))
        if coords in absent:
            data[box] = -1
        else:
            plain = np.ascontiguousarray(padded[box])
            values["/".join(map(str, ("c", *coords)))] = bytes(numcodecs.Zstd(1).encode(plain))
    return values


@pytest.fixture
def data() -> np.ndarray[Any, Any]:
    return np.arange(20 * 11 * 7, dtype="i2").reshape(SHAPE)


def test_selections(data: np.ndarray[Any, Any], device: TestedDevice) -> None:
    a = device.open(stored(data, GRID, LENGTHS, absent=((1, 2, 0), (4, 3, 1))))
    assert a.chunks == (5, 6, 4)
    assert a.chunk_lengths == ((3, 4, 4, 4, 5), (1, 1, 6, 3), (4, 3))
    assert a.nchunks == 5 * 4 * 2
    for selection in (
        *(..., np.s_[3], np.s_[:, 1:3], np.s_[::-2, ::5, 6]),
        *(np.s_[2:19:6, 8, 1:5], np.s_[1::9], np.s_[5:5], np.s_[19, 10, 6]),
    ):
        np.testing.assert_array_equal(device.read(a, selection), data[selection], str(selection))
    rows, columns, depths = [19, 0, 7, 7, 3], [10, 0, 2], [6, 5, 6]
    np.testing.assert_array_equal(
        device.read(a.oindex, (rows, slice(1, 9, 3), depths)), data[np.ix_(rows, range(1, 9, 3), depths)]
    )
    points = (rows[:3], columns, depths)
    np.testing.assert_array_equal(device.read(a.vindex, points), data[points])
    mask = data % 5 == 3
    np.testing.assert_array_equal(device.read(a.vindex, mask), data[mask])
    np.testing.assert_array_equal(device.read(a.blocks, (1, slice(2, 9))), data[3:7, 2:])
    np.testing.assert_array_equal(device.read(a.blocks, (-1, ..., 1)), data[15:, :, 4:])
    with pytest.raises(gzarr.SelectionError, match="5 blocks"):
        a.blocks[5]
    windows = [np.s_[0:5], np.s_[4:9], np.s_[15:20]]
    np.testing.assert_array_equal(device.to_numpy(a.read_many(windows)), np.stack([data[window] for window in windows]))


def test_stores_and_failures(data: np.ndarray[Any, Any], device: TestedDevice, tmp_path: Path) -> None:
    values = stored(data, GRID, LENGTHS, absent=((0, 0, 0),))
    for key, value in values.items():
        (tmp_path / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / key).write_bytes(value)
    a = device.open(tmp_path)
    np.testing.assert_array_equal(device.read(a), data)
    assert a.nchunks_initialized == 39
    with pytest.raises(gzarr.MissingChunkError, match=r"chunk \(0, 0, 0\)"):
        device.read(a, missing="error")
    # The size of a chunk is that of its place in the grid, not of the largest.
    (tmp_path / "c/1/2/0").write_bytes((tmp_path / "c/4/2/0").read_bytes())
    with pytest.raises(gzarr.ChunkDecodeError, match=r"chunk \(1, 2, 0\).*192 bytes for a chunk of shape \(4, 6, 4\)"):
        device.read(a)


def test_sharded_by_none_and_shrunk(data: np.ndarray[Any, Any], device: TestedDevice) -> None:
    # Resized to fewer elements: chunks reach, or lie, beyond the end.
    grid, lengths = [[[7, 4]], 11, [3, 3, 3]], ((7,) * 4, (11,), (3, 3, 3))
    a = device.open(stored(data[:12].copy(), grid, lengths))
    assert a.chunk_lengths == ((7, 5, 0, 0), (11,), (3, 3, 1))
    np.testing.assert_array_equal(device.read(a), data[:12])
    np.testing.assert_array_equal(device.read(a.blocks, (slice(1, None),)), data[7:12])


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_plan_covers_what_is_selected(drawn: st.DataObject) -> None:
    ndim = drawn.draw(st.integers(1, 3))
    lengths = [drawn.draw(st.lists(st.integers(1, 6), min_size=1, max_size=5)) for _ in range(ndim)]
    shape = tuple(map(sum, lengths))
    axes = tuple(
        RectilinearAxis(sum(along), np.array(along))
        if drawn.draw(st.booleans()) or len(set(along)) > 1
        else RegularAxis(sum(along), along[0])
        for along in lengths
    )
    values = np.arange(np.prod(shape)).reshape(shape)
    if drawn.draw(st.booleans()):
        picks = [drawn.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=6)) for n in shape]
        count = min(map(len, picks))
        index: Any = tuple(p[:count] for p in picks)
        selection = parse_points(index, shape)
    else:
        index = tuple(
            drawn.draw(st.slices(n) | st.integers(0, n - 1) | st.lists(st.integers(0, n - 1), max_size=4))
            for n in shape
        )
        if sum(isinstance(item, list) for item in index) > 1:
            index = tuple(slice(None) if isinstance(item, list) else item for item in index)
        selection = parse_basic(index, shape)
    expected = values[index]
    result = np.full(expected.shape, -1)
    out = selection.view(result)
    assert out is not None
    grid = ChunkGrid(axes)
    parts = by_shape(plan([selection], grid), grid)
    assert len({part.chunk_shape for part in parts}) == len(parts)
    starts = [np.append(0, np.cumsum(along)) for along in lengths]
    for part in parts:
        for i, coords in enumerate(part.chunks.tolist()):
            begin = [s[c] for s, c in zip(starts, coords, strict=True)]
            assert part.chunk_shape == tuple(along[c] for along, c in zip(lengths, coords, strict=True))
            chunk = values[tuple(slice(b, b + n) for b, n in zip(begin, part.chunk_shape, strict=True))]
            for p in range(part.piece_offsets[i], part.piece_offsets[i + 1]):
                if part.points is not None:
                    rows = slice(part.start[p, 0], part.start[p, 0] + part.count[p, 0])
                    out.reshape(-1)[part.points.target[rows]] = chunk[tuple(part.points.source[rows].T)]
                    continue
                source, target = [], []
                for d, table in enumerate(part.tables):
                    first, n = part.start[p, d], part.count[p, d]
                    if table is None:
                        source.append(first + np.arange(n) * part.step[d])
                        target.append(part.target[p, d] + np.arange(n))
                    else:
                        source.append(table.source[first : first + n])
                        target.append(table.target[first : first + n])
                out[np.ix_(*target)] = chunk[np.ix_(*source)]
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    ("grid", "where", "message"),
    [
        (7, "chunk_shapes", "array"),
        ([[20], [11]], "chunk_shapes", "2 dimensions"),
        ([[20], [11], "7"], "chunk_shapes[2]", "length"),
        ([[20], [11], 0], "chunk_shapes[2]", "from 1"),
        ([[20], [11], []], "chunk_shapes[2]", "cover"),
        ([[20], [11], [3, 3]], "chunk_shapes[2]", "total length of 6"),
        ([[20], [11, 0], [7]], "chunk_shapes[1][1]", "from 1"),
        ([[20], [11, True], [7]], "chunk_shapes[1][1]", "from 1"),
        ([[20], [[11, 0]], [7]], "chunk_shapes[1][0]", "from 1"),
        ([[20], [[11, 1, 1]], [7]], "chunk_shapes[1][0]", "from 1"),
        ([[20], [[11, -1]], [7]], "chunk_shapes[1][0]", "from 1"),
        ([[20], [11.5], [7]], "chunk_shapes[1][0]", "from 1"),
        ([[[1, 20_000_000]], [11], [7]], "chunk_shapes[0]", "at most"),
        ([[[1, 2**63 - 1]], [11], [7]], "chunk_shapes[0]", "at most"),
        ([[[2, 2**63 - 1]], [11], [7]], "chunk_shapes[0]", "cover"),
        ([[2**62], [11], [7]], "chunk_shapes", "bytes"),
    ],
)
def test_malformed_grids(grid: Any, where: str, message: str) -> None:
    with pytest.raises(gzarr.MetadataError, match=message) as caught:
        gzarr.open_array({"zarr.json": json.dumps(document(SHAPE, grid)).encode()})
    assert caught.value.json_path == f"$.chunk_grid.configuration.{where}"


def test_what_is_not_known() -> None:
    for changes, where in (
        ({"kind": "external"}, "$.chunk_grid.configuration.kind"),
        ({"extra": 1}, "$.chunk_grid.configuration"),
        ({"chunk_shapes": None}, "$.chunk_grid.configuration.chunk_shapes"),
    ):
        wrong = document(SHAPE, GRID)
        wrong["chunk_grid"]["configuration"].update(changes)
        with pytest.raises(gzarr.MetadataError) as caught:
            gzarr.open_array({"zarr.json": json.dumps(wrong).encode()})
        assert caught.value.json_path == where


def test_empty_dimensions(device: TestedDevice) -> None:
    a = device.open({"zarr.json": json.dumps(document((0, 3), [[], [1, 2]])).encode()})
    assert a.nchunks == 0
    assert device.read(a).shape == (0, 3)
    assert device.read(a.blocks, ...).shape == (0, 3)
