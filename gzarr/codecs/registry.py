"""From the name of a codec in a document to the class that knows it, loaded when a document first names it."""

from __future__ import annotations

import importlib
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from ..dtypes import extension
from ..errors import MetadataError, UnsupportedError
from ..metadata.json import quote
from .configuration import Configuration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .codec import Codec

# Zarr version and name -> module of this package, class.
_CODECS: Final = {
    (3, "bytes"): ("bytes", "BytesCodec"),
    (3, "endian"): ("bytes", "BytesCodec"),
    (3, "transpose"): ("transpose", "TransposeCodec"),
    (3, "sharding_indexed"): ("sharding", "ShardingIndexed"),
    (3, "blosc"): ("blosc", "BloscCodec"),
    (3, "zstd"): ("zstd", "ZstdCodec"),
    (3, "gzip"): ("deflate", "GzipCodec"),
    (3, "crc32c"): ("crc32c", "Crc32cCodec"),
    (3, "numcodecs.shuffle"): ("shuffle", "ShuffleCodec"),
    (2, "blosc"): ("blosc", "BloscCodec"),
    (2, "zstd"): ("zstd", "ZstdCodec"),
    (2, "gzip"): ("deflate", "GzipCodec"),
    (2, "zlib"): ("deflate", "ZlibCodec"),
    (2, "lz4"): ("lz4", "Lz4Codec"),
    (2, "bz2"): ("bz2_lzma", "Bz2Codec"),
    (2, "lzma"): ("bz2_lzma", "LzmaCodec"),
    (2, "shuffle"): ("shuffle", "ShuffleCodec"),
    (2, "crc32c"): ("crc32c", "Crc32cCodec"),
    (2, "nvcomp_batch"): ("nvcomp_batch", "NvcompBatchCodec"),
}
_ADAPTED: Final = ("vlen-utf8", "vlen-bytes")


@cache
def _class(version: int, name: str) -> Any:
    module, attribute = _CODECS[version, name]
    return getattr(importlib.import_module(f".{module}", __package__), attribute)


def codec_from_v3(value: Any, json_path: str, *, allow_pickle: bool = False, depth: int = 0) -> Codec:
    """Make a codec of a v3 document.

    Parameters
    ----------
    value
        A name, or an object with ``name`` and ``configuration``.
    json_path
        Where it is, for messages.
    allow_pickle
        Whether pickles may be loaded.
    depth
        How many shards it is in.

    Raises
    ------
    UnsupportedError
        If its name is not known.
    MetadataError
        If it is configured wrongly.
    """
    name, values = extension(value, json_path, "a codec")
    configuration = Configuration(values, f"{json_path}.configuration", f"the codec {quote(name)}")
    if name == "sharding_indexed":
        from .sharding import ShardingIndexed

        return ShardingIndexed.from_v3(configuration, allow_pickle=allow_pickle, depth=depth)
    if (3, name) in _CODECS:
        return _class(3, name).from_v3(configuration)  # type: ignore[no-any-return]
    short = name.removeprefix("numcodecs.")
    if short != name and (2, short) in _CODECS:
        return _class(2, short).from_v2(configuration)  # type: ignore[no-any-return]
    if short != name or name in _ADAPTED:
        from .numcodecs_adapter import from_v3

        return from_v3(short, configuration, allow_pickle=allow_pickle)
    known = sorted(n for version, n in _CODECS if version == 3 and n != "endian")
    raise UnsupportedError(
        f"the codec {quote(name)} is not known to this version of gzarr; it knows {', '.join(known)},"
        f" {', '.join(_ADAPTED)} and numcodecs.*",
        json_path=json_path,
    )


def codecs_from_v3(
    values: Sequence[Any], json_path: str, *, allow_pickle: bool = False, depth: int = 0
) -> tuple[Codec, ...]:
    """Make the codecs of a v3 chain; unknown ones that need not be understood are left out."""
    codecs = []
    for i, value in enumerate(values):
        try:
            codecs.append(codec_from_v3(value, f"{json_path}[{i}]", allow_pickle=allow_pickle, depth=depth))
        except UnsupportedError:
            if not (isinstance(value, dict) and value.get("must_understand") is False):
                raise
    return tuple(codecs)


def codec_from_v2(
    value: Any, json_path: str, *, allow_pickle: bool = False, first: bool = False, objects: bool = False
) -> Codec:
    """Make a codec of a v2 document's ``filters`` or ``compressor``.

    Parameters
    ----------
    value
        An object with ``id`` and the parameters of a codec of numcodecs.
    json_path
        Where it is, for messages.
    allow_pickle
        Whether pickles may be loaded.
    first
        Whether nothing stands before it, so that it may be given an array.
    objects
        Whether the array holds Python objects.

    Raises
    ------
    UnsupportedError
        If numcodecs does not know it.
    MetadataError
        If it is configured wrongly.
    """
    if not isinstance(value, dict):
        raise MetadataError(f'expected an object with an "id", got {quote(value)}', json_path=json_path)
    name = value.get("id")
    if not isinstance(name, str):
        raise MetadataError(f'a codec needs an "id", got {quote(name)}', json_path=f"{json_path}.id")
    configuration = Configuration({k: v for k, v in value.items() if k != "id"}, json_path, f"the codec {quote(name)}")
    if (2, name) in _CODECS:
        return _class(2, name).from_v2(configuration)  # type: ignore[no-any-return]
    from .numcodecs_adapter import ARRAY_TO_BYTES, OBJECT_CODECS, from_numcodecs

    array = first and (name in ARRAY_TO_BYTES or (objects and name in OBJECT_CODECS))
    if not array and name in ARRAY_TO_BYTES & OBJECT_CODECS:
        raise MetadataError(f"the codec {name!r} takes an array: it must be the first filter", json_path=json_path)
    kind = "array_to_bytes" if array else "bytes_to_bytes"
    return from_numcodecs(name, configuration, kind=kind, allow_pickle=allow_pickle)  # type: ignore[arg-type]
