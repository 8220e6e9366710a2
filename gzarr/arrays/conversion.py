"""Conversion of values of any kind to elements in host memory: of lists, records, texts and objects to NumPy dtypes."""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from ..documents.json import quote
from ..dtypes.masks import has_masked, refuse_masked, unmasked
from ..dtypes.nulls import as_masked, is_of_dask
from ..dtypes.properties import kind_of, native
from ..errors import ArgumentError, GzarrError, StoreError, with_errno
from ..metadata.parts import MAX_NDIM
from ..reasons import pass_on, reason_of
from .casting import cast, refused
from .host_copies import host_copy
from .mixed_values import may_be_rounded, times_of, whole_numbers
from .not_arrays import refuse_mappings, refuse_rounded, refuse_without_elements
from .objects import ObjectType, as_objects, checked
from .tensors import is_tensor, tensor_on_host

if TYPE_CHECKING:
    import numpy.typing as npt


def on_host(value: Any, dtype: np.dtype[Any] | None, node: str, ndim: int | None = None) -> npt.NDArray[Any]:
    """Return a value as an array in host memory, whose dtype may differ from ``dtype``.

    As for :func:`gzarr.arrays.elements.as_data`, an error is raised if elements are masked.
    """
    return unmasked(taken(value, dtype, node, ndim), node, value)


def taken(
    value: Any, dtype: np.dtype[Any] | None, node: str, ndim: int | None, *, fills: bool = False
) -> npt.NDArray[Any]:
    """Return a value as an array in host memory, or as a masked one.

    Nulls are masked, but not where they may be elements, among objects, unless they are to be filled.
    """
    objects = dtype is not None and dtype.hasobject
    try:
        if isinstance(value, np.ndarray):
            return value
        if is_tensor(value):
            return tensor_on_host(value)
        if hasattr(value, "__cuda_array_interface__") and hasattr(value, "get"):
            return np.asarray(host_copy(value))
        if hasattr(value, "shape"):
            refuse_without_elements(value, node)
            if is_indexed(value):
                # For some, as for netCDF4, only indexing keeps masks; and some have no other conversion.
                try:
                    found = value[...]
                    if isinstance(found, np.ndarray):
                        return found
                except GzarrError:
                    raise
                # Other libraries may raise anything; their conversion follows.
                except Exception as error:
                    pass_on(error)
        if hasattr(value, "__array__"):
            if is_of_dask(value):
                # Its own conversion drops masks. (xarray makes NaN of masked elements itself.)
                value = value.compute()
            if isinstance(value, np.ndarray):
                return value
            if objects and not fills:
                return np.asarray(value)
            array = as_masked(value)
            if dtype is not None and kind_of(dtype) in "iu":
                refuse_rounded(value, array, node)
            return array
        if fills:
            refuse_masked_list(value, node)
        refuse_masked(value, node)
        # What a field cannot hold is said there.
        refuse_mappings(value, node, objects=objects or (dtype is not None and dtype.names is not None))
        if objects:
            return _objects(value, ndim)
        if hasattr(value, "__dlpack__"):
            return np.from_dlpack(value)
        if dtype is not None:
            return _guided(value, dtype, node)
        array = np.asarray(value)
        # NumPy infers moments of moments and durations together, and wraps those that are out of its unit's range.
        return _guided(value, array.dtype, node) if array.dtype.kind in "Mm" else array
    # Also of an array of gzarr that cannot be read.
    except GzarrError:
        raise
    except OSError as error:
        raise with_errno(
            StoreError(f"{node}: a value of type {type(value).__name__} cannot be read: {reason_of(error)}"), error
        ) from error
    except MemoryError as error:
        raise ArgumentError(
            f"{node}: there is not enough memory for the elements of a value of type {type(value).__name__} "
            f"({reason_of(error)}); write it in parts"
        ) from error
    # NumPy and other array libraries may raise anything.
    except Exception as error:
        wanted = "an array" if dtype is None else f"elements of {dtype}"
        raise ArgumentError(
            f"{node}: a value of type {type(value).__name__} is not {wanted}: {reason_of(error)}"
        ) from error


def refuse_masked_list(value: Any, node: str) -> None:
    """Refuse a list with masked elements: NumPy would round the integers beside them to floating-point numbers."""
    if isinstance(value, list | tuple) and has_masked(value):
        raise ArgumentError(
            f"{node}: a list has masked elements or nulls, and fill_masked=True fills those of arrays and tables only: "
            "pass a masked array, np.ma.array(values, mask=...)"
        )


