"""Stores that other libraries wrote (``tests/interop``), against what these and other readers read from them."""

from __future__ import annotations

from collections import Counter
from fnmatch import fnmatch
from typing import TYPE_CHECKING

import pytest
from support.golden_stores import GOLDEN, V2_V3, Golden, golden_arrays
from support.peer_readers import verdict
from support.zarr_arrays import same

import gzarr

if TYPE_CHECKING:
    from pathlib import Path

    from support.devices import TestedDevice

#: How many arrays each archive has: none goes, or is left out by its writer, unnoticed.
COUNTS = {
    "gdal-3.6.2": 66,
    "gdal-rasterio-3.12.2": 22,
    "netcdf-4.10.1": 54,
    "netcdf-filters-4.10.1": 26,
    "tensorstore-0.1.86": 162,
    "zarr-js-0.6.3": 38,
    "zarr-python-2.18.7": 157,
    "zarr-python-3.1.6": 143,
    "zarr-python-rectilinear-3.4.2": 24,
    "zarrita-0.7.5": 111,
    "zarrs-0.2.3": 79,
}
#: What gzarr refuses, and the error.
REFUSED: dict[str, tuple[type[gzarr.GzarrError], str]] = {}
#: What neither zarr-python 3 nor tensorstore opens, and only the writer itself has read beside gzarr.
ALONE = (
    "gdal-*/v3-draft/*",
    "gdal-*/v2/codec-blosc-*-*-C",
    "gdal-*/v2/codec-lzma-?",
    "netcdf-*/types/char",
    *(f"zarr-python-2.*/v2/objects/{name}/C" for name in ("categorize", "json2", "msgpack2")),
    *(f"zarr-python-2.*/v2/objects/{name}/C" for name in ("vlen-array", "vlen-bytes")),
    "zarr-python-2.*/v2/types/nested*",
    # Of what the peers installed may be, only zarr-python 3.4 or newer has rectilinear grids.
    "zarr-python-rectilinear-*",
    "zarrita-*/v3/codecs/absent",
    "zarrita-*/v3/types/string",
)

#: What zarr-python reads as other elements, for an element size of 0 shuffles nothing there.
MISREAD = ("netcdf-filters-*/shuffle*", "netcdf-filters-*/types/*")

CASES = golden_arrays()


def refusal(golden: Golden) -> tuple[type[gzarr.GzarrError], str] | None:
    return next((error for pattern, error in REFUSED.items() if fnmatch(str(golden), pattern)), None)


@pytest.mark.parametrize("golden", [case for case in CASES if refusal(case) is None], ids=str)
def test_reads(golden: Golden, device: TestedDevice) -> None:
    array = device.open(golden.keys, path=golden.node)
    same(device.read(array), golden.expected)
    if array.ndim:
        same(device.read(array, (slice(1, None, 2),)), golden.expected[1::2])


def test_refuses() -> None:
    for golden in CASES:
        if expected := refusal(golden):
            error, text = expected
            with pytest.raises(error, match=text):
                gzarr.open_array(golden.keys, path=golden.node, device="cpu").read()


@pytest.mark.parametrize("golden", {(case.archive, case.store): case for case in CASES}.values(), ids=str)
def test_members(golden: Golden) -> None:
    """A writer's hierarchy, opened as a group, has the arrays that were written; refused ones are not skipped."""
    hierarchy = [case for case in CASES if (case.archive, case.store) == (golden.archive, golden.store)]
    refused = [case for case in hierarchy if (refusal(case) or (None, ""))[0] is gzarr.MetadataError]
    root = gzarr.open_group(golden.keys, device="cpu")
    if refused:
        with pytest.raises(gzarr.MetadataError):
            list(root.members(max_depth=None))
        return
    arrays = {name for name, node in root.members(max_depth=None) if isinstance(node, gzarr.Array)}
    assert arrays == {case.node for case in hierarchy}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("golden")


@pytest.mark.parametrize("golden", CASES, ids=str)
@pytest.mark.filterwarnings("ignore")
def test_other_readers_agree(golden: Golden, directory: Path) -> None:
    path = golden.write(directory)
    verdicts = {reader: verdict(reader, path, golden.expected) for reader in ("zarr", "tensorstore")}
    if any(fnmatch(str(golden), pattern) for pattern in MISREAD):
        # Elements of one byte are the same in any order.
        assert verdicts["zarr"] in (("yes", "no") if golden.expected.dtype.itemsize == 1 else ("differs",))
        return
    assert "differs" not in verdicts.values(), verdicts
    assert "yes" in verdicts.values() or any(fnmatch(str(golden), pattern) for pattern in ALONE)


def test_archives_are_complete() -> None:
    counts = Counter(case.archive for case in CASES)
    # In another directory are those that have just been written, perhaps by another version.
    assert counts == (COUNTS if V2_V3.is_relative_to(GOLDEN) else {n: COUNTS.get(n, counts[n]) for n in counts})
