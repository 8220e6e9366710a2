"""The workloads: the arrays, written once by zarr-python into a cache directory, and the ways to read them.

Chunk shapes, codecs and access patterns are those of real collections: light-sheet volumes, weather archives, tissue
slides, segmentations, training sets. Each array is about 256 MiB; ``scale`` shrinks it for a smoke test.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import fields
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt
    from fields import Field

LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}
_CRC32C = {"name": "crc32c"}


def blosc(cname: str, shuffle: str, typesize: int) -> dict[str, Any]:
    configuration = {"cname": cname, "clevel": 5, "shuffle": shuffle, "typesize": typesize, "blocksize": 0}
    return {"name": "blosc", "configuration": configuration}


def _zstd(level: int = 3) -> dict[str, Any]:
    return {"name": "zstd", "configuration": {"level": level, "checksum": False}}


def _gzip(level: int) -> dict[str, Any]:
    return {"name": "gzip", "configuration": {"level": level}}


@dataclass(frozen=True)
class Dataset:
    """An array: its field, its grid and its codec chain as Zarr v3 metadata (of an inner chunk, if it has shards)."""

    name: str
    field: Field
    dtype: str
    shape: tuple[int, ...]
    chunk_shape: tuple[int, ...]
    codecs: tuple[dict[str, Any], ...]
    shard_shape: tuple[int, ...] | None = None
    zarr_format: int = 3
    #: Axes that ``scale`` shrinks.
    scaled_axes: tuple[int, ...] = (0, 1, 2)
    #: The least size that each scaled axis shrinks to.
    least: int = 80
    #: Filters of version 2, as numcodecs configures them, which lose nothing of the field.
    filters: tuple[dict[str, Any], ...] = ()

    def scaled(self, scale: float) -> Dataset:
        """Return the same array with about ``scale`` times the elements."""
        if scale >= 1:
            return self
        factor = scale ** (1 / len(self.scaled_axes))
        shape = tuple(
            max(min(n, self.least), round(n * factor)) if axis in self.scaled_axes else n
            for axis, n in enumerate(self.shape)
        )
        return Dataset(**{**self.__dict__, "shape": shape})

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    @property
    def grid_shape(self) -> tuple[int, ...]:
        """Number of (inner) chunks along each dimension; in a sharded array, of whole shards."""
        outer = self.shard_shape or self.chunk_shape
        return tuple(-(-n // o) * (o // c) for n, o, c in zip(self.shape, outer, self.chunk_shape, strict=True))

    @property
    def chunk_nbytes(self) -> int:
        return math.prod(self.chunk_shape) * np.dtype(self.dtype).itemsize

    def document(self) -> tuple[str, dict[str, Any]]:
        """Return the name and content of the metadata document."""
        if self.zarr_format == 2:
            return ".zarray", self._document_v2()
        codecs = list(self.codecs)
        if self.shard_shape:
            configuration = {
                "chunk_shape": list(self.chunk_shape),
                "codecs": codecs,
                "index_codecs": [LITTLE, _CRC32C],
                "index_location": "end",
            }
            codecs = [{"name": "sharding_indexed", "configuration": configuration}]
        kind = {"u": "uint", "f": "float"}[np.dtype(self.dtype).kind]
        return "zarr.json", {
            "zarr_format": 3,
            "node_type": "array",
            "shape": list(self.shape),
            "data_type": f"{kind}{np.dtype(self.dtype).itemsize * 8}",
            "chunk_grid": {
                "name": "regular",
                "configuration": {"chunk_shape": list(self.shard_shape or self.chunk_shape)},
            },
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": 0,
            "codecs": codecs,
            "attributes": {},
        }

    def _document_v2(self) -> dict[str, Any]:
        (compressor,) = ({"id": c["name"], **c["configuration"]} for c in self.codecs if c["name"] != "bytes")
        if compressor["id"] == "blosc":
            shuffle = {"noshuffle": 0, "shuffle": 1, "bitshuffle": 2}[compressor["shuffle"]]
            compressor |= {"clevel": 5, "shuffle": shuffle}
            del compressor["typesize"]
        return {
            "zarr_format": 2,
            "shape": list(self.shape),
            "chunks": list(self.chunk_shape),
            "dtype": np.dtype(self.dtype).str,
            "compressor": compressor,
            "filters": list(self.filters) or None,
            "fill_value": 0,
            "order": "C",
            "dimension_separator": ".",
        }


@dataclass(frozen=True)
class Region:
    """One read of a NumPy basic selection."""

    selection: tuple[Any, ...]


@dataclass(frozen=True)
class Windows:
    """Many boxes of one shape, read together, as for a loader of training samples: ``starts`` is ``(n, ndim)``."""

    starts: npt.NDArray[np.int64]
    shape: tuple[int, ...]

    def selections(self) -> list[tuple[slice, ...]]:
        return [tuple(slice(int(s), int(s) + n) for s, n in zip(row, self.shape, strict=True)) for row in self.starts]


@dataclass(frozen=True)
class Rows:
    """Indices along the first axis, read batch by batch: ``batches`` is ``(reads, batch)``."""

    batches: npt.NDArray[np.int64]


Access: TypeAlias = Region | Windows | Rows


@dataclass(frozen=True)
class Workload:
    """One row of the table."""

    name: str
    dataset: Dataset
    access: Access = field(default_factory=lambda: Region((...,)))

    @property
    def whole(self) -> bool:
        return isinstance(self.access, Region) and self.access.selection == (...,)

    def expected(self, array: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
        """Yield the expected result of each read, taken from the whole array by NumPy."""
        if isinstance(self.access, Region):
            yield array[self.access.selection]
        elif isinstance(self.access, Windows):
            yield np.stack([array[s] for s in self.access.selections()])
        else:
            for batch in self.access.batches:
                yield array[batch]

    def output_nbytes(self) -> int:
        """Bytes returned by one run of the workload, for all its reads together."""
        itemsize = np.dtype(self.dataset.dtype).itemsize
        if isinstance(self.access, Region):
            probe = np.broadcast_to(np.zeros((), self.dataset.dtype), self.dataset.shape)
            return int(probe[self.access.selection].nbytes)
        if isinstance(self.access, Windows):
            return len(self.access.starts) * math.prod(self.access.shape) * itemsize
        return self.access.batches.size * math.prod(self.dataset.shape[1:]) * itemsize

    def chunks_touched(self) -> list[npt.NDArray[np.int64]]:
        """Return, for each read, the numbers (in C order of the grid) of the chunks that it needs, each once."""
        grid, chunk = self.dataset.grid_shape, self.dataset.chunk_shape
        if isinstance(self.access, Rows):
            inner = np.arange(math.prod(grid[1:]))
            firsts = [np.unique(batch // chunk[0]) for batch in self.access.batches]
            return [(f[:, None] * len(inner) + inner).ravel() for f in firsts]
        if isinstance(self.access, Windows):
            numbers: list[npt.NDArray[np.int64]] = []
            for row in self.access.starts:
                last = row + np.array(self.access.shape) - 1
                axes = [np.arange(a // c, b // c + 1) for a, b, c in zip(row, last, chunk, strict=True)]
                numbers.append(np.ravel_multi_index(np.meshgrid(*axes, indexing="ij"), grid).ravel())
            return [np.unique(np.concatenate(numbers))]
        axes = []
        items = [s for s in self.access.selection if s is not ...]
        items += [slice(None)] * (len(grid) - len(items))
        for item, size, c in zip(items, self.dataset.shape, chunk, strict=True):
            axes.append(np.unique(np.atleast_1d(np.arange(size)[item]) // c))
        return [np.ravel_multi_index(np.meshgrid(*axes, indexing="ij"), grid).ravel()]


_VOLUME = (512, 512, 512)
_C64 = (64, 64, 64)
_U2_LZ4 = Dataset("u2-64-blosc-lz4", fields.camera_u2, "u2", _VOLUME, _C64, (LITTLE, blosc("lz4", "shuffle", 2)))
_WEATHER = Dataset(
    "f4-weather-blosc-lz4",
    fields.weather_f4,
    "f4",
    (64, 721, 1440),
    (1, 721, 1440),
    (LITTLE, blosc("lz4", "shuffle", 4)),
    zarr_format=2,
    scaled_axes=(0,),
    least=2,
)
_STATION = Dataset(
    "f8-station-raw", fields.station_f8, "f8", (60632, 4, 1, 10), (8, 4, 1, 10), (LITTLE,), scaled_axes=(0,), least=2
)
_ROWS = Dataset(
    "f4-rows-zstd",
    fields.weather_f4,
    "f4",
    (4096, 256, 64),
    (1, 256, 64),
    (LITTLE, _zstd()),
    shard_shape=(256, 256, 64),
    scaled_axes=(0,),
    least=32,
)
# A model's output on a grid of about a degree, packed as netCDF-4 files of archives are.
_MODEL = Dataset(
    "f4-model-packed-zlib",
    fields.weather_f4,
    "f4",
    (1200, 192, 288),
    (12, 192, 288),
    (LITTLE, {"name": "zlib", "configuration": {"level": 4}}),
    zarr_format=2,
    scaled_axes=(0,),
    least=12,
    filters=(
        {"id": "fixedscaleoffset", "offset": 275, "scale": 256, "dtype": "<f4", "astype": "<i2"},
        {"id": "shuffle", "elementsize": 2},
    ),
)
# Forecasts for a country on a grid of 3 km: many hours of a small region in a chunk.
_FORECAST = Dataset(
    "f4-forecast-bitround-blosc-zstd",
    fields.weather_f4,
    "f4",
    (36, 1059, 1799),
    (36, 150, 150),
    (LITTLE, blosc("zstd", "shuffle", 4)),
    zarr_format=2,
    scaled_axes=(0,),
    least=2,
    filters=({"id": "bitround", "keepbits": 16},),
)
_TRANSPOSED = (
    {"name": "transpose", "configuration": {"order": [2, 1, 0]}},
    {"name": "bytes", "configuration": {"endian": "big"}},
    _zstd(),
)


def _datasets() -> list[Dataset]:
    """The arrays that are read as a whole."""
    u2, f4 = fields.camera_u2, fields.pressure_f4
    public, c256 = fields.public_u2, (256, 256, 256)
    return [
        _U2_LZ4,
        Dataset("u2-64-blosc-zstd-bit", u2, "u2", _VOLUME, _C64, (LITTLE, blosc("zstd", "bitshuffle", 2))),
        Dataset("u2-64-zstd", u2, "u2", _VOLUME, _C64, (LITTLE, _zstd())),
        Dataset("u2-64-gzip", u2, "u2", _VOLUME, _C64, (LITTLE, _gzip(5))),
        Dataset("u2-64-raw", u2, "u2", _VOLUME, _C64, (LITTLE,)),
        Dataset("u2-32-blosc-lz4", u2, "u2", _VOLUME, (32,) * 3, (LITTLE, blosc("lz4", "shuffle", 2))),
        Dataset("u2-32-zstd-shards", u2, "u2", _VOLUME, (32,) * 3, (LITTLE, _zstd()), shard_shape=c256),
        _WEATHER,
        _MODEL,
        _FORECAST,
        Dataset("f4-128-zstd-crc32c", f4, "f4", (512, 512, 256), (128,) * 3, (LITTLE, _zstd(), _CRC32C)),
        Dataset(
            "u1-rgb-zstd",
            fields.slide_u1,
            "u1",
            (9216, 9728, 3),
            (512, 512, 3),
            ({"name": "bytes"}, _zstd()),
            scaled_axes=(0, 1),
        ),
        Dataset(
            "u4-labels-blosc-zstd",
            fields.labels_u4,
            "u4",
            (512, 512, 256),
            _C64,
            (LITTLE, blosc("zstd", "shuffle", 4)),
        ),
        Dataset("f8-big-transpose-zstd", fields.flux_f8, "f8", (256, 512, 256), _C64, _TRANSPOSED),
        Dataset("public-raw", public, "u2", _VOLUME, c256, (LITTLE,)),
        Dataset("public-zstd", public, "u2", _VOLUME, c256, (LITTLE, _zstd(0))),
        Dataset("public-shards-zstd", public, "u2", _VOLUME, _C64, (LITTLE, _zstd(0)), shard_shape=c256),
    ]


def workloads(scale: float = 1.0, *, windows: int = 500, rows: int = 100_000) -> list[Workload]:
    """Return every workload: first each array as a whole, then the access patterns."""
    random = np.random.Generator(np.random.PCG64(20))
    volume, weather, station, many = (d.scaled(scale) for d in (_U2_LZ4, _WEATHER, _STATION, _ROWS))
    starts = np.stack([random.integers(0, n - 64 + 1, windows) for n in volume.shape], axis=1)
    batch = min(1000, rows)
    batches = random.integers(0, many.shape[0], (max(rows // batch, 1), batch))
    middle = weather.shape[1] // 2
    step = max(station.shape[0] // 10, 1)
    return [
        *(Workload(d.name, d.scaled(scale)) for d in _datasets()),
        Workload("500 windows 64³", volume, Windows(starts, _C64)),
        Workload("plane, every chunk", weather, Region((slice(None), middle, slice(None)))),
        Workload("plane of a volume", volume, Region((slice(None), slice(None), volume.shape[2] // 2))),
        Workload("station a[::6063]", station, Region((slice(None, None, step),))),
        Workload("station a[0]", station, Region((0,))),
        Workload("100,000 rows", many, Rows(batches)),
    ]


def default_data_dir() -> Path:
    """Return the directory for generated arrays, under the user's cache directory."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gzarr-benchmarks"


