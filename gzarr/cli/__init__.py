"""Command line of gzarr."""
