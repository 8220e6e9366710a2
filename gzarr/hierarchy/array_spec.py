"""Metadata of new arrays from the caller's arguments. Everything is checked here, before a store is touched."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..arrays.elements import as_elements
from ..arrays.objects import TEXTS, ObjectType, object_codec
from ..choices import choice
from ..codecs.choice import AUTO, choose, gives_level
from ..codecs.sharding import ShardingIndexed
from ..codecs.transpose import TransposeCodec
from ..documents.json import quote
from ..dtypes import fill_value as fill_values
from ..dtypes.properties import kind_of, native, packed
from ..dtypes.times import not_a_time
from ..dtypes.v2 import parse_v2
from ..dtypes.v3 import is_only_numpys, parse_v3
from ..dtypes.variable_length import is_variable_bytes, registered_name
from ..errors import ArgumentError, MetadataError, UnsupportedError
from ..integers import as_integer
from ..metadata.chunk_grid import ChunkGrid
from ..metadata.formats import FORMATS
from ..metadata.model import ArrayMetadata, ChunkKeyEncoding, ZarrFormat, data_type_json
from ..metadata.parts import DIMENSIONS_ATTRIBUTE, dimension_names_of, parse_chunk_shapes
from ..metadata.to_documents import array_documents, check_shape, plain, plain_value
from ..nodes.reader import NodeReader, suggest
from ..stores.memory import MemoryStore
from . import auto_chunks
from .keywords import ArrayArguments, NewArrayArguments

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from typing import Unpack

    from ..metadata.format import Format
    from ..metadata.layout import Layout

#: Assumed bytes of a variable-length item, where sizes are chosen: no less, since it takes more in memory.
_TEXT_NBYTES: Final = 16
_TEXT_CODECS: Final = tuple(TEXTS)
#: How deep the lengths of chunks along a dimension are nested: in a list, with runs as lists in it.
_RUNS: Final = 2
#: A ``fill_value`` that is ``null`` in the document, where the format allows that: nothing is said of absent chunks.
UNDEFINED: Final = object()


_DEFAULTS: Final[ArrayArguments] = {
    "dtype": None,
    "chunks": AUTO,
    "shards": None,
    "codecs": AUTO,
    "filters": AUTO,
    "serializer": AUTO,
    "compressors": AUTO,
    "fill_value": None,
    "order": "C",
    "attributes": None,
    "dimension_names": None,
    "chunk_key_encoding": None,
}


def check_names(
    arguments: Iterable[str], known: Collection[str] = ArrayArguments.__optional_keys__, others: Iterable[str] = ()
) -> None:
    """Raise if a name is not an argument of :func:`gzarr.create_array`, for functions that pass theirs on.

    Parameters
    ----------
    arguments
        The names.
    known
        Those that are passed on.
    others
        Those that a function has besides them, which may have been meant.
    """
    for name in arguments:
        if name not in known:
            new = sorted(NewArrayArguments.__optional_keys__)
            of_group = "an array in a group has the format of the group, and " if name == "zarr_format" else ""
            raise ArgumentError(
                f"there is no argument {name!r}; {of_group}the arguments for a new array are {', '.join(new)}"
                f"{suggest(name, dict.fromkeys([*new, *others]))}"
            )


def new_metadata(
    path: str,
    shape: Any,
    zarr_format: ZarrFormat,
    *,
    layout: Layout | None = None,
    object_nbytes: int = 0,
    **arguments: Unpack[ArrayArguments],
) -> ArrayMetadata:
    """Return the metadata of a new array, as read back from its documents.

    Parameters
    ----------
    path
        Path of the array in its store.
    shape
        Its shape in elements.
    zarr_format
        Zarr format of its documents.
    layout
        Layout of the 2022 draft hierarchy that the array will be in; None for a new hierarchy.
    object_nbytes
        Mean bytes of elements that are Python objects, for chunks that are chosen; 0 if not known.
    **arguments
        As for :func:`gzarr.create_array`. ``fill_value`` is also :data:`UNDEFINED`; version 3 then has zero.

    Raises
    ------
    ArgumentError
        If an argument is wrong, or the format cannot represent it.
    """
    check_names(arguments)
    format = FORMATS[zarr_format]
    size = check_shape(shape)
    given = {**_DEFAULTS, **arguments}
    coding = {name: given[name] for name in ("codecs", "filters", "serializer", "compressors")}
    stored, text, named = data_type(given["dtype"], zarr_format)
    if text is None and stored.hasobject and _is_auto(given["codecs"]) and _is_auto(given["filters"]):
        raise ArgumentError(
            "dtype=object: say what the objects are; dtype=str and dtype=bytes are variable-length strings and bytes, "
            "other objects need zarr_format=2 and a filter such as filters=[{'id': 'json2'}]"
        )
    element = native(stored)
    chain = choose(
        element,
        text,
        **coding,
        big=format.features.byte_order_codec and stored.byteorder == ">",
        blosc_only=not format.features.zstd,
        ids=format.features.numcodecs_ids,
        stored=None if format.features.byte_order_codec else stored,
    )
    order = choice("order", given["order"], ("C", "F"))
    if order == "F" and len(size) > 1 and not any(isinstance(codec, TransposeCodec) for codec in chain):
        chain = (TransposeCodec(tuple(reversed(range(len(size))))), *chain)
    itemsize = _TEXT_NBYTES if text else element.itemsize
    if element.hasobject:
        itemsize = max(itemsize, object_nbytes)
    chunk_grid, inner_shape = _grid(given["chunks"], given["shards"], size, itemsize)
    if inner_shape is not None:
        chain = (ShardingIndexed(inner_shape, chain, format.shard_index_codecs),)
    plain_attributes = plain({} if given["attributes"] is None else given["attributes"])
    names = _dimension_names(given["dimension_names"], len(size))
    if names is not None and not format.features.dimension_names:
        if names and not any(name is not None for name in names):
            # Version 3's other way to say that no dimension has a name.
            names = None
        elif None in names:
            raise ArgumentError("before version 3, either all dimensions have a name or none; got a None among them")
        else:
            plain_attributes = {**plain_attributes, DIMENSIONS_ATTRIBUTE: list(names)}
    metadata = ArrayMetadata(
        chunk_grid=chunk_grid,
        dtype=element,
        data_type=format.data_type_text(stored, text, named),
        chunk_key_encoding=_encoding(given["chunk_key_encoding"], format, layout),
        fill_value=_fill_value(given["fill_value"], element, text, object_codec(chain)),
        codecs=chain,
        attributes=plain_attributes,
        dimension_names=names if format.features.dimension_names else dimension_names_of(plain_attributes, len(size)),
        zarr_format=zarr_format,
        document=format.new_document(layout),
        chunk_prefix=format.chunk_prefix(path, layout),
        hierarchy="" if layout is None else layout.base,
    )
    return replace(_as_read(metadata, path), level_is_free=not gives_level(*coding.values()))


def _as_read(metadata: ArrayMetadata, path: str) -> ArrayMetadata:
    """Return the metadata as read back from their documents, which checks the documents."""
    try:
        documents = array_documents(metadata, path)
        # A codec that runs pickled code is here only if it was allowed: of an array that was opened so.
        reader = NodeReader(MemoryStore(dict(documents)), allow_pickle=True)
        entry = reader.node(path, metadata.zarr_format, groups=False)
    except MetadataError as error:
        raise ArgumentError(f"no such array can be created: {error.message}") from None
    assert entry is not None
    read = entry.metadata
    assert isinstance(read, ArrayMetadata)
    if not metadata.dtype.hasobject and metadata.fill_value is not None and _bits(metadata) != _bits(read):
        raise ArgumentError(
            f"fill_value: a document of zarr_format={metadata.zarr_format!r} cannot hold the bits of "
            f"{metadata.fill_value!r}, {_bits(metadata)[:32].hex()}: they would be read as {_bits(read)[:32].hex()}; "
            "use the ordinary NaN, or zarr_format=3"
        )
    return read


def _bits(metadata: ArrayMetadata) -> bytes:
    return np.asarray(metadata.fill_value, metadata.dtype).tobytes()


# -- data types --------------------------------------------------------------------------------------------------------


def data_type(dtype: Any, zarr_format: ZarrFormat) -> tuple[np.dtype[Any], str | None, str | None]:
    """Resolve the caller's ``dtype``.

    Returns
    -------
    dtype
        NumPy dtype in the requested byte order.
    text
        ``id`` of the codec of variable-length strings or bytes; None for other elements.
    name
        Version 3 data type, if it was given by name or as an object.

    Raises
    ------
    ArgumentError
        If ``dtype`` is not a data type.
    """
    if dtype is None:
        raise ArgumentError("a new array needs a dtype (or data)")
    if isinstance(dtype, np.ndarray):
        raise ArgumentError("dtype is an array; give its dtype, or data=")
    if dtype in (str, "str") or type(dtype).__name__ == "StringDType":
        return np.dtype(object), "vlen-utf8", None
    if dtype is bytes:
        return np.dtype(object), "vlen-bytes", None
    refused: object = None
    if isinstance(dtype, dict) or (isinstance(dtype, str) and not is_only_numpys(dtype)):
        try:
            element, name = parse_v3(dtype)
        except UnsupportedError as error:
            # It may still be one of NumPy's names.
            refused = error.message
            if isinstance(dtype, dict):
                raise ArgumentError(f"dtype: {error.message}") from None
        except MetadataError as error:
            raise ArgumentError(f"dtype: {error.message}") from None
        else:
            text = _TEXT_CODECS[is_variable_bytes(name)] if element.hasobject else None
            return element, text, registered_name(name)
    try:
        result: np.dtype[Any] = np.dtype(dtype)
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"dtype={quote(dtype)} is neither a NumPy dtype nor a Zarr data type: {refused or error}"
        ) from None
    if result.kind in "SU" and not result.itemsize:
        return np.dtype(object), _TEXT_CODECS[result.kind == "S"], None
    if result.hasobject and (result.fields is not None or not FORMATS[zarr_format].features.objects):
        raise ArgumentError(
            f"dtype={quote(dtype)}: elements are Python objects; use dtype=str or dtype=bytes for variable-length "
            "strings or bytes"
        )
    return packed(result), None, None


def _fill_value(value: Any, dtype: np.dtype[Any], text: str | None, codec: str | None) -> Any:
    """Return the fill value as an element; for None, zero: NaT for dates and times, the empty string for strings."""
    if value is UNDEFINED:
        return None
    if dtype.hasobject:
        return _object_fill_value(value, text, codec)
    if value is None:
        return _zero(dtype)
    kind = kind_of(dtype)
    if kind in "SUV" and isinstance(value, int | float) and value == 0:
        return np.zeros((), dtype)[()]
    if (kind in "fc" and isinstance(value, str)) or (kind == "c" and isinstance(value, list | tuple)):
        try:
            return fill_values.from_v3(value, dtype, dtype.name)
        except MetadataError as error:
            raise ArgumentError(f"fill_value: {error.message}") from None
    return as_elements(value, dtype, (), "fill_value")[()]


def _zero(dtype: np.dtype[Any]) -> Any:
    """Return an element of zeros, with NaT for dates and times, in the fields of records, too."""
    if dtype.kind in "mM":
        return not_a_time(dtype)
    element = np.zeros((), dtype)
    for name in dtype.names or ():
        element[name] = _zero(dtype[name].base)
    return element[()]


def _object_fill_value(value: Any, text: str | None, codec: str | None) -> Any:
    """Return the fill value of objects. None stays None, except for strings and bytes, where it is the empty one."""
    if text is not None and (value is None or (isinstance(value, int) and value == 0)):
        return TEXTS[text]()
    if value is None:
        return None
    # A codec that cannot hold them is refused later, by its own message.
    kind = text if text is not None else codec
    if kind in TEXTS:
        return as_elements(value, np.dtype(object), (), "fill_value", ObjectType(kind, unset=False))[()]
    return plain_value(value, "fill_value")


# -- grid --------------------------------------------------------------------------------------------------------------


def _grid(chunks: Any, shards: Any, shape: tuple[int, ...], itemsize: int) -> tuple[ChunkGrid, tuple[int, ...] | None]:
    """Return the grid of the chunks (of the shards, if any), and the shape of the chunks in a shard."""
    if not _is_auto(chunks) and auto_chunks.is_rectilinear(chunks):
        if shards is not None:
            raise ArgumentError(
                "chunks with listed lengths cannot be in shards; list the lengths of the shards instead, and pass one "
                "length for each dimension as chunks"
            )
        return _rectilinear(chunks, shape, itemsize, "chunks"), None
    if shards is None or _is_auto(shards):
        if _is_auto(chunks):
            chunk_shape = auto_chunks.auto_chunks(shape, itemsize)
        else:
            chunk_shape = auto_chunks.full_shape(chunks, shape, "chunks")
        shard_shape = None if shards is None else auto_chunks.auto_shards(shape, chunk_shape, itemsize)
        if shard_shape is None:
            return ChunkGrid.regular(shape, chunk_shape), None
        return ChunkGrid.regular(shape, shard_shape), chunk_shape
    if auto_chunks.is_rectilinear(shards):
        grid = _rectilinear(shards, shape, itemsize, "shards")
    else:
        grid = ChunkGrid.regular(shape, auto_chunks.full_shape(shards, shape, "shards"))
    # Greatest common divisor of the shard lengths along each dimension.
    unit = tuple(axis.common_length for axis in grid.axes)
    if _is_auto(chunks):
        return grid, auto_chunks.auto_chunks_in(unit, itemsize)
    chunk_shape = auto_chunks.full_shape(chunks, shape, "chunks")
    for d, (shard, chunk) in enumerate(zip(unit, chunk_shape, strict=True)):
        if shard % chunk:
            said = grid.chunk_shape if grid.is_regular else quote(shards)
            raise ArgumentError(f"shards {said} are not multiples of chunks {chunk_shape} in dimension {d}")
    return grid, chunk_shape


def _rectilinear(lengths: Any, shape: tuple[int, ...], itemsize: int, what: str) -> ChunkGrid:
    """Return a rectilinear grid, from the caller's lengths."""
    if len(lengths) != len(shape):
        raise ArgumentError(f"{what} {quote(lengths)} have {len(lengths)} dimensions, but the array has {len(shape)}")
    listed = [size if as_integer(item) == -1 else _lengths(item) for item, size in zip(lengths, shape, strict=True)]
    try:
        return parse_chunk_shapes(listed, shape, np.dtype(f"V{itemsize}"), what)
    except MetadataError as error:
        raise ArgumentError(str(error)) from None


