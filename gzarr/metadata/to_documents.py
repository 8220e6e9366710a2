"""From the model to the metadata documents of all Zarr versions: the inverse of parsing.

A parsed model keeps its document. Parts of the document beyond the model (members that need not be understood, other
spellings of names) are written back unchanged; only parts that the model may change (shape, chunks along empty
dimensions, attributes) are replaced. A model without a document gives a new one in zarr-python's spelling.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..documents.json import MAX_DEPTH, quote, unpaired_surrogates
from ..dtypes.masks import unmasked
from ..errors import ArgumentError
from ..integers import as_integer, as_integers
from .formats import FORMATS
from .parts import MAX_NDIM, dimension_names_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .layout import Layout
    from .model import ArrayMetadata, GroupMetadata

_MAX_LENGTH = 2**63 - 1
# Integers of up to this many bits have at most 4300 digits, the most that Python's json reads.
_MAX_BITS = 14284


def array_documents(metadata: ArrayMetadata, path: str) -> dict[str, bytes]:
    """Return the documents of an array.

    Parameters
    ----------
    metadata
        Metadata of the array.
    path
        Path of the array in its store, without leading slash.

    Returns
    -------
    Documents by store key, in the order in which to write them: the last one creates the node. For a draft of 2022,
    they include the entry point of the hierarchy.

    Raises
    ------
    ArgumentError
        If the format cannot express the array (its codecs, data type or chunk grid).
    """
    return _dumped(FORMATS[metadata.zarr_format].array_documents(metadata, path))


def group_documents(metadata: GroupMetadata, path: str, layout: Layout | None = None) -> dict[str, bytes]:
    """Return the documents of a group.

    Parameters
    ----------
    metadata
        Metadata of the group. Its ``consolidated`` nodes are not written: see :func:`gzarr.consolidate_metadata`.
    path
        Path of the group in its store, without leading slash.
    layout
        Layout of the group's hierarchy for a draft of 2022; None for other formats.

    Returns
    -------
    As for :func:`array_documents`.

    Raises
    ------
    ArgumentError
        If the format has no groups.
    """
    return _dumped(FORMATS[metadata.zarr_format].group_documents(metadata, path, layout))


def _dumped(documents: dict[str, dict[str, Any]]) -> dict[str, bytes]:
    return {key: dump(document) for key, document in documents.items()}


def dump(document: dict[str, Any]) -> bytes:
    """Return a document as bytes, indented by 2; what others have written and JSON lacks stays: see :func:`plain`."""
    # netCDF-C does not undo escapes. Only unpaired surrogates need one, which is that of JSON.
    return json.dumps(document, indent=2, ensure_ascii=False).encode(errors="backslashreplace")


def resized(metadata: ArrayMetadata, shape: Sequence[int]) -> ArrayMetadata:
    """Return the metadata of the same array with another shape.

    A rectilinear grid that is too short gets more chunks of the length of its last one. It keeps chunks beyond the new
    shape.

    Parameters
    ----------
    metadata
        Metadata of the array.
    shape
        New shape in elements, with the same number of dimensions.

    Raises
    ------
    ArgumentError
        If ``shape`` is not a shape with that many dimensions, a rectilinear grid would get too many chunks, or the grid
        of another package has other chunks for that shape.
    """
    new = check_shape(shape)
    if len(new) != metadata.ndim:
        raise ArgumentError(f"the array has {metadata.ndim} dimensions, but the shape {new} has {len(new)}")
    changed = replace(metadata, chunk_grid=FORMATS[metadata.zarr_format].resized_grid(metadata, new))
    return replace(changed, document=_document(changed))


def with_attributes(metadata: ArrayMetadata, attributes: dict[str, Any]) -> ArrayMetadata:
    """Return the metadata of the same array with other attributes, already checked by :func:`plain`."""
    names = metadata.dimension_names
    if not FORMATS[metadata.zarr_format].features.dimension_names:
        names = dimension_names_of(attributes, metadata.ndim)
    changed = replace(metadata, attributes=attributes, dimension_names=names)
    return replace(changed, document=_document(changed))


def with_dimension_names(metadata: ArrayMetadata, names: tuple[str | None, ...]) -> ArrayMetadata:
    """Return the metadata of the same array, of a format that names dimensions, with other names."""
    changed = replace(metadata, dimension_names=names)
    return replace(changed, document=_document(changed))


def group_with_attributes(metadata: GroupMetadata, attributes: dict[str, Any]) -> GroupMetadata:
    """Return the metadata of the same group with other attributes, and with a document."""
    changed = replace(metadata, attributes=attributes, implicit=False)
    return replace(changed, document=FORMATS[changed.zarr_format].group_document(changed))


def _document(metadata: ArrayMetadata) -> dict[str, Any]:
    """Return the ``document`` that the array's metadata would have once read back."""
    if not metadata.document:
        return {}
    return FORMATS[metadata.zarr_format].array_document(metadata)


def check_shape(shape: Any) -> tuple[int, ...]:
    """Return a shape as a tuple of integers; an integer is a shape of one dimension.

    Raises
    ------
    ArgumentError
        If it is not a shape.
    """
    number = as_integer(shape)
    result = as_integers(shape) if number is None else (number,)
    if result is None:
        raise ArgumentError(f"shape must be a tuple of integers, or an integer for one dimension, not {quote(shape)}")
    if len(result) > MAX_NDIM:
        raise ArgumentError(f"arrays have at most {MAX_NDIM} dimensions, not {len(result)}")
    if any(not 0 <= n <= _MAX_LENGTH for n in result):
        raise ArgumentError(f"the lengths of a shape must be from 0 to 2**63 - 1, got {quote(result)}")
    return result


