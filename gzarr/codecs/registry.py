"""From the name of a codec in a document to its class, which is imported when a document first names it."""

from __future__ import annotations

import importlib
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from ..documents.configuration import Configuration
from ..documents.departures import note
from ..documents.extension import extension
from ..documents.json import quote
from ..errors import MetadataError, UnsupportedError
from ..plugins import call, load
from .codec import Codec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..plugins import Plugin

# Zarr version and name -> module of this package, class.
_CODECS: Final = {
    (3, "bytes"): ("bytes", "BytesCodec"),
    (3, "transpose"): ("transpose", "TransposeCodec"),
    (3, "sharding_indexed"): ("sharding", "ShardingIndexed"),
    (3, "blosc"): ("blosc", "BloscCodec"),
    (3, "zstd"): ("zstd", "ZstdCodec"),
    (3, "gzip"): ("deflate", "GzipCodec"),
    (3, "crc32c"): ("crc32c", "Crc32cCodec"),
    (3, "bitround"): ("bitround", "BitroundCodec"),
    (3, "cast_value"): ("cast_value", "CastValueCodec"),
    (3, "n5_default"): ("n5_default", "N5DefaultCodec"),
    (3, "packbits"): ("packbits", "PackbitsCodec"),
    (3, "reshape"): ("reshape", "ReshapeCodec"),
    (3, "scale_offset"): ("scale_offset", "ScaleOffsetCodec"),
    (3, "zfp"): ("zfp", "ZfpCodec"),
    (3, "numcodecs.pcodec"): ("pcodec", "PcodecCodec"),
    (3, "numcodecs.shuffle"): ("shuffle", "ShuffleCodec"),
    (3, "numcodecs.zfpy"): ("zfp", "ZfpyCodec"),
    (3, "zarrs.squeeze"): ("reshape", "SqueezeCodec"),
    (3, "ChunkyCodec"): ("tiff_codecs", "ChunkyCodec"),
    (3, "HorizontalDeltaCodec"): ("tiff_codecs", "HorizontalDeltaCodec"),
    (3, "imagecodecs_delta"): ("tiff_codecs", "DeltaPredictor"),
    (3, "imagecodecs_floatpred"): ("tiff_codecs", "FloatPredictor"),
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
    (2, "pcodec"): ("pcodec", "PcodecCodec"),
    (2, "zfpy"): ("zfp", "ZfpyCodec"),
}
# Other names of v3 codecs: from the first releases of zarr-python 3, from the registry, and from zarrs.
_ALIASES: Final = {
    "endian": "bytes",
    "numcodecs.bitround": "bitround",
    "zarrs.zfp": "zfp",
    "https://codec.zarrs.dev/array_to_bytes/bitround": "bitround",
    "https://codec.zarrs.dev/array_to_bytes/pcodec": "numcodecs.pcodec",
    "https://codec.zarrs.dev/array_to_bytes/zfp": "zfp",
    "https://codec.zarrs.dev/array_to_bytes/zfpy": "numcodecs.zfpy",
    "https://codec.zarrs.dev/bytes_to_bytes/fletcher32": "numcodecs.fletcher32",
}
# Other names that new documents keep: zarr-python knows this one only.
_KEPT: Final = ("numcodecs.bitround",)
# Codecs that contain chains.
_NESTING: Final = ("sharding_indexed", "n5_default")
_PREFIX: Final = "numcodecs."
_ADAPTED: Final = ("vlen-utf8", "vlen-bytes")
_GROUP: Final = "gzarr.codecs"


@cache
def _class(version: int, name: str) -> Any:
    module, attribute = _CODECS[version, name]
    return getattr(importlib.import_module(f".{module}", __package__), attribute)


def _from_plugin(plugin: Plugin, method: str, name: str, configuration: Configuration) -> Codec:
    """Make a codec from a plugin's class."""
    what = f"the codec {quote(name)}"
    codec = call(plugin, method, what, configuration.json_path, configuration)
    if not isinstance(codec, Codec):
        raise UnsupportedError(
            f"{what} of the package {plugin.distribution} is faulty: {method} returned {type(codec).__name__}, not a "
            "gzarr.codecs.codec.Codec",
            json_path=configuration.json_path,
        )
    return codec


