"""Arrays of so many chunks that dask cannot have a block for each."""

from __future__ import annotations

from typing import Any

import dask
import pytest

import gzarr


@pytest.mark.parametrize(
    ("shape", "kwargs", "match"),
    [
        ((10**18,), {"chunks": 1}, "976562500000000 blocks along dimension 0 are too many for dask; pass longer ones"),
        ((3, 10**15), {"chunks": (1, 1), "shards": (1, 10**9)}, "1000000000000 blocks along dimension 1 are too many"),
    ],
    ids=["chunks", "shards"],
)
def test_automatic_blocks(shape: tuple[int, ...], kwargs: dict[str, Any], match: str) -> None:
    array = gzarr.create_array({}, shape, "i1", device="cpu", **kwargs)
    with dask.config.set({"array.chunk-size": "1KiB"}), pytest.raises(gzarr.ArgumentError, match=match):
        array.to_dask(name=False)


def test_a_block_for_each_chunk() -> None:
    array = gzarr.create_array({}, (4, 10**18), "i1", chunks=(2, 3), device="cpu")
    with pytest.raises(gzarr.ArgumentError, match="333333333333333334 blocks along dimension 1 are too many for dask"):
        array.to_dask({}, name=False)


@pytest.mark.filterwarnings("ignore:the blocks of .* cut its chunks")
@pytest.mark.parametrize("chunks", [10**15, (10**15,), [10**15]], ids=["length", "tuple", "list"])
def test_longer_blocks(chunks: Any) -> None:
    array = gzarr.create_array({}, 10**18, "i1", chunks=1, device="cpu")
    array[5:9] = [1, 2, 3, 4]
    assert array.to_dask(chunks, name=False)[4:9].compute().tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("chunks", [1, (100,), [10**9], {0: 10}], ids=["length", "tuple", "list", "dict"])
def test_blocks_of_a_given_length(chunks: Any) -> None:
    array = gzarr.create_array({}, 10**18, "i1", chunks=10**12, device="cpu")
    number = 10**18 // (chunks if isinstance(chunks, int) else chunks[0])
    with pytest.raises(gzarr.ArgumentError, match=f"^/: {number} blocks along dimension 0 are too many for dask"):
        array.to_dask(chunks, name=False)
