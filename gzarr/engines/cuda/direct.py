"""Fills the encoded region of a wave directly on the device: files are read past host memory (GPUDirect Storage).

This is for chunks that the host need not inspect: uncompressed ones without checksums, in whole files or as inner
chunks of shards. All others go through page-locked memory (:mod:`gzarr.engines.cuda.staging`): the host verifies the
headers of their containers and frames, and crc32c checksums, before a decoder sees them.

Chunks get the same states as there: ABSENT if the file does not exist, FALLBACK if anything else is wrong (a file of
another size, a range beyond its end, a failed read). The CPU engine then decodes the chunk, or reports the error.

Reads of files are not ordered with any stream. So the host waits for them here before it enqueues work that uses the
bytes. Before it starts them, it waits until nothing uses the memory any more (``Wave.encoded_memory``), including the
kernels that placed an earlier wave on the caller's stream. The reads of a wave overlap with each other, and with the
device's work on earlier waves.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ...errors import DeviceError
from ...guarded import Lock
from ...stores.file_tree import dangling_link
from .. import pool
from ..access.sources import ABSENT as NO_RANGE
from ..access.sources import WHOLE
from .staging import ABSENT, DEFERRED, FALLBACK, NO_FRAMES, READY, Staged

if TYPE_CHECKING:
    import numpy.typing as npt

    from ..access.access import Access, ReadRequest
    from .device_protocol import Device, DirectFile, DirectFiles
    from .staging import FrameFormat, Frames

    IntArray = npt.NDArray[np.int64]

#: Bytes of the smallest chunk that is read this way. Opening and registering a file takes about a millisecond, and
#: kvikio itself sends reads below its threshold of 16 KiB through host memory: many small reads into page-locked
#: memory and one copy are faster.
MIN_CHUNK_BYTES: Final = 64 << 10
#: Bytes that one thread reads at a time: kvikio's default task size.
PIECE_BYTES: Final = 4 << 20
#: Alignment of chunks in bytes, as in page-locked memory.
_ALIGNMENT: Final = 64


def files_for(device: Device, access: Access, form: FrameFormat) -> DirectFiles | None:
    """Return the reader of an array's chunks past host memory, or None if they must go through it.

    Parameters
    ----------
    device, access
        Device to read to, and access to what is read.
    form
        Format of the chunks.
    """
    if form.compressor is not None or form.checksums or form.nbytes < MIN_CHUNK_BYTES:
        return None
    return device.direct_files() if access.root is not None else None


class DirectStaging:
    """Stages the chunks of one read in device memory, as :class:`gzarr.engines.cuda.staging.Staging` does on the host.

    Parameters
    ----------
    device
        Device that owns the memory.
    files
        Result of :func:`files_for`.
    request
        The read.
    nbytes
        Bytes of a chunk.
    """

    def __init__(self, device: Device, files: DirectFiles, request: ReadRequest, nbytes: int) -> None:
        root = request.access.root
        assert root is not None
        self._device = device
        self._files = files
        self._sources = request.sources
        self._folder = os.fsdecode(root)
        self._nbytes = nbytes

    def stage(self, rows: IntArray, staging: Any, capacity: int, most_frames: int) -> tuple[Staged, Frames]:
        """Read chunks into device memory; blocks until they are there.

        Parameters
        ----------
        rows
            int64, rows of the plan.
        staging
            uint8 device memory that no enqueued work uses.
        capacity
            Most bytes of it to use.
        most_frames
            Ignored: such chunks have no frames.

        Returns
        -------
        As for :meth:`gzarr.engines.cuda.staging.Staging.stage`.
        """
        sources, nbytes = self._sources, self._nbytes
        # Neighbours in a file are read one after the other.
        rows = sources.in_order(rows)
        found, offset = sources.nbytes[rows], sources.offset[rows]
        state = np.where(found == NO_RANGE, ABSENT, FALLBACK)
        wanted = np.flatnonzero((found == WHOLE) | (found == nbytes))
        slot = -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        room = min(capacity, staging.shape[0]) // slot
        if room:
            # A chunk too large for any wave must not be deferred: that would never end.
            state[wanted[room:]] = DEFERRED
        wanted = wanted[:room]
        place = np.full(len(rows), -1)
        place[wanted] = slot * np.arange(len(wanted))
        state[wanted] = self._read(
            sources.key_index[rows[wanted]], offset[wanted], found[wanted] == WHOLE, staging, place[wanted]
        )
        staged = Staged(
            rows=rows,
            state=state,
            typesize=np.ones(len(rows), np.int64),
            blocksize=np.full(len(rows), nbytes),
            bits=np.zeros(len(rows), np.bool_),
            direct=np.where(state == READY, place, -1),
            used=slot * len(wanted),
        )
        return staged, NO_FRAMES

    def cancel(self) -> None:
        """Do nothing: a wave of uncompressed chunks is soon complete."""

    def _read(
        self, file: IntArray, offset: IntArray, whole: npt.NDArray[np.bool_], staging: Any, place: IntArray
    ) -> IntArray:
        """Read chunks in pieces, in several threads; return their states.

        A file is opened once for all threads, by the first one that reads from it, and closed by the one that reads its
        last piece. Pieces are taken file by file, so about as many files are open at once as there are threads.
        """
        nbytes = self._nbytes
        n, pieces = len(file), -(-nbytes // PIECE_BYTES)
        state = np.full(n, READY)
        numbers, chunks = np.unique(file, return_counts=True)
        keys = self._sources.keys
        opened = {
            number: _SharedFile(self._files, f"{self._folder}/{keys[number]}", pieces * many)
            for number, many in zip(numbers.tolist(), chunks.tolist(), strict=True)
        }
        memory = [staging]

        def piece(i: int, begin: int) -> int:
            shared = opened[int(file[i])]
            try:
                became = shared.open()
                if became != READY:
                    # A shard index says that this chunk exists, so a missing file is a fault.
                    return became if whole[i] else FALLBACK
                first = int(offset[i])
                fits = shared.nbytes == nbytes if whole[i] else 0 <= first <= shared.nbytes - nbytes
                if not fits:
                    return FALLBACK
                target = memory[0][int(place[i]) + begin : int(place[i]) + min(begin + PIECE_BYTES, nbytes)]
                return READY if shared.read(target, first + begin) else FALLBACK
            finally:
                shared.done()

        def work(k: int) -> None:
            i, part = divmod(k, pieces)
            with self._device:
                became = piece(i, part * PIECE_BYTES)
            if became != READY:
                state[i] = became

        try:
            pool.each(work, n * pieces, pool.thread_count())
        finally:
            for shared in opened.values():
                shared.close()
            # A pool's thread keeps these functions a moment longer than they run; it must not keep the memory.
            memory.clear()
        return state


class _SharedFile:
    """A file that several threads read.

    Parameters
    ----------
    files, path
        Opens files; path of this one.
    pieces
        Number of calls of :meth:`done` after which the file is closed.

    Attributes
    ----------
    nbytes
        Size of the open file in bytes.
    """

    __slots__ = ("_became", "_file", "_files", "_left", "_lock", "_path", "nbytes")

    def __init__(self, files: DirectFiles, path: str, pieces: int) -> None:
        self._files = files
        self._path = path
        self._left = pieces
        self._lock = Lock()
        self._file: DirectFile | None = None
        self._became: int | None = None
        self.nbytes = 0

    def open(self) -> int:
        """Open the file unless it is open; return READY, ABSENT or FALLBACK."""
        with self._lock:
            if self._became is None:
                self._became = self._open()
            return self._became

    def _open(self) -> int:
        try:
            try:
                # Only the system says reliably that there is no such file; and opening a named pipe could block.
                if not stat.S_ISREG(Path(self._path).stat().st_mode):
                    return FALLBACK
            except (FileNotFoundError, NotADirectoryError):
                # The CPU says what is wrong with a link to something that does not exist.
                return FALLBACK if dangling_link("", self._path.split("/")[1:]) else ABSENT
            self._file = self._files.open(self._path)
            # The size of the open file, even if another one has replaced it since.
            self.nbytes = self._file.size()
        except (OSError, DeviceError):
            return FALLBACK
        return READY

    def read(self, target: Any, offset: int) -> bool:
        """Fill device memory; return whether all bytes were read."""
        assert self._file is not None
        try:
            return self._file.read(target, offset) == int(target.nbytes)
        except (OSError, DeviceError):
            return False

    def done(self) -> None:
        """Count a piece as done; close the file after the last one."""
        with self._lock:
            self._left -= 1
            last = self._left == 0
        if last:
            self.close()

    def close(self) -> None:
        """Close the file if it is open; no read may be in progress."""
        file, self._file = self._file, None
        if file is not None:
            file.close()
