"""Display of nodes as text: one-line reprs, tables, trees. Text from a store is escaped for terminals."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import MetadataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Protocol, TypeAlias

    class _Labelled(Protocol):
        """The displayed properties of a codec."""

        @property
        def label(self) -> str: ...

    class _Node(Protocol):
        """The displayed properties of a node."""

        @property
        def name(self) -> str: ...
        @property
        def store(self) -> object: ...
        @property
        def zarr_format(self) -> object: ...
        @property
        def attrs(self) -> Mapping[str, Any]: ...

    class _Array(_Node, Protocol):
        """The displayed properties of an array."""

        @property
        def shape(self) -> tuple[int, ...]: ...
        @property
        def dtype(self) -> object: ...
        @property
        def chunks(self) -> tuple[int, ...]: ...
        @property
        def shards(self) -> tuple[int, ...] | None: ...
        @property
        def dimension_names(self) -> Sequence[str | None] | None: ...
        @property
        def fill_value(self) -> Any: ...
        @property
        def codecs(self) -> Sequence[_Labelled]: ...
        @property
        def device(self) -> str: ...
        @property
        def decode_path(self) -> str: ...
        @property
        def size(self) -> int: ...
        @property
        def nbytes(self) -> int: ...
        @property
        def nchunks(self) -> int: ...
        @property
        def metadata(self) -> Any: ...

    class _Group(_Node, Protocol):
        """The displayed properties of a group."""

        @property
        def implicit(self) -> bool: ...
        @property
        def consolidated(self) -> bool: ...

    _TreeNode: TypeAlias = _Array | _Group | MetadataError

_TABLE = "border-collapse:collapse;font-size:0.9em"
_VALUE = "text-align:left;vertical-align:top;padding:2px 12px 2px 4px"
_LABEL = f"{_VALUE};font-weight:600;white-space:nowrap"


def printable(value: object, limit: int = 400) -> str:
    """Return ``str(value)`` on one line with control characters escaped, cut to about ``limit`` characters."""
    text = str(value)
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def short_size(nbytes: int) -> str:
    """Return a number of bytes with a binary unit, rounded: ``"1.5 MiB"``."""
    if nbytes.bit_length() > 80:
        # Shapes of hostile documents; a float may not hold them.
        return f"2^{nbytes.bit_length() - 1} bytes"
    size = float(nbytes)
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if size < 1024 or unit == "PiB":
            break
        size /= 1024
    return f"{nbytes} bytes" if unit == "bytes" else f"{size:.1f} {unit}"


def readable_size(nbytes: int) -> str:
    """Return a number of bytes with a binary unit and, if that rounds, exactly: ``"1.5 MiB (1,572,864 bytes)"``."""
    short = short_size(nbytes)
    return short if nbytes < 1024 else f"{short} ({nbytes:,} bytes)"


def has_fixed_size(dtype: object) -> bool:
    """Return whether the size of elements is known; of strings and other objects, memory has pointers only."""
    return not getattr(dtype, "hasobject", False)


class MemberCounts(NamedTuple):
    """Numbers of nodes directly below a group: arrays, groups and nodes that cannot be read."""

    arrays: int
    groups: int
    unreadable: int

    def __str__(self) -> str:
        text = f"{_number(self.arrays, 'array')}, {_number(self.groups, 'group')}"
        return f"{text}, {self.unreadable} not readable" if self.unreadable else text


class Info:
    """Table of labels and values: aligned text with ``str``, HTML in notebooks.

    Attributes
    ----------
    rows
        Pairs of label and value.
    """

    def __init__(self, rows: Iterable[tuple[str, str]]) -> None:
        self.rows: tuple[tuple[str, str], ...] = tuple(rows)

    def __str__(self) -> str:
        width = max((len(label) for label, _ in self.rows), default=0)
        return "\n".join(f"{label:<{width}} : {value}" for label, value in self.rows)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = "".join(
            f'<tr><th style="{_LABEL}">{html.escape(label)}</th><td style="{_VALUE}">{html.escape(value)}</td></tr>'
            for label, value in self.rows
        )
        return f'<table style="{_TABLE}"><tbody>{rows}</tbody></table>'


class TreeLine(NamedTuple):
    """Line of a tree: branches, name of the node, what it is, and what is said about it.

    ``kind`` is ``"root"``, ``"group"``, ``"array"`` or ``"unreadable"``.
    """

    branch: str
    name: str
    kind: str
    detail: str


class Tree:
    """Hierarchy as a tree: plain text with ``str``, HTML in notebooks.

    Parameters
    ----------
    root
        First line.
    nodes
        Paths and nodes below, parents first, as from :meth:`gzarr.Group.walk`; an error for a node that cannot be read.
    note
        Function that returns what else to say about a node; ``""`` for nothing.

    Attributes
    ----------
    lines
        What it consists of.
    """

    def __init__(
        self, root: str, nodes: Iterable[tuple[str, _TreeNode]], note: Callable[[Any], str] | None = None
    ) -> None:
        found = [(path, _kind(node), _detail(node) + ("" if note is None else note(node))) for path, node in nodes]
        self.lines: tuple[TreeLine, ...] = (TreeLine("", printable(root), "root", ""), *_tree_lines(found))

    def __str__(self) -> str:
        return "\n".join(line.branch + line.name + line.detail for line in self.lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        lines = (f"{html.escape(b)}<b>{html.escape(n)}</b>{html.escape(d)}" for b, n, _, d in self.lines)
        return '<pre style="line-height:1.2">' + "\n".join(lines) + "</pre>"


def _tree_lines(nodes: list[tuple[str, str, str]]) -> Iterator[TreeLine]:
    # Scanned from the end: a node is its parent's last if no node at its depth follows before one closer to the root.
    last: list[bool] = [True] * len(nodes)
    open_depths: set[int] = set()
    for i in range(len(nodes) - 1, -1, -1):
        depth = nodes[i][0].count("/")
        open_depths = {d for d in open_depths if d <= depth}
        last[i] = depth not in open_depths
        open_depths.add(depth)
    stems: list[str] = []
    for (path, kind, detail), is_last in zip(nodes, last, strict=True):
        depth = path.count("/")
        del stems[depth:]
        branch = "".join(stems)
        stems.append("    " if is_last else "│   ")
        name = printable(path.rpartition("/")[2])
        yield TreeLine(branch + ("└── " if is_last else "├── "), name, kind, detail)


def _kind(node: _TreeNode) -> str:
    if isinstance(node, MetadataError):
        return "unreadable"
    return "group" if getattr(node, "shape", None) is None else "array"


def _detail(node: _TreeNode) -> str:
    """Return the text after the name of a node."""
    if isinstance(node, MetadataError):
        return f" [not readable: {printable(node, 200)}]"
    shape = getattr(node, "shape", None)
    if shape is not None:
        return f" {shape} {printable(getattr(node, 'dtype', ''), 120)}"
    return " [implicit]" if getattr(node, "implicit", False) else ""


def array_repr(array: _Array) -> str:
    """Return an array on one line: path, shape, dtype, chunks, decode path."""
    chunks = f"chunks {array.chunks}" if array.shards is None else f"chunks {array.chunks} in shards {array.shards}"
    return (
        f"<gzarr.Array {printable(array.name)} {array.shape} {printable(array.dtype, 120)}, {chunks}, "
        f"{printable(array.decode_path)}>"
    )


def array_info(array: _Array) -> Info:
    """Return a table of an array's properties; costs no store request."""
    rows = [
        ("Name", printable(array.name)),
        ("Type", "Array"),
        ("Zarr format", str(array.zarr_format)),
        ("Store", printable(repr(array.store))),
        ("Shape", str(array.shape)),
        ("Data type", printable(array.dtype)),
        ("Chunks", str(array.chunks)),
    ]
    if array.shards is not None:
        rows.append(("Shards", str(array.shards)))
    if array.dimension_names is not None:
        rows.append(("Dimension names", printable(array.dimension_names)))
    rows += [
        ("Fill value", printable(array.fill_value)),
        ("Codecs", printable(" → ".join(codec.label for codec in array.codecs), 1000)),
        ("Device", array.device),
        ("Decode path", printable(array.decode_path, 1000)),
        ("Elements", f"{array.size:,}"),
        ("Size", readable_size(array.nbytes) if has_fixed_size(array.dtype) else "variable"),
        ("Number of chunks", f"{array.nchunks:,}"),
    ]
    if array.attrs:
        rows.append(("Attributes", attribute_names(array.attrs)))
    return Info(rows)


