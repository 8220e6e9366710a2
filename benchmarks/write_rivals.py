"""The writers that are compared, each set up as its own documentation recommends for speed, with the same threads.

A rival turns an empty array, with only a metadata document, and its elements into a call without arguments that writes
the whole array; only the call is timed. No rival flushes to disk, or stores chunks that hold only fill values.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import rivals
from rivals import CannotRead

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt
    from rivals import Call


class ZarrPython(rivals.ZarrPython):
    """zarr-python with its default pipeline."""

    def write(self, path: Path, data: npt.NDArray[Any]) -> Call:
        import zarr

        return partial(zarr.open_array(str(path), mode="r+").__setitem__, ..., data)


class ZarrPythonFused(rivals.ZarrPythonFused):
    """zarr-python with its fused pipeline."""

    def write(self, path: Path, data: npt.NDArray[Any]) -> Call:
        return ZarrPython.write(self, path, data)  # type: ignore[arg-type]


class Zarrs(rivals.Zarrs):
    """zarr-python with the Rust codec pipeline of zarrs."""

    def write(self, path: Path, data: npt.NDArray[Any]) -> Call:
        return ZarrPython.write(self, path, data)  # type: ignore[arg-type]


class TensorStore(rivals.TensorStore):
    """tensorstore without flushing (its default flushes each file), reading the elements in place."""

    def write(self, path: Path, data: npt.NDArray[Any]) -> Call:
        spec = {
            "driver": "zarr3" if (path / "zarr.json").exists() else "zarr",
            "kvstore": {"driver": "file", "path": f"{path}/"},
            "recheck_cached_metadata": False,
            "recheck_cached_data": False,
        }
        context = self._ts.Context({**self._context, "file_io_mode": {"mode": "default"}, "file_io_sync": False})
        try:
            array = self._ts.open(spec, open=True, context=context).result()
        except (ValueError, NotImplementedError) as error:
            raise CannotRead(str(error).splitlines()[0][:160]) from error
        return lambda: array.write(data, can_reference_source_data_indefinitely=True).result()


class Given(rivals.Gzarr):
    """gzarr on its CPU engine, with the level in the document."""

    name = "given"

    def write(self, path: Path, data: npt.NDArray[Any]) -> Call:
        import gzarr

        return partial(gzarr.open_array(path, mode="r+", device="cpu").__setitem__, ..., data)


class Automatic(rivals.Gzarr):
    """gzarr on its CPU engine, with the same codecs but no level: it chooses how hard to search."""

    name = "automatic"

    def write(self, path: Path, data: npt.NDArray[Any]) -> Call:
        import gzarr

        given = gzarr.open_array(path, device="cpu")
        codecs = [codec.to_json() for codec in given.codecs]
        if given.shards is not None:
            codecs = codecs[0]["configuration"]["codecs"]
        array = gzarr.create_array(
            path,
            shape=given.shape,
            dtype=given.dtype,
            chunks=given.chunks,
            shards=given.shards,
            codecs=list(map(_without_level, codecs)),
            zarr_format=given.zarr_format,
            overwrite=True,
            device="cpu",
        )
        assert [codec.label for codec in array.codecs] == [codec.label for codec in given.codecs]
        return partial(array.__setitem__, ..., data)


def _without_level(document: dict[str, Any]) -> dict[str, Any]:
    configuration = document.get("configuration", {})
    rest = {name: value for name, value in configuration.items() if name not in ("level", "clevel")}
    return {**document, "configuration": rest}


#: gzarr's own columns.
OURS = (Automatic.name, Given.name)
#: All rivals, in the order of the table.
RIVALS: dict[str, type[Any]] = {r.name: r for r in (Automatic, Given, Zarrs, TensorStore, ZarrPythonFused, ZarrPython)}
