"""Self-test of every codec, for ``gzarr doctor``: small arrays in memory are encoded and read back.

They are encoded independently of gzarr's codecs, by numcodecs, google-crc32c, the standard library, or the encoders
below. Codecs that are a few lines of NumPy or Python always work and are not tested. Neither are codecs of optional
packages: opening an array that needs one reports a missing package.
"""

from __future__ import annotations

import functools
import itertools
import json
import struct
import zlib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from ..errors import GzarrError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    from ..arrays.array import Array
    from ..plan.decode_program import Decoding

    AnyArray = npt.NDArray[Any]
    Json = dict[str, Any]

#: Four chunks, three of which reach beyond the edge. A chunk of four-byte elements has a full Blosc block and a short
#: one if the bytes of elements are compressed separately, else four full ones and a short one. The length of the short
#: block is not a multiple of 8 elements.
_SHAPE: Final = (200, 150)
_CHUNK_SHAPE: Final = (131, 131)
_SHARD_SHAPE: Final = (262, 262)
_BLOSC_BLOCK_BYTES: Final = 16 << 10
_LITTLE: Final = {"name": "bytes", "configuration": {"endian": "little"}}
_CRC32C: Final = {"name": "crc32c"}
#: Minimum and maximum bytes of a copy in Snappy streams written here.
_LEAST_COPY, _MOST_COPY = 8, 64


@dataclass(frozen=True)
class Outcome:
    """Outcome of the test of one codec.

    Attributes
    ----------
    codec
        Name of the codec, with its configuration.
    passed
        Whether every element was read correctly.
    decoded_by
        ``"cuda"`` or ``"cpu"``: decoder of such chunks for results on the tested device; None if unknown.
    decode_path
        Way of decoding, as in :attr:`gzarr.Array.decode_path`.
    message
        Reason of the failure; ``""`` if the codec passed.
    """

    codec: str
    passed: bool
    decoded_by: Literal["cpu", "cuda"] | None = None
    decode_path: str = ""
    message: str = ""

    def to_json(self) -> Json:
        """Return the outcome as a JSON object."""
        return asdict(self)