class SourceAttributes(dict[str, Any]):
    """Attributes from the documents of a source, for its copy.

    :func:`plain` leaves in them what JSON lacks: ``NaN``, and text with unpaired surrogates.
    """


class SourceNames(tuple[str | None, ...]):
    """Names of dimensions from the document of a source, which may have unpaired surrogates in them."""

    __slots__ = ()


def plain(attributes: Any) -> dict[str, Any]:
    """Return attributes as they would be read back; NumPy scalars and arrays become numbers and lists.

    Raises
    ------
    ArgumentError
        If something in them is not JSON; the message gives its location.
    """
    if not hasattr(attributes, "items"):
        raise ArgumentError(f"attributes are a mapping from names to JSON values, not {type(attributes).__name__}")
    result: dict[str, Any] = _plain(attributes, "attributes", 0, finite=not isinstance(attributes, SourceAttributes))
    if not isinstance(attributes, SourceAttributes):
        check_text(result, "attributes")
    return result


def plain_changed(attributes: Any, present: dict[str, Any]) -> dict[str, Any]:
    """Return attributes like :func:`plain`; what JSON lacks stays if it is at its place in those at ``present``."""
    if not hasattr(attributes, "items"):
        return plain(attributes)
    result: dict[str, Any] = _plain(attributes, "attributes", 0, finite=False)
    _refuse_new(result, present, "attributes")
    return result


def _refuse_new(value: Any, present: Any, where: str) -> None:
    """Refuse numbers and text that JSON lacks, unless they are at their places already."""
    if isinstance(value, dict):
        known_members = present if isinstance(present, dict) else {}
        for name, item in value.items():
            if name not in known_members:
                check_text(name, f"{where}, a name")
            _refuse_new(item, known_members.get(name), _member(where, name))
    elif isinstance(value, list):
        known = present if isinstance(present, list) else []
        for i, item in enumerate(value):
            _refuse_new(item, known[i] if i < len(known) else None, f"{where}[{i}]")
    # As text, for NaN equals nothing.
    elif isinstance(value, float) and repr(value) != repr(present):
        _number(value, where, finite=True)
    elif isinstance(value, str) and value != present:
        check_text(value, where)


def check_text(value: Any, where: str) -> None:
    """Refuse unpaired surrogates in the text, and the names of members, of a JSON value.

    Python has them for the bytes of file names that are not UTF-8 (``os.listdir``), and JSON can express them, but not
    UTF-8.

    Parameters
    ----------
    value, where
        The value, and its location, for messages.

    Raises
    ------
    ArgumentError
        If there are some.
    """
    for at, text in unpaired_surrogates(value, where):
        raise ArgumentError(
            f"{at[:200]}: {quote(text)} has an unpaired surrogate, which UTF-8 cannot encode, and tensorstore and "
            "zarrs cannot read a document that has it; leave it out, or if it is a file name, decode that: "
            "os.fsencode(name).decode('latin-1'), or whatever encoding the name has"
        )


def plain_value(value: Any, where: str) -> Any:
    """Return any JSON value as it would be read back, like :func:`plain`, but text of any kind.

    ``where`` is its location, for messages.
    """
    return _plain(value, where, 0, finite=True)


def _plain(value: Any, where: str, depth: int, *, finite: bool) -> Any:
    if depth >= MAX_DEPTH - 1:
        raise ArgumentError(f"{where[:200]}: nested more than {MAX_DEPTH - 1} deep")
    if isinstance(value, np.ndarray):
        value = unmasked(value, where)
        if value.dtype.kind in "OT":
            # Text in files of HDF5, for example. What is in it may be anything, NumPy's numbers too.
            return _plain(value.tolist(), where, depth + 1, finite=finite)
    if isinstance(value, np.generic | np.ndarray) and value.dtype.kind in "biufUS":
        # Bytes are refused below, like Python's own.
        value = value.tolist()
    if value is None or isinstance(value, bool | str):
        return str.__str__(value) if isinstance(value, str) else value
    if isinstance(value, int | float):
        return _number(value, where, finite=finite)
    if isinstance(value, list | tuple):
        return [_plain(item, f"{where}[{i}]", depth + 1, finite=finite) for i, item in enumerate(value)]
    # What has attributes of its own and a store is a group, even one without members.
    if hasattr(value, "items") and not (hasattr(type(value), "attrs") and hasattr(type(value), "store")):
        result = {}
        for name, item in value.items():
            if not isinstance(name, str):
                raise ArgumentError(f"{where}: names are strings, not {quote(name)}")
            # Members of an enumeration, too, whose str() is something else.
            result[str.__str__(name)] = _plain(item, _member(where, name), depth + 1, finite=finite)
        return result
    raise ArgumentError(
        f"{where}: a {type(value).__name__} is not JSON; use numbers, strings, booleans, None, lists and mappings"
    )


def _member(where: str, name: str) -> str:
    return f"{where}[{name[:100]!r}]"


def _number(value: int | float, where: str, *, finite: bool) -> int | float:
    # Subclasses (enumerations) would be read back as plain numbers.
    if isinstance(value, int):
        if value.bit_length() > _MAX_BITS:
            raise ArgumentError(f"{where[:200]}: {quote(value)} is too large; Python reads at most 4300 digits")
        return int(value)
    if finite and not math.isfinite(value):
        raise ArgumentError(
            f"{where[:200]}: JSON has no {value}, and browsers, tensorstore and zarrs cannot read a document that has "
            f"it; leave it out, or use None or a string ({json.dumps(value)!r})"
        )
    return float(value)
