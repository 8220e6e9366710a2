"""What xarray needs to know of a stored array besides its elements: dimensions, attributes, encoding."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any, Final

import numcodecs
from xarray.backends.zarr import FillValueCoder

import gzarr
from gzarr.documents.extension import extension
from gzarr.metadata.conventions import nczarr_dimension_names

from .xarray_arrays import dtype_in_xarray

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Attribute with the names of dimensions: xarray's and GDAL's.
DIMENSIONS: Final = "_ARRAY_DIMENSIONS"
#: Beginning of the names of codecs that zarr-python leaves to numcodecs, with names and configuration as they are.
_KEPT_AS_SPELLED: Final = "numcodecs."


class DimensionNamesError(gzarr.MetadataError, KeyError):
    """The metadata of an array lacks the names of its dimensions, without which it is no variable of xarray."""


class StoredCodec(dict[str, Any]):
    """A codec as documents of version 3 have it, which zarr-python takes.

    It equals zarr-python's codec, and has what configures it as attributes, as that has.
    """

    __hash__ = None

    def __getattr__(self, name: str) -> Any:
        try:
            return self["configuration"][name]
        except KeyError:
            raise AttributeError(f"the codec {self.get('name')!r} has no {name!r}") from None

    def __eq__(self, other: object) -> bool:
        to_dict = getattr(other, "to_dict", None)
        document = other if to_dict is None else to_dict()
        return isinstance(document, dict) and _normalized(self) == _normalized(document)

    def __ne__(self, other: object) -> bool:
        return not self == other


def _normalized(codec: dict[str, Any]) -> Any:
    """Return the document of a codec as it is once stored: an absent configuration is empty, tuples are lists."""
    return json.loads(json.dumps({"configuration": {}, **codec}))


def dimensions(array: gzarr.Array) -> tuple[str | None, ...]:
    """Return the names of the dimensions of an array.

    They are, in this order, the ``dimension_names`` of version 3, the attribute ``_ARRAY_DIMENSIONS``, and those of
    NCZarr.

    Raises
    ------
    DimensionNamesError
        If there are none.
    """
    names: Any = array.dimension_names
    if names is None:
        attributes = array.metadata.attributes
        names = attributes.get(DIMENSIONS)
        if names is None:
            names = nczarr_dimension_names(array.metadata)
    if isinstance(names, list | tuple) and len(names) == array.ndim:
        return tuple(names)
    if not array.ndim:
        return ()
    raise DimensionNamesError(
        f"{array.name} in {array.store!r} has no names for its dimensions, which are required for xarray to determine "
        f"variable dimensions: neither dimension_names, nor the attribute `{DIMENSIONS}`, nor NCZarr's; add them, or "
        f"pass drop_variables={array.basename!r}",
    )


def attributes(array: gzarr.Array, *, masked: bool) -> dict[str, Any]:
    """Return an array's attributes as a variable has them.

    Parameters
    ----------
    array
        The array.
    masked
        Whether the fill value is to be masked, as the attribute ``_FillValue`` says. Otherwise that attribute, if there
        is one, is in xarray's notation for JSON.
    """
    found = dict(array.metadata.attributes)
    if array.zarr_format != 3 or (array.dimension_names is None and array.ndim):
        # The dimensions' names may be among them.
        found = public(found)
        found.pop(DIMENSIONS, None)
    if masked:
        if array.fill_value is not None:
            found["_FillValue"] = array.fill_value
    elif "_FillValue" in found:
        found["_FillValue"] = _fill_value(found["_FillValue"], array)
    return found


def is_maskable(array: gzarr.Array) -> bool:
    """Return whether the fill value of an array may be masked: xarray cannot write that of strings to version 3."""
    return array.zarr_format != 3 or array.dtype.kind not in "OT"


def _fill_value(value: Any, array: gzarr.Array) -> Any:
    dtype = dtype_in_xarray(array)
    if dtype.kind in "fc" and isinstance(value, int | float) and not isinstance(value, bool):
        return dtype.type(value)  # Written by others: xarray writes base64.
    return FillValueCoder.decode(value, dtype)


def public(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes without those that NCZarr keeps to itself."""
    return {name: value for name, value in attributes.items() if name[:3].lower() != "_nc"}


