"""Arrays: read, written, resized."""
