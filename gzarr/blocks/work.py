"""The work on blocks, in this process or in others."""

from __future__ import annotations

import itertools
import math
import threading
from contextlib import closing, nullcontext
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..arrays.array import Array
from ..arrays.exporting import ExportedArray
from ..arrays.outputs import HOST
from ..arrays.recycling import RecycledResults
from ..arrays.view import ArrayView
from ..engines.pool import thread_count
from ..engines.result_memory import recycle_bytes
from ..errors import ArgumentError
from ..nodes.change import writable
from ..progress import watch
from ..stores.aliases import check_elsewhere
from ..stores.base import RemoteValues
from ..stores.places import place_of
from ..stores.referred_files import is_virtual
from ..tools.processes import check_shared, in_processes, pickled
from .assembly import kept_assemblies
from .blending import Blending, overlapping
from .computing import FunctionCalls, name_of
from .first_block import FirstBlock, check_type
from .inputs import Input
from .memory import BlockMemory
from .order import BlockOrder, choose_order
from .outputs import CreatedOutput, NewOutput, write
from .workers import noted, run

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
    from concurrent.futures import Executor

    from .axes import InputAxis
    from .blocks import Block, BlockGrid
    from .computing import Computing
    from .element_sizes import ElementSizes
    from .outputs import DoneBlocks

    Index = tuple[int, ...]
    #: Computes a block's results, and its value.
    Compute = Callable[[], tuple[list[Any], Any]]
    #: Numbers and values of blocks.
    Values = Generator[tuple[int, Any], None, None]

#: Blocks that are worked on at a time on a device: one is read, one is computed, one is written.
_ON_A_DEVICE: Final = 3
#: Blocks at a time, at least, if a store is remote: most of them wait.
_REMOTE: Final = 8
#: Blocks for each thread whose values may wait for that of an earlier one.
_AHEAD: Final = 16
#: Parts of the work, if other processes do it.
_PARTS: Final = 64
#: What arrays on a device have.
_ON_DEVICE: Final = "__cuda_array_interface__"
#: Most candidates that are looked at for an element that two arrays in memory have in common.
_MOST_WORK: Final = 10_000


@dataclass(frozen=True)
class Manner:
    """How blocks are worked on.

    Attributes
    ----------
    device
        Their device.
    threads
        Most of them that are worked on at a time.
    budget_bytes
        As in :func:`map_blocks`.
    reduces
        Whether the function returns a value after its outputs.
    blends
        Whether results that overlap are blended.
    in_order
        Whether values are taken in the order of the numbers of blocks, so that those of later ones wait.
    """

    device: str
    threads: int
    budget_bytes: int
    reduces: bool = False
    blends: bool = False
    in_order: bool = False


