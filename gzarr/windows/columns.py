"""Groups of AnnData that stand for an array: sparse matrices, categorical columns, and columns with missing values.

AnnData's specification of on-disk formats (https://anndata.readthedocs.io/en/stable/fileformat-prose.html).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

from ..arrays.array import Array
from ..errors import ArgumentError
from ..hierarchy.group import Group
from ..hierarchy.open import open_group
from ..sparse.matrix import Matrix
from ..sparse.names import categories_beside, elements_of, path_of_categories

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy.typing as npt

_MATRICES: Final = ("csr_matrix", "csc_matrix")
_NULLABLE: Final = ("nullable-integer", "nullable-boolean", "nullable-string-array")


class ColumnArray(Array):
    """An array of a column that knows its column.

    Parameters
    ----------
    array
        The array.
    """

    __slots__ = ()

    def __init__(self, array: Array) -> None:
        super().__init__(
            array.metadata,
            array.store,
            array.path,
            device=array._device,
            missing=array._missing,
            verify=array._verify,
            mode=array._mode,
            write_empty_chunks=array.write_empty_chunks,
        )
        self._auto = array._auto

    def __reduce__(self) -> tuple[Any, ...]:
        make, arguments = super().__reduce__()
        return functools.partial(_unpickled, type(self), make), arguments

    @property
    def column(self) -> Group:
        """The column, which is opened anew."""
        return open_group(self.store, path=self.path.rpartition("/")[0], mode="r", device="cpu")


def _unpickled(kind: type[ColumnArray], make: Callable[..., Array], *arguments: Any, **options: Any) -> ColumnArray:
    return kind(make(*arguments, **options))


class Codes(ColumnArray):
    """The codes of a categorical column: numbers of its categories, of which −1 is none."""

    __slots__ = ()

    def categories(self) -> tuple[npt.NDArray[Any], bool]:
        """Read the categories, objects ``(n,)``; return them, and whether their order has a meaning.

        Raises
        ------
        ArgumentError, NodeNotFoundError, NodeTypeError, MetadataError, StoreError, ChunkError
            If they cannot be read.
        """
        column = self.column
        return elements_of(column["categories"]).reshape(-1), bool(column.metadata.attributes.get("ordered", False))


class CodesBeside(Codes):
    """The codes of a categorical column of AnnData 0.7, an array whose categories are another one."""

    __slots__ = ()

    def categories(self) -> tuple[npt.NDArray[Any], bool]:
        """Read the categories; as :meth:`Codes.categories`."""
        found = categories_beside(self)
        if found is None:
            raise ArgumentError(
                f"the categories of {self.name!r} in {self.store!r} are to be beside it, in "
                f"{path_of_categories(self)!r}, and are not in this store: open the file as a group, and give its "
                "member, as in adata['obs/cell_type']"
            )
        return elements_of(found).reshape(-1), bool(found.metadata.attributes.get("ordered", False))


class NullableValues(ColumnArray):
    """The values of a column of which some are missing: what stands there is no value."""

    __slots__ = ()

    def mask(self) -> npt.NDArray[Any]:
        """Read which values are missing, booleans of the shape of the values.

        Raises
        ------
        ArgumentError, NodeNotFoundError, NodeTypeError, MetadataError, StoreError, ChunkError
            If that cannot be read, or has another shape.
        """
        mask = _member(self.column, "mask")
        if mask.shape != self.shape:
            raise ArgumentError(f"{mask.name!r} has shape {mask.shape}, and the values that it is for {self.shape}")
        found: npt.NDArray[Any] = mask.read().astype(bool)
        return found


def inputs_of(name: str, value: Any) -> Mapping[str, Any]:
    """Return what a group, or an array of codes, stands for, by name; other values as they are.

    A categorical column is the array of its codes, in which −1 is a missing value. A column of nullable
    integers, booleans or strings is its values, and beside them, as ``name + "_mask"``, whether each is missing.

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
        return {name: CodesBeside(value) if _has_categories(value) else value}
    encoding = _encoding_of(value)
    if encoding in _MATRICES:
        return {name: Matrix(value)}
    if encoding == "categorical":
        return {name: Codes(_member(value, "codes"))}
    if encoding in _NULLABLE:
        if not name:
            raise ArgumentError(
                f"the column {value.name!r} is two arrays, its values and which of them are missing: give a name, as "
                "in {'age': adata['obs/age']}, which is batch['age'] and batch['age_mask']"
            )
        return {name: NullableValues(_member(value, "values")), f"{name}_mask": _member(value, "mask")}
    said = "has no encoding-type" if encoding is None else f"has the encoding-type {encoding!r:.100}"
    is_image = not {"ome", "multiscales"}.isdisjoint(value.metadata.attributes)
    way = "give what gzarr.ome.open makes of it" if is_image else "give its members, such as group['name']"
    raise ArgumentError(
        f"the group {value.name!r} {said}; groups that stand for arrays are sparse matrices, and categorical and "
        f"nullable columns of AnnData: {way}"
    )


def stands_for_arrays(value: object) -> bool:
    """Return whether a value is a group that :func:`inputs_of` takes; others are mappings of their members."""
    return isinstance(value, Group) and _encoding_of(value) in (*_MATRICES, "categorical", *_NULLABLE)


def _has_categories(value: Any) -> bool:
    """Return whether a value is a categorical column of AnnData 0.7, also one whose store has nothing else."""
    if not isinstance(value, Array) or isinstance(value, ColumnArray) or path_of_categories(value) is None:
        return False
    return not value.path or categories_beside(value) is not None


def _encoding_of(group: Group) -> Any:
    attributes = group.metadata.attributes
    return attributes.get("encoding-type", "csr_matrix" if "h5sparse_format" in attributes else None)


def _member(group: Group, name: str) -> Array:
    found = group[name]
    if not isinstance(found, Array):
        raise ArgumentError(f"{found.name!r} is a group, but in a column of AnnData it must be an array")
    return found
