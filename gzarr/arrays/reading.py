"""Reading an array: basic selections, many of them in one plan, and the methods of zarr-python."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..engines.cuda.devices import get_device, warn_of_loss
from ..errors import ArgumentError, DeviceError, OutputError, SelectionError
from ..plan.selection import parse_basic, parse_blocks, parse_orthogonal
from .array_properties import ArrayProperties
from .outputs import HOST, DeviceResults, output
from .read_options import NO_OPTIONS, DeviceOptions, ReadOptions, check_decode, check_missing, check_verify
from .zarr_selections import Fields, check_fields, parse_coordinates, parse_mask

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from ..engines.request import Missing, Verify
    from ..plan.selection import Selection
    from .outputs import Results
    from .read_options import Decode

_WHOLE = (Ellipsis,)


class ReadableArray(ArrayProperties):
    """The part of :class:`gzarr.Array` that reads."""

    __slots__ = ("_missing", "_verify")

    _missing: Missing

    def __getitem__(self, selection: Any) -> Any:
        """Read a selection by NumPy's basic rules, with one integer-array or mask axis, or by name of a field.

        Parameters
        ----------
        selection
            Integers, slices of any step, ``...``, ``np.newaxis``; at most one integer array or mask (or integer arrays
            for all dimensions: points). A string, or a tuple with a string at one end, selects a field of a structured
            type.

        Returns
        -------
        numpy.ndarray, or a scalar where NumPy would give one.

        Raises
        ------
        SelectionError
            If the selection does not fit.
        ChunkError
            If a chunk cannot be read; it names node, chunk and key.
        """
        result = self.read(selection)
        return result if result.shape else result[()]

    def read(
        self,
        selection: Any = _WHOLE,
        *,
        out: Any = None,
        missing: Missing | None = None,
        stream: Any = None,
        budget_bytes: int | None = None,
        decode: Decode = "auto",
        verify: Verify | None = None,
    ) -> Any:
        """Read a selection as ``a[selection]`` does, into the caller's array if there is one.

        Parameters
        ----------
        selection
            As for ``a[...]``.
        out
            Array of the result's shape and of the array's dtype, writable, of any strides. If a chunk fails, it holds
            some chunks and not others. It saves what the system takes to make a large result's pages ready, which may
            be as long as reading it.

            Without it, a result on the CPU of 4 MiB or more is in memory that gzarr keeps once the last array over it
            is gone, and uses for the next result of about that size: at most ``GZARR_RECYCLE_BYTES`` (default 512 MiB)
            are kept, the system may take them back at any time, and :func:`gzarr.release_memory` gives them back now.
            With ``GZARR_RECYCLE_BYTES=0`` nothing is kept, and each large result has new memory.
        missing
            Whether an absent chunk is the fill value or an error, for this read.
        stream
            Stream of the device on which the result is written: of CuPy, of PyTorch, anything with
            ``__cuda_stream__``, or its address; None is CuPy's current one. The result is there when the stream has run
            what is enqueued when the call returns. Means nothing on the CPU.
        budget_bytes
            Device and page-locked host memory that the read holds besides its result, at most. None is the smaller of
            1 GiB and a quarter of the device's free memory; what is free is not asked before 64 MiB are wanted. Means
            nothing on the CPU.
        decode
            ``"cuda"`` or ``"cpu"``, in the words of ``device=``: where chunks of this read are decoded, for a result on
            a GPU. ``"auto"`` takes what should be faster; see ``decode_path``.
        verify
            ``"cpu"``: the CPU decodes frames first, so that a GPU's decoder gets sound ones only. nvCOMP's decoders are
            undefined on corrupt zstd, snappy, deflate and gdeflate, also inside of Blosc, gzip and zlib: a flipped bit
            may end the use of CUDA in this process, where it should be an error that names the chunk. Chunks with a
            crc32c over their encoded bytes (v3's ``crc32c`` codec behind the compressor) are checked by it in any case,
            and cost nothing more. Of all others the host decodes each frame before the device does, in as many bytes a
            thread as a frame decodes to: such reads are not faster than with ``decode="cpu"``, which is what
            ``decode="auto"`` takes for them. GDeflate without crc32c is left to the host. ``"none"``: headers and sizes
            are checked, and no frame is decoded twice. None is what the array was opened with. Means nothing on the
            CPU, whose decoders take anything.

        Returns
        -------
        ``out``, or a new C-contiguous array of the array's device (of zero dimensions where ``a[...]`` gives a scalar).

        Raises
        ------
        OutputError
            If ``out`` does not fit; nothing was read.
        ArgumentError
            If an argument is none of the above, or ``budget_bytes`` is too small for one chunk.
        DeviceError
            If the device cannot hold elements of this type, fails, or was lost to this process, as it may be where a
            damaged chunk was decoded; the message then names the chunks, and says what to do.
        MemoryError
            If the device has no room.
        SelectionError, ChunkError
            As for ``a[...]``.
        """
        selection, field = self._split_field(selection)
        options = self._read_options(missing, stream, budget_bytes, decode, verify)
        return self._read(parse_basic(selection, self.shape), field, out, options)

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
        """Read many selections as one plan: a chunk that several of them touch is read and decoded once.

        Parameters
        ----------
        selections
            Each as for ``a[...]``, without integer arrays for several dimensions and without fields.
        out
            Array of shape ``(len(selections), *shape of each)``, if the results have one shape; what it saves, and
            what is done without it, is as for :meth:`read`.
        missing
            Whether an absent chunk is the fill value or an error, for this read.
        stream, budget_bytes, decode, verify
            As for :meth:`read`.

        Returns
        -------
        One array ``(len(selections), …)`` if all results have one shape, else a list of arrays. An empty list of
        selections gives an empty list.

        Raises
        ------
        ArgumentError
            If ``selections`` is not a sequence.
        OutputError, DeviceError, MemoryError, SelectionError, ChunkError
            As for :meth:`read`.
        """
        if isinstance(selections, str) or not hasattr(selections, "__iter__"):
            raise ArgumentError(f"read_many takes a sequence of selections, not {selections!r}")
        parsed = [parse_basic(selection, self.shape) for selection in selections]
        if any(selection.points is not None for selection in parsed):
            raise SelectionError("read_many takes boxes; read points with a.vindex[...]")
        if not parsed and out is None:
            return []
        options = self._read_options(missing, stream, budget_bytes, decode, verify)
        base: Any = None
        shapes = {selection.result_shape for selection in parsed}
        if len(shapes) == 1:
            base = stacked = self._output((len(parsed), *shapes.pop()), self.dtype, out, options.memory)
            results = [stacked[i, ...] for i in range(len(parsed))]
        elif out is not None:
            raise OutputError(f"out= needs selections of one shape; these have {len(shapes)} different ones")
        elif options.memory is HOST:
            stacked = None
            results = [self._output(selection.result_shape, self.dtype, None, HOST) for selection in parsed]
        else:
            # The device writes into one allocation; each result is a part of it.
            sizes = [math.prod(selection.result_shape) for selection in parsed]
            stacked = None
            base = self._output((sum(sizes),), self.dtype, None, options.memory)
            ends = list(itertools.accumulate(sizes))
            results = [
                base[end - size : end].reshape(selection.result_shape)
                for selection, size, end in zip(parsed, sizes, ends, strict=True)
            ]
        self._reader.fill(parsed, results, None, options.missing, options.memory, base, options.device)
        return results if stacked is None else stacked

    # -- reading as in zarr-python

    def get_basic_selection(self, selection: Any = _WHOLE, *, out: Any = None, fields: Fields = None) -> Any:
        """Read integers and slices, as ``a[selection]`` does; zarr-python's name for it.

        Parameters
        ----------
        selection
            As for ``a[...]``, without names of fields.
        out
            Array of the result's shape and dtype, as for :meth:`read`; that method and those of ``a.oindex``,
            ``a.vindex`` and ``a.blocks`` take a stream and other options as well.
        fields
            Name of a field of a structured dtype, for elements of that field; or a sequence of names, for records of
            these fields in this order.

        Returns
        -------
        ``out``, or a new array of the array's device; a scalar where ``a[...]`` gives one.

        Raises
        ------
        SelectionError
            If the selection does not fit, or there is no such field.
        OutputError, DeviceError, ChunkError
            As :meth:`read`.
        """
        return self._get(parse_basic(selection, self.shape), out, fields)

    def get_orthogonal_selection(self, selection: Any, *, out: Any = None, fields: Fields = None) -> Any:
        """Read indices of each dimension independently, as ``a.oindex[selection]`` does.

        Parameters
        ----------
        selection
            Integers, slices, integer arrays and masks, at most one for each dimension, and one ``...``.
        out, fields
            As for :meth:`get_basic_selection`; so are result and errors.
        """
        return self._get(parse_orthogonal(selection, self.shape), out, fields)

    def get_coordinate_selection(self, selection: Any, *, out: Any = None, fields: Fields = None) -> Any:
        """Read elements by their coordinates, as ``a.vindex[selection]`` does.

        Parameters
        ----------
        selection
            Integer arrays, one for each dimension, which broadcast to the result's shape.
        out, fields
            As for :meth:`get_basic_selection`; so are result and errors.
        """
        return self._get(parse_coordinates(selection, self.shape), out, fields)

    def get_mask_selection(self, mask: Any, *, out: Any = None, fields: Fields = None) -> Any:
        """Read the elements where a mask is true, as ``a.vindex[mask]`` does.

        Parameters
        ----------
        mask
            Boolean array of the array's shape.
        out, fields
            As for :meth:`get_basic_selection`; so are result (of one dimension) and errors.
        """
        return self._get(parse_mask(mask, self.shape), out, fields)

    def get_block_selection(self, selection: Any, *, out: Any = None, fields: Fields = None) -> Any:
        """Read whole chunks (shards, in a sharded array) of the grid, as ``a.blocks[selection]`` does.

        Parameters
        ----------
        selection
            Integers and slices with step 1, in chunks.
        out, fields
            As for :meth:`get_basic_selection`; so are result and errors.
        """
        return self._get(self._parse_blocks(selection, self.shape), out, fields)

    def _get(self, selection: Selection, out: Any, fields: Fields) -> Any:
        names = check_fields(fields, self.dtype)
        options = self._read_options(None, None, None, "auto", None)
        if isinstance(names, tuple):
            records = self._read(selection, None, None, options)
            dtype = np.dtype([(name, self.dtype[name]) for name in names])
            result = self._output(records.shape, dtype, out, options.memory)
            for name in names:
                options.memory.copy(result[name], records[name])
        else:
            result = self._read(selection, names, out, options)
        return result if result.shape or out is not None else result[()]

    def _parse_blocks(self, selection: Any, shape: tuple[int, ...]) -> Selection:
        return parse_blocks(selection, self._metadata.chunk_grid)

    # -- reading all of it

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Read everything, for ``np.asarray``."""
        if self.device != "cpu":
            raise DeviceError(
                f"the array reads to {self.device}; NumPy needs host memory: open it with device='cpu', or take "
                "a[...].get()"
            )
        if copy is False:
            raise ArgumentError("an array in a store cannot become a NumPy array without copying it")
        result = self.read()
        return result if dtype is None else result.astype(dtype, copy=False)  # type: ignore[no-any-return]

    def __dlpack__(self, **kwargs: Any) -> Any:
        """Read everything and export it; see the Python array API standard."""
        return self.read().__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[Any, Any]:
        """Where :meth:`__dlpack__` exports: ``(1, 0)`` for the CPU, ``(2, N)`` for ``cuda:N``."""
        return (1, 0) if self.device == "cpu" else (2, int(self.device.removeprefix("cuda:")))

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array of zero dimensions has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise TypeError("an array of zero dimensions cannot be iterated over")
        return self._rows()

    def _rows(self) -> Iterator[Any]:
        # A row of chunks at a time: each chunk is decoded once, and memory stays bounded.
        step = max(self.chunks[0], 1)
        for begin in range(0, self.shape[0], step):
            yield from self[begin : begin + step]

    # -- for the other parts of Array

    def _split_field(self, selection: Any) -> tuple[Any, str | None]:
        """Take the name of a field out of a selection."""
        if isinstance(selection, str):
            names: list[str] = [selection]
            rest: Any = _WHOLE
        elif isinstance(selection, tuple) and any(isinstance(item, str) for item in selection):
            names = [item for item in selection if isinstance(item, str)]
            rest = tuple(item for item in selection if not isinstance(item, str)) or _WHOLE
        else:
            return selection, None
        if len(names) > 1:
            raise SelectionError(f"{selection!r}: one field at a time, of an array of shape {self.shape}")
        if self.dtype.names is None or names[0] not in self.dtype.names:
            have = f"its fields are {', '.join(self.dtype.names)}" if self.dtype.names else "it has no fields"
            raise SelectionError(
                f"{selection!r}: no field {names[0]!r} in an array of shape {self.shape}, {self.dtype}; {have}"
            )
        return rest, names[0]

    def _read_options(
        self, missing: Missing | None, stream: Any, budget_bytes: int | None, decode: Decode, verify: Verify | None
    ) -> ReadOptions:
        """Return the options of one read, checked; None is what the array was opened with."""
        check_decode(decode)
        meaning = self._missing if missing is None else check_missing(missing)
        verified = self._verify if verify is None else check_verify(verify)
        if self.device == "cpu":
            if self._device != "cpu":
                warn_of_loss()
            return ReadOptions(meaning, HOST, NO_OPTIONS)
        device = get_device(self.device)
        with device:
            memory = DeviceResults(device, device.as_stream(stream))
        return ReadOptions(meaning, memory, DeviceOptions(budget_bytes, decode, verified))

    def _read(self, selection: Selection, field: str | None, out: Any, options: ReadOptions) -> Any:
        dtype = self._metadata.dtype
        if field is not None:
            fields = dtype.fields
            assert fields is not None
            if fields[field][0].subdtype is None:
                dtype = fields[field][0]
            else:
                # A field that is an array itself: its dimensions are not the plan's. Read the elements, then take it.
                records = self._read(selection, None, None, options)
                result = self._output(records[field].shape, records[field].dtype, out, options.memory)
                options.memory.copy(result, records[field])
                return result
        result = self._output(selection.result_shape, dtype, out, options.memory)
        self._reader.fill([selection], [result], field, options.missing, options.memory, result, options.device)
        return result

    def _output(self, shape: tuple[int, ...], dtype: np.dtype[Any], out: Any, memory: Results) -> Any:
        return output(memory, out, shape, dtype, self.name)
