"""Labels of the connected components of arrays that do not fit in memory, and of instances that a function finds.

Components: one pass over the blocks finds which components of neighbouring blocks touch each other; of each block only
its faces are kept, until its neighbours are there. A second pass finds the components of each block again, and writes
their final numbers. That takes less time than to store numbers that are not final, and to read and write them again: so
each element is written once, and what is stored is final at any time.

Instances: a function may take long, so what it finds in each block with its halo is kept in an array of its own, until
:mod:`gzarr.blocks.joining` has found which instances are one.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..arrays.device_choice import resolve_device
from ..documents.json import quote
from ..errors import ArgumentError, ChunkReadError, ChunkWriteError
from ..flags import check_flags
from ..integers import as_integer
from ..stores.temporary_files import noted
from ..tools.processes import check_shared
from ..windows.inputs import KINDS, device_of
from .arguments import background_of, holds
from .calls import DEFAULT_BUDGET_BYTES, CallOptions, plan_call
from .components import Components
from .faces import BlockFaces, KeptFaces
from .joining import Overlap, check_overlap, join_windows
from .label_outputs import check_output, finish, label_output
from .mapping import map_blocks
from .members import ObjectMembers, places_in
from .outputs import Output
from .scratch import KeepWindows, OnHost, block_lengths_of, check_scratch, open_kept, place_for, windows_in
from .surroundings import Surroundings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Executor

    import numpy.typing as npt

    from ..windows.boundary import Mode
    from ..windows.inputs import Input
    from .blocks import Block
    from .calls import PlannedCall
    from .joining import Measure
    from .lengths import Lengths
    from .members import ObjectNumbers
    from .surroundings import Halo

_WANTED: Final = f"label takes arrays: each is {KINDS}"
#: Share of the budget for the faces of blocks that wait for their neighbours.
_FOR_FACES: Final = 8


def label(  # noqa: PLR0913
    *arrays: Input,
    out: Any = None,
    function: Callable[..., Any] | None = None,
    by_value: bool = False,
    connectivity: int = 1,
    background: int = 0,
    halo: Halo = 0,
    boundary: Mode | complex | Sequence[Mode | complex | None] | None = "symmetric",
    pad_blocks: bool = False,
    threshold: float = 0.5,
    measure: Measure = "iou",
    scratch: Any = None,
    block: Lengths = "auto",
    dtype: Any = "uint32",
    device: str | None = None,
    overwrite: bool = False,
    resume: bool = False,
    progress: bool = False,
    budget_bytes: int = DEFAULT_BUDGET_BYTES,
    client: Any = None,
) -> tuple[Any, int]:
    """Give each object of an array that does not fit in memory one number, block after block.

    Without ``function``, objects are the connected components of a mask: the result is that of
    :func:`scipy.ndimage.label`, with the same numbers, whatever the blocks are. With it, objects are what the function
    finds in each block: components of the masks that it returns, or the instances that it labels, of which those of
    neighbouring blocks are joined that overlap.

    Parameters
    ----------
    *arrays
        A mask; or inputs of ``function``, as for :func:`gzarr.map_blocks`.
    out
        Array of integers opened for writing, NumPy array, or store as for :func:`gzarr.create_array`, where an array
        like the first input is created (:class:`Output` gives it chunks of its own). None for a new NumPy array.
    function
        Function of a block of each array, with the halo. It returns a mask (bool) of the block's shape, with the halo
        or without it; or labels (integers) with the halo, where those of different blocks are compared, which are 0
        where there is no object. Numbers of different blocks have nothing to do with each other. For the first block,
        it is called twice.
    by_value
        Whether only neighbours of equal values are of one component, as in ``skimage.measure.label``.
    connectivity
        Most axes along which neighbours differ: 1 for those that share a face, up to the number of axes.
    background
        Value of elements of no object, in a mask or in values.
    halo, boundary, pad_blocks
        As for :func:`gzarr.map_blocks`, for ``function``. Instances are compared where blocks with their halos overlap,
        so a halo is at least about half as wide as an object, and what a network needs.
    threshold, measure
        Which instances are joined, as for :func:`join`.
    scratch
        Store, as for :func:`gzarr.create_array`, for what ``function`` returns: masks, or the labels of blocks with
        their halos. It stays, for :func:`join` with another threshold. None for a temporary directory. It may neither
        be an input or the output, nor lie in one, nor have one in it.
    block
        As for :func:`gzarr.map_blocks`.
    dtype
        ``"uint32"`` or ``"uint64"``, of an array that is created.
    device
        Device that ``function`` is given blocks on, as for :func:`gzarr.map_blocks`. Components are found on the host.
    overwrite
        As for :func:`gzarr.map_blocks`, for ``out`` and ``scratch``.
    resume
        Whether blocks that are stored in ``out`` and in ``scratch`` are taken as done.
    progress, budget_bytes, client
        As for :func:`gzarr.map_blocks`. Beside the budget, this process needs 16 bytes for each object of a block, and
        16 for each pair that touches; faces of blocks that do not fit in an eighth of the budget wait in a temporary
        file.

    Returns
    -------
    The output, and the number of objects. Objects have the numbers 1, 2, …, in the order of their first elements.

    Raises
    ------
    NodeNotFoundError, NodeTypeError, MetadataError, DeviceError
        If an input or a device cannot be opened.
    ArgumentError, OutputError, ReadOnlyError
        If an argument is wrong, there are more objects than the output can number, or the output is an input; nothing
        was written to the output.
    ChunkError, StoreError
        If a chunk cannot be read or written.
    Exception
        What ``function`` raises.

    Examples
    --------
    >>> import gzarr
    >>> import numpy as np
    >>> gzarr.blocks.label(np.array([0, 1, 1, 0, 1, 0, 0, 1]) > 0, block=2)
    (array([0, 1, 1, 0, 2, 0, 0, 3], dtype=uint32), 3)
    """
    if not arrays or (function is None and len(arrays) > 1):
        raise ArgumentError("label takes one mask, or function= and at least one array")
    if function is not None and not callable(function):
        raise ArgumentError("function must be callable")
    if function is None and scratch is not None:
        raise ArgumentError("scratch= is for the instances that function= returns")
    check_flags(by_value=by_value, pad_blocks=pad_blocks, overwrite=overwrite, resume=resume, progress=progress)
    output = label_output(out, dtype, resume=resume and scratch is None)
    check_overlap(threshold, measure)
    call = plan_call(
        arrays,
        [output],
        CallOptions(block=block, device="cpu", overwrite=overwrite, resume=resume, budget_bytes=budget_bytes),
        takes=_WANTED,
        surroundings=(halo, boundary, pad_blocks) if function is not None else (0, None, False),
    )
    shape = call.shapes[0]
    if not shape:
        raise ArgumentError("label takes arrays of at least one dimension")
    most = as_integer(connectivity)
    if most is None or not 1 <= most <= len(shape):
        raise ArgumentError(f"connectivity must be a number of axes from 1 to {len(shape)}, not {quote(connectivity)}")
    # Components are those of the mask that is given, or of masks that the function returns.
    mask_type = call.inputs[0].dtype if function is None else np.dtype(bool)
    outside = background_of(background, mask_type, has_it=bool(by_value))
    # Wrong ones are refused also where there is no function that they are for.
    Surroundings.of(len(shape), halo, boundary, padded=False)
    check_output(call)
    call.check_created()
    check_scratch(scratch, call, overwrite=overwrite)
    if not call.blocks or 0 in shape:
        return finish(call, call.work(_nothing, reads=False), None, None, progress=progress), 0
    find = FindComponents(shape, outside, bool(by_value), most)
    if function is None:
        return _components(call, find, client, progress=progress)
    used = resolve_device(device or device_of(arrays))
    call = call.on_device(used)
    call.synchronize()
    on_host = OnHost(function)
    with place_for(scratch) as (place, note):
        kept = open_kept(place) if resume else None
        if kept is None:
            # What the function returns for the first block says which kind of function it is.
            kept_type = _type_of_first(call, on_host)
        else:
            kept_type = kept.dtype
        if kept_type == np.bool_:
            # What is written is the masks.
            with noted(note, ChunkWriteError):
                masks = map_blocks(
                    function,
                    *arrays,
                    out=Output(place, dtype=bool, chunks=block_lengths_of(call)),
                    block=block_lengths_of(call),
                    halo=halo,
                    boundary=boundary,
                    pad_blocks=pad_blocks,
                    device=used,
                    overwrite=overwrite,
                    resume=resume,
                    progress=progress,
                    budget_bytes=budget_bytes,
                    client=client,
                )
            call = replace(call, inputs=[masks]).on_device("cpu").without_halo()
            # Now they are read.
            with noted(note, ChunkReadError):
                return _components(call, find, client, progress=progress)
        windows = windows_in(place, note, call, kept, kept_type, overwrite=overwrite)
        work = call.work(KeepWindows(on_host, windows, done=kept is not None), writes=False, reduces=True)
        executor = call.executor(client, work)
        if executor is not None:
            check_shared(windows.array.store, windows.array.name)
        with closing(work.values(None, executor, progress=progress)) as values:
            for _ in values:
                pass
        return join_windows(call, Overlap(windows, float(threshold), measure, 0), executor, progress=progress)


def _components(call: PlannedCall, find: FindComponents, client: Any, *, progress: bool) -> tuple[Any, int]:
    """Give each component a number; return the output and the number of components."""
    for array in call.inputs:
        if array.dtype.kind not in ("biu" if find.by_value else "biuf"):
            raise ArgumentError(
                f"{array.name} has elements of {array.dtype}; label takes {'integers' if find.by_value else 'a mask'}"
            )
    work = call.work(find, writes=False, reduces=True)
    executor = call.executor(client, work)
    numbers = _found(call, find, executor, progress=progress)
    painting = call.work(PaintComponents(find, numbers))
    return finish(call, painting, numbers, executor, progress=progress), numbers.count


def _found(call: PlannedCall, find: FindComponents, executor: Executor | None, *, progress: bool) -> ObjectNumbers:
    """Find the components of all blocks, and those that touch each other; return the number of each."""
    work = call.work(find, writes=False, reduces=True)
    members = ObjectMembers()
    room = call.budget_bytes // _FOR_FACES
    with (
        KeptFaces(work.grid.grid_shape, find.connectivity, room) as kept,
        closing(work.values(None, executor, progress=progress)) as values,
    ):
        numbers: dict[tuple[int, ...], int] = {}
        for _, found in values:
            numbers[found.index] = found.number
            members.add(found.number, found.firsts)
            for other, pairs in kept.add(found.index, found.faces):
                members.join(found.number, numbers[other], pairs)
    return members.numbers()


def _type_of_first(call: PlannedCall, function: OnHost) -> np.dtype[Any]:
    """Return the data type of what a function returns for the first block: a mask, or labels."""
    work = call.work(function, writes=False, reduces=True)
    _, found = work.results_of((0,) * len(work.grid.grid_shape))
    dtype: np.dtype[Any] = found.dtype
    if dtype.kind not in "biu":
        raise ArgumentError(
            f"{function.__name__} returned elements of {dtype}; label wants a mask (bool) or labels (integers)"
        )
    return dtype


def _nothing(block_info: Block) -> None:
    """Return nothing: there are no blocks."""


@dataclass(frozen=True, eq=False)
class FoundComponents:
    """What is kept of the components of a block.

    Attributes
    ----------
    number, index
        Number and coordinates of the block.
    firsts
        The first element of each component, in C order of all elements.
    faces
        The components of the block's faces.
    """

    number: int
    index: tuple[int, ...]
    firsts: npt.NDArray[np.int64]
    faces: BlockFaces


@dataclass(frozen=True, eq=False)
class FindComponents:
    """Finds the components of a block.

    Attributes
    ----------
    shape
        Shape of the whole mask.
    background, by_value, connectivity
        Arguments of :func:`label`.
    """

    shape: tuple[int, ...]
    background: int | float
    by_value: bool
    connectivity: int

    def components(self, mask: npt.NDArray[Any]) -> Components:
        """Return the components of a block."""
        background = self.background
        if mask.dtype.kind == "f":
            mask, background = mask != background, 0
        elif not holds(mask.dtype, int(background)):
            mask, background = np.ones(mask.shape, bool), 0
        return Components(mask, int(background), by_value=self.by_value, connectivity=self.connectivity)

    def __call__(self, mask: npt.NDArray[Any], block_info: Block) -> FoundComponents:
        """Return what is kept of a block's components."""
        found = self.components(mask)
        firsts, values = found.describe()
        places = places_in(self.shape, block_info.box, firsts)
        dtype = np.dtype(np.uint16 if found.count < 1 << 16 else np.uint32)
        faces = {}
        whole = [slice(0, n) for n in block_info.shape]
        for axis, (i, blocks_along) in enumerate(zip(block_info.index, block_info.grid_shape, strict=True)):
            n = block_info.shape[axis]
            for after, place in ((0, 0), (1, n - 1)):
                if (i + 1 < blocks_along) if after else i:
                    box = [*whole[:axis], slice(place, place + 1), *whole[axis + 1 :]]
                    faces[axis, after] = found.paint(dtype, box)
        return FoundComponents(
            block_info.number, block_info.index, places, BlockFaces(faces, values if self.by_value else None)
        )


class PaintComponents:
    """Finds the components of a block, and returns their final numbers.

    Parameters
    ----------
    find
        How they are found.
    numbers
        Their numbers.
    """

    def __init__(self, find: FindComponents, numbers: ObjectNumbers) -> None:
        self._find, self._numbers = find, numbers

    def __call__(self, mask: npt.NDArray[Any], block_info: Block) -> npt.NDArray[Any]:
        """Return the numbers of the elements of a block."""
        found = self._find.components(mask)
        own = self._numbers.of_block(block_info.number)
        if len(own) != found.count + 1:
            raise ArgumentError(
                f"{block_info} has {found.count} components, and had {len(own) - 1} before: the input has changed"
            )
        dtype = np.dtype(np.uint32 if self._numbers.count < 1 << 32 else np.uint64)
        return found.paint(dtype, numbers=own)
