"""From a URL to a remote store.

``s3://BUCKET/ROOT``, ``gs://BUCKET/ROOT``, ``az://CONTAINER/ROOT``, ``abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/ROOT``
and ``https://HOST/ROOT``; ``#NODE`` at the end names a node below the root.
"""

from __future__ import annotations

import datetime
import json
import os
import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

from .. import ending
from ..documents.json import quote
from ..errors import ArgumentError, StoreError
from ..integers import as_integer
from . import aws_profiles, redaction
from .base import RequestLimits
from .http_store import HttpStore
from .io_threads import io_thread_count
from .keys import is_document, normalize_path, unquoted
from .local import LocalStore
from .locations import endpoint_variable, names_endpoint
from .object_store import GivenStore, ObjectStore
from .remote_store import ANSWER_TIME, DEFAULT_TIMEOUT_S, STALL_S, RemoteStore
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
#: Names of options in s3fs, gcsfs, adlfs and boto3, and their names here.
_OTHER_NAMES: Final = {
    "anon": "skip_signature",
    "endpoint_url": "endpoint",
    "key": "access_key_id",
    "secret": "secret_access_key",
    "region_name": "region",
    "profile_name": "profile",
    "requester_pays": "request_payer",
}
#: What to do instead of giving some options of theirs, which mean nothing here or something else.
_ADVICE: Final = {
    "client_kwargs": "its endpoint_url and region_name are understood; give what else it has as options of obstore",
    "config_kwargs": "give concurrency, timeout or client_options={'connect_timeout': '5s', ...}",
    "use_ssl": "an endpoint that begins with http:// or https:// says it",
    "verify": "give client_options={'allow_invalid_certificates': True}",
    "default_block_size": "gap_bytes and request_bytes say which ranges are asked for",
    "default_fill_cache": "gzarr keeps no ranges; gzarr.CachedStore keeps values on disk",
    "default_cache_type": "gzarr keeps no ranges; gzarr.CachedStore keeps values on disk",
    "asynchronous": "leave it out: there is no event loop",
    "loop": "leave it out: there is no event loop",
    "session": "give credential_provider, profile, or keys",
    "project": "leave it out: it is not needed to read and write objects",
    "connection_string": "give account_name and account_key, or sas_token",
    "credential": "give account_key, sas_token or credential_provider",
}
#: Options of Google Cloud Storage that are paths of keys, of which people give the key itself, too.
_KEY_FILES: Final = frozenset(
    {
        f"{cloud}{name}"
        for cloud in ("", "google_")
        for name in ("service_account", "service_account_path", "service_account_key", "application_credentials")
    }
)
_TOKEN: Final = re.compile(r"[A-Za-z0-9_~+/=.-]+", re.ASCII)
#: Options that are URLs of servers, of which obstore says nothing that helps, or fails at the first request.
_ADDRESSES: Final = re.compile(
    r"(?:(?:aws|azure|azure_storage|google)_)?"
    r"(?:endpoint|endpoint_url|endpoint_url_s3|metadata_endpoint|msi_endpoint|identity_endpoint|base_url|authority_host|"
    r"container_credentials_full_uri|fabric_token_service_url|proxy_url)"
)
#: Options that are arguments of obstore's classes, not entries of their configuration.
_ARGUMENTS: Final = frozenset({"client_options", "credential_provider"})
#: Options that limit requests, and the attributes of :class:`gzarr.stores.base.RequestLimits`.
_LIMITS: Final = {"concurrency": "calls", "gap_bytes": "gap_bytes", "request_bytes": "most_bytes"}
# Longest time without a connection, in seconds.
_CONNECT_S: Final = 5.0


def _our_options(given: Mapping[Any, Any], scheme: str) -> dict[str, Any]:
    """Return options by their names here.

    Raises
    ------
    ArgumentError
        If one has no meaning here; it says what has.
    """
    given = dict(given)
    if wrong := [name for name in given if not isinstance(name, str)]:
        raise ArgumentError(f"the names of storage_options are strings, not {quote(wrong[0])}")
    nested = given.pop("client_kwargs", None)
    if nested is not None:
        if not isinstance(nested, dict) or set(nested) - {"endpoint_url", "region_name"}:
            raise ArgumentError(f"storage_options['client_kwargs'] is one of s3fs: {_ADVICE['client_kwargs']}")
        given = {**nested, **given}
    options: dict[Any, Any] = {}
    for name, value in given.items():
        if name in _ADVICE:
            raise ArgumentError(f"storage_options[{name!r}] means nothing here: {_ADVICE[name]}")
        ours = _OTHER_NAMES.get(name, name)
        if name == "token" and scheme in ("s3", "s3a"):
            ours = "session_token"
        elif name == "token" and scheme in ("gs", "gcs"):
            ours, value = _of_gcsfs(value)
        elif ours in _KEY_FILES and scheme in ("gs", "gcs") and _is_json(value):
            ours, value = "service_account_key", _json(value)
        if ours in options and options[ours] != value:
            raise ArgumentError(f"storage_options has {ours!r} twice, under two names")
        options[ours] = value
    return options