def _lengths(value: Any, depth: int = 0) -> Any:
    """Return lengths, also in lists of them and in runs, as Python integers; the parser refuses anything else."""
    if isinstance(value, list | tuple) and depth < _RUNS:
        return [_lengths(item, depth + 1) for item in value]
    number = as_integer(value)
    return value if number is None else number


def _encoding(value: Any, format: Format, layout: Layout | None) -> ChunkKeyEncoding:
    """Return the chunk key encoding; a separator alone selects the format's default encoding with it."""
    usual, *others = format.chunk_key_encodings(layout)
    if value is None:
        return usual
    if isinstance(value, ChunkKeyEncoding):
        value = {"name": value.name, "separator": value.separator}
    if isinstance(value, str):
        value = {"separator": value} if value in ("/", ".") else {"name": value}
    if hasattr(value, "to_dict"):
        value = value.to_dict()
    if not isinstance(value, dict):
        raise ArgumentError(f"chunk_key_encoding must be a name, a separator or an object, not {quote(value)}")
    configuration = value.get("configuration")
    configuration = {} if configuration is None else configuration
    if not isinstance(configuration, dict):
        raise ArgumentError(f"chunk_key_encoding: configuration must be an object, not {quote(configuration)}")
    _check_members(value, ("name", "separator", "configuration"), "chunk_key_encoding")
    given = {**value, **configuration}
    asked = given.get("name", usual.name)
    encoding = next((one for one in (usual, *others) if isinstance(asked, str) and one.name == asked), None)
    if encoding is None:
        raise ArgumentError(f"chunk_key_encoding: zarr_format={format.zarr_format!r} has no encoding {quote(asked)}")
    _check_members(configuration, ("separator",), "chunk_key_encoding: configuration")
    said = choice("chunk_key_encoding: the separator", given.get("separator", encoding.separator), ("/", "."))
    return ChunkKeyEncoding(encoding.name, said)