class BlockWork:
    """The work on all blocks; other processes do parts of it.

    Parameters
    ----------
    function, inputs, outputs
        As in :func:`map_blocks`.
    grid
        The blocks.
    axes
        Axes of each input.
    how
        How the blocks are worked on.
    sizes
        Bytes of the elements of the inputs and outputs.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        inputs: Sequence[ExportedArray],
        outputs: Sequence[Any],
        grid: BlockGrid,
        axes: Sequence[Sequence[InputAxis]],
        how: Manner,
        sizes: ElementSizes,
    ) -> None:
        self._function, self._inputs, self._outputs, self._how = function, inputs, outputs, how
        self._sizes = sizes
        self.grid: BlockGrid = grid
        self._axes = axes
        #: Whether outputs are to be made, and the data types that the first block's results have decided.
        self._waits = False
        self._dtypes: list[np.dtype[Any] | None] = [None] * len(outputs)
        #: Before outputs are made, whose data types are not known yet.
        self._result_nbytes: int = self._result_bytes()
        nbytes = self._block_bytes()
        threads, budget_bytes = how.threads, how.budget_bytes
        while threads > 1 and (threads + 1) * nbytes > budget_bytes // 2:
            threads -= 1
        self._threads = threads
        self._room = max(budget_bytes - (threads + 1) * nbytes, budget_bytes // 4)
        #: Axes along which results that are blended overlap.
        self._overlaps: list[InputAxis] = overlapping(grid) if how.blends else []
        kept = list(zip(axes, sizes.inputs, strict=True))
        if how.blends:
            # Half for results that are kept, half for chunks.
            self._room //= 2
            kept = [(self._overlaps, max(self._result_nbytes // grid.outputs[0].most_elements, 1))]
        if how.in_order:
            self._order = BlockOrder.whole(grid.grid_shape)
        else:
            self._order = choose_order(grid.grid_shape, kept, self._room)

    def _block_bytes(self) -> int:
        """Return the bytes of a block: of its inputs with the halo, and of its results."""
        total = self._result_nbytes
        for itemsize, axes in zip(self._sizes.inputs, self._axes, strict=True):
            total += math.prod(axis.longest_window for axis in axes) * itemsize
        return total

    def _result_bytes(self) -> int:
        """Return the bytes of a block's results; with the halo, if they are blended."""
        total = 0
        for itemsize, blocks in zip(self._sizes.outputs, self.grid.outputs, strict=True):
            total += itemsize * (blocks.most_with_halo if self._how.blends else blocks.most_elements)
        return total

    def check_apart(self, *, resume: bool) -> None:
        """Refuse outputs that are inputs, unless each of their chunks is only needed by the block that replaces it.

        Also those that have files which the references of an input point to, whichever blocks need these.
        """
        outputs = zip(self._outputs, self.grid.outputs, strict=True)
        inputs = zip(self._inputs, self._axes, strict=True)
        arrays = [array for array in (*self._outputs, *self._inputs) if isinstance(array, ExportedArray)]
        places = {id(array): place_of(array.store, array.path) for array in arrays}
        for one, other in itertools.combinations([array for array in self._outputs if isinstance(array, Array)], 2):
            if places[id(one)].overlaps(places[id(other)]):
                raise ArgumentError(f"{one.name} is an output twice; pass another array, or store, for one of them")
        in_memory = [array for array in self._outputs if isinstance(array, np.ndarray) or hasattr(array, _ON_DEVICE)]
        if any(itertools.starmap(_share_memory, itertools.combinations(in_memory, 2))):
            raise ArgumentError(
                "an array in memory is an output twice, or two have elements in common; pass another one"
            )
        virtual = [(array.store, array.path) for array in self._inputs if is_virtual(places[id(array)])]
        for output in self._outputs if virtual else ():
            if isinstance(output, Array):
                check_elsewhere(
                    virtual,
                    writable(output.store, output.name),
                    output.path,
                    operation="map_blocks",
                    instead="write to another array",
                )
        for (output, blocks), (array, axes) in itertools.product(outputs, inputs):
            if not isinstance(output, Array) or not places[id(output)].is_same(places[id(array)]):
                continue
            if resume:
                raise ArgumentError(f"{array.name} is the output as well, so all blocks would seem to be done")
            same = blocks.sources == tuple(range(len(axes))) and blocks.of == tuple(axis.output for axis in axes)
            if isinstance(array, ArrayView) and array.selection != tuple(slice(0, n, 1) for n in array.base.shape):
                raise ArgumentError(
                    f"{array.name} in {array.store!r} is a part of the output, or has its elements in another order, "
                    "so blocks may replace elements that others have not read yet; write to another array"
                )
            if not same or any(axis.is_shared or any(axis.halo) for axis in axes):
                raise ArgumentError(
                    f"{array.name} in {array.store!r} is read for several blocks, and cannot be the output at the same "
                    "time; write to another array"
                )

    def make(self, outputs: Sequence[Any]) -> None:
        """Take outputs, of which some are to be made, in place of those that were only planned.

        They are made once the results of the first block are there; before, if they need not wait for these and other
        processes do the work.
        """
        self._outputs = list(outputs)
        self._waits = any(isinstance(output, (CreatedOutput, NewOutput)) for output in outputs)

    @property
    def outputs(self) -> list[Any]:
        """The outputs; those that no block has had made are made now."""
        return [one.planned().create() if isinstance(one, CreatedOutput) else one for one in self._outputs]

    def check_shared(self, outputs: Sequence[Any]) -> None:
        """Refuse arrays that other processes do not see."""
        for array in (*self._inputs, *outputs):
            if not isinstance(array, ExportedArray):
                raise ArgumentError("with client=, outputs must be arrays that other processes see, not in memory")
            check_shared(array.store, array.name)

    def values(self, done: DoneBlocks | None, executor: Executor | None, *, progress: bool) -> Values:
        """Work on all blocks; yield the place of each in the order, and its value."""
        indices: Iterable[Index] = self._order
        total = self.grid.count
        if done is not None:
            indices = (index for index in self._order if not done.has(index))
            total -= done.count
        found = self.work_on_some(indices) if executor is None else self._elsewhere(executor, indices, total)
        nbytes = sum(array.nbytes for array in self._inputs) * total // max(self.grid.count, 1)
        return watch(found, "map_blocks", total, nbytes=nbytes) if progress else found

    def work_on_some(self, indices: Iterable[Index]) -> Values:
        """Work on blocks in this process; yield the number and the value of each, as they are complete."""
        first = FirstBlock(self._outputs, self.grid.outputs) if self._waits else None

        def work(block: Block, compute: Compute, memory: BlockMemory, *, is_first: bool) -> Any:
            try:
                results, value = compute()
                if first is not None and is_first:
                    with memory.current():
                        self._take(*first.make(results, memory))
            finally:
                if first is not None and is_first:
                    first.end()
            if first is not None:
                first.wait()
            with memory.current():
                self._write(block, results, memory)
            memory.finish()
            return value

        return self._each(indices, work)

    def results_of(self, index: Index) -> tuple[list[Any], Any]:
        """Return the results of a block, in host memory, and its value, and write nothing."""

        def work(_: Block, compute: Compute, memory: BlockMemory, *, is_first: bool) -> Any:
            results, value = compute()
            with memory.current():
                return [memory.to_host(result) for result in results], value

        ((_, found),) = self._each([index], work)
        return found  # type: ignore[no-any-return]

    def _each(self, indices: Iterable[Index], work: Callable[..., Any]) -> Values:
        """Call a function in threads for each block; yield the number of each and what the function returned."""
        computing = self._computing()
        own = threading.local()
        # Blocks and chunks of one size follow each other.
        recycled = RecycledResults() if recycle_bytes() else None
        host = HOST if recycled is None else recycled
        assembly = kept_assemblies()

        def tasks() -> Iterator[tuple[Block, Any, bool]]:
            for number, index in enumerate(indices):
                yield self.grid.block(index), computing.claim(index), not number

        def worked_on(task: tuple[Block, Any, bool]) -> tuple[Any, Any, BlockMemory]:
            if not hasattr(own, "memory"):
                own.memory = BlockMemory(self._how.device, host, assembly)
            block, claim, is_first = task
            memory = own.memory
            compute = partial(computing.compute, block, claim, memory)
            return claim, work(block, compute, memory, is_first=is_first), memory

        helped = self._how.device != "cpu"
        ahead = _AHEAD * self._threads if self._how.in_order else None
        results = run(
            tasks(),
            worked_on,
            threads=self._threads,
            describe=lambda task: str(task[0]),
            helped=helped,
            ahead=ahead,
        )
        with nullcontext() if recycled is None else closing(recycled), closing(results):
            for number, (claim, value, memory) in results:
                computing.release(claim)
                value = memory.handed_over(value)
                yield number, value

    def _computing(self) -> Computing:
        """Return what computes the results of blocks."""
        # As many elements of each.
        room = self._room // max(sum(self._sizes.inputs), 1)
        inputs = [Input(array, axes, self._order, room) for array, axes in zip(self._inputs, self._axes, strict=True)]
        calls = FunctionCalls(self._function, inputs, self.grid, reduces=self._how.reduces)
        if not self._how.blends:
            return calls
        most = max(self._room // max(self._result_nbytes, 1), 1)
        return Blending(calls, self.grid, self._overlaps, self._order, most)

    def _write(self, block: Block, results: Sequence[Any], memory: BlockMemory) -> None:
        """Write the results of a block."""
        each = zip(self._outputs, self.grid.outputs, block.boxes, results, self._dtypes, strict=True)
        for output, blocks, box, result, wanted in each:
            function = name_of(self._function)
            check_type(result, wanted, block, function)
            if isinstance(output, NewOutput):
                array = output.array(blocks.shape, result.dtype, memory)
                write(array, box, result, memory, function, is_new=True)
            else:
                write(output, box, result, memory, function)

    def _take(self, outputs: list[Any], dtypes: list[np.dtype[Any] | None]) -> None:
        """Take the outputs that were made for the first block, and the data types that others must have."""
        self._outputs, self._dtypes, self._waits = outputs, dtypes, False

    # -- in other processes

    def check_pickled(self) -> None:
        """Refuse work that other processes cannot be given."""
        pickled(self._with_outputs([one.array if isinstance(one, CreatedOutput) else one for one in self._outputs]))

    def _with_outputs(self, outputs: Sequence[Any]) -> BlockWork:
        """Return the same work with other outputs, none of which is to be made."""
        other = copy(self)
        other._outputs, other._waits = list(outputs), False
        return other

    def _elsewhere(self, executor: Executor, indices: Iterable[Index], total: int) -> Values:
        """Have other processes do the work; yield numbers and values of blocks."""
        size = max(total // _PARTS, 1)
        numbered = enumerate(indices)
        if self._waits and any(getattr(output, "follows_results", False) for output in self._outputs):
            yield from self._begun_elsewhere(executor, itertools.islice(numbered, 1))
        elif self._waits:
            self.make(self.outputs)
        parts = iter(lambda: list(itertools.islice(numbered, size)), [])
        for found in in_processes(executor, self, parts):
            yield from found

    def _begun_elsewhere(self, executor: Executor, numbered: Iterable[tuple[int, Index]]) -> Values:
        """Have another process compute the first block, and make the outputs for its results, in this process."""
        planned = self._with_outputs([None] * len(self._outputs))
        for number, index in numbered:
            ((results, value),) = in_processes(executor, _ResultsOfBlock(planned), [index])
            block, memory = self.grid.block(index), BlockMemory(self._how.device)
            first = FirstBlock(self._outputs, self.grid.outputs)
            with noted(block), memory.current():
                self._take(*first.make(results, memory))
                self._write(block, results, memory)
            memory.finish()
            yield number, value

    def work_on(self, part: list[tuple[int, Index]]) -> list[tuple[int, Any]]:
        """Work on a part of the blocks, given by numbers and coordinates; return the value of each."""
        numbers = [number for number, _ in part]
        return [(numbers[i], value) for i, value in self.work_on_some(index for _, index in part)]


class _ResultsOfBlock:
    """The computation of one block, whose results are written elsewhere."""

    def __init__(self, work: BlockWork) -> None:
        self._work = work

    def work_on(self, part: Index) -> tuple[list[Any], Any]:
        """Return the results of a block and its value."""
        return self._work.results_of(part)


def _share_memory(one: Any, other: Any) -> bool:
    """Return whether arrays have elements in common, or may have some and it takes long to tell."""
    if one is other:
        return True
    # Of other arrays on a device nothing is known.
    if hasattr(one, _ON_DEVICE) or hasattr(other, _ON_DEVICE) or not np.may_share_memory(one, other):
        return False
    try:
        most: Any = _MOST_WORK
        return np.shares_memory(one, other, max_work=most)
    except np.exceptions.TooHardError:
        return True


def most_threads(arrays: Sequence[Any], device: str) -> int:
    """Return how many blocks of arrays are worked on at a time, at most."""
    if device != "cpu":
        return _ON_A_DEVICE
    remote = any(isinstance(array, ExportedArray) and isinstance(array.store, RemoteValues) for array in arrays)
    return max(thread_count(), _REMOTE) if remote else thread_count()
