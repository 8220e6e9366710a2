"""Damage of every kind at every place of version 2 and 3 documents: an error with the location, or a valid meaning."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.golden_stores import attempt, damaged
from test_metadata_fuzz import ARRAY, STRUCT, ZARRAY, ZOBJECT, ZSTRUCT

import gzarr
from gzarr import errors

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::UserWarning")]

ARRAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "v3": ("zarr.json", ARRAY),
    "v3 struct": ("zarr.json", STRUCT),
    "v2": (".zarray", ZARRAY),
    "v2 struct": (".zarray", ZSTRUCT),
    "v2 objects": (".zarray", {**ZOBJECT, "filters": ZOBJECT["filters"][1:], "order": "C"}),
}
PLAIN = {**ARRAY, "codecs": ["bytes"]}
ZPLAIN = {**ZARRAY, "filters": None, "compressor": None}


def group(**below: Any) -> dict[str, Any]:
    index = {"kind": "inline", "must_understand": False, "metadata": below}
    return {"zarr_format": 3, "node_type": "group", "consolidated_metadata": index}


INDEXES: dict[str, dict[str, Any]] = {
    "zarr.json": group(a=group(b=PLAIN), c=PLAIN),
    ".zmetadata": {
        "zarr_consolidated_format": 1,
        "metadata": {
            ".zgroup": {"zarr_format": 2},
            "c/.zarray": ZPLAIN,
            "c/.zattrs": {"_ARRAY_DIMENSIONS": ["y", "x"]},
        },
    },
}
# Where a fault may be found besides the place itself: what no longer fits together is said of either.
RELATED = {
    "shape": ("chunk_grid", "chunks", "dimension_names", "codecs", "order"),
    "chunk_grid": ("codecs",),
    "chunks": ("filters", "compressor"),
    "data_type": ("fill_value", "codecs", "chunk_grid"),
    "dtype": ("fill_value", "filters", "compressor", "chunks"),
    "filters": ("compressor", "dtype", "fill_value"),
    "codecs": ("fill_value",),
    "compressor": ("filters", "dtype"),
    "order": ("filters",),
    "zarr_format": (),
    "node_type": (),
}


def member(json_path: str) -> str:
    """Return the first member in a path of a document, or ``""``."""
    return json_path.removeprefix("$").removeprefix(".").split(".")[0].split("[")[0]


def chunk_shape(document: dict[str, Any]) -> Any:
    return document["chunks"] if "chunks" in document else document["chunk_grid"]["configuration"]["chunk_shape"]


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays(name: str) -> None:
    key, document = ARRAYS[name]
    assert gzarr.open({key: json.dumps(document).encode()}, device="cpu").shape == (100, 60)
    opened = refused = 0
    for place, data in damaged(document):
        result = attempt(gzarr.open, {key: data}, device="cpu")
        if isinstance(result, errors.MetadataError):
            refused += 1
            assert result.key == key, place
            assert len(str(result)) < 1500, place
            assert result.json_path.startswith("$"), place
            assert member(result.json_path) in ("", str(place[0]), *RELATED.get(str(place[0]), ())), (place, result)
            continue
        if not isinstance(result, gzarr.Array):
            # Without what makes it an array there is nothing.
            assert isinstance(result, errors.NodeNotFoundError | gzarr.Group), place
            assert place[0] in ("zarr_format", "node_type"), (place, data)
            continue
        opened += 1
        said = json.loads(data)
        assert list(result.shape) == said["shape"], place
        assert list(result.metadata.chunk_shape) == chunk_shape(said), place
        assert json.dumps(dict(result.attrs)) == json.dumps(said.get("attributes") or {}), place
        assert (result.fill_value is None) == (said.get("fill_value") is None)
        if said.get("dimension_names") is not None:
            assert list(result.dimension_names or ()) == said["dimension_names"], place
        assert result.zarr_format == said["zarr_format"], place
    assert refused > 3 * opened > 0


@pytest.mark.parametrize("key", INDEXES)
def test_consolidated_groups(key: str) -> None:
    others = {} if key == "zarr.json" else {".zgroup": b'{"zarr_format": 2}'}
    for place, data in damaged(INDEXES[key]):
        result = attempt(gzarr.open, others | {key: data}, device="cpu")
        if isinstance(result, errors.MetadataError):
            assert result.key == key, (place, result)
            assert result.json_path.startswith("$"), place
            continue
        assert isinstance(result, gzarr.Group | errors.NodeNotFoundError), place
        if isinstance(result, gzarr.Group):
            # A node below whose document is damaged is in nobody's way until it is asked for.
            for path in ("a/b", "c"):
                node = attempt(result.get, path)
                assert node is None or isinstance(node, gzarr.Array | gzarr.Group | errors.MetadataError), place
