"""The limit: the same compressed bytes in memory, decoded by the bare C library into a reused chunk buffer per thread.

Without a store, a plan, placement, or first touch of an output, only the decoder's own time remains. No reader with
these libraries can beat it on a whole-array read (a partial read may, by decoding only parts of chunks). Each chunk
is one call through ctypes, which releases the GIL; it costs about a microsecond, one to two per cent of the fastest
decode of a chunk of 256 KiB. If several builds of a library are installed, the fastest on the workload's own chunks is
used.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from workloads import Dataset, Workload

    #: Takes a chunk's address and length; decodes into the caller's buffer.
    Decode = Callable[[int, int], None]
    #: Takes the buffer's address and size; makes a decoder with a context of its own.
    MakeDecode = Callable[[int, int], Decode]

_P, _Z, _I = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int


def _library(module: str, *below: str) -> ctypes.CDLL:
    """Load an extension module, or the first file that matches a pattern below a package, as a plain library."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ImportError(module)
    if not below:
        return ctypes.CDLL(spec.origin)
    for pattern in below:
        for path in sorted(Path(spec.origin).parent.glob(pattern)):
            return ctypes.CDLL(str(path))
    raise ImportError(f"{module}: no {' or '.join(below)}")


def _function(library: ctypes.CDLL, name: str, result: Any, *arguments: Any) -> Any:
    function = getattr(library, name)
    function.restype = result
    function.argtypes = arguments
    return function


def _memcpy() -> dict[str, MakeDecode]:
    copy = _function(ctypes.CDLL(None), "memcpy", _P, _P, _P, _Z)

    def make(out: int, size: int) -> Decode:
        def decode(source: int, length: int) -> None:
            copy(out, source, min(length, size))

        return decode

    return {"memcpy": make}


def _zstd() -> dict[str, MakeDecode]:
    def maker(library: ctypes.CDLL) -> MakeDecode:
        create = _function(library, "ZSTD_createDCtx", _P)
        decompress = _function(library, "ZSTD_decompressDCtx", _Z, _P, _P, _Z, _P, _Z)

        def make(out: int, size: int) -> Decode:
            context = create()

            def decode(source: int, length: int) -> None:
                if decompress(context, out, size, source, length) != size:
                    raise ValueError("zstd: wrong size")

            return decode

        return make

    return _each(maker, numcodecs=("numcodecs.zstd",), numcodecs_blosc=("numcodecs.blosc",), blosc2=_BLOSC2)


def _blosc() -> dict[str, MakeDecode]:
    def maker1(library: ctypes.CDLL) -> MakeDecode:
        decompress = _function(library, "blosc_decompress_ctx", _I, _P, _P, _Z, _I)

        def make(out: int, size: int) -> Decode:
            def decode(source: int, length: int) -> None:
                if decompress(source, out, size, 1) != size:
                    raise ValueError("blosc: wrong size")

            return decode

        return make

    def maker2(library: ctypes.CDLL) -> MakeDecode:
        _function(library, "blosc2_init", None)()

        class Parameters(ctypes.Structure):
            """``blosc2_dparams``: one thread, no super-chunk and no post-filter."""

            _fields_ = (
                ("nthreads", _I),
                ("schunk", _P),
                ("postfilter", _P),
                ("postparams", _P),
                ("typesize", ctypes.c_int32),
            )

        create = _function(library, "blosc2_create_dctx", _P, Parameters)
        decompress = _function(library, "blosc2_decompress_ctx", _I, _P, _P, ctypes.c_int32, _P, ctypes.c_int32)

        def make(out: int, size: int) -> Decode:
            context = create(Parameters(nthreads=1, typesize=8))

            def decode(source: int, length: int) -> None:
                if decompress(context, source, length, out, size) != size:
                    raise ValueError("blosc2: wrong size")

            return decode

        return make

    return {**_each(maker1, numcodecs=("numcodecs.blosc",)), **_each(maker2, blosc2=_BLOSC2)}


def _gzip() -> dict[str, MakeDecode]:
    def maker(library: ctypes.CDLL) -> MakeDecode:
        create = _function(library, "libdeflate_alloc_decompressor", _P)
        decompress = _function(library, "libdeflate_gzip_decompress", _I, _P, _P, _Z, _P, _Z, _P)

        def make(out: int, size: int) -> Decode:
            context = create()

            def decode(source: int, length: int) -> None:
                if decompress(context, source, length, out, size, None):
                    raise ValueError("gzip: cannot decode")

            return decode

        return make

    return _each(maker, libdeflate=("deflate._deflate",))


_BLOSC2 = ("blosc2", "lib/libblosc2.so*", "lib/libblosc2*.dylib", "lib/libblosc2.dll")


def _each(maker: Callable[[ctypes.CDLL], MakeDecode], **libraries: tuple[str, ...]) -> dict[str, MakeDecode]:
    """Return a decoder for each installed library that exports the necessary functions."""
    found: dict[str, MakeDecode] = {}
    for name, where in libraries.items():
        with contextlib.suppress(ImportError, OSError, AttributeError):
            found[name] = maker(_library(*where))
    return found