def _is_json(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, str) and value.lstrip().startswith("{"))


def _json(value: Any) -> str:
    try:
        return value if isinstance(value, str) else json.dumps(value)
    except (TypeError, ValueError):
        # What it says may have parts of the key in it.
        raise ArgumentError("a service account's key in storage_options is no JSON") from None


def _of_gcsfs(token: Any) -> tuple[str, Any]:
    """Return the option that stands for gcsfs's token: ``"anon"``, a key as JSON, its path, or an OAuth token."""
    if token == "anon":
        return "skip_signature", True
    if _is_json(token):
        return "service_account_key", _json(token)
    if isinstance(token, str) and token not in ("google_default", "cache", "cloud", "browser"):
        if token.endswith(".json") or token.startswith(("/", "~", "./", "../")) or os.path.isfile(token):  # noqa: PTH113
            return "service_account_path", os.path.expanduser(token)  # noqa: PTH111
        if _TOKEN.fullmatch(token):
            return "bearer_token", token
    # It is not shown: it may be a token.
    raise ArgumentError(
        "storage_options['token'] of gcsfs is understood if it is 'anon', an OAuth token, the path of a key, or its "
        "JSON; application default credentials are found without it"
    )


def node_of(fragment: str) -> str:
    """Return the path of the node that a URL's fragment names: what follows ``#``, with percent-encodings undone.

    Raises
    ------
    ArgumentError
        If a node cannot have that path, or the percent-encodings are not UTF-8.
    """
    return normalize_path(unquoted(fragment))


def check_folder(url: str, shown: str) -> None:
    """Refuse the URL of a metadata document.

    Parameters
    ----------
    url, shown
        URL without its fragment, and what messages show of it.

    Raises
    ------
    ArgumentError
        If it is one.
    """
    name = unquote(url).rstrip("/").rpartition("/")[2]
    if is_document(name):
        folder = shown.rstrip("/").rpartition("/")[0]
        raise ArgumentError(f"{shown!r} is the URL of a metadata document; pass the folder that holds it: {folder!r}")


def _check_addresses(options: Mapping[str, Any], where: str) -> None:
    """Refuse options that should be URLs of servers and are none. They are not shown: they may have passwords."""
    for name, value in options.items():
        if not _ADDRESSES.fullmatch(str(name).lower()) or value is None:
            continue
        text = value if isinstance(value, str) else ""
        if str(name).lower() == "proxy_url" and re.fullmatch(r"[^\s/]+:\d+", text):
            # Proxies are understood so, too; others without a scheme would be passed by.
            text = f"http://{text}"
        try:
            parts = urlsplit(text)
            valid = parts.scheme in ("http", "https") and bool(parts.hostname) and not re.search(r"\s", text)
            _ = parts.port
        except ValueError:
            valid = False
        if not valid:
            raise ArgumentError(
                f"{where.format(name)} must be the URL of a server, beginning with http:// or https://, such as "
                "'https://HOST' or 'http://HOST:PORT'"
            )


def split(url: str) -> SplitResult:
    """Return the parts of a URL.

    Raises
    ------
    ArgumentError
        If there is no host or port where one has to be.
    """
    try:
        parts = urlsplit(url)
        # Raises an error if it is not a number.
        _ = parts.port
    except ValueError:
        # Shown is nothing of it: what stands for a port may be a password.
        scheme = url.partition(":")[0].lower()
        raise ArgumentError(
            f"a URL of the scheme {scheme!r} has no valid host or port: an IPv6 address stands in brackets, a port is "
            "a number, and passwords are passed in storage_options"
        ) from None
    return parts


