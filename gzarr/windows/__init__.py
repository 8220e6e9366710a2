"""Boxes of arrays that go beyond their ends, for the loader and for work in blocks."""
