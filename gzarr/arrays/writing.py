"""Writing arrays: single selections, many selections in one plan, and zarr-python's methods."""

from __future__ import annotations

import math
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..engines.cuda.devices import get_device
from ..errors import ArgumentError, ReadOnlyError, SelectionError
from ..flags import check_flags
from ..items import UNLISTED, is_table
from ..nodes.change import hold_documents
from ..plan.selection import parse_basic, parse_many, parse_orthogonal
from .elements import all_elements, as_data, filled
from .exporting import ExportedArray, Writes
from .objects import object_type_of
from .outputs import DeviceResults
from .read import Reader
from .read_options import check_budget
from .write_options import NO_WRITE_OPTIONS, WriteOptions
from .zarr_selections import Fields, one_field, parse_coordinates, parse_mask

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Self

    from ..metadata.model import ArrayMetadata
    from ..plan.selection import Selection
    from .write import Writer


class WritableArray(ExportedArray):
    """The part of :class:`gzarr.Array` that writes."""

    __slots__ = ("_writer", "_writes")

    _writer: Writer
    _writes: Writes

    @property
    def write_empty_chunks(self) -> bool:
        """Whether chunks that hold only the fill value are stored when they are written; if not, they are erased."""
        return self._writer.write_empty_chunks

    def __setitem__(self, selection: Any, value: Any) -> None:
        """Write to a selection; see :meth:`write`."""
        self._check_writable()
        rest, field = self._split_field(selection)
        self._write([parse_basic(rest, self.shape)], [value], field)

    def write(
        self,
        selection: Any,
        value: Any,
        *,
        lock: bool = False,
        aligned: bool = False,
        stream: Any = None,
        fill_masked: bool = False,
        budget_bytes: int | None = None,
    ) -> None:
        """Write to a selection, as NumPy's ``a[selection] = value`` does.

        Chunks (shards) that the selection covers completely are written; partially covered ones are read, changed and
        written. Each is replaced atomically: readers see either the old chunk or the new one. Within a process, writes
        to the same chunk are serialized across threads and ``Array`` objects. Several processes must not write to the
        same chunk (shard) at the same time, unless all of them pass ``lock=True``; regions aligned to chunk (shard)
        boundaries are always safe.

        Parameters
        ----------
        selection
            Selection as for reading, including the name of a field.
        value
            Scalar, or array that broadcasts to the selection's shape: NumPy, CuPy, or any object with ``__array__`` or
            ``__dlpack__``. Its elements must be representable in the array's dtype.
        lock
            Whether to exclude other processes that also pass ``lock=True`` from the chunks, by file locks beside the
            data.
        aligned
            Whether the selection must consist of whole chunks (shards), cut at the array's end; otherwise the call
            raises before anything is written.
        stream
            Stream of the array's device, as for :meth:`read`, on which a value on that device can be read. Whole
            chunks of such values are encoded on the device. The data is stored when the call returns.
        fill_masked
            Whether masked elements of a masked array of NumPy become the array's fill value; otherwise they are an
            error, since an array has no place for a mask.
        budget_bytes
            Limit in bytes of the device and page-locked host memory in which values on the array's device are encoded,
            besides the values (and a copy of those of another dtype). None for 8 GiB or a quarter of the device's free
            memory, whichever is smaller; free memory is queried only if more than 64 MiB are needed. Chunks that do not
            fit are encoded on the CPU. Ignored for values in host memory.

        Raises
        ------
        ReadOnlyError
            If the array is read-only; nothing was touched.
        ArgumentError
            If the value does not broadcast, if the array's dtype cannot hold one of its elements (a fraction, a number
            out of range, a string that is too long), if an element is masked, if ``aligned`` is set and a chunk
            (shard) would be changed in part, or if ``budget_bytes`` is not a positive integer; nothing was written.
        SelectionError
            If the selection is invalid for the array.
        DeviceError
            If the device fails, or was lost to this process.
        MemoryError
            If the device runs out of memory.
        ChunkWriteError, ChunkReadError, ChunkDecodeError
            If a chunk cannot be written, or a partially changed one cannot be read. The error names the chunk and
            tells how many chunks were written.
        """
        self._check_writable()
        rest, field = self._split_field(selection)
        options = WriteOptions(lock, aligned, stream, fill_masked, budget_bytes)
        self._write([parse_basic(rest, self.shape)], [value], field, options)

    def write_many(
        self,
        selections: Sequence[Any],
        values: Sequence[Any],
        *,
        lock: bool = False,
        aligned: bool = False,
        stream: Any = None,
        fill_masked: bool = False,
        budget_bytes: int | None = None,
    ) -> None:
        """Write many boxes in one plan: a chunk (shard) that several of them touch is written once.

        Parameters
        ----------
        selections
            Selections as for ``a[...]``, each with at most one integer array and without fields. Where they overlap,
            the last one wins.
        values
            One value for each selection, or an array with one more dimension; of a table, each row is a value.
        lock, aligned, stream, fill_masked, budget_bytes
            As for :meth:`write`; so are the errors.
        """
        self._check_writable()
        parsed = parse_many(selections, self.shape, "write_many")
        items = self._listed(values, fill_masked=fill_masked)
        if len(items) != len(parsed):
            raise ArgumentError(f"{self.name}: {len(parsed)} selections, but {len(items)} values")
        if parsed:
            options = WriteOptions(lock, aligned, stream, fill_masked, budget_bytes)
            self._write(parsed, items, None, options)

    def _listed(self, values: Any, *, fill_masked: bool) -> list[Any]:
        """Return the values of :meth:`write_many`, one for each selection."""
        if not isinstance(values, (list, tuple, np.ndarray, *UNLISTED)) and (
            hasattr(values, "__array__") or is_table(values)
        ):
            values = as_data(values, self.dtype, self.name, fill_masked=fill_masked)
        try:
            # Generators have no length, and neither has what has rows without being a sequence: sparse matrices.
            if not isinstance(values, UNLISTED) and len(values) >= 0:
                return list(values)
        except TypeError:
            pass
        raise ArgumentError(
            f"{self.name}: values must be a sequence with one value for each selection, not {type(values).__name__}"
        )

    # -- writing as in zarr-python

    def set_basic_selection(self, selection: Any, value: Any, *, fields: Fields = None) -> None:
        """Write to integers and slices, as ``a[selection] = value`` does; zarr-python's name for it.

        Parameters
        ----------
        selection
            Selection as for ``a[...]``, without names of fields.
        value
            Value as for :meth:`write`, which takes more options.
        fields
            Name of the only field to be written, of a structured dtype; None for whole elements.

        Raises
        ------
        SelectionError
            If the selection is invalid for the array, or if ``fields`` is not the name of one field.
        ReadOnlyError, ArgumentError, ChunkWriteError, ChunkReadError, ChunkDecodeError
            As for :meth:`write`.
        """
        self._set(parse_basic, selection, value, fields)

    def set_orthogonal_selection(self, selection: Any, value: Any, *, fields: Fields = None) -> None:
        """Write to indices of each dimension independently, as ``a.oindex[selection] = value`` does.

        Parameters
        ----------
        selection
            As for :meth:`get_orthogonal_selection`.
        value, fields
            As for :meth:`set_basic_selection`; so are the errors.
        """
        self._set(parse_orthogonal, selection, value, fields)

    def set_coordinate_selection(self, selection: Any, value: Any, *, fields: Fields = None) -> None:
        """Write to elements by their coordinates, as ``a.vindex[selection] = value`` does.

        Parameters
        ----------
        selection
            As for :meth:`get_coordinate_selection`.
        value
            As for :meth:`set_basic_selection`. As in zarr-python, one dimension with one element for each coordinate is
            taken in C order.
        fields
            As for :meth:`set_basic_selection`; so are the errors.
        """
        self._check_writable()
        parsed = parse_coordinates(selection, self.shape)
        name = one_field(fields, self.dtype)
        shape = parsed.result_shape
        if len(shape) > 1:
            value = as_data(value, self.dtype if name is None else self.dtype[name], self.name, len(shape))
            # Of the same elements, the selection takes another shape: not all values can be reshaped.
            if tuple(value.shape) == (math.prod(shape),):
                parsed = replace(parsed, result_shape=tuple(value.shape))
        self._write([parsed], [value], name)

    def set_mask_selection(self, mask: Any, value: Any, *, fields: Fields = None) -> None:
        """Write to the elements where a mask is true, as ``a.vindex[mask] = value`` does.

        Parameters
        ----------
        mask
            As for :meth:`get_mask_selection`.
        value, fields
            As for :meth:`set_basic_selection`; so are the errors.
        """
        self._set(parse_mask, mask, value, fields)

    def set_block_selection(self, selection: Any, value: Any, *, fields: Fields = None) -> None:
        """Write to whole chunks (shards, in a sharded array) of the grid, as ``a.blocks[selection] = value`` does.

        Parameters
        ----------
        selection
            As for :meth:`get_block_selection`.
        value, fields
            As for :meth:`set_basic_selection`; so are the errors.
        """
        self._set(self._parse_blocks, selection, value, fields)

    def _set(self, parse: Callable[..., Selection], selection: Any, value: Any, fields: Fields) -> None:
        self._check_writable()
        self._write([parse(selection, self.shape)], [value], one_field(fields, self.dtype))

    # -- for the other parts of Array

    def _check_writable(self) -> None:
        if self.read_only:
            raise ReadOnlyError(f"{self.name} in {self._store!r} is read-only; open it with mode='r+' to change it")
        if self.dtype.fields is not None and self.dtype.hasobject:
            # Pickles state a byte order, which other readers take for that of the array.
            raise ArgumentError(
                f"{self.name}: records with objects are read, but not written; write their fields to arrays of their "
                "own, objects with dtype=object and a codec such as 'json2'"
            )

    def _write(
        self,
        selections: Sequence[Selection],
        values: Sequence[Any],
        field: str | None,
        options: WriteOptions = NO_WRITE_OPTIONS,
        *,
        metadata: ArrayMetadata | None = None,
    ) -> None:
        """Write to selections of the array as described by ``metadata``: its future metadata; None for the present."""
        lock, aligned, stream, fill_masked, budget_bytes = options
        if not (lock is aligned is fill_masked is False):
            check_flags(lock=lock, aligned=aligned, fill_masked=fill_masked)
        if budget_bytes is not None:
            # Here, since not every write comes to where it matters.
            budget_bytes = check_budget(budget_bytes)
        writer = self._writer if metadata is None else self._writer.with_metadata(metadata)
        metadata = writer.metadata
        dtype = metadata.dtype
        if field is not None:
            assert dtype.fields is not None
            dtype = dtype.fields[field][0]
            if dtype.subdtype is not None:
                raise SelectionError(f"the field {field!r} is an array itself; write whole elements instead")
        memory = None
        if self.device != "cpu" and field is None:
            device = get_device(self.device)
            with device:
                memory = DeviceResults(device, device.as_stream(stream))
        if fill_masked:
            fill = metadata.absent_value
            if field is not None and fill is not None:
                fill = fill[field]
            of = object_type_of(metadata)
            values = [filled(value, dtype, fill, self.name, of) for value in values]
        shapes = [selection.result_shape for selection in selections]
        arrays, memory = all_elements(values, dtype, shapes, self.name, memory, object_type_of(metadata))
        try:
            writer.write(
                selections, arrays, field, aligned=aligned, lock=lock, memory=memory, budget_bytes=budget_bytes
            )
        finally:
            # Only now: what is read meanwhile may be old. And a write that fails may have changed some chunks.
            self._writes.latest = object()

    def _become(self, metadata: ArrayMetadata) -> None:
        """Take over the metadata of a new shape."""
        reader = Reader(metadata, self._store, self._path, self._device)
        # The lock keeps a thread that is taking over attributes from restoring the old shape.
        with hold_documents(self._store, self._path):
            self._metadata = metadata
            self._reader = reader
            self._writer = self._writer.with_metadata(metadata)
        # Rows that were read ahead may be gone.
        self._writes.latest = object()

    def _known_writes(self) -> Writes | None:
        """Return what is known of writes through this object and those that :meth:`_same` has made of it."""
        return None if self.read_only else self._writes

    # -- for those who take arrays

    def _on_device(self, device: str) -> Self:
        """Return the same array with results on a device."""
        if self.device == device:
            return self
        make, arguments = cast("tuple[Callable[..., Self], Any]", self.__reduce__())
        return make(*arguments, device=device, auto=False)

    def _same(self) -> Self:
        """Return another object for the array, which keeps its metadata when this one's change."""
        other = copy(self)
        # What it has found out of the store is the same, and so are the elements.
        other._reader, other._writes = self._reader, self._writes
        return other
