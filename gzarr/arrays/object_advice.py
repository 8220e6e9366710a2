"""Data of Python objects, of which the type of an array's elements cannot be taken: what they are, and what to do."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from numbers import Number
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..documents.json import quote
from ..errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

_NUMBERS: Final = (int, float, complex, np.number)
#: What all types have.
_AS_TEXT: Final = "store them as text: np.asarray(values).astype(str)"


def objects_refused(data: npt.NDArray[Any], given: Any, node: str) -> ArgumentError:
    """Return the error for data without a type of elements that an array can have.

    Parameters
    ----------
    data
        The data, objects or records with some.
    given
        What the data were made of: its methods are what is advised.
    node
        Beginning of the message.
    """
    if data.dtype.names:
        return ArgumentError(
            f"{node}: fields of records are Python objects; store each field as an array of a group: "
            "gzarr.save(store, named={name: values[name] for name in values.dtype.names})"
        )
    items = data.ravel().tolist()
    others = [item for item in items if not isinstance(item, str | bytes) and not is_missing(item)]
    first = next(iter(others), None)
    if first is None:
        first = next((item for item in items if is_missing(item)), items[0])
    return ArgumentError(
        f"{node}: elements are Python objects, such as {quote(first)} of type {type(first).__name__}; "
        f"{_advice(items, others, given)}"
    )


def _advice(items: Sequence[Any], others: Sequence[Any], given: Any) -> str:
    """Return what to do with elements, of which ``others`` are neither text nor missing."""
    present = [item for item in items if not is_missing(item)]
    if not present:
        return "say what type they are, with dtype=, and give values of it"
    first = present[0]
    if not others:
        if len({isinstance(item, str) for item in present}) == 2:
            return "some are text, some bytes: decode the bytes first, with item.decode()"
        return missing_text(str if isinstance(first, str) else bytes, given)
    if len(others) < len(present):
        return f"they are of several types; {_AS_TEXT}"
    if any(all(isinstance(item, kind) for item in present) for kind in (datetime.date, datetime.timedelta)):
        return _times(present, given)
    if hasattr(first, "to_timestamp") and (hasattr(given, "dt") or hasattr(given, "freq")):
        return f"take moments: values{_accessor(given)}.to_timestamp()"
    if all(isinstance(item, bool | np.bool_) for item in present):
        return _filled("False", items)
    if all(isinstance(item, Number) for item in present):
        if len(present) < len(items) and all(isinstance(item, _NUMBERS) for item in present):
            return _filled("0", items)
        return f"round them: np.asarray(values, float), or {_AS_TEXT}"
    if hasattr(first, "collect") and len(items) == 1:
        return f"a {type(first).__name__} has no elements yet: pass what its collect() gives"
    if all(isinstance(item, np.ndarray) and item.shape == first.shape for item in items):
        return "they are arrays of one shape: pass np.stack(values)"
    if isinstance(first, list | tuple | np.ndarray | Mapping):
        return "that takes zarr_format=2, dtype=object and a filter such as filters=[{'id': 'json2'}]"
    return _AS_TEXT


def missing_text(kind: type[str] | type[bytes], given: Any = None) -> str:
    """Return how missing values become texts."""
    if hasattr(given, "fillna"):
        return f"say what missing values become, such as values.fillna({kind()!r})"
    items = f"[item if isinstance(item, {kind.__name__}) else {kind()!r} for item in np.asarray(values, object)]"
    return f"say what missing values become, such as {items}"


def _filled(fill: str, items: Sequence[Any]) -> str:
    """Return how missing values become numbers or truth values."""
    test = "item is None" if all(item is None for item in items if is_missing(item)) else "pd.isna(item)"
    return f"say what missing values become, such as [{fill} if {test} else item for item in values]"


def _times(present: Sequence[Any], given: Any) -> str:
    """Return what to do with dates, times and durations of Python or pandas."""
    kind = "m" if isinstance(present[0], datetime.timedelta) else "M"
    # pandas' own have a unit.
    units = {getattr(item, "asm8", np.empty((), f"{kind}8[{_unit(item)}]")).dtype for item in present}
    dtype = f'dtype="{kind}8[{np.datetime_data(np.result_type(*units))[0]}]"'
    if all(getattr(item, "tzinfo", None) is None for item in present):
        return f"pass {dtype}"
    if hasattr(given, "dt") or hasattr(given, "tz"):
        utc = f"values{_accessor(given)}.tz_convert(None)"
    else:
        item = "item.astimezone(datetime.timezone.utc).replace(tzinfo=None)"
        utc = f"[{item} for item in values], and {dtype}"
    return f"an array has no time zones: take UTC, with {utc}"


def _accessor(given: Any) -> str:
    """Return where a column of pandas has the methods of its times; its indexes have them themselves."""
    return ".dt" if hasattr(given, "dt") else ""


def _unit(item: Any) -> str:
    return "us" if isinstance(item, datetime.datetime | datetime.timedelta) else "D"


def is_missing(item: Any) -> bool:
    """Return whether an object stands for no value: None, NaN, or NA and NaT of pandas."""
    if item is None or type(item).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(item, float) and item != item
