"""Servers on this machine, which benchmarks of reading over a network read from.

``nginx`` serves a folder, ``proxy`` makes a server slow, ``files`` serves a folder slowly.
"""
