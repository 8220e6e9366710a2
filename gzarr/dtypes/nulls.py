"""Nulls in tables and their columns, of pandas, polars or pyarrow: masks of another kind.

None of these libraries is imported: a column is known by its methods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt


class _Methods(NamedTuple):
    """Names of the methods of a column that tell which elements are null, leave them out, and replace them."""

    nulls: str
    others: str
    filling: str


_POLARS: Final = _Methods("is_null", "drop_nulls", "fill_null")
_LIBRARIES: Final = (
    # Of pandas, polars and pyarrow.
    _Methods("isna", "dropna", "fillna"),
    _POLARS,
    _Methods("is_null", "drop_null", "fill_null"),
)


def way_to_fill(value: object) -> str | None:
    """Return the call that replaces the nulls of a table or a column; None for other values."""
    if _is_struct(value):
        return f"value.struct.unnest().{_POLARS.filling}(...)"
    if _is_array(value):
        return f"value.reshape((-1,)).{_POLARS.filling}(...).reshape((*value.shape, *value.dtype.shape))"
    filling = next((one.filling for one in _LIBRARIES if hasattr(value, one.others)), None)
    # Tables of pyarrow do not have it themselves.
    return filling and f"{'value' if hasattr(value, filling) else 'column'}.{filling}(...)"


def has_nulls(value: object) -> bool:
    """Return whether a value in host memory is a table or a column with nulls, as :func:`as_masked` finds them."""
    value = _held(value)
    columns = columns_of(value)
    if columns is not None:
        return any(map(has_nulls, columns))
    rows = _rows(value)
    if rows is not None:
        return isinstance(rows, np.ma.MaskedArray)
    return _nulls(value) is not None and isinstance(_column(value), np.ma.MaskedArray)


def as_masked(value: Any) -> npt.NDArray[Any]:
    """Return a value with ``__array__`` as an array, masked where it is a table or a column with nulls.

    Their own conversion makes NaN of nulls, and floating-point numbers of the integers beside them. NaT of dates and
    times, and NaN where it is what a library has for nulls among floating-point numbers, are elements.

    Parameters
    ----------
    value
        Table, column or any other array, in host memory.

    Raises
    ------
    ValueError
        If moments have a time zone, or lists of any length have nulls in them: their own conversion drops the zone,
        and makes NaN of the nulls.
    """
    value = _held(value)
    columns = columns_of(value)
    if columns is None:
        return _column(value)
    if all(isinstance(getattr(column, "dtype", None), np.dtype) for column in columns):
        return np.asarray(value)
    arrays = [as_masked(column) for column in columns]
    alike = len({one.shape for one in arrays}) == 1
    if alike and any(isinstance(array, np.ma.MaskedArray) for array in arrays):
        return np.asanyarray(np.ma.stack(arrays, axis=1))
    array = np.asarray(value)
    if array.dtype.hasobject and alike and len({one.dtype for one in arrays}) == 1 and _is_number(arrays[0].dtype):
        # pandas makes objects of numbers of its own types; polars, of rows.
        return np.stack(arrays, axis=1)
    return array


def types_of(value: Any) -> list[np.dtype[Any]]:
    """Return the types of the columns of a table, or of the fields of structs; none for anything else."""
    columns = columns_of(value)
    if columns is None:
        return types_of(_elements(value[:0])) if _is_array(value) else []
    return [dtype for column in columns for dtype in types_of(column) or [np.asarray(column[:0]).dtype]]


def is_of_dask(value: Any) -> bool:
    """Return whether a value is computed by dask. What wraps other arrays may have dask's methods without a graph."""
    graph = getattr(value, "__dask_graph__", None)
    return callable(graph) and hasattr(value, "compute") and graph() is not None


def columns_of(value: Any) -> list[Any] | None:
    """Return the columns of a table of pandas, polars or pyarrow in memory; None for anything else.

    A column of structs of polars is a table to NumPy: its columns are the fields.
    """
    if _is_struct(value):
        return list(value.struct.unnest().get_columns())
    # Elements of a column of pandas are attributes, too, by their labels.
    kind = type(value)
    if not hasattr(kind, "columns") or hasattr(value, "__dask_graph__"):
        return None
    if hasattr(kind, "iloc"):
        return [value.iloc[:, i] for i in range(value.shape[1])]
    if hasattr(kind, "get_columns"):
        return list(value.get_columns())
    return list(value.columns) if hasattr(kind, "drop_null") else None


def _held(value: Any) -> Any:
    """Return the column of pandas that xarray holds; other values as they are."""
    return value.data if hasattr(type(value), "dims") and hasattr(getattr(value, "dtype", None), "na_value") else value


def _is_array(column: Any) -> bool:
    """Return whether a value is a column of polars of arrays of one shape."""
    return _is_list(column) and hasattr(column.dtype, "shape")


def _is_list(column: Any) -> bool:
    """Return whether a value is a column of polars of lists, of one length or of any."""
    return hasattr(getattr(column, "dtype", None), "inner") and hasattr(type(column), _POLARS.others)


def _is_struct(column: Any) -> bool:
    """Return whether a value is a column of polars of structs."""
    dtype = getattr(column, "dtype", None)
    return hasattr(dtype, "fields") and not isinstance(dtype, np.dtype) and hasattr(type(column), _POLARS.others)


