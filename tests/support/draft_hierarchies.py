"""Hierarchies according to the texts of the 2022 drafts of Zarr v3."""

from __future__ import annotations

import gzip
import itertools
import json
from typing import Any

import numpy as np

CORE = "https://purl.org/zarr/spec/core/3.0"
PROTOCOL = "https://purl.org/zarr/spec/protocol/core/3.0"
CODEC = "https://purl.org/zarr/spec/codecs/{}/1.0"
SHARDING = "https://purl.org/zarr/spec/extensions/storage-transformers/sharding/1.0"
DATETIME = "https://purl.org/zarr/spec/extensions/data-types/datetime/1.0"

ENTRY: dict[str, Any] = {
    "zarr_format": CORE,
    "metadata_encoding": {"type": "json", "metadata_key_suffix": ".json"},
    "extensions": [],
}
ROOT_ENTRY: dict[str, Any] = {
    "zarr_format": PROTOCOL,
    "metadata_encoding": PROTOCOL,
    "metadata_key_suffix": ".json",
    "extensions": [],
}
VALUES = np.arange(30, dtype="<f8").reshape(6, 5)
ARRAY: dict[str, Any] = {
    "shape": [6, 5],
    "data_type": "float64",
    "chunk_grid": {"type": "regular", "chunk_shape": [4, 3], "separator": "/"},
    "chunk_memory_layout": "C",
    "codecs": [{"type": CODEC.format("gzip"), "configuration": {"level": 1}}],
    "fill_value": "NaN",
    "extensions": [],
    "attributes": {"units": "m", "_ARRAY_DIMENSIONS": ["y", "x"]},
}
SHARDED = ARRAY | {
    "storage_transformers": [
        {"extension": SHARDING, "type": "indexed", "configuration": {"chunks_per_shard": [2, 1]}},
    ]
}


def encode(document: Any) -> bytes:
    return json.dumps(document).encode()


def chunks_of(values: np.ndarray[Any, Any], chunk_shape: tuple[int, ...]) -> Any:
    """Yield coordinates and values of each chunk, padded."""
    grid = [range(-(-n // c)) for n, c in zip(values.shape, chunk_shape, strict=True)]
    for coords in itertools.product(*grid):
        chunk = np.zeros(chunk_shape, values.dtype)
        part = values[tuple(slice(i * c, (i + 1) * c) for i, c in zip(coords, chunk_shape, strict=True))]
        chunk[tuple(map(slice, part.shape))] = part
        yield coords, chunk


def written(
    document: dict[str, Any], values: Any = VALUES, *, prefix: str = "data/a/", encoder: Any = None
) -> dict[str, bytes]:
    """Return the chunks of an array, written according to the text of the draft (without sharding)."""
    grid = document["chunk_grid"]
    result = {}
    for coords, chunk in chunks_of(values, tuple(grid["chunk_shape"])):
        data = chunk.tobytes(document["chunk_memory_layout"])
        key = prefix + "c" + grid.get("separator", "/").join(map(str, coords))
        result[key] = gzip.compress(data) if encoder is None else bytes(encoder(data))
    return result


def hierarchy(entry: dict[str, Any] = ENTRY, **changes: Any) -> dict[str, bytes]:
    """Return a store with the array ``a``."""
    document = {name: value for name, value in (ARRAY | changes).items() if value is not ...}
    return {"zarr.json": encode(entry), "meta/a.array.json": encode(document), **written(ARRAY)}
