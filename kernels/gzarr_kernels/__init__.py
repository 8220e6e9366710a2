"""gzarr's kernels: functions over buffers and integers, compiled by Numba. They know nothing of Zarr.

Addresses and sizes are int64. Nothing here raises: functions return a status (``status.py``), and every length that
comes from untrusted bytes is checked before it is used.
"""
