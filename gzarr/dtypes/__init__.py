"""Zarr data types as NumPy dtypes.

``number_types`` is a table with one row per number type. Data types form families, one module each (``numbers`` for
the types of the table, ``fixed_length``, ``times``, ``structured``, ``variable_length``), listed in ``families``.
``v2``, ``v3`` and ``fill_value`` convert between documents and dtypes or elements; ``properties`` answers questions
that the rest of gzarr has about a dtype.
"""
