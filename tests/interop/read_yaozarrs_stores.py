"""Stores in the tests of yaozarrs: a plate that is broken in many places, and documents of public images.

    python -m pip download --no-deps --no-binary yaozarrs yaozarrs==0.3.4
    python tests/interop/read_yaozarrs_stores.py yaozarrs-0.3.4.tar.gz

Every break that yaozarrs finds has to be found by ``gzarr info --strict``, at its node. Images and labels have to be
read, or refused by an error of gzarr's; and the public documents have to be read without an error. Raises for the first
difference.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import tempfile
import warnings
from pathlib import Path

import gzarr
from gzarr.ome.metadata.parse import parse

#: What yaozarrs 0.3.4 says, by the node whose metadata are at odds with what is there, and a part of what gzarr says.
BROKEN = {
    "dataset_path_not_found": ("/A/1/0", "level '0' is not there"),
    "label_path_not_found": ("/A/1/0/labels", "'annotations' is not there"),
    "label_path_not_group": ("/A/1/1/labels", "'annotations' is not readable"),
    "well_path_not_group": ("/", "'A/2' is not readable"),
    "label_image_invalid": ("/A/3/0/labels", "'annotations' must be an image"),
    "dataset_dimension_mismatch": ("/B/1/0", "chunks have 3 dimensions, but the array has 5"),
    "label_non_integer_dtype": ("/B/1/0/labels/annotations", "must have integers, as a label image"),
    "dataset_not_array": ("/B/2/0", "level '0' is not readable"),
    "labels_not_group": ("/B/3/0/labels", "the document lacks 'shape'"),
    "field_path_not_group": ("/B/3", "'1' is not readable"),
    "field_path_not_found": ("/C/1", "'1' is not there"),
    "field_image_invalid": ("/C/2/0", "expected at least 1 item"),
    "well_invalid": ("/", "'C/3' must be a well"),
}


def check_breaks(store: Path) -> None:
    """Compare what ``gzarr info --strict`` says with what yaozarrs says."""
    command = [sys.executable, "-m", "gzarr", "info", "--strict", str(store)]
    told = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    lines = [line.strip() for line in told.stdout.splitlines()]
    assert told.returncode in (0, 1), told
    for kind, (node, text) in BROKEN.items():
        assert any(line.startswith(f"{node} ") and text in line for line in lines), (kind, told.stdout)
    print(f"{len(BROKEN)} of {len(BROKEN)} kinds of broken stores are found at their nodes")


def check_reading(store: Path) -> None:
    """Read every image of the broken plate, or have it refused by an error of gzarr's."""
    read = refused = 0
    plate = gzarr.ome.open(store)
    assert isinstance(plate, gzarr.ome.Plate)
    for name in plate:
        try:
            fields = list(plate[name])
        except gzarr.errors.GzarrError:
            refused += 1
            continue
        for field in fields:
            try:
                field.read()
                read += 1
            except gzarr.errors.GzarrError:
                refused += 1
            try:
                for label in field.labels:
                    field.labels[label].read()
                    read += 1
            except gzarr.errors.GzarrError:
                refused += 1
    assert read
    assert refused
    print(f"{read} images and labels of the broken plate are read, {refused} are refused")


def check_documents(folder: Path) -> None:
    """Read the documents of public images."""
    count = 0
    for path in [*folder.glob("v05/**/zarr.json"), *folder.glob("v04/**/.zattrs")]:
        document = json.loads(path.read_text())
        found = parse(document["attributes"] if path.name == "zarr.json" else document)
        assert not found.errors, (path, found.errors)
        assert not found.is_empty, path
        count += 1
    assert count > 30
    print(f"{count} documents of public images and plates are read")


def main() -> None:
    """Check the stores in a source distribution."""
    warnings.simplefilter("ignore", gzarr.ome.MetadataWarning)
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(sys.argv[1]) as archive:
            archive.extractall(folder, filter="data")
        (data,) = Path(folder).glob("*/tests/data")
        store = data / "broken" / "broken_v05.ome.zarr"
        check_breaks(store)
        check_reading(store)
        check_documents(data)


if __name__ == "__main__":
    main()
