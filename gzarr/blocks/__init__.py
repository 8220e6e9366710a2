"""Computing over arrays that do not fit in memory, block after block."""