def group_repr(group: _Group, counts: MemberCounts | None) -> str:
    """Return a group on one line, with the ``counts`` of its members if they are known without a store request."""
    notes = [f"Zarr {group.zarr_format}"]
    if group.implicit:
        notes.append("implicit")
    if counts is not None:
        notes.append(str(counts))
    return f"<gzarr.Group {printable(group.name)}, {', '.join(notes)}>"


def group_rows(group: _Group) -> list[tuple[str, str]]:
    """Return labels and values of what is known of a group without a store request."""
    rows = [
        ("Name", printable(group.name)),
        ("Type", "Group (implicit)" if group.implicit else "Group"),
        ("Zarr format", str(group.zarr_format)),
        ("Store", printable(repr(group.store))),
        ("Consolidated", "yes" if group.consolidated else "no"),
    ]
    if group.attrs:
        rows.append(("Attributes", attribute_names(group.attrs)))
    return rows


def group_info(group: _Group, counts: MemberCounts | None) -> Info:
    """Return a table of a group's properties, with the ``counts`` of its members; None if the store cannot list."""
    return Info([*group_rows(group), ("Members", "unknown: the store cannot list" if counts is None else str(counts))])


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def attribute_names(attributes: Any) -> str:
    """Return the number and the names of attributes."""
    return printable(f"{len(attributes)}: {', '.join(map(str, attributes))}", 200)
