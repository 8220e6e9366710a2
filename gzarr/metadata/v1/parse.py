"""Zarr v1 documents (``meta``, ``attrs``): one array, without groups.

Source: https://zarr-specs.readthedocs.io/en/latest/v1/v1.0.html. Where it is silent, zarr-python 1 is followed: only
its Blosc compressor stored chunks in the order given by ``order``; ``zlib``, ``bz2``, ``lzma`` and ``none`` always
stored C order.
"""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np

from ...documents.configuration import whole
from ...documents.departures import note
from ...documents.json import quote
from ...dtypes import fill_value
from ...dtypes.properties import native
from ...dtypes.v2 import parse_v2
from ..chunk_grid import ChunkGrid
from ..model import ArrayMetadata, ChunkKeyEncoding
from ..parts import check_format, dimension_names_of, fail, member, parse_attributes, parse_chunk_shape, parse_shape
from ..v2.parse import codec_chain

#: Names of the documents: array metadata and user attributes.
META: Final = "meta"
ATTRS: Final = "attrs"

# Lowest level of compressors whose options are one integer. "gzip" was an alias that wrote zlib streams.
_LOWEST_LEVEL: Final = {"zlib": 0, "gzip": 0, "bz2": 1}
_COMPRESSIONS: Final = ("blosc", "zlib", "bz2", "lzma", "none")


def parse_array(meta: dict[str, Any], attrs: dict[str, Any] | None = None) -> ArrayMetadata:
    """Parse the documents of an array.

    Parameters
    ----------
    meta
        ``meta`` as returned by :func:`gzarr.documents.json.load_document`. Unspecified members are ignored.
    attrs
        ``attrs``, or None if there is none.

    Raises
    ------
    MetadataError
        If a document is malformed; ``json_path`` gives the location.
    UnsupportedError
        If it is well formed but uses something unknown.
    """
    check_format(meta, 1)
    shape = parse_shape(member(meta, "shape"), "$.shape")
    if not shape:
        fail("a version 1 array has at least one dimension: without one, its chunk would have no key", "$.shape")
    stored = parse_v2(member(meta, "dtype"))
    if stored.hasobject:
        fail("version 1 has no encoding of Python objects", "$.dtype")
    chunk_shape = parse_chunk_shape(member(meta, "chunks"), shape, stored, "$.chunks")
    order = member(meta, "order")
    if order not in ("C", "F"):
        fail(f"expected 'C' or 'F', got {quote(order)}", "$.order")
    compressor = _compressor(member(meta, "compression"), member(meta, "compression_opts"))
    if order == "F" and len(chunk_shape) > 1 and (compressor is None or compressor["id"] != "blosc"):
        note(
            "chunks are in order F by the specification, but are read in order C, as zarr-python 1 wrote them with "
            "every compressor but blosc",
            "$.order",
        )
    in_order = order if compressor is not None and compressor["id"] == "blosc" else "C"
    attributes = {} if attrs is None else parse_attributes(attrs, "$")
    return ArrayMetadata(
        chunk_grid=ChunkGrid.regular(shape, chunk_shape),
        dtype=native(stored),
        data_type=meta["dtype"] if isinstance(meta["dtype"], str) else json.dumps(meta["dtype"]),
        chunk_key_encoding=ChunkKeyEncoding("v2", "."),
        fill_value=_fill_value(member(meta, "fill_value"), stored),
        codecs=codec_chain(
            [] if compressor is None else [("$.compression_opts", compressor)],
            stored,
            chunk_shape,
            in_order,
            allow_pickle=False,
            json_paths=("$.dtype", "$.order", "$.compression"),
        ),
        attributes=attributes,
        dimension_names=dimension_names_of(attributes, len(shape)),
        zarr_format=1,
        document={META: meta} if attrs is None else {META: meta, ATTRS: attributes},
    )


def _compressor(name: Any, options: Any) -> dict[str, Any] | None:
    """Return the compressor as a numcodecs object, or None."""
    if name is None or name == "none":
        return None
    at = "$.compression_opts"
    if isinstance(name, str) and name in _LOWEST_LEVEL:
        lowest = _LOWEST_LEVEL[name]
        options = whole(options, at)
        if options is not None and (type(options) is not int or not lowest <= options <= 9):
            fail(f"{name!r} needs an integer from {lowest} to 9, got {quote(options)}", at)
        return {"id": "bz2" if name == "bz2" else "zlib", **({} if options is None else {"level": options})}
    if name not in ("blosc", "lzma"):
        fail(f"expected one of {', '.join(map(repr, _COMPRESSIONS))} or null, got {quote(name)}", "$.compression")
    if options is None:
        options = {}
    if not isinstance(options, dict):
        fail(f"{name!r} needs an object, got {quote(options)}", at)
    if "id" in options:
        fail(f"{name!r} does not know 'id'", f"{at}.id")
    return {"id": name, **options}


def _fill_value(value: Any, stored: np.dtype[Any]) -> Any:
    if stored.kind == "S" and isinstance(value, str):
        # Version 1 wrote byte strings as plain text; base64 came with version 2.
        if not value.isascii() or len(value) > stored.itemsize:
            fail(f"expected at most {stored.itemsize} ASCII characters, got {quote(value)}", "$.fill_value")
        return np.array(value.encode("ascii"), stored)[()]
    return fill_value.from_v2(value, stored)
