"""Creation of arrays and groups in a writable store. Everything is checked before anything is written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..arrays.array import Array
from ..arrays.elements import all_of, as_data, with_type
from ..arrays.not_arrays import refuse_tables
from ..arrays.object_advice import objects_refused
from ..arrays.objects import TEXTS, object_codec
from ..arrays.view import ArrayView
from ..documents.json import quote, unpaired_surrogates
from ..dtypes.properties import native
from ..errors import ArgumentError, GzarrError, NodeTypeError
from ..flags import check_flags, flag, optional_flag
from ..metadata.formats import FORMATS, check_zarr_format
from ..metadata.model import GroupMetadata
from ..metadata.to_documents import SourceNames, array_documents, check_shape, check_text, plain, with_attributes
from ..nodes.change import documents_first, hold_documents, reader_of, set_documents
from ..nodes.create import (
    abandon_array,
    begin_array,
    discarding,
    finish_array,
    put_in_place,
    stage_at,
    write_new_array,
    write_new_group,
)
from ..nodes.erasing import erase_node
from ..nodes.location import check_free, check_name, inspect_location
from ..stores.locks import claim, hold_node
from .array_spec import check_names, data_type, new_metadata
from .auto_chunks import mean_nbytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..engines.access.access import Missing, Verify
    from ..metadata.model import ArrayMetadata, ZarrFormat
    from ..nodes.location import Location
    from ..stores.base import Stage, Store
    from .keywords import ArrayArguments, NewArrayArguments


class NewArray:
    """An array that is to be created in a writable store; its arguments are checked, and nothing is written.

    Parameters
    ----------
    store, path, zarr_format
        Where it is created, and its format.
    arguments
        What describes it, its data, and how these are written.
    overwrite, device, missing, verify
        As for :func:`gzarr.create_array`.

    Attributes
    ----------
    array
        The array, as it will be, unless another hierarchy of a draft is created around it before it is.
    """

    def __init__(
        self,
        store: Store,
        path: str,
        zarr_format: ZarrFormat,
        arguments: NewArrayArguments,
        *,
        overwrite: bool,
        device: str,
        missing: Missing = "fill",
        verify: Verify = "none",
    ) -> None:
        check_zarr_format(zarr_format, new=True)
        # What can be iterated over once is looked at several times.
        describing: dict[str, Any] = {
            name: list(value) if name != "data" and isinstance(value, Iterator) else value
            for name, value in arguments.items()
        }
        shape, data = describing.pop("shape", None), describing.pop("data", None)
        fill_masked = flag("fill_masked", describing.pop("fill_masked", False))
        write_empty_chunks = optional_flag("write_empty_chunks", describing.pop("write_empty_chunks", None))
        check_flags(overwrite=overwrite)
        # Here, for some are arguments of functions that get them.
        check_names(describing)
        described = cast("ArrayArguments", describing)
        if data is not None:
            data, shape, described = arguments_of_data(data, shape, described, zarr_format, fill_masked=fill_masked)
        elif shape is None:
            raise ArgumentError("a new array needs a shape (or data)")
        # Arguments first: checking them needs no store, unless a hierarchy says how documents are spelled.
        layout = reader_of(store).layout(path) if FORMATS[zarr_format].has_entry_point else None
        object_nbytes = mean_nbytes(data)
        metadata = new_metadata(path, shape, zarr_format, layout=layout, object_nbytes=object_nbytes, **described)
        _check_text(metadata, described)
        # Read before anything is erased: data may be what is overwritten.
        self._data = data if data is None else all_of(data, metadata, f"/{path}", fill_masked=fill_masked)
        self._store, self._path, self._format = store, path, zarr_format
        self._overwrite = overwrite
        self._shape, self._arguments, self._object_nbytes = shape, described, object_nbytes
        self._options: dict[str, Any] = {
            "device": device,
            "missing": missing,
            "verify": verify,
            "mode": "r+",
            "write_empty_chunks": write_empty_chunks,
        }
        self.array: Array = Array(metadata, store, path, **self._options)

    def check(self) -> None:
        """Refuse a location where the array cannot be created, as :meth:`create` would."""
        location = self._location()
        if not self._overwrite:
            check_free(self._store, self._path, location, self._format, group=False)

    def _location(self) -> Location:
        location = inspect_location(self._store, self._path, self._format)
        check_name(self._path, location, self._format)
        return location

    def create(self) -> Array:
        """Create the array and write its data."""
        # The node is held until its data is written, so that nobody replaces it, or erases or moves a group above it,
        # and gets a mixture of data.
        with hold_node(self._store, self._path, below=self._overwrite), contextlib.ExitStack() as claimed:
            claimed.enter_context(claim(self._store, self._path, creates=True))
            with hold_documents(self._store, self._path):
                location = self._location()
                if location.layout is not None:
                    made = new_metadata(
                        self._path,
                        self._shape,
                        self._format,
                        layout=location.layout,
                        object_nbytes=self._object_nbytes,
                        **self._arguments,
                    )
                    self.array = Array(made, self._store, self._path, **self._options)
                metadata = self.array.metadata
                if self._data is None or not metadata.size:
                    write_new_array(self._store, self._path, metadata, location, overwrite=self._overwrite)
                    return self.array
                if not self._overwrite:
                    check_free(self._store, self._path, location, self._format, group=False)
                stage = stage_at(self._store, self._path, location, overwrite=self._overwrite)
                first = stage is None and documents_first(self._store)
                if first:
                    write_new_array(self._store, self._path, metadata, location, overwrite=self._overwrite)
                elif stage is None:
                    location = begin_array(self._store, self._path, metadata, location, overwrite=self._overwrite)
            if stage is not None:
                # Others need not wait: who has written everything first gets the place.
                claimed.close()
                self._write_aside(stage, location)
            else:
                self._write_in_place(location, first=first)
        return self.array

    def _write_aside(self, stage: Stage, location: Location) -> None:
        """Write data and documents aside, and put both in place in one step."""
        array = Array(self.array.metadata, stage.store, self._path, **self._options)
        with discarding(stage):
            array[...] = self._data
            set_documents(stage.store, array_documents(self.array.metadata, self._path))
            with claim(self._store, self._path, creates=True), hold_documents(self._store, self._path):
                if not put_in_place(stage, self._store, self._path, location, self._format, overwrite=self._overwrite):
                    now, overwrite = self._location(), self._overwrite
                    check_free(self._store, self._path, now, self._format, group=False, overwrite=overwrite)
                    advice = "try again" if overwrite else "pass overwrite=True to erase it"
                    raise ArgumentError(
                        f"there is no node at '/{self._path}' in {self._store!r}, but something else was stored there "
                        f"meanwhile; {advice}"
                    )

    def _write_in_place(self, location: Location, *, first: bool) -> None:
        """Write data, and then the documents unless they came first: an array that is not complete is none."""
        store, path, metadata = self._store, self._path, self.array.metadata
        try:
            self.array[...] = self._data
            if not first:
                with hold_documents(store, path):
                    finish_array(store, path, metadata, location, overwrite=self._overwrite)
        except BaseException:
            with contextlib.suppress(GzarrError), hold_documents(store, path):
                if first:
                    erase_node(store, path, location.layout)
                else:
                    abandon_array(store, path, metadata)
            raise


def _check_text(metadata: ArrayMetadata, arguments: ArrayArguments) -> None:
    """Refuse text that UTF-8 cannot encode, but not that of a source; attributes are checked already."""
    names = arguments.get("dimension_names")
    if names is not None and not isinstance(names, SourceNames):
        check_text(metadata.dimension_names, "dimension_names")
    if any(unpaired_surrogates(metadata.document, "")):
        document = {**with_attributes(metadata, {}).document}
        document.pop("dimension_names", None)
        check_text(document, "metadata")


def new_group(
    store: Store,
    path: str,
    zarr_format: ZarrFormat,
    *,
    attributes: Mapping[str, Any] | None,
    overwrite: bool,
) -> GroupMetadata:
    """Create a group in a writable store; return its metadata."""
    check_flags(overwrite=overwrite)
    format = FORMATS[zarr_format]
    check_zarr_format(zarr_format, new=True)
    if not format.features.groups:
        raise ArgumentError(f"{format.title} has arrays only; a group needs zarr_format=2 or 3")
    plain_attributes = plain({} if attributes is None else attributes)
    with (
        hold_node(store, path, below=overwrite),
        claim(store, path, creates=True),
        hold_documents(store, path),
    ):
        location = inspect_location(store, path, zarr_format)
        check_name(path, location, zarr_format)
        document = format.new_document(location.layout)
        metadata = GroupMetadata(attributes=plain_attributes, zarr_format=zarr_format, document=document)
        write_new_group(store, path, metadata, location, overwrite=overwrite)
    return metadata


def arguments_of_data(
    data: Any, shape: Any, arguments: ArrayArguments, zarr_format: ZarrFormat, *, fill_masked: bool = False
) -> tuple[Any, tuple[int, ...], ArrayArguments]:
    """Return data as an array, with the shape and the other arguments, including dtype, of the array for it."""
    dtype = arguments.get("dtype")
    if dtype is None and isinstance(data, (Array, ArrayView)) and data.dtype.hasobject:
        dtype = TEXTS.get(object_codec(data.metadata.codecs) or "", object)
    wanted = None if dtype is None else data_type(dtype, zarr_format)[0]
    given = data
    data = as_data(data, wanted, "data", None if shape is None else len(check_shape(shape)), fill_masked=fill_masked)
    refuse_tables(given, data, "data")
    if dtype is None:
        data, dtype = with_type(data, "data")
        if dtype.hasobject and dtype.fields is None:
            # Masked elements will be filled.
            elements = data.compressed() if isinstance(data, np.ma.MaskedArray) else data.flat
            kinds = set(map(type, elements))
            if kinds <= {str} or kinds <= {bytes}:
                dtype = bytes if bytes in kinds else str
        others = isinstance(dtype, np.dtype) and dtype.hasobject
        if others and (data.dtype.names or not FORMATS[zarr_format].features.objects):
            raise objects_refused(data, given, "data")
    if shape is not None and check_shape(shape) != tuple(data.shape):
        raise ArgumentError(f"shape {quote(shape)} differs from the shape of the data, {tuple(data.shape)}")
    return data, tuple(data.shape), cast("ArrayArguments", {**arguments, "dtype": dtype})


def check_required(array: Array, shape: Any, dtype: Any, *, exact: bool) -> Array:
    """Check and return an existing array: it must have the shape and dtype that ``require_array`` asked for.

    Raises
    ------
    NodeTypeError
        If shape or dtype differ.
    """
    if shape is not None and check_shape(shape) != array.shape:
        raise NodeTypeError(f"{array.name} in {array.store!r} has shape {array.shape}, not {check_shape(shape)}")
    if dtype is None:
        return array
    stored, text, _ = data_type(dtype, array.zarr_format)
    wanted, found = native(stored), object_codec(array.metadata.codecs)
    if wanted.hasobject or array.dtype.hasobject:
        # dtype=object stands for objects of any kind.
        same = wanted == array.dtype and text in (None, found)
    else:
        same = wanted == array.dtype if exact else np.can_cast(wanted, array.dtype)
    if not same:
        names = [
            TEXTS[codec].__name__ if codec in TEXTS else str(t) for t, codec in ((array.dtype, found), (wanted, text))
        ]
        raise NodeTypeError(f"{array.name} in {array.store!r} has elements of {names[0]}, not {names[1]}")
    return array
