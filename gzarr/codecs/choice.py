"""The codecs of a new array, from what its maker says of them.

Where that is nothing: Blosc containers with lz4 and a byte shuffle for elements of several bytes, because nothing that
compresses was read faster on the CPU (``benchmarks/read.py``, the ``blosc-lz4`` workloads against those of zstd and
gzip), and because its blocks are many independent streams, which is what a GPU needs. Elements of one byte have nothing
to shuffle, and lz4 alone finds little in images: they get zstd, and so do texts.

A level that the maker gives is a level: each chunk is encoded as the library does it at this level. Where none is given
(``codecs="auto"``, ``"zstd"``, an object without its level), the default goes into the document, which has to name one,
and how hard writes search is left to gzarr (:mod:`gzarr.engines.cpu.effort`). Documents do not record that: it would
take a member of their own, which some readers refuse, and others lose when they change the document. So it holds for
the array that was made, and for its pickles. An array that is opened has the level of its document, as if it had been
given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ..documents.json import quote
from ..dtypes.properties import swap_unit
from ..errors import ArgumentError, MetadataError
from .blosc import BloscCodec
from .bytes import BytesCodec
from .codec import Codec
from .numcodecs_adapter import OBJECT_CODECS, NumcodecsArrayToBytes
from .registry import codec_from_v2, codec_from_v3
from .shuffle import ShuffleCodec
from .zstd import ZstdCodec

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

AUTO: Final = "auto"
_ZSTD_LEVEL: Final = 3
#: How codecs call what says how hard they compress.
_LEVELS: Final = frozenset({"level", "clevel", "acceleration"})
# What a codec that is only named is configured with.
_DEFAULTS: Final[dict[str, dict[str, Any]]] = {
    "bytes": {"endian": "little"},
    "zstd": {"level": _ZSTD_LEVEL},
    "gzip": {"level": 5},
    "blosc": {"cname": "lz4", "clevel": 5, "shuffle": "shuffle"},
}


def choose(
    dtype: np.dtype[Any],
    text: str | None,
    *,
    codecs: Any = AUTO,
    filters: Any = AUTO,
    serializer: Any = AUTO,
    compressors: Any = AUTO,
    big: bool = False,
    blosc_only: bool = False,
) -> tuple[Codec, ...]:
    """Return the chain of a chunk.

    Parameters
    ----------
    dtype
        Of the array, in native byte order.
    text
        ``"vlen-utf8"`` or ``"vlen-bytes"`` for texts of any length, else None.
    codecs
        The whole chain, or what comes after the array→bytes codec; ``"auto"`` if it is said by the others.
    filters, serializer, compressors
        The chain in three parts, each ``"auto"``, None, a codec or a sequence of codecs.
    big
        Whether elements are stored big-endian, where ``serializer`` leaves that open.
    blosc_only
        Whether the format has no zstd but that in Blosc's containers.

    Raises
    ------
    ArgumentError
        If something is no codec, or ``codecs`` and one of the parts are given.
    """
    maker: Codec = BytesCodec(None if swap_unit(dtype) == 1 else "big" if big else "little")
    if text is not None:
        maker = NumcodecsArrayToBytes(text, {})
    if not _is_auto(codecs):
        for name, value in (("filters", filters), ("serializer", serializer), ("compressors", compressors)):
            if not _is_auto(value):
                raise ArgumentError(f"give either codecs=, the whole chain, or {name}=, a part of it")
        chain = as_codecs(codecs, dtype, "codecs")
        if any(codec.kind == "array_to_bytes" for codec in chain):
            return chain
        front = sum(codec.kind == "array_to_array" for codec in chain)
        return (*chain[:front], maker, *chain[front:])
    given = () if _is_auto(serializer) else as_codecs(serializer, dtype, "serializer")
    before = () if _is_auto(filters) else as_codecs(filters, dtype, "filters")
    behind = (
        automatic(dtype, blosc_only=blosc_only)
        if _is_auto(compressors)
        else as_codecs(compressors, dtype, "compressors")
    )
    if len(given) > 1 or any(codec.kind != "array_to_bytes" for codec in given):
        raise ArgumentError(f"serializer= is one array→bytes codec such as 'bytes', not {quote(serializer)}")
    # In version 2, filters are of bytes, except those of objects.
    makers = [codec for codec in before if codec.kind == "array_to_bytes"]
    if len(makers) + len(given) > 1:
        raise ArgumentError("a chain has one array→bytes codec; filters= and serializer= name several")
    arrays = [codec for codec in before if codec.kind == "array_to_array"]
    rest = [codec for codec in before if codec.kind == "bytes_to_bytes"]
    return (*arrays, *(given or makers or (maker,)), *rest, *behind)


def automatic(dtype: np.dtype[Any], *, blosc_only: bool = False) -> tuple[Codec, ...]:
    """Return the compressor that the module's docstring argues for."""
    if dtype.hasobject or dtype.itemsize == 1:
        if blosc_only:
            return (BloscCodec("zstd", _ZSTD_LEVEL, "noshuffle", 1),)
        return (ZstdCodec(_ZSTD_LEVEL),)
    return (BloscCodec("lz4", 5, "shuffle", dtype.itemsize),)


