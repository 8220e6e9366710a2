"""A sparse matrix as a group: the arrays ``data``, ``indices`` and ``indptr``, and attributes that say what they are.

AnnData's specification of on-disk formats (https://anndata.readthedocs.io/en/stable/fileformat-prose.html), "Sparse
arrays": ``encoding-type`` is ``csr_matrix`` or ``csc_matrix``, and ``shape`` has two integers. Before AnnData 0.7,
these were ``h5sparse_format`` (``csr`` or ``csc``) and ``h5sparse_shape``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from ..arrays.array import Array
from ..documents.configuration import is_integer
from ..documents.json import quote
from ..errors import MetadataError, NodeNotFoundError, NodeTypeError, UnsupportedError

if TYPE_CHECKING:
    from ..hierarchy.group import Group

#: Rows one after the other, or columns.
Form: TypeAlias = Literal["csr", "csc"]

#: Members of the group.
NAMES: Final = ("data", "indices", "indptr")
#: Attributes that said before AnnData 0.7 what the form and the shape are.
OLD_NAMES: Final = ("h5sparse_format", "h5sparse_shape")
#: Most columns of CSR, or rows of CSC: kernels have their numbers in 32 bits.
MOST_MINOR: Final = 2**31 - 1
#: NumPy's characters of types of values.
NUMBERS: Final = "?bBhHiIlLqQefdFD"
_ENCODINGS: Final[dict[str, Form]] = {"csr_matrix": "csr", "csc_matrix": "csc"}
_FORMS: Final[dict[str, Form]] = {"csr": "csr", "csc": "csc"}


@dataclass(frozen=True, eq=False)
class Layout:
    """What a group is.

    Attributes
    ----------
    group
        The group.
    form
        ``"csr"`` or ``"csc"``.
    shape
        Rows and columns.
    data, indices, indptr
        Arrays of one dimension: the values, their columns (rows in CSC), and how many of them are before each row
        (column in CSC). They may be longer than the matrix: appending writes them first.
    """

    group: Group
    form: Form
    shape: tuple[int, int]
    data: Array
    indices: Array
    indptr: Array


def layout_of(group: Group) -> Layout:
    """Return what the attributes and members of a group say; three requests.

    Raises
    ------
    NodeTypeError
        If the group is no sparse matrix.
    NodeNotFoundError
        If an array is missing.
    MetadataError
        If the attributes or arrays are wrong; :class:`UnsupportedError` if gzarr cannot read them.
    """
    form = _form_of(group)
    shape = shape_of(group)
    if shape[form == "csr"] > MOST_MINOR:
        what = "columns" if form == "csr" else "rows"
        raise UnsupportedError(
            f"matrix {group.name!r} has {shape[form == 'csr']} {what}; in {form.upper()}, gzarr reads up to "
            f"{MOST_MINOR}",
            json_path="$.shape",
        )
    data, indices, indptr = (_member(group, name) for name in NAMES)
    for array in (indices, indptr):
        if array.dtype.kind not in "iu":
            raise _wrong(array, f"must have integers, not {array.dtype}")
    if data.dtype.char not in NUMBERS:
        raise _wrong(data, f"must have numbers of NumPy's types of up to 128 bits, not {data.dtype}")
    major = shape[form == "csc"]
    if len(indptr) < major + 1:
        what = "rows" if form == "csr" else "columns"
        raise _wrong(indptr, f"has {len(indptr)} elements, but a matrix of {major} {what} needs {major + 1}")
    return Layout(group, form, shape, data, indices, indptr)


def _form_of(group: Group) -> Form:
    attributes = group.metadata.attributes
    old = attributes.get("h5sparse_format")
    encoding = attributes.get("encoding-type")
    found = _FORMS.get(old) if isinstance(old, str) else _ENCODINGS.get(encoding) if isinstance(encoding, str) else None
    if found is None:
        said = f"has the encoding-type {quote(encoding)}" if encoding is not None else "has no encoding-type"
        hint = "; its matrix is the group 'X', or one in 'layers'" if encoding == "anndata" else ""
        raise NodeTypeError(
            f"the group {group.name!r} in {group.store!r} {said}; sparse matrices have csr_matrix or csc_matrix{hint}"
        )
    return found


def shape_of(group: Group) -> tuple[int, int]:
    """Return what the attributes say that the shape is.

    Raises
    ------
    NodeTypeError, MetadataError
        As for :func:`layout_of`.
    """
    _form_of(group)
    attributes = group.metadata.attributes
    name = "h5sparse_shape" if "shape" not in attributes and "h5sparse_shape" in attributes else "shape"
    shape: Any = attributes.get(name)
    if not isinstance(shape, list) or len(shape) != 2 or not all(is_integer(n) and 0 <= n < 2**63 for n in shape):
        raise MetadataError(
            f"matrix {group.name!r}: must be two integers, of rows and columns, not {quote(shape)}",
            json_path=f"$.{name}",
        )
    return int(shape[0]), int(shape[1])


def _member(group: Group, name: str) -> Array:
    try:
        node = group[name]
    except NodeNotFoundError:
        raise NodeNotFoundError(
            f"the group {group.name!r} in {group.store!r} says that it is a sparse matrix, but has no array {name!r}"
        ) from None
    if not isinstance(node, Array):
        raise NodeTypeError(f"{node.name!r} in {group.store!r} is a group, but in a sparse matrix it must be an array")
    if node.ndim != 1:
        raise _wrong(node, f"must have one dimension, not shape {node.shape}")
    return node


def _wrong(array: Array, what: str) -> MetadataError:
    return MetadataError(f"array {array.name!r} of a sparse matrix {what}")
