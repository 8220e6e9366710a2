"""Untrusted JSON documents."""
