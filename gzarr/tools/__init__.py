"""Tools for whole hierarchies: copy, verify, consolidate, save."""
