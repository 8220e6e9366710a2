"""Fills the encoded region of a wave on the device itself: files are read past host memory (GPUDirect Storage).

For chunks that nobody has to look into before the device does: uncompressed ones without checksums, whole files or
inner chunks of shards. All others go through page-locked memory (:mod:`gzarr.engines.cuda.staging`): the headers of
their containers and frames, and crc32c checksums, are verified on the host before a decoder sees them.

The same happens to a chunk as there. It is ABSENT if its file is not there, and FALLBACK if anything else is wrong
with it (a file of another size, a range beyond its end, a failure of whoever reads): the CPU engine then decodes it, or
says what it is.

Reads of files are in no order with any stream. So the host waits for them here before anything is enqueued that uses
what they wrote, and before them until nothing uses what was in that memory before (``Wave.encoded_memory``): the
kernels that placed an earlier wave on the caller's stream too. The reads of a wave overlap with each other, and with
the work of the device on the waves before.
"""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ...errors import DeviceError
from ...stores.base import LocalFiles
from .. import pool
from ..request import ABSENT as NO_RANGE
from ..request import WHOLE
from .staging import ABSENT, DEFERRED, FALLBACK, NO_FRAMES, READY, Staged

if TYPE_CHECKING:
    import numpy.typing as npt

    from ...stores.base import ReadableStore
    from ..request import ReadRequest
    from .device_protocol import Device, DirectFile, DirectFiles
    from .staging import FrameFormat, Frames

    IntArray = npt.NDArray[np.int64]

#: Smallest chunk that is read this way. Opening and registering a file takes about a millisecond, and kvikio itself
#: leaves reads below its threshold of 16 KiB to host memory: many small reads into page-locked memory and one copy
#: are faster.
LEAST_BYTES: Final = 64 << 10
#: Bytes that one thread reads at a time: kvikio's own default for its tasks.
PIECE_BYTES: Final = 4 << 20
#: Chunks begin at multiples of this, as in page-locked memory.
_ALIGNMENT: Final = 64


def files_for(device: Device, store: ReadableStore, form: FrameFormat) -> DirectFiles | None:
    """Return what reads the chunks of an array past host memory, or None if nothing does.

    Parameters
    ----------
    device, store
        Where to and where from.
    form
        What the chunks are.
    """
    if form.compressor is not None or form.checksums or form.nbytes < LEAST_BYTES:
        return None
    if not isinstance(store, LocalFiles) or store.file_root() is None:
        return None
    return device.direct_files()


class DirectStaging:
    """Reads the chunks of one read into device memory; what :class:`gzarr.engines.cuda.staging.Staging` is for others.

    Parameters
    ----------
    device
        Whose memory it is.
    files
        Of :func:`files_for`.
    request
        The read.
    nbytes
        Of a chunk.
    """

    def __init__(self, device: Device, files: DirectFiles, request: ReadRequest, nbytes: int) -> None:
        store = request.store
        root = store.file_root() if isinstance(store, LocalFiles) else None
        assert root is not None
        self._device = device
        self._files = files
        self._sources = request.sources
        self._folder = os.fsdecode(root)
        self._nbytes = nbytes

    def stage(self, rows: IntArray, staging: Any, capacity: int, most_frames: int) -> tuple[Staged, Frames]:
        """Read chunks into device memory; they are there when this returns.

        Parameters
        ----------
        rows
            int64, rows of the plan.
        staging
            uint8 device memory, of which nothing may be in use by what is enqueued.
        capacity
            Bytes of it to use, at most.
        most_frames
            Without meaning: such chunks have no frames.

        Returns
        -------
        As :meth:`gzarr.engines.cuda.staging.Staging.stage`.
        """
        sources, nbytes = self._sources, self._nbytes
        # Neighbours in one file are read one after the other.
        rows = rows[np.lexsort((sources.offset[rows], sources.key_index[rows]))]
        found, offset = sources.nbytes[rows], sources.offset[rows]
        state = np.where(found == NO_RANGE, ABSENT, FALLBACK)
        wanted = np.flatnonzero((found == WHOLE) | (found == nbytes))
        slot = -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        room = min(capacity, staging.shape[0]) // slot
        if room:
            # A chunk that no wave has room for is not deferred, or there would be no end.
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

    def _read(
        self, file: IntArray, offset: IntArray, whole: npt.NDArray[np.bool_], staging: Any, place: IntArray
    ) -> IntArray:
        """Read chunks in pieces, by threads; return their states.

        A file is opened once for all threads, by the first that reads of it, and closed by the one that has read the
        last piece of it. Pieces are taken file after file, so about as many files are open at once as there are
        threads.
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
                    # Where an index says that there is a chunk, a file that is not there is a fault.
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
            # A pool's thread keeps these functions a moment longer than they run: not the memory too.
            memory.clear()
        return state


class _SharedFile:
    """A file that several threads read.

    Parameters
    ----------
    files, path
        Who opens it, and where it is.
    pieces
        How often :meth:`done` is called until it is closed.

    Attributes
    ----------
    nbytes
        Its size, when it is open.
    """

    __slots__ = ("_became", "_file", "_files", "_left", "_lock", "_path", "nbytes")

    def __init__(self, files: DirectFiles, path: str, pieces: int) -> None:
        self._files = files
        self._path = path
        self._left = pieces
        self._lock = threading.Lock()
        self._file: DirectFile | None = None
        self._became: int | None = None
        self.nbytes = 0

    def open(self) -> int:
        """Open it if nobody has yet; return READY, ABSENT or FALLBACK."""
        with self._lock:
            if self._became is None:
                self._became = self._open()
            return self._became

    def _open(self) -> int:
        try:
            # Only the system says for sure that there is no such file; and a named pipe would be waited for for ever.
            if not stat.S_ISREG(Path(self._path).stat().st_mode):
                return FALLBACK
            self._file = self._files.open(self._path)
            # Of the file that is open now, whatever has taken its place since.
            self.nbytes = self._file.size()
        except (FileNotFoundError, NotADirectoryError):
            return ABSENT
        except (OSError, DeviceError):
            return FALLBACK
        return READY

    def read(self, target: Any, offset: int) -> bool:
        """Fill device memory; return whether all of it was read."""
        assert self._file is not None
        try:
            return self._file.read(target, offset) == int(target.nbytes)
        except (OSError, DeviceError):
            return False

    def done(self) -> None:
        """Count a piece as read."""
        with self._lock:
            self._left -= 1
            last = self._left == 0
        if last:
            self.close()

    def close(self) -> None:
        """Close it if it is open; nobody may be reading."""
        file, self._file = self._file, None
        if file is not None:
            file.close()
