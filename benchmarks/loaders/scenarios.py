"""What the benchmark of loaders reads: the arrays of each scenario, and the samples that are cut from them.

Samples are told from each other by a digest of their elements, so that any loader's batches can be checked: which
samples they have, and that each has the right elements.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import tempfile
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fields
import numpy as np
from workloads import LITTLE, blosc

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    from fields import Field

    IntArray = npt.NDArray[np.int64]

#: Stretches of the samples' order; the entropy of a batch is that of its samples' stretches.
STRETCHES = 64
_ZSTD = {"name": "zstd", "configuration": {"level": 3, "checksum": False}}


@dataclass(frozen=True)
class Scenario:
    """Arrays of one shape, and windows of one shape in them.

    A sample is one window of each array at the same place. ``kind`` is ``"grid"`` (windows side by side), ``"random"``
    (anywhere), ``"rows"`` (each index along the first axis; a sample has no such axis) or ``"windows"`` (runs of steps
    along the first axis, one from each step).
    """

    name: str
    kind: str
    field: Field
    dtype: str
    shape: tuple[int, ...]
    chunk: tuple[int, ...]
    codecs: tuple[dict[str, Any], ...]
    window: tuple[int, ...]
    batch: int
    #: Wanted multiple of the fastest rival.
    least: float
    shard: tuple[int, ...] | None = None
    names: tuple[str, ...] = ("x",)

    def scaled(self, scale: float) -> Scenario:
        """Return the same scenario with about ``scale`` times the elements, but some chunks along each axis."""
        if scale >= 1:
            return self
        # Shards of two chunks along each axis that they have several chunks along.
        shard = self.shard and tuple(min(n, 2 * c) for n, c in zip(self.shard, self.chunk, strict=True))
        outer = shard or self.chunk
        if self.kind in ("grid", "random"):
            factor = scale ** (1 / 3)
            shape = tuple(max(round(n * factor / o), 2) * o for n, o in zip(self.shape, outer, strict=True))
            return replace(self, shape=shape, shard=shard, batch=min(self.batch, 4))
        length = max(round(self.shape[0] * scale / outer[0]) * outer[0], 2 * outer[0], 2 * self.batch)
        return replace(self, shape=(length, *self.shape[1:]), shard=shard)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        return self.window[1:] if self.kind == "rows" else self.window

    @property
    def sample_nbytes(self) -> int:
        return len(self.names) * math.prod(self.window) * np.dtype(self.dtype).itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, decoded."""
        return len(self.names) * math.prod(self.shape) * np.dtype(self.dtype).itemsize

    @cached_property
    def origins(self) -> IntArray:
        """First element of each sample, ``(n, ndim)``."""
        ends = np.array(self.shape) - np.array(self.window) + 1
        if self.kind == "random":
            random = np.random.Generator(np.random.PCG64(20))
            count = math.prod(n // w for n, w in zip(self.shape, self.window, strict=True))
            return random.integers(0, ends, (count, len(self.shape)))
        steps = self.window if self.kind == "grid" else (1,) * len(self.shape)
        axes = [np.arange(0, end, step) for end, step in zip(ends, steps, strict=True)]
        return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(self.shape))

    def selections(self, numbers: Sequence[int] | IntArray) -> list[tuple[slice, ...]]:
        """Return the selection of each sample."""
        rows = self.origins[np.asarray(numbers)].tolist()
        return [tuple(slice(a, a + w) for a, w in zip(row, self.window, strict=True)) for row in rows]

    @cached_property
    def grid(self) -> tuple[int, ...]:
        """Number of chunks along each axis."""
        return tuple(-(-n // c) for n, c in zip(self.shape, self.chunk, strict=True))

    def chunks(self, origins: IntArray) -> list[IntArray]:
        """Return the numbers of the chunks that each sample needs of one array."""
        first = origins // np.array(self.chunk)
        last = (origins + np.array(self.window) - 1) // np.array(self.chunk)
        result = []
        for low, high in zip(first.tolist(), last.tolist(), strict=True):
            axes = np.meshgrid(*(np.arange(a, b + 1) for a, b in zip(low, high, strict=True)), indexing="ij")
            result.append(np.ravel_multi_index([axis.ravel() for axis in axes], self.grid))
        return result

    def stretches(self, origins: IntArray) -> IntArray:
        """Return the stretch, below STRETCHES, of each sample: by its first step, or by the chunk of its middle."""
        if self.kind in ("rows", "windows"):
            return origins[:, 0] * STRETCHES // self.shape[0]
        middle = (origins + np.array(self.window) // 2) // np.array(self.chunk)
        number = np.ravel_multi_index(tuple(middle.T), self.grid)
        return number * STRETCHES // math.prod(self.grid)

    # -- on disk

    def home(self, data_dir: Path) -> Path:
        """Return the directory of the scenario, whose name has a hash of its definition."""
        code = self.field.__code__.co_code + repr(self.field.__code__.co_consts).encode()
        facts = [
            2,
            self.kind,
            self.field.__name__,
            hashlib.blake2b(code).hexdigest(),
            self.dtype,
            self.shape,
            self.chunk,
        ]
        made = json.dumps([*facts, self.codecs, self.window, self.shard, self.names], sort_keys=True)
        digest = hashlib.blake2b(made.encode(), digest_size=5).hexdigest()
        return data_dir / f"loader-{self.name.replace(' ', '-').replace(',', '')}-{digest}"

    def store(self, data_dir: Path) -> Path:
        """Write the arrays, and the digests of their samples, unless they exist; return their directory."""
        home = self.home(data_dir)
        if not home.exists():
            data_dir.mkdir(parents=True, exist_ok=True)
            fresh = Path(tempfile.mkdtemp(prefix=".making-", dir=data_dir))
            try:
                self._write(fresh)
                fresh.rename(home)
            except BaseException:
                shutil.rmtree(fresh, ignore_errors=True)
                raise
        return home

    def _write(self, home: Path) -> None:
        import zarr

        group = zarr.create_group(str(home / "data.zarr"))
        dimensions = ["sample" if self.kind in ("rows", "windows") else "d0", *(f"d{i}" for i in range(1, 9))]
        digests = [hashlib.blake2b(digest_size=8) for _ in self.origins]
        for number, name in enumerate(self.names):
            # Another slab of the field for each array: other numbers.
            data = fields.make(lambda s, a, b, n=number: self.field(s, a + n * 7919, b + n * 7919), self.shape)
            serializer, compressor = self.codecs
            array = group.create_array(
                name,
                shape=self.shape,
                dtype=self.dtype,
                chunks=self.chunk,
                shards=self.shard,
                serializer=serializer,
                compressors=[compressor],
                fill_value=0,
                dimension_names=dimensions[: len(self.shape)],
            )
            array[...] = data
            for one, selection in zip(digests, self.selections(np.arange(len(self.origins))), strict=True):
                one.update(np.ascontiguousarray(data[selection]))
            if self.kind == "random":
                # To check windows at places that a loader chose.
                np.save(home / "raw.npy", data)
        np.save(home / "digests.npy", np.frombuffer(b"".join(one.digest() for one in digests), np.uint64))
        if len(set(np.load(home / "digests.npy").tolist())) != len(self.origins):
            raise SystemExit(f"{self.name}: two samples are equal; the check would not tell them apart")


def digest(parts: Sequence[npt.NDArray[Any]]) -> int:
    """Return the digest of one sample: of its window of each array."""
    one = hashlib.blake2b(digest_size=8)
    for part in parts:
        one.update(np.ascontiguousarray(part))
    return int(np.frombuffer(one.digest(), np.uint64)[0])


_LZ4_U2, _LZ4_F4 = (LITTLE, blosc("lz4", "shuffle", 2)), (LITTLE, blosc("lz4", "shuffle", 4))
_PLAIN_ZSTD = (LITTLE, _ZSTD)
_VOLUME, _C64 = (512, 512, 512), (64, 64, 64)
_ROW, _VARIABLES = (3, 64, 64), tuple(f"v{i}" for i in range(8))


def _volume(name: str, kind: str, *, sharded: bool, least: float) -> Scenario:
    codecs, shard = (_PLAIN_ZSTD, (256, 256, 256)) if sharded else (_LZ4_U2, None)
    return Scenario(name, kind, fields.camera_u2, "u2", _VOLUME, _C64, codecs, _C64, 16, least, shard)


def _rows(name: str, chunk: int, least: float) -> Scenario:
    return Scenario(
        name, "rows", fields.weather_f4, "f4", (4096, *_ROW), (chunk, *_ROW), _LZ4_F4, (1, *_ROW), 64, least
    )


def _table(name: str, *, sharded: bool) -> Scenario:
    codecs, shard = (_PLAIN_ZSTD, (8000, 2000)) if sharded else (_LZ4_F4, None)
    return Scenario(
        name, "rows", fields.weather_f4, "f4", (48000, 2000), (1000, 2000), codecs, (1, 2000), 250, 1.5, shard
    )


def _steps(name: str, chunk: int) -> Scenario:
    shape = (1024, 64, 128)
    return Scenario(
        name,
        "windows",
        fields.weather_f4,
        "f4",
        shape,
        (chunk, *shape[1:]),
        _LZ4_F4,
        (4, *shape[1:]),
        8,
        1.5,
        names=_VARIABLES,
    )


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        _volume("grid", "grid", sharded=False, least=1.1),
        _volume("grid, shards", "grid", sharded=True, least=1.1),
        _volume("random", "random", sharded=False, least=1.3),
        _volume("random, shards", "random", sharded=True, least=1.3),
        _rows("rows, chunk 1", 1, 1.1),
        _rows("rows, chunk 32", 32, 1.5),
        _table("table", sharded=False),
        _table("table, shards", sharded=True),
        _steps("windows, 1 step", 1),
        _steps("windows, 8 steps", 8),
    )
}
