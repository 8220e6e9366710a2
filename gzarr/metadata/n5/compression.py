"""The ``compression`` of a dataset of N5: an object with a ``type`` and parameters.

Sources: https://github.com/saalfeldlab/n5#file-system-specification (raw, gzip, bzip2, lz4, xz),
https://github.com/saalfeldlab/n5-blosc, https://github.com/JaneliaSciComp/n5-zstandard. zarr-python 2 put the
parameters of numcodecs' other codecs there, whose blocks nobody else reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ...codecs.blosc import BloscCodec
from ...codecs.registry import codec_from_v2
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
    name = "zlib" if configuration.lenient_boolean("useZlib", False) else "gzip"
    return _made(configuration, name, level=_DEFAULT_LEVEL if level < 0 else level)


def _bzip2(configuration: Configuration, dtype: np.dtype[Any]) -> Codec:
    return _made(configuration, "bz2", level=configuration.integer("blockSize", 1, 9, 9))


def _lz4(configuration: Configuration, dtype: np.dtype[Any]) -> Codec:
    if "acceleration" in configuration:
        note("lz4 in numcodecs' framing, as zarr-python 2 wrote it", configuration.json_path)
        return _made(configuration, "lz4", acceleration=configuration.values["acceleration"])
    from ...codecs.lz4_java import DEFAULT_BLOCK_BYTES, MAX_BLOCK_BYTES, Lz4JavaCodec

    nbytes = configuration.integer("blockSize", 1, 2**31 - 1, DEFAULT_BLOCK_BYTES)
    return Lz4JavaCodec(min(nbytes, MAX_BLOCK_BYTES))


def _xz(configuration: Configuration, dtype: np.dtype[Any]) -> Codec:
    return _made(configuration, "lzma", preset=configuration.integer("preset", 0, 9, _DEFAULT_LEVEL))


def _lzma(configuration: Configuration, dtype: np.dtype[Any]) -> Codec:
    note("lzma, which only zarr-python 2 wrote", configuration.json_path)
    return _made(configuration, "lzma", **_some(configuration, "format", "check", "preset", "filters"))


def _blosc(configuration: Configuration, dtype: np.dtype[Any]) -> Codec:
    # The members matter only for copies: a container itself says how to decode it.
    shuffle = configuration.integer("shuffle", -1, 2, 0)
    codec = _made(configuration, "blosc", shuffle=shuffle, **_some(configuration, "cname", "clevel", "blocksize"))
    assert isinstance(codec, BloscCodec)
    return codec.with_itemsize(dtype.itemsize)


def _zstd(configuration: Configuration, dtype: np.dtype[Any]) -> Codec:
    return _made(configuration, "zstd", level=configuration.integer("level", -(2**31), 2**31 - 1, 3))


def _some(configuration: Configuration, *names: str) -> dict[str, Any]:
    return {name: configuration.values[name] for name in names if name in configuration}


def _made(configuration: Configuration, name: str, **parameters: Any) -> Codec:
    """Return a codec of numcodecs."""
    return codec_from_v2({"id": name, **parameters}, configuration.json_path)


_COMPRESSORS: Final[dict[str, Callable[[Configuration, np.dtype[Any]], Codec]]] = {
    "gzip": _gzip,
    "bzip2": _bzip2,
    "lz4": _lz4,
    "xz": _xz,
    "blosc": _blosc,
    "zstd": _zstd,
    "lzma": _lzma,
}
