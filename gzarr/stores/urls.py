"""From a URL to a remote store.

``s3://BUCKET/ROOT``, ``gs://BUCKET/ROOT``, ``az://CONTAINER/ROOT``, ``abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/ROOT``
and ``https://HOST/ROOT``; ``#NODE`` at the end names a node below the root.
"""

from __future__ import annotations

import datetime
import os
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from ..errors import ArgumentError
from . import aws_profiles
from .base import RequestLimits
from .http_store import HttpStore
from .io_threads import io_thread_count
from .keys import normalize_path
from .local import LocalStore
from .object_store import GivenStore, ObjectStore
from .remote_store import DEFAULT_TIMEOUT_S, RemoteStore
from .timeouts import seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Class of obstore and name of the bucket's option, by scheme.
_CLOUDS: Final = {
    "s3": ("S3Store", "bucket"),
    "s3a": ("S3Store", "bucket"),
    "gs": ("GCSStore", "bucket"),
    "gcs": ("GCSStore", "bucket"),
    "az": ("AzureStore", "container_name"),
    "azure": ("AzureStore", "container_name"),
    "adl": ("AzureStore", "container_name"),
    "abfs": ("AzureStore", "container_name"),
    "abfss": ("AzureStore", "container_name"),
}
SCHEMES: Final = frozenset({*_CLOUDS, "http", "https"})
#: Names of options in s3fs, gcsfs and adlfs, and their names here.
_OTHER_NAMES: Final = {
    "anon": "skip_signature",
    "endpoint_url": "endpoint",
    "key": "access_key_id",
    "secret": "secret_access_key",
}
#: Options that are arguments of obstore's classes, not entries of their configuration.
_ARGUMENTS: Final = frozenset({"client_options", "credential_provider"})
#: Options that limit requests, and the attributes of :class:`gzarr.stores.base.RequestLimits`.
_LIMITS: Final = {"concurrency": "calls", "gap_bytes": "gap_bytes", "request_bytes": "most_bytes"}
# Longest time without a byte, and without a connection, before a request counts as failed, in seconds.
_STALL_S: Final = 15.0
_CONNECT_S: Final = 5.0


def remote_store(
    url: str, *, read_only: bool = True, storage_options: Mapping[str, Any] | None = None
) -> tuple[RemoteStore, str]:
    """Return the store of a URL, and the path of the node that its fragment names (``""`` without one).

    Parameters
    ----------
    url
        URL of one of :data:`SCHEMES`.
    read_only
        Refuse every change.
    storage_options
        Options of obstore's store (``region``, ``endpoint``, ``access_key_id``, ``skip_signature``, ...), its
        ``client_options`` and ``credential_provider``, ``profile`` for S3 (:mod:`gzarr.stores.aws_profiles`), and
        gzarr's own: ``timeout``, the seconds after which a failing request is not sent again (default 60),
        ``concurrency``, ``gap_bytes`` and ``request_bytes`` (see :func:`gzarr.open_store`).

    Raises
    ------
    ArgumentError
        If the URL or an option is invalid, or obstore is not installed.
    """
    parts = urlsplit(url)
    scheme = parts.scheme.lower()
    options = {_OTHER_NAMES.get(name, name): value for name, value in (storage_options or {}).items()}
    timeout = seconds(options.pop("timeout", DEFAULT_TIMEOUT_S), "storage_options['timeout']")
    limits = _limits(options)
    if parts.query:
        raise ArgumentError(
            f"{_shown(url)}: a URL with a query ('?...') names one object, not the root of a hierarchy; pass tokens in "
            "storage_options"
        )
    if not parts.hostname:
        raise ArgumentError(f"{_shown(url)} names no bucket or host; write {scheme}://NAME/PATH")
    node = normalize_path(unquote(parts.fragment))
    client = _client_options(options.pop("client_options", {}), timeout)
    keywords: dict[str, Any] = {"client_options": client, "retry_config": _no_retries()}
    if options.get("credential_provider") is not None:
        keywords["credential_provider"] = options.pop("credential_provider")
    root = unquote(parts.path).strip("/")
    if scheme in _CLOUDS:
        kind, name = _CLOUDS[scheme]
        if kind == "S3Store" and "credential_provider" not in keywords:
            profile = aws_profiles.find(options, options.pop("profile", None))
            if profile is not None:
                keywords["credential_provider"] = profile
                if "AWS_REGION" not in os.environ and "AWS_DEFAULT_REGION" not in os.environ:
                    options.setdefault("region", profile.region())
        container = parts.netloc.rpartition("@")[0] or parts.netloc
        if "@" in parts.netloc:
            if kind != "AzureStore":
                raise ArgumentError(f"{_shown(url)}: pass user names and passwords in storage_options, not in the URL")
            options.setdefault("account_name", parts.hostname.partition(".")[0])
        config = {name: container, **options}
        allow_http(client, config)
        keywords["config"] = {key: value for key, value in config.items() if value is not None}
        shown = f"{scheme}://{container}" + (f"/{root}" if root else "")
        made: RemoteStore = ObjectStore(
            kind,
            (),
            keywords,
            url=shown,
            prefix=normalize_path(root),
            read_only=read_only,
            timeout=timeout,
            limits=limits,
        )
        return made, node
    if "@" in parts.netloc:
        raise ArgumentError(
            f"{_shown(url)}: pass user names and passwords as storage_options={{'client_options': {{'default_headers': "
            "{'Authorization': ...}}}, not in the URL"
        )
    if options:
        raise ArgumentError(
            f"{_shown(url)}: a web server takes the storage_options 'timeout', {', '.join(map(repr, _LIMITS))} and "
            f"'client_options', not {', '.join(map(repr, sorted(options)))}"
        )
    if scheme == "http":
        client.setdefault("allow_http", True)
    base = f"{scheme}://{parts.netloc}"
    shown = f"{base}/{root}" if root else base
    made = HttpStore(
        "HTTPStore",
        (base,),
        keywords,
        url=shown,
        prefix=normalize_path(root),
        read_only=read_only,
        timeout=timeout,
        limits=limits,
    )
    return made, node


