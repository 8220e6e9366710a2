"""Engines: the only modules that turn encoded bytes into elements in memory, and back."""