def _check_members(given: Mapping[Any, Any], known: tuple[str, ...], where: str) -> None:
    for name in given:
        if name not in known:
            close = suggest(name, dict.fromkeys(known)) if isinstance(name, str) else ""
            raise ArgumentError(f"{where} has no member {quote(name)}, only {', '.join(map(repr, known))}{close}")


def _dimension_names(value: Any, ndim: int) -> tuple[str | None, ...] | None:
    if value is None:
        return None
    if isinstance(value, np.ndarray):
        value = value.tolist()
    # Arrays without dimensions have no items, and sets no order.
    unlisted = isinstance(value, str | bytes | set | frozenset) or getattr(value, "ndim", 1) == 0
    names = (value,) if unlisted or not hasattr(value, "__iter__") else tuple(value)
    if len(names) != ndim or not all(name is None or isinstance(name, str) for name in names):
        raise ArgumentError(f"dimension_names must be {ndim} strings or Nones, one per dimension, not {quote(value)}")
    # Members of an enumeration of texts would print as their own names.
    return tuple(None if name is None else str.__str__(name) for name in names)


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == AUTO


def arguments_of(metadata: ArrayMetadata) -> dict[str, Any]:
    """Return arguments of :func:`gzarr.create_array` for an array like another one, in any format.

    Attributes and ``zarr_format`` are left out.
    """
    text = object_codec(metadata.codecs)
    dtype: Any = data_type_json(metadata.data_type)
    if metadata.dtype.hasobject and text in TEXTS:
        dtype = TEXTS[text]
    elif isinstance(dtype, list) or (isinstance(dtype, str) and dtype[:1] in "<>|"):  # of version 2, in NumPy's terms
        dtype = parse_v2(dtype)
    codecs, shards = FORMATS[metadata.zarr_format].copied_codecs(metadata.codecs), None
    grid = metadata.chunk_grid
    chunks: Any = grid.chunk_shape if grid.is_regular else [axis.listing for axis in grid.axes]
    first = codecs[0]
    if isinstance(first, ShardingIndexed) and len(codecs) == 1:
        codecs, chunks, shards = first.codecs, first.chunk_shape, chunks
    return {
        "shape": metadata.shape,
        "dtype": dtype,
        "chunks": chunks,
        "shards": shards,
        "codecs": codecs,
        "fill_value": metadata.fill_value,
        "dimension_names": metadata.dimension_names,
    }
