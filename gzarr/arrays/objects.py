"""Python objects as elements. The array's codec determines which of them it can hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..codecs.numcodecs_adapter import NumcodecsArrayToBytes
from ..codecs.sharding import ShardingIndexed
from ..documents.json import quote
from ..errors import ArgumentError
from ..metadata.to_documents import plain_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from ..codecs.codec import Codec
    from ..metadata.model import ArrayMetadata

#: Types of the elements of variable-length strings and bytes, by ``id`` of their codec.
TEXTS: Final[dict[str, type[str] | type[bytes]]] = {"vlen-utf8": str, "vlen-bytes": bytes}


@dataclass(frozen=True, slots=True)
class ObjectType:
    """Type of the Python objects that an array holds.

    Attributes
    ----------
    codec
        ``id`` of the codec that encodes them as bytes; None if it is not one of numcodecs.
    unset
        Whether the fill value is undefined, so that unwritten elements are read as the integer 0.
    """

    codec: str | None
    unset: bool


def object_codec(codecs: Sequence[Codec]) -> str | None:
    """Return the ``id`` of the numcodecs codec that encodes a chunk (an inner chunk, in a shard) as bytes, if any."""
    for codec in codecs:
        if isinstance(codec, ShardingIndexed):
            return object_codec(codec.codecs)
        if isinstance(codec, NumcodecsArrayToBytes):
            return codec.id
    return None


def object_type_of(metadata: ArrayMetadata) -> ObjectType | None:
    """Return the type of an array's objects, or None if its elements are not Python objects."""
    if not metadata.dtype.hasobject:
        return None
    return ObjectType(object_codec(metadata.codecs), unset=metadata.fill_value is None)


def checked(objects: npt.NDArray[Any], object_type: ObjectType, node: str) -> npt.NDArray[Any]:
    """Return objects as the array will read them back.

    Parameters
    ----------
    objects
        Array of dtype object.
    object_type
        Type of the objects.
    node
        Path of the array, for messages.

    Raises
    ------
    ArgumentError
        If the codec would refuse or change one of them.
    """
    if object_type.codec in TEXTS:
        return _texts(objects, TEXTS[object_type.codec], object_type, node)
    if object_type.codec == "json2":
        result = np.empty(objects.shape, object)
        # One element at a time: NumPy would take lists for dimensions.
        for index, item in np.ndenumerate(objects):
            result[index] = plain_value(item, f"{node}: {quote(item)}")
        return result
    return objects


def _texts(
    objects: npt.NDArray[Any], kind: type[str] | type[bytes], object_type: ObjectType, node: str
) -> npt.NDArray[Any]:
    # A list of references: twice as fast as iterating over the array.
    found = objects.ravel().tolist()
    plain = set(map(type, found)) <= {kind}
    for item in () if plain else found:
        # The value that unwritten elements are read as can also be written.
        if not isinstance(item, kind) and not (object_type.unset and type(item) is int and item == 0):
            raise ArgumentError(
                f"{node}: {quote(item)} cannot be stored: elements are of type {kind.__name__}, "
                f"not {type(item).__name__}"
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
