"""Appending rows to a sparse matrix: the shape in the group's attributes changes last, and makes them visible.

What a killed call has left beyond the matrix is removed by the next one.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..errors import ArgumentError, ReadOnlyError
from ..hierarchy.open import open_group
from ..stores import locks
from ..stores.keys import join_path
from .host import scipy_sparse
from .layout import NAMES, layout_of
from .offsets import damaged, element_on_host

if TYPE_CHECKING:
    import numpy.typing as npt

    from ..hierarchy.group import Group
    from .layout import Form


def reopened(group: Group) -> Group:
    """Return the group as it is in the store now."""
    mode: Literal["r", "r+"] = "r" if group.read_only else "r+"
    return open_group(
        group.store, path=group.path, mode=mode, device=group._device, missing=group._missing, verify=group._verify
    )


def on_host(block: Any, form: Form, name: str) -> Any:
    """Return a matrix of SciPy or CuPy as one of SciPy in a format.

    Raises
    ------
    ArgumentError
        If it is neither.
    """
    sparse = scipy_sparse()
    found = block.get() if type(block).__module__.startswith("cupyx.") and hasattr(block, "get") else block
    if not sparse.issparse(found) or found.ndim != 2:
        raise ArgumentError(
            f"matrix {name!r} takes sparse matrices of SciPy or CuPy with two dimensions, not {type(block).__name__}; "
            "scipy.sparse.csr_array(values) makes one of a dense array"
        )
    return found.asformat(form)


def append(group: Group, block: Any, *, lock: bool) -> None:
    """Append a block; see :meth:`gzarr.sparse.Matrix.append`."""
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
        other = 1 - along
        added = on_host(block, layout.form, group.name)
        if added.shape[other] != layout.shape[other]:
            what = ("rows", "columns")[other]
            raise ArgumentError(
                f"matrix {group.name!r} has {layout.shape[other]} {what}, but the block has {added.shape[other]}: "
                "nothing was changed"
            )
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
        if end + added.nnz > most:
            raise ArgumentError(
                f"matrix {group.name!r}: 'indptr' is {layout.indptr.dtype}, which holds up to {most} values, but with "
                f"the block there are {end + added.nnz}; create it anew with gzarr.sparse.create. Nothing was changed"
            )
        offsets: npt.NDArray[np.int64] = added.indptr.astype(np.int64)[1:] + end
        for array, values, length in (
            (layout.data, added.data, end),
            (layout.indices, added.indices, end),
            (layout.indptr, offsets, before + 1),
        ):
            if len(array) > length:
                array.resize((length,))
            array.append(values)
        shape = list(layout.shape)
        shape[along] += added.shape[along]

        def with_shape(present: dict[str, Any]) -> dict[str, Any]:
            # The old name is of no use once there is the new one.
            return {**{name: value for name, value in present.items() if name != "h5sparse_shape"}, "shape": shape}

        group.attrs.change(with_shape)
