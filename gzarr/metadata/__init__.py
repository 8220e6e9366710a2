"""Metadata documents of all Zarr versions, parsed into one model.

:mod:`~gzarr.metadata.formats` has one :class:`~gzarr.metadata.format.Format` per version, which lives in that version's
subpackage with its ``parse`` and ``write``. Nothing outside this package compares versions.
"""
