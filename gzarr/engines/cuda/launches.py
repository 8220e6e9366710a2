"""Kernel launches over a wave's arena, as values: a wave's layout is computed before anything is enqueued."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from .columns import Columns
    from .device_protocol import Device

    IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class KernelLaunch:
    """A launch of a kernel that reads and writes the arena.

    Attributes
    ----------
    kernel, blocks
        Kernel, and number of blocks.
    header
        Index of the kernel's header in the columns.
    views
        How many of the kernel's parameters are the arena, each as another type.
    """

    kernel: Any
    blocks: int
    header: int
    views: int = 2

    def enqueue(self, device: Device, arena: int, stream: Any) -> None:
        """Launch the kernel over the arena at an address."""
        from gzarr_kernels.device.target import THREADS

        device.launch(self.kernel, self.blocks, THREADS, stream, *(arena,) * self.views, self.header)


def copy_launch(columns: Columns, source: IntArray, target: IntArray, nbytes: IntArray) -> KernelLaunch:
    """Return the launch that copies bytes within the arena.

    Parameters
    ----------
    columns
        Columns of the wave, to append to.
    source, target, nbytes
        int64 ``(n,)``, offsets in the arena and bytes of each copy.
    """
    from gzarr_kernels.device import copies as c

    header = np.zeros(c.SIZE, np.int64)
    header[c.FRAMES] = len(source)
    header[c.SOURCE], header[c.TARGET] = columns.put(source), columns.put(target)
    header[c.NBYTES] = columns.put(nbytes)
    header[c.PARTS] = parts = c.parts(int(nbytes.max(initial=0)))
    return KernelLaunch(c.copy_frames, c.blocks(len(source) * parts), columns.put(header))
