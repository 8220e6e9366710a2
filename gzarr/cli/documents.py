"""Nodes as JSON, for ``gzarr info --json`` and ``gzarr tree --json``; docs/command-line.md has the keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..arrays.storage import Stored
from ..codecs.codec import ArrayRepresentation
from ..display import has_fixed_size
from ..dtypes import fill_value
from ..engines import kernels
from ..errors import GzarrError
from ..hierarchy.group import Group
from ..plan.decode_program import analyse
from . import output

if TYPE_CHECKING:
    import argparse

    from ..arrays.array import Array
    from ..metadata.model import ArrayMetadata


def node(of: Array | Group, parser: argparse.ArgumentParser, *, full: bool) -> dict[str, Any]:
    """Return what ``gzarr info`` says about a node.

    Parameters
    ----------
    of
        The node.
    parser
        Parser of the command, for :func:`gzarr.cli.output.members`.
    full
        As for :meth:`gzarr.arrays.storage.Stored.of`.
    """
    if isinstance(of, Group):
        members = [{"name": path, **_brief(member)} for path, member in output.members(of, 0, parser)]
        return {
            **_common(of), "implicit": of.implicit, "consolidated": of.consolidated, "members": members,
            "attributes": dict(of.attrs),
        }  # fmt: skip
    metadata = of.metadata
    return {
        **_common(of),
        "shape": list(of.shape),
        "dtype": str(of.dtype),
        "data_type": metadata.data_type,
        "dimension_names": None if of.dimension_names is None else list(of.dimension_names),
        **storage(metadata),
        "fill_value": fill_value.to_v3(metadata.fill_value, metadata.dtype),
        "nbytes": of.nbytes if has_fixed_size(of.dtype) else None,
        "nchunks": of.nchunks,
        "device": of.device,
        "decode_path": str(of.decode_path),
        "stored": Stored.of(of, full=full).to_json(),
        "attributes": dict(of.attrs),
    }


def tree(of: Array | Group, level: int | None, parser: argparse.ArgumentParser) -> dict[str, Any]:
    """Return a node, and all nodes below it down to a level, parents first; None for all levels."""
    found = {**_common(of), **_brief(of)}
    if isinstance(of, Group):
        found["nodes"] = [{"path": path, **_brief(below)} for path, below in output.members(of, level, parser)]
    return found


def storage(metadata: ArrayMetadata) -> dict[str, Any]:
    """Return the chunks, shards and codecs of an array."""
    decoding = analyse(metadata.codecs, ArrayRepresentation(metadata.chunk_shape, metadata.dtype), kernels.available())
    chunks, shards = metadata.chunk_shape, None
    if decoding.levels:
        chunks, shards = decoding.levels[0].inner_shape, metadata.chunk_shape
    return {
        "chunks": list(chunks),
        "shards": None if shards is None else list(shards),
        "codecs": [codec.label for codec in metadata.codecs],
    }


def _common(of: Array | Group) -> dict[str, Any]:
    kind = "group" if isinstance(of, Group) else "array"
    return {"node": of.name, "kind": kind, "zarr_format": of.zarr_format, "store": repr(of.store)}


def _brief(of: Array | Group | GzarrError) -> dict[str, Any]:
    """Return what a line of a tree says."""
    if isinstance(of, GzarrError):
        return {"kind": "unreadable", "error": str(of)}
    if isinstance(of, Group):
        return {"kind": "group"}
    return {"kind": "array", "shape": list(of.shape), "dtype": str(of.dtype)}
