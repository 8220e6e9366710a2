"""The limits of a read to a device: the steps that every reader needs, each alone, on the workload's own chunks.

- ``read``: the files of the read, from the page cache into page-locked memory (the faster of ``preadv`` in as many
  threads as the engine has, and the engine's own native loop, which also verifies and divides into frames);
- ``copy``: their compressed bytes to the device, in one copy;
- ``decode``: nvCOMP alone, with all frames already on the device;
- ``place``: a copy of the output on the device.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from gzarr_kernels.operations import ALGORITHMS

import gzarr
from gpu.batch import ALIGNMENT, FrameBatch, aligned, pack
from gzarr.arrays.read import Reader
from gzarr.engines.access.access import ReadRequest
from gzarr.engines.access.choose import access_to
from gzarr.engines.access.locate import Locator
from gzarr.engines.access.sources import WHOLE
from gzarr.engines.cuda.device_program import device_program
from gzarr.engines.cuda.router import frames_of
from gzarr.engines.cuda.staging import READY, Staging
from gzarr.plan.decode_program import planned_grid
from gzarr.plan.planner import plan
from gzarr.plan.selection import parse_basic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from gzarr.engines.cuda.device_program import DeviceProgram
    from gzarr.engines.cuda.device_protocol import Device
    from gzarr.engines.cuda.staging import Frames

LIMITS = ("read", "copy", "decode", "place")
#: Most bytes that staging adds around a chunk.
_AROUND = 256


class Limits:
    """The steps of one read on one device.

    Parameters
    ----------
    device
        Device, current in this thread.
    path
        Path of the array.
    selections
        Basic selections that are read together.
    output_nbytes
        Size of the results in bytes.
    threads
        Number of threads that read files.

    Raises
    ------
    ValueError
        If the device does not decode this chain, or a chunk of this array.
    MemoryError
        If host or device have no room.
    """

    def __init__(self, device: Device, path: Path, selections: Sequence[Any], output_nbytes: int, threads: int) -> None:
        self._device = device
        self._stream = device.stream()
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads)
        try:
            self._request, program, chunk_frames = request_for(path, selections)
            chunks = len(self._request.plan)
            self._files = _ranges(self._request, path)
            encoded = sum(length for _, _, length in self._files)
            self._capacity = encoded + _AROUND * (chunks + 1)
            self._most_frames = 64 + 2 * chunks * chunk_frames
            self._staging = Staging(self._request, program.frames)
            self._memory = device.pinned(self._capacity)
            self._rows = np.arange(chunks)
            staged, frames = self._stage()
            if (staged.state != READY).any():
                raise ValueError("a chunk is absent, or not for the device")
            self.encoded_nbytes = int(encoded)
            self._used = staged.used
            self._target = device.allocate(max(self._used, 1), self._stream)
            self._batch = self._frames(program, frames)
            self._from = device.allocate(max(output_nbytes, 1), self._stream)
            self._to = device.allocate(max(output_nbytes, 1), self._stream)
        except BaseException:
            self.close()
            raise

    @property
    def stream(self) -> Any:
        """The stream of the device's steps."""
        return self._stream

    def calls(self) -> dict[str, Callable[[], object]]:
        """Return functions that enqueue each step (``read`` runs at once); ``decode`` only if chunks are compressed."""
        found: dict[str, Callable[[], object]] = {
            "read": self._read,
            "read, natively": self._stage,
            "copy": self._copy,
            "place": self._place,
        }
        if self._batch is not None:
            found["decode"] = self._batch.run
        return found

    def sound(self) -> bool:
        """Wait, and return whether every frame has been decoded to its size."""
        return self._batch is None or self._batch.succeeded()

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()

    def _stage(self) -> Any:
        return self._staging.stage(self._rows, self._memory, self._capacity, self._most_frames)

    def _copy(self) -> None:
        self._device.copy_in(self._target[: self._used], self._memory[: self._used], self._stream)

    def _place(self) -> None:
        self._device.copy_array(self._to, self._from, self._stream)

    def _read(self) -> None:
        """Read every file once, with neighbouring files in one thread each, to consecutive memory."""
        view = memoryview(self._memory)
        ends = np.cumsum([length for _, _, length in self._files]).tolist()
        count, threads = len(self._files), self._threads

        def read(worker: int) -> None:
            for i in range(worker * count // threads, (worker + 1) * count // threads):
                path, offset, length = self._files[i]
                file = os.open(path, os.O_RDONLY)
                try:
                    begin = ends[i] - length
                    while begin < ends[i]:
                        got = os.preadv(file, [view[begin : ends[i]]], offset + begin - ends[i] + length)
                        if not got:
                            raise OSError(f"{path} has become shorter")
                        begin += got
                finally:
                    os.close(file)

        list(self._pool.map(read, range(threads)))

    def _frames(self, program: DeviceProgram, frames: Frames) -> FrameBatch | None:
        if program.algorithm is None:
            return None
        here = np.flatnonzero(frames.algorithm == ALGORITHMS[program.algorithm].code)
        if not len(here):
            return None
        decoder = self._device.decompressor(program.algorithm)
        source, source_nbytes = frames.source[here], frames.source_nbytes[here]
        memory: npt.NDArray[np.uint8] = self._memory[: self._used]
        if decoder is not None and (source % decoder.input_alignment).any():
            parts = [memory[s : s + n].tobytes() for s, n in zip(source.tolist(), source_nbytes.tolist(), strict=True)]
            memory, source, source_nbytes = pack(parts, decoder.input_alignment)
        slot = aligned(program.frames.nbytes, ALIGNMENT)
        target = slot * frames.chunk[here] + frames.target[here]
        return FrameBatch(
            self._device, program.algorithm, memory, source, source_nbytes, target, frames.target_nbytes[here],
            self._stream,
        )  # fmt: skip


def request_for(path: Path, selections: Sequence[Any]) -> tuple[ReadRequest, DeviceProgram, int]:
    """Return the engine's request for a read of an array in local files, its device program, and frames per chunk.

    Raises
    ------
    ValueError
        If the device does not decode this chain.
    """
    array = gzarr.open_array(path, device="cpu")
    metadata = array.metadata
    decoding = Reader(metadata, array.store, "", "cpu").decoding
    program = device_program(decoding)
    if program is None:
        raise ValueError("the device does not decode this chain")
    parsed = [parse_basic(selection, metadata.shape) for selection in selections]
    the_plan = plan(parsed, planned_grid(metadata.chunk_grid, decoding.levels))
    encoding = metadata.chunk_key_encoding
    access = access_to(array.store)
    sources = Locator(access, decoding, encoding, "", "/", metadata.shape).locate(the_plan, {})
    request = ReadRequest(
        node="/",
        access=access,
        codecs=decoding.codecs,
        chunk=decoding.chunk,
        plan=the_plan,
        sources=sources,
        outputs=(),
        field=None,
        fill_value=metadata.fill_value,
        missing="fill",
        most_encoded=decoding.most_encoded,
    )
    return request, program, max(1, frames_of(decoding).count)


def _ranges(request: ReadRequest, root: Path) -> list[tuple[str, int, int]]:
    """Return (path, offset, size) of the ranges that the read needs, in order; neighbours in a file are merged."""
    sources = request.sources
    found: list[tuple[str, int, int]] = []
    order = np.lexsort((sources.offset, sources.key_index))
    keys = sources.keys
    for key, offset, nbytes in zip(
        sources.key_index[order].tolist(), sources.offset[order].tolist(), sources.nbytes[order].tolist(), strict=True
    ):
        path = f"{root}/{keys[key]}"
        if nbytes == WHOLE:
            found.append((path, 0, Path(path).stat().st_size))
        elif nbytes >= 0 and found and found[-1][0] == path and found[-1][1] + found[-1][2] == offset:
            found[-1] = path, found[-1][1], found[-1][2] + nbytes
        elif nbytes >= 0:
            found.append((path, offset, nbytes))
    return found
