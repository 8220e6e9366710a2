"""N5's ``attributes.json``.

Source: https://github.com/saalfeldlab/n5#file-system-specification. Where it is silent, n5 for Java is followed: a
group is a dataset if it has ``dimensions`` and ``dataType``, blocks are as large as the dataset if ``blockSize`` is
absent, and ``compressionType`` is what version 1.0.0 had in place of ``compression``.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from ...codecs.bytes import BytesCodec
from ...codecs.transpose import TransposeCodec
from ...documents.departures import note
from ...documents.json import quote
from ...dtypes.properties import swap_unit
from ...errors import UnsupportedError
from ..chunk_grid import ChunkGrid
from ..model import ArrayMetadata, ChunkKeyEncoding, GroupMetadata
from ..parts import dimension_names_of, fail, member, parse_chunk_shape, parse_shape
from . import compression
from .images import axes_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...codecs.codec import Codec

#: Name of the document.
ATTRIBUTES: Final = "attributes.json"
#: Attribute of the root with the version of N5.
VERSION: Final = "n5"
#: Members of a dataset; all others are attributes of users.
_MEMBERS: Final = frozenset((VERSION, "dimensions", "blockSize", "dataType", "compression", "compressionType"))
_MAX_VERSION: Final = 4
_VERSION: Final = re.compile(r"\s*([0-9]{1,9})(?:\.[0-9]+)*(?:[-+.].*)?\s*", re.DOTALL)
_DATA_TYPES: Final = frozenset(
    (*(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)), "float32", "float64")
)
# zarr-python 2 wrote NumPy's name of any type.
_DATA_TYPES_OF_ZARR: Final = frozenset(("bool", "float16", "complex64", "complex128"))
#: Data types of n5 for Java whose blocks have any number of bytes.
_VARIABLE: Final = ("string", "object")
#: Attribute of Paintera's arrays whose elements are lists of labels.
_LABEL_MULTISET: Final = "isLabelMultiset"
#: Largest size of a block: 2 GiB, which a header of uint32 could exceed.
_MAX_BLOCK_LENGTH: Final = 2**31 - 1


def is_dataset(document: dict[str, Any]) -> bool:
    """Return whether a document is that of a dataset, rather than of a group."""
    return "dimensions" in document and "dataType" in document


def parse_array(document: dict[str, Any]) -> ArrayMetadata:
    """Parse the document of a dataset.

    Raises
    ------
    MetadataError
        If it is malformed; ``json_path`` gives the location.
    UnsupportedError
        If it is well formed but uses something unknown, or blocks have elements of any length.
    """
    _check_version(document)
    if document.get(_LABEL_MULTISET) is True:
        raise UnsupportedError(
            "the elements are label multisets of Paintera, in blocks of variable length (varlength), which gzarr does "
            "not read; export them to an array of integers (paintera-convert to-scalar)",
            json_path=f"$.{_LABEL_MULTISET}",
        )
    dtype = _data_type(document["dataType"])
    dimensions = parse_shape(document["dimensions"], "$.dimensions")
    if not dimensions:
        fail("a dataset of N5 has at least one dimension", "$.dimensions")
    block = document.get("blockSize")
    if block is None:
        note("absent; blocks are as large as the dataset", "$.blockSize")
        block = [max(length, 1) for length in dimensions]
    block_size = parse_chunk_shape(block, dimensions, dtype, "$.blockSize")
    for i, length in enumerate(block_size):
        if length > _MAX_BLOCK_LENGTH:
            fail(f"expected at most 2**31 - 1, got {quote(length)}", f"$.blockSize[{i}]")
    attributes = _attributes(document)
    shape, chunk_shape = dimensions[::-1], block_size[::-1]
    return ArrayMetadata(
        chunk_grid=ChunkGrid.regular(shape, chunk_shape),
        dtype=dtype,
        data_type=document["dataType"],
        chunk_key_encoding=ChunkKeyEncoding("n5", "/"),
        fill_value=np.zeros((), dtype)[()],
        codecs=_codecs(document, dtype, len(shape)),
        attributes=attributes,
        dimension_names=dimension_names_of(attributes, len(shape)) or axes_of(attributes, len(shape)),
        zarr_format="n5",
        document=document,
    )


def parse_group(document: dict[str, Any]) -> GroupMetadata:
    """Parse the document of a group, which may be another program's if it lacks N5's version.

    Raises
    ------
    MetadataError
        If it is malformed.
    UnsupportedError
        If N5 is of an unknown version.
    """
    _check_version(document)
    # A group may have members of a dataset: BigDataViewer gives the data type to the group of all resolutions.
    attributes = {name: value for name, value in document.items() if name != VERSION}
    return GroupMetadata(attributes=attributes, zarr_format="n5", document=document)


def codecs_of_block(codecs: Sequence[Codec], endian: Literal["little", "big"]) -> tuple[Codec, ...]:
    """Return a Zarr chain of the elements and compressor of a block, without its header, in a byte order."""
    from ...codecs.lz4 import Lz4Codec
    from ...codecs.lz4_java import Lz4JavaCodec
    from ...codecs.n5_default import N5DefaultCodec

    inner = next((codec.codecs for codec in codecs if isinstance(codec, N5DefaultCodec)), None)
    if inner is None:
        return tuple(codecs)
    _, elements, *compressors = inner
    assert isinstance(elements, BytesCodec)
    # LZ4 has another framing in Zarr.
    others = [Lz4Codec() if isinstance(codec, Lz4JavaCodec) else codec for codec in compressors]
    return (elements if elements.endian is None else replace(elements, endian=endian), *others)


def _check_version(document: dict[str, Any]) -> None:
    version = document.get(VERSION)
    if version is None:
        return
    found = _VERSION.fullmatch(version) if isinstance(version, str) else None
    if found is None:
        fail(f"expected a version such as '4.0.0', got {quote(version)}", f"$.{VERSION}")
    if not 1 <= int(found[1]) <= _MAX_VERSION:
        raise UnsupportedError(
            f"version {quote(version)} of N5 is not known to this version of gzarr, which reads 1 to {_MAX_VERSION}",
            json_path=f"$.{VERSION}",
        )


def _data_type(name: Any) -> np.dtype[Any]:
    if isinstance(name, str) and name in _DATA_TYPES:
        return np.dtype(name)
    if isinstance(name, str) and name in _DATA_TYPES_OF_ZARR:
        note(f"{name!r}, which only zarr-python 2 wrote", "$.dataType")
        return np.dtype(name)
    if isinstance(name, str) and name in _VARIABLE:
        raise UnsupportedError(
            f"blocks of the data type {name!r} have variable length (varlength), which gzarr does not read",
            json_path="$.dataType",
        )
    if not isinstance(name, str):
        fail(f"expected the name of a data type, got {quote(name)}", "$.dataType")
    raise UnsupportedError(f"the data type {quote(name)} is not one of N5", json_path="$.dataType")


def _codecs(document: dict[str, Any], dtype: np.dtype[Any], ndim: int) -> tuple[Codec, ...]:
    from ...codecs.n5_default import N5DefaultCodec

    if "compression" in document:
        compressor = compression.compressor(document["compression"], dtype, "$.compression")
    else:
        # Of version 1.0.0.
        name = member(document, "compressionType")
        compressor = compression.compressor({"type": name}, dtype, "$.compressionType")
    reverse = TransposeCodec(tuple(reversed(range(ndim))))
    elements = BytesCodec(None if swap_unit(dtype) == 1 else "big")
    inner = (reverse, elements) if compressor is None else (reverse, elements, compressor)
    # A header counts dimensions as N5 does: the codec of the block gets chunks with their axes in that order.
    return (reverse, N5DefaultCodec(inner))


def _attributes(document: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in _MEMBERS}
