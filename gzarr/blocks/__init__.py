"""Computing over arrays that do not fit in memory, block after block."""

from __future__ import annotations

from .blocks import Block
from .joining import join
from .labelling import label
from .mapping import map_blocks
from .measuring import measure
from .outputs import Output

__all__ = ["Block", "Output", "join", "label", "map_blocks", "measure"]
