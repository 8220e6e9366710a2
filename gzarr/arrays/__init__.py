"""Arrays: reading, writing and resizing."""
