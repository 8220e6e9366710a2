"""Elements of which the array's codec determines what it can hold: Python objects, and texts of ``categorize``."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from ..codecs.numcodecs_adapter import NumcodecsArrayToBytes, NumcodecsCodec
from ..codecs.sharding import ShardingIndexed
from ..documents.json import MAX_DEPTH, quote
from ..dtypes.masks import unmasked
from ..engines.cpu.write_threads import is_same_object
from ..errors import ArgumentError
from ..metadata.to_documents import plain_value
from .object_advice import is_missing, missing_text

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import numpy.typing as npt

    from ..codecs.codec import Codec
    from ..metadata.model import ArrayMetadata

#: Types of the elements of variable-length strings and bytes, by ``id`` of their codec.
TEXTS: Final[dict[str, type[str] | type[bytes]]] = {"vlen-utf8": str, "vlen-bytes": bytes}
# What msgpack reads back as it is, but for the range of numbers and what encodes texts.
_PLAIN: Final = frozenset({int, float, str, bool, type(None)})
_NUMBERS: Final = frozenset({np.dtype(code).type for code in "bBhHiIlLqQefd"})


@dataclass(frozen=True, slots=True)
class ObjectType:
    """Type of the Python objects, or of the texts, that an array's codec holds.

    Attributes
    ----------
    codec
        ``id`` of the codec that encodes them as bytes; None if it is not one of numcodecs.
    unset
        Whether the fill value is undefined, so that unwritten elements are read as the integer 0.
    configuration
        Parameters of the codec in numcodecs.
    fill_value
        Fill value, if it is defined.
    """

    codec: str | None
    unset: bool
    configuration: Mapping[str, Any] = field(default_factory=dict, hash=False)
    fill_value: Any = field(default=None, hash=False)

    @property
    def is_text(self) -> bool:
        """Whether elements are strings or bytes, so that no list or array is an element."""
        return self.codec in TEXTS or self.codec == "categorize"

    def is_missing(self, item: Any) -> bool:
        """Return whether an object is what unwritten elements are read as, which can also be written."""
        return is_same_object(item, 0 if self.unset else self.fill_value)


def object_codec(codecs: Sequence[Codec]) -> str | None:
    """Return the ``id`` of the numcodecs codec that encodes a chunk (an inner chunk, in a shard) as bytes, if any."""
    return next((codec.id for codec in _of_chunks(codecs) if isinstance(codec, NumcodecsArrayToBytes)), None)


def _of_chunks(codecs: Sequence[Codec]) -> Sequence[Codec]:
    shard = next((codec for codec in codecs if isinstance(codec, ShardingIndexed)), None)
    return codecs if shard is None else _of_chunks(shard.codecs)


def object_type_of(metadata: ArrayMetadata) -> ObjectType | None:
    """Return the type of an array's objects, or of its categories; None if its dtype tells what elements are."""
    unset = metadata.fill_value is None
    for codec in _of_chunks(metadata.codecs) if metadata.dtype.kind in "OU" else ():
        if isinstance(codec, NumcodecsArrayToBytes) or (isinstance(codec, NumcodecsCodec) and codec.id == "categorize"):
            return ObjectType(codec.id, unset, codec.configuration, metadata.fill_value)
    return ObjectType(None, unset) if metadata.dtype.hasobject else None


def checked(elements: npt.NDArray[Any], object_type: ObjectType, node: str) -> npt.NDArray[Any]:
    """Return elements as the array will read them back; those of ``vlen-array`` unchanged.

    Parameters
    ----------
    elements
        Array of dtype object, or of the array's texts.
    object_type
        Type of the elements.
    node
        Path of the array, for messages.

    Raises
    ------
    ArgumentError
        If the codec would refuse or change one of them.
    """
    if object_type.codec in TEXTS:
        return _texts(elements, TEXTS[object_type.codec], object_type, node)
    if object_type.codec == "categorize":
        return _categories(elements, object_type, node)
    if object_type.codec == "json2":
        values = _JsonValues.of(object_type.configuration)
        return as_objects(_held(elements, values, node), elements.shape)
    if object_type.codec == "msgpack2":
        packing = _Packing(
            **{"use_single_float": False, "use_bin_type": True, "raw": False, **object_type.configuration}
        )
        if packing.are_plain(elements.ravel().tolist()):
            return elements
        return as_objects(_held(elements, packing, node), elements.shape)
    return elements


