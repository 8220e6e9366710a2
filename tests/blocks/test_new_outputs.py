"""Outputs that ``map_blocks`` makes: elements that they cannot hold, chunks that inputs cannot give them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.errors import ArgumentError, OutputError

if TYPE_CHECKING:
    from pathlib import Path


def same(x: Any) -> Any:
    return x


WRONG = [
    ("integers", np.array([1, 200]), "i1"),
    ("unsigned", np.array([1, 2**64 - 1], "u8"), "i8"),
    ("texts", np.array(["abc", "abcdef"]), "U3"),
    ("dates", np.array(["3000-01-01"], "M8[D]"), "M8[ns]"),
    ("floats", np.array([1.0, 1e300]), "f4"),
]


@pytest.mark.parametrize(("data", "dtype"), [one[1:] for one in WRONG], ids=[one[0] for one in WRONG])
def test_a_new_array_refuses_what_a_store_refuses(data: np.ndarray, dtype: str) -> None:
    for out in (None, {}):
        with pytest.raises(ArgumentError, match=r"cannot be stored as|is out of the range") as info:
            gzarr.map_blocks(same, data, out=out, dtype=dtype)
        assert any("in block (0,)" in note for note in info.value.__notes__)


def test_a_new_array_takes_what_it_can_hold() -> None:
    for data, dtype in (
        (np.array([1, -100]), "i1"),
        (np.array([1, 2**63 - 1], "u8"), "i8"),
        (np.array(["abc", "ab    "]), "U6"),
        (np.array(["2000-01-01", "NaT"], "M8[D]"), "M8[ns]"),
        (np.array([1.1, np.inf, np.nan]), "f4"),
        (np.array([1, 2]), ">i2"),
        (np.array([], "i8"), "i1"),
    ):
        found = gzarr.map_blocks(same, data, dtype=dtype)
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, data.astype(dtype))
    with pytest.raises(OutputError, match="the new array of int32 cannot take results of float64"):
        gzarr.map_blocks(same, np.array([1.5]), dtype="i4")


def test_an_array_of_the_caller_follows_numpy() -> None:
    out = np.zeros(2, "i1")
    assert gzarr.map_blocks(same, np.array([1, 200]), out=out) is out
    assert out.tolist() == np.array([1, 200]).astype("i1").tolist()


def test_chunks_of_other_shapes_are_not_taken() -> None:
    line = gzarr.create_array({}, data=np.arange(10), chunks=((3, 7),), device="cpu")
    longer = gzarr.map_blocks(lambda x: np.repeat(x, 2), line, out={}, scale=2)
    np.testing.assert_array_equal(longer[...], np.repeat(np.arange(10), 2))
    # Of the same shape, they are.
    assert gzarr.map_blocks(same, line, out={}).metadata.chunk_grid == line.metadata.chunk_grid
    row = gzarr.create_array({}, data=np.arange(10)[None], chunks=((1,), (3, 7)), device="cpu")
    table = gzarr.map_blocks(np.add, row, np.ones((5, 10), "i8"), out={})
    np.testing.assert_array_equal(table[...], np.arange(10) + np.ones((5, 1)))
    one = gzarr.create_array({}, data=np.ones((1, 1)), chunks=(1, 1), device="cpu")
    whole = gzarr.map_blocks(np.add, one, np.zeros((100, 100)), out={})
    assert whole.chunks == (100, 100)


def test_outputs_are_created_if_there_can_be_all_of_them(tmp_path: Path) -> None:
    def two(x: np.ndarray) -> Any:
        return x, np.array([object()] * len(x))

    with pytest.raises(ArgumentError, match="Python objects"):
        gzarr.map_blocks(two, np.ones(3), out=[tmp_path / "a", tmp_path / "b"])
    assert not (tmp_path / "a").exists()


class Table:
    """What has a shape, and no data type."""

    shape = (3,)


def test_what_is_no_array_is_named() -> None:
    with pytest.raises(ArgumentError, match="returned Table for block"):
        gzarr.map_blocks(lambda _: Table(), np.ones(3))


def test_tables_are_taken_as_arrays() -> None:
    pandas = pytest.importorskip("pandas")
    data = np.arange(12.0).reshape(4, 3)
    outputs: list[Any] = [None, {}, np.zeros((4, 3)), gzarr.create_array({}, shape=(4, 3), dtype="f8")]
    for out in outputs:
        found = gzarr.map_blocks(pandas.DataFrame, data, out=out)
        np.testing.assert_array_equal(found[...], data)


def test_blended_tensors_with_gradients_are_named() -> None:
    torch = pytest.importorskip("torch")

    def network(x: np.ndarray) -> Any:
        return torch.tensor(x, requires_grad=True)

    with pytest.raises(ArgumentError, match=r"returned Tensor for block .*gradients"):
        gzarr.map_blocks(network, np.ones(8), block=4, halo=2, blend="hann")
