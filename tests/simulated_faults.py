"""What the simulated device says where a GPU would have undefined behaviour."""

from __future__ import annotations


class SimulatedFault(AssertionError):
    """Something that a device does not allow: the engine is wrong, not its input."""
