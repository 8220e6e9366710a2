"""What every release of gzarr wrote (``ci/golden``), read by this one on each device, and by other libraries.

What is expected was given to gzarr, and is not what it read.
"""

from __future__ import annotations

import os
import warnings
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.golden_stores import GOLDEN, Golden, golden_arrays
from support.zarr_arrays import same

import gzarr

if TYPE_CHECKING:
    from support.devices import TestedDevice

#: ``ci/golden`` sets another one, with what it has just written.
OWN = Path(os.environ.get("GZARR_GOLDEN_OWN") or GOLDEN / "gzarr").absolute()
#: How many arrays each release wrote.
COUNTS = {"0.1.0": 313}

CASES = golden_arrays(OWN)
IMAGES = {
    (case.archive, case.store, case.node.removesuffix("/0")): case
    for case in CASES
    if case.store.startswith("ome-") and case.node.endswith("/0")
}


@pytest.mark.parametrize("golden", CASES, ids=str)
def test_reads(golden: Golden, device: TestedDevice) -> None:
    array = device.open(golden.keys, path=golden.node)
    same(device.read(array), golden.expected)
    if array.ndim:
        same(device.read(array, (slice(1, None, 2),)), golden.expected[1::2])


def test_archives_are_complete() -> None:
    counts = Counter(case.archive for case in CASES)
    assert counts == (
        COUNTS if OWN.is_relative_to(GOLDEN) else {name: COUNTS.get(name, n) for name, n in counts.items()}
    )


def test_attributes_and_names() -> None:
    for golden in CASES:
        array = gzarr.open_array(golden.keys, path=golden.node, device="cpu")
        if not golden.store.startswith("ome-"):
            assert array.attrs["units"] == "m"
        if golden.store == "v3" and array.ndim:
            assert array.dimension_names == ("y", None)


@pytest.mark.parametrize("store", sorted({(case.archive, case.store) for case in CASES if case.node}), ids="/".join)
@pytest.mark.parametrize("consolidated", [None, False])
def test_members(store: tuple[str, str], consolidated: bool | None) -> None:
    cases = [case for case in CASES if (case.archive, case.store) == store]
    root = gzarr.open_group(cases[0].keys, device="cpu", use_consolidated=consolidated)
    found = {name for name, node in root.members(max_depth=None) if isinstance(node, gzarr.Array)}
    assert found == {case.node for case in cases}


@pytest.mark.parametrize("place", IMAGES, ids="/".join)
def test_images(place: tuple[str, str, str]) -> None:
    case = IMAGES[place]
    with warnings.catch_warnings():
        # The rules of the specification are kept.
        warnings.simplefilter("error")
        image = gzarr.ome.open(case.keys, path=place[2], device="cpu")
    same(image.read(level=0), case.expected)
    assert len(image.levels) == 3
    assert image.axes == tuple({"image": "czyx", "image/labels/nuclei": "zyx"}.get(place[2], "cyx"))
    if place[2].startswith("image"):
        assert image.scale[-3:] == (2.0, 0.5, 0.25)
        assert image.units[-1] == "micrometer"
    if place[2] == "image":
        assert [channel.label for channel in image.channels] == ["DAPI", "GFP"]
        assert list(image.labels) == ["nuclei"]


def test_plates() -> None:
    for archive, store in sorted({place[:2] for place in IMAGES}):
        keys = next(case.keys for place, case in IMAGES.items() if place[:2] == (archive, store))
        assert list(gzarr.ome.open(keys, path="plate", device="cpu")) == ["A/1", "B/2"]


#: What neither zarr-python nor tensorstore, of the versions here, reads.
ALONE = (
    "v1-*",
    "v3-draft/*",
    "v2/types/nested",
    "v2/objects/*",
    *(f"v3/codecs/{name}" for name in ("bitround", "cast-value", "packbits", "reshape", "scale-offset", "zfp")),
    # zarr-python 3.4 and newer has them.
    "v3/grids/rectilinear*",
    *(f"v3/types/{name}" for name in ("float6_*", "float8_e4m3", "uint2", "uint4")),
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("golden")


@pytest.mark.parametrize("golden", CASES, ids=str)
@pytest.mark.filterwarnings("ignore")
def test_other_readers_agree(golden: Golden, directory: Path) -> None:
    peers = pytest.importorskip("support.peer_readers")
    path = golden.write(directory)
    verdicts = {reader: peers.verdict(reader, path, golden.expected) for reader in ("zarr", "tensorstore")}
    assert "differs" not in verdicts.values(), verdicts
    read = "yes" in verdicts.values()
    assert read or any(fnmatch(str(golden), f"*/{pattern}") for pattern in ALONE)


def test_expected_values_are_not_trivial() -> None:
    """An archive whose expected values were all alike would test nothing."""
    for golden in CASES:
        if golden.expected.size > 1:
            assert len({repr(item) for item in golden.expected.ravel().tolist()}) > 1, golden
