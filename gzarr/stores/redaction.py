"""Texts of other packages without secrets: passwords and tokens in options and URLs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)(?:[^\s/'\"<>]*@)?([^\s?'\"<>]*)(\?[^\s'\"<>)]*)?")
_SECRET: Final = re.compile("key|secret|token|pass|pwd|auth|cred|sas|sign|connection|header|cookie|user", re.IGNORECASE)
_LONGEST: Final = 300


def public_url(text: str) -> str:
    """Return a text with URLs without user names, passwords and queries."""
    return _URL.sub(lambda match: f"{match[1]}{match[2]}", text)


def secrets_of(options: Any, *, secret: bool = False) -> frozenset[str]:
    """Return the texts in options whose names sound like secrets."""
    if isinstance(options, Mapping):
        found = (secrets_of(value, secret=secret or bool(_SECRET.search(str(name)))) for name, value in options.items())
    elif isinstance(options, (list, tuple)):
        found = (secrets_of(value, secret=secret) for value in options)
    else:
        text = options if isinstance(options, str) else ""
        return frozenset({text} if secret and len(text) > 2 else ())
    return frozenset().union(*found)


def describe(error: BaseException, secrets: frozenset[str]) -> str:
    """Return the class and the text of an exception, without secrets."""
    text = str(error)
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    text = " ".join(public_url(text).split())[:_LONGEST]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
