"""The codec ``pcodec``: lossless compression of numbers by the package of the same name.

Documentation: https://numcodecs.readthedocs.io/en/stable/compression/pcodec.html and
https://github.com/pcodec/pcodec

======  =================================================================================
Zarr    names
======  =================================================================================
v3      ``numcodecs.pcodec``, ``https://codec.zarrs.dev/array_to_bytes/pcodec``
v2      ``pcodec``
======  =================================================================================

``{"name": "numcodecs.pcodec", "configuration": {"level": 8, "mode_spec": "auto", "delta_spec": "auto", "paging_spec":
"equal_pages_up_to", "delta_encoding_order": null, "equal_pages_up_to": 262144}}``
"""

from __future__ import annotations

import contextlib
import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..documents.json import quote
from ..errors import MetadataError, UnsupportedError
from ..importing import import_module
from ..installing import COMMANDS
from .buffers import compressed, flat, need_array, number_types
from .codec import BytesRepresentation, Codec, CodecKind, Representation

if TYPE_CHECKING:
    from ..documents.configuration import Configuration

_DTYPES = frozenset(
    (*(f"{sign}int{n}" for sign in ("", "u") for n in (8, 16, 32, 64)), "float16", "float32", "float64")
)
_DELTAS = ("auto", "none", "try_consecutive", "try_lookback")


@dataclass(frozen=True)
class PcodecCodec(Codec):
    """Pcodec's standalone format.

    Attributes
    ----------
    level
        From 0 to 12.
    mode_spec, delta_spec, delta_encoding_order, equal_pages_up_to
        Options for compressing new chunks; see numcodecs' documentation.
    """

    kind: ClassVar[CodecKind] = "array_to_bytes"
    level: int = 8
    mode_spec: str = "auto"
    delta_spec: str = "auto"
    delta_encoding_order: int | None = None
    equal_pages_up_to: int = 262144

    @classmethod
    def from_v2(cls, configuration: Configuration) -> PcodecCodec:
        """Parse a numcodecs configuration.

        Raises
        ------
        UnsupportedError
            If the package is not installed.
        """
        order = None
        if configuration.any("delta_encoding_order", None) is not None:
            order = configuration.integer("delta_encoding_order", 0, 7)
        codec = cls(
            configuration.integer("level", 0, 12, 8),
            configuration.string("mode_spec", ("auto", "classic"), "auto"),
            configuration.string("delta_spec", _DELTAS, "auto"),
            order,
            configuration.integer("equal_pages_up_to", 1, 2**31 - 1, 262144),
        )
        configuration.string("paging_spec", ("equal_pages_up_to",), "equal_pages_up_to")
        configuration.finish()
        require_package("pcodec", configuration)
        return codec

    from_v3 = from_v2

    @property
    def label(self) -> str:
        """``numcodecs.pcodec``."""
        return "numcodecs.pcodec"

    def _configuration(self) -> dict[str, Any]:
        return {
            "level": self.level,
            "mode_spec": self.mode_spec,
            "delta_spec": self.delta_spec,
            "paging_spec": "equal_pages_up_to",
            "delta_encoding_order": self.delta_encoding_order,
            "equal_pages_up_to": self.equal_pages_up_to,
        }

    def to_json(self) -> dict[str, Any]:
        """Return the v3 object."""
        return {"name": "numcodecs.pcodec", "configuration": self._configuration()}

    def encoded(self, decoded: Representation) -> BytesRepresentation:
        """Return an unknown size."""
        array = need_array(decoded, self.label)
        if number_types(array)[-1].name not in _DTYPES:
            raise MetadataError(
                f"{self.label} takes integers and floating-point numbers, not {quote(str(array.dtype))}"
            )
        return compressed(BytesRepresentation(array.nbytes))

    def decode(self, encoded: Any, decoded: Representation) -> Any:
        """Return the array."""
        array = need_array(decoded, self.label)
        # The size stated in the data is ignored: it is decoded into a buffer of the chunk's size.
        output = np.empty(array.shape, array.dtype)
        data = flat(encoded).tobytes()
        *others, last = number_types(array)
        for dtype in others:
            with contextlib.suppress(ValueError):
                decode_into(output.reshape(-1).view(dtype), data, self.label)
                return output
        decode_into(output.reshape(-1).view(last), data, self.label)
        return output

    def encode(self, decoded: Any, representation: Representation) -> Any:
        """Return one file of pcodec's standalone format."""
        numcodecs = import_module("numcodecs.pcodec")
        values = np.ascontiguousarray(decoded).view(number_types(need_array(representation, self.label))[-1])
        return numcodecs.PCodec(**self._configuration()).encode(values)


def require_package(codec: str, configuration: Configuration) -> None:
    """Raise if the package that decodes a codec of this name is not installed."""
    if importlib.util.find_spec("pcodec") is None:
        raise UnsupportedError(
            f"the codec {codec!r} is in the package pcodec ({COMMANDS['pcodec']})", json_path=configuration.json_path
        )


def decode_into(output: npt.NDArray[Any], data: bytes, label: str) -> None:
    """Decode one file of pcodec's standalone format, which has exactly the numbers of ``output``.

    Raises
    ------
    ValueError
        If it is damaged, or has numbers of another type or more or fewer of them.
    """
    from pcodec import standalone

    try:
        progress = standalone.simple_decompress_into(data, output)
    # A panic in its Rust code is not an Exception.
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ValueError(f"{label}: {str(error)[:200] or type(error).__name__}") from None
    if progress.n_processed != output.size or not progress.finished:
        more = "" if progress.finished else " and more"
        raise ValueError(f"{label}: decoded to {progress.n_processed} numbers{more}, expected {output.size}")