def _with_crc32c(make: MakeDecode) -> MakeDecode:
    library = _library("google_crc32c", "../google_crc32c.libs/libcrc32c*.so*", ".dylibs/libcrc32c*", "*crc32c*.dll")
    value = _function(library, "crc32c_value", ctypes.c_uint32, _P, _Z)

    def made(out: int, size: int) -> Decode:
        inner = make(out, size)

        def decode(source: int, length: int) -> None:
            stored = ctypes.c_uint32.from_address(source + length - 4).value
            if value(source, length - 4) != stored:
                raise ValueError("crc32c: wrong checksum")
            inner(source, length - 4)

        return decode

    return made


_DECODERS = {"zstd": _zstd, "blosc": _blosc, "gzip": _gzip}


class Limit:
    """The compressed chunks of one array in memory, and the time for decoding them.

    Parameters
    ----------
    dataset, path
        The array and its path.
    threads
        Number of decoding threads.

    Raises
    ------
    ImportError
        If no installed library decodes this chain.
    """

    def __init__(self, dataset: Dataset, path: Path, threads: int) -> None:
        # Elements are rounded only when they are written.
        if any(one["id"] != "bitround" for one in dataset.filters):
            raise ImportError("no library undoes filters and compression")
        self._chunks = _encoded_chunks(dataset, path)
        self._addresses = {number: (chunk.ctypes.data, chunk.size) for number, chunk in self._chunks.items()}
        self._buffers = [np.empty(dataset.chunk_nbytes, np.uint8) for _ in range(threads)]
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads)
        names = [c["name"] for c in dataset.codecs if c["name"] not in ("bytes", "transpose")]
        compressors = [n for n in names if n != "crc32c"]
        makers = _DECODERS[compressors[0]]() if compressors else _memcpy()
        if not makers:
            raise ImportError(f"no library for {compressors[0]}")
        if "crc32c" in names:
            makers = {name: _with_crc32c(make) for name, make in makers.items()}
        self.library, self._decoders = self._fastest(makers)

    def _fastest(self, makers: dict[str, MakeDecode]) -> tuple[str, list[Decode]]:
        sample = list(itertools.islice(self._addresses.values(), 64))
        best: tuple[float, str, list[Decode]] | None = None
        for name, make in makers.items():
            decoders = [make(b.ctypes.data, b.size) for b in self._buffers]
            seconds = []
            for _ in range(3):
                start = time.perf_counter()
                for source, length in sample:
                    decoders[0](source, length)
                seconds.append(time.perf_counter() - start)
            if best is None or min(seconds) < best[0]:
                best = min(seconds), name, decoders
        assert best is not None
        return best[1], best[2]

    def calls(self, workload: Workload) -> list[Callable[[], None]]:
        """Return one call for each read of the workload, which decodes the chunks that the read needs."""
        reads = [
            [self._addresses[int(n)] for n in numbers if int(n) in self._addresses]
            for numbers in workload.chunks_touched()
        ]
        return [lambda sources=sources: self._decode(sources) for sources in reads]  # type: ignore[misc]

    def _decode(self, sources: list[tuple[int, int]]) -> None:
        # Single steps are atomic under the GIL: the iterator hands each chunk to one thread.
        shared = iter(sources)

        def work(decode: Decode) -> None:
            for source, length in shared:
                decode(source, length)

        if len(sources) < 2 or self._threads == 1:
            work(self._decoders[0])
        else:
            list(self._pool.map(work, self._decoders))

    def close(self) -> None:
        self._pool.shutdown()


def _encoded_chunks(dataset: Dataset, path: Path) -> dict[int, Any]:
    """Return the bytes of every chunk (of every inner chunk) by its number in C order of the grid."""
    outer = dataset.shard_shape or dataset.chunk_shape
    outer_grid = tuple(-(-n // o) for n, o in zip(dataset.shape, outer, strict=True))
    inner_grid = tuple(o // c for o, c in zip(outer, dataset.chunk_shape, strict=True))
    found: dict[int, Any] = {}
    for at in np.ndindex(*outer_grid):
        key = ".".join(map(str, at)) if dataset.zarr_format == 2 else "c/" + "/".join(map(str, at))
        file = path / key
        if not file.exists():
            continue
        value = np.fromfile(file, np.uint8)
        if not dataset.shard_shape:
            found[int(np.ravel_multi_index(at, dataset.grid_shape))] = value
            continue
        # The index at the end: (offset, length) of each inner chunk as little-endian u8, then a crc32c of 4 bytes.
        count = int(np.prod(inner_grid))
        index = value[-16 * count - 4 : -4].view("<u8").reshape(count, 2)
        for inner, (offset, length) in zip(np.ndindex(*inner_grid), index.tolist(), strict=True):
            if offset != 2**64 - 1:
                number = np.ravel_multi_index(np.array(at) * inner_grid + inner, dataset.grid_shape)
                found[int(number)] = value[offset : offset + length]
    return found
