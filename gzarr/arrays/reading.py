"""Reading arrays: basic selections, many selections in one plan, and zarr-python's methods."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..engines.cuda.devices import get_device, warn_of_loss
from ..errors import ArgumentError, DeviceError, OutputError, SelectionError
from ..plan.selection import parse_basic, parse_blocks, parse_orthogonal
from ..plugins import integration
from .array_properties import ArrayProperties
from .outputs import HOST, DeviceResults, output
from .read_options import DeviceOptions, ReadOptions, check_budget, check_decode, check_missing, check_verify
from .zarr_selections import Fields, check_fields, parse_coordinates, parse_mask

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import jax
    import numpy.typing as npt
    import torch

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
        """Read a selection by NumPy's indexing rules.

        Parameters
        ----------
        selection
            Integers, slices of any step, ``...`` and ``np.newaxis``, with at most one integer array or mask; or integer
            arrays for all dimensions, which select points. A string, alone or in the tuple, selects a field of a
            structured dtype.

        Returns
        -------
        Array on the array's device (NumPy or CuPy), or a scalar where NumPy would return one.

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
        selection: Any = _WHOLE,
        *,
        out: Any = None,
        missing: Missing | None = None,
        stream: Any = None,
        budget_bytes: int | None = None,
        decode: Decode = "auto",
        verify: Verify | None = None,
    ) -> Any:
        """Read a selection as ``a[selection]`` does, into ``out`` if given.

        Parameters
        ----------
        selection
            Selection as for ``a[...]``; everything by default.
        out
            Writable array of the result's shape and the array's dtype, with any strides. If a chunk fails, ``out`` is
            partially written. Passing it saves the allocation of a large result, whose page faults may take as long as
            the read.

            Without it, a CPU result of 4 MiB or more uses recycled memory: gzarr keeps the memory of a result once the
            last array that uses it is gone, and reuses it for a result of similar size. At most
            ``GZARR_RECYCLE_BYTES`` (default 512 MiB; 0 for none) are kept. The system may reclaim them at any time, and
            :func:`gzarr.release_memory` frees them at once.
        missing
            Meaning of an absent chunk for this read: ``"fill"`` or ``"error"``; None for the array's own setting.
        stream
            CUDA stream on which the result is written: a stream of CuPy or PyTorch, any object with
            ``__cuda_stream__``, or a stream address; None for CuPy's current stream. The result is ready once the
            stream has run the work enqueued by the call. Ignored on the CPU.
        budget_bytes
            Limit in bytes of the device and page-locked host memory that the read holds besides its result. None for
            1 GiB or a quarter of the device's free memory, whichever is smaller; free memory is queried only if more
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
            If an argument is none of the above, or if ``budget_bytes`` is too small for one chunk.
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
        """Read many selections in one plan: a chunk that several of them touch is read and decoded once.

        Parameters
        ----------
        selections
            Selections as for ``a[...]``, each with at most one integer array and without fields.
        out
            Array of shape ``(len(selections), *result_shape)``, if all results have the same shape; otherwise as for
            :meth:`read`.
        missing, stream, budget_bytes, decode, verify
            As for :meth:`read`.

        Returns
        -------
        One array of shape ``(len(selections), *result_shape)`` if all results have the same shape, else a list of
        arrays. An empty list for no selections.

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
            Selection as for ``a[...]``, without names of fields.
        out
            Array of the result's shape and dtype, as for :meth:`read`. That method, and the ``read`` of ``a.oindex``,
            ``a.vindex`` and ``a.blocks``, also take a stream and other options.
        fields
            Name of a field of a structured dtype, for elements of that field; or a sequence of names, for records of
            these fields in this order.

        Returns
        -------
        ``out``, or a new array on the array's device; a scalar where ``a[...]`` returns one.

        Raises
        ------
        SelectionError
            If the selection is invalid for the array, or there is no such field.
        OutputError, DeviceError, ChunkError
            As for :meth:`read`.
        """
        return self._get(parse_basic(selection, self.shape), out, fields)

    def get_orthogonal_selection(self, selection: Any, *, out: Any = None, fields: Fields = None) -> Any:
        """Read indices of each dimension independently, as ``a.oindex[selection]`` does.

        Parameters
        ----------
        selection
            Integers, slices, integer arrays and masks, at most one for each dimension, and at most one ``...``.
        out, fields
            As for :meth:`get_basic_selection`; so are the result and the errors.
        """
        return self._get(parse_orthogonal(selection, self.shape), out, fields)

    def get_coordinate_selection(self, selection: Any, *, out: Any = None, fields: Fields = None) -> Any:
        """Read elements by their coordinates, as ``a.vindex[selection]`` does.

        Parameters
        ----------
        selection
            Integer arrays, one for each dimension, which broadcast to the result's shape.
        out, fields
            As for :meth:`get_basic_selection`; so are the result and the errors.
        """
        return self._get(parse_coordinates(selection, self.shape), out, fields)

    def get_mask_selection(self, mask: Any, *, out: Any = None, fields: Fields = None) -> Any:
        """Read the elements where a mask is true, as ``a.vindex[mask]`` does.

        Parameters
        ----------
        mask
            Boolean array of the array's shape.
        out, fields
            As for :meth:`get_basic_selection`; so are the errors and the result, which has one dimension.
        """
        return self._get(parse_mask(mask, self.shape), out, fields)

    def get_block_selection(self, selection: Any, *, out: Any = None, fields: Fields = None) -> Any:
        """Read whole chunks (shards, in a sharded array) of the grid, as ``a.blocks[selection]`` does.

        Parameters
        ----------
        selection
            Grid indices of chunks (shards): integers and slices with step 1.
        out, fields
            As for :meth:`get_basic_selection`; so are the result and the errors.
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

    # -- reading to other libraries

    def to_torch(
        self,
        selection: Any = _WHOLE,
        *,
        missing: Missing | None = None,
        budget_bytes: int | None = None,
        decode: Decode = "auto",
        verify: Verify | None = None,
    ) -> torch.Tensor:
        """Read a selection as ``a[selection]`` does, to a tensor of PyTorch.

        The tensor has the memory that the elements are read to: nothing is copied, whatever the data type. A read to a
        GPU runs on PyTorch's current stream.

        Parameters
        ----------
        selection
            Selection as for ``a[...]``; everything by default.
        missing, budget_bytes, decode, verify
            As for :meth:`read`.

        Returns
        -------
        New tensor on the array's device, of the selection's shape (without dimensions where ``a[...]`` returns a
        scalar) and the array's dtype, in native byte order; bfloat16 and float8 included.

        Raises
        ------
        ArgumentError
            If PyTorch is not installed, or has no such elements: dates, durations, strings, records, numbers of less
            than 8 bits. Nothing was read.
        DeviceError
            If the array is on a GPU that PyTorch cannot use.
        SelectionError, ChunkError, MemoryError
            As for :meth:`read`.
        """
        return integration("torch").to_torch(
            self, selection, missing=missing, budget_bytes=budget_bytes, decode=decode, verify=verify
        )

    def to_jax(
        self,
        selection: Any = _WHOLE,
        *,
        missing: Missing | None = None,
        budget_bytes: int | None = None,
        decode: Decode = "auto",
        verify: Verify | None = None,
    ) -> jax.Array:
        """Read a selection as ``a[selection]`` does, to an array of JAX.

        The result has the memory that the elements are read to, unless JAX has to change them or, for less than 64 KiB
        in host memory, dislikes its alignment.

        Parameters
        ----------
        selection, missing, budget_bytes, decode, verify
            As for :meth:`to_torch`.

        Returns
        -------
        New array on the array's device, of the selection's shape (without dimensions where ``a[...]`` returns a scalar)
        and the array's dtype, in native byte order, bfloat16 and the like included; 64-bit numbers become 32-bit ones
        if ``jax_enable_x64`` is not set.

        Raises
        ------
        ArgumentError
            If JAX is not installed, or has no such elements: dates, durations, strings, records. Nothing was read.
        DeviceError
            If the array is on a GPU that JAX cannot use.
        SelectionError, ChunkError, MemoryError
            As for :meth:`read`.

        Warns
        -----
        UserWarning
            If JAX makes 32-bit numbers of 64-bit ones.
        """
        options: dict[str, Any] = {"missing": missing, "budget_bytes": budget_bytes, "decode": decode, "verify": verify}
        # Warnings show the caller's line.
        return integration("jax").to_jax(self, selection, stacklevel=3, **options)

    # -- reading all of it

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Read the whole array, for ``np.asarray``."""
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
        """Read the whole array and export it; see the Python array API standard."""
        return self.read().__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[Any, Any]:
        """Device that :meth:`__dlpack__` exports from: ``(1, 0)`` for the CPU, ``(2, N)`` for ``cuda:N``."""
        return (1, 0) if self.device == "cpu" else (2, int(self.device.removeprefix("cuda:")))

    def synchronize(self, stream: Any = None) -> None:
        """Wait until all results of reads on a stream of the array's device are complete; at once on the CPU.

        Results are ready in the order of their stream. This is for those who use them elsewhere: in another thread that
        has another current stream, or in a library that knows no streams.

        Parameters
        ----------
        stream
            As for :meth:`read`; None for CuPy's current stream.

        Raises
        ------
        DeviceError
            If the device fails, or was lost to this process.
        """
        if self.device != "cpu":
            device = get_device(self.device)
            with device:
                device.as_stream(stream).synchronize()

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array of zero dimensions has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise TypeError("an array of zero dimensions cannot be iterated over")
        return self._rows()

    def _rows(self) -> Iterator[Any]:
        # One row of chunks at a time: each chunk is decoded once, and memory stays bounded.
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
        """Return the checked options of one read; None stands for the array's own setting."""
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

    def _read(self, selection: Selection, field: str | None, out: Any, options: ReadOptions) -> Any:
        dtype = self._metadata.dtype
        if field is not None:
            fields = dtype.fields
            assert fields is not None
            if fields[field][0].subdtype is None:
                dtype = fields[field][0]
            else:
                # A subarray field has dimensions that the plan lacks: read whole elements, then take the field.
                records = self._read(selection, None, None, options)
                result = self._output(records[field].shape, records[field].dtype, out, options.memory)
                options.memory.copy(result, records[field])
                return result
        result = self._output(selection.result_shape, dtype, out, options.memory)
        self._reader.fill([selection], [result], field, options.missing, options.memory, result, options.device)
        return result

    def _output(self, shape: tuple[int, ...], dtype: np.dtype[Any], out: Any, memory: Results) -> Any:
        return output(memory, out, shape, dtype, self.name)
