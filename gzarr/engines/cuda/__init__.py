"""The CUDA engine: reads chunks in waves, decodes them in batches on the device, and places them with a few kernels."""
