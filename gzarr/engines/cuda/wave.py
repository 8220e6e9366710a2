"""One wave of a read on the device: its arena, and the work that is enqueued there.

:mod:`gzarr.engines.cuda.wave_layout` computes the work. Nothing here waits, except :meth:`Wave.encoded_memory`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .device_protocol import CoderBatch
from .staging import READY
from .wave_layout import Decoding, lay_out

if TYPE_CHECKING:
    import numpy.typing as npt

    from .columns import Output, Placement
    from .device_program import DeviceProgram
    from .device_protocol import Decompressor, Device
    from .slots import Slot
    from .staging import Frames, Staged
    from .wave_layout import Statuses, WaveLayout
    from .wave_shape import WaveShape

    IntArray = npt.NDArray[np.int64]


class Wave:
    """One wave of a read; created and enqueued by one thread.

    Parameters
    ----------
    device, slot
        Device and slot of the wave; no other wave may be pending on the slot's stream.
    program, decoder, shape
        How chunks are decoded, and the sizes of the wave.

    Attributes
    ----------
    rows
        int64, rows of the plan whose chunks it decodes; empty before :meth:`enqueue`.
    memory
        The arena, once it is allocated.
    staging
        The slot's page-locked memory for this wave, once it is taken.
    """

    def __init__(
        self, device: Device, slot: Slot, program: DeviceProgram, decoder: Decompressor | None, shape: WaveShape
    ) -> None:
        self.slot = slot
        self.rows: IntArray = np.zeros(0, np.int64)
        self.memory: Any = None
        self.staging: npt.NDArray[np.uint8] = np.zeros(0, np.uint8)
        self._device = device
        self._decoding = Decoding(program, decoder)
        self._shape = shape
        self._statuses: Statuses | None = None

    def encoded_memory(self) -> Any:
        """Return device memory for encoded chunks, ``shape.encoded`` bytes, to be filled before :meth:`enqueue`.

        Waits for the slot's stream, and so, if the slot is gated, for the caller's. CuPy's pools free memory in the
        order of the stream it was allocated for: enqueued kernels may still read its previous contents, and with some
        pools it does not even exist yet. Reads of files are not ordered with any stream.
        """
        arena = self._arena()
        self.slot.stream.synchronize()
        return arena[: self._shape.encoded]

    def _arena(self) -> Any:
        """Allocate the arena."""
        self.memory = self.slot.allocate(self._shape.arena_bytes)
        return self.memory

    def enqueue(
        self,
        staged: Staged,
        frames: Frames,
        place: Placement,
        tables: Any,
        output: Output,
        stream: Any,
    ) -> None:
        """Enqueue everything: copy in, decode, copy the statuses out, and place.

        Parameters
        ----------
        staged, frames
            The chunks in :attr:`staging`, or in :meth:`encoded_memory`, and their frames.
        place, tables, output
            Placement of the read; ``place.tables`` on the device, or None if there are none; memory of the results.
        stream
            The caller's stream, on which results are written.
        """
        # Set first: an error message names these chunks if the device fails.
        self.rows = staged.rows[staged.state == READY]
        device, own = self._device, self.slot.stream
        arena = self._arena() if self.memory is None else self.memory
        address = device.address(arena)
        layout = lay_out(self._shape, self._decoding, staged, frames, self.staging, place, output, address)
        self._statuses = layout.statuses
        device.copy_in(arena[layout.copied_to : layout.copied_to + layout.copied.size], layout.copied, own)
        for step in layout.steps:
            if isinstance(step, CoderBatch):
                assert self._decoding.decoder is not None
                self._decoding.decoder.run(own, step)
            else:
                step.enqueue(device, address, own)
        results = self.slot.results(self._shape.results_bytes)
        for copy in layout.copies_out:
            source = arena[copy.source : copy.source + copy.nbytes]
            device.copy_out(results[copy.target : copy.target + copy.nbytes], source, own)
        own.record(self.slot.decoded)
        if layout.placings:
            self._place(layout, address, tables, output, stream)

    def _place(self, layout: WaveLayout, arena: int, tables: Any, output: Output, stream: Any) -> None:
        """Place the decoded chunks, on the caller's stream."""
        from gzarr_kernels.device.target import THREADS

        device = self._device
        tables_at = arena if tables is None else device.address(tables)
        stream.wait_event(self.slot.decoded)
        for one in layout.placings:
            memory = (arena, arena, tables_at) if one.word == 0 else (arena, arena, arena, tables_at)
            device.launch(one.kernel, one.blocks, THREADS, stream, *memory, output.address, one.header, word=one.word)
        # The arena is freed in the order of the slot's stream: nothing may reuse it before the results are written.
        self.slot.gate(stream)

    def failed_rows(self) -> IntArray:
        """Return the rows of the plan whose chunks the device failed to decode.

        The slot's ``decoded`` event must have passed.
        """
        assert self._statuses is not None
        return self._statuses.failed_rows(self.slot.results(self._shape.results_bytes))
