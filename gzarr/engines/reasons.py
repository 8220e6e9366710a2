"""What an error of a store or of a codec says, for the error of a chunk that it becomes."""

from __future__ import annotations


def reason_of(error: BaseException) -> str:
    """Return the text of an error; its type if it has none, as those that handlers of signals raise (timeouts)."""
    return str(error) or type(error).__name__
