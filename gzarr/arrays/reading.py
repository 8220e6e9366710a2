"""Reading arrays: basic selections, and many selections or windows in one plan."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..documents.json import quote
from ..dtypes.properties import is_in_cupy
from ..engines.cuda.devices import get_device, warn_of_loss
from ..engines.stack import Stack
from ..errors import ArgumentError, DeviceError, GzarrError, OutputError, SelectionError
from ..plan.selection import parse_basic, parse_many
from ..plan.windows import parse_rows, parse_windows
from .array_properties import ArrayProperties
from .outputs import HOST, DeviceResults, check_apart, no_room, output, plain
from .read_options import (
    NO_OPTIONS,
    DeviceOptions,
    ReadOptions,
    as_dtype,
    check_budget,
    check_decode,
    check_missing,
    check_verify,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..engines.access.access import Missing, ReadRequest, Verify
    from ..integers import EachAxis
    from ..metadata.chunk_grid import ChunkGrid
    from ..plan.planner import Plan
    from ..plan.selection import Selection
    from ..plan.windows import IntArray, PlannedWindows
    from .outputs import Results
    from .read_options import Decode

WHOLE = (Ellipsis,)
#: Options of reads to the host that give none, by the array's setting.
_DEFAULTS: Final[dict[Missing, ReadOptions]] = {
    "fill": ReadOptions("fill", HOST, NO_OPTIONS),
    "error": ReadOptions("error", HOST, NO_OPTIONS),
}


class ReadableArray(ArrayProperties):
    """The part of :class:`gzarr.Array` that reads."""

    __slots__ = ("_missing", "_verify")

    _missing: Missing

    def __getitem__(self, selection: Any) -> Any:
        """Read a selection by NumPy's indexing rules.

        Parameters
        ----------
        selection
            Integers, slices of any step, ``...`` and ``np.newaxis``, with at most one integer array or mask; or integer
            arrays for all dimensions, which select points. A string, alone or in the tuple, selects a field of a
            structured dtype.

        Returns
        -------
        Array on the array's device (NumPy or CuPy); a scalar where no axis is left, with ``...`` too, as in
        zarr-python.

        Raises
        ------
        SelectionError
            If the selection is invalid for the array.
        ChunkError
            If a chunk cannot be read. The error names the node, the chunk and the key.
        """
        result = self.read(selection)
        return result if result.shape else result[()]

    def read(
        self,
        selection: Any = WHOLE,
        *,
        out: Any = None,
        dtype: Any = None,
        missing: Missing | None = None,
        stream: Any = None,
        budget_bytes: int | None = None,
        decode: Decode = "auto",
        verify: Verify | None = None,
    ) -> Any:
        """Read a selection as ``a[selection]`` does, into ``out`` if given, converted to ``dtype`` if given.

        Parameters
        ----------
        selection
            Selection as for ``a[...]``; everything by default.
        out
            Writable array of the result's shape and dtype, with any strides. If a chunk fails, ``out`` is
            partially written. Passing it saves the allocation of a large result, whose page faults may take as long as
            the read.

            Without it, a CPU result of 4 MiB or more uses recycled memory: gzarr keeps the memory of a result once the
            last array that uses it is gone, and reuses it for a result of similar size. At most
            ``GZARR_RECYCLE_BYTES`` (default 512 MiB; 0 for none) are kept. The system may reclaim them at any time, and
            :func:`gzarr.release_memory` frees them at once.
        dtype
            Data type of the result; None for the array's own. Elements are converted as by
            ``a[selection].astype(dtype)`` of NumPy (of CuPy on a device). Conversions of integers and booleans to
            integers, of real numbers to ``float32`` and ``float64``, and of ``float32`` to ``float16`` are done
            while elements are placed, without a second array; numbers out of range become infinite without NumPy's
            warning. For all others, elements are read first and then converted.
        missing
            Meaning of an absent chunk for this read: ``"fill"`` or ``"error"``; None for the array's own setting.
        stream
            CUDA stream on which the result is written: a stream of CuPy or PyTorch, any object with
            ``__cuda_stream__``, or a stream address; None for CuPy's current stream. The result is ready once the
            stream has run the work enqueued by the call. Ignored on the CPU.
        budget_bytes
            Limit in bytes of the device and page-locked host memory that the read holds besides its result. None for
            8 GiB or a quarter of the device's free memory, whichever is smaller; free memory is queried only if more
            than 64 MiB are needed. On the CPU, limit of the encoded bytes in memory while reading from a remote store;
            None for 256 MiB; ignored for other stores.
        decode
            Place where chunks are decoded if the result is on a GPU: ``"cuda"``, ``"cpu"``, or ``"auto"`` for the one
            expected to be faster; see :attr:`decode_path`. Ignored on the CPU.
        verify
            Check of compressed frames before the GPU decodes them: ``"cpu"`` or ``"none"``; None for the array's own
            setting. Ignored on the CPU, whose decoders are safe for any input. (To look for corrupt chunks, use
            :func:`gzarr.verify`.)

            ``"cpu"`` decodes frames on the CPU first, so that the GPU's decoder only gets valid ones. The behaviour
            of nvCOMP's decoders is undefined for corrupt zstd, snappy, deflate and gdeflate frames, also inside Blosc,
            gzip and zlib: a flipped bit may make CUDA unusable in this process, instead of raising an error that names
            the chunk. Chunks with a crc32c of their encoded bytes (the ``crc32c`` codec of version 3 after the
            compressor) are always checked by it, and cost nothing extra. All other frames are decoded by the host
            before the device decodes them, with a buffer for one decoded frame in each thread: such reads are no faster
            than with ``decode="cpu"``, which ``decode="auto"`` therefore chooses. GDeflate without crc32c is left to
            the host. ``"none"`` checks headers and sizes only, and decodes no frame twice.

        Returns
        -------
        ``out``, or a new C-contiguous array on the array's device (with zero dimensions where ``a[...]`` returns a
        scalar).

        Raises
        ------
        OutputError
            If ``out`` has the wrong kind, shape or dtype, or is read-only; nothing was read.
        ArgumentError
            If an argument is none of the above, if ``budget_bytes`` is too small for one chunk, or if the elements
            cannot be converted to ``dtype``.
        DeviceError
            If the device cannot hold elements of this dtype, fails, or was lost to this process, which may happen when
            a corrupt chunk is decoded. The message then names the chunks and says what to do.
        MemoryError
            If the device runs out of memory.
        SelectionError, ChunkError
            As for ``a[...]``.
        """
        selection, field = self._split_field(selection)
        options = self._read_options(missing, stream, budget_bytes, decode, verify)
        return self._read(parse_basic(selection, self._metadata.shape), field, out, options, dtype)

    def read_many(
        self,
        selections: Sequence[Any],
        *,
        out: Any = None,
        missing: Missing | None = None,
        stream: Any = None,
        budget_bytes: int | None = None,
        decode: Decode = "auto",
        verify: Verify | None = None,
    ) -> Any:
        """Read many selections in one plan: a chunk that several of them touch is read and decoded once.

        Parameters
        ----------
        selections
            Selections as for ``a[...]``, each with at most one integer array and without fields.
        out
            Array of shape ``(len(selections), *result_shape)``, if all results have the same shape; or a list or tuple
            of arrays, one for each selection, of its result's shape. Otherwise as for :meth:`read`.
        missing, stream, budget_bytes, decode, verify
            As for :meth:`read`.

        Returns
        -------
        ``out``; without it, one array of shape ``(len(selections), *result_shape)`` if all results have the same shape,
        else a list of arrays. An empty list for no selections.

        Raises
        ------
        ArgumentError
            If ``selections`` is not a sequence.
        OutputError, DeviceError, MemoryError, SelectionError, ChunkError
            As for :meth:`read`.
        """
        parsed = parse_many(selections, self.shape, "read_many")
        if not parsed and out is None:
            return []
        options = self._read_options(missing, stream, budget_bytes, decode, verify)
        shapes = [selection.result_shape for selection in parsed]
        results, base, answer = self._outputs_of_many(shapes, out, options.memory)
        if parsed:
            self._reader.fill(parsed, results, None, options.missing, options.memory, base, options.device)
        if isinstance(out, (list, tuple)) and options.memory is not HOST:
            for own, result in zip(out, results, strict=True):
                options.memory.copy(own, result)
        return answer

    def _outputs_of_many(self, shapes: list[tuple[int, ...]], out: Any, memory: Results) -> tuple[list[Any], Any, Any]:
        """Return an array for each result, the one that they are parts of on a device, and what the caller gets."""
        if isinstance(out, (list, tuple)):
            if len(out) != len(shapes):
                raise OutputError(f"out= has {len(out)} arrays for {len(shapes)} selections")
            given = [self._output(shape, self.dtype, own, memory) for shape, own in zip(shapes, out, strict=True)]
            if memory is HOST:
                given = list(map(plain, given))
                check_apart(given)
                return given, None, out
            # The device writes into one allocation, from which it is copied.
            return *self._outputs_of_many(shapes, None, memory)[:2], out
        if not shapes and out is not None:
            # No selection says what the other axes are.
            return [], None, self._output((0, *getattr(out, "shape", ())[1:]), self.dtype, out, memory)
        if len(set(shapes)) == 1:
            answer = self._output((len(shapes), *shapes[0]), self.dtype, out, memory)
            stacked = plain(answer)
            return [stacked[i, ...] for i in range(len(shapes))], stacked, answer
        if out is not None:
            raise OutputError(
                f"out= is one array, so selections must have one shape; these have {len(set(shapes))} different ones: "
                "pass a list of arrays"
            )
        if memory is HOST:
            results = [self._output(shape, self.dtype, None, HOST) for shape in shapes]
            return results, None, results
        # The device writes into one allocation; each result is a part of it.
        sizes = list(map(math.prod, shapes))
        base = self._output((sum(sizes),), self.dtype, None, memory)
        ends = itertools.accumulate(sizes)
        results = [base[end - n : end].reshape(shape) for shape, n, end in zip(shapes, sizes, ends, strict=True)]
        return results, base, results

    def read_windows(  # noqa: PLR0913
        self,
        starts: Any,
        shape: EachAxis,
        *,
        step: EachAxis = 1,
        out: Any = None,
        rows: Any = None,
        missing: Missing | None = None,
        stream: Any = None,
        budget_bytes: int | None = None,
        decode: Decode = "auto",
        verify: Verify | None = None,
    ) -> Any:
        """Read many windows of one shape in one plan, given by their first elements.

        It does the same as :meth:`read_many` with a slice for each dimension, in a fraction of its time for each
        window: a million rows of a table, or a batch of patches, in the order in which they are wanted.

        Parameters
        ----------
        starts
            Integers ``(n, ndim)``, first element of each window, in any order and possibly repeated; ``(n,)`` for an
            array of one dimension.
        shape
            Shape of a window, in elements; an integer for all dimensions.
        step
            Distance between neighbouring elements of a window along each dimension, at least 1.
        out
            Array of shape ``(n, *shape)``, or a sequence of arrays ``(n_i, *shape)`` with ``n`` windows together: the
            first takes the first windows, and so on. As for :meth:`read` in everything else.
        rows
            Integers ``(n,)``, all different: the place of each window along the first axis of ``out`` (of its arrays,
            one after the other), which may then be longer and keeps its other elements. None for 0 to n − 1.
        missing, stream, budget_bytes, decode, verify
            As for :meth:`read`.

        Returns
        -------
        ``out``, or a new array of shape ``(n, *shape)``.

        Raises
        ------
        SelectionError
            If a window does not lie in the array, or if ``starts``, ``shape``, ``step`` or ``rows`` do not fit.
        OutputError, DeviceError, MemoryError, ChunkError
            As for :meth:`read`.
        """
        windows = parse_windows(starts, shape, step, self.shape)
        options = self._read_options(missing, stream, budget_bytes, decode, verify)
        if out is None:
            out = self._output((len(windows.starts), *windows.shape), self.dtype, None, options.memory)
        results = self._window_outputs(out if isinstance(out, (list, tuple)) else [out], windows, options.memory)
        room, wanted = sum(map(len, results)), len(windows.starts)
        if rows is not None:
            rows = parse_rows(rows, wanted, room)
        elif room != wanted:
            raise OutputError(f"out= has room for {room} windows, but {wanted} are wanted")
        if wanted and math.prod(windows.shape):
            self._fill_windows(windows, rows, results, options)
        return out

    def _window_outputs(self, out: Sequence[Any], windows: PlannedWindows, memory: Results) -> list[Any]:
        """Check the arrays that windows are read into."""
        results = []
        for i, array in enumerate(out):
            if not memory.is_array(array) or not array.ndim:
                which = f"out[{i}]" if len(out) > 1 else "out="
                raise OutputError(f"{which} must be {memory.kind}, of shape (n, *{windows.shape}), not {quote(array)}")
            results.append(plain(self._output((len(array), *windows.shape), self.dtype, array, memory)))
        if memory is HOST and len(results) > 1:
            check_apart(results)
        return results

    @property
    def _planned_grid(self) -> ChunkGrid:
        """The grid that reads are planned over: of chunks, or of the inner chunks of shards."""
        return self._reader.planned_grid

    def _read_chunks(self, coords: Sequence[tuple[int, ...]], out: Sequence[Any], stream: Any) -> None:
        """Read whole chunks of :attr:`_planned_grid`, cut at the array's end.

        Parameters
        ----------
        coords
            Their coordinates, each once.
        out
            An array of the array's kind and dtype for each, of its shape.
        stream
            As for :meth:`read`.

        Raises
        ------
        GzarrError
            As for :meth:`read`.
        """
        options = self._read_options(None, stream, None, "auto", None)
        if options.memory is HOST:
            self._reader.fill_chunks(coords, out, options.missing)
            return
        results, base, _ = self._outputs_of_many([array.shape for array in out], list(out), options.memory)
        self._reader.fill_chunks(coords, results, options.missing, options.memory, base, options.device)
        for own, result in zip(out, results, strict=True):
            options.memory.copy(own, result)

    def _read_planned(self, the_plan: Plan, out: Sequence[Any], stream: Any) -> None:
        """Read what a plan of windows over :attr:`_planned_grid` says, or some chunks of it; for loaders.

        Parameters
        ----------
        the_plan
            The plan; its outputs are places along the first axes of ``out``.
        out
            Arrays ``(n_i, *shape)`` of the array's kind and dtype. On a device, if there are several, what the plan
            does not fill of its windows is undefined.
        stream
            As for :meth:`read`.

        Raises
        ------
        GzarrError
            As for :meth:`read`.
        """
        options = self._read_options(None, stream, None, "auto", None)
        if not len(the_plan):
            return
        if options.memory is HOST or len(out) == 1:
            self._reader.fill_planned(the_plan, out, options.missing, options.memory, options.device)
            return
        # The device writes to one allocation.
        rows, which = np.unique(the_plan.output, return_inverse=True)
        whole = options.memory.empty((len(rows), *out[0].shape[1:]), self.dtype)
        self._reader.fill_planned(
            replace(the_plan, output=which), [whole], options.missing, options.memory, options.device
        )
        places = Stack(out)
        for i, row in enumerate(rows.tolist()):
            options.memory.copy(places[row], whole[i, ...])

    def _ask(self, chunks: IntArray, ask: Callable[[ReadRequest], None]) -> None:
        """Find chunks that will be read; as :meth:`gzarr.arrays.read.Reader.ask`."""
        self._reader.ask(chunks, ask)

    def _fill_windows(
        self, windows: PlannedWindows, rows: IntArray | None, results: list[Any], options: ReadOptions
    ) -> None:
        where = windows.starts, windows.step
        if options.memory is HOST or len(results) == 1:
            self._reader.fill_windows(*where, rows, results, options.missing, options.memory, options.device)
            return
        # The device writes to one allocation.
        whole = options.memory.empty((len(windows.starts), *windows.shape), self.dtype)
        self._reader.fill_windows(*where, None, [whole], options.missing, options.memory, options.device)
        if rows is None:
            begin = 0
            for result in results:
                options.memory.copy(result, whole[begin : begin + len(result)])
                begin += len(result)
            return
        places = Stack(results)
        for i, row in enumerate(rows.tolist()):
            options.memory.copy(places[row], whole[i, ...])

    # -- for the other parts of Array

    def _split_field(self, selection: Any) -> tuple[Any, str | None]:
        """Take the name of a field out of a selection."""
        if isinstance(selection, str):
            names: list[str] = [selection]
            rest: Any = WHOLE
        elif isinstance(selection, tuple):
            # Every small read comes here: a loop that calls nothing.
            for item in selection:
                if isinstance(item, str):
                    break
            else:
                return selection, None
            names = [item for item in selection if isinstance(item, str)]
            rest = tuple(item for item in selection if not isinstance(item, str)) or WHOLE
        else:
            return selection, None
        if len(names) > 1:
            raise SelectionError(f"{quote(selection)}: one field at a time, of an array of shape {self.shape}")
        if self.dtype.names is None or names[0] not in self.dtype.names:
            have = f"its fields are {', '.join(self.dtype.names)}" if self.dtype.names else "it has no fields"
            raise SelectionError(
                f"{quote(selection)}: no field {names[0]!r} in an array of shape {self.shape}, {self.dtype}; {have}"
            )
        return rest, names[0]

    def _read_options(
        self, missing: Missing | None, stream: Any, budget_bytes: int | None, decode: Decode, verify: Verify | None
    ) -> ReadOptions:
        """Return the checked options of one read; None stands for the array's own setting."""
        usual = missing is None and budget_bytes is None and verify is None
        # Of the type first: an array compares with each of its elements.
        if usual and self._device == "cpu" and type(decode) is str and decode == "auto":
            return _DEFAULTS[self._missing]
        check_decode(decode)
        meaning = self._missing if missing is None else check_missing(missing)
        verified = self._verify if verify is None else check_verify(verify)
        if self.device == "cpu":
            if self._device != "cpu":
                warn_of_loss()
            return ReadOptions(meaning, HOST, DeviceOptions(check_budget(budget_bytes)))
        device = get_device(self.device)
        with device:
            memory = DeviceResults(device, device.as_stream(stream))
        return ReadOptions(meaning, memory, DeviceOptions(budget_bytes, decode, verified))

    def _read(self, selection: Selection, field: str | None, out: Any, options: ReadOptions, wanted: Any = None) -> Any:
        """Read a selection, converted to the data type ``wanted`` if that is not None."""
        if wanted is not None:
            return self._read_as(as_dtype(wanted), selection, field, out, options)
        dtype = self._metadata.dtype
        if field is not None:
            fields = dtype.fields
            assert fields is not None
            if options.memory is not HOST and not is_in_cupy(fields[field][0]):
                # For an array in each element, whole elements are read; of a record in each, no field alone can be.
                raise DeviceError(
                    f"{self.name}: elements of the field {field!r}, {fields[field][0]}, cannot be read to a GPU; open "
                    'the array with device="cpu"'
                )
            if fields[field][0].subdtype is None:
                dtype = fields[field][0]
            else:
                # A subarray field has dimensions that the plan lacks: read whole elements, then take the field.
                records = self._read(selection, None, None, options)
                result = self._output(records[field].shape, records[field].dtype, out, options.memory)
                options.memory.copy(result, records[field])
                return result
        result = self._output(selection.result_shape, dtype, out, options.memory)
        places = result if out is None else plain(out)
        self._reader.fill([selection], [places], field, options.missing, options.memory, places, options.device)
        return result

    def _read_as(
        self, dtype: np.dtype[Any], selection: Selection, field: str | None, out: Any, options: ReadOptions
    ) -> Any:
        """Read a selection converted to a data type."""
        own = self._metadata.dtype
        if field is not None:
            assert own.fields is not None
            own = own.fields[field][0]
        if dtype == own:
            return self._read(selection, field, out, options)
        if not np.can_cast(own.base, dtype, "unsafe"):
            raise ArgumentError(f"{self.name}: {own} cannot be converted to dtype={dtype}")
        memory = options.memory
        # A device has no compiled conversion to float16.
        reader = self._reader.converting(dtype) if field is None and (memory is HOST or dtype != "f2") else None
        if reader is not None:
            result = self._output(selection.result_shape, dtype, out, memory)
            places = result if out is None else plain(out)
            reader.fill([selection], [places], None, options.missing, memory, places, options.device)
            return result
        if out is not None:
            # Before anything is read.
            self._output((*selection.result_shape, *own.shape), dtype, out, memory)
        elements = self._read(selection, field, None, options)
        try:
            if memory is HOST and out is None:
                # Texts get the length that they need.
                return elements.astype(dtype, copy=False)
            result = self._output(elements.shape, dtype, out, memory)
            memory.copy(result, elements)
        except MemoryError as error:
            if memory is not HOST:
                raise
            # NumPy's own error knows the length of texts.
            raise no_room(HOST, elements.shape, getattr(error, "dtype", dtype), error) from error
        # RuntimeError is of NumPy, for times as texts; OverflowError, for texts of large integers.
        except (TypeError, ValueError, OverflowError, RuntimeError) as error:
            if isinstance(error, GzarrError):
                raise
            raise ArgumentError(f"{self.name}: elements cannot be converted to dtype={dtype}: {error}") from error
        return result

    def _output(self, shape: tuple[int, ...], dtype: np.dtype[Any], out: Any, memory: Results) -> Any:
        return output(memory, out, shape, dtype, self._path)
