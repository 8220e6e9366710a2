"""All codecs and filters known to numcodecs, in host threads.

Documentation: https://numcodecs.readthedocs.io/en/stable/

======  ====================================================================================================
Zarr    names
======  ====================================================================================================
v3      ``numcodecs.delta``, ``numcodecs.crc32``, …; ``vlen-utf8`` and ``vlen-bytes``; ``imagecodecs_lzw``, …
v2      numcodecs' ``id``: ``{"id": "delta", "dtype": "<i4", "astype": "<i2"}``
======  ====================================================================================================

``{"name": "numcodecs.delta", "configuration": {"dtype": "<i4", "astype": "<i2"}}``

v2 filters work on flat buffers, in the byte order of the stored elements; they are bytes→bytes codecs. v3 filters work
on arrays; they are array→array codecs, and so are v2 filters before a codec that takes an array (``pcodec``, ``zfpy``).
Codecs of Python objects are array→bytes codecs in both.

The contents of chunks are not trusted: the number of objects in a header is compared with the chunk's shape before
anything is allocated, and pickles are loaded only if the caller allows it.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from ..documents.json import quote
from ..dtypes.properties import native
from ..errors import MetadataError, UnsupportedError
from ..importing import import_module
from ..installing import COMMANDS
from ..reasons import pass_on, reason_of
from . import object_codecs
from .arithmetic import adds_integers, compiled_filter, filter_step, filter_types
from .buffers import Bytes, ceiling, checked, compressed, empty, flat, need_array, need_bytes
from .casting import holds
from .codec import (
    ArrayRepresentation,
    BytesRepresentation,
    Codec,
    CodecKind,
    EncodingStep,
    Keeping,
    Operation,
    Representation,
    convert,
)
from .image_headers import checked_image
from .numcodecs_parameters import PARAMETERS, arguments, passed_on
from .pcodec import decode_into, require_package

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    import numpy.typing as npt

    from ..documents.configuration import Configuration

#: Codecs that encode arrays as bytes, in place of ``bytes``.
ARRAY_TO_BYTES = frozenset(("vlen-utf8", "vlen-bytes", "vlen-array", "json2", "msgpack2", "pickle"))
#: Codecs of arrays of Python objects (including the filter ``categorize``).
OBJECT_CODECS = frozenset(("vlen-utf8", "vlen-bytes", "vlen-array", "json2", "msgpack2", "pickle", "categorize"))
#: Codecs that store the shape with the items, so that order F in a document does not change the order of items.
STATE_SHAPE = ("json2", "msgpack2", "pickle")
_CHECKSUMS = frozenset(("crc32", "crc32c", "adler32", "fletcher32", "jenkins_lookup3"))
#: Filters of numbers: they take an array in version 3, but bytes in version 2.
ARRAY_TO_ARRAY = frozenset(("delta", "bitround", "fixedscaleoffset", "quantize", "packbits", "astype"))
# Parameters that are data types.
_DTYPES = ("dtype", "astype", "decode_dtype", "encode_dtype")
#: ``isbuiltin`` of a data type that another package, such as ml_dtypes, has added to NumPy.
_OF_ANOTHER_PACKAGE: Final = 2
_TEXT_KINDS = {"vlen-utf8": "OU", "vlen-bytes": "OS", "vlen-array": "O"}
_IMAGECODECS = "imagecodecs_"
_PCODEC = _IMAGECODECS + "pcodec"
#: Codecs of imagecodecs that take bytes. Others take an image, whose shape the documents do not have.
_OF_BYTES = frozenset(
    _IMAGECODECS + name
    for name in (
        *("blosc", "blosc2", "brotli", "bz2", "deflate", "lz4", "lz4f", "lz4h5", "lzf", "lzfse", "lzham", "lzma"),
        *("lzw", "pglz", "snappy", "zlib", "zlibng", "zopfli", "zstd"),
    )
)
#: Bytes of the first buffer for a size that is not known, and how many times as large each further one is.
_FIRST_ROOM, _RATIO = 1 << 16, 8
#: Codecs of imagecodecs that take a buffer of any size, and fail or fill it if it is too small. The others make what
#: their parameters say, or at most some times the encoded bytes; pglz needs the exact size.
_INTO_A_BUFFER = (_OF_BYTES - {_IMAGECODECS + "pglz"}) | frozenset(
    _IMAGECODECS + name
    for name in (
        *("aec", "apng", "avif", "bmp", "gif", "heif", "htj2k", "jpeg", "jpeg2k", "jpegls", "jpegxl", "jpegxr"),
        *("jpegxs", "lerc", "ljpeg", "lzo", "packbits", "png", "qoi", "rcomp", "sperr", "spng", "sz3"),
        *("tiff", "ultrahdr", "webp", "zfp"),
    )
)
_COMMANDS = {"msgpack2": COMMANDS["msgpack"], "crc32c": COMMANDS["google-crc32c"]}


@dataclass(frozen=True)
class NumcodecsCodec(Codec):
    """Common part of the three kinds.

    Attributes
    ----------
    id
        Name of the codec in numcodecs.
    configuration
        Parameters of the codec in numcodecs, without ``id``.
    """

    id: str
    configuration: Mapping[str, Any] = field(hash=False)

    @property
    def has_checksum(self) -> bool:
        """Whether it is one of numcodecs' checksums."""
        return self.id in _CHECKSUMS

    @property
    def is_elementwise(self) -> bool:  # type: ignore[override]
        """Whether it is a filter of numbers, one by one."""
        return self.id in ARRAY_TO_ARRAY - {"delta", "packbits"}

    @property
    def writes(self) -> bool:
        """Whether it is none of imagecodecs' codecs of images."""
        return not self.id.startswith(_IMAGECODECS) or self.id in _OF_BYTES

    def keeps(self, decoded: Representation) -> Keeping:
        """Return what filters of numbers keep; all other codecs are without loss, as far as is known."""
        # To a power of two, exactly; and labels stay labels.
        if self.id in ("bitround", "quantize", "categorize"):
            return "own"
        if self.id == "fixedscaleoffset":
            return "most"
        if self.id == "packbits":
            return "all" if self._takes_booleans else "own"
        if self.id not in ("astype", "delta"):
            return "all"
        dtype = decoded.dtype if isinstance(decoded, ArrayRepresentation) else None
        made, taken = map(native, filter_types(self.id, self.configuration, dtype))
        if self.id == "delta":
            # Integers go round, in both directions. Where chunks begin, not only differences must fit a smaller type.
            # Sums of floating-point numbers are rounded, but not those of whole numbers, such as a time axis has.
            return "all" if adds_integers(made, taken) and made.itemsize >= taken.itemsize else "most"
        if holds(made, taken):
            return "all"
        return "own" if holds(taken, made) else "most"

    @property
    def _takes_booleans(self) -> bool:
        return True

    @property
    def _takes_any_bits(self) -> bool:
        return False

    def natively(self) -> Self:
        """Return the same codec, but filters of numbers with types in native byte order."""
        if self.id not in ARRAY_TO_ARRAY:
            return self
        return replace(self, configuration=_in_native_order(self.configuration))

    def made_of(self, before: np.dtype[Any] | None) -> np.dtype[Any] | None:
        """Check that elements of new arrays can be read back; return the type of what is made of them.

        Parameters
        ----------
        before
            Data type of the elements, as they are stored; None if it is not known. So is the result.

        Raises
        ------
        ValueError
            If they cannot.
        """
        if self.id == "categorize":
            return self._encoded_dtype()
        if self.id not in ARRAY_TO_ARRAY:
            # Filters of others may make any elements.
            return np.dtype("u1") if self.id in PARAMETERS else None
        if self.id == "bitround":
            return before
        if self.id == "packbits":
            if before is not None and before.kind != "b":
                raise ValueError(f"{self.label} takes booleans, not {quote(str(before))}")
            return np.dtype("u1")
        if not self._states_dtype() and before is None:
            return None
        made, taken = filter_types(self.id, self.configuration, before)
        if taken.hasobject or _OF_ANOTHER_PACKAGE in (taken.isbuiltin, before is not None and before.isbuiltin):
            return None
        if self.id == "delta" and "b" in (made.kind, taken.kind):
            raise ValueError(f"{self.label} cannot undo differences of booleans, which have no sign; use packbits")
        stated = "decode_dtype" if self.id == "astype" else "dtype"
        if before is not None and not self._takes_any_bits:
            numbers = np.dtype("i8").newbyteorder(before.byteorder) if before.kind in "mM" else before
            if taken not in (before, numbers):
                # numcodecs would take the bytes for numbers of the stated type.
                advice = f"give it {stated}={numbers.str!r}" if numbers.kind in "biufc" else "it takes numbers"
                raise ValueError(f"{self.label} is configured for {taken}, but gets {before}; {advice}")
        tried = replace(self, configuration={**self.configuration, stated: taken.str})
        try:
            tried._call("decode", tried._call("encode", np.ones(2, taken)))
        except ValueError as error:
            reason = str(error).removeprefix(f"{self.label}: ")
            integers = "; for dates and times, give it the integers '<i8'" if taken.kind in "mM" else ""
            raise ValueError(f"{self.label} cannot encode and decode {taken} as {made}: {reason}{integers}") from None
        return made

    def _states_dtype(self) -> bool:
        return bool(self.configuration.get("decode_dtype") or self.configuration.get("dtype"))

    @property
    def label(self) -> str:
        """For example ``numcodecs.delta``."""
        return self.id if self.id in ("vlen-utf8", "vlen-bytes") else f"numcodecs.{self.id}"

    def to_json(self) -> dict[str, Any]:
        """Return the v3 object."""
        return {"name": self.label, "configuration": dict(self.configuration)}

    def make(self) -> Any:
        """Return a numcodecs codec."""
        return make(self.id, self.configuration)

    def _dtype(self, name: str, default: str) -> np.dtype[Any]:
        text = self.configuration.get(name) or self.configuration.get(default)
        return np.dtype(text)

    def _decoded_dtype(self) -> np.dtype[Any]:
        return self._dtype("decode_dtype", "dtype")

    def _encoded_dtype(self) -> np.dtype[Any]:
        if self.id == "categorize":
            return np.dtype(self.configuration.get("astype") or "u1")
        return self._dtype("encode_dtype", "dtype") if self.id == "astype" else self._dtype("astype", "dtype")

    def _call(self, name: str, *data: Any) -> Any:
        try:
            with np.errstate(all="ignore"):
                return getattr(self.make(), name)(*data)
        except Exception as error:
            raise ValueError(f"{self.label}: {reason_of(error)}") from error


