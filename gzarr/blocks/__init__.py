"""Computing over arrays that do not fit in memory, block after block."""

from __future__ import annotations

from .blocks import Block
from .mapping import map_blocks
from .outputs import Output

__all__ = ["Block", "Output", "map_blocks"]
