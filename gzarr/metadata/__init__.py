"""Metadata documents of every Zarr version, giving one model.

:mod:`~gzarr.metadata.formats` has one :class:`~gzarr.metadata.format.Format` for each version, in the folder of that
version beside its ``parse`` and ``write``. Nothing outside this package compares versions.
"""
