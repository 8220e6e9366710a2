"""Outputs of blocks: arrays that are there, new ones in stores or in memory, and what of them is done."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from ..arrays.array import Array
from ..arrays.elements import as_elements, in_numpy
from ..arrays.outputs import HOST, DeviceResults, check_elements
from ..arrays.stored_chunks import stored_chunks
from ..codecs.choice import AUTO
from ..documents.json import quote
from ..dtypes.masks import unmasked
from ..engines.cuda.devices import get_device
from ..errors import ArgumentError, NodeNotFoundError, OutputError
from ..guarded import Lock
from ..hierarchy.array_spec import arguments_of, new_metadata
from ..hierarchy.create_filled import arguments_like
from ..hierarchy.new_nodes import NewArray
from ..hierarchy.open import open_array
from ..nodes.change import writable
from ..stores.aliases import check_not_overwritten
from ..stores.resolve import as_store

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..arrays.exporting import ExportedArray
    from ..arrays.outputs import Results
    from ..engines.cuda.device_protocol import Event
    from ..hierarchy.keywords import NewArrayArguments
    from .blocks import BlockGrid, OutputBlocks
    from .memory import BlockMemory
    from .plan import BlockGeometry

    Index = tuple[int, ...]
    Box = tuple[slice, ...]


class _NotGiven(Enum):
    """An argument that is left out, where None means something else."""

    NOT_GIVEN = "not given"

    def __repr__(self) -> str:
        return "<not given>"


_NOT_GIVEN: Final = _NotGiven.NOT_GIVEN

#: Data types that a codec may need, one of each kind, tried while that of the results is not known.
_TYPES: Final = ("f4", "i4", "u1", "c8", "f8", "i8", "u8", "?")


@dataclass(frozen=True)
class Output:
    """An output of :func:`gzarr.map_blocks` that has a shape or a data type of its own.

    Attributes
    ----------
    target
        Array opened for writing, array in memory, or store, as for ``out``; None for a new array in memory.
    scale, drop_axis, new_axis, dtype
        As for :func:`gzarr.map_blocks`, for this output; None for the call's.
    chunks, shards
        As for :func:`gzarr.create_array`, for an array that is created in a store. Without either, as for the first
        input; with one of them, the other is that function's default.
    codecs
        As for :func:`gzarr.create_array`, for an array that is created in a store.
    """

    target: Any = None
    scale: float | Sequence[float] | None = None
    drop_axis: int | Sequence[int] | None = None
    new_axis: int | Sequence[int] | None = None
    dtype: Any = None
    chunks: Any = _NOT_GIVEN
    shards: Any = _NOT_GIVEN
    codecs: Any = _NOT_GIVEN

    @property
    def layout(self) -> dict[str, Any]:
        """The arguments of :func:`gzarr.create_array` that were given."""
        found = {"chunks": self.chunks, "shards": self.shards, "codecs": self.codecs}
        return {name: value for name, value in found.items() if value is not _NOT_GIVEN}


def output_shapes(geometries: Sequence[BlockGeometry], outputs: Sequence[Any]) -> list[tuple[int, ...]]:
    """Return the shape of each output, and check that of those that exist."""
    # Outputs of one geometry have one shape.
    known: dict[BlockGeometry, tuple[int | None, ...]] = {}
    for geometry, output in zip(geometries, outputs, strict=True):
        shape = known.setdefault(geometry, geometry.output_shape)
        if not hasattr(output, "shape"):
            continue
        if len(output.shape) != len(shape) or any(n not in (None, m) for n, m in zip(shape, output.shape, strict=True)):
            wanted = ", ".join("any" if n is None else str(n) for n in shape)
            raise OutputError(f"out= has shape {tuple(output.shape)}; results have shape ({wanted})")
        known[geometry] = tuple(output.shape)
    if any(None in shape for shape in known.values()):
        raise ArgumentError("new_axis= needs out= arrays, which have the length of the new axis")
    return [cast("tuple[int, ...]", known[geometry]) for geometry in geometries]


def make_output(
    output: Output,
    geometry: BlockGeometry,
    shape: tuple[int, ...],
    like: ExportedArray,
    dtype: Any,
    device: str,
    *,
    overwrite: bool,
    resume: bool,
) -> Any:
    """Return an output: an array of gzarr, a device's, or one that is to be created. Nothing is created here.

    Parameters
    ----------
    output
        The output that is wanted.
    geometry, shape
        How it lies to the inputs, and its shape.
    like
        The first input; created arrays are like it.
    dtype, device, overwrite, resume
        Arguments of the call.
    """
    value, dtype = output.target, dtype if output.dtype is None else output.dtype
    if output.layout and (value is None or hasattr(value, "shape")):
        given = ", ".join(f"{name}=" for name in output.layout)
        what = "an array that exists" if hasattr(value, "shape") else "an array in memory"
        raise ArgumentError(f"Output: {given} is for an array that is created in a store, and the target is {what}")
    if value is None:
        return NewOutput(shape, dtype, device)
    if isinstance(value, Array):
        value._check_writable()
        return value._on_device(device)
    if hasattr(value, "shape"):
        if not (HOST if device == "cpu" else get_device(device)).is_array(value):
            raise OutputError(
                f"out= must be an array of device {device!r}, of gzarr, or a store, not {type(value).__name__}"
            )
        check_elements(value)
        return value
    layout: dict[str, Any] = {"shape": shape}
    if geometry.kept != tuple(range(like.ndim)):
        layout |= _layout(geometry, shape, like)
    if not ({"chunks", "shards"}.isdisjoint(output.layout) and _suits(like, geometry, shape)):
        # Those of the input need not suit the ones that are given.
        layout |= {"chunks": AUTO, "shards": None}
    layout |= {"dtype": _stand_in(like) if dtype is None else dtype, **output.layout}
    arguments = arguments_like(like, layout)
    # Chunks do not depend on results, or the blocks would, so they are chosen here.
    arguments |= _grid_of(arguments)
    if resume:
        with contextlib.suppress(NodeNotFoundError):
            found = open_array(value, mode="r+", device="cpu")
            if found.shape != shape:
                raise OutputError(f"{found.name}, to be resumed, has shape {found.shape}; results have shape {shape}")
            if not {"chunks", "shards"}.isdisjoint(output.layout):
                _check_resumed(found, arguments["chunks"], arguments["shards"])
            return found._on_device(device)
    return CreatedOutput(value, arguments, device, follows_results=dtype is None, overwrite=overwrite)


def _stand_in(like: ExportedArray) -> Any:
    """Return a data type in place of that of results which are not there yet: the input's."""
    found = arguments_of(like.metadata)["dtype"]
    # Objects of any kind need a codec that says what they are.
    return "f8" if isinstance(found, np.dtype) and found.hasobject else found


