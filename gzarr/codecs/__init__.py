"""Codecs: what they are called in documents, what they make of a chunk, and how it is decoded in host memory."""
