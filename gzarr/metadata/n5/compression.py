"""The ``compression`` of a dataset of N5: an object with a ``type`` and parameters.

Sources: https://github.com/saalfeldlab/n5#file-system-specification (raw, gzip, bzip2, lz4, xz),
https://github.com/saalfeldlab/n5-blosc, https://github.com/JaneliaSciComp/n5-zstandard. zarr-python 2 put the
parameters of numcodecs' other codecs there, whose blocks nobody else reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ...codecs.blosc import BloscCodec
from ...codecs.bz2_lzma import Bz2Codec, LzmaCodec
from ...codecs.deflate import GzipCodec, ZlibCodec
from ...codecs.lz4 import Lz4Codec
from ...codecs.lz4_java import DEFAULT_BLOCK_BYTES, MAX_BLOCK_BYTES, Lz4JavaCodec
from ...codecs.zstd import ZstdCodec
from ...documents.configuration import Configuration
from ...documents.departures import note
from ...documents.json import quote
from ...errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from ...codecs.codec import Codec

_DEFAULT_LEVEL: Final = 6  # zlib's meaning of level -1


def compressor(value: Any, dtype: np.dtype[Any], json_path: str) -> Codec | None:
    """Return the compressor of blocks; None for ``raw``.

    Parameters
    ----------
    value
        Object with the ``type`` and its parameters. Unknown parameters are ignored, as in n5 for Java.
    dtype
        Data type of the elements.
    json_path
        Location in the document, for messages.

    Raises
    ------
    MetadataError
        If it is malformed.
    UnsupportedError
        If its type is unknown.
    """
    configuration = Configuration(value, json_path, "compression")
    name = configuration.string("type")
    if name == "raw":
        return None
    make = _COMPRESSORS.get(name)
    if make is None:
        raise UnsupportedError(
            f"the compression {quote(name)} is not known to this version of gzarr; it knows raw, "
            f"{', '.join(_COMPRESSORS)}",
            json_path=f"{json_path}.type",
        )
    return make(configuration, dtype)


def _gzip(configuration: Configuration, dtype: np.dtype[Any]) -> Codec:
    level = configuration.integer("level", -1, 9, -1)
    level = _DEFAULT_LEVEL if level < 0 else level
    return ZlibCodec(level) if configuration.lenient_boolean("useZlib", False) else GzipCodec(level)


def _bzip2(configuration: Configuration, dtype: np.dtype[Any]) -> Codec:
    return Bz2Codec(configuration.integer("blockSize", 1, 9, 9))


def _lz4(configuration: Configuration, dtype: np.dtype[Any]) -> Codec:
    if "acceleration" in configuration:
        note("lz4 in numcodecs' framing, as zarr-python 2 wrote it", configuration.json_path)
        return Lz4Codec(configuration.integer("acceleration", -(2**31), 2**31 - 1))
    nbytes = configuration.integer("blockSize", 1, 2**31 - 1, DEFAULT_BLOCK_BYTES)
    return Lz4JavaCodec(min(nbytes, MAX_BLOCK_BYTES))


def _xz(configuration: Configuration, dtype: np.dtype[Any]) -> Codec:
    return LzmaCodec(preset=configuration.integer("preset", 0, 9, _DEFAULT_LEVEL))


def _lzma(configuration: Configuration, dtype: np.dtype[Any]) -> Codec:
    note("lzma, which only zarr-python 2 wrote", configuration.json_path)
    names = ("format", "check", "preset", "filters")
    given = {name: value for name, value in configuration.values.items() if name in names}
    return LzmaCodec.from_v2(Configuration(given, configuration.json_path, "compression"))


def _blosc(configuration: Configuration, dtype: np.dtype[Any]) -> Codec:
    # The members matter only for copies: a container itself says how to decode it.
    given = {name: value for name, value in configuration.values.items() if name in ("cname", "clevel", "blocksize")}
    shuffle = configuration.integer("shuffle", -1, 2, 0)
    codec = BloscCodec.from_v2(
        Configuration({**given, "shuffle": shuffle}, configuration.json_path, "compression")
    )
    return codec.with_itemsize(dtype.itemsize)


def _zstd(configuration: Configuration, dtype: np.dtype[Any]) -> Codec:
    return ZstdCodec(max(-131072, min(configuration.integer("level", -(2**31), 2**31 - 1, 3), 22)))


_COMPRESSORS: Final[dict[str, Callable[[Configuration, np.dtype[Any]], Codec]]] = {
    "gzip": _gzip,
    "bzip2": _bzip2,
    "lz4": _lz4,
    "xz": _xz,
    "blosc": _blosc,
    "zstd": _zstd,
    "lzma": _lzma,
}
