"""The CUDA engine: chunks are read in waves, decoded in batches on the device, and placed by one kernel or a few."""
