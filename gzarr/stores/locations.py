"""Names of places in object stores, by which one finds out that two stores are the same.

Two stores with equal names have the same values, for caches depend on that. So one place may have several names
(``localhost`` and ``127.0.0.1``, a bucket and the web server before it): only looking there shows that these are one
(:mod:`gzarr.stores.aliases`).

A server may send other values to who sends other headers, or asks by way of a proxy. So the name of a store is that of
its place, and a digest of these. Headers hold secrets, and the digest alone goes into names.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

#: Settings of obstore that say which place is meant, by its class, with the spellings of each: in small letters, as
#: capitals mean the same. With the cloud's name before them, they are names of variables of the environment, too.
_SPELLINGS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "S3Store": {
        "endpoint_url_s3": ("aws_endpoint_url_s3",),
        "endpoint": ("aws_endpoint", "aws_endpoint_url", "endpoint", "endpoint_url"),
        "region": ("aws_region", "region"),
        "default_region": ("aws_default_region", "default_region"),
        "virtual_hosted_style_request": ("aws_virtual_hosted_style_request", "virtual_hosted_style_request"),
    },
    "GCSStore": {
        "base_url": ("google_base_url", "base_url"),
        "service_account_key": ("google_service_account_key", "service_account_key"),
        "service_account": (
            "google_service_account",
            "google_service_account_path",
            "service_account",
            "service_account_path",
        ),
    },
    "AzureStore": {
        "endpoint": ("azure_storage_endpoint", "azure_endpoint", "endpoint"),
        "account_name": ("azure_storage_account_name", "account_name"),
        "use_emulator": ("azure_storage_use_emulator", "use_emulator"),
        "use_fabric_endpoint": ("azure_use_fabric_endpoint", "use_fabric_endpoint"),
    },
}
_SETTINGS: Final = {
    kind: {spelling: name for name, spellings in settings.items() for spelling in spellings}
    for kind, settings in _SPELLINGS.items()
}
#: Settings that name the server: the first one counts.
_ENDPOINTS: Final = {
    "S3Store": ("endpoint_url_s3", "endpoint"),
    "GCSStore": ("base_url",),
    "AzureStore": ("endpoint",),
}
#: How the variables begin that each class reads.
_PREFIXES: Final = {"S3Store": "AWS_", "GCSStore": "GOOGLE_", "AzureStore": "AZURE_"}
_PORTS: Final = {"http": 80, "https": 443}
#: Amazon's own endpoints, with the bucket before them or not, and their regions.
_AMAZON: Final = re.compile(r"s3(?:-accelerate|-fips)?(?:\.dualstack)?(?:[.-](?P<region>[a-z]+(?:-[a-z]+)+-\d))?")
#: Regions of Amazon whose buckets have names of their own.
_PARTITION: Final = re.compile(r"(cn|us-gov|us-isob?|eusc)-")
_MICROSOFT: Final = re.compile(r"https://(?P<account>[a-z0-9-]+)\.(?:blob|dfs)\.core\.windows\.net")
_GOOGLE: Final = "https://storage.googleapis.com"


def location_of(kind: str, arguments: Sequence[Any], keywords: Mapping[str, Any], prefix: str) -> str | None:
    """Return a text that names a place, the same in all processes, or None if there is none.

    Parameters
    ----------
    kind, arguments, keywords
        Class of obstore, and its arguments.
    prefix
        Path of the root within the bucket.
    """
    if kind not in ("S3Store", "GCSStore", "AzureStore", "HTTPStore"):
        return None
    config = keywords.get("config", {})
    bucket = str(arguments[0] if arguments else config.get("bucket") or config.get("container_name"))
    path = "/".join(part.strip("/") for part in (keywords.get("prefix"), prefix) if part)
    if kind == "HTTPStore":
        return f"{kind} {_address(bucket)}/{path}".rstrip("/")
    # The same bucket name means another bucket at another endpoint.
    return f"{kind} {_SERVERS[kind](_settings(kind, config), bucket)} {bucket}/{path}".rstrip("/")


def client_of(keywords: Mapping[str, Any]) -> str:
    """Return a text that tells apart clients to which a server may send other values; empty for a usual one.

    Parameters
    ----------
    keywords
        Arguments of a class of obstore.
    """
    options = {str(name).lower(): value for name, value in (keywords.get("client_options") or {}).items()}
    headers = {_bytes(name).lower(): _bytes(value) for name, value in (options.get("default_headers") or {}).items()}
    proxy = options.get("proxy_url")
    if not headers and not proxy:
        return ""
    parts = (sorted(headers.items()), None if not proxy else _bytes(proxy))
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()


def _bytes(text: Any) -> bytes:
    return text if isinstance(text, bytes) else str(text).encode(errors="surrogatepass")


def _address(url: str) -> str:
    """Return the address of a server in one of its spellings, without a password; what is no URL as it is."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return url.rstrip("/")
    if not host:
        return url.rstrip("/")
    user = "" if parts.username is None else f"{parts.username}@"
    shown = f"[{host}]" if ":" in host else host.rstrip(".")
    number = "" if port is None or port == _PORTS.get(parts.scheme) else f":{port}"
    query = f"?{parts.query}" if parts.query else ""
    return f"{parts.scheme}://{user}{shown}{number}{parts.path.rstrip('/')}{query}"


