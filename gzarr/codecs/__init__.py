"""Codecs: their names in documents, the representations they produce, and decoding in host memory."""
