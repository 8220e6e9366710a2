"""From data stores to datasets and trees: decoding by CF conventions, by xarray on the host and by gzarr on devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import xarray as xr
from xarray import conventions

import gzarr

from .xarray_device import DeviceVariable, Masking, belongs_on_device

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .xarray_store import GzarrStore


def decoded(
    store: GzarrStore,
    *,
    mask_and_scale: bool | Mapping[str, bool] = True,
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
    dropped = {drop_variables} if isinstance(drop_variables, str) else set(drop_variables or ())

    def is_masked(name: str | None) -> bool:
        return bool(mask_and_scale.get(name, True) if isinstance(mask_and_scale, Mapping) else mask_and_scale)

    stored: dict[str, xr.Variable] = {}
    on_device: dict[str, tuple[gzarr.Array, dict[str, Any]]] = {}
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
            # xarray takes attributes away when it decodes.
            on_device[name] = array, dict(stored[name].attrs)
    variables, attributes, names = conventions.decode_cf_variables(
        stored, store.get_attrs(), mask_and_scale=mask_and_scale, drop_variables=dropped, **options
    )
    coordinates, data = {}, {}
    for name, variable in variables.items():
        if name in names or variable.dims == (name,):
            coordinates[name] = variable
        elif name in on_device and belongs_on_device(stored[name], variable):
            array, raw = on_device[name]
            masking = Masking.of(raw, array.dtype, variable) if is_masked(name) else Masking(variable.dtype)
            data[name] = DeviceVariable.decoded(array, masking, variable)
        else:
            data[name] = variable
    # Without indexes: xarray makes them.
    dataset = xr.Dataset(data, coords=xr.Coordinates(coordinates, indexes={}), attrs=attributes)
    dataset.set_close(store.close)
    return dataset


def tree(datasets: Mapping[str, xr.Dataset]) -> xr.DataTree:
    """Return the tree of the datasets of groups, by path."""
    try:
        found = xr.DataTree.from_dict(datasets)
    except Exception:
        for dataset in datasets.values():
            dataset.close()
        raise
    for path, dataset in datasets.items():
        found[path].set_close(dataset._close)
    return found
