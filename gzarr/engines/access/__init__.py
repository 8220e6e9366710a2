"""Where chunks are, and how their bytes are read and stored: decided once for each array."""
