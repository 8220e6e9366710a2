"""The drafts of Zarr v3 of 2022: https://github.com/zarr-developers/zarr-specs/blob/692fe73/docs/core/v3.0.rst."""
