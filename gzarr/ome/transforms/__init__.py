"""Transformations between coordinate systems (version 0.6): read from documents, chained, applied to points.

Source: https://ngff.openmicroscopy.org, "coordinateTransformations" metadata, candidate 0.6rc0.
"""
