"""Engines: the only places that know how encoded bytes become elements in memory."""
