"""The limit of writing: contiguous chunks in memory, compressed by the bare C library into a reused buffer per thread,
and appended to one file.

Without a store, gathering, several files and renaming, only the times of the encoder and of the kernel's copy of its
output remain. No writer with these libraries at these levels can beat them (gzarr's column ``automatic`` may search
less, see ``gzarr.engines.cpu.effort``; and gzarr has data in the cache that are in memory here). Each chunk is
one call through ctypes, which releases the GIL. If several builds of a library are installed, the fastest on the
workload's own chunks is used.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
from limit import _BLOSC2, _I, _P, _Z, _each, _function, _library

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy.typing as npt
    from workloads import Dataset

    #: Takes a chunk's address and length; encodes into the caller's buffer; returns the size.
    Encode = Callable[[int, int], int]
    #: Takes the buffer's address and size; makes an encoder with a context of its own.
    MakeEncode = Callable[[int, int], Encode]

_SHUFFLES = ("noshuffle", "shuffle", "bitshuffle")
_ZSTD_LEVEL = 100


def _zstd(level: int, **_: Any) -> dict[str, MakeEncode]:
    def maker(library: ctypes.CDLL) -> MakeEncode:
        create = _function(library, "ZSTD_createCCtx", _P)
        setting = _function(library, "ZSTD_CCtx_setParameter", _Z, _P, _I, _I)
        compress = _function(library, "ZSTD_compress2", _Z, _P, _P, _Z, _P, _Z)

        def make(out: int, size: int) -> Encode:
            context = create()
            setting(context, _ZSTD_LEVEL, level)
            return lambda source, length: int(compress(context, out, size, source, length))

        return make

    return _each(maker, numcodecs=("numcodecs.zstd",), blosc2=_BLOSC2)


def _blosc(cname: str, clevel: int, shuffle: str, typesize: int, blocksize: int) -> dict[str, MakeEncode]:
    def maker(library: ctypes.CDLL) -> MakeEncode:
        arguments = (_I, _I, _Z, _Z, _P, _P, _Z, ctypes.c_char_p, _Z, _I)
        compress = _function(library, "blosc_compress_ctx", _I, *arguments)
        mode, name = _SHUFFLES.index(shuffle), cname.encode()

        def make(out: int, size: int) -> Encode:
            return lambda source, length: int(
                compress(clevel, mode, typesize, length, source, out, size, name, blocksize, 1)
            )

        return make

    return _each(maker, numcodecs=("numcodecs.blosc",))


def _gzip(level: int) -> dict[str, MakeEncode]:
    def maker(library: ctypes.CDLL) -> MakeEncode:
        create = _function(library, "libdeflate_alloc_compressor", _P, _I)
        compress = _function(library, "libdeflate_gzip_compress", _Z, _P, _P, _Z, _P, _Z)

        def make(out: int, size: int) -> Encode:
            context = create(level)
            return lambda source, length: int(compress(context, source, length, out, size))

        return make

    return _each(maker, libdeflate=("deflate._deflate",))


_ENCODERS: dict[str, Callable[..., dict[str, MakeEncode]]] = {"zstd": _zstd, "blosc": _blosc, "gzip": _gzip}


def _with_crc32c(make: MakeEncode) -> MakeEncode:
    library = _library("google_crc32c", "../google_crc32c.libs/libcrc32c*.so*", ".dylibs/libcrc32c*", "*crc32c*.dll")
    value = _function(library, "crc32c_value", ctypes.c_uint32, _P, _Z)

    def made(out: int, size: int) -> Encode:
        inner = make(out, size - 4)

        def encode(source: int, length: int) -> int:
            nbytes = inner(source, length)
            ctypes.c_uint32.from_address(out + nbytes).value = value(out, nbytes)
            return nbytes + 4

        return encode

    return made


def stored_chunks(dataset: Dataset, data: npt.NDArray[Any]) -> list[npt.NDArray[np.uint8]]:
    """Return the bytes of each (inner) chunk in stored order; chunks cut by the array's end are padded with 0."""
    order = next((c["configuration"]["order"] for c in dataset.codecs if c["name"] == "transpose"), None)
    big = any(c["name"] == "bytes" and c.get("configuration", {}).get("endian") == "big" for c in dataset.codecs)
    stored = data.dtype.newbyteorder(">" if big else "<")
    found = []
    for at in np.ndindex(*(-(-n // c) for n, c in zip(data.shape, dataset.chunk_shape, strict=True))):
        part = data[tuple(slice(i * c, (i + 1) * c) for i, c in zip(at, dataset.chunk_shape, strict=True))]
        chunk = np.zeros(dataset.chunk_shape, stored)
        chunk[tuple(slice(0, n) for n in part.shape)] = part
        found.append(
            np.ascontiguousarray(chunk if order is None else chunk.transpose(order)).reshape(-1).view(np.uint8)
        )
    return found


class Limit:
    """The chunks of one array in memory, and the time for encoding and appending them to a file.

    Parameters
    ----------
    dataset, data
        The array and its elements.
    threads
        Number of encoding threads.

    Raises
    ------
    ImportError
        If no installed library encodes this chain.
    """

    def __init__(self, dataset: Dataset, data: npt.NDArray[Any], threads: int) -> None:
        self._chunks = stored_chunks(dataset, data)
        self._sources = [(chunk.ctypes.data, chunk.size) for chunk in self._chunks]
        room = dataset.chunk_nbytes + dataset.chunk_nbytes // 50 + 4096
        self._buffers = [np.empty(room, np.uint8) for _ in range(threads)]
        self._pool = ThreadPoolExecutor(threads)
        self._lock = threading.Lock()
        names = [c["name"] for c in dataset.codecs if c["name"] not in ("bytes", "transpose")]
        compressors = [c for c in dataset.codecs if c["name"] in _ENCODERS]
        self._encoders: list[Encode | None] = [None] * threads
        self.library = "write"
        if compressors:
            configuration = dict(compressors[0]["configuration"])
            configuration.pop("checksum", None)
            makers = _ENCODERS[compressors[0]["name"]](**configuration)
            if not makers:
                raise ImportError(f"no library for {compressors[0]['name']}")
            if "crc32c" in names:
                makers = {name: _with_crc32c(make) for name, make in makers.items()}
            self.library, self._encoders = self._fastest(makers)

    def _fastest(self, makers: dict[str, MakeEncode]) -> tuple[str, list[Encode | None]]:
        sample = list(itertools.islice(self._sources, 16))
        best: tuple[float, str, list[Encode | None]] | None = None
        for name, make in makers.items():
            encoders: list[Encode | None] = [make(b.ctypes.data, b.size) for b in self._buffers]
            encode = encoders[0]
            assert encode is not None
            seconds = []
            for _ in range(3):
                start = time.perf_counter()
                for source, length in sample:
                    if not 0 < encode(source, length) <= self._buffers[0].size:
                        raise ValueError(f"{name}: cannot encode")
                seconds.append(time.perf_counter() - start)
            if best is None or min(seconds) < best[0]:
                best = min(seconds), name, encoders
        assert best is not None
        return best[1], best[2]

    def write(self, path: Path) -> Callable[[], None]:
        """Return a call that writes everything to the file ``path / "limit"``."""

        def call() -> None:
            descriptor = os.open(path / "limit", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
            shared = iter(range(len(self._chunks)))
            end = 0

            def work(thread: int) -> None:
                nonlocal end
                encode, buffer = self._encoders[thread], self._buffers[thread]
                # Single steps are atomic under the GIL: the iterator hands each chunk to one thread.
                for i in shared:
                    part = self._chunks[i] if encode is None else buffer[: encode(*self._sources[i])]
                    with self._lock:
                        begin = end
                        end += part.size
                    os.pwrite(descriptor, part, begin)

            list(self._pool.map(work, range(len(self._buffers))))
            os.close(descriptor)

        return call

    def close(self) -> None:
        self._pool.shutdown()
