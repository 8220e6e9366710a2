"""The codecs ``zfp`` and ``numcodecs.zfpy``: blocks of 4ⁿ numbers, compressed with or without loss.

Specifications: https://github.com/zarr-developers/zarr-extensions/tree/main/codecs/zfp and
https://numcodecs.readthedocs.io/en/stable/compression/zfpy.html

======  =========================================================================================================
Zarr    names
======  =========================================================================================================
v3      ``zfp``, ``zarrs.zfp`` (parameters in the document); ``numcodecs.zfpy`` (parameters in a header per chunk)
v2      ``zfpy``
======  =========================================================================================================

``{"name": "zfp", "configuration": {"mode": "fixed_accuracy", "tolerance": 0.05}}``

``{"name": "numcodecs.zfpy", "configuration": {"mode": 4, "tolerance": 0.05}}``

Integers of 8 and 16 bits are promoted to 32 bits, as specified. uint32 and uint64 are not specified: as in zarrs, they
become the same numbers of the signed type, or its largest if they exceed it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..documents.json import quote
from ..errors import MetadataError, UnsupportedError
from ..installing import COMMANDS
from . import libzfp
from .buffers import flat, need_array, number_types
from .codec import BytesRepresentation, Codec, CodecKind, Keeping, Representation
from .libzfp import Parameters

if TYPE_CHECKING:
    import ctypes

    from ..documents.configuration import Configuration

_MAX_BITS = 16658  # per block, in zfp
_SLACK_BYTES = 64  # for the header and the final word of a stream
_NAMES = {"fixed_accuracy": "tolerance", "fixed_rate": "rate", "fixed_precision": "precision"}
_MODES = ("reversible", "expert", *_NAMES)
# Modes of numcodecs, by zfpy's numbers.
_NUMBERED = {4: "fixed_accuracy", 2: "fixed_rate", 3: "fixed_precision"}
_NATIVE = tuple(libzfp.TYPES.values())
_PROMOTED: dict[str, np.dtype[Any]] = {
    "int8": np.dtype(np.int32),
    "uint8": np.dtype(np.int32),
    "int16": np.dtype(np.int32),
    "uint16": np.dtype(np.int32),
    "uint32": np.dtype(np.int32),
    "uint64": np.dtype(np.int64),
    "float16": np.dtype(np.float32),
    "bfloat16": np.dtype(np.float32),
}


def _library(json_path: str) -> ctypes.CDLL:
    zfp = libzfp.library()
    if zfp is None:
        raise UnsupportedError(f"zfp is missing: it is in the package zfpy ({COMMANDS['zfp']})", json_path=json_path)
    return zfp


@dataclass(frozen=True)
class ZfpCodec(Codec):
    """zfp without a header.

    Attributes
    ----------
    parameters
        Mode and its parameters.
    """

    kind: ClassVar[CodecKind] = "array_to_bytes"
    parameters: Parameters

    @classmethod
    def from_v3(cls, configuration: Configuration) -> ZfpCodec:
        """Parse a v3 configuration.

        Raises
        ------
        UnsupportedError
            If there is no zfp library here.
        """
        mode = configuration.string("mode", _MODES)
        values: tuple[int | float, ...] = ()
        if mode == "expert":
            values = (
                configuration.integer("minbits", 0, _MAX_BITS),
                configuration.integer("maxbits", 1, _MAX_BITS),
                configuration.integer("maxprec", 1, 64),
                configuration.integer("minexp", -1074, 1 << 15),
            )
            if values[0] > values[1]:
                raise configuration.error("minbits", "a number up to 'maxbits'")
        elif mode == "fixed_precision":
            values = (configuration.integer("precision", 1, 64),)
        elif mode != "reversible":
            values = (_number(configuration, mode),)
        configuration.finish()
        _library(configuration.json_path)
        return cls(Parameters(mode, values))

    @property
    def label(self) -> str:
        """For example ``zfp(fixed_rate)``."""
        return f"zfp({self.parameters.mode})"

    def to_json(self) -> dict[str, Any]:
        """Return the v3 object."""
        mode, values = self.parameters.mode, self.parameters.values
        names = ("minbits", "maxbits", "maxprec", "minexp") if mode == "expert" else (_NAMES.get(mode, ""),)
        return {"name": "zfp", "configuration": {"mode": mode, **dict(zip(names, values, strict=False))}}

    def encoded(self, decoded: Representation) -> BytesRepresentation:
        """Return an unknown size."""
        array = need_array(decoded, self.label)
        if len(array.shape) > libzfp.MAX_DIMENSIONS:
            raise MetadataError(
                f"{self.label} takes at most {libzfp.MAX_DIMENSIONS} dimensions, not {len(array.shape)};"
                " a codec such as 'reshape' before it can help"
            )
        if array.dtype not in _NATIVE and array.dtype.name not in _PROMOTED:
            raise MetadataError(f"{self.label} takes numbers of 8 to 64 bits, not {quote(str(array.dtype))}")
        most = libzfp.maximum_nbytes(_library("$"), array.shape, _stored(array.dtype), self.parameters)
        return BytesRepresentation(None, most + _SLACK_BYTES)

    def keeps(self, decoded: Representation) -> Keeping:
        """Return whether the mode is without loss. All others lose a little each time."""
        if self.parameters.mode != "reversible":
            return "none"
        # The largest unsigned integers have no signed one.
        return "own" if need_array(decoded, self.label).dtype.name in ("uint32", "uint64") else "all"

    def decode(self, encoded: Any, decoded: Representation) -> Any:
        """Return the array."""
        array = need_array(decoded, self.label)
        values = _decompressed(self.label, encoded, array.shape, (_stored(array.dtype),), self.parameters)
        return _demoted(values, array.dtype)

    def encode(self, decoded: Any, representation: Representation) -> Any:
        """Return one stream."""
        array = need_array(representation, self.label)
        return libzfp.compress(_library("$"), _promoted(np.asarray(decoded, array.dtype)), self.parameters)


@dataclass(frozen=True)
class ZfpyCodec(Codec):
    """zfp after a header that states type, shape and mode, as numcodecs writes it.

    Attributes
    ----------
    parameters
        Mode of new streams and its parameter.
    """

    kind: ClassVar[CodecKind] = "array_to_bytes"
    parameters: Parameters

    @classmethod
    def from_v2(cls, configuration: Configuration) -> ZfpyCodec:
        """Parse a numcodecs configuration.

        Raises
        ------
        UnsupportedError
            If there is no zfp library here.
        """
        number = configuration.integer("mode", 2, 4, 4)
        mode = _NUMBERED[number]
        given = {name: configuration.number(name, -1) for name in _NAMES.values()}
        # numcodecs derives this member from the others.
        configuration.any("compression_kwargs", None)
        configuration.finish()
        _library(configuration.json_path)
        value = given[_NAMES[mode]]
        # zfpy's default of -1 means lossless.
        if value == -1:
            return cls(Parameters("reversible"))
        if mode == "fixed_precision":
            return cls(Parameters(mode, (configuration.integer("precision", 1, 64),)))
        return cls(Parameters(mode, (_number(configuration, mode),)))

    from_v3 = from_v2

    @property
    def label(self) -> str:
        """``numcodecs.zfpy``."""
        return "numcodecs.zfpy"

    def to_json(self) -> dict[str, Any]:
        """Return the v3 object."""
        numbers = {name: number for number, name in _NUMBERED.items()}
        if self.parameters.mode == "reversible":
            values: dict[str, Any] = {"mode": numbers["fixed_accuracy"], "tolerance": -1}
        else:
            mode = self.parameters.mode
            values = {"mode": numbers[mode], _NAMES[mode]: self.parameters.values[0]}
        return {"name": "numcodecs.zfpy", "configuration": values}

    def encoded(self, decoded: Representation) -> BytesRepresentation:
        """Return an unknown size."""
        array = need_array(decoded, self.label)
        dtype = number_types(array)[-1]
        if not 1 <= len(array.shape) <= libzfp.MAX_DIMENSIONS or dtype not in _NATIVE:
            raise MetadataError(
                f"{self.label} takes 1 to {libzfp.MAX_DIMENSIONS} dimensions of int32, int64, float32 or float64, not"
                f" {len(array.shape)} of {quote(str(array.dtype))}"
            )
        most = libzfp.maximum_nbytes(_library("$"), array.shape, dtype, self.parameters)
        # Headers may state other modes than the document.
        return BytesRepresentation(None, max(most, 2 * array.nbytes) + _SLACK_BYTES)

    def keeps(self, decoded: Representation) -> Keeping:
        """As for :class:`ZfpCodec`."""
        return "all" if self.parameters.mode == "reversible" else "none"

    def decode(self, encoded: Any, decoded: Representation) -> Any:
        """Return the array."""
        array = need_array(decoded, self.label)
        return _decompressed(self.label, encoded, array.shape, number_types(array), None).view(array.dtype)

    def encode(self, decoded: Any, representation: Representation) -> Any:
        """Return a header and one stream."""
        array = need_array(representation, self.label)
        values = np.ascontiguousarray(decoded, array.dtype).view(number_types(array)[-1])
        return libzfp.compress(_library("$"), values, self.parameters, header=True)


def _number(configuration: Configuration, mode: str) -> float:
    name = _NAMES[mode]
    value = float(configuration.number(name))
    good = 0 < value <= _MAX_BITS / 4 if mode == "fixed_rate" else 0 <= value < math.inf
    if not good:
        raise configuration.error(name, f"a number from 0 to {_MAX_BITS / 4}" if mode == "fixed_rate" else "a number")
    return value


def _stored(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype if dtype in _NATIVE else _PROMOTED[dtype.name]


def _decompressed(
    label: str,
    encoded: Any,
    shape: tuple[int, ...],
    dtypes: tuple[np.dtype[Any], ...],
    parameters: Parameters | None,
) -> npt.NDArray[Any]:
    try:
        return libzfp.decompress(_library("$"), flat(encoded), shape, dtypes, parameters)
    except ValueError as error:
        raise ValueError(f"{label}: {error}") from None


def _promoted(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return numbers as a type that zfp compresses (``zfp_promote_*``)."""
    dtype = values.dtype
    stored = _stored(dtype)
    if stored.kind == "f" or dtype == stored:
        return values.astype(stored)
    if dtype.itemsize == stored.itemsize:
        return np.asarray(np.minimum(values, np.iinfo(stored).max), stored)
    bits = 8 * dtype.itemsize
    middle = 1 << (bits - 1) if dtype.kind == "u" else 0
    promoted: npt.NDArray[Any] = (values.astype(np.int32) - np.int32(middle)) << np.int32(31 - bits)
    return promoted


def _demoted(values: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return the original numbers: the inverse of :func:`_promoted` (``zfp_demote_*``)."""
    if values.dtype == dtype:
        return values
    if values.dtype.kind == "f":
        with np.errstate(all="ignore"):
            return values.astype(dtype)
    if dtype.itemsize == values.dtype.itemsize:
        return np.asarray(np.maximum(values, 0), dtype)
    bits = 8 * dtype.itemsize
    middle = 1 << (bits - 1) if dtype.kind == "u" else 0
    limits = np.iinfo(dtype)
    shifted = (values >> np.int32(31 - bits)).astype(np.int64) + middle
    # NumPy's arithmetic turns an array without dimensions into a scalar.
    return np.asarray(np.clip(shifted, limits.min, limits.max)).astype(dtype)
