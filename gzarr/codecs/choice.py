"""The codecs of a new array, from the arguments of its creation.

By default, elements of several bytes get Blosc containers with lz4 and a byte shuffle: no other compressor gave faster
reads on the CPU (``benchmarks/read.py``, the ``blosc-lz4`` workloads against those of zstd and gzip), and its blocks
are many independent streams, which suits a GPU. Elements of one byte have nothing to shuffle, and lz4 alone compresses
images poorly: they get zstd, and so do strings.

A level given by the caller is binding: each chunk is encoded as the library does at that level. If none is given
(``codecs="auto"``, ``"zstd"``, an object without a level), the document gets the default, because it has to name one,
and gzarr decides how hard writes compress (:mod:`gzarr.engines.cpu.effort`). Documents do not record that freedom: it
would need an extra member, which some readers refuse and others drop when they rewrite the document. So it applies to
the new array object and its pickles. An opened array has the level of its document, as if the caller had given it.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final

from ..documents.json import quote
from ..dtypes.properties import swap_unit
from ..errors import ArgumentError, MetadataError, UnsupportedError
from .blosc import BloscCodec
from .bytes import BytesCodec
from .codec import Codec
from .numcodecs_adapter import OBJECT_CODECS, NumcodecsArrayToBytes, NumcodecsBytesToBytes, NumcodecsCodec, is_known
from .registry import codec_from_v2, codec_from_v3
from .reshape import ReshapeCodec
from .sharding import ShardingIndexed
from .shuffle import ShuffleCodec
from .transpose import TransposeCodec
from .zstd import ZstdCodec

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

AUTO: Final = "auto"
_ZSTD_LEVEL: Final = 3
#: Names that codecs use for their compression level.
_LEVELS: Final = frozenset({"level", "clevel", "acceleration"})
# Configurations of codecs given by name only.
_DEFAULTS: Final[dict[str, dict[str, Any]]] = {
    "bytes": {"endian": "little"},
    "zstd": {"level": _ZSTD_LEVEL},
    "gzip": {"level": 5},
    "blosc": {"cname": "lz4", "clevel": 5, "shuffle": "shuffle"},
}


class SourceCodecs(tuple[Codec, ...]):
    """The codecs of a source, for its copy: also those that cannot write, for it may take the chunks as they are."""

    __slots__ = ()


def choose(  # noqa: PLR0913
    dtype: np.dtype[Any],
    text: str | None,
    *,
    codecs: Any = AUTO,
    filters: Any = AUTO,
    serializer: Any = AUTO,
    compressors: Any = AUTO,
    big: bool = False,
    blosc_only: bool = False,
    ids: bool = True,
    stored: np.dtype[Any] | None = None,
) -> tuple[Codec, ...]:
    """Return the chain of a chunk.

    Parameters
    ----------
    dtype
        Dtype of the array, in native byte order.
    text
        ``"vlen-utf8"`` or ``"vlen-bytes"`` for strings of any length, else None.
    codecs
        Whole chain, or the codecs after the array→bytes codec; ``"auto"`` if the chain is given in parts.
    filters, serializer, compressors
        Three parts of the chain, each ``"auto"``, None, a codec or a sequence of codecs.
    big
        Whether elements are stored big-endian, if ``serializer`` leaves that open.
    blosc_only
        Whether the format has zstd only inside Blosc containers.
    ids
        As for :func:`as_codecs`: whether the format names codecs by them.
    stored
        Dtype of the array in stored byte order, if filters of numbers take its bytes, as in version 2; None if they
        take elements.

    Raises
    ------
    ArgumentError
        If something is not a codec, both ``codecs`` and one of the parts are given, the codecs do not follow one
        another, or a filter could not be undone.
    """
    maker: Codec = BytesCodec(None if swap_unit(dtype) == 1 else "big" if big else "little")
    if text is not None:
        maker = NumcodecsArrayToBytes(text, {})
    if not _is_auto(codecs):
        for name, value in (("filters", filters), ("serializer", serializer), ("compressors", compressors)):
            if not _is_auto(value):
                raise ArgumentError(f"give either codecs= (the whole chain) or {name}= (a part of it), not both")
        chain = _in_order(as_codecs(codecs, dtype, "codecs", ids=ids), (), maker)
        if not isinstance(codecs, SourceCodecs):
            _check_filters(chain, dtype if stored is None else stored, in_bytes=stored is not None)
        return chain
    given = () if _is_auto(serializer) else as_codecs(serializer, dtype, "serializer", ids=ids)
    before = () if _is_auto(filters) else as_codecs(filters, dtype, "filters", ids=ids)
    behind = (
        automatic(dtype, blosc_only=blosc_only)
        if _is_auto(compressors)
        else as_codecs(compressors, dtype, "compressors", ids=ids)
    )
    if len(given) > 1 or any(codec.kind != "array_to_bytes" for codec in given):
        raise ArgumentError(f"serializer= is one array→bytes codec such as 'bytes', not {quote(serializer)}")
    if sum(codec.kind == "array_to_bytes" for codec in (*before, *given, *behind)) > 1:
        raise ArgumentError("a chain has one array→bytes codec; filters=, serializer= and compressors= name several")
    if given and isinstance(given[0], BytesCodec):
        # Filters of version 2 work on its bytes.
        chain = _in_order(before, behind, given[0])
    else:
        chain = _in_order(before, (*given, *behind), maker)
    _check_filters(chain, dtype if stored is None else stored, in_bytes=stored is not None)
    return chain


def _in_order(before: tuple[Codec, ...], behind: tuple[Codec, ...], maker: Codec) -> tuple[Codec, ...]:
    """Return the chain of a caller's codecs in their order.

    Parameters
    ----------
    before, behind
        Codecs that the caller listed as filters, and those after them.
    maker
        Array→bytes codec if they have none: it comes as early as the filters allow, because those of version 2 work on
        bytes.

    Raises
    ------
    ArgumentError
        If one that makes bytes comes before one that takes an array.
    """
    codecs = (*before, *behind)
    at = next((i for i, codec in enumerate(codecs) if codec.kind == "array_to_bytes"), None)
    if at is None:
        at = 1 + max((i for i, codec in enumerate(before) if codec.kind == "array_to_array"), default=-1)
        codecs = (*codecs[:at], maker, *codecs[at:])
    front: list[Codec] = []
    for i, codec in enumerate(codecs[:at]):
        if codec.kind == "bytes_to_bytes":
            on_arrays = codec.on_arrays() if isinstance(codec, NumcodecsBytesToBytes) else None
            if on_arrays is None:
                taker = next(one for one in codecs[i + 1 :] if one.kind != "bytes_to_bytes")
                raise ArgumentError(f"{codec.label} makes bytes, but {taker.label} takes an array; list it first")
            codec = on_arrays
        front.append(codec)
    return (*front, *codecs[at:])


def _check_filters(codecs: Sequence[Codec], before: np.dtype[Any] | None, *, in_bytes: bool) -> None:
    """Raise if a filter of numcodecs gets other elements than it is configured for, or cannot undo what it makes.

    Parameters
    ----------
    codecs
        The chain.
    before
        Dtype of the elements; None if it is not known.
    in_bytes
        Whether filters take the bytes of stored elements, whose byte order ``before`` has.
    """
    for codec in codecs:
        if isinstance(codec, NumcodecsCodec):
            try:
                before = (codec if in_bytes else codec.natively()).made_of(before)
            except ValueError as error:
                raise ArgumentError(f"no such array can be created: {error}") from None
        elif isinstance(codec, ShardingIndexed):
            _check_filters(codec.codecs, before, in_bytes=in_bytes)
        elif codec.kind == "array_to_array":
            before = before if isinstance(codec, TransposeCodec | ReshapeCodec) else None
        elif not isinstance(codec, BytesCodec | ShuffleCodec):
            before = None


def automatic(dtype: np.dtype[Any], *, blosc_only: bool = False) -> tuple[Codec, ...]:
    """Return the default compressor (see the module's docstring)."""
    if dtype.hasobject or dtype.itemsize == 1:
        if blosc_only:
            return (BloscCodec("zstd", _ZSTD_LEVEL, "noshuffle", 1),)
        return (ZstdCodec(_ZSTD_LEVEL),)
    return (BloscCodec("lz4", 5, "shuffle", dtype.itemsize),)


def as_codecs(value: Any, dtype: np.dtype[Any], what: str, *, ids: bool = True) -> tuple[Codec, ...]:
    """Return the codecs given by a caller.

    Parameters
    ----------
    value
        None, a codec, or a sequence of codecs. A codec is one of gzarr's (from ``array.codecs``), a name, a v3 object
        (``{"name": …, "configuration": …}``), a numcodecs object (``{"id": …}``), or a codec instance from zarr-python
        or numcodecs.
    dtype
        Dtype of the array; its item size is Blosc's default type size.
    what
        Name of the argument, for messages.
    ids
        Whether a name may be an id of numcodecs.

    Raises
    ------
    ArgumentError
        If ``value`` is none of these, or is configured wrongly.
    """
    if value is None:
        return ()
    values: Sequence[Any] = value if isinstance(value, list | tuple) else [value]
    codecs = tuple(_as_codec(item, dtype, f"{what}[{i}]", ids=ids) for i, item in enumerate(values))
    reader = None if isinstance(value, SourceCodecs) else next((codec for codec in codecs if not codec.writes), None)
    if reader is not None:
        raise ArgumentError(
            f"{what}: {reader.label} is read-only: for writing, it would need an image rather than bytes; choose "
            "another codec"
        )
    return codecs


def _as_codec(value: Any, dtype: np.dtype[Any], what: str, *, ids: bool) -> Codec:
    if isinstance(value, Codec):
        codec = value
    else:
        document = value
        if hasattr(value, "get_config"):
            document = value.get_config()
        elif hasattr(value, "to_dict"):
            document = value.to_dict()
        elif isinstance(value, str):
            # The defaults of a name are gzarr's, those of an id numcodecs'.
            document = {"id": value} if ids and value not in _DEFAULTS and is_known(value) else {"name": value}
        # Parsing corrects spellings in the document itself, which is the caller's.
        document = copy.deepcopy(document)
        if not isinstance(document, dict):
            raise ArgumentError(f"{what} is a codec's name or JSON object, or a codec of a library, not {quote(value)}")
        try:
            if "id" in document:
                objects = isinstance(document["id"], str) and document["id"] in OBJECT_CODECS
                codec = codec_from_v2(document, "$", first=objects, objects=objects)
                if isinstance(codec, ShuffleCodec):
                    # New documents state what v2 documents may leave open.
                    codec = codec.with_itemsize(dtype.itemsize)
            else:
                codec = codec_from_v3(_configured(document, dtype), "$")
        except MetadataError as error:
            name, message = document.get("name"), error.message
            if isinstance(error, UnsupportedError) and isinstance(name, str) and is_known(name):
                message = f"{name!r} is a codec of numcodecs; its name here is 'numcodecs.{name}'"
            raise ArgumentError(f"{what}: {message}") from None
    if isinstance(codec, BloscCodec) and (codec.typesize is None or codec.shuffle is None):
        return codec.with_itemsize(dtype.itemsize)
    return codec


def _configured(document: dict[str, Any], dtype: np.dtype[Any]) -> dict[str, Any]:
    """Return a v3 object, with the default configuration if it is only a name."""
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
    """Return whether the codecs given by a caller, as for :func:`as_codecs` or ``"auto"``, state a level."""
    return any(_has_level(item) for value in values for item in (value if isinstance(value, list | tuple) else [value]))


def _has_level(value: Any) -> bool:
    """Return whether a codec, or one in its chain, states a level. Codec instances always do, if they have levels."""
    for method in ("to_json", "get_config", "to_dict"):
        if hasattr(value, method):
            value = getattr(value, method)()
            break
    if isinstance(value, list | tuple):
        return any(map(_has_level, value))
    return isinstance(value, dict) and (not _LEVELS.isdisjoint(value) or any(map(_has_level, value.values())))


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == AUTO
