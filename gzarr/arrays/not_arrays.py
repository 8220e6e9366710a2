"""Values that are no arrays, but of which NumPy makes some without what they hold: groups, images, mappings, tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from ..dtypes.nulls import types_of
from ..errors import ArgumentError
from ..items import is_table
from .mixed_values import may_be_rounded

# The most dimensions that NumPy gives nested lists.
_MAX_DEPTH: Final = 64
# Classes of gzarr.ome, and what to pass instead.
_OF_IMAGES: Final = {
    "Image": "an Image is no array; pass the array of one of its levels, such as image.level(0)",
    **{
        name: f"a {name} is no array; pass the array of a level of one of its images, such as {example}.level(0)"
        for name, example in {
            "Well": "well[0]",
            "Plate": "plate['A/1'][0]",
            "Collection": "collection[0]",
            "Labels": "labels['nuclei']",
            "Scene": "scene['image']",
        }.items()
    },
}
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
        # Of gzarr.ome, which stands above.
        for base in kind.__mro__:
            if base.__name__ in _OF_IMAGES and base.__module__.startswith("gzarr.ome."):
                raise ArgumentError(f"{node}: {_OF_IMAGES[base.__name__]}")
        if any(hasattr(kind, name) for name in _PROTOCOLS):
            continue
        # Groups of zarr-python are no mappings by type.
        if hasattr(kind, "attrs") and hasattr(kind, "store"):
            raise ArgumentError(
                f"{node}: a {kind.__name__} is no array; to copy a group with everything below it, use "
                "gzarr.copy(group, store, dest_path=...)"
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
    """Refuse a table (a DataFrame, for example) whose columns have no type in common that holds all of their elements.

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
    if not isinstance(array, np.ndarray):
        return
    dtypes = _dtypes_of(value)
    are_objects = array.dtype.hasobject and {type(item) for item in array.flat} not in ({str}, {bytes}, set())
    if (are_objects and dtypes) or any(may_be_rounded(array, one) for one in dtypes):
        raise _of_several_types(value, node)


def refuse_rounded(value: Any, array: np.ndarray[Any, np.dtype[Any]], node: str) -> None:
    """Refuse a table for integers if its own integers may have been rounded, for the sake of columns of other numbers.

    Parameters and errors are as for :func:`refuse_tables`.
    """
    if array.dtype.kind not in "fc":
        return
    dtypes = _dtypes_of(value)
    each = array.shape[-1:] == (len(dtypes),)
    if any(may_be_rounded(array[..., i] if each else array, dtype) for i, dtype in enumerate(dtypes)):
        raise _of_several_types(value, node)


def _of_several_types(value: Any, node: str) -> ArgumentError:
    kind = type(value).__name__
    if not is_table(value):
        return ArgumentError(
            f"{node}: the fields of a {kind} of structs of several types are not one array; store each as an array of "
            "a group: gzarr.save(store, named={name: values.struct.field(name) for name in values.struct.fields})"
        )
    names = "column_names" if hasattr(value, "column_names") else "columns"
    return ArgumentError(
        f"{node}: the columns of a {kind} of several types are not one array; store each as an "
        f"array of a group: gzarr.save(store, named={{name: table[name] for name in table.{names}}})"
    )


def _dtypes_of(value: Any) -> list[np.dtype[Any]]:
    """Return the types of the columns of a table in memory, or of the fields of structs; none for anything else."""
    # Lazy tables may read files to tell theirs.
    if not hasattr(value, "__array__"):
        return []
    # Those of NumPy are known without looking into columns.
    dtypes = list(getattr(value, "dtypes", ())) if is_table(value) else []
    if not all(isinstance(one, np.dtype) for one in dtypes) or not dtypes:
        dtypes = types_of(value)
    return dtypes


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
