"""The CUDA engine: chunks are read in waves, decoded in batches on the device, and assembled by one kernel a wave."""
