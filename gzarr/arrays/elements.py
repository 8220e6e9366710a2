"""Conversion of values to be written, from any array library, to elements of an array. No value is ever altered."""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from ..documents.json import quote
from ..dtypes.masks import has_masked, is_masked_array, refuse_masked, unmasked
from ..dtypes.nulls import as_masked, is_of_dask
from ..dtypes.properties import kind_of, native
from ..errors import ArgumentError, DeviceError, GzarrError, StoreError, with_errno
from ..metadata.parts import MAX_NDIM
from ..reasons import pass_on, reason_of
from .casting import cast, casts_safely, refused
from .host_copies import host_copy
from .mixed_values import may_be_rounded, times_of, whole_numbers
from .not_arrays import refuse_mappings, refuse_rounded, refuse_without_elements
from .objects import ObjectType, as_objects, checked, object_type_of
from .tensors import exported_tensor, is_tensor, tensor_on_host

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from ..metadata.model import ArrayMetadata
    from .outputs import DeviceResults


def as_elements(
    value: Any, dtype: np.dtype[Any], shape: tuple[int, ...], node: str, object_type: ObjectType | None = None
) -> npt.NDArray[Any]:
    """Return a value as an array of a dtype and shape.

    Parameters
    ----------
    value
        Scalar or array: NumPy, CuPy (copied to the host), or any object with ``__array__`` or ``__dlpack__``.
    dtype
        Target dtype, in native byte order.
    shape
        Target shape, in elements. As in NumPy, the value may have additional leading dimensions of length 1.
    node
        Path of the array, for messages.
    object_type
        Type of elements that are Python objects or categories; None for any.

    Returns
    -------
    An array that may share memory with the value, with strides of 0 where it was broadcast.

    Raises
    ------
    ArgumentError
        If the value does not broadcast, or if ``dtype`` cannot hold one of its elements.
    ChunkError, StoreError
        If the value is an array in a store or a file, and cannot be read.
    """
    # A list or an array can itself be an element, but not where elements are strings.
    ndim = None if object_type is None or object_type.is_text else len(shape)
    array = on_host(value, dtype, node, ndim)
    if ndim == 0 and array.ndim and not array.dtype.hasobject:
        array = as_objects([array], ())
    while array.ndim > len(shape) and array.shape[0] == 1:
        # The ellipsis keeps it an array even without dimensions.
        array = array[0, ...]
    # Checked and converted before broadcasting, so that a scalar is only one element.
    elements = _as_read(array, dtype, node, object_type)
    try:
        return np.broadcast_to(elements, shape)
    except ValueError as error:
        raise _misfit(node, array.shape, shape) from error


def all_elements(
    values: Sequence[Any],
    dtype: np.dtype[Any],
    shapes: Sequence[tuple[int, ...]],
    node: str,
    memory: DeviceResults | None,
    object_type: ObjectType | None = None,
) -> tuple[list[Any], DeviceResults | None]:
    """Return several values as arrays, either all on the device or all in host memory.

    They stay on the device if all of them are there and their dtypes cast safely to ``dtype``. Otherwise the elements
    have to be checked one by one, which is done in host memory.

    Parameters
    ----------
    values, dtype, shapes, node, object_type
        As for :func:`as_elements`; one shape for each value.
    memory
        Device of the array, and the stream on which values on that device can be read; None for the CPU.

    Returns
    -------
    The arrays, and ``memory`` if they are on the device, else None.

    Raises
    ------
    ArgumentError
        As for :func:`as_elements`.
    """
    if memory is not None:
        found = [exported(value, memory, node) for value in values]
        if all(array is not None and casts_safely(array.dtype, dtype) for array in found):
            pairs = zip(found, shapes, strict=True)
            return [_on_device(array, dtype, shape, memory, node) for array, shape in pairs], memory
        with memory.device as device:
            values = [
                value if array is None else device.to_host(array, memory.stream)
                for value, array in zip(values, found, strict=True)
            ]
    return [
        as_elements(value, dtype, shape, node, object_type) for value, shape in zip(values, shapes, strict=True)
    ], None