def fitted(
    array: npt.NDArray[Any],
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    node: str,
    object_type: ObjectType | None = None,
) -> npt.NDArray[Any]:
    """Return an array in host memory as one of a dtype and shape; as :func:`gzarr.arrays.elements.as_elements`."""
    while array.ndim > len(shape) and array.shape[0] == 1:
        # The ellipsis keeps it an array even without dimensions.
        array = array[0, ...]
    # Checked and converted before broadcasting, so that a scalar is only one element.
    elements = as_read(array, dtype, node, object_type)
    try:
        return np.broadcast_to(elements, shape)
    except ValueError as error:
        raise misfit(node, array.shape, shape) from error


def misfit(node: str, given: tuple[int, ...], shape: tuple[int, ...]) -> ArgumentError:
    """Return the error for an array that could not be broadcast to another shape."""
    pairs = zip(reversed(given), reversed(shape), strict=False)
    if len(given) <= len(shape) and all(n in (1, wanted) for n, wanted in pairs):
        return ArgumentError(f"{node}: a region of {shape} has more elements than can be written at once; write parts")
    return ArgumentError(f"{node}: a value of shape {given} does not broadcast to {shape}")


def as_read(
    array: npt.NDArray[Any], dtype: np.dtype[Any], node: str, object_type: ObjectType | None
) -> npt.NDArray[Any]:
    """Return elements converted to a dtype, as the array's codec will read them back."""
    elements = _converted(array, dtype, node)
    if object_type is None:
        return elements
    return (_rows if object_type.codec == "vlen-array" else checked)(elements, object_type, node)


def is_indexed(value: Any) -> bool:
    """Return whether a value is an array that is read by indexing it, like those in files of HDF5."""
    return (
        hasattr(value, "shape")
        and hasattr(value, "dtype")
        and hasattr(value, "__getitem__")
        and not states_its_type(value)
    )


def states_its_type(value: Any) -> bool:
    """Return whether a value is an array whose dtype is that of its elements: it computes, or exports its memory."""
    return (
        isinstance(value, np.ndarray | np.generic) or hasattr(value, "__array_ufunc__") or hasattr(value, "__dlpack__")
    )


def _guided(value: Any, dtype: np.dtype[Any], node: str) -> npt.NDArray[Any]:
    """Return plain Python values as an array, guided by dtypes that NumPy would not infer: records, bytes, times."""
    if dtype.fields is not None:
        return _records(value, dtype, node)
    if kind_of(dtype) not in "VMm":
        if dtype.kind in "SU" and isinstance(value, list | tuple):
            _check_texts(np.asarray(value, object), dtype, node)
        array = np.asarray(value)
        return whole_numbers(np.asarray(value, object), array, dtype, node) if may_be_rounded(array, dtype) else array
    if dtype.kind in "Mm":
        found = times_of(value, dtype, partial(_converted, dtype=dtype, node=node))
        if found is not None:
            return found
    else:
        value = _raw_bytes(value, dtype, node)
    return np.asarray(value, dtype)


def _raw_bytes(value: Any, dtype: np.dtype[Any], node: str) -> Any:
    """Return lists with bytes that fit, and with elements of the dtype in place of all other values.

    NumPy would truncate longer bytes to the dtype's length, and take the memory of its own scalars and arrays.
    """
    if isinstance(value, list | tuple):
        # As most are: nothing to do for each.
        kinds = set(map(type, value))
        if kinds == {bytes} and max(map(len, value)) <= dtype.itemsize:
            return value
        if kinds == {np.void} and set(map(attrgetter("dtype"), value)) == {dtype}:
            return value
        return [_raw_bytes(item, dtype, node) for item in value]
    if isinstance(value, np.void) and value.dtype.names is None:
        value = value.tobytes()
    if isinstance(value, bytes | bytearray):
        if len(value) > dtype.itemsize:
            raise ArgumentError(f"{node}: {value!r} cannot be stored as {dtype}: it has {len(value)} bytes")
        return bytes(value)
    return _converted(on_host(value, None, node), dtype, node)


def _objects(value: Any, ndim: int | None) -> npt.NDArray[Any]:
    """Return an object array: a list of lists of strings has two dimensions, and a string is one element."""
    items: list[Any] = [value]
    shape: list[int] = []
    while len(shape) < (MAX_NDIM if ndim is None else ndim):
        lengths = {len(item) if _is_row(item, list | tuple) else None for item in items}
        if len(lengths) != 1 or None in lengths:
            break
        shape.append(len(items[0]))
        items = [part for item in items for part in item]
    return as_objects(items, tuple(shape))