@dataclass(frozen=True)
class NumcodecsBytesToBytes(NumcodecsCodec):
    """A filter or compressor on flat buffers.

    Attributes
    ----------
    stored_dtype
        Type string of the elements in the input buffer, for filters that depend on it and do not state it
        (``bitround``, ``packbits``).
    """

    kind: ClassVar[CodecKind] = "bytes_to_bytes"
    stored_dtype: str | None = None

    @property
    def _takes_booleans(self) -> bool:
        return self.stored_dtype is None or np.dtype(self.stored_dtype).kind == "b"

    @property
    def _takes_any_bits(self) -> bool:
        """Whether it is undone bit by bit, also where it takes bytes of other elements for its integers."""
        if self.id != "delta":
            return False
        made, taken = filter_types(self.id, self.configuration, None)
        return made == taken and taken.kind in "iu"

    @property
    def is_little_endian(self) -> bool:
        """Whether no type that it states, or was given, is big-endian."""
        stated = [self.configuration.get(name) for name in _DTYPES]
        return all(np.dtype(text).newbyteorder("<") == np.dtype(text) for text in (*stated, self.stored_dtype) if text)

    def on_arrays(self) -> NumcodecsArrayToArray | None:
        """Return the same filter on arrays, whose elements are in native byte order; None if it takes bytes only."""
        if self.id not in ARRAY_TO_ARRAY:
            return None
        return NumcodecsArrayToArray(self.id, _in_native_order(self.configuration))

    def encoded(self, decoded: Representation) -> BytesRepresentation:
        """Return the size if the filter fixes it."""
        data = need_bytes(decoded, self.label)
        n = data.nbytes
        if self.id in _CHECKSUMS:
            limit = None if data.limit_nbytes is None else data.limit_nbytes + 4
            return BytesRepresentation(None if n is None else n + 4, limit)
        if n is None or self.id not in (ARRAY_TO_ARRAY | {"base64", "categorize"}):
            return compressed(data)
        if self.id == "base64":
            return BytesRepresentation(4 * math.ceil(n / 3))
        if self.id == "packbits":
            return BytesRepresentation(1 + math.ceil(n / 8))
        if self.id == "bitround":
            return BytesRepresentation(n)
        itemsize = self._decoded_dtype().itemsize
        if self._decoded_dtype().hasobject or n % itemsize:
            raise MetadataError(
                f"{self.label} takes elements of {self._decoded_dtype()}, but got {n} bytes of other elements"
            )
        return BytesRepresentation(n // itemsize * self._encoded_dtype().itemsize)

    def operations(self, decoded: Representation) -> tuple[Operation, ...] | None:
        """Return what is compiled: filters of numbers, and checksums of HDF5."""
        return compiled_filter(self.id, self.configuration, None)

    def encoding(self, decoded: Representation, nbytes: int) -> EncodingStep | None:
        """Return what is compiled, of the same."""
        if self.id in ARRAY_TO_ARRAY and need_bytes(decoded, self.label).nbytes is None:
            return None
        dtype = None if self.stored_dtype is None else np.dtype(self.stored_dtype)
        return filter_step(self.id, self.configuration, dtype, nbytes)

    def decode(self, encoded: Any, decoded: Representation) -> Any:
        """Return the bytes before the filter."""
        representation = need_bytes(decoded, self.label)
        data = flat(encoded)
        expected = self.encoded(representation).nbytes
        if expected is not None and data.size != expected:
            raise ValueError(f"{self.label}: got {data.size} bytes to decode, expected {expected}")
        if self.id in _CHECKSUMS and data.size < 4:
            raise ValueError(f"{self.label}: {data.size} bytes are too few to hold a checksum")
        if self.id == _PCODEC:
            return self._decode_by_pcodec(data, representation)
        if self.id in _INTO_A_BUFFER:
            return checked(self._decode_into_a_buffer(data, representation), representation, self.label)
        return checked(flat(self._call("decode", data)), representation, self.label)

    def _decode_by_pcodec(self, data: Bytes, decoded: BytesRepresentation) -> Bytes:
        # The same format. imagecodecs takes as much memory as the data state, and ends the process if there is none.
        # It stores big-endian elements as if they were little-endian.
        dtype = native(np.dtype(self.configuration["dtype"]))
        if decoded.nbytes is None or dtype.kind not in "iuf" or decoded.nbytes % dtype.itemsize:
            raise ValueError(f"{self.label}: an array of {decoded.nbytes} bytes is none of {dtype}")
        output = empty(decoded.nbytes, self.label)
        decode_into(output.view(dtype), data.tobytes(), self.label)
        return output

    def _decode_into_a_buffer(self, data: Bytes, decoded: BytesRepresentation) -> Bytes:
        limit = ceiling(decoded)
        # A size that is not known is rarely near what is allowed.
        room = limit if decoded.nbytes is not None else min(limit, max(_FIRST_ROOM, _RATIO * data.size))
        while room < limit:
            with contextlib.suppress(ValueError):
                return self._decode_within(data, room)
            room = min(limit, _RATIO * room)
        return self._decode_within(data, limit)

    def _decode_within(self, data: Bytes, limit: int) -> Bytes:
        try:
            all_images = self.configuration.get("index", 0) is None
            image = checked_image(self.id, data, limit, all_images=all_images)
            # Some decoders stop at the end of the buffer, without an error: one byte more tells.
            output = flat(self._call("decode", image, empty(limit + 1, self.label).data))
        except Exception as error:
            reason = reason_of(error).removeprefix(f"{self.label}: ")
            raise ValueError(f"{self.label}: cannot be decoded to at most {limit} bytes: {reason}") from error
        if output.size > limit:
            raise ValueError(f"{self.label}: decoded to more than the expected {limit} bytes")
        return output

    def encode(self, decoded: Any, representation: Representation) -> Any:
        """Return the bytes after the filter."""
        if not self.writes:
            raise ValueError(f"{self.label} is read-only: for writing, it would need an image rather than bytes")
        data = flat(decoded)
        if self.id != "bitround" or self.stored_dtype is None:
            return flat(self._call("encode", data))
        stored = np.dtype(self.stored_dtype)
        # numcodecs rounds numbers in native byte order only.
        elements = data.view(stored).astype(stored.newbyteorder("="), copy=False)
        rounded = flat(self._call("encode", elements))
        return rounded if stored.isnative else flat(rounded.view(f"u{stored.itemsize}").byteswap())


@dataclass(frozen=True)
class NumcodecsArrayToArray(NumcodecsCodec):
    """A filter on arrays (Zarr v3).

    Between filters, elements have values and no byte order, which is that of the codec that makes bytes of them. So
    the byte orders of types that the configuration states mean nothing, as in zarr-python 3.4 (3.1.6 mixes them up).
    """

    kind: ClassVar[CodecKind] = "array_to_array"

    def encoded(self, decoded: Representation) -> ArrayRepresentation:
        """Return the array with the filter's data type; for ``packbits``, one dimension of bytes."""
        array = need_array(decoded, self.label)
        if self.id == "packbits":
            if array.dtype != np.dtype(bool):
                raise MetadataError(f"{self.label} takes booleans, not {quote(str(array.dtype))}")
            return ArrayRepresentation((1 + math.ceil(math.prod(array.shape) / 8),), np.dtype("u1"))
        if self.id == "bitround":
            if array.dtype.kind != "f":
                raise MetadataError(f"{self.label} takes floating-point numbers, not {quote(str(array.dtype))}")
            return replace(array, as_integers=True)
        taken = self._decoded_dtype().newbyteorder("=") if self._states_dtype() else array.dtype
        # Filters of dates and times are of their integers.
        if taken != array.dtype and not (array.dtype.kind in "mM" and taken == np.dtype(np.int64)):
            raise MetadataError(
                f"{self.label} is configured for {taken}, but got {quote(str(array.dtype))}",
                json_path="$.configuration",
            )
        if taken.isbuiltin == _OF_ANOTHER_PACKAGE:
            # numcodecs takes types by their strings, which do not tell those of ml_dtypes.
            raise MetadataError(f"{self.label} takes numbers of NumPy's own types, not {quote(str(taken))}")
        made = self.configuration.get("encode_dtype") or self.configuration.get("astype") or taken
        # By its name: NumPy does not take what newbyteorder returns for one of its own types.
        return ArrayRepresentation(array.shape, np.dtype(np.dtype(made).newbyteorder("=").str))

    def operations(self, decoded: Representation) -> tuple[Operation, ...] | None:
        """Return what is compiled: the conversion of ``astype``, which is part of placing, or a filter of numbers."""
        dtype, configuration = need_array(decoded, self.label).dtype, _in_native_order(self.configuration)
        if self.id == "astype":
            return convert(np.dtype(configuration["encode_dtype"]), dtype)
        return compiled_filter(self.id, configuration, dtype)

    def encoding(self, decoded: Representation, nbytes: int) -> EncodingStep | None:
        """Return what is compiled, of filters of numbers."""
        dtype = need_array(decoded, self.label).dtype
        return filter_step(self.id, _in_native_order(self.configuration), dtype, nbytes)

    def stored_as(self, before: np.dtype[Any]) -> tuple[NumcodecsArrayToArray, np.dtype[Any]]:
        """Return the filter as version 2 has it, for elements in stored byte order, and the type that it makes."""
        if self.id in ("packbits", "bitround"):
            return self, np.dtype("u1") if self.id == "packbits" else before
        if before.kind in "mM":
            before = np.dtype("i8").newbyteorder(before.byteorder)
        taken, made = ("decode_dtype", "encode_dtype") if self.id == "astype" else ("dtype", "astype")
        stored = {**_in_native_order(self.configuration), taken: before.str}
        native = before.newbyteorder("=")
        if before != native:
            # By default, numcodecs makes the type that it takes, and what follows may not take that byte order.
            stored.setdefault(made, native.str)
        return NumcodecsArrayToArray(self.id, stored), np.dtype(stored.get(made) or before)

    def made_of(self, before: np.dtype[Any] | None) -> np.dtype[Any] | None:
        """Check the filter whatever byte orders it states; return what version 2 would make of the stored elements."""
        made = NumcodecsCodec.made_of(self.natively(), None if before is None else native(before))
        return made if made is None or before is None else self.stored_as(before)[1]

    def stating_types(self, decoded: ArrayRepresentation) -> NumcodecsArrayToArray:
        """Return the filter with the types that it takes and makes, which documents may leave out."""
        if self.id in ("packbits", "bitround"):
            return self
        taken, made = ("decode_dtype", "encode_dtype") if self.id == "astype" else ("dtype", "astype")
        given = self.configuration.get(taken) or ("<i8" if decoded.dtype.kind in "mM" else decoded.dtype.str)
        stated = {taken: given, made: self.configuration.get(made) or given}
        return NumcodecsArrayToArray(self.id, {**self.configuration, **{n: np.dtype(t).str for n, t in stated.items()}})

    def _for(self, dtype: np.dtype[Any]) -> NumcodecsArrayToArray:
        configuration = _in_native_order(self.configuration)
        # Documents may omit parameters that the array's data type implies.
        if self.id not in ("packbits", "bitround") and not self._states_dtype():
            configuration["decode_dtype" if self.id == "astype" else "dtype"] = dtype.str
        return NumcodecsArrayToArray(self.id, configuration)

    def decode(self, encoded: Any, decoded: Representation) -> Any:
        """Return the array before the filter."""
        array = need_array(decoded, self.label)
        output = np.asarray(self._for(array.dtype)._call("decode", np.ascontiguousarray(encoded)))
        if output.nbytes != array.nbytes:
            raise ValueError(f"{self.label}: decoded to {output.nbytes} bytes, expected {array.nbytes}")
        return output.reshape(-1).view(array.dtype).reshape(array.shape)

    def encode(self, decoded: Any, representation: Representation) -> Any:
        """Return the array after the filter."""
        array = need_array(representation, self.label)
        made = self.encoded(array)
        output = np.asarray(self._for(array.dtype)._call("encode", np.ascontiguousarray(decoded)))
        return output.reshape(-1).view(made.dtype).reshape(made.shape)


@dataclass(frozen=True)
class NumcodecsArrayToBytes(NumcodecsCodec):
    """A codec of arrays: Python objects of any length, or numbers compressed as an array."""

    kind: ClassVar[CodecKind] = "array_to_bytes"

    @property
    def empty_text(self) -> str | bytes | None:  # type: ignore[override]
        """The empty string, or no bytes; None if elements are of another kind."""
        texts: dict[str, str | bytes] = {"vlen-utf8": "", "vlen-bytes": b""}
        return texts.get(self.id)

    def encoded(self, decoded: Representation) -> BytesRepresentation:
        """Return an unknown size; for ``categorize``, the exact size."""
        array = need_array(decoded, self.label)
        if array.dtype.hasobject and self.id not in OBJECT_CODECS:
            raise MetadataError(f"{self.label} cannot hold strings or objects; it needs a codec such as 'vlen-utf8'")
        if array.dtype.hasobject and array.dtype.fields is not None and self.id != "pickle":
            raise MetadataError(f"{self.label} cannot hold records with objects; only the codec 'pickle' can")
        if self.id in _TEXT_KINDS and array.dtype.kind not in _TEXT_KINDS[self.id] and not self._holds_raw_bytes(array):
            raise MetadataError(f"{self.label} holds items of any length, not elements of {quote(str(array.dtype))}")
        if self.id == "categorize":
            return BytesRepresentation(math.prod(array.shape) * self._encoded_dtype().itemsize)
        if array.dtype.hasobject:
            return BytesRepresentation(None)
        if self.id in STATE_SHAPE:
            # Texts of numbers, and of strings, have many times their bytes, as parameters such as ``indent`` say.
            most = compressed(BytesRepresentation(array.nbytes))
            return BytesRepresentation(None, max(ceiling(most), ceiling(BytesRepresentation(None))))
        # The numbers of items, and of bytes of each.
        return compressed(BytesRepresentation(array.nbytes + 4 * (1 + math.prod(array.shape))))

    def _holds_raw_bytes(self, array: ArrayRepresentation) -> bool:
        # As zarr-python 3.0.0 and 3.0.1 write them.
        return self.id == "vlen-bytes" and array.dtype.type is np.void and array.dtype.fields is None

    def decode(self, encoded: Any, decoded: Representation) -> Any:
        """Return the array."""
        array = need_array(decoded, self.label)
        data = flat(encoded)
        # Numbers that metadata imply may take more.
        limit = ceiling(need_bytes(self.encoded(array), self.label))
        if data.size > limit:
            raise ValueError(f"{self.label}: {data.size} bytes, more than the limit of {limit}")
        count = math.prod(array.shape)
        try:
            if self.id in object_codecs.DECODERS:
                output = object_codecs.DECODERS[self.id](data.tobytes(), array, self.configuration)
            else:
                if self.id.startswith("vlen-"):
                    object_codecs.check_count(data.tobytes(), count)
                elif self.id == "categorize" and data.size != count * self._encoded_dtype().itemsize:
                    raise ValueError(f"{data.size} bytes, expected {count * self._encoded_dtype().itemsize}")
                output = self._call("decode", data)
            if self._holds_raw_bytes(array):
                # NumPy would pad or cut them.
                object_codecs.check_lengths(output, array.dtype.itemsize)
            return object_codecs.as_chunk(output, array)
        except ValueError as error:
            pass_on(error)
            raise ValueError(f"{self.label}: {str(error).removeprefix(f'{self.label}: ')}") from error
        except Exception as error:
            raise ValueError(f"{self.label}: {reason_of(error)}") from error

    def encode(self, decoded: Any, representation: Representation) -> Any:
        """Return the bytes."""
        array = np.ascontiguousarray(decoded).reshape(need_array(representation, self.label).shape)
        # The codec would take the element of an array without dimensions for its list of elements.
        encoded = self._call("encode", array.reshape(1) if self.id == "msgpack2" and not array.ndim else array)
        if check := object_codecs.CHECKS.get(self.id):
            try:
                check(encoded, array.size, self.configuration)
            except ValueError as error:
                raise ValueError(f"{self.label}: {error}") from None
        return encoded if isinstance(encoded, bytes) else flat(encoded)

    def _call(self, name: str, *data: Any) -> Any:
        rows = np.dtype(self.configuration["dtype"]) if self.id == "vlen-array" else None
        if rows is None or rows.kind not in "mM":
            return super()._call(name, *data)
        # Dates and durations have no buffer, which numcodecs takes from version 0.16 on.
        numbers = np.dtype("i8").newbyteorder(rows.byteorder)
        codec = replace(self, configuration={**self.configuration, "dtype": numbers.str})
        if name == "encode":
            return codec._call(name, _viewed(data[0], rows, numbers))
        return _viewed(codec._call(name, *data), numbers, rows)


def _in_native_order(configuration: Mapping[str, Any]) -> dict[str, Any]:
    given = {name: text for name in _DTYPES if (text := configuration.get(name))}
    return {**configuration, **{name: np.dtype(text).newbyteorder("=").str for name, text in given.items()}}


def _viewed(rows: Any, before: np.dtype[Any], after: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return an array of rows of type ``before`` as rows of another type; what is no row stays as it is."""
    items = rows.ravel().tolist()
    viewed = [np.asarray(item, before).view(after) if isinstance(item, np.ndarray) else item for item in items]
    return np.fromiter(viewed, object, len(viewed)).reshape(rows.shape)


# -- from metadata -----------------------------------------------------------------------------------------------------


def is_known(name: str) -> bool:
    """Return whether numcodecs has a codec of this name, after registering one of imagecodecs if necessary."""
    registry = import_module("numcodecs.registry")
    if name.startswith(_IMAGECODECS) and name not in registry.codec_registry:
        _register_imagecodecs(name)
    return name in registry.codec_registry or name in registry.entries


def make(name: str, configuration: Mapping[str, Any]) -> Any:
    """Return a codec of numcodecs: a new one each time, for they are cheap, and not documented as thread-safe."""
    import numcodecs

    if name.startswith(_IMAGECODECS):
        # In this process, it may not be registered yet: codecs may come from another one.
        is_known(name)
    return numcodecs.get_codec({"id": name, **arguments(name, configuration)})


def _register_imagecodecs(name: str) -> None:
    # One by one: registering all at once would also replace codecs that others have registered.
    try:
        imagecodecs = import_module("imagecodecs.numcodecs")
    except ImportError:
        return
    with contextlib.suppress(Exception):
        imagecodecs.register_codecs({name}, verbose=False)


def from_numcodecs(
    name: str, configuration: Configuration, *, kind: CodecKind = "bytes_to_bytes", allow_pickle: bool = False
) -> Codec:
    """Make a codec of this adapter.

    Parameters
    ----------
    name
        ``id`` of the codec in numcodecs.
    configuration
        Parameters of the codec.
    kind
        Kind of codec, which depends on the Zarr version and on the codec's position.
    allow_pickle
        Whether pickles may be loaded.

    Raises
    ------
    UnsupportedError
        If numcodecs does not know the codec, a required package is missing, or it is ``pickle`` and not allowed.
    MetadataError
        If parameters are missing, wrong or unknown.
    """
    if name == "pickle" and not allow_pickle:
        raise UnsupportedError(
            "the codec 'pickle' runs code from the data; if you trust its writer, open with allow_pickle=True",
            json_path=configuration.json_path,
        )
    if not is_known(name):
        command = COMMANDS["imagecodecs"] if name.startswith(_IMAGECODECS) else _COMMANDS.get(name)
        advice = command or "register it with numcodecs before opening"
        raise UnsupportedError(f"the codec {quote(name)} is not known: {advice}", json_path=configuration.json_path)
    if name == _PCODEC:
        require_package(name, configuration)
    values = PARAMETERS.get(name, passed_on)(configuration)
    configuration.finish()
    makers: dict[CodecKind, type[NumcodecsCodec]] = {
        "array_to_array": NumcodecsArrayToArray,
        "array_to_bytes": NumcodecsArrayToBytes,
        "bytes_to_bytes": NumcodecsBytesToBytes,
    }
    codec = makers[kind](name, values)
    try:
        if name in PARAMETERS and kind == "array_to_array":
            return codec
        codec.make()
    except Exception as error:
        raise MetadataError(
            f"numcodecs refuses the configuration of {name!r}: {str(error)[:200]}", json_path=configuration.json_path
        ) from None
    return codec


def from_v3(name: str, configuration: Configuration, *, allow_pickle: bool = False) -> Codec:
    """Make the v3 codec ``numcodecs.<name>``."""
    if name in ARRAY_TO_ARRAY:
        kind: CodecKind = "array_to_array"
    else:
        kind = "array_to_bytes" if name in ARRAY_TO_BYTES else "bytes_to_bytes"
    return from_numcodecs(name, configuration, kind=kind, allow_pickle=allow_pickle)
