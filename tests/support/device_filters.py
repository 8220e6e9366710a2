"""Shared parts of the tests of device filters: single kernels, and whole reads with the kernels that they use."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
from gzarr_kernels.device import filters, packed_bits
from support.device_arena import BLOCKS, Arena, launch
from support.zarr_arrays import same

import gzarr
from gzarr.codecs.chain import encode_chain
from gzarr.codecs.codec import ArrayRepresentation
from gzarr.engines.cuda.columns import Columns

if TYPE_CHECKING:
    from pathlib import Path

    from support import devices

    from gzarr.engines.cuda.filters import Filter

SHAPE, CHUNKS = (21, 13), (8, 5)


def undo(
    step: Filter, chunks: list[bytes], offset: int = 0, blocks: int = BLOCKS, threads: int | None = None
) -> tuple[list[bytes], list[int]]:
    """Run the kernel on chunks that begin at ``offset`` from a multiple of 16; return results and marks."""
    arena = Arena.of(sum(map(len, chunks)) + len(chunks) * (step.decoded_nbytes + 256))
    source = [arena.put_bytes(chunk, offset) for chunk in chunks[:-1]]
    target = [arena.reserve(step.decoded_nbytes) for _ in chunks]
    arena.reserve(0)
    source.append(arena.put_last(chunks[-1], offset))
    marks = arena.put([0] * len(chunks))
    room = np.zeros(len(chunks) * 2 + max(filters.SIZE, packed_bits.SIZE), np.int64)
    start = arena.put(room)
    columns = Columns(arena.columns[start : start + room.size], start)
    kernel, wanted, header = step.launch(columns, np.array(source), np.array(target), marks)
    assert wanted >= 1
    before = arena.memory.copy()
    launch(kernel, arena.memory, arena.columns, header, blocks=blocks, threads=threads)
    found = [arena.bytes_at(at, step.decoded_nbytes) for at in target]
    marked = arena.columns[marks : marks + len(chunks)].tolist()
    for at in target:
        before[at : at + step.decoded_nbytes] = arena.memory[at : at + step.decoded_nbytes]
    before[8 * marks : 8 * (marks + len(chunks))] = arena.memory[8 * marks : 8 * (marks + len(chunks))]
    assert np.array_equal(before, arena.memory), "only the targets are written"
    return found, marked


def data_for(dtype: Any, shape: tuple[int, ...] = SHAPE) -> np.ndarray[Any, Any]:
    dtype = np.dtype(dtype)
    steps = np.random.default_rng(5).integers(-2, 3, shape)
    data = np.abs(np.cumsum(steps, axis=-1))
    return data % 2 == 0 if dtype.kind == "b" else (data / 8 if dtype.kind == "f" else data).astype(dtype)


def kernels_for(path: Path, document: dict[str, Any], device: devices.TestedDevice) -> set[str]:
    """Compare a read on the device with the CPU engine; return the kernels of filters and conversions that ran."""
    host = gzarr.open_array(path, device="cpu")
    array = gzarr.open_array(path, device=device.name)
    # Which side is faster is of no interest here; decoding on the device must be possible.
    assert "no decoder" not in array.decode_path, array.decode_path
    assert device.watched is not None
    for selection in (..., (slice(3, 20, 2), slice(None, None, -1)), (5, slice(1, 9))):
        same(device.read(array, selection, decode="cuda"), host[selection], selection)
    launched = {what.split()[1] for what in device.watched.counts if what.startswith("launch ")}
    assert launched & {"assemble", "assemble_converted"}
    return launched & {"accumulate", "assemble_converted", "convert", "unpack_bits"}


def write3(path: Path, document: dict[str, Any], data: np.ndarray[Any, Any]) -> None:
    """Write an array with gzarr's own codecs: zarr-python does not know a transposition after a filter."""
    path.mkdir()
    (path / "zarr.json").write_text(json.dumps(document))
    metadata = gzarr.open_array(path, device="cpu").metadata
    grid = [-(-n // m) for n, m in zip(data.shape, metadata.chunk_shape, strict=True)]
    whole = np.zeros([n * m for n, m in zip(grid, metadata.chunk_shape, strict=True)], data.dtype)
    whole[tuple(map(slice, data.shape))] = data
    for at in np.ndindex(*grid):
        chunk = whole[tuple(slice(i * n, (i + 1) * n) for i, n in zip(at, metadata.chunk_shape, strict=True))]
        encoded = encode_chain(metadata.codecs, chunk, ArrayRepresentation(chunk.shape, chunk.dtype))
        file = path.joinpath("c", *map(str, at))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(bytes(encoded))
