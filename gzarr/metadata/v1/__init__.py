"""Zarr v1: https://zarr-specs.readthedocs.io/en/latest/v1/v1.0.html."""
