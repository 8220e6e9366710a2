"""From data stores to datasets and trees: decoding by CF conventions, by xarray on the host and by gzarr on devices."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import xarray as xr
from xarray import conventions
from xarray.coding.variables import CFMaskCoder, CFScaleOffsetCoder, EndianCoder
from xarray.core import indexing

import gzarr

from ..documents.json import quote
from .xarray_arrays import StoredArray
from .xarray_device import DeviceVariable, belongs_on_device
from .xarray_masking import DecodedArray, Masking

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TypeAlias

    from .xarray_store import GzarrStore

    Name: TypeAlias = "str | None"
    Variables: TypeAlias = "dict[Name, xr.Variable]"

#: Indexes of new datasets: none if xarray makes them later, which older releases do not; else the default ones.
_INDEXES: Final[dict[Any, Any] | None] = (
    {} if "create_default_indexes" in inspect.signature(xr.open_dataset).parameters else None
)
#: Attributes of numbers that mean more to xarray than masking and scaling.
_MEANINGFUL: Final = frozenset(("_Encoding", "_Unsigned", "dtype"))
#: Units of durations.
_DURATIONS: Final = frozenset(("days", "hours", "minutes", "seconds", "milliseconds", "microseconds", "nanoseconds"))
#: Attributes that decoding turns into encoding.
_DECODED: Final = frozenset(("_FillValue", "missing_value", "scale_factor", "add_offset"))
_SCALARS: Final = (int, float, np.number, type(None))


def decoded(
    store: GzarrStore,
    *,
    mask_and_scale: bool | Mapping[Any, bool] = True,
    drop_variables: str | Iterable[str] | None = None,
    **options: Any,
) -> xr.Dataset:
    """Return the dataset of a group.

    Parameters
    ----------
    store
        The group.
    mask_and_scale, **options
        Options of :func:`xarray.conventions.decode_cf_variables`.
    drop_variables
        Names of arrays to leave out. They may be ones that cannot be opened.
    """
    names = () if drop_variables is None else drop_variables
    try:
        dropped = {names} if isinstance(names, str) else set(names)
    except TypeError:
        raise gzarr.ArgumentError(
            f"drop_variables must be a name or a list of names, not {quote(drop_variables)}"
        ) from None

    def is_masked(name: Name) -> bool:
        return bool(mask_and_scale.get(name, True) if isinstance(mask_and_scale, Mapping) else mask_and_scale)

    stored: Variables = {}
    on_device: dict[Name, tuple[gzarr.Array, xr.Variable]] = {}
    for name, array in store.arrays():
        try:
            if isinstance(array, gzarr.MetadataError):
                raise array
            stored[name] = store.variable(array, decoded=is_masked(name))
        except gzarr.MetadataError:
            if name not in dropped:
                raise
            continue
        if array.device != "cpu":
            # Another one, for decoding changes what it is given.
            on_device[name] = array, store.variable(array, decoded=is_masked(name))
    variables, attributes, names = _decode(
        stored, store.get_attrs(), is_masked, mask_and_scale=mask_and_scale, drop_variables=dropped, **options
    )
    coordinates, data = {}, {}
    for name, variable in variables.items():
        if name in names or variable.dims == (name,):
            coordinates[name] = variable
            continue
        data[name] = variable
        if name in on_device and belongs_on_device(on_device[name][1], variable):
            array, raw = on_device[name]
            masking = Masking.of(raw, variable) if is_masked(name) else Masking(variable.dtype)
            data[name] = DeviceVariable.decoded(array, masking, variable)
    dataset = xr.Dataset(data, coords=xr.Coordinates(coordinates, indexes=_INDEXES), attrs=attributes)
    # There is nothing to close, but open_mfdataset calls what it finds.
    dataset.set_close(store.close)
    return dataset


class _Some(dict["Name", xr.Variable]):
    """Some of many variables, for a function that goes through these, and asks which others there are."""

    def __init__(self, some: Variables, many: Variables) -> None:
        super().__init__(some)
        self._many = many

    def __contains__(self, name: object) -> bool:
        return name in self._many


def _decode(
    stored: Variables,
    attributes: dict[str, Any],
    is_masked: Callable[[Name], bool],
    *,
    drop_variables: set[Any],
    decode_coords: Any = True,
    **options: Any,
) -> tuple[Variables, Any, set[Any]]:
    """Decode variables as :func:`xarray.conventions.decode_cf_variables` does.

    It does too much to be fast for hundreds of variables, most of which need little or nothing of it.
    """
    simple = {} if decode_coords == "all" else _simple(stored)
    rest = _Some({name: variable for name, variable in stored.items() if name not in simple}, stored)
    variables, attributes, names = conventions.decode_cf_variables(
        rest, attributes, drop_variables=drop_variables, decode_coords=decode_coords, **options
    )
    numbers = _Numbers()
    for name, variable in simple.items():
        if name in drop_variables:
            continue
        dtype = variable.dtype
        found = numbers.decode(variable, name) if is_masked(name) else variable
        if not found.dtype.isnative:
            # xarray forgets the stored byte order of what has kept it until then.
            found = _native(found)
            dtype = found.dtype
        found.encoding.setdefault("dtype", dtype)
        variables[name] = found
        if decode_coords and "coordinates" in variables[name].attrs:
            text = variables[name].attrs.pop("coordinates")
            variables[name].encoding["coordinates"] = text
            names.update(other for other in text.split() if other in stored)
    return {name: variables[name] for name in stored if name in variables}, attributes, names


def _native(variable: xr.Variable) -> xr.Variable:
    """Return a variable in native byte order; it may be the same object, changed."""
    lazy = variable._data
    if not isinstance(lazy, indexing.LazilyIndexedArray) or not isinstance(lazy.array, StoredArray):
        return EndianCoder().decode(variable)
    # As it is read, instead of from one byte order to the other and back.
    lazy.array = lazy.array.native()
    return variable


def _simple(stored: Variables) -> Variables:
    """Return the variables whose decoding is at most masking and scaling of numbers."""
    bounds = set()
    found = {}
    for name, variable in stored.items():
        kind = variable.dtype.kind
        if kind == "S":
            # Characters may be joined along a dimension, depending on all variables.
            return {}
        attributes = variable.attrs
        # Lists of numbers are the bounds of rasters, not the name of a variable.
        if isinstance(attributes.get("bounds"), str):
            bounds.add(attributes["bounds"])
        units = attributes.get("units", "")
        if (
            kind in "iufc"
            and type(units) is str
            and units not in _DURATIONS
            and "since" not in units
            and _MEANINGFUL.isdisjoint(attributes)
        ):
            found[name] = variable
    for name in bounds:
        # They may get units of times.
        found.pop(name, None)
    return found


class _Numbers:
    """Masks and scales variables of numbers as xarray's coders do, which are asked once for each kind of variable."""

    def __init__(self) -> None:
        self._dtypes: dict[tuple[Any, ...], np.dtype[Any]] = {}

    def decode(self, variable: xr.Variable, name: Name) -> xr.Variable:
        """Return a variable masked and scaled. It is the same object, changed, or a new one."""
        attributes = variable.attrs
        if _DECODED.isdisjoint(attributes):
            return variable
        fill, scale, offset = (attributes.get(key) for key in ("_FillValue", "scale_factor", "add_offset"))
        if "missing_value" in attributes or not all(isinstance(v, _SCALARS) for v in (fill, scale, offset)):
            return _by_xarray(variable, name)
        if fill is not None and fill != fill:
            if variable.dtype.kind not in "fc" or scale is not None or offset is not None:
                return _by_xarray(variable, name)
            variable.encoding["_FillValue"] = attributes.pop("_FillValue")
            return variable
        key = variable.dtype, fill is None, type(scale), type(offset)
        if key not in self._dtypes:
            copied = xr.Variable(variable.dims, variable._data, dict(attributes), fastpath=True)
            self._dtypes[key] = _by_xarray(copied, name).dtype
        fills = () if fill is None else (fill if isinstance(fill, np.generic) else np.asarray(fill)[()],)
        masking = Masking(self._dtypes[key], None, fills, scale, offset)
        # Those that are null say nothing, and are dropped.
        said = {key: attributes.pop(key, None) for key in _DECODED}
        variable.encoding.update((key, value) for key, value in said.items() if value is not None)
        # The variable is new, and nobody else's.
        lazy = variable._data
        lazy.array = DecodedArray(lazy.array.stored, masking)
        return variable


def _by_xarray(variable: xr.Variable, name: Name) -> xr.Variable:
    return CFScaleOffsetCoder().decode(CFMaskCoder().decode(variable, name=name), name=name)
