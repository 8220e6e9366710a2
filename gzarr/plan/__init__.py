"""What a read or a write takes: which chunks, which bytes, which operations."""