@dataclass(frozen=True)
class Stored:
    """A dataset on disk."""

    path: Path
    #: BLAKE2b of the elements in C order, native byte order.
    digest: str
    stored_nbytes: int


def digest(array: npt.NDArray[Any]) -> str:
    """Return the BLAKE2b of an array's elements in C order and native byte order."""
    native = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
    return hashlib.blake2b(native.reshape(-1).view(np.uint8), digest_size=16).hexdigest()


def store(dataset: Dataset, data_dir: Path) -> Stored:
    """Write a dataset below ``data_dir`` unless it exists; the directory's name contains a hash of its definition."""
    name, document = dataset.document()
    field_code = dataset.field.__code__.co_code + repr(dataset.field.__code__.co_consts).encode()
    made = json.dumps([document, dataset.field.__name__, hashlib.blake2b(field_code).hexdigest()], sort_keys=True)
    home = data_dir / f"{dataset.name}-{hashlib.blake2b(made.encode(), digest_size=5).hexdigest()}"
    manifest = home / "manifest.json"
    if not manifest.exists():
        data_dir.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=".making-", dir=data_dir))
        try:
            facts = _write(dataset, fresh / "array.zarr", name, document)
            (fresh / "manifest.json").write_text(json.dumps(facts))
            shutil.rmtree(home, ignore_errors=True)
            fresh.rename(home)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise
    facts = json.loads(manifest.read_text())
    return Stored(home / "array.zarr", facts["digest"], facts["stored_nbytes"])


def _write(dataset: Dataset, path: Path, name: str, document: dict[str, Any]) -> dict[str, Any]:
    import zarr

    path.mkdir(parents=True)
    (path / name).write_text(json.dumps(document))
    data = fields.make(dataset.field, dataset.shape)
    zarr.open_array(str(path), mode="r+", zarr_format=dataset.zarr_format)[...] = data
    stored = sum(f.stat().st_size for f in path.rglob("*") if f.is_file() and f.name != name)
    return {"digest": digest(data), "stored_nbytes": stored}
