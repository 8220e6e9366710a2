"""Zarr v3.1: https://zarr-specs.readthedocs.io/en/latest/v3/core/index.html."""
