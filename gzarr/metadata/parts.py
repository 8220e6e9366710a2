"""Parts common to the documents of all Zarr versions: shapes, chunk shapes, attributes, and their limits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np

from ..documents.configuration import whole, whole_items
from ..documents.departures import is_collecting, note
from ..documents.json import quote
from ..errors import ArgumentError, MetadataError
from ..stores.keys import normalize_path
from .chunk_grid import MAX_UNEVEN_CHUNKS, ChunkGrid, RectilinearAxis, RegularAxis

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .model import NodeMetadata

#: Larger chunks are refused: no engine could hold one, and a malformed document must not allocate it.
MAX_CHUNK_BYTES: Final = 2**40
#: NumPy's own limit on dimensions is 64 (32 before 2.0).
MAX_NDIM: Final = 32
#: Attribute with the names of all dimensions, as in xarray, where a format has no member for them.
DIMENSIONS_ATTRIBUTE: Final = "_ARRAY_DIMENSIONS"
_MAX_LENGTH: Final = 2**63 - 1


def fail(message: str, json_path: str) -> NoReturn:
    """Raise a :class:`MetadataError`."""
    raise MetadataError(message, json_path=json_path)


@contextmanager
def error_at(key: str) -> Iterator[None]:
    """Add the store key of a document to metadata errors raised in the ``with`` block."""
    try:
        yield
    except MetadataError as error:
        if error.key is None:
            error.at(key)
        raise


def member(document: dict[str, Any], name: str) -> Any:
    """Return a required member of a document."""
    if name not in document:
        fail(f"the document lacks {name!r}", "$")
    return document[name]


def check_format(document: Any, zarr_format: int) -> None:
    """Check that a document is an object with the expected ``zarr_format``, an integer in it afterwards.

    The webknossos library writes it as a text.
    """
    if not isinstance(document, dict):
        fail(f"expected a JSON object, got {quote(document)}", "$")
    found = whole(member(document, "zarr_format"), "$.zarr_format")
    if found == str(zarr_format):
        note(f"{quote(found)} in place of {zarr_format}", "$.zarr_format")
        found = zarr_format
    if type(found) is not int or found != zarr_format:
        fail(f"expected {zarr_format}, got {quote(found)}", "$.zarr_format")
    document["zarr_format"] = found


def parse_shape(value: Any, json_path: str) -> tuple[int, ...]:
    """Parse the shape of an array: integers from 0 to 2⁶³ - 1."""
    if not isinstance(value, list | tuple):
        fail(f"expected an array of integers, got {quote(value)}", json_path)
    if len(value) > MAX_NDIM:
        fail(f"arrays have at most {MAX_NDIM} dimensions, not {len(value)}", json_path)
    shape = whole_items(value, json_path)
    for i, n in enumerate(shape):
        if type(n) is not int or not 0 <= n <= _MAX_LENGTH:
            fail(f"expected an integer from 0 to 2**63 - 1, got {quote(n)}", f"{json_path}[{i}]")
    return tuple(shape)


def parse_chunk_shape(value: Any, shape: tuple[int, ...], dtype: np.dtype[Any], json_path: str) -> tuple[int, ...]:
    """Parse the shape of chunks: integers from 1. Along a dimension of length 0, 0 is read as 1."""
    if not isinstance(value, list | tuple):
        fail(f"expected an array of integers, got {quote(value)}", json_path)
    if len(value) != len(shape):
        fail(f"chunks have {len(value)} dimensions, but the array has {len(shape)}", json_path)
    given = whole_items(value, json_path)
    chunk_shape = tuple(1 if type(n) is int and n == 0 == shape[i] else n for i, n in enumerate(given))
    if chunk_shape != tuple(given):
        note("chunks of length 0", json_path)
    for i, n in enumerate(chunk_shape):
        if type(n) is not int or not 1 <= n <= _MAX_LENGTH:
            fail(f"expected an integer from 1 to 2**63 - 1, got {quote(n)}", f"{json_path}[{i}]")
    nbytes = math.prod(chunk_shape) * dtype.itemsize
    if nbytes > MAX_CHUNK_BYTES:
        fail(f"a chunk would have {quote(nbytes)} bytes; the limit is {MAX_CHUNK_BYTES}", json_path)
    return chunk_shape


def parse_chunk_shapes(value: Any, shape: tuple[int, ...], dtype: np.dtype[Any], json_path: str) -> ChunkGrid:
    """Parse the chunks of a rectilinear grid: for each dimension a length, or a list of lengths and runs of them."""
    if not isinstance(value, list | tuple):
        fail(f"expected an array with one entry per dimension, got {quote(value)}", json_path)
    if len(value) != len(shape):
        fail(f"chunks have {len(value)} dimensions, but the array has {len(shape)}", json_path)
    value = whole_items(value, json_path)
    listed = {
        d: _parse_lengths(lengths, size, f"{json_path}[{d}]")
        for d, (lengths, size) in enumerate(zip(value, shape, strict=True))
        if type(lengths) is not int
    }
    longest = [listed[d].longest if d in listed else length for d, length in enumerate(value)]
    chunk_shape = parse_chunk_shape(longest, shape, dtype, json_path)
    return ChunkGrid(
        tuple(
            listed[d] if d in listed else RegularAxis(size, length)
            for d, (size, length) in enumerate(zip(shape, chunk_shape, strict=True))
        )
    )


def _parse_lengths(value: Any, size: int, json_path: str) -> RectilinearAxis:
    if not isinstance(value, list | tuple):
        fail(f"expected a length, or an array of lengths, got {quote(value)}", json_path)
    lengths: list[int] = []
    counts: list[int] = []
    for i, item in enumerate(value):
        at = f"{json_path}[{i}]"
        pair = isinstance(item, list | tuple) and len(item) == 2
        length, count = whole_items(item, at) if pair else (whole(item, at), 1)
        for n in (length, count):
            if type(n) is not int or not 1 <= n <= _MAX_LENGTH:
                fail(f"expected a length from 1, or [length, number of chunks], got {quote(item)}", at)
        lengths.append(length)
        counts.append(count)
    total = sum(length * count for length, count in zip(lengths, counts, strict=True))
    # The chunks may extend beyond the array, which was shrunk or may grow.
    if not size <= total <= _MAX_LENGTH:
        fail(f"chunks with a total length of {quote(total)} do not cover the array's {size}", json_path)
    if sum(counts) > MAX_UNEVEN_CHUNKS:
        fail(f"there are at most {MAX_UNEVEN_CHUNKS} chunks along one dimension", json_path)
    return RectilinearAxis(size, np.array(lengths, np.int64), np.array(counts, np.int64))


def parse_attributes(value: Any, json_path: str) -> dict[str, Any]:
    """Parse user attributes: an object, or null or an empty array for none, as zarr-python reads them."""
    if value is None or value == []:
        note(f"{'null' if value is None else '[]'} in place of an object", json_path)
        return {}
    if not isinstance(value, dict):
        fail(f"expected an object, got {quote(value)}", json_path)
    return value


def dimension_names_of(attributes: dict[str, Any], ndim: int) -> tuple[str | None, ...] | None:
    """Return the dimension names in :data:`DIMENSIONS_ATTRIBUTE`, if they fit."""
    names = attributes.get(DIMENSIONS_ATTRIBUTE)
    if isinstance(names, list) and len(names) == ndim and all(isinstance(name, str) for name in names):
        return tuple(names)
    return None


class ConsolidatedNodes(Mapping[str, "NodeMetadata | MetadataError"]):
    """The nodes of consolidated metadata by path, each parsed when it is asked for; an unusable one gives its error.

    An array with an unknown codec must not make its group unreadable.

    Parameters
    ----------
    documents
        What describes each node, by path.
    parse
        Function from that, and a name for it in messages, to the metadata.
    """

    __slots__ = ("_documents", "_nodes", "_parse")

    def __init__(self, documents: dict[str, Any], parse: Callable[[Any, str], NodeMetadata]) -> None:
        self._documents = documents
        self._parse = parse
        self._nodes: dict[str, NodeMetadata | MetadataError] = {}
        if is_collecting():
            # Departures are recorded by whoever opens the group.
            for path in documents:
                self[path]

    def __getitem__(self, path: str) -> NodeMetadata | MetadataError:
        node = self._nodes.get(path)
        if node is None:
            documents = self._documents[path]
            name = f"consolidated metadata of {path[:200]!r}"
            try:
                node = self._parse(documents, name)
            except MetadataError as error:
                node = error if error.key is not None else error.at(name)
            # Of threads that ask at the same time, all get the node of one.
            node = self._nodes.setdefault(path, node)
        return node

    def __contains__(self, path: object) -> bool:
        return path in self._documents

    def __iter__(self) -> Iterator[str]:
        return iter(self._documents)

    def __len__(self) -> int:
        return len(self._documents)


def likeness(document: Any) -> str | None:
    """Return a text that only equal parts of documents have; None if the arrays must be parsed one by one."""
    if is_collecting():
        return None
    try:
        return repr(document)
    except ValueError:
        # An integer of more digits than Python prints.
        return None


def check_path(path: str, json_path: str) -> None:
    """Check that a path in consolidated metadata stays below its group."""
    try:
        valid = normalize_path(path) == path and path != ""
    except ArgumentError as error:
        fail(f"{quote(path[:200])} is not the path of a node below this group: {error}", json_path)
    if not valid:
        fail(f"{quote(path[:200])} is not the path of a node below this group", json_path)
