"""Names of places in object stores, by which one finds out that two stores are the same."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Options and variables that say which server is meant.
_PLACE: Final = re.compile("endpoint|account_name|base_url")
_VARIABLE: Final = re.compile("(AWS|AZURE|GOOGLE)_")


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
    bucket = arguments[0] if arguments else config.get("bucket") or config.get("container_name")
    # The same bucket name means another bucket at another endpoint.
    given = {**{name: value for name, value in os.environ.items() if _VARIABLE.match(name)}, **config}
    places = sorted({str(value) for name, value in given.items() if _PLACE.search(name.lower())})
    path = "/".join(part.strip("/") for part in (keywords.get("prefix"), prefix) if part)
    return f"{kind} {places} {str(bucket).rstrip('/')}/{path}".rstrip("/")
