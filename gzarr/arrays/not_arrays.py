"""Values that are no arrays, but of which NumPy makes some without what they hold: groups, images, mappings, tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from ..errors import ArgumentError
from .mixed_values import may_be_rounded

# The most dimensions that NumPy gives nested lists.
_MAX_DEPTH: Final = 64
# What has one of these makes an array itself.
_PROTOCOLS: Final = ("__array__", "__dlpack__", "__array_interface__")


def refuse_mappings(value: object, node: str, *, objects: bool) -> None:
    """Refuse groups and other mappings, also in lists: NumPy would take the names in them for elements. And images.

    Parameters
    ----------
    value
        Any value. Mappings that make arrays themselves are left to it.
    node
        Beginning of the message.
    objects
        Whether elements are Python objects or records, which mappings may be taken for, or are refused with more to
        say; groups and images are none.

    Raises
    ------
    ArgumentError
        If it is a mapping or an image, or has one in it.
    """
    for kind in _types_in(value):
        if any(hasattr(kind, name) for name in _PROTOCOLS):
            continue
        # Groups of zarr-python are no mappings by type.
        if hasattr(kind, "attrs") and hasattr(kind, "store"):
            raise ArgumentError(
                f"{node}: a {kind.__name__} is no array; to copy a group with everything below it, use "
                "gzarr.copy(group, store, dest_path=...)"
            )
        # Images of gzarr.ome, which stands above.
        if hasattr(kind, "levels") and hasattr(kind, "level"):
            raise ArgumentError(
                f"{node}: an {kind.__name__} is no array; pass the array of one of its levels, such as image.level(0)"
            )
        if objects or not issubclass(kind, Mapping):
            continue
        raise ArgumentError(
            f"{node}: a value of type {kind.__name__} is a mapping, not an array; to store what is in it, each "
            "as an array of a group, use gzarr.save(store, named=...)"
        )


def refuse_without_elements(value: Any, node: str) -> None:
    """Refuse what has a type of elements, but not the elements of an array: null dataspaces and sparse matrices."""
    kind = type(value).__name__
    if getattr(value, "shape", ()) is None:
        raise ArgumentError(
            f"{node}: a value of type {kind} without a shape (a null dataspace of HDF5) has no elements; leave it out, "
            "or create an array of a shape"
        )
    if hasattr(value, "nnz") and not hasattr(value, "__array__"):
        raise ArgumentError(
            f"{node}: a {kind} is sparse, and no array; pass what its toarray() or to_dense() gives, or store it with "
            "gzarr.sparse.create"
        )


def refuse_tables(value: Any, array: Any, node: str) -> None:
    """Refuse a table (a pandas DataFrame) whose columns have no type in common that holds all of their elements.

    Parameters
    ----------
    value, array
        The value, and the array that its library has made of it.
    node
        Beginning of the message.

    Raises
    ------
    ArgumentError
        If elements of several types would be Python objects, or integers may have been rounded.
    """
    dtypes = getattr(value, "dtypes", None)
    if dtypes is None or not hasattr(value, "columns") or not isinstance(array, np.ndarray):
        return
    are_objects = array.dtype.hasobject and {type(item) for item in array.flat} not in ({str}, {bytes}, set())
    if are_objects or any(isinstance(one, np.dtype) and may_be_rounded(array, one) for one in dtypes):
        raise ArgumentError(
            f"{node}: the columns of a {type(value).__name__} of several types are not one array; store each as an "
            "array of a group: gzarr.save(store, named={name: table[name] for name in table.columns})"
        )


def _types_in(value: object) -> Iterator[type]:
    """Yield the types of a value, and of what is in it if it is nested lists."""
    level: list[Any] = [value]
    for _ in range(_MAX_DEPTH):
        types = set(map(type, level))
        yield from types
        if not any(issubclass(kind, list | tuple) for kind in types):
            return
        # Each list once: one may be in itself.
        lists = {id(part): part for part in level if isinstance(part, list | tuple)}
        level = [item for part in lists.values() for item in part]