def all_of(data: Any, metadata: ArrayMetadata, node: str, *, fill_masked: bool = False) -> Any:
    """Return data as the elements of a whole array; data on a device stay there if they have the array's dtype."""
    if fill_masked:
        data = filled(data, metadata.dtype, metadata.absent_value, node, object_type_of(metadata))
    found = type_on_device(data)
    # NumPy treats None as its default dtype, so a comparison alone would not do.
    if found is not None and found == metadata.dtype:
        return data
    return as_elements(data, metadata.dtype, metadata.shape, node, object_type_of(metadata))


def _misfit(node: str, given: tuple[int, ...], shape: tuple[int, ...]) -> ArgumentError:
    """Return the error for an array that could not be broadcast to another shape."""
    pairs = zip(reversed(given), reversed(shape), strict=False)
    if len(given) <= len(shape) and all(n in (1, wanted) for n, wanted in pairs):
        return ArgumentError(f"{node}: a region of {shape} has more elements than can be written at once; write parts")
    return ArgumentError(f"{node}: a value of shape {given} does not broadcast to {shape}")


def type_on_device(value: Any) -> np.dtype[Any] | None:
    """Return the dtype of a CUDA array of any library, or None for any other value.

    Raises
    ------
    ArgumentError
        If its library refuses to export the array.
    """
    dtype = None
    try:
        interface = getattr(value, "__cuda_array_interface__", None)
        if interface is not None and is_tensor(value):
            dtype = exported_tensor(value)[1]
    # For example PyTorch, for a tensor that requires gradients.
    except Exception as error:
        raise ArgumentError(f"a value of type {type(value).__name__} cannot be taken: {reason_of(error)}") from error
    if interface is None:
        return None
    if dtype is not None:
        return dtype
    return value.dtype if isinstance(value.dtype, np.dtype) else np.dtype(interface["typestr"])


def as_data(
    value: Any, dtype: np.dtype[Any] | None, node: str, ndim: int | None = None, *, fill_masked: bool = False
) -> Any:
    """Return a value as an array-like with a shape and a NumPy dtype.

    Parameters
    ----------
    value
        Any value. Arrays of numbers, in memory or not, are returned unchanged, and so are arrays on a device.
    dtype
        Intended dtype of the elements; None to take it from the value.
    node
        Path of the array, for messages.
    ndim
        Number of dimensions, if known: lists nested more deeply are elements.
    fill_masked
        Whether a masked array may be returned, also of nulls, whose masked elements will be filled (:func:`filled`).

    Raises
    ------
    ArgumentError
        If the value is ragged, has elements that are not of ``dtype`` or masked ones, or is not exported by its
        library.
    """
    found = getattr(value, "dtype", None)
    if (
        isinstance(found, np.dtype)
        and getattr(value, "shape", None) is not None
        and (isinstance(value, np.ndarray) or not found.hasobject)
    ):
        if not fill_masked:
            refuse_masked(value, node)
        return value
    if type_on_device(value) is not None:
        return value
    return _taken(value, dtype, node, ndim, fills=True) if fill_masked else on_host(value, dtype, node, ndim)


def with_type(data: Any, node: str) -> tuple[Any, np.dtype[Any]]:
    """Return data of :func:`as_data`, and the dtype of its elements, which need not be the one that it states.

    Variables of netCDF4 state the dtype of packed numbers, and proxies of nibabel that of numbers to be scaled. A
    part without elements tells what they give; where it does not, the data are returned in memory.

    Parameters
    ----------
    data
        The data.
    node
        Path of the array, for messages.

    Raises
    ------
    ArgumentError
        If the data have to be read, and cannot be.
    """
    found = type_on_device(data)
    if found is not None:
        return data, found
    if _states_its_type(data):
        return data, data.dtype
    part: Any = None
    try:
        part = data[:0]
        if not isinstance(part, np.ndarray) and hasattr(part, "__array__"):
            part = np.asarray(part)
    # Other libraries may raise anything.
    except Exception as error:
        pass_on(error)
    if isinstance(part, np.ndarray):
        alike = part.dtype == data.dtype or part.dtype.kind in "biufcmM"
        # How long text is, elements tell; and rows of characters may become text of one dimension less.
        if alike and part.ndim == len(data.shape):
            return data, part.dtype
    elif not hasattr(data, "__array__"):
        # Sparse matrices, for example, are refused where their elements are needed.
        return data, data.dtype
    stated, data = data.dtype, _taken(data, None, node, None)
    # NumPy has one masked constant, for elements of any dtype.
    return data, stated if data is np.ma.masked else data.dtype


