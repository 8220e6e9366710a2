"""Named extensions in Zarr v3 documents: codecs, data types and the like.

Source: https://zarr-specs.readthedocs.io/en/latest/v3/core/index.html#extension-definition
"""

from __future__ import annotations

from typing import Any

from ..errors import MetadataError
from . import departures
from .json import quote


def extension(value: Any, json_path: str, what: str) -> tuple[str, dict[str, Any]]:
    """Parse a v3 extension: a name, or an object with ``name``, ``configuration`` and ``must_understand``.

    Parameters
    ----------
    value
        Parsed JSON.
    json_path
        Location in the document, for messages.
    what
        Kind of extension expected, for messages: ``"a codec"``.

    Returns
    -------
    Name and configuration.

    Raises
    ------
    MetadataError
        If it is malformed.
    """
    if isinstance(value, str):
        return value, {}
    if not isinstance(value, dict):
        raise MetadataError(
            f"expected {what}: a name, or an object with a name; got {quote(value)}", json_path=json_path
        )
    name = value.get("name")
    if name is None and isinstance(value.get("type"), str):
        departures.note('"type" in place of "name", as in an example of the draft of 2023', json_path)
        name = value["type"]
        value = {key: item for key, item in value.items() if key != "type"}
    if not isinstance(name, str):
        raise MetadataError(f'{what} needs a "name", got {quote(value)}', json_path=f"{json_path}.name")
    configuration = value.get("configuration", {})
    if not isinstance(configuration, dict):
        raise MetadataError(f"expected an object, got {quote(configuration)}", json_path=f"{json_path}.configuration")
    if not isinstance(value.get("must_understand", True), bool):
        raise MetadataError("expected true or false", json_path=f"{json_path}.must_understand")
    for key in value:
        if key not in ("name", "configuration", "must_understand"):
            raise MetadataError(f"{what} has an unknown member {quote(key)}", json_path=json_path)
    return name, configuration
