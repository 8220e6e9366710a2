"""Nodes of a hierarchy: found, made, and what groups do."""
