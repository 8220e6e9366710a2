"""The documents of a loader's arrays, which other handles and processes may change while it is used."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final

from ..arrays.present import present_metadata
from ..arrays.view import ArrayView
from ..errors import ArgumentError, GzarrError, StoreError
from ..sparse.view import DenseView
from ..stores.base import RemoteValues
from . import side_by_side

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..arrays.exporting import ExportedArray
    from .fingerprint import Fingerprint

# Most of the time that looking again takes: without a reason, and with one if documents are in a remote store.
_SHARE: Final = 0.01
_REMOTE_SHARE: Final = 0.05


class ArraysChangedError(Exception):
    """An array is not any more what it was when the loader was made; its cause says what it is.

    It ends an epoch, unlike the error of a chunk, and so it is none of those.
    """


class Documents:
    """Looks at documents.

    Parameters
    ----------
    volumes
        Arrays by name, for each volume.
    fingerprint
        What they were when the loader was made.

    Attributes
    ----------
    are_remote
        Whether some are in remote stores.
    """

    def __init__(self, volumes: Sequence[dict[str, ExportedArray]], fingerprint: Fingerprint) -> None:
        self._volumes = volumes
        self._fingerprint = fingerprint
        self.are_remote: bool = any(isinstance(a.store, RemoteValues) for volume in volumes for a in volume.values())
        # When the last look ended, and how long it took.
        self._ended = self._took = 0.0

    def look(self) -> list[str]:
        """Look at the document of each array; return in words which arrays have grown.

        Raises
        ------
        ArgumentError
            If an array has shrunk, or another one has taken its place.
        NodeNotFoundError
            If an array has been erased.
        StoreError, MetadataError
            If a document cannot be read.
        """
        begun = time.monotonic()
        try:
            shapes = self._shapes()
        finally:
            self._ended = time.monotonic()
            self._took = self._ended - begun
        changed = self._fingerprint.changed(shapes)
        if any(not grown for _, grown in changed):
            told = "; ".join(what for what, _ in changed)
            raise ArgumentError(f"{told}, since this loader was made; make a new one")
        return [what for what, _ in changed]

    def look_again(self, *, reason: bool) -> None:
        """Look within an epoch, but not too often.

        Parameters
        ----------
        reason
            Whether a chunk is absent, or cannot be read. Then local documents are always read.

        Raises
        ------
        ArraysChangedError
            If :meth:`look` raises an error, unless the store failed: whether an array has changed is not known then.
        """
        if not reason or self.are_remote:
            share = _REMOTE_SHARE if reason else _SHARE
            if time.monotonic() - self._ended < self._took / share:
                return
        try:
            self.look()
        except StoreError:
            return
        except GzarrError as error:
            raise ArraysChangedError from error

    def _shapes(self) -> list[dict[str, tuple[int, ...]]]:
        """Return the shapes that the arrays have now."""
        arrays = {id(array): array for volume in self._volumes for array in volume.values()}
        present: dict[int, tuple[int, ...]] = {}

        def look(array: ExportedArray) -> None:
            present[id(array)] = _present_shape(array)

        side_by_side.run([partial(look, a) for a in arrays.values() if isinstance(a.store, RemoteValues)])
        for key, array in arrays.items():
            if key not in present:
                look(array)
        return [{name: present[id(array)] for name, array in volume.items()} for volume in self._volumes]


def _present_shape(array: ExportedArray) -> tuple[int, ...]:
    """Return the shape of an array of a loader, by the one that its document has now."""
    if isinstance(array, DenseView):
        return array._present_shape()
    if isinstance(array, ArrayView):
        return array._shape_within(present_metadata(array.base).shape)
    return present_metadata(array).shape
