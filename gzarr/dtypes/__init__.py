"""Data types of documents as NumPy dtypes.

``number_types`` is a table with a row for each type of numbers. What has a size, a unit or fields is a family, with a
module of its own (``fixed_length``, ``times``, ``structured``, ``variable_length``; ``numbers`` is that of the table),
listed in ``families``. ``v2``, ``v3`` and ``fill_value`` go from documents to dtypes and elements, and back;
``properties`` answers what the rest of gzarr asks about a dtype.
"""
