"""Names of places in object stores, by which one finds out that two stores are the same.

Two stores with equal names have the same values, for caches depend on that. So one place may have several names
(``localhost`` and ``127.0.0.1``, a bucket and the web server before it): only looking there shows that these are one
(:mod:`gzarr.tools.copy_apart`).
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

#: Options and variables that say which server is meant, by their names without the cloud's: the first one counts.
_ENDPOINTS: Final = {
    "S3Store": ("endpoint_url_s3", "endpoint", "endpoint_url"),
    "GCSStore": ("base_url",),
    "AzureStore": ("endpoint",),
}
_CLOUD: Final = re.compile("(aws|azure_storage|azure|google)_")
_VARIABLE: Final = re.compile("(AWS|AZURE|GOOGLE)_")
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
    return f"{kind} {_SERVERS[kind](_options(config), bucket)} {bucket}/{path}".rstrip("/")


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


def _options(config: Mapping[str, Any]) -> dict[str, str]:
    """Return options, and variables of the environment for those that are missing, by names without the cloud's."""
    variables = {name: value for name, value in os.environ.items() if _VARIABLE.match(name)}
    found: dict[str, str] = {}
    for given in (variables, config):
        found |= {_CLOUD.sub("", str(name).lower(), count=1): str(value) for name, value in given.items()}
    return found


def _endpoint(kind: str, options: Mapping[str, str]) -> str:
    given = (options.get(name) for name in _ENDPOINTS[kind])
    return _address(next((one for one in given if one), ""))


def _is_on(options: Mapping[str, str], name: str) -> bool:
    return options.get(name, "").lower() in ("true", "1", "yes", "on", "y")


def _of_s3(options: Mapping[str, str], bucket: str) -> str:
    endpoint = _endpoint("S3Store", options)
    scheme, separator, host = endpoint.partition("://")
    amazon = host.removeprefix(f"{bucket}.").removesuffix(".amazonaws.com")
    known = _AMAZON.fullmatch(amazon) if host.endswith(".amazonaws.com") else None
    if not endpoint or known is not None:
        region = options.get("region") or options.get("default_region") if known is None else known["region"]
        partition = _PARTITION.match(region or "")
        # All other regions share their buckets.
        return "" if partition is None else partition[1]
    if _is_on(options, "virtual_hosted_style_request"):
        host = host.removeprefix(f"{bucket}.")
    return scheme + separator + host


def _of_gcs(options: Mapping[str, str], bucket: str) -> str:
    return _endpoint("GCSStore", options).removeprefix(_GOOGLE)


def _of_azure(options: Mapping[str, str], bucket: str) -> str:
    endpoint, account = _endpoint("AzureStore", options), options.get("account_name", "").lower()
    usual = _MICROSOFT.fullmatch(endpoint)
    if usual is not None:
        endpoint, account = "", usual["account"]
    others = (name for name in ("use_emulator", "use_fabric_endpoint") if _is_on(options, name))
    return " ".join(part for part in (endpoint, account, *others) if part)


_SERVERS: Final[Mapping[str, Callable[[Mapping[str, str], str], str]]] = {
    "S3Store": _of_s3,
    "GCSStore": _of_gcs,
    "AzureStore": _of_azure,
}