def remote_store(
    url: str, *, read_only: bool = True, storage_options: Mapping[str, Any] | None = None, query: str = ""
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
    query
        What the URL of each value of a web server has after ``?``: the store is there for one value, whose URL is
        signed.

    Raises
    ------
    ArgumentError
        If the URL or an option is invalid, or obstore is not installed.
    StoreError
        If the interpreter shuts down.
    """
    if ending.is_alone():
        # Before a timedelta is made, which ends Python 3.13.0 then.
        raise StoreError(ending.NO_THREADS)
    parts = split(url)
    scheme = parts.scheme.lower()
    options = _our_options(storage_options or {}, scheme)
    timeout = seconds(options.pop("timeout", DEFAULT_TIMEOUT_S), "storage_options['timeout']")
    limits = _limits(options)
    if parts.query:
        raise ArgumentError(
            f"{_shown(url)!r}: a URL with a query ('?...') names one object, not the root of a hierarchy; pass tokens "
            "in storage_options; if the object is a zip archive, write 'zip::URL'"
        )
    if not parts.hostname:
        raise ArgumentError(f"{redaction.named(url)} names no bucket or host; write {scheme}://NAME/PATH")
    node = node_of(parts.fragment)
    check_folder(parts.path, _shown(url))
    client = _client_options(options.pop("client_options", {}), timeout)
    _check_addresses(client, "storage_options['client_options'][{!r}]")
    _check_addresses(options, "storage_options[{!r}]")
    keywords: dict[str, Any] = {"client_options": client, "retry_config": _no_retries()}
    if options.get("credential_provider") is not None:
        keywords["credential_provider"] = options.pop("credential_provider")
    root = unquoted(parts.path).strip("/")
    if scheme in _CLOUDS:
        kind, name = _CLOUDS[scheme]
        if kind == "S3Store" and "credential_provider" not in keywords:
            profile = aws_profiles.find(options, options.pop("profile", None))
            if profile is not None:
                keywords["credential_provider"] = profile
                if "AWS_REGION" not in os.environ and "AWS_DEFAULT_REGION" not in os.environ:
                    options.setdefault("region", profile.region())
                endpoint = None if names_endpoint(kind, options) else profile.endpoint()
                if endpoint is not None:
                    _check_addresses({"endpoint_url": endpoint}, "the profile's {}")
                    options["endpoint"] = endpoint
        container = parts.netloc.rpartition("@")[0] or parts.netloc
        if "@" in parts.netloc:
            if kind != "AzureStore":
                raise ArgumentError(
                    f"{_shown(url)!r}: pass user names and passwords in storage_options, not in the URL"
                )
            options.setdefault("account_name", parts.hostname.partition(".")[0])
        if ":" in container:
            # What is behind the colon may be a password.
            raise ArgumentError(
                f"the name of a bucket or container in a URL of the scheme {scheme!r} has a ':'; write "
                f"{scheme}://NAME/PATH, and pass user names, passwords and endpoints in storage_options"
            )
        config = {name: container, **{key: value for key, value in options.items() if value is not None}}
        variable = endpoint_variable(kind, config)
        if variable is not None:
            _check_addresses({variable: os.environ[variable]}, "the environment variable {}")
        allow_http(client, config)
        keywords["config"] = config
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
            f"{_shown(url)!r}: pass user names and passwords as storage_options={{'client_options': "
            "{'default_headers': {'Authorization': ...}}}, not in the URL"
        )
    if options:
        raise ArgumentError(
            f"{_shown(url)!r}: a web server takes the storage_options 'timeout', {', '.join(map(repr, _LIMITS))} and "
            f"'client_options', not {', '.join(map(repr, sorted(options)))}"
        )
    if "%2f" in parts.path.lower():
        raise ArgumentError(
            f"{_shown(url)!r}: obstore would ask for '/' in place of '%2F' in the path; open it by fsspec, as "
            f"'fsspec+{_shown(url)}'"
        )
    if scheme == "http":
        client.setdefault("allow_http", True)
    base = f"{scheme}://{parts.netloc}"
    shown = f"{base}/{root}" if root else base
    made = HttpStore(
        "HTTPStore",
        # obstore adds paths to the path, and leaves the query as it is.
        (f"{base}?{query}" if query else base,),
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
    if any(isinstance(value, str) and value.lower().startswith("http://") for value in (*config.values(), *variables)):
        client.setdefault("allow_http", True)


def _client_options(given: Any, timeout: float) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise ArgumentError(f"storage_options['client_options'] must be a dict, not {type(given).__name__}")
    limits = {"read_timeout": min(timeout, STALL_S), "connect_timeout": min(timeout, _CONNECT_S)}
    usual: dict[str, Any] = {name: datetime.timedelta(seconds=value) for name, value in limits.items()}
    # Not the time-out: what arrives steadily has not failed, however slow the line is.
    return {**usual, "timeout": ANSWER_TIME, "user_agent": "gzarr", **given}


def _no_retries() -> dict[str, Any]:
    # Requests are sent again by gzarr, which also sees bodies that were cut.
    return {"max_retries": 0, "retry_timeout": datetime.timedelta(seconds=1)}


def _limits(options: dict[str, Any]) -> RequestLimits | None:
    """Take the options that limit requests out of all options; return None if there are none."""
    found: dict[str, Any] = {}
    for name, field in _LIMITS.items():
        if name not in options:
            continue
        value = options.pop(name)
        least = 0 if name == "gap_bytes" else 1
        number = as_integer(value)
        if number is None or number < least:
            raise ArgumentError(f"storage_options[{name!r}] must be an integer of at least {least}, not {quote(value)}")
        found[field] = number
    return RequestLimits(**{"calls": io_thread_count(), **found}) if found else None


def _shown(url: str) -> str:
    """Return a URL for messages, without user name, password and query."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"
