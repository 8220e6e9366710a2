"""Parameters of the codecs of numcodecs, as their documents state them: what is taken, and what is an error.

Documentation: https://numcodecs.readthedocs.io/en/stable/
"""

from __future__ import annotations

import codecs
import json
import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..documents.configuration import Configuration

#: Python's own names of the text encodings that ``json2`` may have, which have many others (``latin1``, ``U16``).
_TEXT_ENCODINGS: Final = (
    *("ascii", "utf-8", "iso8859-1", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"),
)
_ENCODING_NAME: Final = re.compile(r"[A-Za-z0-9_ .:-]{1,32}")


def _no_parameters(configuration: Configuration) -> dict[str, Any]:
    return {}


def _dtypes(configuration: Configuration) -> dict[str, Any]:
    result: dict[str, Any] = {"dtype": configuration.dtype("dtype")}
    if configuration.any("astype", None) is not None:
        result["astype"] = configuration.dtype("astype")
    return result


def _optional_dtypes(configuration: Configuration) -> dict[str, Any]:
    given = (name for name in ("dtype", "astype") if configuration.any(name, None) is not None)
    return {name: configuration.dtype(name) for name in given}


def _astype(configuration: Configuration) -> dict[str, Any]:
    result = {"encode_dtype": configuration.dtype("encode_dtype")}
    if configuration.any("decode_dtype", None) is not None:
        result["decode_dtype"] = configuration.dtype("decode_dtype")
    return result


def _fixedscaleoffset(configuration: Configuration) -> dict[str, Any]:
    numbers = {"offset": configuration.number("offset"), "scale": configuration.number("scale")}
    if not numbers["scale"]:
        raise configuration.error("scale", "a number other than 0")
    return {**numbers, **_optional_dtypes(configuration)}


def _quantize(configuration: Configuration) -> dict[str, Any]:
    return {"digits": configuration.integer("digits", -400, 400), **_optional_dtypes(configuration)}


def _bitround(configuration: Configuration) -> dict[str, Any]:
    return {"keepbits": configuration.integer("keepbits", 0, 52)}


def _checksum(configuration: Configuration) -> dict[str, Any]:
    if configuration.any("location", None) is None:
        return {}
    return {"location": configuration.string("location", ("start", "end"))}


def _jenkins(configuration: Configuration) -> dict[str, Any]:
    result: dict[str, Any] = {"initval": configuration.integer("initval", 0, 2**32 - 1, 0)}
    if configuration.any("prefix", None) is not None:
        # numcodecs itself gives an array of bytes.
        prefix = configuration.values["prefix"]
        if isinstance(prefix, bytes | np.ndarray):
            configuration.values["prefix"] = list(prefix) if isinstance(prefix, bytes) else prefix.tolist()
        result["prefix"] = list(configuration.integers("prefix", 0, 255))
    return result


def _categorize(configuration: Configuration) -> dict[str, Any]:
    labels = configuration.any("labels")
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise configuration.error("labels", "an array of strings")
    dtype = configuration.any("dtype")
    text = isinstance(dtype, str) and dtype[:2] in ("<U", ">U") and dtype[2:].isdecimal() and len(dtype) < 10
    if dtype != "|O" and not text:
        raise configuration.error("dtype", "'|O' or a text type such as '<U4'")
    return {"labels": labels, "dtype": dtype, "astype": configuration.dtype("astype", "|u1")}


def _text_encoding(configuration: Configuration) -> str:
    name = configuration.string("encoding", default="utf-8")
    try:
        known = _ENCODING_NAME.fullmatch(name) and codecs.lookup(name).name in _TEXT_ENCODINGS
    except LookupError:
        known = False
    if not known:
        raise configuration.error("encoding", f"one of {', '.join(map(repr, _TEXT_ENCODINGS))}")
    return name


def _json2(configuration: Configuration) -> dict[str, Any]:
    result: dict[str, Any] = {"encoding": _text_encoding(configuration)}
    names = ("skipkeys", "ensure_ascii", "check_circular", "allow_nan", "sort_keys", "strict")
    flags = {name: configuration.boolean(name) for name in names if name in configuration}
    indent = configuration.any("indent", None)
    separators = configuration.any("separators", None)
    # numcodecs itself gives a tuple.
    pair = isinstance(separators, list | tuple) and len(separators) == 2 and all(isinstance(s, str) for s in separators)
    if separators is not None and not pair:
        raise configuration.error("separators", "an array of two strings, or null")
    if indent is not None:
        result["indent"] = int(indent) if isinstance(indent, bool) else configuration.integer("indent", 0, 64)
    return {**result, **flags, **({} if separators is None else {"separators": list(separators)})}


def _msgpack2(configuration: Configuration) -> dict[str, Any]:
    names = ("use_single_float", "use_bin_type", "raw")
    return {name: configuration.boolean(name) for name in names if name in configuration}


def _pickle(configuration: Configuration) -> dict[str, Any]:
    return {"protocol": configuration.integer("protocol", -1, 5, 5)}


def _vlen_array(configuration: Configuration) -> dict[str, Any]:
    return {"dtype": configuration.dtype("dtype")}


def passed_on(configuration: Configuration) -> dict[str, Any]:
    """Return parameters as they are: of codecs that are not in :data:`PARAMETERS`."""
    values = {name: configuration.any(name) for name in configuration.values if name != "id"}
    for name, value in values.items():
        try:
            json.dumps(value)
        except (TypeError, ValueError):
            raise configuration.error(name, "what JSON can hold") from None
    return values


def arguments(name: str, configuration: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the parameters of a codec as numcodecs takes them, where these are not what JSON has."""
    if name == "jenkins_lookup3" and "prefix" in configuration:
        return {**configuration, "prefix": bytes(configuration["prefix"])}
    return configuration


#: What reads the parameters of a codec, by its ``id``.
PARAMETERS: Final = {
    "adler32": _checksum,
    "astype": _astype,
    "base64": _no_parameters,
    "bitround": _bitround,
    "categorize": _categorize,
    "crc32": _checksum,
    "crc32c": _checksum,
    "delta": _dtypes,
    "fixedscaleoffset": _fixedscaleoffset,
    "fletcher32": _no_parameters,
    "jenkins_lookup3": _jenkins,
    "json2": _json2,
    "msgpack2": _msgpack2,
    "packbits": _no_parameters,
    "pickle": _pickle,
    "quantize": _quantize,
    "vlen-array": _vlen_array,
    "vlen-bytes": _no_parameters,
    "vlen-utf8": _no_parameters,
}