def exported(value: Any, memory: DeviceResults, node: str) -> Any:
    """Return a value as an array on the device, or None if it is elsewhere."""
    dtype = None
    try:
        if is_tensor(value):
            value, dtype = exported_tensor(value)
        with memory.device as device:
            array = device.as_array(value, memory.stream)
        return array if array is None or dtype is None else array.view(dtype)
    except (DeviceError, MemoryError):
        raise
    # Other libraries may raise anything.
    except Exception as error:
        raise ArgumentError(
            f"{node}: a value of type {type(value).__name__} cannot be taken from its library: {reason_of(error)}"
        ) from error


def _on_device(array: Any, dtype: np.dtype[Any], shape: tuple[int, ...], memory: DeviceResults, node: str) -> Any:
    while array.ndim > len(shape) and array.shape[0] == 1:
        array = array[0]
    with memory.device as device:
        if array.dtype != dtype:
            array = device.converted(array, dtype, memory.stream)
        try:
            return device.broadcast(array, shape)
        except ValueError as error:
            raise _misfit(node, array.shape, shape) from error


def on_host(value: Any, dtype: np.dtype[Any] | None, node: str, ndim: int | None = None) -> npt.NDArray[Any]:
    """Return a value as an array in host memory, as :func:`as_data`; its dtype may differ from ``dtype``."""
    return unmasked(_taken(value, dtype, node, ndim), node, value)


def in_numpy(value: Any) -> npt.NDArray[Any]:
    """Return what NumPy makes of a value; of tensors of bfloat16 too, and of those on a device.

    Raises
    ------
    TypeError, ValueError, OverflowError
        If NumPy, or the library of the value, makes no array of it.
    """
    try:
        return tensor_on_host(value) if is_tensor(value) else np.asarray(value)
    # PyTorch's own, for example of a tensor that requires gradients, also in a list.
    except RuntimeError as error:
        raise TypeError(reason_of(error)) from error


def filled(value: Any, dtype: np.dtype[Any], fill: Any, node: str, object_type: ObjectType | None = None) -> Any:
    """Return a value with ``fill`` in place of its masked elements and nulls; any other value unchanged.

    Parameters
    ----------
    value, dtype, node, object_type
        As for :func:`as_elements`.
    fill
        Element of ``dtype``; None for zero.

    Raises
    ------
    ArgumentError
        If ``dtype`` cannot hold an element that is not masked, or if only some fields of a record are masked.
    """
    if not is_masked_array(value):
        if type_on_device(value) is not None or not (hasattr(value, "__array__") or _is_indexed(value)):
            return value
        value = _taken(value, dtype, node, None, fills=True)
    if not has_masked(value):
        return value
    mask, elements = np.ma.getmaskarray(value), np.array(np.ma.getdata(value))
    if mask.dtype != bool:
        raise ArgumentError(f"{node}: fields of records are masked; fill them with value.filled(...)")
    # What is below the mask need not be an element of the dtype.
    fill = np.zeros((), dtype)[()] if fill is None else fill
    elements[mask] = fill if elements.dtype.hasobject else np.zeros((), elements.dtype)
    elements = np.array(_as_read(elements, dtype, node, object_type))
    elements[mask] = fill
    return elements


def _taken(
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
            if _is_indexed(value):
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


def _is_indexed(value: Any) -> bool:
    """Return whether a value is an array that is read by indexing it, like those in files of HDF5."""
    return (
        hasattr(value, "shape")
        and hasattr(value, "dtype")
        and hasattr(value, "__getitem__")
        and not _states_its_type(value)
    )


def _states_its_type(value: Any) -> bool:
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
            result[name] = as_elements(column, field, (len(column),), where)
            continue
        base, shape = field.subdtype
        for target, part in zip(result[name], column, strict=True):
            target[...] = as_elements(part, base, shape, where)
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


def _as_read(
    array: npt.NDArray[Any], dtype: np.dtype[Any], node: str, object_type: ObjectType | None
) -> npt.NDArray[Any]:
    """Return elements converted to a dtype, as the array's codec will read them back."""
    elements = _converted(array, dtype, node)
    if object_type is None:
        return elements
    return (_rows if object_type.codec == "vlen-array" else checked)(elements, object_type, node)


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
