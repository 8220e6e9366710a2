"""Arrays of consolidated metadata that differ in their names and attributes only are parsed once, and stay apart."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import pytest

from gzarr.documents.departures import collect
from gzarr.metadata.model import ArrayMetadata
from gzarr.metadata.v2 import parse as parse_v2
from gzarr.metadata.v3 import parse as parse_v3

if TYPE_CHECKING:
    from collections.abc import Callable

ARRAY_3: dict[str, Any] = {
    "zarr_format": 3, "node_type": "array", "shape": [3, 4], "data_type": "float64", "fill_value": 0,
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [3, 4]}},
    "chunk_key_encoding": {"name": "default"}, "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
    "attributes": {"units": "K"}, "dimension_names": ["y", "x"],
}  # fmt: skip
ZARRAY: dict[str, Any] = {
    "zarr_format": 2, "shape": [3, 4], "chunks": [3, 4], "dtype": "<f8", "fill_value": 0, "order": "C",
    "filters": None, "compressor": None,
}  # fmt: skip


def nodes_3(*changes: dict[str, Any]) -> dict[str, Any]:
    documents = {f"a{i}": {**copy.deepcopy(ARRAY_3), **change} for i, change in enumerate(changes)}
    inline = {"kind": "inline", "must_understand": False, "metadata": documents}
    return parse_v3.parse_group({"zarr_format": 3, "node_type": "group", "consolidated_metadata": inline}).consolidated


def nodes_2(*changes: dict[str, Any]) -> dict[str, Any]:
    documents: dict[str, Any] = {}
    for i, change in enumerate(changes):
        own = {**change}
        attributes = own.pop("attributes", None)
        documents[f"a{i}/.zarray"] = {**copy.deepcopy(ZARRAY), **own}
        if attributes is not None:
            documents[f"a{i}/.zattrs"] = attributes
    return dict(parse_v2.parse_consolidated({"zarr_consolidated_format": 1, "metadata": documents}))


CHANGES: list[dict[str, Any]] = [
    {},
    {"attributes": {"units": "m", "list": [1]}},
    {"attributes": {}},
    {"fill_value": 1},
    {"fill_value": 1.0},
    {"shape": [3, 5]},
    {"shape": [3.0, 4]},
    {"shape": [True, 4]},
]


@pytest.mark.parametrize("parse", [nodes_2, nodes_3])
def test_each_is_as_if_parsed_alone(parse: Callable[..., dict[str, Any]]) -> None:
    own = [{"dimension_names": ["p", None]}, {"dimension_names": None}, {"dimension_names": ["p"]}]
    changes = CHANGES if parse is nodes_2 else CHANGES + own
    for i, (one, change) in enumerate(zip(parse(*changes).values(), changes, strict=True)):
        (alone,) = parse(change).values()
        assert type(one) is type(alone), change
        if not isinstance(one, ArrayMetadata):
            assert str(one).replace(f"a{i}", "a0") == str(alone)
            continue
        for name in ("shape", "dtype", "fill_value", "codecs", "attributes", "dimension_names", "document"):
            assert getattr(one, name) == getattr(alone, name), (change, name)
        assert json.dumps(one.document) == json.dumps(alone.document)


@pytest.mark.parametrize("parse", [nodes_2, nodes_3])
def test_what_is_alike_is_shared(parse: Callable[..., dict[str, Any]]) -> None:
    first, second, third = parse({"attributes": {"a": 1}}, {"attributes": {"b": 2}}, {"shape": [6, 4]}).values()
    assert first.codecs is second.codecs
    assert first.chunk_grid is second.chunk_grid
    assert first.chunk_grid is not third.chunk_grid
    assert first.attributes is not second.attributes


@pytest.mark.parametrize("parse", [nodes_2, nodes_3])
def test_departures_of_each_are_recorded(parse: Callable[..., dict[str, Any]]) -> None:
    change = {"dimension_separator": None} if parse is nodes_2 else {"extensions": []}
    with collect() as found:
        parse(change, change, change)
    assert sum("$.dimension_separator" in text or "$.extensions" in text for text in found) == 3
