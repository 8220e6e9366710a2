"""Python objects as elements: which of them an array can hold. Its codec says."""

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

#: What the codecs of texts of any length hold.
TEXTS: Final[dict[str, type[str] | type[bytes]]] = {"vlen-utf8": str, "vlen-bytes": bytes}


@dataclass(frozen=True, slots=True)
class ObjectType:
    """Type of the Python objects that an array holds.

    Attributes
    ----------
    codec
        ``id`` of the codec that makes bytes of them; None if it is not one of numcodecs.
    unset
        Whether the fill value is left open: elements that nobody has written are then read as the integer 0.
    """

    codec: str | None
    unset: bool


def object_codec(codecs: Sequence[Codec]) -> str | None:
    """Return the ``id`` of the codec of numcodecs that makes bytes of a chunk, of an inner chunk in a shard, if any."""
    for codec in codecs:
        if isinstance(codec, ShardingIndexed):
            return object_codec(codec.codecs)
        if isinstance(codec, NumcodecsArrayToBytes):
            return codec.id
    return None


def object_type_of(metadata: ArrayMetadata) -> ObjectType | None:
    """Return the type of an array's objects; None where elements are no Python objects."""
    if not metadata.dtype.hasobject:
        return None
    return ObjectType(object_codec(metadata.codecs), unset=metadata.fill_value is None)


def checked(objects: npt.NDArray[Any], object_type: ObjectType, node: str) -> npt.NDArray[Any]:
    """Return objects as the array will give them back.

    Parameters
    ----------
    objects
        Of dtype object.
    object_type
        Type of the objects.
    node
        Path of the array, for messages.

    Raises
    ------
    ArgumentError
        If one of them would be refused by the codec, or would become another one.
    """
    if object_type.codec in TEXTS:
        return _texts(objects, TEXTS[object_type.codec], object_type, node)
    if object_type.codec == "json2":
        result = np.empty(objects.shape, object)
        # Element by element: NumPy would take lists for dimensions.
        for index, item in np.ndenumerate(objects):
            result[index] = plain_value(item, f"{node}: {quote(item)}")
        return result
    return objects


def _texts(
    objects: npt.NDArray[Any], kind: type[str] | type[bytes], object_type: ObjectType, node: str
) -> npt.NDArray[Any]:
    # A list of references: twice as fast as going through the array.
    found = objects.ravel().tolist()
    plain = set(map(type, found)) <= {kind}
    for item in () if plain else found:
        # What the elements that nobody has written are read as can be written.
        if not isinstance(item, kind) and not (object_type.unset and type(item) is int and item == 0):
            raise ArgumentError(
                f"{node}: {quote(item)} cannot be stored: elements are of type {kind.__name__}, "
                f"not {type(item).__name__}"
            )
    if not plain:
        # Codecs take no derived classes, whose str() may be anything: a slice is of the class itself.
        own: Any = kind.__getitem__
        found = [own(item, slice(None)) if isinstance(item, kind) else kind() for item in found]
        objects = np.fromiter(found, object, len(found)).reshape(objects.shape)
    if kind is str and not all(map(str.isascii, found)):
        for item in found:
            try:
                item.encode()
            except UnicodeEncodeError:
                raise ArgumentError(
                    f"{node}: {quote(item)} cannot be stored: half of a surrogate pair is no character of UTF-8"
                ) from None
    return objects