def _grid_of(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments ``chunks`` and ``shards`` with what stands for ``"auto"`` and the like."""
    only = {name: arguments.get(name, AUTO) for name in ("shape", "dtype", "zarr_format", "chunks")}
    found = arguments_of(new_metadata("", **only, shards=arguments.get("shards")))
    return {"chunks": found["chunks"], "shards": found["shards"]}


def _check_resumed(found: Array, chunks: Any, shards: Any) -> None:
    """Refuse to go on with an array that has other chunks or shards than those that are given."""
    stored = arguments_of(found.metadata)
    if (stored["chunks"], stored["shards"]) != (chunks, shards):
        raise OutputError(
            f"{found.name}, to be resumed, has chunks={stored['chunks']} and shards={stored['shards']}, and not "
            f"chunks={chunks} and shards={shards}: leave these out, or begin anew"
        )


class CreatedOutput:
    """An output that is an array to be created in a store.

    Parameters
    ----------
    store
        The store, as for :func:`gzarr.create_array`.
    arguments
        Arguments of that function.
    device
        Device of the blocks.
    follows_results
        Whether the array has the data type of the results; until these are there, ``arguments`` have another one.
    overwrite
        Whether to erase a node that exists there.

    Attributes
    ----------
    array
        The array, as it will be, but for the data type if it follows the results.
    follows_results
        The argument.

    Raises
    ------
    ArgumentError
        If there is no such array, of any data type if it follows the results.
    """

    def __init__(
        self, store: Any, arguments: dict[str, Any], device: str, *, follows_results: bool, overwrite: bool
    ) -> None:
        opened, path = as_store(store, "w" if overwrite else "a")
        self._place = writable(opened, f"'/{path}'"), path
        self._arguments, self._device, self._overwrite = arguments, device, overwrite
        self.follows_results: bool = follows_results
        self._planned = self._new(arguments["dtype"])
        self.array: Array = self._planned.array

    def _new(self, dtype: Any) -> NewArray:
        """Return the new array, of a data type; if that may be another one later, of any one that has its codecs."""
        try:
            return self._of(self._arguments | {"dtype": dtype})
        except ArgumentError as error:
            if not self.follows_results:
                raise
            for other in _TYPES:
                with contextlib.suppress(ArgumentError):
                    return self._of(self._arguments | {"dtype": other})
            raise error

    def _of(self, arguments: dict[str, Any]) -> NewArray:
        arguments = dict(arguments)
        zarr_format = arguments.pop("zarr_format")
        new = cast("NewArrayArguments", arguments)
        return NewArray(*self._place, zarr_format, new, overwrite=self._overwrite, device=self._device)

    def check(self, inputs: Sequence[ExportedArray]) -> None:
        """Refuse a location where the array cannot be created, or where that would erase an input."""
        if self._overwrite:
            check_not_overwritten(
                list(inputs),
                *self._place,
                operation="map_blocks",
                instead="pass another out=, or the array itself, opened with mode='r+', if each block only needs the "
                "chunks that it replaces",
            )
        self._planned.check()

    def planned(self, dtype: Any = None) -> NewArray:
        """Return the array that is to be created.

        Parameters
        ----------
        dtype
            Its data type, if it follows the results; None for the one that it was planned with.
        """
        return self._planned if dtype is None else self._of(self._arguments | {"dtype": dtype})


def _layout(geometry: BlockGeometry, shape: tuple[int, ...], like: ExportedArray) -> dict[str, Any]:
    """Return chunks and names of the dimensions of a new array with other axes than an input: the input's."""
    first = len(geometry.common) - like.ndim
    own = [None if d is None or d < first else d - first for d in geometry.kept]
    layout: dict[str, Any] = {"shards": None}
    if like.dimension_names is not None:
        layout["dimension_names"] = [None if d is None else like.dimension_names[d] for d in own]
    if like.metadata.chunk_grid.is_regular:
        chunks = [n if d is None else min(like.chunks[d], n) for d, n in zip(own, shape, strict=True)]
        layout["chunks"] = tuple(max(n, 1) for n in chunks)
    return layout


def _suits(like: ExportedArray, geometry: BlockGeometry, shape: tuple[int, ...]) -> bool:
    """Return whether chunks of an input suit an output: if regular, any that has no axis along which it is repeated."""
    first = len(geometry.common) - like.ndim
    return like.shape == shape or (like.metadata.chunk_grid.is_regular and like.shape == geometry.common[first:])


class NewOutput:
    """An output in memory, made when the first result is there.

    Parameters
    ----------
    shape
        Its shape.
    dtype
        Its data type; None for that of the first block's result.
    device
        Its device.

    Attributes
    ----------
    follows_results
        Whether it has that of the first block's result.
    """

    def __init__(self, shape: tuple[int, ...], dtype: Any, device: str) -> None:
        self._shape, self._device = shape, device
        try:
            self._dtype = None if dtype is None else np.dtype(dtype)
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"dtype={quote(dtype)} is not a data type of NumPy") from error
        self.follows_results: bool = dtype is None
        self._array: Any = None
        self._lock = Lock()
        self._results: Results = HOST
        # Work of the caller's stream that may still use the array's memory.
        self._before: Event | None = None
        if device != "cpu":
            # The caller's own, in whose order the array's memory is used again once the caller drops it.
            with get_device(device) as own:
                self._results = DeviceResults(own, own.as_stream(None))

    @property
    def data_type(self) -> np.dtype[Any] | None:
        """Its data type, None if it follows the first block's result."""
        return self._dtype

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any], memory: BlockMemory | None = None) -> Any:
        """Return the array, for writing in order with some memory's stream; ``dtype`` is its type if there is none."""
        with self._lock:
            if self._array is None:
                made = self._results.empty(shape, self._dtype or dtype)
                if isinstance(self._results, DeviceResults):
                    with self._results.device as own:
                        self._before = self._results.stream.record(own.event())
                # Not before: nothing would wait.
                self._array = made
        if memory is not None:
            memory.wait_for(self._before)
        return self._array


