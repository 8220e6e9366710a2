"""The layout of a wave of a write, computed and carried out in host memory, without any device."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import google_crc32c
import numpy as np
import pytest
from support.host_arena import HostArena, aligned_zeros

from gzarr.engines.cuda import write_containers
from gzarr.engines.cuda.columns import Output
from gzarr.engines.cuda.device_protocol import CoderBatch
from gzarr.engines.cuda.nvcomp_compress import NvcompCompressor
from gzarr.engines.cuda.write_layout import Gathering, GatherLaunch, container_writes, lay_out
from gzarr.engines.cuda.write_program import WriteProgram
from gzarr.engines.cuda.write_shape import shape_for
from gzarr.metadata.chunk_grid import ChunkGrid
from gzarr.plan.planner import plan
from gzarr.plan.selection import parse_basic

CHUNK = 500
FILL = -3


def encoded(
    container: str | None, shuffle: int, checksums: int, data: np.ndarray[Any, Any]
) -> tuple[list[int], list[bytes]]:
    """Encode the chunks of some int32; return their marks, and the containers of all."""
    n = len(data) // CHUNK
    nbytes = 4 * CHUNK
    frames = np.zeros(int(container is not None), np.int64)
    program = WriteProgram(
        nbytes=nbytes, order=(0,), swap=0, shuffle=shuffle, container=container, blosc=None,
        algorithm="deflate" if container else None, frame_at=frames, frame_nbytes=frames + nbytes, checksums=checksums,
    )  # fmt: skip
    compressor = NvcompCompressor("deflate") if container else None
    shape = shape_for(program, compressor, chunks=n, pieces=n, k=1, inputs=1)
    staging = aligned_zeros(shape.staging_bytes)
    source = Output(data.view(np.uint8), 0, 4, np.zeros(1, np.int64), np.ones((1, 1), np.int64))
    gathering = Gathering(
        plan=plan([parse_basic(..., (len(data),))], ChunkGrid.regular((len(data),), (CHUNK,))),
        shape=(CHUNK,),
        itemsize=4,
        fill=np.array([FILL], np.int32).view(np.uint8),
        inputs=(source,),
        input_of=np.zeros(n, np.int64),
    )
    # Chunks of a wave need not be in the plan's order.
    rows = np.arange(n)[::-1].copy()
    arena = HostArena(shape.arena_bytes)
    layout = lay_out(shape, program, gathering, rows, staging, arena.ADDRESS)
    arena.memory[: layout.copied.size] = layout.copied
    for step in layout.steps:
        if isinstance(step, CoderBatch):
            arena.deflate(step)
        elif isinstance(step, GatherLaunch):
            arena.run_gather(step)
        else:
            arena.run_kernel(step)
    marks = np.zeros(n, np.int64)
    marks[layout.by_input] = arena.memory[layout.marks_at :][: 8 * n].view(np.int64)
    produced = arena.memory[layout.results_at :][: 8 * shape.frames].view(np.int64).reshape(n, -1)
    containers = write_containers.lay_out(program, produced, layout.frames, layout.plain, layout.shuffled)
    sizes = containers.nbytes + 4 * checksums
    begin = np.cumsum(sizes) - sizes
    writes = container_writes(shape, program, containers, begin, layout.shuffled, staging)
    arena.memory[writes.copied_to :][: writes.copied.size] = writes.copied
    for launch in writes.launches:
        arena.run_kernel(launch)
    at = (shape.containers_at + begin).tolist()
    values = [arena.memory[a:][:size].tobytes() for a, size in zip(at, sizes.tolist(), strict=True)]
    return marks[::-1].tolist(), values[::-1]


@pytest.mark.parametrize("checksums", [0, 2])
@pytest.mark.parametrize("shuffle", [0, 4])
@pytest.mark.parametrize("container", [None, "zlib", "gzip"])
def test_containers_hold_the_chunks(container: str | None, shuffle: int, checksums: int) -> None:
    data = np.cumsum(np.random.default_rng(1).integers(-2, 3, 4 * CHUNK)).astype(np.int32)
    data[CHUNK : 2 * CHUNK] = FILL
    marks, values = encoded(container, shuffle, checksums, data)
    assert [mark != 0 for mark in marks] == [True, False, True, True]
    for i, value in enumerate(values):
        for _ in range(checksums):
            body, value = value[:-4], value[-4:]
            assert value == struct.pack("<I", google_crc32c.value(body))
            value = body
        if container is not None:
            # Checks the container's own checksum, and that nothing follows it.
            decoder = zlib.decompressobj(15 if container == "zlib" else 31)
            value = decoder.decompress(value)
            assert decoder.eof
            assert not decoder.unused_data
        chunk = data[i * CHUNK : (i + 1) * CHUNK].view(np.uint8).reshape(-1, 4)
        assert value == (chunk.T if shuffle else chunk).tobytes()
