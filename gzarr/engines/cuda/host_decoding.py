"""Chunks that the CPU engine decodes for the device: into page-locked memory, followed by one copy."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from ...plan.keys import ChunkKeys
from ...plan.planner import Plan
from .. import pool, stack
from ..monitor import spent
from ..stack import Stack
from . import slots
from .staging import NO_FRAMES, READY, Frames, Staged

if TYPE_CHECKING:
    import numpy.typing as npt

    from ..access.access import ReadRequest
    from ..access.sources import Sources
    from ..cpu.engine import CpuEngine
    from .budget import Budget
    from .device_protocol import Device

    IntArray = npt.NDArray[np.int64]


def read_on_host(
    device: Device, cpu: CpuEngine, request: ReadRequest, stream: Any, budget: Budget, needed: int
) -> bool:
    """Read exactly the selected elements with the CPU engine, and copy them to the device.

    Parameters
    ----------
    device, cpu
        Device of the outputs; engine that reads.
    request
        The read, with outputs on the device.
    stream
        The caller's stream.
    budget, needed
        Limit on the memory held; bytes of all outputs.

    Returns
    -------
    Whether the outputs were written. They are not if that takes more memory than ``budget``, or (without a caller's
    budget) more page-locked memory than is kept for the next read, since it takes long to make, and than a wave of one
    chunk. Nor are they if the request covers only a part of its outputs: outputs are copied whole, which would
    overwrite the rest.
    """
    wanted = int(request.plan.count.prod(axis=1).sum())
    held = stack.held_in(request.outputs)
    if wanted < sum(array.size for array in held) or 2 * needed > budget.limit(2 * needed):
        return False
    if needed > max(slots.MAX_IDLE_PINNED_BYTES, request.chunk.nbytes) and not budget.strict:
        return False
    slot = slots.take(device, needed, (needed, 0) if budget.strict else None, max(needed, 1), budget)
    arrived: Any = None
    has_room = True
    try:
        staging = slot.staging(needed)
        hosts, spans = [], []
        at = 0
        for output in held:
            spans.append(slice(at, at + output.nbytes))
            hosts.append(staging[spans[-1]].view(output.dtype).reshape(output.shape))
            at += output.nbytes
        cpu.read(dataclasses.replace(request, outputs=Stack(hosts) if isinstance(request.outputs, Stack) else hosts))
        # Copied to separate memory on a separate stream: a copy straight to the outputs would have to wait for the
        # caller's earlier work, and the host for the copy.
        try:
            arrived = slot.allocate(max(needed, 1))
        except MemoryError as error:
            has_room = False
            if not budget.tighten(error):
                raise
        if has_room:
            device.copy_in(arrived[:needed], staging, slot.stream)
            slot.stream.record(slot.decoded)
            stream.wait_event(slot.decoded)
            for output, span in zip(held, spans, strict=True):
                device.copy_array(output, device.shaped(arrived[span], output.dtype, output.shape), stream)
            slot.gate(stream)
            with spent(request.monitor, "device", pool.thread_count()):
                slot.decoded.synchronize()
    except BaseException:
        slots.settle(device, slot, stream, arrived)
        raise
    slots.give_back(device, slot)
    return has_room


class HostStaging:
    """Stages whole chunks, decoded by the CPU engine, one after the other in C order."""

    def __init__(self, cpu: CpuEngine, request: ReadRequest) -> None:
        self._cpu = cpu
        self._request = request

    def stage(
        self, rows: IntArray, staging: npt.NDArray[np.uint8], capacity: int, most_frames: int
    ) -> tuple[Staged, Frames]:
        """Decode chunks into ``staging``.

        Raises
        ------
        ChunkError
            For the first chunk that fails.
        """
        request = self._request
        n, chunk = len(rows), request.chunk
        used = n * chunk.nbytes
        # All chunks lie along the first axis of one output.
        shape = (n * chunk.shape[0], *chunk.shape[1:]) if chunk.shape else ()
        output = staging[:used].view(chunk.dtype).reshape(shape)
        plan = _whole_chunks(request.plan, rows)
        sources = _some_of(request, rows, plan.chunks)
        self._cpu.read(dataclasses.replace(request, plan=plan, sources=sources, outputs=(output,), field=None))
        staged = Staged(
            rows=rows,
            state=np.full(n, READY),
            typesize=np.ones(n, np.int64),
            blocksize=np.full(n, chunk.nbytes),
            bits=np.zeros(n, np.bool_),
            direct=chunk.nbytes * np.arange(n),
            used=used,
        )
        return staged, NO_FRAMES

    def cancel(self) -> None:
        """Do nothing: a wave is soon complete."""


def _whole_chunks(plan: Plan, rows: IntArray) -> Plan:
    """Return a plan that places whole chunks one after the other along the first axis of one output."""
    n, k = len(rows), plan.chunks.shape[1]
    target = np.zeros((n, k), np.int64)
    if k:
        target[:, 0] = plan.chunk_shape[0] * np.arange(n)
    return Plan(
        plan.chunk_shape,
        plan.chunks[rows],
        np.arange(n + 1),
        np.zeros((n, k), np.int64),
        np.tile(np.array(plan.chunk_shape, np.int64), (n, 1)),
        target,
        np.zeros(n, np.int64),
        np.ones(k, np.int64),
        (None,) * k,
    )


def _some_of(request: ReadRequest, rows: IntArray, chunks: IntArray) -> Sources:
    sources = request.sources
    keys: Any = sources.keys
    key_index = sources.key_index[rows]
    if isinstance(keys, ChunkKeys) and keys.chunks is request.plan.chunks:
        # Not sharded: each chunk has its own key, which the native loop builds from its coordinates.
        keys, key_index = ChunkKeys(keys.encoding, keys.prefix, chunks), np.arange(len(rows))
    packing = sources.packing
    return dataclasses.replace(
        sources,
        keys=keys,
        key_index=key_index,
        offset=sources.offset[rows],
        nbytes=sources.nbytes[rows],
        packing=None if packing is None else dataclasses.replace(packing, index=packing.index[rows]),
    )
