"""The ``blosc`` codec: Blosc 1 containers, with all their compressors and shuffles.

Specification: https://zarr-specs.readthedocs.io/en/latest/v3/codecs/blosc/index.html

======  ================================================================================================
Zarr    names
======  ================================================================================================
v3      ``blosc``, ``numcodecs.blosc`` (with v2's configuration)
v2      ``blosc``: ``{"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0}``
======  ================================================================================================

``{"name": "blosc", "configuration": {"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "typesize": 4,
"blocksize": 0}}``

The configuration matters only for writing: a container itself says how to decode it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from ..documents.departures import note
from ..reasons import reason_of
from . import native
from .buffers import Bytes, ceiling, compressed, empty, flat, need_bytes
from .codec import BytesRepresentation, Codec, CodecKind, EncodingStep, Operation, Representation

if TYPE_CHECKING:
    from ..documents.configuration import Configuration

Shuffle = Literal["noshuffle", "shuffle", "bitshuffle"]

_CNAMES: Final = ("lz4", "lz4hc", "blosclz", "zstd", "snappy", "zlib")
_SHUFFLES: Final[tuple[Shuffle, ...]] = ("noshuffle", "shuffle", "bitshuffle")
_GDAL_SHUFFLES: Final = {"NONE": 0, "0": 0, "BYTE": 1, "1": 1, "BIT": 2, "2": 2}
_AUTOSHUFFLE: Final = -1
_HEADER_BYTES: Final = 16
_NOT_BUILT_IN: Final = -5
_MAX_BUFFER_BYTES: Final = 2**31 - 1 - _HEADER_BYTES
_MAX_TYPESIZE: Final = 255
_MAX_LEVEL: Final = 9
#: In the order of c-blosc's numbers for them.
_COMPRESSORS: Final = ("blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd")


@dataclass(frozen=True)
class BloscCodec(Codec):
    """Blosc 1.

    Attributes
    ----------
    cname
        Compressor inside the container.
    clevel
        Compression level from 0 (store) to 9.
    shuffle
        Kind of shuffle; None if the document derives it from the item size and that is not known.
    typesize
        Bytes per element, for the shuffle; None if the document derives it from the item size and that is not known.
    blocksize
        Bytes per block; 0 is automatic.
    """

    kind: ClassVar[CodecKind] = "bytes_to_bytes"
    cname: str = "lz4"
    clevel: int = 5
    shuffle: Shuffle | None = "shuffle"
    typesize: int | None = None
    blocksize: int = 0

    @classmethod
    def from_v3(cls, configuration: Configuration) -> BloscCodec:
        """Parse a v3 configuration; ``gzarr.codecs.fill_values`` fills in a shuffle or typesize that is missing.

        zarr-python takes one without any member, which readers do not need; its defaults are for writing.
        """
        if missing := [name for name in ("cname", "clevel", "shuffle") if name not in configuration]:
            note(f"blosc without {', '.join(missing)}; zarr-python's default for writing", configuration.json_path)
        cname = configuration.string("cname", _CNAMES, "zstd")
        clevel = configuration.integer("clevel", 0, 9, 5)
        shuffle: Shuffle | None = None
        if "shuffle" in configuration:
            shuffle = _SHUFFLES[_SHUFFLES.index(configuration.string("shuffle", _SHUFFLES))]
        blocksize = configuration.integer("blocksize", 0, 2**31 - 1, 0)
        typesize: int | None = None
        if "typesize" in configuration:
            typesize = configuration.integer("typesize", 1, 2**31 - 1)
        elif shuffle != "noshuffle":
            note("a shuffle of blosc without a typesize; read as the element size", configuration.json_path)
        configuration.finish()
        return cls(cname, clevel, shuffle, typesize, blocksize)

    @classmethod
    def from_v2(cls, configuration: Configuration) -> BloscCodec:
        """Parse a v2 configuration; :meth:`with_itemsize` fills in the item size."""
        cname = configuration.string("cname", _CNAMES, "lz4")
        clevel = configuration.integer("clevel", 0, 9, 5)
        # GDAL writes the value of its option BLOSC_SHUFFLE unchanged.
        if isinstance(configuration.any("shuffle", None), str):
            shuffle = _GDAL_SHUFFLES[configuration.string("shuffle", tuple(_GDAL_SHUFFLES))]
            note("the shuffle of blosc as a string, as GDAL writes it", f"{configuration.json_path}.shuffle")
        else:
            shuffle = configuration.integer("shuffle", _AUTOSHUFFLE, 2, 1)
        blocksize = configuration.integer("blocksize", 0, 2**31 - 1, 0)
        typesize = None
        if configuration.any("typesize", None) is not None:
            typesize = configuration.integer("typesize", 1, 2**31 - 1)
        configuration.finish()
        return cls(cname, clevel, None if shuffle == _AUTOSHUFFLE else _SHUFFLES[shuffle], typesize, blocksize)

    @property
    def is_open(self) -> bool:
        """Whether the item size decides on the shuffle, or on its typesize."""
        return self.shuffle is None or (self.shuffle != "noshuffle" and self.typesize is None)

    def with_itemsize(self, itemsize: int) -> BloscCodec:
        """Return the codec with the parameters that a v2 document derives from the item size."""
        automatic: Shuffle = "bitshuffle" if itemsize == 1 else "shuffle"
        return replace(self, typesize=self.typesize or itemsize, shuffle=self.shuffle or automatic)

    @property
    def label(self) -> str:
        """For example ``blosc(lz4, shuffle 4)``."""
        if self.shuffle in (None, "noshuffle"):
            return f"blosc({self.cname})"
        return f"blosc({self.cname}, {self.shuffle}{'' if self.typesize is None else f' {self.typesize}'})"

    def to_json(self) -> dict[str, Any]:
        """Return the v3 object."""
        values = {
            "cname": self.cname,
            "clevel": self.clevel,
            "shuffle": self.shuffle or "shuffle",
            "typesize": self.typesize or 1,
            "blocksize": self.blocksize,
        }
        return {"name": "blosc", "configuration": values}

    def encoded(self, decoded: Representation) -> BytesRepresentation:
        """Return an unknown size."""
        return compressed(need_bytes(decoded, self.label))

    def decode(self, encoded: Any, decoded: Representation) -> Any:
        """Return the decompressed bytes."""
        representation = need_bytes(decoded, self.label)
        data = flat(encoded)
        if data.size < _HEADER_BYTES:
            raise ValueError(f"blosc: {data.size} bytes are too few for a header")
        nbytes, blocksize, cbytes = (int.from_bytes(data[i : i + 4].tobytes(), "little") for i in (4, 8, 12))
        if data[0] not in (1, 2):
            raise ValueError(f"blosc: format {int(data[0])} of the container is not known")
        # Bytes after the container are ignored, as by c-blosc and numcodecs.
        if cbytes > data.size:
            raise ValueError(f"blosc: the header states {cbytes} compressed bytes, but there are {data.size}")
        if representation.nbytes is not None and nbytes != representation.nbytes:
            raise ValueError(f"blosc: the header states {nbytes} bytes, expected {representation.nbytes}")
        if nbytes > min(ceiling(representation), _MAX_BUFFER_BYTES):
            raise ValueError(f"blosc: the header states {nbytes} bytes, more than this chunk can have")
        if nbytes and not 0 < blocksize <= nbytes:
            raise ValueError(f"blosc: the header states blocks of {blocksize} bytes for a total of {nbytes}")
        output = empty(nbytes, "blosc")
        if nbytes:
            self._decompress(data, output)
        return output

    def _decompress(self, data: Bytes, output: Bytes) -> None:
        library = native.blosc()
        if library is not None:
            size = library.blosc_decompress_ctx(data.ctypes.data, output.ctypes.data, output.size, 1)
            if size == _NOT_BUILT_IN:
                raise ValueError("blosc: the container's compressor is not built into numcodecs' library")
            if size != output.size:
                raise ValueError(f"blosc: the container is corrupt (code {size})")
            return
        from numcodecs import blosc

        try:
            blosc.decompress(data, output)
        except Exception as error:
            raise ValueError(f"blosc: {reason_of(error)}") from None

    def encode(self, decoded: Any, representation: Representation) -> Any:
        """Return one container."""
        data = flat(decoded)
        if data.size > _MAX_BUFFER_BYTES:
            raise ValueError(f"blosc: a container holds at most {_MAX_BUFFER_BYTES} bytes, not {data.size}")
        typesize = min(self.typesize or 1, 255)
        shuffle = _SHUFFLES.index(self.shuffle or "shuffle")
        library = native.blosc()
        if library is None:
            from numcodecs import blosc

            items = data.view(f"V{typesize}") if data.size % typesize == 0 else data
            return blosc.compress(items, self.cname.encode(), self.clevel, shuffle, self.blocksize)
        if library.blosc_compname_to_compcode(self.cname.encode()) < 0:
            raise ValueError(f"blosc: the compressor {self.cname} is not built into numcodecs' library")
        output = empty(data.size + _HEADER_BYTES, "blosc")
        size = library.blosc_compress_ctx(
            self.clevel,
            shuffle,
            typesize,
            data.size,
            data.ctypes.data,
            output.ctypes.data,
            output.size,
            self.cname.encode(),
            self.blocksize,
            1,
        )
        if size <= 0:
            raise ValueError(f"blosc: compressing with {self.cname} failed (code {size})")
        return output[:size].copy()

    def operations(self, decoded: Representation) -> tuple[Operation, ...] | None:
        """One ``blosc`` operation."""
        return (Operation("blosc"),)

    def encoding(self, decoded: Representation, nbytes: int) -> EncodingStep | None:
        """One ``blosc`` step, if the bytes fit one container."""
        if nbytes > _MAX_BUFFER_BYTES:
            return None
        parameters = (
            _COMPRESSORS.index(self.cname),
            self.clevel,
            _SHUFFLES.index(self.shuffle or "shuffle"),
            min(self.typesize or 1, _MAX_TYPESIZE),
            self.blocksize,
        )
        return EncodingStep("blosc", nbytes + _HEADER_BYTES, parameters, self._search(), (self.cname,))

    def _search(self) -> tuple[str, int] | None:
        """Return the library that compresses, if it can search in several ways, and the level that c-blosc gives it."""
        if self.cname == "lz4":
            return "lz4", _MAX_LEVEL + 1 - self.clevel
        if self.cname == "zlib":
            return "deflate", self.clevel
        if self.cname == "zstd":
            return "zstd", 22 if self.clevel == _MAX_LEVEL else 2 * self.clevel - 1
        return None
