"""Kernels that run on a CUDA device."""
