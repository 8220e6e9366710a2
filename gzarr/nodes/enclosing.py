"""Groups that the root of a store lies in: an array or group may be opened by its own path, below that of its group.

Its store then knows nothing of the groups above, whose consolidated metadata are outdated when the node changes. In
directories they can be found. (In object stores, a look for them would be further requests for each change.)
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..errors import GzarrError
from ..metadata.formats import FORMATS
from ..metadata.model import GroupMetadata
from ..stores.base import WritableStore
from ..stores.keys import name_fault
from ..stores.local import LocalStore
from .documents import upward
from .reader import NodeReader

if TYPE_CHECKING:
    from ..stores.base import Store

# Documents that make a group, in the formats with consolidated metadata, each with its format.
_DOCUMENTS: Final = [
    (zarr_format, key)
    for zarr_format, format in FORMATS.items()
    if format.consolidated_document
    for key in format.node_keys("")
    if key in format.keys_of("", "group")
]


class Enclosing(NamedTuple):
    """Groups that a store's root lies in.

    Attributes
    ----------
    store
        Store whose root is the outermost.
    path
        Path in it of the store's root.
    """

    store: Store
    path: str

    @property
    def groups(self) -> list[str]:
        """Paths of the groups in :attr:`store`, from the innermost to ``""``."""
        return upward(self.path)[1:]


def enclosing_groups(store: Any) -> Enclosing | None:
    """Return the groups that the root of a local store lies in, as far up as one follows the other; None without any.

    They are found by the path of the root: one that is a link lies where the link is, as for those who open the group.
    """
    # What a cache holds is below the root.
    while isinstance(inner := getattr(store, "store", None), WritableStore):
        store = inner
    if not isinstance(store, LocalStore):
        return None
    root = outermost = str(store.root)
    while True:
        above, name = os.path.split(outermost)
        if above == outermost or name_fault(name) is not None or not _is_group(store._elsewhere(Path(above))):
            break
        if not store.follow_symlinks and os.path.islink(outermost):  # noqa: PTH114
            # Who opens the group so cannot read what is behind it.
            break
        outermost = above
    if outermost == root:
        return None
    path = os.path.relpath(root, outermost).replace(os.sep, "/")
    return Enclosing(store._elsewhere(Path(outermost)), path)


def _is_group(store: LocalStore) -> bool:
    """Return whether there is a group at a store's root. Other files may have the names of documents."""
    root = str(store.root)
    for zarr_format, key in _DOCUMENTS:
        if os.path.isfile(os.path.join(root, key)):  # noqa: PTH113, PTH118
            # Others are not looked for: this is done at each change.
            with contextlib.suppress(GzarrError):
                entry = NodeReader(store, use_consolidated=False).node("", zarr_format)
                if entry is not None and isinstance(entry.metadata, GroupMetadata) and not entry.metadata.implicit:
                    return True
    return False
