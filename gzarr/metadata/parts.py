"""What documents of every Zarr version have: shapes, chunk shapes, attributes, and limits on them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NoReturn

from ..errors import MetadataError
from .json import quote

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from .model import NodeMetadata

#: Larger chunks are refused: no engine could hold one, and a wrong document must not allocate it.
MAX_CHUNK_BYTES: Final = 2**40
#: NumPy's own limit on dimensions is 64 (32 before 2.0).
MAX_NDIM: Final = 32
_MAX_LENGTH: Final = 2**63 - 1


def fail(message: str, json_path: str) -> NoReturn:
    """Raise a :class:`MetadataError`."""
    raise MetadataError(message, json_path=json_path)


def member(document: dict[str, Any], name: str) -> Any:
    """Return a required member of a document."""
    if name not in document:
        fail(f"the document lacks {name!r}", "$")
    return document[name]


def check_format(document: Any, zarr_format: int) -> None:
    """Check that a document is an object with the right ``zarr_format``."""
    if not isinstance(document, dict):
        fail(f"expected a JSON object, got {quote(document)}", "$")
    found = member(document, "zarr_format")
    if type(found) is not int or found != zarr_format:
        fail(f"expected {zarr_format}, got {quote(found)}", "$.zarr_format")


def parse_shape(value: Any, json_path: str) -> tuple[int, ...]:
    """Parse the shape of an array: integers from 0 to 2⁶³ - 1."""
    if not isinstance(value, list | tuple):
        fail(f"expected an array of integers, got {quote(value)}", json_path)
    if len(value) > MAX_NDIM:
        fail(f"arrays have at most {MAX_NDIM} dimensions, not {len(value)}", json_path)
    for i, n in enumerate(value):
        if type(n) is not int or not 0 <= n <= _MAX_LENGTH:
            fail(f"expected an integer from 0 to 2**63 - 1, got {quote(n)}", f"{json_path}[{i}]")
    return tuple(value)


def parse_chunk_shape(value: Any, shape: tuple[int, ...], dtype: np.dtype[Any], json_path: str) -> tuple[int, ...]:
    """Parse the shape of chunks: integers from 1; 0 stands for 1 along a dimension of length 0."""
    if not isinstance(value, list | tuple):
        fail(f"expected an array of integers, got {quote(value)}", json_path)
    if len(value) != len(shape):
        fail(f"chunks have {len(value)} dimensions, but the array has {len(shape)}", json_path)
    chunk_shape = tuple(1 if type(n) is int and n == 0 == shape[i] else n for i, n in enumerate(value))
    for i, n in enumerate(chunk_shape):
        if type(n) is not int or not 1 <= n <= _MAX_LENGTH:
            fail(f"expected an integer from 1 to 2**63 - 1, got {quote(n)}", f"{json_path}[{i}]")
    nbytes = math.prod(chunk_shape) * dtype.itemsize
    if nbytes > MAX_CHUNK_BYTES:
        fail(f"a chunk would have {quote(nbytes)} bytes; more than {MAX_CHUNK_BYTES} are refused", json_path)
    return chunk_shape


def parse_attributes(value: Any, json_path: str) -> dict[str, Any]:
    """Parse user attributes: an object, or null for none."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        fail(f"expected an object, got {quote(value)}", json_path)
    return value


def parse_all(
    documents: dict[str, Any], parse: Callable[[Any], NodeMetadata]
) -> dict[str, NodeMetadata | MetadataError]:
    """Parse the documents of consolidated metadata, by path; one that cannot be used gives its error.

    One array with a codec that is not known must not close the group that it is in.
    """
    nodes: dict[str, NodeMetadata | MetadataError] = {}
    for path, document in documents.items():
        try:
            nodes[path] = parse(document)
        except MetadataError as error:
            nodes[path] = error.at(f"consolidated metadata of {path[:200]!r}") if error.key is None else error
    return nodes


def check_path(path: str, json_path: str) -> None:
    """Check that a path in consolidated metadata stays below its group."""
    segments = path.split("/")
    if any(not s or not s.strip(".") or "\0" in s or "\\" in s for s in segments):
        fail(f"{quote(path)} is not the path of a node below this group", json_path)