@dataclass(frozen=True)
class Case:
    """Array that tests one codec.

    Attributes
    ----------
    codec
        Name of the codec, with its configuration.
    values
        Elements, ``(200, 150)``.
    document
        Metadata document.
    key
        Store key of the document.
    chunk_key
        Store key of a chunk, with a ``{}`` for each coordinate.
    chunk_shape
        Shape of the chunks (shards) that ``encode`` takes, in elements.
    encode
        Function from a chunk in C order to its bytes.
    """

    codec: str
    values: AnyArray
    document: Json
    key: str
    chunk_key: str
    chunk_shape: tuple[int, int]
    encode: Callable[[AnyArray], bytes]

    def store(self) -> dict[str, bytes]:
        """Return the array as keys and values."""
        store = {self.key: json.dumps(self.document).encode()}
        rows, columns = self.chunk_shape
        grid = (range(-(-n // length)) for n, length in zip(self.values.shape, self.chunk_shape, strict=True))
        for i, j in itertools.product(*grid):
            part = self.values[i * rows : (i + 1) * rows, j * columns : (j + 1) * columns]
            chunk = np.zeros(self.chunk_shape, self.values.dtype)
            chunk[: part.shape[0], : part.shape[1]] = part
            store[self.chunk_key.format(i, j)] = self.encode(chunk)
        return store


def run(device: str) -> Iterator[Outcome]:
    """Test each codec.

    Parameters
    ----------
    device
        Device of the results, ``"cpu"`` or ``"cuda:N"``. A GPU decodes the chunks if it can.
    """
    for case in cases():
        yield check(case, device)


def check(case: Case, device: str) -> Outcome:
    """Encode an array, read it, and compare every element."""
    try:
        store = case.store()
    except Exception as error:  # encoders may raise anything: it is a finding
        return Outcome(case.codec, False, message=f"could not be encoded for the test: {sentence(error)}")
    try:
        return _read(case, store, device)
    except Exception as error:  # likewise
        return Outcome(case.codec, False, message=sentence(error))


def sentence(error: BaseException) -> str:
    """Return an exception on one line: the message alone for gzarr's errors, with its type for others."""
    text = " ".join(str(error).split())
    if isinstance(error, GzarrError) and text:
        return text
    name = type(error).__name__
    return f"{name}: {text}" if text else name


def _read(case: Case, store: dict[str, bytes], device: str) -> Outcome:
    from ..arrays.host_copies import host_copy
    from ..engines.cpu.native import take_stats
    from ..hierarchy.open import open_array

    array = open_array(store, device=device)
    on_gpu = array.device != "cpu" and _is_for_gpu(array)
    # ``decode_path`` describes reads with ``decode="auto"``, which may leave such a small array to the CPU.
    path = f"cuda: {_decoding(array).path.partition(': ')[2]}" if on_gpu else array.decode_path
    take_stats()
    result = array.read(decode="cuda") if array.device != "cpu" else array.read()
    elements = host_copy(result) if array.device != "cpu" else result
    chunks_by_cpu = int(take_stats()["chunks"])
    message = _difference(elements, case.values)
    if not message and on_gpu and chunks_by_cpu:
        message = (
            f"the elements are right, but the GPU refused {chunks_by_cpu} chunks, which the CPU had to decode; "
            "this version of the driver, of nvCOMP, or (if it compiles the kernels) of numba-cuda may not suit gzarr"
        )
    return Outcome(case.codec, not message, "cuda" if on_gpu else "cpu", path, message)


def _decoding(array: Array) -> Decoding:
    from ..codecs.codec import ArrayRepresentation
    from ..engines import kernels
    from ..plan.decode_program import analyse

    return analyse(array.codecs, ArrayRepresentation(array.metadata.chunk_shape, array.dtype), kernels.available())


def _is_for_gpu(array: Array) -> bool:
    """Return whether the array's device can decode its chunks."""
    from ..engines.cuda.device_program import device_program
    from ..engines.cuda.devices import get_device

    program = device_program(_decoding(array))
    if program is None or program.algorithm is None:
        return program is not None
    return get_device(array.device).decompressor(program.algorithm) is not None


def _difference(elements: Any, expected: AnyArray) -> str:
    if elements.shape != expected.shape or elements.dtype != expected.dtype:
        return f"read {elements.dtype} {elements.shape}, expected {expected.dtype} {expected.shape}"
    different = np.argwhere(elements != expected)
    if not len(different):
        return ""
    first = tuple(different[0].tolist())
    return f"{len(different)} of {expected.size} elements differ from what was encoded, the first at {first}"


# -- the arrays --------------------------------------------------------------------------------------------------------


def cases() -> Iterator[Case]:
    """Yield a case for each codec, and for each configuration of ``blosc``."""
    counts = np.random.default_rng(0).integers(-3, 5, _SHAPE).cumsum().reshape(_SHAPE)
    whole = (7 * counts).astype("<i4")
    yield _v2("uncompressed", whole)
    for name in ("zstd", "lz4", "gzip", "zlib", "bz2"):
        yield _v2(name, whole, {"id": name})
    yield _v2("lzma", whole, {"id": "lzma", "preset": 1})
    for cname, shuffle in itertools.product(("lz4", "lz4hc", "zstd", "zlib", "blosclz"), (0, 1, 2)):
        yield _v2(_blosc_name(cname, shuffle), whole, _blosc(cname, shuffle))
    # The Blosc library in numcodecs' wheels is built without Snappy.
    for shuffle in (0, 1):
        encode = functools.partial(_blosc_snappy, shuffle=bool(shuffle))
        yield _v2(_blosc_name("snappy", shuffle), whole, _blosc("snappy", shuffle), encode=encode)
    for algorithm, encode_bytes in (("deflate", _deflate), ("snappy", _snappy)):
        config = {"id": "nvcomp_batch", "algorithm": algorithm, "options": {}}
        yield _v2(f"nvcomp_batch({algorithm})", whole, config, encode=encode_bytes)

    zstd = {"id": "zstd"}
    tenths = 1000 + counts / 10
    quarters = counts % 1024 / 4
    scaled = {"id": "fixedscaleoffset", "offset": 1000, "scale": 10, "dtype": "<f8", "astype": "<i4"}
    yield _v2("delta", whole, zstd, [{"id": "delta", "dtype": "<i4", "astype": "<i4"}])
    yield _v2("shuffle", whole, zstd, [{"id": "shuffle", "elementsize": 4}])
    yield _v2("fixedscaleoffset", tenths, zstd, [scaled])
    # Quarters survive the rounding of the next two codecs exactly.
    yield _v2("quantize", quarters, zstd, [{"id": "quantize", "digits": 2, "dtype": "<f8", "astype": "<f4"}])
    yield _v2("bitround", quarters.astype("<f4"), zstd, [{"id": "bitround", "keepbits": 12}])
    yield _v2("packbits", whole % 3 == 0, zstd, [{"id": "packbits"}])
    yield _v2("astype", whole.astype("<i8"), zstd, [{"id": "astype", "encode_dtype": "<i4", "decode_dtype": "<i8"}])
    for name in ("crc32", "adler32", "fletcher32", "jenkins_lookup3"):
        yield _v2(name, whole, {"id": name})

    yield _v3("crc32c", whole, [_LITTLE, _CRC32C], _with_crc32c)
    turned = [{"name": "transpose", "configuration": {"order": [1, 0]}}]
    big = [{"name": "bytes", "configuration": {"endian": "big"}}]
    yield _v3("transpose and big-endian bytes", whole, [*turned, *big], lambda chunk: chunk.T.astype(">i4").tobytes())
    cast = {"name": "cast_value", "configuration": {"data_type": "int16"}}
    yield _v3("cast_value", (counts % 1000).astype("<i4"), [cast, _LITTLE], lambda chunk: chunk.astype("<i2").tobytes())
    line = {"name": "scale_offset", "configuration": {"offset": 1, "scale": 4}}
    yield _v3("scale_offset", quarters, [line, _LITTLE], lambda chunk: ((chunk - 1) * 4).tobytes())
    packed = {"name": "packbits", "configuration": {"padding_encoding": "none", "last_bit": 2}}
    yield _v3("packbits of version 3", (counts % 8).astype("u1"), [packed], _three_bits)
    sharding = {
        "chunk_shape": list(_CHUNK_SHAPE),
        "codecs": [_LITTLE, {"name": "zstd", "configuration": {"level": 1, "checksum": False}}],
        "index_codecs": [_LITTLE, _CRC32C],
        "index_location": "end",
    }
    shards = [{"name": "sharding_indexed", "configuration": sharding}]
    yield _v3("sharding_indexed(zstd)", whole, shards, _shard, _SHARD_SHAPE)


def _v2(
    codec: str,
    values: AnyArray,
    compressor: Json | None = None,
    filters: Sequence[Json] = (),
    encode: Callable[[AnyArray], bytes] | None = None,
) -> Case:
    """Return a case of version 2; without ``encode``, numcodecs encodes the chunks."""
    document = {
        "zarr_format": 2,
        "shape": list(values.shape),
        "chunks": list(_CHUNK_SHAPE),
        "dtype": values.dtype.str,
        "compressor": compressor,
        "filters": list(filters) or None,
        "order": "C",
        "fill_value": 0,
    }
    configs = [*filters, *([] if compressor is None else [compressor])]
    encode = encode or functools.partial(_by_numcodecs, configs)
    return Case(codec, values, document, ".zarray", "{}.{}", _CHUNK_SHAPE, encode)


def _v3(
    codec: str,
    values: AnyArray,
    codecs: list[Json],
    encode: Callable[[AnyArray], bytes],
    chunk_shape: tuple[int, int] = _CHUNK_SHAPE,
) -> Case:
    """Return a case of version 3."""
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(values.shape),
        "data_type": values.dtype.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunk_shape)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0,
        "codecs": codecs,
    }
    return Case(codec, values, document, "zarr.json", "c/{}/{}", chunk_shape, encode)


def _blosc(cname: str, shuffle: int) -> Json:
    return {"id": "blosc", "cname": cname, "clevel": 5, "shuffle": shuffle, "blocksize": _BLOSC_BLOCK_BYTES}


def _blosc_name(cname: str, shuffle: int) -> str:
    return f"blosc({cname}, {('noshuffle', 'shuffle', 'bitshuffle')[shuffle]})"


# -- encoders ----------------------------------------------------------------------------------------------------------


def _three_bits(chunk: AnyArray) -> bytes:
    bits = np.unpackbits(chunk.reshape(-1, 1), axis=1, bitorder="little")[:, :3]
    return np.packbits(bits, bitorder="little").tobytes()


def _by_numcodecs(configs: Sequence[Json], chunk: AnyArray) -> bytes:
    import numcodecs
    from numcodecs.compat import ensure_bytes

    encoded: Any = chunk
    for config in configs:
        encoded = numcodecs.get_codec(config).encode(encoded)
    result: bytes = ensure_bytes(encoded)
    return result


def _with_crc32c(data: Any) -> bytes:
    import google_crc32c

    plain = bytes(data)
    return plain + int(google_crc32c.value(plain)).to_bytes(4, "little")


def _shard(shard: AnyArray) -> bytes:
    """Return a shard: the inner chunks one after the other, then the index."""
    rows, columns = _CHUNK_SHAPE
    body, index = b"", b""
    for i, j in itertools.product(range(0, shard.shape[0], rows), range(0, shard.shape[1], columns)):
        encoded = _by_numcodecs([{"id": "zstd"}], np.ascontiguousarray(shard[i : i + rows, j : j + columns]))
        index += struct.pack("<QQ", len(body), len(encoded))
        body += encoded
    return body + _with_crc32c(index)


def _deflate(chunk: AnyArray) -> bytes:
    """Return a raw Deflate stream."""
    stream = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return stream.compress(chunk.tobytes()) + stream.flush()


def _snappy(data: Any) -> bytes:
    """Return a raw Snappy stream: literals, and copies from one four-byte element before.

    Source: https://github.com/google/snappy/blob/main/format_description.txt
    """
    plain = np.frombuffer(bytes(data), np.uint8)
    repeats = np.zeros(len(plain) + 2, np.int8)
    repeats[5:-1] = plain[4:] == plain[:-4]
    runs = np.flatnonzero(np.diff(repeats)).reshape(-1, 2)
    parts = [_varint(len(plain))]
    done = 0
    for begin, end in runs[runs[:, 1] - runs[:, 0] >= _LEAST_COPY].tolist():
        parts += _literals(plain[done:begin].tobytes())
        for at in range(begin, end, _MOST_COPY):
            parts.append(struct.pack("<BH", (min(_MOST_COPY, end - at) - 1) << 2 | 2, 4))
        done = end
    parts += _literals(plain[done:].tobytes())
    return b"".join(parts)


def _varint(number: int) -> bytes:
    low = bytearray()
    while number >= 128:
        low.append(number & 127 | 128)
        number >>= 7
    return bytes([*low, number])


def _literals(data: bytes) -> Iterator[bytes]:
    for at in range(0, len(data), 1 << 16):
        part = data[at : at + (1 << 16)]
        # The tag holds lengths up to 60; 61 means that the length is in the two bytes after the tag.
        yield (bytes([(len(part) - 1) << 2]) if len(part) <= 60 else struct.pack("<BH", 61 << 2, len(part) - 1)) + part


def _blosc_snappy(chunk: AnyArray, *, shuffle: bool) -> bytes:
    """Return a Blosc container of four-byte elements, with one stream per block.

    Source: https://github.com/Blosc/c-blosc/blob/main/README_CHUNK_FORMAT.rst
    """
    plain = chunk.tobytes()
    blocks = [plain[at : at + _BLOSC_BLOCK_BYTES] for at in range(0, len(plain), _BLOSC_BLOCK_BYTES)]
    body, starts = b"", b""
    for block in blocks:
        planes = np.frombuffer(block, np.uint8).reshape(-1, 4).T.tobytes() if shuffle else block
        stream = _snappy(planes)
        if len(stream) >= len(block):
            stream = planes
        starts += struct.pack("<I", 16 + 4 * len(blocks) + len(body))
        body += struct.pack("<I", len(stream)) + stream
    flags = 2 << 5 | 16 | int(shuffle)
    sizes = struct.pack("<III", len(plain), _BLOSC_BLOCK_BYTES, 16 + len(starts) + len(body))
    return bytes([2, 1, flags, 4]) + sizes + starts + body