def _is_row(value: Any, kinds: Any) -> bool:
    return isinstance(value, kinds) or (isinstance(value, np.ndarray) and value.ndim > 0)


def _records(value: Any, dtype: np.dtype[Any], node: str) -> npt.NDArray[Any]:
    """Return records: lists are dimensions, tuples are records, and any other value is given to every field."""
    items: list[Any] = [value]
    shape: list[int] = []
    while any(_is_row(item, list) for item in items):
        lengths = {len(item) if _is_row(item, list) else None for item in items}
        if len(lengths) != 1 or len(shape) == MAX_NDIM:
            raise ArgumentError(
                f"{node}: nested lists of records must have equal lengths, and records (tuples) at one depth only"
            )
        shape.append(len(items[0]))
        items = [part for item in items for part in item]
    return _of_records(items, dtype, node).reshape(shape)


def _of_records(items: list[Any], dtype: np.dtype[Any], node: str) -> npt.NDArray[Any]:
    result = np.zeros(len(items), dtype)
    names = dtype.names or ()
    rows = [_parts(item, dtype, node) for item in items]
    for i, name in enumerate(names if items else ()):
        field, where = dtype[name], f"{node}: field {name!r}"
        column = [row[i] for row in rows]
        if field.subdtype is None:
            result[name] = fitted(on_host(column, field, where), field, (len(column),), where)
            continue
        base, shape = field.subdtype
        for target, part in zip(result[name], column, strict=True):
            target[...] = fitted(on_host(part, base, where), base, shape, where)
    return result


def _parts(item: Any, dtype: np.dtype[Any], node: str) -> tuple[Any, ...]:
    """Return the values for the fields of a record."""
    number = len(dtype.names or ())
    if isinstance(item, np.void) and item.dtype.names:
        _check_fields(item.dtype, dtype, node)
        # Not with item(): Python values of dates and times lose their unit.
        item = tuple(item[name] for name in item.dtype.names)
    if not isinstance(item, tuple):
        return (item,) * number
    if len(item) != number:
        raise ArgumentError(f"{node}: {quote(item)} has {len(item)} entries, but elements have {number} fields")
    return item


def _check_fields(source: np.dtype[Any], dtype: np.dtype[Any], node: str) -> None:
    """Raise unless the fields of one record type are, in their order, those of another one.

    Entirely different names are matched by position, as NumPy does; the same names in another order are refused.
    """
    here, there = source.names or (), dtype.names or ()
    if here == there:
        return
    moved = any(name in there and (i >= len(there) or there[i] != name) for i, name in enumerate(here))
    if moved or len(here) != len(there):
        raise ArgumentError(f"{node}: elements with the fields {', '.join(here)} are not elements of {dtype}")


def _by_field(array: npt.NDArray[Any], dtype: np.dtype[Any], node: str) -> npt.NDArray[Any]:
    """Return records converted to another record type, field by field in their order, as NumPy does."""
    _check_fields(array.dtype, dtype, node)
    here, there = array.dtype.names or (), dtype.names or ()
    result = np.zeros(array.shape, dtype)
    for source, name in zip(here, there, strict=True):
        base, shape = dtype[name].subdtype or (dtype[name], ())
        if array.dtype[source].shape != shape:
            raise ArgumentError(
                f"{node}: field {name!r} holds arrays of shape {shape}, not {array.dtype[source].shape}"
            )
        result[name] = _converted(array[source], base, f"{node}: field {name!r}")
    return result


def _rows(objects: npt.NDArray[Any], object_type: ObjectType, node: str) -> npt.NDArray[Any]:
    """Return the elements of ``vlen-array``: arrays of one dimension, in its dtype."""
    dtype = np.dtype(object_type.configuration["dtype"])
    rows = objects.ravel().tolist()
    alike: dict[Any, list[int]] = {}
    others: list[int] = []
    for i, item in enumerate(rows):
        kind = _kind_of_row(item)
        # A name would be equal to the dtype that it stands for.
        if (isinstance(kind, np.dtype) and kind == dtype) or object_type.is_missing(item):
            continue
        # Those of one kind are converted together.
        (others if kind is None else alike.setdefault(kind, [])).append(i)
    for some in alike.values():
        items = [rows[i] for i in some]
        together = np.concatenate(items) if isinstance(items[0], np.ndarray) else [n for item in items for n in item]
        try:
            converted = _row(together, dtype, node)
        except ArgumentError:
            # The message is to name the row.
            others.extend(some)
            continue
        ends = np.cumsum([len(item) for item in items]).tolist()
        for i, begin, end in zip(some, [0, *ends], ends, strict=False):
            rows[i] = converted[begin:end]
    for i in sorted(others):
        index = tuple(int(n) for n in np.unravel_index(i, objects.shape)) if objects.ndim else ()
        rows[i] = _row(rows[i], dtype, f"{node}: element {index}" if index else node)
    return as_objects(rows, objects.shape)


