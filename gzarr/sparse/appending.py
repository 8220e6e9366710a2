"""Appending rows to a sparse matrix: the shape in the group's attributes changes last, and makes them visible.

What a failed call has left beyond the matrix is removed by it, because AnnData appends behind the ends of the arrays,
and what a killed one has left, by the next one of gzarr.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..errors import ArgumentError, ReadOnlyError
from ..hierarchy.open import open_group
from ..stores import locks
from ..stores.keys import join_path
from .block import Added, added_to, on_host
from .layout import NAMES, layout_of, shape_of
from .offsets import damaged, element_on_host

if TYPE_CHECKING:
    from ..hierarchy.group import Group
    from .layout import Layout


def reopened(group: Group) -> Group:
    """Return the group as it is in the store now."""
    mode: Literal["r", "r+"] = "r" if group.read_only else "r+"
    return open_group(
        group.store, path=group.path, mode=mode, device=group._device, missing=group._missing, verify=group._verify
    )


def append(group: Group, block: Any, *, lock: bool) -> None:
    """Append a block, or what it adds; see :meth:`gzarr.sparse.Matrix.append`."""
    if group.read_only:
        raise ReadOnlyError(f"{group.name} in {group.store!r} is read-only; open the matrix with mode='r+' to append")
    paths = [join_path(group.path, name) for name in NAMES]
    with locks.hold_node(group.store, group.path, *paths), contextlib.ExitStack() as stack:
        if lock:
            below = f"{group.path}/" if group.path else ""
            stack.enter_context(locks.between_processes(group.store, (), below))
        # Others may have appended since it was opened.
        group = reopened(group)
        layout = layout_of(group)
        along = int(layout.form == "csc")
        # All of it is checked before anything is written.
        added = block if isinstance(block, Added) else added_to(layout, on_host(block, layout.form, group.name))
        before = layout.shape[along]
        end = int(element_on_host(layout.indptr, before))
        room = min(len(layout.data), len(layout.indices))
        if not 0 <= end <= room:
            raise damaged(
                layout.indptr,
                before,
                f"it says that there are {end} values, but 'data' and 'indices' have {room}: nothing was appended",
            )
        most = np.iinfo(layout.indptr.dtype).max
        count = len(added.values)
        if end + count > most:
            raise ArgumentError(
                f"matrix {group.name!r}: 'indptr' is {layout.indptr.dtype}, which holds up to {most} values, but with "
                f"the block there are {end + count}; create it anew with gzarr.sparse.create. Nothing was changed"
            )
        shape = list(layout.shape)
        shape[along] += len(added.offsets) - 1

        def with_shape(present: dict[str, Any]) -> dict[str, Any]:
            # The old name is of no use once there is the new one.
            return {**{name: value for name, value in present.items() if name != "h5sparse_shape"}, "shape": shape}

        lengths = (end, end, before + 1)
        try:
            for array, values, length in zip(
                (layout.data, layout.indices, layout.indptr),
                (added.values, added.indices, added.offsets[1:] + end),
                lengths,
                strict=True,
            ):
                if len(array) > length:
                    array.resize((length,))
                array.append(values)
            group.attrs.change(with_shape)
        except BaseException:
            _shorten(layout, lengths)
            raise


def _shorten(layout: Layout, lengths: tuple[int, int, int]) -> None:
    """Remove what a failed call has left beyond the matrix, as far as the store lets it."""
    # Whatever a store raises here, the error that made the call fail is the one to see.
    with contextlib.suppress(Exception):
        now = reopened(layout.group)
        # Where the shape was written nevertheless, rows are visible and stay.
        if shape_of(now) != layout.shape:
            return
        for name, length in zip(NAMES, lengths, strict=True):
            with contextlib.suppress(Exception):
                # As it is in the store: an interrupted call may not have told its handle.
                array: Any = now[name]
                if len(array) > length:
                    array.resize((length,))
