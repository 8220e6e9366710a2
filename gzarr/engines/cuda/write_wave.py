"""One wave of a write on the device: its arena, and the work that is enqueued there.

:mod:`gzarr.engines.cuda.write_layout` computes the work. It is enqueued in two parts. The first gathers, shuffles and
compresses. Once the host knows the sizes of the frames, the second puts containers together, computes their checksums,
and copies all of them out at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from . import write_containers
from .device_protocol import CoderBatch
from .write_layout import WriteLayout, container_writes, lay_out

if TYPE_CHECKING:
    import numpy.typing as npt

    from .device_protocol import Compressor, Device
    from .slots import Slot
    from .write_layout import ContainerWrites, Gathering
    from .write_program import WriteProgram
    from .write_shape import WriteShape

    IntArray = npt.NDArray[np.int64]
    BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """The encoded chunks of a wave, one row per chunk.

    Attributes
    ----------
    failed
        bool ``(n,)``, whether the chunk was not encoded, so that the CPU has to.
    begin, nbytes
        int64 ``(n,)``, offset in ``data`` and bytes of each container; 0 bytes if nothing is to be stored.
    data
        uint8, page-locked memory of the wave's slot.
    """

    failed: BoolArray
    begin: IntArray
    nbytes: IntArray
    data: npt.NDArray[np.uint8]


class WriteWave:
    """One wave of a write; created and enqueued by one thread.

    Parameters
    ----------
    device, slot
        Device and slot of the wave; no other wave may be pending on the slot's stream.
    program, compressor, shape
        How chunks are encoded, and the sizes of the wave.
    gathering, rows
        Where chunks are gathered from; int64, their rows of the plan.

    Attributes
    ----------
    memory
        The arena, while there is one.
    """

    def __init__(
        self,
        device: Device,
        slot: Slot,
        program: WriteProgram,
        compressor: Compressor | None,
        shape: WriteShape,
        gathering: Gathering,
        rows: IntArray,
    ) -> None:
        self.slot = slot
        self.rows = rows
        self.memory: Any = None
        self._device = device
        self._program = program
        self._compressor = compressor
        self._shape = shape
        self._gathering = gathering
        self._layout: WriteLayout | None = None

    def enqueue(self, ready: Any) -> None:
        """Enqueue the first part.

        Parameters
        ----------
        ready
            Event after which the inputs may be read.
        """
        device, shape, own = self._device, self._shape, self.slot.stream
        arena = self.memory = self.slot.allocate(shape.arena_bytes)
        address = device.address(arena)
        staging = self.slot.staging(shape.staging_bytes)
        layout = self._layout = lay_out(shape, self._program, self._gathering, self.rows, staging, address)
        device.copy_in(arena[: layout.copied.size], layout.copied, own)
        own.wait_event(ready)
        for step in layout.steps:
            if isinstance(step, CoderBatch):
                assert self._compressor is not None
                self._compressor.run(own, step)
            else:
                step.enqueue(device, address, own)
        results = self.slot.results(12 * shape.frames + 8 * shape.chunks)
        if shape.frames:
            sizes = arena[layout.results_at : layout.results_at + 12 * shape.frames]
            device.copy_out(results[: 12 * shape.frames], sizes, own)
        marks = arena[layout.marks_at : layout.marks_at + 8 * shape.chunks]
        device.copy_out(results[12 * shape.frames :], marks, own)
        own.record(self.slot.decoded)

    def finish(self, *, keep_empty: bool, packed: bool) -> Encoded:
        """Wait for the first part, run the second, and wait for that.

        Parameters
        ----------
        keep_empty
            Whether chunks that hold only the fill value are stored.
        packed
            Whether containers follow each other without gaps, in the order of the rows.
        """
        device, shape, program, layout = self._device, self._shape, self._program, self._layout
        assert layout is not None
        self.slot.decoded.synchronize()
        n, frames = shape.chunks, shape.frames
        results = self.slot.results(12 * frames + 8 * n)
        produced = results[: 8 * frames].view(np.int64).reshape(n, -1).copy()
        statuses = results[8 * frames : 12 * frames].view(np.int32).reshape(n, -1)
        marks = np.zeros(n, np.int64)
        marks[layout.by_input] = results[12 * frames : 12 * frames + 8 * n].view(np.int64)
        # The size of a frame that failed may be anything.
        failed = ((statuses != 0) | (produced < 1) | (produced > max(shape.frame, 1))).any(axis=1)
        kept = np.flatnonzero(~failed & ((marks != 0) | keep_empty))
        containers = write_containers.lay_out(
            program, produced[kept], layout.frames[kept], layout.plain[kept], layout.shuffled[kept]
        )
        nbytes = np.zeros(n, np.int64)
        nbytes[kept] = containers.nbytes + 4 * program.checksums
        room = nbytes if packed else -(-nbytes // 16) * 16
        begin = np.cumsum(room) - room
        used = int(room.sum())
        data = self.slot.results(used)
        if len(kept):
            staging = self.slot.staging(shape.staging_bytes)
            writes = container_writes(shape, program, containers, begin[kept], layout.shuffled[kept], staging)
            self._write(writes)
            device.copy_out(data, self.memory[shape.containers_at : shape.containers_at + used], self.slot.stream)
            self.slot.stream.synchronize()
        self.memory = None
        encoded = Encoded(failed, begin, nbytes, data)
        if program.container == "zstd":
            self._refuse_unsized(encoded)
        return encoded

    def _write(self, writes: ContainerWrites) -> None:
        """Enqueue the second part, except for the copy out."""
        device, own = self._device, self.slot.stream
        end = writes.copied_to + writes.copied.size
        device.copy_in(self.memory[writes.copied_to : end], writes.copied, own)
        address = device.address(self.memory)
        for launch in writes.launches:
            launch.enqueue(device, address, own)

    def _refuse_unsized(self, encoded: Encoded) -> None:
        """Leave chunks to the CPU whose zstd frames some readers would refuse."""
        for i in np.flatnonzero(encoded.nbytes).tolist():
            frame = encoded.data[encoded.begin[i] : encoded.begin[i] + encoded.nbytes[i]]
            encoded.failed[i] = not write_containers.states_its_size(frame, self._program.nbytes)