def obstore_store(store: Any, *, read_only: bool = True) -> RemoteStore | LocalStore:
    """Return a store of gzarr over a store object of obstore, as it is.

    A local one becomes a :class:`LocalStore`. One that cannot be made anew from its arguments (a ``MemoryStore``) works
    in this process only.
    """
    kind = type(store).__name__
    prefix = getattr(store, "prefix", None)
    if kind == "LocalStore":
        return LocalStore(prefix or "/", read_only=read_only)
    try:
        arguments, keywords = store.__getnewargs_ex__()
    except (AttributeError, TypeError, ValueError):
        return GivenStore(kind, store, read_only=read_only)
    scheme = {"S3Store": "s3", "GCSStore": "gs", "AzureStore": "az"}.get(kind)
    if scheme is None:
        made = HttpStore if kind == "HTTPStore" else ObjectStore
        url = _shown(store.url) if kind == "HTTPStore" else kind
    else:
        made = ObjectStore
        config = keywords.get("config", {})
        url = f"{scheme}://{config.get('bucket') or config.get('container_name') or ''}"
    if prefix:
        url = f"{url}/{prefix}"
    return made(kind, arguments, keywords, url=url, read_only=read_only)


def allow_http(client: dict[str, Any], config: Mapping[str, Any]) -> None:
    """Allow plain HTTP if an endpoint says so: whoever writes ``http://`` means it."""
    variables = (value for name, value in os.environ.items() if name.startswith(("AWS_ENDPOINT", "AZURE_", "GOOGLE_")))
    if any(isinstance(value, str) and value.startswith("http://") for value in (*config.values(), *variables)):
        client.setdefault("allow_http", True)


def _client_options(given: Any, timeout: float) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise ArgumentError(f"storage_options['client_options'] must be a dict, not {type(given).__name__}")
    limits = {"timeout": timeout, "read_timeout": min(timeout, _STALL_S), "connect_timeout": min(timeout, _CONNECT_S)}
    usual: dict[str, Any] = {name: datetime.timedelta(seconds=value) for name, value in limits.items()}
    return {**usual, "user_agent": "gzarr", **given}


def _no_retries() -> dict[str, Any]:
    # Requests are sent again by gzarr, which also sees bodies that were cut.
    return {"max_retries": 0, "retry_timeout": datetime.timedelta(seconds=1)}


def _limits(options: dict[str, Any]) -> RequestLimits | None:
    """Take the options that limit requests out of all options; return None if there are none."""
    found = {}
    for name, field in _LIMITS.items():
        if name not in options:
            continue
        value = options.pop(name)
        least = 0 if name == "gap_bytes" else 1
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ArgumentError(f"storage_options[{name!r}] must be an integer of at least {least}, not {value!r}")
        found[field] = value
    return RequestLimits(**{"calls": io_thread_count(), **found}) if found else None


def _shown(url: str) -> str:
    """Return a URL for messages, without user name, password and query."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return repr(f"{parts.scheme}://{host}{parts.path}")
