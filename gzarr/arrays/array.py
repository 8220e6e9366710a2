"""An array of a store: reading it, writing it, changing its shape."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from typing import TYPE_CHECKING, Any, Literal

from ..dtypes.properties import is_in_cupy
from ..engines.cuda.devices import available, get_device, warn_of_loss
from ..errors import ArgumentError, DeviceError, OutputError, ReadOnlyError, SelectionError
from ..nodes.attributes import Attributes
from ..nodes.change import hold_documents
from ..plan.selection import parse_basic, parse_blocks, parse_orthogonal, parse_points
from . import resize
from .array_properties import ArrayProperties
from .device import resolve_device
from .elements import all_elements
from .index import Indexer
from .objects import items_of
from .outputs import HOST, DeviceResults, How, output
from .read import NO_OPTIONS, DeviceOptions, Reader
from .write import Writer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Self

    import numpy as np
    import numpy.typing as npt

    from ..engines.cuda.router import Decode
    from ..engines.request import Missing, Verify
    from ..metadata.model import ArrayMetadata
    from ..plan.selection import Selection
    from ..stores.base import ReadableStore, Store
    from .outputs import Results

_WHOLE = (Ellipsis,)


class Array(ArrayProperties):
    """An array of a store, read on one device.

    Open one with :func:`gzarr.open_array`. What it is costs no store request to ask, but for
    ``nchunks_initialized``.

    Parameters
    ----------
    metadata
        What the array is.
    store
        Where its chunks are.
    path
        Of the node in the store, without leading slash; ``""`` for the root.
    device
        ``"auto"``, ``"cpu"``, ``"cuda"``, ``"cuda:N"``.
    missing
        What an absent chunk means: ``"fill"`` (the fill value) or ``"error"``.
    verify
        What the host decodes before a GPU does: ``"none"`` or ``"host"``; see :meth:`read`.
    mode
        ``"r"`` or ``"r+"`` (read and write).
    write_empty
        Whether chunks of nothing but the fill value are stored when they are written; else they are erased.

    Raises
    ------
    DeviceError
        If the device cannot be used.
    ArgumentError
        If ``device``, ``missing`` or ``verify`` is none of the above.
    """

    __slots__ = ("_missing", "_verify", "_write_empty")

    def __init__(
        self,
        metadata: ArrayMetadata,
        store: ReadableStore,
        path: str,
        *,
        device: str = "auto",
        missing: Missing = "fill",
        verify: Verify = "none",
        mode: Literal["r", "r+"] = "r",
        write_empty: bool = False,
    ) -> None:
        if mode not in ("r", "r+"):
            raise ArgumentError(f"mode must be 'r' or 'r+', not {mode!r}")
        self._metadata = metadata
        self._store = store
        self._path = path
        self._auto = device == "auto"
        self._device = _device_for(device, metadata.dtype)
        self._missing = _check_missing(missing)
        self._verify = check_verify(verify)
        self._mode = mode
        self._write_empty = write_empty
        self._reader = Reader(metadata, store, path, self._device)

    @property
    def attrs(self) -> Attributes:
        """User attributes, a mapping; each change of it is written, if the array is not read-only."""
        return Attributes(self, self._take_attributes)

    def update_attributes(self, attributes: Mapping[str, Any]) -> Self:
        """Change some user attributes in one write, as ``attrs.update`` does; return this array."""
        self.attrs.update(attributes)
        return self

    def _take_attributes(self, found: ArrayMetadata) -> None:
        """Take over what the store has now, of all that does not bear on reading; its documents are held meanwhile."""
        self._metadata = dataclasses.replace(
            self._metadata,
            attributes=found.attributes,
            dimension_names=found.dimension_names,
            document=found.document,
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Array):
            return NotImplemented
        return (self._store, self._path, self.device) == (other._store, other._path, other.device)

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        make = functools.partial(
            _unpickled,
            device=self._device,
            auto=self._auto,
            missing=self._missing,
            verify=self._verify,
            mode=self._mode,
            write_empty=self._write_empty,
        )
        return make, (self._metadata, self._store, self._path)

    # -- reading

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
            ``"gpu"`` or ``"cpu"``: where chunks of this read are decoded, for a result on a device. ``"auto"`` takes
            what should be faster; see ``decode_path``.
        verify
            ``"host"``: a GPU's decoder is given nothing that the host has not found to be sound. nvCOMP's decoders are
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
        how = self._how(missing, stream, budget_bytes, decode, verify)
        return self._read(parse_basic(selection, self.shape), field, out, how)

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
        how = self._how(missing, stream, budget_bytes, decode, verify)
        base: Any = None
        shapes = {selection.result_shape for selection in parsed}
        if len(shapes) == 1:
            base = stacked = self._output((len(parsed), *shapes.pop()), self.dtype, out, how.memory)
            results = [stacked[i, ...] for i in range(len(parsed))]
        elif out is not None:
            raise OutputError(f"out= needs selections of one shape; these have {len(shapes)} different ones")
        elif how.memory is HOST:
            stacked = None
            results = [self._output(selection.result_shape, self.dtype, None, HOST) for selection in parsed]
        else:
            # The device writes into one allocation; each result is a part of it.
            sizes = [math.prod(selection.result_shape) for selection in parsed]
            stacked = None
            base = self._output((sum(sizes),), self.dtype, None, how.memory)
            ends = list(itertools.accumulate(sizes))
            results = [
                base[end - size : end].reshape(selection.result_shape)
                for selection, size, end in zip(parsed, sizes, ends, strict=True)
            ]
        self._reader.fill(parsed, results, None, how.missing, how.memory, base, how.options)
        return results if stacked is None else stacked

    # -- writing

    def __setitem__(self, selection: Any, value: Any) -> None:
        """Write to a selection; see :meth:`write`."""
        self.write(selection, value)

    def write(
        self, selection: Any, value: Any, *, lock: bool = False, aligned: bool = False, stream: Any = None
    ) -> None:
        """Write to a selection, as NumPy's ``a[selection] = value`` does.

        Chunks (shards) that the selection covers are written; others are read, changed and written. Each is replaced
        in one step: readers see the old one or the new one. Writers of one process take turns at a chunk, whichever
        threads and arrays they are in. Writers in several processes must not write to one chunk (shard) at a time,
        unless all of them pass ``lock=True``; regions that begin and end where chunks (shards) do are always safe.

        Parameters
        ----------
        selection
            As for reading, a field included.
        value
            A scalar, or an array that broadcasts to the selection's shape: of NumPy, CuPy, with ``__array__`` or
            ``__dlpack__``.
        lock
            Keep writers in other processes that do the same away from the chunks, by file locks beside the data.
        aligned
            Raise, before anything is written, if a chunk (shard) would be changed in part.
        stream
            Stream of the array's device, as for :meth:`read`, on which a value that is there can be read. Whole chunks
            of such values are encoded on the device; all is stored when the call returns.

        Raises
        ------
        ReadOnlyError
            If the array is read-only; nothing was touched.
        ArgumentError
            If the value does not broadcast, if its elements are not all elements of the array's type (a fraction, a
            number out of range, a text too long), or ``aligned``; nothing was written.
        SelectionError
            If the selection does not fit.
        ChunkWriteError, ChunkReadError, ChunkDecodeError
            If a chunk cannot be written, or one that is changed in part cannot be read. It says which chunk, and how
            many were written.
        """
        self._check_writable()
        rest, field = self._split_field(selection)
        self._write([parse_basic(rest, self.shape)], [value], field, lock=lock, aligned=aligned, stream=stream)

    def write_many(
        self,
        selections: Sequence[Any],
        values: Sequence[Any],
        *,
        lock: bool = False,
        aligned: bool = False,
        stream: Any = None,
    ) -> None:
        """Write many boxes as one plan: a chunk (shard) that several of them touch is written once.

        Parameters
        ----------
        selections
            Each as for ``a[...]``, without integer arrays for several dimensions and without fields. Where they overlap
            the later one counts.
        values
            One a selection, or an array with one more dimension.
        lock, aligned, stream
            As for :meth:`write`; so are the errors.
        """
        self._check_writable()
        parsed = [parse_basic(selection, self.shape) for selection in selections]
        if any(selection.points is not None for selection in parsed):
            raise SelectionError("write_many takes boxes; write points with a.vindex[...] = values")
        try:
            number = len(values)
        except TypeError:
            raise ArgumentError(f"{self.name}: one value a selection, not {type(values).__name__}") from None
        if number != len(parsed):
            raise ArgumentError(f"{self.name}: {len(parsed)} selections, but {number} values")
        if parsed:
            self._write(parsed, list(values), None, lock=lock, aligned=aligned, stream=stream)

    def _check_writable(self) -> None:
        if self.read_only:
            raise ReadOnlyError(f"{self.name} in {self._store!r} is read-only; open it with mode='r+' to change it")

    def _write(
        self,
        selections: Sequence[Selection],
        values: Sequence[Any],
        field: str | None,
        *,
        lock: bool,
        aligned: bool,
        stream: Any = None,
        metadata: ArrayMetadata | None = None,
    ) -> None:
        """Write to selections of an array with some metadata: this one's, or what is to be this one's."""
        metadata = metadata or self._metadata
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
        shapes = [selection.result_shape for selection in selections]
        arrays, memory = all_elements(values, dtype, shapes, self.name, memory, items_of(metadata))
        store: Store = self._store  # type: ignore[assignment]
        writer = Writer(metadata, store, self._path, write_empty=self._write_empty)
        writer.write(selections, arrays, field, aligned=aligned, lock=lock, memory=memory)

    # -- changing its shape

    def resize(self, shape: int | Sequence[int], *, erase: bool = True, lock: bool = False) -> None:
        """Change the shape. No chunk is moved; elements that are new are the fill value.

        The metadata goes first: whenever this ends, and however, the array is the old one or the new one, and all its
        elements are what they were.

        Parameters
        ----------
        shape
            The new one, in elements, of as many dimensions.
        erase
            Erase what is outside of it now: chunks (shards), and what is cut off within those at the new edge. If
            False, that stays in the store, where it is seen again when the array grows.
        lock
            Keep processes that do the same away, by a file lock beside the data.

        Raises
        ------
        ReadOnlyError
            If the array is read-only; nothing was touched.
        ArgumentError
            If ``shape`` is not a shape of as many dimensions, or something else was put in the array's place since it
            was opened; nothing was changed.
        NodeNotFoundError
            If the array is not there any more.
        StoreError, ChunkError
            If the store fails. Where that is while something is erased, the array has its new shape already.
        """
        self._check_writable()
        resize.resize(self, shape, erase=erase, lock=lock)

    def append(self, value: Any, axis: int = 0, *, lock: bool = False) -> tuple[int, ...]:
        """Make the array longer along an axis, by what ``value`` holds.

        The elements are written first and the shape after them, so readers never see an array that lacks some of its
        elements, and what fails or is killed leaves the array as it was. What others have appended meanwhile stays:
        ``value`` comes behind it. The cost depends on ``value`` and not on the array.

        Parameters
        ----------
        value
            Array of the array's shape but for the length along ``axis``; what :meth:`write` takes.
        axis
            Along which it grows; negative ones count from the last.
        lock
            Keep processes that do the same away, by a file lock beside the data. Without, only one process may append
            at a time.

        Returns
        -------
        The new shape.

        Raises
        ------
        ReadOnlyError, ArgumentError, ChunkWriteError, ChunkReadError, ChunkDecodeError
            As for :meth:`write`; the shape is then the old one.
        NodeNotFoundError, StoreError
            As for :meth:`resize`.
        """
        self._check_writable()
        return resize.append(self, value, axis, lock=lock)

    def _become(self, metadata: ArrayMetadata) -> None:
        reader = Reader(metadata, self._store, self._path, self._device)
        # Not between the steps in which another thread takes over attributes: they would bring the old shape back.
        with hold_documents(self._store, self._path):
            self._metadata = metadata
            self._reader = reader

    @property
    def oindex(self) -> Indexer:
        """Orthogonal selection: ``a.oindex[[0, 5], :, mask]`` takes each dimension's indices independently."""
        return Indexer(self, parse_orthogonal, "oindex")

    @property
    def vindex(self) -> Indexer:
        """Point selection: ``a.vindex[[0, 5], [1, 2]]`` takes elements (0, 1) and (5, 2); or a mask of the array."""
        return Indexer(self, parse_points, "vindex")

    @property
    def blocks(self) -> Indexer:
        """Selection by chunk of the grid (by shard, in a sharded array): ``a.blocks[0, 1:3]``."""
        metadata = self._metadata
        parse = functools.partial(parse_blocks, block_shape=metadata.chunk_shape, edges=metadata.chunk_edges)
        return Indexer(self, parse, "blocks")

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

    def _how(
        self, missing: Missing | None, stream: Any, budget_bytes: int | None, decode: Decode, verify: Verify | None
    ) -> How:
        """Return how a read is done, from what the caller said of it."""
        if decode not in ("auto", "cpu", "gpu"):
            raise ArgumentError(f"decode must be 'auto', 'cpu' or 'gpu', not {decode!r}")
        meaning = self._missing if missing is None else _check_missing(missing)
        verified = self._verify if verify is None else check_verify(verify)
        if self.device == "cpu":
            if self._device != "cpu":
                warn_of_loss()
            return How(meaning, HOST, NO_OPTIONS)
        device = get_device(self.device)
        with device:
            memory = DeviceResults(device, device.as_stream(stream))
        return How(meaning, memory, DeviceOptions(budget_bytes, decode, verified))

    def _read(self, selection: Selection, field: str | None, out: Any, how: How) -> Any:
        dtype = self._metadata.dtype
        if field is not None:
            fields = dtype.fields
            assert fields is not None
            if fields[field][0].subdtype is None:
                dtype = fields[field][0]
            else:
                # A field that is an array itself: its dimensions are not the plan's. Read the elements, then take it.
                records = self._read(selection, None, None, how)
                result = self._output(records[field].shape, records[field].dtype, out, how.memory)
                how.memory.copy(result, records[field])
                return result
        result = self._output(selection.result_shape, dtype, out, how.memory)
        self._reader.fill([selection], [result], field, how.missing, how.memory, result, how.options)
        return result

    def _output(self, shape: tuple[int, ...], dtype: np.dtype[Any], out: Any, memory: Results) -> Any:
        return output(memory, out, shape, dtype, self.name)


def _device_for(device: str, dtype: np.dtype[Any]) -> str:
    """Return the device that ``device`` means for elements of a type: ``"auto"`` is one that can hold them."""
    resolved = resolve_device(device)
    if device != "auto" or resolved == "cpu" or is_in_cupy(dtype):
        return resolved
    return "cpu"


def _unpickled(
    metadata: ArrayMetadata, store: ReadableStore, path: str, *, device: str, auto: bool, **options: Any
) -> Array:
    """Return an array that was pickled: on the device that it was on, but for one that ``"auto"`` had put there."""
    array = Array(metadata, store, path, device="cpu" if auto and not available() else device, **options)
    array._auto = auto
    return array


def _check_missing(missing: Missing) -> Missing:
    if missing not in ("fill", "error"):
        raise ArgumentError(f"missing must be 'fill' or 'error', not {missing!r}")
    return missing


def check_verify(verify: Verify) -> Verify:
    """Return an argument ``verify``; raise ArgumentError if it is none."""
    if verify not in ("none", "host"):
        raise ArgumentError(f"verify must be 'none' or 'host', not {verify!r}")
    return verify