def _kind_of_row(item: Any) -> Any:
    """Return the dtype of an array of one dimension, ``"int"`` or ``"float"`` for a list of those; None for others."""
    if type(item) is np.ndarray:
        return None if item.ndim != 1 or item.dtype.hasobject else item.dtype
    kinds = set(map(type, item)) if type(item) is list else set()
    return "int" if kinds == {int} else "float" if kinds == {float} else None


def _row(item: Any, dtype: np.dtype[Any], node: str) -> npt.NDArray[Any]:
    if item is None:
        raise ArgumentError(f"{node}: None is not an array of {dtype}; use an empty list for no elements")
    row = _converted(on_host(item, native(dtype), node), native(dtype), node)
    if row.ndim > 1:
        raise ArgumentError(f"{node}: an array of shape {row.shape} cannot be stored: the codec holds one dimension")
    # A number is an array of one.
    return row.reshape(-1).astype(dtype, copy=False)


def _converted(array: npt.NDArray[Any], dtype: np.dtype[Any], node: str) -> npt.NDArray[Any]:
    """Return elements converted to a dtype; raise if one would change its value."""
    if dtype.hasobject:
        return array.astype(dtype, copy=False)
    if array.dtype == dtype:
        return array
    if not array.size:
        # No element can be wrong; and of an empty list, NumPy makes floating-point numbers.
        return np.empty(array.shape, dtype)
    if dtype.fields is not None and array.dtype.fields is not None:
        return _by_field(array, dtype, node)
    if array.dtype.hasobject:
        if dtype.fields is not None:
            return _of_records(list(array.flat), dtype, node).reshape(array.shape)
        return _converted(_plain(array, dtype, node), dtype, node)
    return cast(array, dtype, node)


def _have_zones(array: npt.NDArray[Any]) -> bool:
    """Return whether moments among objects have a time zone, for which NumPy would take UTC."""
    return any(getattr(item, "tzinfo", None) is not None for item in array.flat)


def _check_texts(items: npt.NDArray[Any], dtype: np.dtype[Any], node: str) -> None:
    """Raise if there is something else among strings and bytes; NumPy would make strings of it."""
    for item in items.flat:
        if not isinstance(item, str | bytes):
            raise ArgumentError(f"{node}: {quote(item)} is not an element of {dtype}")


def _plain(array: npt.NDArray[Any], dtype: np.dtype[Any], node: str) -> npt.NDArray[Any]:
    """Return objects as elements of the dtype that NumPy infers."""
    if dtype.kind in "SU":
        _check_texts(array, dtype, node)
    try:
        plain = np.asarray(array.tolist())
    # Objects may raise anything when NumPy inspects them.
    except Exception as error:
        pass_on(error)
        raise refused(array, dtype, node) from None
    if plain.shape != array.shape:
        raise refused(array, dtype, node)
    if dtype.kind in "mM" and (plain.dtype.kind == dtype.kind or (plain.dtype.hasobject and not _have_zones(array))):
        try:
            times = times_of(array.tolist(), dtype, partial(_converted, dtype=dtype, node=node))
        except ArgumentError:
            raise
        # An integer beside moments has no unit.
        except (ValueError, OverflowError):
            raise refused(array, dtype, node) from None
        if times is not None:
            return times
    if not plain.dtype.hasobject:
        return whole_numbers(array, plain, dtype, node) if may_be_rounded(plain, dtype) else plain
    large = [item for item in array.flat if type(item) is int and not -(2**63) <= item < 2**64]
    if not large or not all(type(item) in (int, float, bool) for item in array.flat):
        raise refused(array, dtype, node)
    # Integers that no NumPy integer type holds; floating-point types round them like any other number.
    try:
        if kind_of(dtype) in "fc":
            return array.astype(np.float64)
    except OverflowError:
        pass
    raise ArgumentError(f"{node}: {quote(large[0])} is out of the range of {dtype}") from None
