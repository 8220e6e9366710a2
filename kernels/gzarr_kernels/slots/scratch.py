"""Scratch memory of one worker, which compiled code takes by address: paths, then loops and a tile for placing."""

from __future__ import annotations

from typing import Final

from .geometry import MAX_DIMS

#: Bytes at the beginning for the paths of files.
PATHS_BYTES: Final = 8192
#: Bytes of an int64 column of loops.
COLUMN_BYTES: Final = 8 * MAX_DIMS
#: Bytes between the two buffers of a tile (``transpose.py``), and of both, aligned to a cache line.
TILE_BUFFER_BYTES: Final = 16 << 10
TILE_BYTES: Final = 2 * TILE_BUFFER_BYTES + 64
#: Offset of the scratch for tiles, after six columns of loops.
TILE_SCRATCH: Final = 6 * COLUMN_BYTES
#: Bytes of scratch for ``place_piece`` and ``mark_piece``.
SCRATCH_BYTES: Final = TILE_SCRATCH + TILE_BYTES
#: Bytes of scratch of each worker.
WORKER_BYTES: Final = PATHS_BYTES + SCRATCH_BYTES