def as_objects(items: Sequence[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Return items as an array of objects; NumPy would take lists and arrays among them for dimensions."""
    return np.fromiter(items, object, len(items)).reshape(shape)


def _held(elements: npt.NDArray[Any], values: _Values, node: str) -> list[Any]:
    """Return elements as a codec reads them back."""
    found: list[Any] = []
    for i, item in enumerate(elements.flat):
        try:
            found.append(values.plain(item))
        except ValueError as error:
            index = tuple(map(int, np.unravel_index(i, elements.shape))) if elements.ndim else ()
            at = f"element {index}: " if index else ""
            raise ArgumentError(f"{node}: {at}{quote(item)} cannot be stored: {error}") from None
    return found


def _categories(elements: npt.NDArray[Any], object_type: ObjectType, node: str) -> npt.NDArray[Any]:
    # What is no label is encoded as 0, which is decoded as the empty string.
    labels = {*object_type.configuration["labels"], ""}
    found = elements.ravel().tolist()
    if set(map(type, found)) <= {str} and set(found) <= labels:
        return elements
    # As in _texts, classes derived from str may claim to be equal to anything.
    found = [str.__getitem__(item, slice(None)) if isinstance(item, str) else item for item in found]
    for item in found:
        if not (item in labels if isinstance(item, str) else object_type.is_missing(item)):
            raise ArgumentError(
                f"{node}: {quote(item)} cannot be stored: it is not one of the labels of the codec categorize, "
                f"{quote(object_type.configuration['labels'])}, nor the empty string"
            )
    return as_objects(found, elements.shape)


class _Values(ABC):
    """What a codec of documents reads back."""

    __slots__ = ()

    #: Format of the documents, and what it has.
    format: ClassVar[str]
    kinds: ClassVar[str]

    def plain(self, value: Any, depth: int = 0) -> Any:
        """Return a value as it is read back, as :func:`plain_value` does; raise ValueError if it would be another."""
        if depth >= MAX_DEPTH - 1:
            raise ValueError(f"nested more than {MAX_DEPTH - 1} deep")
        return self._plain(value, depth)

    def _plain(self, value: Any, depth: int) -> Any:
        if isinstance(value, np.ndarray):
            value = unmasked(value, "an array in it")
        if isinstance(value, np.generic | np.ndarray) and value.dtype.kind in "biufUS":
            value = value.tolist()
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int | float):
            return self._number(value)
        if isinstance(value, str | bytes | bytearray | memoryview):
            return self._text(value)
        if self._is_own(value):
            return value
        if isinstance(value, list | tuple):
            return [self.plain(item, depth + 1) for item in value]
        if hasattr(value, "items"):
            return {self._name(name): self.plain(item, depth + 1) for name, item in value.items()}
        raise self._unknown(value)

    def _unknown(self, value: Any) -> ValueError:
        return ValueError(f"a {type(value).__name__} is not {self.format}; use {self.kinds}")

    @abstractmethod
    def _number(self, value: int | float) -> int | float: ...

    @abstractmethod
    def _text(self, value: str | bytes | bytearray | memoryview) -> str | bytes: ...

    @abstractmethod
    def _name(self, name: Any) -> str | bytes: ...

    def _is_own(self, value: Any) -> bool:
        """Return whether a value has a type of the format's own."""
        return False


@dataclass(frozen=True, slots=True)
class _JsonValues(_Values):
    """Parameters of ``json2``, and what it reads back.

    These are no documents of Zarr: NaN and infinities are what numcodecs writes and reads.
    """

    format: ClassVar[str] = "JSON"
    kinds: ClassVar[str] = "numbers, strings, booleans, None, lists and mappings"

    allow_nan: bool
    #: Encoding of the text; None if it is ASCII.
    encoding: str | None

    @classmethod
    def of(cls, configuration: Mapping[str, Any]) -> _JsonValues:
        """Return what the codec of a configuration reads back."""
        encoding = None if configuration.get("ensure_ascii", True) else configuration.get("encoding", "utf-8")
        return cls(configuration.get("allow_nan", True), encoding)

    def _number(self, value: int | float) -> int | float:
        if isinstance(value, float):
            if not self.allow_nan and not math.isfinite(value):
                raise ValueError(f"the codec json2 has allow_nan=False, so that there is no {float(value)}")
            return float(value)
        # It may have too many digits.
        number: int = plain_value(value, "an integer")
        return number

    def _text(self, value: str | bytes | bytearray | memoryview) -> str:
        if not isinstance(value, str):
            raise self._unknown(value)
        text = str.__getitem__(value, slice(None))
        if self.encoding is not None:
            try:
                text.encode(self.encoding)
            except UnicodeEncodeError as error:
                wrong = error.object[error.start : error.end]
                raise ValueError(
                    f"the codec json2 has ensure_ascii=False, and {self.encoding} cannot encode {wrong!r}"
                ) from None
        return text

    def _name(self, name: Any) -> str:
        if not isinstance(name, str):
            raise ValueError(f"names are strings, not {quote(name)}")
        return self._text(name)


@dataclass(frozen=True, slots=True)
class _Packing(_Values):
    """Parameters of ``msgpack2``, and what it reads back."""

    format: ClassVar[str] = "msgpack"
    kinds: ClassVar[str] = "numbers, strings, bytes, booleans, None, lists and mappings"

    use_single_float: bool
    use_bin_type: bool
    raw: bool

    def _plain(self, value: Any, depth: int) -> Any:
        # First what there is most of.
        if type(value) is dict and self.are_plain(value.values()) and self._are_names(value):
            return value.copy()
        if type(value) is list and value and type(value[0]) in _NUMBERS and len(set(map(type, value))) == 1:
            value = np.array(value).tolist()
        # Extension types are tuples, too, but hold bytes.
        if isinstance(value, list | tuple) and self.are_plain(value):
            return list(value)
        return _Values._plain(self, value, depth)

    def _unknown(self, value: Any) -> ValueError:
        return ValueError(f"{self.format} has no {type(value).__name__}; use {self.kinds}")

    def are_plain(self, values: Collection[Any]) -> bool:
        """Return whether values are numbers, texts, booleans and None for sure that are read back as they are."""
        kinds = set(map(type, values))
        if not kinds <= _PLAIN or (float in kinds and self.use_single_float):
            return False
        if int in kinds:
            integers = [value for value in values if type(value) is int]
            if min(integers) < -(2**63) or max(integers) >= 2**64:
                return False
        return str not in kinds or self._are_texts([value for value in values if type(value) is str])

    def _are_names(self, names: Collection[Any]) -> bool:
        return set(map(type, names)) <= {str} and self._are_texts(names)

    def _are_texts(self, texts: Collection[str]) -> bool:
        return not self.raw and all(map(str.isascii, texts))

    def _number(self, value: int | float) -> int | float:
        # Subclasses (enumerations) would be read back as plain numbers.
        if isinstance(value, int):
            if not -(2**63) <= value < 2**64:
                raise ValueError(f"msgpack has integers of 64 bits, which do not hold {quote(value)}")
            return int(value)
        if self.use_single_float and math.isfinite(value):
            with np.errstate(all="ignore"):
                if not np.isfinite(np.float32(value)):
                    raise ValueError(f"{value!r} is out of the range of use_single_float=True")
        return float(value)

    def _text(self, value: str | bytes | bytearray | memoryview) -> str | bytes:
        if not isinstance(value, str):
            if not self.use_bin_type and not self.raw:
                raise ValueError("with use_bin_type=False, the codec reads bytes as text; decode them first")
            return bytes(value)
        if self.raw:
            raise ValueError("with raw=True, the codec reads text as bytes; encode it first")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError("UTF-8 cannot encode an unpaired surrogate") from None
        return str.__getitem__(value, slice(None))

    def _name(self, name: Any) -> str | bytes:
        if not isinstance(name, str | bytes):
            # Written without complaint, and then nobody reads the chunk: msgpack refuses such keys by default.
            raise ValueError(f"keys are strings or bytes, not {quote(name)}")
        return self._text(name)

    def _is_own(self, value: Any) -> bool:
        import msgpack  # type: ignore[import-untyped,unused-ignore]

        return isinstance(value, msgpack.ExtType | msgpack.Timestamp)


def _texts(
    objects: npt.NDArray[Any], kind: type[str] | type[bytes], object_type: ObjectType, node: str
) -> npt.NDArray[Any]:
    # A list of references: twice as fast as iterating over the array.
    found = objects.ravel().tolist()
    plain = set(map(type, found)) <= {kind}
    for item in () if plain else found:
        # The value that unwritten elements are read as can also be written.
        if not isinstance(item, kind) and not (object_type.unset and type(item) is int and item == 0):
            advice = f"; {missing_text(kind)}" if is_missing(item) else ""
            raise ArgumentError(
                f"{node}: {quote(item)} cannot be stored: elements are of type {kind.__name__}, "
                f"not {type(item).__name__}{advice}"
            )
    if not plain:
        # Codecs refuse subclasses, and their str() may return anything; a slice has the base class.
        own: Any = kind.__getitem__
        found = [own(item, slice(None)) if isinstance(item, kind) else kind() for item in found]
        objects = np.fromiter(found, object, len(found)).reshape(objects.shape)
    if kind is str and not all(map(str.isascii, found)):
        for item in found:
            try:
                item.encode()
            except UnicodeEncodeError:
                raise ArgumentError(
                    f"{node}: {quote(item)} cannot be stored: UTF-8 cannot encode an unpaired surrogate"
                ) from None
    return objects