class Encodings:
    """How arrays are stored, as :meth:`xarray.Dataset.to_zarr` takes it.

    Arrays of consolidated metadata share what they have in common, so that is found out once.
    """

    def __init__(self) -> None:
        # The values keep the keys' objects alive.
        self._layouts: dict[tuple[int, int], tuple[gzarr.Array, dict[str, Any]]] = {}

    def of(self, array: gzarr.Array, names: tuple[str | None, ...], *, masked: bool) -> dict[str, Any]:
        """Return the encoding of an array.

        Parameters
        ----------
        array
            The array.
        names
            Names of its dimensions.
        masked
            Whether the fill value is the attribute ``_FillValue``.
        """
        metadata = array.metadata
        key = id(metadata.chunk_grid), id(metadata.codecs)
        if key not in self._layouts:
            self._layouts[key] = array, _layout(array)
        found = self._layouts[key][1].copy()
        found["preferred_chunks"] = dict(zip(names, found["chunks"], strict=True))
        if array.zarr_format == 3 and not masked:
            found["fill_value"] = metadata.fill_value
        return found


def _layout(array: gzarr.Array) -> dict[str, Any]:
    """Return what does not depend on the attributes and the dimensions' names."""
    grid = tuple(
        axis.longest if axis.is_regular else _compact(axis.lengths_inside()) for axis in array.metadata.chunk_grid.axes
    )
    is_sharded = array.shards is not None
    found = {"chunks": array.chunks if is_sharded else grid, "shards": grid if is_sharded else None, **_codecs(array)}
    dtype = dtype_in_xarray(array)
    if dtype.kind == "T":
        found["dtype"] = dtype
    return found


def _compact(lengths: tuple[int, ...]) -> int | tuple[int, ...]:
    """Return the length of chunks that have one, but the last, else all lengths."""
    if not lengths:
        return (0,)  # dask takes no empty tuple.
    first = lengths[0]
    return first if set(lengths[:-1]) <= {first} and lengths[-1] <= first else lengths


def _codecs(array: gzarr.Array) -> dict[str, Any]:
    """Return the codecs of an array, in the way in which zarr-python takes them."""
    if array.zarr_format != 2:
        stored = _stored_codecs(array)
        at = len(array.filters)
        return {
            "filters": tuple(stored[:at]),
            "serializer": stored[at],
            "compressors": tuple(stored[at + 1 :]),
        }
    document = array.metadata.document[".zarray"]
    filters, compressor = document.get("filters") or (), document.get("compressor")
    return {
        "filters": tuple(_numcodecs(json.dumps(codec)) for codec in filters),
        "compressors": () if compressor is None else (_numcodecs(json.dumps(compressor)),),
    }


def _stored_codecs(array: gzarr.Array) -> list[StoredCodec]:
    """Return the codecs of a chunk (of an inner chunk, in a sharded array) as zarr-python has them."""
    codecs = [codec.to_json() for codec in (*array.filters, array.serializer, *array.compressors)]
    spelled = array.metadata.document.get("codecs", ()) if array.zarr_format == 3 else ()
    values = [extension(value, "$.codecs", "a codec") for value in spelled]
    if array.shards is not None:
        inner = [value for _, configuration in values for value in configuration.get("codecs", ())]
        values = [extension(value, "$.codecs", "a codec") for value in inner]
    # A codec that need not be understood may be left out, and one that is understood left unsaid.
    if len(values) == len(codecs):
        for i, (name, configuration) in enumerate(values):
            # It keeps these as they are spelled. Others have one name, and defaults that are filled in, there and here.
            if name.startswith(_KEPT_AS_SPELLED):
                codecs[i] = {"name": name, "configuration": configuration}
    return [StoredCodec(codec) for codec in codecs]


@functools.lru_cache
def _numcodecs(config: str) -> Any:
    return numcodecs.get_codec(json.loads(config))
