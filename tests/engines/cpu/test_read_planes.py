"""Planes of volumes with shuffled chunks: single elements of rows, taken from byte planes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr
from support import zarr_arrays as z

import gzarr

if TYPE_CHECKING:
    from pathlib import Path

SHAPE = (33, 40, 70)
#: Blocks end within rows and between them; the last one of a chunk is short.
CHAINS = {
    "blosc": [z.blosc3("lz4", "shuffle", 0, blocksize=1000)],
    "blosc bits": [z.blosc3("zstd", "bitshuffle", 0, blocksize=4096)],
    "one block": [z.blosc3("lz4", "shuffle", 0)],
    "filter": [z.codec("numcodecs.shuffle", elementsize=0), z.codec("zstd", level=1, checksum=False)],
}


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
@pytest.mark.parametrize(
    ("dtype", "endian"), [("u1", "little"), ("i2", "little"), ("u2", "big"), ("f4", "little"), ("f8", "big")]
)
@pytest.mark.parametrize("dense", [70, 32, 9], ids=["long rows", "rows", "short rows"])
@pytest.mark.parametrize("order", [None, [2, 0, 1]], ids=["C", "transposed"])
def test_planes(chain: list[z.Json], dtype: str, endian: str, dense: int, order: Any, tmp_path: Path) -> None:
    data = np.random.default_rng(0).integers(0, 255, SHAPE).astype(dtype) * 3
    itemsize = data.dtype.itemsize
    codecs = [
        z.codec(
            c["name"], **{k: itemsize if k in ("typesize", "elementsize") else v for k, v in c["configuration"].items()}
        )
        for c in chain
    ]
    front = [] if order is None else [z.codec("transpose", order=order)]
    chunks = (10, 13, dense) if order is None else (10, dense if dense < 40 else 40, 13)
    written: Any = zarr.create_array(
        tmp_path,
        shape=SHAPE,
        dtype=data.dtype,
        chunks=chunks,
        filters=front,
        serializer=z.codec("bytes", endian=endian) if itemsize > 1 else {"name": "bytes"},
        compressors=codecs,
    )
    written[...] = data
    array = gzarr.open_array(tmp_path, device="cpu")
    for selection in [
        np.s_[:, :, 5],
        np.s_[:, 7, :],
        np.s_[3, :, :],
        np.s_[:, :, 64:65],
        np.s_[2:30:3, ::-1, 40],
        np.s_[::2, 5:39:4, 11:12],
        np.s_[:, 4, 5],
        np.s_[1, 2, 3],
        np.s_[:, :, 5:69:64],
        np.s_[:, :, 33:34:7],
        np.s_[:, 12:13:64, :],
        np.s_[..., np.newaxis, 17],
    ]:
        z.same(array[selection], np.array(data[selection]))
        # An output of other strides, and one that is dense nowhere.
        wanted = data[selection]
        out = np.empty((*wanted.shape, 3), data.dtype)[..., 1]
        array.read(selection, out=out)
        np.testing.assert_array_equal(out, wanted)
    z.same(array.oindex[:, :, [5]], np.array(data[:, :, [5]]))
    z.same(array.oindex[[3, 1], :, 20], np.array(data[[3, 1], :, 20]))
    many = array.read_many([np.s_[:, :, i : i + 1] for i in (0, 31, 69)])
    z.same(np.stack(list(many)), np.stack([data[:, :, i : i + 1] for i in (0, 31, 69)]))
