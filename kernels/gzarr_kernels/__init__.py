"""gzarr's kernels: functions over buffers and integers, compiled by Numba. They know nothing of Zarr.

Addresses and sizes are int64. Kernels do not raise: they return a status (``status.py``), and check every length that
comes from untrusted bytes before using it.
"""
