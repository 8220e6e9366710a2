"""The codec ``nvcomp_batch``: one frame of nvCOMP's batched interface per chunk, as kvikio wrote it for Zarr v2.

Source: ``kvikio.nvcomp_codec.NvCompBatchCodec`` (https://github.com/rapidsai/kvikio, up to its deprecation in 25.06). A
chunk is a bare frame; only LZ4 frames are preceded by their size in 4 bytes, as in numcodecs.

======  ============================================================
Zarr    names
======  ============================================================
v3      ``numcodecs.nvcomp_batch``
v2      ``nvcomp_batch``: ``{"id": "nvcomp_batch", "algorithm": "snappy", "options": {}}``
======  ============================================================

The algorithms are ``lz4``, ``zstd``, ``snappy``, ``deflate`` and ``gdeflate``. The only host decoder for GDeflate is in
the wheel ``nvidia-libnvcomp``; it takes chunks of up to 64 KiB.
"""

from __future__ import annotations

import ctypes
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ..errors import UnsupportedError
from ..installing import COMMANDS
from .buffers import ceiling, checked, compressed, empty, flat, need_bytes
from .codec import BytesRepresentation, Codec, CodecKind, EncodingStep, Operation, Representation
from .deflate import Inflater, deflate_step
from .lz4 import Lz4Codec
from .native import gdeflate
from .streams import decompress
from .zstd import ZstdCodec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..documents.configuration import Configuration
    from .buffers import Bytes

_ALGORITHMS: Final = ("lz4", "zstd", "snappy", "deflate", "gdeflate")
#: Limit of the host decoder.
_MAX_GDEFLATE_BYTES: Final = 64 << 10
_RAW_WINDOW_BITS: Final = -15


@dataclass(frozen=True)
class NvcompBatchCodec(Codec):
    """A frame of one of nvCOMP's algorithms.

    Attributes
    ----------
    algorithm
        One of ``lz4``, ``zstd``, ``snappy``, ``deflate``, ``gdeflate``.
    options
        Options of the encoder; decoding needs none.
    """

    kind: ClassVar[CodecKind] = "bytes_to_bytes"
    algorithm: str
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @classmethod
    def from_v2(cls, configuration: Configuration) -> NvcompBatchCodec:
        """Parse a v2 configuration."""
        # kvikio ignores case.
        name = configuration.string("algorithm").lower()
        if name not in _ALGORITHMS:
            raise UnsupportedError(
                f"the algorithm {name[:100]!r} of nvcomp_batch is not known; known: {', '.join(_ALGORITHMS)}",
                json_path=f"{configuration.json_path}.algorithm",
            )
        options = configuration.any("options", None)
        if options is None:
            options = {}
        if not isinstance(options, dict):
            raise configuration.error("options", "an object")
        if options.get("has_header") is False:
            raise UnsupportedError(
                "LZ4 frames without a leading size are not supported", json_path=f"{configuration.json_path}.options"
            )
        configuration.finish()
        return cls(name, options)

    @property
    def label(self) -> str:
        """For example ``nvcomp_batch(snappy)``."""
        return f"nvcomp_batch({self.algorithm})"

    def to_json(self) -> dict[str, Any]:
        """Return the v3 object."""
        return {
            "name": "numcodecs.nvcomp_batch",
            "configuration": {"algorithm": self.algorithm, "options": dict(self.options)},
        }

    def encoded(self, decoded: Representation) -> BytesRepresentation:
        """Return an unknown size."""
        return compressed(need_bytes(decoded, self.label))

    def decode(self, encoded: Any, decoded: Representation) -> Any:
        """Return the decompressed bytes."""
        representation = need_bytes(decoded, self.label)
        if self.algorithm == "lz4":
            return Lz4Codec().decode(encoded, decoded)
        if self.algorithm == "zstd":
            return ZstdCodec().decode(encoded, decoded)
        data = flat(encoded)
        if self.algorithm == "deflate":
            return decompress(data, representation, lambda: Inflater(_RAW_WINDOW_BITS), self.label, single=True)
        return (_snappy if self.algorithm == "snappy" else _gdeflate)(data, representation, self.label)

    def encode(self, decoded: Any, representation: Representation) -> Any:
        """Return one frame (LZ4, Zstandard and deflate only)."""
        if self.algorithm == "lz4":
            return Lz4Codec().encode(decoded, representation)
        if self.algorithm == "zstd":
            return ZstdCodec().encode(decoded, representation)
        if self.algorithm == "deflate":
            stream = zlib.compressobj(6, zlib.DEFLATED, _RAW_WINDOW_BITS)
            return stream.compress(flat(decoded).data) + stream.flush()
        raise ValueError(f"{self.label} cannot be encoded in host memory; use zstd or lz4")

    def operations(self, decoded: Representation) -> tuple[Operation, ...] | None:
        """One operation named after the algorithm."""
        return (Operation(self.algorithm),)

    def encoding(self, decoded: Representation, nbytes: int) -> EncodingStep | None:
        """One step of LZ4, Zstandard or deflate; options have no effect in host memory."""
        if self.algorithm == "deflate":
            return deflate_step("deflate", -1, nbytes)
        codec: Codec | None = {"lz4": Lz4Codec(), "zstd": ZstdCodec()}.get(self.algorithm)
        return None if codec is None else codec.encoding(decoded, nbytes)


def _snappy(data: Bytes, representation: BytesRepresentation, label: str) -> Bytes:
    from gzarr_kernels.compiled import can_run, entry

    if not can_run():
        raise ValueError(f"{label}: its decoder is compiled code, which needs Numba here; {COMMANDS['jit']}")
    stated, shift = 0, 0
    for byte in data[:5].tolist():
        stated |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    if stated > ceiling(representation):
        raise ValueError(f"{label}: the header states {stated} bytes, more than this chunk can have")
    output = empty(stated, label)
    produced = ctypes.c_int64()
    entry("snappy", "decode")(data.ctypes.data, data.size, output.ctypes.data, output.size, ctypes.addressof(produced))
    if produced.value != stated:
        raise ValueError(f"{label}: the stream is corrupt")
    return checked(output, representation, label)


def _gdeflate(data: Bytes, representation: BytesRepresentation, label: str) -> Bytes:
    nbytes = representation.nbytes
    if nbytes is None or nbytes > _MAX_GDEFLATE_BYTES:
        what = "unknown size" if nbytes is None else f"{nbytes} bytes"
        raise ValueError(
            f"{label}: a chunk of {what}; the host decoder takes at most {_MAX_GDEFLATE_BYTES} bytes, so "
            'read it with device="cuda" and verify="none"'
        )
    decoder = gdeflate()
    if decoder is None:
        raise ValueError(f"{label}: its decoder is in the package nvidia-libnvcomp-cu13; {COMMANDS['cuda13']}")
    return checked(decoder(data, nbytes), representation, label)
