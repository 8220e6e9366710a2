"""Results of a function for blocks with their halos, kept beside each other in one array."""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..arrays.exporting import ExportedArray
from ..arrays.host_copies import host_copy
from ..arrays.stored_chunks import stored_chunks
from ..documents.json import quote
from ..dtypes.properties import native
from ..errors import ArgumentError, GzarrError, NodeNotFoundError, OutputError
from ..hierarchy.create import create_array
from ..hierarchy.open import open_array
from ..nodes.change import writable
from ..stores.aliases import check_not_overwritten
from ..stores.places import place_of
from ..stores.places_read import check_apart
from ..stores.resolve import as_store
from ..stores.temporary_files import note_of, noted, temporary_files
from .computing import name_of, takes_block_info

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from ..arrays.array import Array
    from .blocks import Block
    from .calls import PlannedCall

    Index = tuple[int, ...]


_ADVICE: Final = "pass scratch="
_INSTEAD: Final = "pass another scratch="
#: Attribute of the array that says which blocks it has.
_BLOCKS: Final = "blocks"


@dataclass(frozen=True, eq=False)
class BlockWindows:
    """Labels of blocks with their halos, one after the other along each axis, as chunks or not.

    Attributes
    ----------
    array
        The array of all of them.
    shape
        Shape without halos.
    lengths
        Length of blocks along each axis, without halos; the last may be shorter.
    halos
        Elements before and after each block, also at the ends of the axis.
    note
        What errors of the array say beside their message, if it is temporary.
    """

    array: ExportedArray
    shape: Index
    lengths: Index
    halos: tuple[tuple[int, int], ...]
    note: str = ""

    @property
    def grid_shape(self) -> Index:
        """Number of blocks along each axis."""
        return tuple(-(-n // length) for n, length in zip(self.shape, self.lengths, strict=True))

    def extent(self, axis: int, i: int) -> tuple[int, int]:
        """Return begin and end of a block with its halo in the array, along an axis."""
        length, halo = self.lengths[axis], sum(self.halos[axis])
        begin = i * (length + halo)
        return begin, begin + min(length, self.shape[axis] - i * length) + halo

    def box(self, index: Index) -> tuple[slice, ...]:
        """Return a block with its halo in the array."""
        return tuple(slice(*self.extent(d, i)) for d, i in enumerate(index))

    def core(self, index: Index) -> tuple[slice, ...]:
        """Return a block in itself with its halo."""
        return tuple(
            slice(before, before + min(length, n - i * length))
            for i, n, length, (before, _) in zip(index, self.shape, self.lengths, self.halos, strict=True)
        )

    def read(self, box: tuple[slice, ...]) -> npt.NDArray[Any]:
        """Return a part of the array."""
        with noted(self.note, GzarrError):
            found: npt.NDArray[Any] = self.array.read(box)
        return found


def windows_shape(shape: Index, lengths: Index, halos: tuple[tuple[int, int], ...]) -> Index:
    """Return the shape of the array of all blocks with their halos."""
    return tuple(n + -(-n // length) * sum(halo) for n, length, halo in zip(shape, lengths, halos, strict=True))


def block_lengths_of(call: PlannedCall) -> Index:
    """Return the length of blocks along each axis.

    Raises
    ------
    ArgumentError
        If they are not all of one length.
    """
    if not all(axis.is_regular for axis in call.blocks):
        raise ArgumentError("with function=, chunks of the output must be of one length along each axis")
    return tuple(min(axis.longest, n) for axis, n in zip(call.blocks, call.shapes[0], strict=True))


def check_scratch(scratch: Any, call: PlannedCall, *, overwrite: bool) -> None:
    """Refuse a store for what a function returns that is an input or the output, or lies in one, or has one in it.

    Raises
    ------
    ArgumentError
        If so.
    """
    if scratch is None:
        return
    store, path = as_store(scratch, "w" if overwrite else "a")
    place = place_of(store, path)
    for output in call.outputs:
        if isinstance(output, ExportedArray) and place.overlaps(written := place_of(output.store, output.path)):
            raise ArgumentError(
                f"scratch= is {place.label}, and labels are written to {written.label} while it is read; nothing was "
                f"changed: {_INSTEAD}"
            )
    if overwrite:
        found = writable(store, f"'/{path}'")
        check_not_overwritten(call.inputs, found, path, operation="label", instead=_INSTEAD)
    else:
        check_apart(call.inputs, place, operation="label", instead=_INSTEAD)


@contextlib.contextmanager
def place_for(scratch: Any) -> Iterator[tuple[Any, str]]:
    """Yield a store, the one that was given or a temporary directory, and a note for errors of the latter.

    Raises
    ------
    StoreError
        If there can be no temporary directory.
    """
    if scratch is not None:
        yield scratch, ""
        return
    with contextlib.ExitStack() as stack:
        with temporary_files("what the function returns", _ADVICE):
            # That it cannot be removed does not make the result worse.
            made = tempfile.TemporaryDirectory(prefix="gzarr-", ignore_cleanup_errors=True)
            folder = stack.enter_context(made)
        yield f"{folder}/blocks.zarr", note_of(folder, _ADVICE)


def open_kept(place: Any) -> Array | None:
    """Return what another call has kept, None if there is nothing."""
    with contextlib.suppress(NodeNotFoundError):
        return open_array(place, mode="r+", device="cpu")
    return None


def windows_in(
    place: Any, note: str, call: PlannedCall, kept: Array | None, dtype: np.dtype[Any], *, overwrite: bool
) -> BlockWindows:
    """Return the place of labels of all blocks, as :func:`place_for` yields it: one that was kept, or a new one.

    Raises
    ------
    OutputError
        If what was kept is of other blocks.
    """
    lengths, halos = block_lengths_of(call), call.geometries[0].surroundings.halos
    shape = windows_shape(call.shapes[0], lengths, halos)
    chunks = tuple(n + sum(halo) for n, halo in zip(lengths, halos, strict=True))
    # Others may have the same shape and chunks.
    blocks = {"shape": list(lengths), "halo": [list(halo) for halo in halos]}
    if kept is None:
        # All chunks are stored, also those without labels: they say what is done.
        options: dict[str, Any] = {
            "attributes": {_BLOCKS: blocks},
            "write_empty_chunks": True,
            "overwrite": overwrite,
            "device": "cpu",
        }
        with noted(note, GzarrError):
            array = create_array(place, shape=shape, dtype=dtype, chunks=chunks, **options)
    else:
        array = kept
        if (kept.shape, kept.chunks) != (shape, chunks):
            raise OutputError(
                f"{kept.name}, to be resumed, has shape {kept.shape} and chunks {kept.chunks}; blocks with their halos "
                f"have shape {shape} and chunks {chunks}"
            )
        if (found := array.attrs.get(_BLOCKS)) != blocks:
            raise OutputError(
                f"{array.name}, to be resumed, has blocks of {quote(found)}; this call has {blocks}: begin anew, with "
                "overwrite=True"
            )
    return BlockWindows(array, call.shapes[0], lengths, halos, note)


class OnHost:
    """A function of blocks, whose result is brought to host memory.

    Parameters
    ----------
    function
        The function.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._tells = takes_block_info(function)
        self.__name__: str = name_of(function)

    def __call__(self, *blocks: Any, block_info: Block) -> npt.NDArray[Any]:
        """Return the result."""
        result = self._function(*blocks, block_info=block_info) if self._tells else self._function(*blocks)
        if hasattr(result, "__cuda_array_interface__") and hasattr(result, "get"):
            result = host_copy(result)
        if not isinstance(result, np.ndarray):
            raise ArgumentError(f"{self.__name__} returned {type(result).__name__} for {block_info}, not an array")
        return result


class KeepWindows:
    """A function of blocks whose results, labels, are kept with their halos.

    Parameters
    ----------
    function
        The function.
    windows
        Where they are kept.
    done
        Whether what is there is not computed again.
    """

    def __init__(self, function: OnHost, windows: BlockWindows, *, done: bool) -> None:
        self._function, self._windows = function, windows
        array: Any = windows.array
        self._done = {coords for _, coords in stored_chunks(array.store, array.metadata, array.path)} if done else set()

    def __call__(self, *blocks: Any, block_info: Block) -> None:
        """Keep what the function returns for a block."""
        if block_info.index in self._done:
            return
        windows, array = self._windows, self._windows.array
        result = self._function(*blocks, block_info=block_info)
        if native(result.dtype) != array.dtype:
            raise ArgumentError(
                f"{self._function.__name__} returned elements of {result.dtype} for {block_info}, and of {array.dtype} "
                "for the first block: have it return one data type"
            )
        box = windows.box(block_info.index)
        target_shape = tuple(s.stop - s.start for s in box)
        # There is no halo at the ends of the array with boundary=None.
        begins = [full - own for (full, _), (own, _) in zip(windows.halos, block_info.halo, strict=True)]
        # As the function was given it; what pads a block comes last.
        given = tuple(before + n + after for n, (before, after) in zip(block_info.shape, block_info.halo, strict=True))
        whole = tuple(min(n, room - begin) for n, room, begin in zip(given, target_shape, begins, strict=True))
        if result.shape not in (whole, given):
            raise ArgumentError(
                f"{self._function.__name__} returned labels of shape {result.shape} for {block_info}; expected them "
                f"with the halo, {whole}, because instances are compared there"
            )
        result = result[tuple(slice(0, n) for n in whole)]
        if whole != target_shape:
            target = np.zeros(target_shape, array.dtype)
            target[tuple(slice(b, b + n) for b, n in zip(begins, whole, strict=True))] = result
            result = target
        with noted(windows.note, GzarrError):
            array.write(box, result)  # type: ignore[attr-defined]
