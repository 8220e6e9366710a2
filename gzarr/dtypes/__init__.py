"""Data types of documents as NumPy dtypes."""
