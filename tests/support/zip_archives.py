"""Zip archives of hierarchies, as their usual writers make them."""

from __future__ import annotations

import shutil
import warnings
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr

import gzarr

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Values = np.ndarray[Any, Any]

CHUNKED: dict[str, Any] = {"chunks": (30, 25)}
SHARDED: dict[str, Any] = {"chunks": (10, 10), "shards": (60, 50)}
#: Paths of the arrays of each archive of version 3; those of version 2 have no shards.
NAMES = ("chunked", "raw", "sharded")


def names(zarr_format: Any) -> tuple[str, ...]:
    return NAMES if zarr_format == 3 else NAMES[:2]


def kind_of(name: str) -> dict[str, Any]:
    return SHARDED if name == "sharded" else CHUNKED


def elements() -> Values:
    values = np.random.default_rng(5).integers(1, 100, (120, 100), dtype="i4")
    # A chunk that is not written.
    values[90:, 75:] = 0
    return values


def fill(store: Any, zarr_format: Any = 3) -> None:
    """Write the arrays with zarr-python, and consolidated metadata."""
    root = zarr.create_group(store, zarr_format=zarr_format)
    for name in names(zarr_format):
        compressors = {"compressors": None} if name == "raw" else {}
        root.create_array(name, data=elements(), **kind_of(name), **compressors)
    with warnings.catch_warnings():
        # Consolidation is not in the specification; and the document of the root is written a second time.
        warnings.simplefilter("ignore")
        zarr.consolidate_metadata(store)


def by_zarr(path: Path, zarr_format: Any = 3, compression: int = zipfile.ZIP_STORED) -> None:
    store = zarr.storage.ZipStore(path, mode="w", compression=compression)
    fill(store, zarr_format)
    store.close()


def by_zarr_compressed(path: Path, zarr_format: Any = 3) -> None:
    by_zarr(path, zarr_format, zipfile.ZIP_DEFLATED)


def by_zarr_bzip2(path: Path, zarr_format: Any = 3) -> None:
    by_zarr(path, zarr_format, zipfile.ZIP_BZIP2)


def by_zipfile(path: Path, zarr_format: Any = 3) -> None:
    """An archive with directories, extra fields, zip64 fields, data descriptors, a comment, and bytes before it."""
    folder = path.with_suffix(".folder")
    fill(zarr.storage.LocalStore(folder), zarr_format)
    with path.open("wb") as file:
        file.write(b"#!/bin/sh\n" * 7)
        with zipfile.ZipFile(Stream(file), "w") as archive:
            for i, found in enumerate(sorted(folder.rglob("*"))):
                name = found.relative_to(folder).as_posix()
                if found.is_dir():
                    archive.writestr(zipfile.ZipInfo(f"{name}/"), b"")
                    continue
                info = zipfile.ZipInfo(name)
                info.extra = b"\xca\xfe\x03\0abc" * (i % 3) + (b"\xca\xfe\xf0\x0f" + bytes(0xFF0)) * (i % 11 == 1)
                with archive.open(info, "w", force_zip64=i % 4 == 0) as entry:
                    entry.write(found.read_bytes())
            archive.comment = b"a comment"
    shutil.rmtree(folder)


def by_gzarr(path: Path, zarr_format: Any = 3) -> None:
    with gzarr.ZipStore(path, mode="w") as store:
        root = gzarr.create_group(store, zarr_format=zarr_format)
        for name in names(zarr_format):
            codecs = {"codecs": ["bytes"] if zarr_format == 3 else []} if name == "raw" else {}
            root.create_array(name, data=elements(), **kind_of(name), **codecs)
        gzarr.consolidate_metadata(store)


WRITERS: dict[str, Callable[..., None]] = {
    "zarr": by_zarr,
    "zarr-deflated": by_zarr_compressed,
    "zarr-bzip2": by_zarr_bzip2,
    "zipfile": by_zipfile,
    "gzarr": by_gzarr,
}


class Stream:
    """A file that cannot be sought: zipfile then writes sizes after the data."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, data: Any) -> int:
        return int(self._file.write(data))

    def flush(self) -> None:
        self._file.flush()