def write(output: Any, box: Box, result: Any, memory: BlockMemory, function: str, *, is_new: bool = False) -> None:
    """Write a block to its box of an output.

    Parameters
    ----------
    output, box
        Array of gzarr or in memory, and the place there.
    result, memory
        The block, and the memory that its arrays are in.
    function
        What returned it, in messages.
    is_new
        Whether the output was made in memory: as one in a store, it takes no elements that it would alter. An array of
        the caller's takes what NumPy's ``same_kind`` casting takes.

    Raises
    ------
    ArgumentError, ChunkWriteError
        If the output cannot hold an element, or if a chunk cannot be written.
    """
    if isinstance(result, np.ma.MaskedArray):
        result = unmasked(result, "map_blocks: a result")
    if isinstance(output, Array):
        output.write(box, result, aligned=True, stream=memory.stream)
        return
    called = f"{'the new array' if is_new else 'out='} of {output.dtype}"
    if memory.stream is not None:
        if not memory.is_array(result):
            raise OutputError(
                f"{called} on a device cannot take a {type(result).__module__}.{type(result).__name__}, which "
                f"{function} returned: return an array of the device, or pass an array of gzarr or a store as out=, "
                "which take any"
            )
        # As NumPy does below.
        if not np.can_cast(result.dtype, output.dtype, "same_kind"):
            raise OutputError(f"{called} cannot take results of {result.dtype}, of {function}")
        if is_new and _may_alter(result.dtype, output.dtype):
            elements = as_elements(memory.to_host(result), output.dtype, result.shape, f"{called}, of {function}")
            result = memory.from_host(np.ascontiguousarray(elements))
        memory.copy(output[box], result)
        return
    try:
        given = in_numpy(result)
        if is_new and _may_alter(given.dtype, output.dtype):
            given = as_elements(given, output.dtype, given.shape, f"{called}, of {function}")
        np.copyto(output[cast("Any", (*box, ...))], given, casting="same_kind")
    except ArgumentError:
        raise
    except (TypeError, ValueError) as error:
        raise OutputError(f"{called} cannot take results of {result.dtype}, of {function}: {error}") from error


