"""Texts of other packages without secrets: passwords and tokens in options and URLs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from ..reasons import pass_on, text_of

# With one slash or three, too, as mistyped ones have, and with slashes in a password, which should be "%2F". A single
# letter is a drive of Windows. All lengths are bounded, and so is the time for a long text. In a URL,
# another one may begin.
_URL: Final = re.compile(
    r"([A-Za-z][A-Za-z0-9+.-]{1,60}:/{1,3})"
    r"((?:[^\s/]{0,4000}@|[^\s/@:\[]{0,4000}:(?!\d{0,5}/)(?:(?!://)[^\s@]){0,4000}@)?)"
    r"((?:(?![A-Za-z][A-Za-z0-9+.-]{1,60}:/)[^\s?'\"<>])*)(\?[^\s'\"<>)]*)?"
)
_SECRET: Final = re.compile(
    "key|secret|token|pass|pwd|auth|cred|sas|sign|connection|header|cookie|user|"
    # What should be a path may be the key itself.
    "service_account|bearer|jwt|assertion|private|login|cert|proxy",
    re.IGNORECASE,
)
# Keys of Google have what is known to all, too (project, domain, addresses), of which messages need not be rid.
_TYPES_OF_KEYS: Final = ("_account", "authorized_user")
_PUBLIC_OF_KEY: Final = re.compile("(?:uri|url|type)$")
_LONGEST: Final = 300
_LONGEST_LOOKED_AT: Final = 16 << 10


def public_url(text: str) -> str:
    """Return a text with URLs without user names, passwords and queries."""
    return _URL.sub(_without_user, text)


def named(url: str) -> str:
    """Return a URL, or a path, in quotes, for messages: a URL without user names, passwords and queries."""
    # Of a URL that is all of a text, all that follows "?" is its query, quotes and brackets, too.
    text = _URL.sub(lambda match: f"{_without_user(match)}{match[4] or ''}", url)
    return repr(text.partition("?")[0] if _URL.search(text) else text)


def without(text: str, secrets: frozenset[str]) -> str:
    """Return a text with stars for some secrets."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def _without_user(match: re.Match[str]) -> str:
    """Return a URL without user name, password and query. Paths of files have no users."""
    user = match[2] if match[1].lower().startswith("file:///") else ""
    return f"{match[1]}{user}{match[3]}"


def secrets_of(options: Any, *, secret: bool = False) -> frozenset[str]:
    """Return the texts in options whose names sound like secrets; with ``secret``, all of them but in Google's keys."""
    if isinstance(options, Mapping):
        if str(options.get("type")).endswith(_TYPES_OF_KEYS):
            options, secret = {name: options[name] for name in options if not _PUBLIC_OF_KEY.search(str(name))}, False
        found = (secrets_of(value, secret=secret or bool(_SECRET.search(str(name)))) for name, value in options.items())
    elif isinstance(options, (list, tuple)):
        found = (secrets_of(value, secret=secret) for value in options)
    else:
        text = options.decode("utf-8", "replace") if isinstance(options, bytes) else options
        if not (secret and isinstance(text, str) and len(text) > 2):
            return frozenset()
        return frozenset({text}) | _secrets_within(text)
    return frozenset().union(*found)


def _secrets_within(text: str) -> frozenset[str]:
    """Return the texts in a JSON object (a key of Google), of which an error may show a part."""
    if not text.lstrip().startswith("{"):
        return frozenset()
    try:
        return secrets_of(json.loads(text), secret=True)
    except (ValueError, RecursionError):
        return frozenset()


def describe(error: BaseException, secrets: frozenset[str]) -> str:
    """Return the class and the text of an exception, without secrets; raise it if a handler of a signal raised it."""
    pass_on(error)
    text = without(text_of(error), secrets)[:_LONGEST_LOOKED_AT]
    text = " ".join(public_url(text).split())[:_LONGEST]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
