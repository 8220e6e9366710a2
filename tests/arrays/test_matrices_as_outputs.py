"""``out=`` arrays of classes that are indexed in ways of their own, such as ``np.matrix``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr

if TYPE_CHECKING:
    from pathlib import Path

DATA = np.arange(40, dtype="i4") * 3
pytestmark = pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")


@pytest.fixture(params=["files", "memory", "host threads"])
def array(request: pytest.FixtureRequest, tmp_path: Path) -> gzarr.Array:
    options: dict[str, Any] = {"zarr_format": 2, "compressors": "bz2"} if request.param == "host threads" else {}
    return gzarr.create_array(
        {} if request.param == "memory" else tmp_path / "a", data=DATA, chunks=(8,), device="cpu", **options
    )


def matrix(rows: int, columns: int) -> tuple[np.ndarray[Any, Any], Any]:
    """Return memory, and a matrix in the middle of it."""
    memory = np.full(1000, -1, "i4")
    return memory, memory[300 : 300 + rows * columns].reshape(rows, columns).view(np.matrix)


def assert_read(memory: np.ndarray[Any, Any], wanted: list[np.ndarray[Any, Any]]) -> None:
    expected = np.full(1000, -1, "i4")
    flat = np.concatenate(wanted)
    expected[300 : 300 + len(flat)] = flat
    np.testing.assert_array_equal(memory, expected)


def test_reads_write_to_the_elements_of_a_matrix_only(array: gzarr.Array) -> None:
    memory, out = matrix(1, 10)
    assert array.read_many([slice(5, 15)], out=out) is out
    assert_read(memory, [DATA[5:15]])
    memory, out = matrix(3, 10)
    assert array.read_many([slice(i, i + 10) for i in (5, 0, 29)], out=out) is out
    assert_read(memory, [DATA[5:15], DATA[:10], DATA[29:39]])
    memory, out = matrix(3, 10)
    assert array.read_windows([5, 0, 29], 10, out=out) is out
    assert_read(memory, [DATA[5:15], DATA[:10], DATA[29:39]])
    memory, out = matrix(1, 10)
    assert array.read((np.newaxis, slice(5, 15)), out=out) is out
    assert_read(memory, [DATA[5:15]])
    memory, out = matrix(2, 3)
    assert array.read([[7, 1, 30], [2, 2, 39]], out=out) is out
    assert_read(memory, [DATA[[7, 1, 30]], DATA[[2, 2, 39]]])
    memory, out = matrix(1, 10)
    assert array.read((np.newaxis, slice(5, 15)), out=out, dtype="i4") is out
    assert_read(memory, [DATA[5:15]])
    converted = np.zeros((1, 10), "f8").view(np.matrix)
    assert array.read((np.newaxis, slice(5, 15)), out=converted, dtype="f8") is converted
    np.testing.assert_array_equal(np.asarray(converted)[0], DATA[5:15])
