"""Where a remote store can be read by plain GET requests: URLs of its values, signed where that is needed."""

from __future__ import annotations

import datetime
import os
import re
import time
from typing import TYPE_CHECKING, Any, Final

from . import curl_threads, obstore_module
from .connections import uses_proxy
from .curl_transfers import Options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .base import Request

#: Options of a client that mean nothing but times, and the name that it gives.
_CLIENT: Final = frozenset({"allow_http", "connect_timeout", "read_timeout", "timeout", "user_agent"})
_TIME: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)")
_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
#: Options of a store that a signed URL contains.
_SIGNED: Final = {
    "S3Store": frozenset(
        {
            "access_key_id",
            "bucket",
            "endpoint",
            "region",
            "secret_access_key",
            "session_token",
            "skip_signature",
            "virtual_hosted_style_request",
        }
    ),
    "AzureStore": frozenset({"account_key", "account_name", "container_name", "endpoint", "use_emulator"}),
}
#: Paths that no client encodes, or each in the same way; "." and ".." would be left out by some.
_PLAIN_PATH: Final = re.compile(r"(?!(?:.*/)?\.{1,2}(?:/|$))[A-Za-z0-9._~-]+(?:/[A-Za-z0-9._~-]+)*", re.ASCII)
_PLAIN_URL: Final = re.compile(
    r"https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._~-]+)*/?(\?[A-Za-z0-9._~%!$&()*+,;=:@/?-]*)?", re.ASCII
)
#: A version that can be sent in a header.
_TAG: Final = re.compile(r'"[\x21\x23-\x7e]*"', re.ASCII)
#: Seconds for which a signed URL is valid: it is used at once.
_VALID_S: Final = 3600
#: Plain requests in a row that failed where obstore's did not, after which none are sent for some seconds.
_MOST_FAILURES: Final = 4
_PAUSE_S: Final = 60.0
_TWIN: Final = {"access_key_id": "none", "secret_access_key": "none", "skip_signature": "false"}


class PlainUrls:
    """Whether and how plain requests can be sent to a store.

    Parameters
    ----------
    kind, arguments, keywords
        Class of obstore and its arguments.

    Attributes
    ----------
    options
        Times of requests.
    proven
        Whether the server has answered one.
    are_quick
        Whether :meth:`of` never waits: there is nothing to sign, or the keys are known.
    from_end
        Whether the server takes ranges that count from the end of a value, as Azure does not.
    """

    def __init__(self, kind: str, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> None:
        client = keywords.get("client_options") or {}
        connect, stall, timeout = times = [
            _seconds(client.get(name), default)
            for name, default in (("connect_timeout", 5), ("read_timeout", 30), ("timeout", 30))
        ]
        self.options: Options = Options(connect or 0, stall or 0, timeout or 0, str(client.get("user_agent", "gzarr")))
        self.proven: bool = False
        self.from_end: bool = kind != "AzureStore"
        self._kind = kind
        root = str(arguments[0]) if kind == "HTTPStore" and len(arguments) == 1 else ""
        base, mark, query = root.partition("?")
        self._base, self._query = base.rstrip("/"), mark + query
        self._config = config = dict(keywords.get("config") or {})
        skips = config.get("skip_signature", os.environ.get("AWS_SKIP_SIGNATURE", "false"))
        self._unsigned = kind == "S3Store" and str(skips).lower() == "true"
        # Azure may be asked for a key first, whatever is configured; a provider may ask anybody.
        known = {"access_key_id", "secret_access_key"} <= set(config) and "credential_provider" not in keywords
        self.are_quick: bool = kind == "HTTPStore" or self._unsigned or (kind == "S3Store" and known)
        self._encrypted = not str(self._base or config.get("endpoint", "")).startswith("http://")
        self._failures = 0
        self._paused_until = 0.0
        self._possible = None not in times and _are_plain(kind, arguments, keywords)

    def possible(self) -> bool:
        """Return whether plain requests can be sent now."""
        return (
            self._possible
            and time.monotonic() >= self._paused_until
            and not (self._encrypted and curl_threads.has_forked())
            and not uses_proxy()
            and curl_threads.available()
        )

    def takes(self, request: Request, path: str) -> bool:
        """Return whether a request for an object at a path can be a plain one."""
        offset, length, version = request.byte_range.offset, request.byte_range.length, request.version
        # A range of no bytes cannot be expressed in HTTP. What is wrong is for obstore.
        if (length is not None and (length <= 0 or offset < 0)) or (offset < 0 and not self.from_end):
            return False
        if request.unless_version is not None or (isinstance(version, str) and not can_be_sent(version)):
            return False
        return _PLAIN_PATH.fullmatch(path) is not None

    def failed(self, *, busy: bool) -> None:
        """Count a request that failed where obstore's did not; a server that is busy may refuse any."""
        if busy and self.proven:
            return
        self._failures += 1
        if self._failures >= _MOST_FAILURES:
            # A server may only have been started anew, so plain requests are tried again.
            self._paused_until = time.monotonic() + _PAUSE_S

    def succeeded(self) -> None:
        """Begin to count anew."""
        self._failures = 0
        self.proven = True

    def of(self, paths: Sequence[str], store: Any) -> list[str]:
        """Return the URLs of some objects; any exception of obstore may be raised.

        Parameters
        ----------
        paths
            Paths from the root of the store of obstore.
        store
            That store.
        """
        if self._base:
            return [f"{self._base}/{path}{self._query}" for path in paths]
        if self._unsigned:
            # obstore signs nothing for such a store. One with any keys has the same URLs, apart from the signature.
            keywords = {"config": self._config | _TWIN, "client_options": {"allow_http": True}}
            store = obstore_module.make(self._kind, (), keywords)
        valid = datetime.timedelta(seconds=_VALID_S)
        try:
            signed: list[str] = obstore_module.module().sign(store, "GET", list(paths), valid)
        except BaseException:
            # Not for every store can it be done, and the wait for credentials may be long.
            self._possible = False
            raise
        return [url.partition("?")[0] for url in signed] if self._unsigned else signed


def can_be_sent(version: str) -> bool:
    """Return whether a version is an entity tag that a line of a header can hold."""
    return _TAG.fullmatch(version) is not None


def _are_plain(kind: str, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> bool:
    client = keywords.get("client_options") or {}
    if set(client) - _CLIENT or set(keywords) - {"client_options", "config", "credential_provider", "retry_config"}:
        return False
    config = keywords.get("config") or {}
    if kind == "HTTPStore":
        return len(arguments) == 1 and not config and _PLAIN_URL.fullmatch(str(arguments[0])) is not None
    return kind in _SIGNED and not arguments and bool(config) and not set(config) - _SIGNED[kind]


def _seconds(value: Any, default: float) -> float | None:
    """Return a time in seconds; None for one that is written in another way."""
    if value is None:
        return default
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    found = _TIME.fullmatch(value) if isinstance(value, str) else None
    return None if found is None else float(found[1]) * _UNITS_S[found[2]]
