"""HTML of arrays and groups for notebooks: tables, and the drawing of the chunk grid beside them."""

from __future__ import annotations

import html
import math
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import MetadataError
from .drawing import chunk_grid
from .text import attribute_names, group_rows, has_fixed_size, printable, readable_size, short_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .text import MemberCounts, _Array, _Group

_TABLE = "border-collapse:collapse;font-size:inherit;margin:4px 0"
_VALUE = "text-align:left;vertical-align:top;padding:2px 12px 2px 4px"
_LABEL = f"{_VALUE};font-weight:600;white-space:nowrap"
_SIDE_BY_SIDE = "display:flex;flex-wrap:wrap;gap:8px 24px;align-items:center"


class StoredSize(NamedTuple):
    """What of an array is stored, of the chunks (shards) that were looked at.

    Attributes
    ----------
    nbytes
        Size of the stored ones.
    decoded_nbytes
        Size of their elements.
    present, seen, total
        Numbers of chunks: stored ones, those that were looked at, all.
    """

    nbytes: int
    decoded_nbytes: int
    present: int
    seen: int
    total: int


class Member(NamedTuple):
    """A node below a group, or the error in its metadata; with the nodes below it if they are known."""

    name: str
    node: Any
    below: ShownMembers | None = None


class ShownMembers(NamedTuple):
    """The first nodes below a group, and the number of the others."""

    shown: Sequence[Member]
    others: int


def page(title: str, parts: Iterable[str]) -> str:
    """Return HTML parts that stand side by side, below a title."""
    beside = "".join(f"<div>{part}</div>" for part in parts if part)
    head = f"<div><b>{escaped(title, 200)}</b></div>"
    return f'<div style="font-size:0.9em">{head}<div style="{_SIDE_BY_SIDE}">{beside}</div></div>'


def escaped(value: object, limit: int = 400) -> str:
    """Return a value as HTML text, cut to about ``limit`` characters."""
    return html.escape(printable(value, limit))


def table(rows: Iterable[Sequence[str]], head: Sequence[str] = ()) -> str:
    """Return a table.

    Parameters
    ----------
    rows
        HTML of the cells of each row; the first one is its heading. The last one of a short row is as wide as the rest.
    head
        HTML of the headings of the columns.
    """
    lines = list(rows)
    width = max([len(head), *map(len, lines)])
    begin = "".join(f'<th style="{_LABEL}">{cell}</th>' for cell in head)
    begin = f"<thead><tr>{begin}</tr></thead>" if begin else ""
    body = "".join(f"<tr>{_cells(cells, width)}</tr>" for cells in lines)
    return f'<table style="{_TABLE}">{begin}<tbody>{body}</tbody></table>'


def _cells(cells: Sequence[str], width: int) -> str:
    *others, last = cells
    parts = [f'<{_tag(i)} style="{_style(i)}">{cell}</{_tag(i)}>' for i, cell in enumerate(others)]
    i = len(others)
    span = "" if i + 1 == width else f' colspan="{width - i}"'
    return "".join(parts) + f'<{_tag(i)}{span} style="{_style(i)}">{last}</{_tag(i)}>'


def _tag(i: int) -> str:
    return "td" if i else "th"


def _style(i: int) -> str:
    return _VALUE if i else _LABEL


def array_html(array: _Array, stored: StoredSize | None) -> str:
    """Return an array as HTML, with what of it is ``stored`` if that is known without a store request."""
    return page(f"gzarr.Array {array.name}", [array_table(array, stored), array_drawing(array)])


def array_drawing(array: _Array) -> str:
    """Return the drawing of an array's chunk grid as HTML."""
    grid = array.metadata.chunk_grid
    drawing = chunk_grid(grid.axes, None if array.shards is None else array.chunks, array.dimension_names)
    notes = "".join(f"<div>{html.escape(note)}</div>" for note in drawing.notes)
    return drawing.svg + (f'<div style="font-size:0.8em;opacity:0.8">{notes}</div>' if notes else "")


