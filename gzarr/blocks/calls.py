"""What a call says: its inputs and outputs, and the blocks that follow from them. Nothing is computed here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from ..arrays.array import Array
from ..arrays.device_choice import resolve_device
from ..engines.cuda.devices import get_device
from ..errors import ArgumentError
from ..flags import check_flags
from ..positive import positive
from ..tools.processes import as_executor, check_shared
from ..windows.inputs import array_of, device_of, names_of
from .arguments import broadcast
from .element_sizes import ElementSizes
from .lengths import block_lengths, names_of_axes
from .outputs import CreatedOutput, DoneBlocks, NewOutput, Output, make_output, output_shapes
from .plan import BlockGeometry, block_axes, check_blocks, check_halos, target_bytes
from .surroundings import Surroundings
from .work import BlockWork, Manner, most_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Executor

    from ..metadata.chunk_grid import ChunkAxis
    from ..windows.inputs import AnyArray, Input

DEFAULT_BUDGET_BYTES: Final = 512 << 20


@dataclass(frozen=True, eq=False)
class PlannedCall:
    """A call whose arguments are right.

    Attributes
    ----------
    inputs
        The inputs, on the device of the blocks.
    given, planned, outputs
        The outputs as they were given; of which some are to be created; and each as an array of gzarr where it is one,
        or will be, on the device of the blocks.
    geometries, shapes
        Of each output; without outputs, of one that there could be.
    blocks
        Blocks along each axis of the first output.
    sizes
        Bytes of the elements of inputs and outputs.
    device, threads, budget_bytes
        Device of the blocks, most of them at a time, and the bytes that they may take.
    resume
        Whether blocks that are stored are done.
    """

    inputs: list[AnyArray]
    given: list[Any]
    planned: list[Any]
    outputs: list[Any]
    geometries: list[BlockGeometry]
    shapes: list[tuple[int, ...]]
    blocks: list[ChunkAxis]
    sizes: ElementSizes
    device: str
    threads: int
    budget_bytes: int
    resume: bool

    def work(
        self,
        function: Callable[..., Any],
        *,
        reads: bool = True,
        writes: bool = True,
        reduces: bool = False,
        blends: bool = False,
        in_order: bool = False,
    ) -> BlockWork:
        """Return the work of a function on all blocks.

        Parameters
        ----------
        function
            Function of blocks, as for :func:`map_blocks`.
        reads, writes
            Whether it is given blocks of the inputs, and returns blocks of the outputs.
        reduces
            Whether it returns a value, after these.
        blends
            Whether results that overlap are blended.
        in_order
            Whether values are taken in the order of the numbers of blocks.

        Raises
        ------
        ArgumentError
            If an output is an input of which several blocks need the same chunks.
        """
        first = self.geometries[0]
        outputs = self.outputs if writes else []
        grid = first.grid(self.blocks, self.geometries[: len(outputs)], self.shapes[: len(outputs)])
        inputs = self.inputs if reads else []
        sizes = ElementSizes(self.sizes.inputs if reads else (), self.sizes.outputs if writes else ())
        axes = [first.axes_of(array, self.blocks) for array in inputs]
        device = self.device if reads else "cpu"
        how = Manner(device, self.threads, self.budget_bytes, reduces=reduces, blends=blends, in_order=in_order)
        work = BlockWork(function, inputs, outputs, grid, axes, how, sizes)
        work.check_apart(resume=self.resume)
        if writes:
            work.make(self.planned)
        return work

    def on_device(self, device: str) -> PlannedCall:
        """Return the same call with blocks on another device."""
        return replace(self, inputs=[array._on_device(device) for array in self.inputs], device=device)

    def without_halo(self) -> PlannedCall:
        """Return the same call whose blocks are given nothing beside their own elements."""
        plain = Surroundings.of(len(self.geometries[0].common), 0, None, padded=False)
        return replace(self, geometries=[replace(one, surroundings=plain) for one in self.geometries])

    def check_created(self) -> None:
        """Refuse locations where outputs cannot be created, or where that would erase an input."""
        for one in self.planned:
            if isinstance(one, CreatedOutput):
                one.check(self.inputs)

    def executor(self, client: Any, *works: BlockWork) -> Executor | None:
        """Return what runs work in other processes, None for this one; refuse work that they cannot be given."""
        if client is None:
            return None
        executor = as_executor(client)
        for array in self.inputs:
            check_shared(array.store, array.name)
        for work in works:
            work.check_shared(self.outputs)
            work.check_pickled()
        return executor

    def done(self, work: BlockWork) -> DoneBlocks | None:
        """Return the blocks that are done if the call is resumed, else None."""
        return DoneBlocks(self.planned, work.grid) if self.resume else None

    def answers(self, work: BlockWork) -> list[Any]:
        """Return the outputs of work that is done, as the caller gets them: those that were given are the same."""
        made = [
            output.array(shape, self.inputs[0].dtype) if isinstance(output, NewOutput) else output
            for output, shape in zip(work.outputs, self.shapes, strict=False)
        ]
        # Blocks may be on another device than an array that was given, which is then not the one they were written to.
        return [own if isinstance(own, Array) else one for own, one in zip(self.given, made, strict=True)]

    def synchronize(self) -> None:
        """Wait for what the caller has enqueued on arrays of the device, before blocks of them are read.

        Raises
        ------
        ArgumentError
            If CuPy's current stream cannot be waited for.
        """
        if self.device != "cpu":
            with get_device(self.device) as own:
                own.as_stream(None).synchronize()


@dataclass(frozen=True, kw_only=True)
class CallOptions:
    """How a call is carried out; each as for :func:`map_blocks`.

    Raises
    ------
    ArgumentError
        If one is wrong.
    """

    block: Any = "auto"
    dtype: Any = None
    device: str | None = None
    overlap: bool = True
    overwrite: bool = False
    resume: bool = False
    budget_bytes: int = DEFAULT_BUDGET_BYTES

    def __post_init__(self) -> None:
        check_flags(overlap=self.overlap, overwrite=self.overwrite, resume=self.resume)
        if self.overwrite and self.resume:
            raise ArgumentError("overwrite=True begins again, and resume=True continues: pass only one of them")
        object.__setattr__(self, "budget_bytes", positive("budget_bytes", self.budget_bytes))


def plan_call(
    arrays: Sequence[Input],
    wanted: Sequence[Output],
    options: CallOptions,
    *,
    takes: str,
    surroundings: tuple[Any, Any, bool] = (0, "symmetric", False),
    axes: tuple[Any, Any, Any] = (1, (), ()),
) -> PlannedCall:
    """Return what a call says.

    Parameters
    ----------
    arrays, wanted
        The inputs, at least one, and the outputs, as they were given.
    options
        How the call is carried out.
    takes
        Who takes what, for an error that ends with what was given.
    surroundings
        The arguments ``halo``, ``boundary`` and ``pad_blocks`` of :func:`map_blocks`.
    axes
        Its arguments ``scale``, ``drop_axis`` and ``new_axis``.

    Raises
    ------
    NodeNotFoundError, NodeTypeError, MetadataError, DeviceError
        If an input or a device cannot be opened.
    ArgumentError, OutputError, ReadOnlyError
        If an argument is wrong.
    """
    device, budget_bytes = options.device, options.budget_bytes
    opened_on = device_of(arrays) if device is None else resolve_device(device)
    opened = [array_of(value, opened_on, takes) for value in arrays]
    device = opened[0].device if device is None else opened_on
    inputs = [array._on_device(device) for array in opened]
    common = broadcast([array.shape for array in inputs])
    halo, boundary, padded = surroundings
    geometries = _geometries(common, Surroundings.of(len(common), halo, boundary, padded=padded), wanted, *axes)
    # Without outputs, blocks are those of one that there could be.
    shapes = output_shapes(geometries, [output.target for output in wanted] or [None])
    check_blocks(geometries[0], shapes[: len(wanted)], inputs)
    planned = [
        make_output(
            one, own, shape, inputs[0], options.dtype, device, overwrite=options.overwrite, resume=options.resume
        )
        for one, own, shape in zip(wanted, geometries, shapes, strict=False)
    ]
    outputs = [one.array if isinstance(one, CreatedOutput) else one for one in planned]
    threads = most_threads([*inputs, *outputs], device) if options.overlap else 1
    first = geometries[0]
    lengths = block_lengths(
        options.block,
        shapes[0],
        names_of_axes(
            first,
            getattr(outputs[0], "dimension_names", None) if outputs else None,
            [(array.ndim, names_of(value, array)) for value, array in zip(arrays, inputs, strict=True)],
        ),
    )
    dtypes = [output.data_type if isinstance(output, NewOutput) else output.dtype for output in outputs]
    sizes = ElementSizes.of(inputs, dtypes)
    blocks = block_axes(geometries, inputs, outputs, shapes, lengths, target_bytes(budget_bytes, threads), sizes)
    check_halos(first, inputs, blocks, sizes, budget_bytes)
    return PlannedCall(
        inputs=list(inputs),
        given=[output.target for output in wanted],
        planned=planned,
        outputs=outputs,
        geometries=geometries,
        shapes=shapes,
        blocks=blocks,
        sizes=sizes,
        device=device,
        threads=threads,
        budget_bytes=budget_bytes,
        resume=options.resume,
    )


def _geometries(
    common: tuple[int, ...], surroundings: Surroundings, outputs: Sequence[Output], scale: Any, drop: Any, new: Any
) -> list[BlockGeometry]:
    """Return the geometry of each output, or one without outputs; all from the call's arguments are one object."""
    of_call = None
    found = []
    for output in outputs or [Output()]:
        own = (output.scale, output.drop_axis, output.new_axis)
        if all(value is None for value in own):
            of_call = of_call or BlockGeometry.of(common, surroundings, scale, drop, new)
            found.append(of_call)
        else:
            of_output = (a if b is None else b for a, b in zip((scale, drop, new), own, strict=True))
            found.append(BlockGeometry.of(common, surroundings, *of_output))
    return found