def _may_alter(source: np.dtype[Any], dtype: np.dtype[Any]) -> bool:
    """Return whether NumPy converts elements to a dtype that may not hold them all."""
    # NumPy takes dates in any finer unit for safe, also those out of its range.
    is_safe = np.can_cast(source, dtype, "safe") and (dtype.kind not in "mM" or source == dtype)
    return np.can_cast(source, dtype, "same_kind") and not is_safe


class DoneBlocks:
    """The blocks whose chunks are all stored.

    Attributes
    ----------
    count
        Their number.
    """

    def __init__(self, outputs: Sequence[Any], grid: BlockGrid) -> None:
        if not outputs or not all(isinstance(output, (Array, CreatedOutput)) for output in outputs):
            raise ArgumentError("resume=True needs outputs that are stored: pass arrays or stores as out=")
        self._complete: set[Index] = set()
        if not any(isinstance(output, CreatedOutput) for output in outputs):
            each = zip(outputs, grid.outputs, strict=True)
            self._complete = set.intersection(*(_complete(*one, len(grid.grid_shape)) for one in each))
        self.count: int = len(self._complete)

    def has(self, index: Index) -> bool:
        """Return whether a block is done."""
        return index in self._complete


def _complete(output: Array, blocks: OutputBlocks, ndim: int) -> set[Index]:
    """Return the blocks of which all chunks (shards) are stored in an output, by their coordinates in the grid."""
    left: dict[Index, int] = {}
    axes = output.metadata.chunk_grid.axes
    for _, coords in stored_chunks(output.store, output.metadata, output.path):
        begins = [axis.begin(i) for axis, i in zip(axes, coords, strict=True)]
        own = [axis.touching(b, b + 1)[0] for axis, b in zip(blocks.blocks, begins, strict=True)]
        # Along the others, there is one block.
        place = [0] * ndim
        for at, i in zip(blocks.of, own, strict=True):
            if at is not None:
                place[at] = i
        index = tuple(place)
        if index not in left:
            extents = (axis.extent(i) for axis, i in zip(blocks.blocks, own, strict=True))
            left[index] = math.prod(len(axis.touching(*extent)) for axis, extent in zip(axes, extents, strict=True))
        left[index] -= 1
    return {index for index, count in left.items() if not count}
