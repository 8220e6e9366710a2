"""Kernels that run on a CUDA device, and in Numba's simulator."""