def array_table(array: _Array, stored: StoredSize | None) -> str:
    """Return the properties of an array as an HTML table."""
    grid = array.metadata.chunk_grid
    # Of a rectilinear grid, the shapes are the largest ones.
    up_to = "" if grid.is_regular else "up to "
    columns = [("Array", array.shape, "", "")]
    if array.shards is not None:
        columns.append(("Shard", array.shards, up_to, f"{math.prod(grid.grid_shape):,}"))
    columns.append(("Chunk", array.chunks, up_to if array.shards is None else "", f"{array.nchunks:,}"))
    size = _Size(array)
    rows = [
        ["Shape", *(f"{most}{_shape(shape)}" for _, shape, most, _ in columns)],
        ["Size", *(f"{most}{size.of(shape)}" for _, shape, most, _ in columns)],
        ["Count", *(count for *_, count in columns)],
        ["Data type", escaped(array.dtype)],
    ]
    if array.dimension_names is not None:
        rows.append(["Dimensions", escaped(", ".join("–" if name is None else name for name in array.dimension_names))])
    rows.append(["Fill value", escaped(array.fill_value)])
    rows.append(["Codecs", escaped(" → ".join(codec.label for codec in array.codecs), 600)])
    if stored is not None and stored.seen:
        rows.append(["Stored", _stored(stored, "shards" if array.shards is not None else "chunks", size)])
    rows.append(["Device", escaped(array.device)])
    rows.append(["Decoded by", escaped(array.decode_path, 600)])
    rows.append(["Store", escaped(f"{array.store!r}, Zarr {array.zarr_format}")])
    if array.attrs:
        rows.append(["Attributes", html.escape(attribute_names(array.attrs))])
    return table(rows, ["", *(name for name, *_ in columns)])


def _shape(shape: Sequence[int]) -> str:
    return escaped(tuple(shape))


class _Size:
    """Sizes of shapes of an array, which are unknown if its elements have no fixed length."""

    def __init__(self, array: _Array) -> None:
        self.itemsize = int(getattr(array.dtype, "itemsize", 0)) if has_fixed_size(array.dtype) else 0

    def of(self, shape: Sequence[int]) -> str:
        if not self.itemsize:
            return "variable"
        nbytes = math.prod(shape) * self.itemsize
        # Only a rounded size needs the exact one.
        return f'<span title="{readable_size(nbytes)}">{short_size(nbytes)}</span>'


def _stored(stored: StoredSize, what: str, size: _Size) -> str:
    found = f"{stored.present:,} of {stored.seen:,} {what}"
    nbytes, about = stored.nbytes, ""
    if stored.seen < stored.total:
        found += f" looked at, of {stored.total:,}"
        nbytes, about = nbytes * stored.total // stored.seen, "about "
    if not stored.present:
        return f"{found}"
    ratio = f", ratio {stored.decoded_nbytes / stored.nbytes:.2f}" if size.itemsize and stored.nbytes else ""
    return f"{about}{short_size(nbytes)}{ratio} ({found})"


def group_html(group: _Group, counts: MemberCounts | None, members: ShownMembers | None) -> str:
    """Return a group as HTML.

    Parameters
    ----------
    group
        The group.
    counts, members
        Numbers of nodes directly below, and these nodes; None if they are not known without a store request.
    """
    rows = [[html.escape(label), html.escape(value)] for label, value in group_rows(group)]
    if counts is not None:
        rows.append(["Members", escaped(counts)])
    below = members_table(members) if members is not None and members.shown else ""
    return page(f"gzarr.Group {group.name}", [table(rows) + below])


def members_table(members: ShownMembers) -> str:
    """Return the nodes below a group as an HTML table; groups whose nodes are known can be unfolded."""
    rows = [_member(member) for member in members.shown]
    if members.others:
        rows.append([f"and {members.others:,} more"])
    return table(rows, ["Name", "Shape", "Data type", "Chunks", "Size"])


def _member(member: Member) -> list[str]:
    name = escaped(member.name, 80)
    node = member.node
    if isinstance(node, MetadataError):
        return [name, f"not readable: {escaped(node, 200)}"]
    if getattr(node, "shape", None) is None:
        if member.below is None or not member.below.shown:
            return [f"{name}/", "group"]
        count = len(member.below.shown) + member.below.others
        inside = members_table(member.below)
        return [f"{name}/", f"<details><summary>group of {count:,}</summary>{inside}</details>"]
    chunks = escaped(node.chunks)
    if node.shards is not None:
        chunks += f" in shards {escaped(node.shards)}"
    return [name, _shape(node.shape), escaped(node.dtype, 60), chunks, _Size(node).of(node.shape)]
