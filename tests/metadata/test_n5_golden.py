"""N5 that zarr-python 2, with both of its stores, and z5py wrote (``ci/interop n5``), against what they read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import tensorstore
from support.golden_stores import GOLDEN, Golden, golden_arrays
from support.zarr_arrays import same

import gzarr

if TYPE_CHECKING:
    from support.devices import TestedDevice

DIRECTORY = Path(os.environ.get("GZARR_GOLDEN_N5") or GOLDEN / "n5").absolute()
CASES = golden_arrays(DIRECTORY)
#: The hierarchies, and how many arrays each has.
STORES = {"fsspec": 44, "nested": 44, "z5": 21}
#: What tensorstore's driver does not know.
ALONE = (
    *("codecs/lz4", "codecs/lzma", "types/bool", "types/float16", "z5/shapes/line"),
    *(f"codecs/blosc-{name}--1" for name in ("blosclz", "lz4", "lz4hc", "zlib", "zstd")),
    # An object with members that it refuses.
    *("fsspec/codecs/zstd", "nested/codecs/zstd", "z5/codecs/blosc-lz4", "z5/codecs/blosc-zstd"),
)


def test_the_archives_are_complete() -> None:
    assert {store: sum(case.store == store for case in CASES) for store in STORES} == STORES


@pytest.mark.parametrize("golden", CASES, ids=str)
def test_reads(golden: Golden, device: TestedDevice) -> None:
    array = device.open(golden.keys, path=golden.node)
    assert (array.zarr_format, dict(array.attrs)) == ("n5", {"unit": "nm"})
    same(device.read(array), golden.expected)
    same(device.read(array, (slice(1, None, 2),)), golden.expected[1::2])


@pytest.mark.parametrize("store", STORES)
def test_members(store: str) -> None:
    cases = [case for case in CASES if case.store == store]
    root = gzarr.open_group(cases[0].keys)
    assert (root.zarr_format, dict(root.attrs)) == ("n5", {"title": "golden"})
    arrays = {path for path, node in root.members(max_depth=None) if isinstance(node, gzarr.Array)}
    assert arrays == {case.node for case in cases}
    copied = gzarr.copy(root, {}, zarr_format=2)
    for case in cases:
        same(copied[case.node][...], case.expected)


@pytest.mark.parametrize("golden", CASES, ids=str)
def test_tensorstore_agrees(golden: Golden, tmp_path: Path) -> None:
    path = golden.write(tmp_path)
    spec = {"driver": "n5", "kvstore": {"driver": "file", "path": f"{path}/"}}
    if str(golden).endswith(ALONE):
        with pytest.raises(ValueError, match="n5"):
            tensorstore.open(spec).result()
        return
    same(np.asarray(tensorstore.open(spec).result().read().result()).T, golden.expected)