def _elements(column: Any) -> Any:
    """Return the elements of a column of polars of arrays as a column; those of null arrays are null."""
    return column.reshape((-1,))


def _in_arrow(column: Any) -> Any:
    """Return what a column of pandas of a type of pyarrow holds; other values as they are."""
    if not hasattr(getattr(column, "dtype", None), "pyarrow_dtype"):
        return column
    return getattr(column, "array", column).__arrow_array__()


def _rows(column: Any) -> npt.NDArray[Any] | None:
    """Return the elements of a column of rows: of lists of one length, or of tensors of one shape; None for others.

    Their own conversion makes objects of them, or NaN of nulls inside of them.
    """
    if _is_array(column):
        values = as_masked(_elements(column))
        return values.reshape(len(column), *column.dtype.shape, *values.shape[1:])
    column = _in_arrow(column)
    kind: Any = getattr(column, "type", None)
    is_tensors = hasattr(kind, "permutation") and hasattr(kind, "storage_type")
    # Scalars have such types, too.
    if not hasattr(column, "null_count") or not (is_tensors or hasattr(kind, "list_size")):
        return None
    if hasattr(column, "combine_chunks"):
        column = column.combine_chunks()
    if is_tensors:
        rows = as_masked(column.storage)
        tensors = rows.reshape(len(rows), *kind.shape)
        return tensors if kind.permutation is None else tensors.transpose(0, *(d + 1 for d in kind.permutation))
    # Lists that are null have no values here.
    values = as_masked(column.flatten())
    values = values.reshape(len(column) - column.null_count, kind.list_size, *values.shape[1:])
    return _with_nulls(values, np.asarray(column.is_null(), bool)) if column.null_count else values


def _with_nulls(others: npt.NDArray[Any], nulls: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    """Return the elements of a column, or its rows, where it has no nulls, with masked ones for these."""
    elements = np.ma.MaskedArray(np.zeros((*nulls.shape, *others.shape[1:]), others.dtype), mask=True)
    elements[~nulls] = others
    return elements


def _column(column: Any) -> npt.NDArray[Any]:
    rows = _rows(column)
    if rows is not None:
        return rows
    array = np.asarray(column)
    if array.dtype.kind in "mM":
        _refuse_zone(column)
        return array
    if array.dtype.hasobject:
        _refuse_nulls_in_lists(column)
    found = _nulls(column)
    if found is None:
        return array
    methods, mask = found
    others = np.asarray(getattr(column, methods.others)())
    own = getattr(getattr(column, "dtype", None), "na_value", None)
    if isinstance(own, float) and array.dtype.kind in "fc" and others.dtype.kind in "fc":
        return array
    return _with_nulls(others, mask)


def _nulls(column: Any) -> tuple[_Methods, npt.NDArray[np.bool_]] | None:
    """Return where a column is null; None if it has no nulls, or none but NaN and NaT in types of NumPy."""
    dtype = getattr(column, "dtype", None)
    if isinstance(dtype, np.dtype) or hasattr(column, "__dask_graph__"):
        return None
    methods = next((one for one in _LIBRARIES if hasattr(column, one.nulls) and hasattr(column, one.others)), None)
    if methods is None or type(getattr(dtype, "na_value", None)).__name__ == "NaTType":
        return None
    # What libraries that count them know already.
    if hasattr(type(column), "null_count"):
        number = column.null_count
        if not (number() if callable(number) else number):
            return None
    mask = np.asarray(getattr(column, methods.nulls)(), bool)
    return (methods, mask) if mask.any() else None


def _refuse_zone(column: Any) -> None:
    """Refuse moments with a time zone, of which polars and pyarrow make UTC; pandas makes objects."""
    zone = getattr(getattr(column, "dtype", None), "time_zone", None)
    utc = "dt.convert_time_zone('UTC').dt.replace_time_zone(None)"
    if zone is None:
        kind = getattr(column, "type", None)
        zone, utc = getattr(kind, "tz", None), f"cast(pyarrow.timestamp({getattr(kind, 'unit', None)!r}))"
    if zone is not None:
        raise ValueError(f"its times are in {zone}, and an array has no time zones: take UTC, with column.{utc}")


def _refuse_nulls_in_lists(column: Any) -> None:
    """Refuse lists of any length with nulls in them: they would be arrays with NaN, and integers would be rounded."""
    if _is_list(column):
        # Lists without elements would become nulls.
        elements, rows = column.filter(column.list.len() > 0).explode(), "list.to_array(n)"
    else:
        held = _in_arrow(column)
        if not hasattr(getattr(held, "type", None), "value_field") or not hasattr(held, "null_count"):
            return
        elements = (held.combine_chunks() if hasattr(held, "combine_chunks") else held).flatten()
        rows = "cast(pyarrow.list_(column.type.value_type, n))"
        if held is not column:
            rows = "astype(pandas.ArrowDtype(pyarrow.list_(column.dtype.pyarrow_dtype.value_type, n)))"
    if has_nulls(elements):
        raise ValueError(
            f"there are nulls in its lists; if all have one length n, pass rows, column.{rows}, and say what the nulls "
            "become"
        )


def _is_number(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "biufcmM"
