"""Whole hierarchies: copied, verified, consolidated, saved."""