def endpoint_variable(kind: str, config: Mapping[str, Any]) -> str | None:
    """Return the name of the environment variable that names the server, or None if an option or nothing does.

    Parameters
    ----------
    kind, config
        Class of obstore, and the options of its configuration.
    """
    options, variables = _given(kind, config), _variables(kind)
    for setting in _ENDPOINTS[kind]:
        if setting in options:
            return None
        if setting in variables:
            return variables[setting]
    return None


def names_endpoint(kind: str, config: Mapping[str, Any]) -> bool:
    """Return whether an option or an environment variable names the server; see :func:`endpoint_variable`."""
    settings = _settings(kind, config)
    return any(setting in settings for setting in _ENDPOINTS[kind])


def _variables(kind: str) -> dict[str, str]:
    """Return the names of the variables that a class reads, by setting: of several, it takes the last one."""
    settings, prefix = _SETTINGS[kind], _PREFIXES[kind]
    names = ((settings.get(name.lower()), name) for name in os.environ if name.startswith(prefix))
    return {setting: name for setting, name in names if setting is not None}


def _given(kind: str, config: Mapping[str, Any]) -> dict[str, str]:
    """Return the options of a configuration by setting."""
    options = ((_SETTINGS[kind].get(str(name).lower()), value) for name, value in config.items() if value is not None)
    return {setting: str(value) for setting, value in options if setting is not None}


def _settings(kind: str, config: Mapping[str, Any]) -> dict[str, str]:
    """Return what counts of each setting: an option, or else a variable."""
    variables = {setting: os.environ[name] for setting, name in _variables(kind).items()}
    settings = variables | _given(kind, config)
    if "default_region" in variables:
        # The first default stays.
        settings["default_region"] = variables["default_region"]
    return settings


def _endpoint(kind: str, settings: Mapping[str, str]) -> str:
    return _address(next((settings[name] for name in _ENDPOINTS[kind] if name in settings), ""))


def _is_on(settings: Mapping[str, str], name: str) -> bool:
    return settings.get(name, "").lower() in ("true", "1", "yes", "on", "y")


def _of_s3(settings: Mapping[str, str], bucket: str) -> str:
    endpoint = _endpoint("S3Store", settings)
    scheme, separator, host = endpoint.partition("://")
    if endpoint and _is_on(settings, "virtual_hosted_style_request"):
        if not host.startswith(f"{bucket}."):
            # No request names the bucket: the server has its own.
            return f"{endpoint} itself"
        host = host.removeprefix(f"{bucket}.")
    known = _AMAZON.fullmatch(host.removesuffix(".amazonaws.com")) if host.endswith(".amazonaws.com") else None
    if not endpoint or known is not None:
        region = settings.get("region") or settings.get("default_region") if known is None else known["region"]
        partition = _PARTITION.match(region or "")
        # All other regions share their buckets.
        return "" if partition is None else partition[1]
    return scheme + separator + host


def _of_gcs(settings: Mapping[str, str], bucket: str) -> str:
    # The key of an emulator may name its server.
    endpoint = _endpoint("GCSStore", settings) or _address(_server_of_key(settings))
    return "" if endpoint == _GOOGLE else endpoint


def _server_of_key(settings: Mapping[str, str]) -> str:
    key, path = settings.get("service_account_key"), settings.get("service_account", os.environ.get("SERVICE_ACCOUNT"))
    try:
        found = json.loads(Path(path).read_bytes() if key is None and path else key or "{}")
        return str(found.get("gcs_base_url") or "")
    # It is no key: obstore says so.
    except (OSError, ValueError, AttributeError, RecursionError):
        return ""


def _of_azure(settings: Mapping[str, str], bucket: str) -> str:
    endpoint, account = _endpoint("AzureStore", settings), settings.get("account_name", "").lower()
    if _is_on(settings, "use_emulator"):
        # It is asked whatever the endpoint is.
        return f"emulator {_address(os.environ.get('AZURITE_BLOB_STORAGE_URL', ''))} {account}"
    usual = _MICROSOFT.fullmatch(endpoint)
    if usual is not None:
        endpoint, account = "", usual["account"]
    fabric = "use_fabric_endpoint" if _is_on(settings, "use_fabric_endpoint") else ""
    return " ".join(part for part in (endpoint, account, fabric) if part)


_SERVERS: Final[Mapping[str, Callable[[Mapping[str, str], str], str]]] = {
    "S3Store": _of_s3,
    "GCSStore": _of_gcs,
    "AzureStore": _of_azure,
}
