"""Computing over arrays that do not fit in memory."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any, Final, Literal

from ..choices import choice
from ..errors import ArgumentError
from ..flags import check_flags
from ..windows.inputs import KINDS
from .calls import DEFAULT_BUDGET_BYTES, CallOptions, plan_call
from .outputs import Output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    from ..integers import EachAxis
    from ..windows.boundary import Mode
    from ..windows.inputs import Input
    from .lengths import Lengths
    from .surroundings import Halo

_WANTED: Final = f"map_blocks takes a function and arrays: each is {KINDS}"


def map_blocks(  # noqa: PLR0913
    function: Callable[..., Any],
    *arrays: Input,
    out: Any = None,
    block: Lengths = "auto",
    halo: Halo = 0,
    boundary: Mode | complex | Sequence[Mode | complex | None] | None = "symmetric",
    pad_blocks: bool = False,
    blend: Literal["hann"] | None = None,
    scale: float | Sequence[float] | npt.NDArray[Any] = 1,
    drop_axis: EachAxis = (),
    new_axis: EachAxis = (),
    dtype: Any = None,
    reduce: Callable[[Any, Any], Any] | None = None,
    device: str | None = None,
    overlap: bool = True,
    overwrite: bool = False,
    resume: bool = False,
    progress: bool = False,
    budget_bytes: int = DEFAULT_BUDGET_BYTES,
    client: Any = None,
) -> Any:
    """Compute over arrays that do not fit in memory, block after block.

    Blocks are read with their halo, given to a function, and its results are written, with reading, computing and
    writing of different blocks at the same time. Blocks are whole chunks (shards) of the outputs, so each of these is
    written once, and replaced in one step. Chunks of the inputs that several blocks need stay decoded until the last of
    them, as far as ``budget_bytes`` allows.

    Parameters
    ----------
    function
        Function of a block of each array (NumPy, or CuPy on a device), with the halo. It returns an array for each
        output: of the shape of the block, or of the shape with the halo, which is then cut off. For an output in the
        memory of a device, it is an array of that device; arrays of gzarr and stores take any. It is called in several
        threads, on a device while a stream of the thread's own is CuPy's current one. If it has a parameter
        ``block_info``, it is given a :class:`gzarr.blocks.Block` there.
    *arrays
        Inputs, at least one: arrays of gzarr and views of them; paths and URLs of arrays, arrays of zarr-python and OME
        images (of which level 0 is taken), which are opened; arrays of NumPy, and of xarray with loaded elements, which
        are copied. Their shapes are broadcast as NumPy does; axes count in the common shape.
    out
        Output, or list of outputs: arrays opened for writing; NumPy arrays (CuPy arrays on a device); or stores as for
        :func:`gzarr.create_array`, where an array like the first input is created, once the first block is computed.
        None for a new array in memory, or for no output if there is ``reduce``. :class:`gzarr.blocks.Output` gives an
        output a shape, a data type, chunks, shards or codecs of its own.
    block
        Shape of blocks, in elements of the first output, so that they are whole chunks (shards) of all outputs: a
        length for each axis or for all of them, or lengths by names of axes, ``{"z": 16, "y": 256}``. -1 and None are
        all of an axis. ``"auto"``, which axes that are not named have as well, chooses lengths for blocks of about
        8 MiB, without halos. Along an axis that an output lacks, a block has all of it. Names are those of the first
        output, or of the inputs (``dimension_names``, axes of OME images, ``dims`` of xarray).
    halo
        Elements that a function is given before and after a block along each axis of the inputs, or along all of them;
        or pairs, those before and those after, as the widths of ``numpy.pad``: ``[(2, 0), (1, 1)]``.
        One that is more than 100 times longer than an input must fit in ``budget_bytes`` (at least 1 MiB) with a block.
    boundary
        What a halo has beyond the ends of the inputs, as in ``numpy.pad``: ``"symmetric"`` (d c b a | a b c d, which
        ``scipy.ndimage`` has by default and calls ``"reflect"``), ``"reflect"`` (d c b | a b c d), ``"edge"``,
        ``"wrap"``, or a number; None for no halo there. One for all axes, or one for each.
    pad_blocks
        Whether the last blocks along an axis are given as long as all others, as neural networks want: what they lack
        is what ``boundary`` has beyond the end. Results may be as long; what pads them is cut off.
    blend
        ``"hann"`` to blend results that overlap, for networks whose results are worse near the ends of a block: results
        have the halo, and each element is the mean of the results of all blocks that have it, weighted by Hann's window
        over the block with its halo, along each axis. Results are floating-point numbers. Those of blocks are kept
        until all that overlap them are computed; the function is called again for those that ``budget_bytes`` has no
        room for. Not with ``reduce`` and ``client``.
    scale
        Length of the outputs divided by that of the inputs, along each axis or all of them: a whole number, or the
        inverse of one (rounded up).
    drop_axis, new_axis
        Axes of the inputs that the outputs lack, which a function is given whole; and axes of the outputs that the
        inputs lack, which it returns whole, and whose length is that of ``out``.
    dtype
        Data type of created outputs, in stores or in memory, which take no elements that it would alter (floating-point
        numbers are rounded); None for that of the first block's result, which later ones must have as well. An output
        that is resumed keeps its own. NumPy arrays that are given as ``out`` take what NumPy's casting ``"same_kind"``
        takes.
    reduce
        Function of two values that returns one: a sum, a merged histogram, a joined table. ``function`` then returns
        one more value, after its outputs, and these are reduced in the order of the numbers of blocks (C order of the
        grid), one by one, whatever ``budget_bytes`` and the threads are. Arrays in it are copied, since they wait while
        ``function`` is called again.
    device
        Device of the blocks: ``"cpu"``, ``"cuda"``, ``"cuda:N"`` or ``"auto"``; None for that of the first input, which
        is opened on the device of one that is open.
    overlap
        Whether blocks are worked on at the same time. If False, there is one thread.
    overwrite
        Whether nodes that exist where outputs are created are erased, with everything below them, once all arguments
        are checked. Not with ``resume``.
    resume
        Whether blocks whose chunks are all stored in the outputs are taken as done. Chunks that only have the fill
        value are not stored, and are computed again.
    progress
        Whether work that takes a while shows a progress bar, on a terminal or in a notebook.
    budget_bytes
        Approximate limit of the bytes that blocks and chunks kept for later take; what ``function`` allocates comes
        on top. One block is always held, even if it is larger. Strings count as long as in a few chunks of the
        inputs, which are read for it.
    client
        ``distributed.Client``, or any ``concurrent.futures.Executor``, in whose processes blocks are worked on. They
        must see all stores under the same names, and each needs ``budget_bytes``. None for this process.

    Returns
    -------
    The output or the list of outputs, of which arrays that were given are the same objects, on their own devices; with
    ``reduce`` the reduced value (None without blocks), in a tuple after the outputs if there are any.

    Raises
    ------
    NodeNotFoundError, NodeTypeError, MetadataError, DeviceError
        If an input or a device cannot be opened.
    ArgumentError, OutputError, ReadOnlyError
        If an argument is wrong, or an output is an input of which several blocks need the same chunks; nothing was
        created or written.
    ArgumentError
        If ``function`` returns something else than described above, elements of another data type than for the first
        block, or elements that a created output cannot have.
    ChunkError, StoreError
        If a chunk cannot be read or written.
    Exception
        What ``function`` raises. All errors have a note that names the block. Blocks that were written stay.

    Examples
    --------
    >>> import gzarr
    >>> import numpy as np
    >>> a = gzarr.array(np.arange(10), chunks=4)
    >>> gzarr.map_blocks(lambda x: x[:-2] + x[1:-1] + x[2:], a, halo=1)
    array([ 1,  3,  6,  9, 12, 15, 18, 21, 24, 26])
    >>> int(gzarr.map_blocks(np.sum, a, reduce=lambda x, y: x + y))
    45
    """
    if not arrays:
        raise ArgumentError("map_blocks takes a function and at least one array")
    called: tuple[object, ...] = (function,) if reduce is None else (function, reduce)
    if not all(map(callable, called)):
        raise ArgumentError("function and reduce must be callable")
    check_flags(pad_blocks=pad_blocks, progress=progress)
    choice("blend", blend, ("hann", None))
    if blend is not None and (reduce is not None or client is not None):
        raise ArgumentError(
            "blend= calls the function once for the elements of several blocks, perhaps again, and in this process: "
            "leave reduce= and client= out"
        )
    several = isinstance(out, (list, tuple))
    given = list(out) if several else [] if out is None and reduce is not None else [out]
    wanted = [value if isinstance(value, Output) else Output(value) for value in given]
    options = CallOptions(
        block=block,
        dtype=dtype,
        device=device,
        overlap=overlap,
        overwrite=overwrite,
        resume=resume,
        budget_bytes=budget_bytes,
    )
    call = plan_call(
        arrays,
        wanted,
        options,
        takes=_WANTED,
        surroundings=(halo, boundary, pad_blocks),
        axes=(scale, drop_axis, new_axis),
    )
    reduces = reduce is not None
    work = call.work(function, reduces=reduces, blends=blend is not None, in_order=reduces)
    if resume and reduce is not None:
        raise ArgumentError("resume=True leaves out blocks that are done, and reduce needs the values of all of them")
    call.check_created()
    executor = call.executor(client, work)
    done = call.done(work)
    # Everything is checked; from here on, something is computed, and created.
    call.synchronize()
    with closing(work.values(done, executor, progress=progress)) as values:
        reduced = _reduced(values, reduce)
    results = call.answers(work)
    answer = results if several else results[0] if results else None
    if reduce is None:
        return answer
    return reduced if not results else (answer, reduced)


def _reduced(values: Iterator[tuple[int, Any]], reduce: Callable[[Any, Any], Any] | None) -> Any:
    """Reduce values in the order of their numbers, which may come in another one."""
    if reduce is None:
        for _ in values:
            pass
        return None
    waiting: dict[int, Any] = {}
    result, first, following = None, True, 0
    for number, value in values:
        waiting[number] = value
        while following in waiting:
            value = waiting.pop(following)
            result, first = (value, False) if first else (reduce(result, value), False)
            following += 1
    return result
