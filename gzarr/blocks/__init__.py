"""Computing over arrays that do not fit in memory, block after block."""

from __future__ import annotations

from .blocks import Block
from .mapping import map_blocks

__all__ = ["Block", "map_blocks"]
