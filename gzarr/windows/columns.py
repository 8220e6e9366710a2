"""Groups of AnnData that stand for an array: sparse matrices, categorical columns, and columns with missing values.

AnnData's specification of on-disk formats (https://anndata.readthedocs.io/en/stable/fileformat-prose.html).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ..arrays.array import Array
from ..errors import ArgumentError
from ..hierarchy.group import Group
from ..sparse.matrix import Matrix

if TYPE_CHECKING:
    from collections.abc import Mapping

_MATRICES: Final = ("csr_matrix", "csc_matrix")
_NULLABLE: Final = ("nullable-integer", "nullable-boolean")


def inputs_of(name: str, value: Any) -> Mapping[str, Any]:
    """Return what a group stands for, by name; other values as they are.

    A categorical column is the array of its codes, in which −1 is a missing value. A column of nullable integers or
    booleans is its values, and beside them, as ``name + "_mask"``, whether each is missing.

    Parameters
    ----------
    name
        Name of the value; ``""`` if there are no names.
    value
        Any input.

    Raises
    ------
    ArgumentError
        If a group stands for no array, or for two where there is a single one.
    NodeNotFoundError, MetadataError, NodeTypeError
        If a member of a group is missing or wrong.
    """
    if not isinstance(value, Group):
        return {name: value}
    encoding = _encoding_of(value)
    if encoding in _MATRICES:
        return {name: Matrix(value)}
    if encoding == "categorical":
        return {name: _member(value, "codes")}
    if encoding in _NULLABLE:
        if not name:
            raise ArgumentError(
                f"the column {value.name!r} is two arrays, its values and which of them are missing: give a name, as "
                "in {'age': adata['obs/age']}, which is batch['age'] and batch['age_mask']"
            )
        return {name: _member(value, "values"), f"{name}_mask": _member(value, "mask")}
    said = "has no encoding-type" if encoding is None else f"has the encoding-type {encoding!r:.100}"
    raise ArgumentError(
        f"the group {value.name!r} {said}; groups that stand for arrays are sparse matrices, and categorical and "
        "nullable columns of AnnData"
    )


def stands_for_arrays(value: object) -> bool:
    """Return whether a value is a group that :func:`inputs_of` takes; others are mappings of their members."""
    return isinstance(value, Group) and _encoding_of(value) in (*_MATRICES, "categorical", *_NULLABLE)


def _encoding_of(group: Group) -> Any:
    attributes = group.metadata.attributes
    return attributes.get("encoding-type", "csr_matrix" if "h5sparse_format" in attributes else None)


def _member(group: Group, name: str) -> Array:
    found = group[name]
    if not isinstance(found, Array):
        raise ArgumentError(f"{found.name!r} is a group, but in a column of AnnData it must be an array")
    return found