def as_codecs(value: Any, dtype: np.dtype[Any], what: str) -> tuple[Codec, ...]:
    """Return the codecs that a caller gave.

    Parameters
    ----------
    value
        None, one codec, or a sequence of codecs. A codec is gzarr's own (of ``array.codecs``), a name, a v3 object
        (``{"name": …, "configuration": …}``), numcodecs' (``{"id": …}``), or an object of zarr-python or numcodecs.
    dtype
        Of the array; Blosc takes its element size where none is said.
    what
        The argument, for messages.

    Raises
    ------
    ArgumentError
        If it is none of these, or is configured wrongly.
    """
    if value is None:
        return ()
    values: Sequence[Any] = value if isinstance(value, list | tuple) else [value]
    return tuple(_as_codec(item, dtype, f"{what}[{i}]") for i, item in enumerate(values))


def _as_codec(value: Any, dtype: np.dtype[Any], what: str) -> Codec:
    if isinstance(value, Codec):
        codec = value
    else:
        document = value
        if hasattr(value, "get_config"):
            document = value.get_config()
        elif hasattr(value, "to_dict"):
            document = value.to_dict()
        elif isinstance(value, str):
            document = {"name": value}
        if not isinstance(document, dict):
            raise ArgumentError(f"{what} is a codec's name or JSON object, or a codec of a library, not {quote(value)}")
        try:
            if "id" in document:
                objects = isinstance(document["id"], str) and document["id"] in OBJECT_CODECS
                codec = codec_from_v2(document, "$", first=objects, objects=objects)
                if isinstance(codec, ShuffleCodec):
                    # New documents say what those of version 2 may leave open.
                    codec = codec.with_itemsize(dtype.itemsize)
            else:
                codec = codec_from_v3(_configured(document, dtype), "$")
        except MetadataError as error:
            raise ArgumentError(f"{what}: {error.message}") from None
    if isinstance(codec, BloscCodec) and (codec.typesize is None or codec.shuffle is None):
        return codec.with_itemsize(dtype.itemsize)
    return codec


def _configured(document: dict[str, Any], dtype: np.dtype[Any]) -> dict[str, Any]:
    """Return a v3 object, configured by default where it is only a name."""
    name = document.get("name")
    defaults = _DEFAULTS.get(name, {}) if isinstance(name, str) else {}
    if name == "blosc":
        defaults = {**defaults, "typesize": dtype.itemsize}
    if name == "bytes" and swap_unit(dtype) == 1:
        defaults = {}
    configuration = document.get("configuration") or {}
    if not isinstance(configuration, dict):
        return document
    merged = {**defaults, **configuration}
    if name == "blosc" and merged["typesize"] is None:
        merged["typesize"] = dtype.itemsize
    return {**document, "configuration": merged} if merged else document


def gives_level(*values: Any) -> bool:
    """Whether codecs that a caller gave, each as for :func:`as_codecs` or ``"auto"``, say how hard to compress."""
    return any(_has_level(item) for value in values for item in (value if isinstance(value, list | tuple) else [value]))


def _has_level(value: Any) -> bool:
    """Whether a codec, or one in its chain, gives a level. Codecs that are objects always do, if they have levels."""
    for method in ("to_json", "get_config", "to_dict"):
        if hasattr(value, method):
            value = getattr(value, method)()
            break
    if isinstance(value, list | tuple):
        return any(map(_has_level, value))
    return isinstance(value, dict) and (not _LEVELS.isdisjoint(value) or any(map(_has_level, value.values())))


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == AUTO