def codec_from_v3(value: Any, json_path: str, *, allow_pickle: bool = False, depth: int = 0) -> Codec:
    """Make a codec from a v3 document.

    Parameters
    ----------
    value
        Name, or object with ``name`` and ``configuration``.
    json_path
        Location in the document, for messages.
    allow_pickle
        Whether pickles may be loaded.
    depth
        Number of shards around the codec.

    Raises
    ------
    UnsupportedError
        If its name is unknown.
    MetadataError
        If it is configured wrongly.
    """
    given, values = extension(value, json_path, "a codec")
    name = _ALIASES.get(given, given)
    if given.startswith(_PREFIX) and values.get("id") == given.removeprefix(_PREFIX):
        note("the codec's name once more, as numcodecs 0.14 writes it", f"{json_path}.configuration.id")
        del values["id"]
    configuration = Configuration(values, f"{json_path}.configuration", f"the codec {quote(name)}")
    if name in _NESTING:
        return _class(3, name).from_v3(configuration, allow_pickle=allow_pickle, depth=depth)  # type: ignore[no-any-return]
    if (3, name) in _CODECS:
        codec: Any = _class(3, name).from_v3(configuration)
        return codec.named(given) if given in _KEPT else codec  # type: ignore[no-any-return]
    short = name.removeprefix(_PREFIX)
    if short != name and (2, short) in _CODECS:
        return _class(2, short).from_v2(configuration)  # type: ignore[no-any-return]
    from .numcodecs_adapter import from_v3, is_known

    if name in _ADAPTED or (short != name and is_known(short)):
        return from_v3(short, configuration, allow_pickle=allow_pickle)
    plugin = load(_GROUP, name, json_path)
    if plugin is not None:
        return _from_plugin(plugin, "from_v3", name, configuration)
    # virtual-tiff names codecs of imagecodecs without the prefix.
    if short != name or name.startswith("imagecodecs_"):
        # Or for the error that says what to install.
        return from_v3(short, configuration, allow_pickle=allow_pickle)
    known = sorted(n for version, n in _CODECS if version == 3)
    raise UnsupportedError(
        f"the codec {quote(name)} is not known to this version of gzarr; it knows {', '.join(known)},"
        f" {', '.join(_ADAPTED)} and numcodecs.*",
        json_path=json_path,
    )


def codecs_from_v3(
    values: Sequence[Any], json_path: str, *, allow_pickle: bool = False, depth: int = 0
) -> tuple[Codec, ...]:
    """Make the codecs of a v3 chain, except unknown ones that need not be understood."""
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
    """Make a codec from a v2 document's ``filters`` or ``compressor``.

    Parameters
    ----------
    value
        Object with ``id`` and the parameters of a numcodecs codec. Integers that are spelled otherwise become integers.
    json_path
        Location in the document, for messages.
    allow_pickle
        Whether pickles may be loaded.
    first
        Whether it is the first codec, and so may take an array.
    objects
        Whether the array holds Python objects.

    Raises
    ------
    UnsupportedError
        If numcodecs does not know the codec.
    MetadataError
        If it is configured wrongly.
    """
    if not isinstance(value, dict):
        raise MetadataError(f'expected an object with an "id", got {quote(value)}', json_path=json_path)
    name = value.get("id")
    if not isinstance(name, str):
        raise MetadataError(f'a codec needs an "id", got {quote(name)}', json_path=f"{json_path}.id")
    configuration = Configuration(
        {k: v for k, v in value.items() if k != "id"}, json_path, f"the codec {quote(name)}", quoted_integers=True
    )
    codec = _codec_from_v2(name, configuration, allow_pickle=allow_pickle, first=first, objects=objects)
    value.update(configuration.values)
    return codec


def _codec_from_v2(name: str, configuration: Configuration, *, allow_pickle: bool, first: bool, objects: bool) -> Codec:
    json_path = configuration.json_path
    if (2, name) in _CODECS:
        return _class(2, name).from_v2(configuration)  # type: ignore[no-any-return]
    from .numcodecs_adapter import ARRAY_TO_BYTES, OBJECT_CODECS, from_numcodecs, is_known

    if not is_known(name) and (plugin := load(_GROUP, name, json_path)) is not None:
        return _from_plugin(plugin, "from_v2", name, configuration)
    array = first and (name in ARRAY_TO_BYTES or (objects and name in OBJECT_CODECS))
    if not array and name in ARRAY_TO_BYTES & OBJECT_CODECS:
        raise MetadataError(f"the codec {name!r} takes an array: it must be the first filter", json_path=json_path)
    kind = "array_to_bytes" if array else "bytes_to_bytes"
    return from_numcodecs(name, configuration, kind=kind, allow_pickle=allow_pickle)  # type: ignore[arg-type]
