"""Arrays in hierarchies as zarr-python 2 has written them for drafts of version 3: filters are in attributes."""

from __future__ import annotations

import json
from typing import Any

import numcodecs
import numpy as np
import pytest
from support.draft_hierarchies import ROOT_ENTRY, encode

import gzarr
from gzarr.errors import ArgumentError

DRAFT: Any = "3-draft-2022"
DELTA = {"id": "delta", "dtype": "<i4", "astype": "<i4"}
VALUES = np.array([5, 6, 7, 9], "<i4")


def root() -> tuple[dict[str, bytes], gzarr.Group]:
    values = {"zarr.json": encode(ROOT_ENTRY), "meta/root.group.json": encode({"attributes": {}, "extensions": []})}
    return values, gzarr.open_group(values, mode="r+", device="cpu")


def test_filters_are_created() -> None:
    values, group = root()
    group.create_array("a", data=VALUES, filters=[DELTA], compressors=None, attributes={"u": 1})
    document = json.loads(values["meta/root/a.array.json"])
    assert document["attributes"] == {"u": 1, "filters": [DELTA]}
    assert document["compressor"] is None
    decoded = numcodecs.Delta("<i4").decode(np.frombuffer(values["data/root/a/c0"], "<i4"))
    np.testing.assert_array_equal(decoded, VALUES)
    np.testing.assert_array_equal(gzarr.open_array(values, path="a", device="cpu")[...], VALUES)


def test_strings_are_created() -> None:
    values, group = root()
    group.create_array("a", data=np.array(["a", "bb"], object), compressors=None)
    document = json.loads(values["meta/root/a.array.json"])
    assert document["attributes"] == {"filters": [{"id": "vlen-utf8"}]}
    assert numcodecs.VLenUTF8().decode(values["data/root/a/c0"]).tolist() == ["a", "bb"]
    assert gzarr.open_array(values, path="a", device="cpu")[...].tolist() == ["a", "bb"]


@pytest.mark.parametrize(
    ("filters", "attribute"), [(None, [DELTA]), ([DELTA], "text"), ([DELTA], [{"id": "zlib", "level": 1}])]
)
def test_attributes_become_no_codecs(filters: Any, attribute: Any) -> None:
    values, group = root()
    before = dict(values)
    with pytest.raises(ArgumentError, match="give that attribute another name"):
        group.create_array("a", shape=4, dtype="i4", filters=filters, attributes={"filters": attribute})
    assert values == before
    group.create_array("a", data=VALUES, filters=None, attributes={"filters": "text"})
    assert dict(gzarr.open_array(values, path="a", device="cpu").attrs) == {"filters": "text"}


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_copies_have_filters_as_codecs_only(zarr_format: Any) -> None:
    _, group = root()
    group.create_array("a", data=VALUES, filters=[DELTA], attributes={"u": 1})
    copied: Any = gzarr.copy(group, {}, zarr_format=zarr_format, device="cpu")
    assert dict(copied["a"].attrs) == {"u": 1}
    np.testing.assert_array_equal(copied["a"][...], VALUES)
    values, again = root()
    gzarr.copy(copied["a"], values, dest_path="b", zarr_format=DRAFT, device="cpu")
    assert dict(again["b"].attrs) == {"u": 1, "filters": [DELTA]}
    # With other codecs, none is left in the attributes.
    gzarr.copy(again["b"], values, dest_path="c", codecs=["zlib"] if zarr_format == 2 else "auto", device="cpu")
    assert dict(again["c"].attrs) == {"u": 1}
    np.testing.assert_array_equal(again["c"][...], VALUES)
