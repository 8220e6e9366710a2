"""A copy that is planned and checked: what it will write, and the writing itself.

- Groups are written before their members, the documents of an array after its chunks. So an existing array is always
  complete, and a copy that fails or is killed leaves chunks without an array, which nobody reads. In stores that refuse
  such chunks (:func:`gzarr.nodes.change.documents_first`), documents come first, and a copy that fails leaves changes
  that nobody has committed.
- Values that are part of no node (:mod:`gzarr.tools.other_values`) come after all nodes.
- ``resume`` trusts no existing data: it is read, compared with the source, and written again where it differs. Nodes
  that the source lacks are neither erased nor silently kept: they are an error. Other values that it lacks stay.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError, MetadataError
from ..metadata.formats import FORMATS
from ..metadata.model import ArrayMetadata, GroupMetadata
from ..metadata.to_documents import dump
from ..nodes.change import hold_documents, reader_of
from ..nodes.create import erase_strays, stray_chunks, write_new_group
from ..nodes.erasing import delete_node
from ..nodes.location import inspect_below, inspect_location
from ..progress import watch
from ..stores.base import flushing, is_listable
from ..stores.keys import join_path
from ..stores.locks import claim, hold_node
from .consolidate import consolidate
from .other_values import present_value
from .processes import as_executor, check_shared

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from ..metadata.model import NodeMetadata, ZarrFormat
    from ..nodes.location import Location
    from ..nodes.reader import NodeReader
    from ..stores.base import ReadableStore, Store
    from ..stores.resolve import StoreLike
    from .copy_array import ArrayCopy
    from .other_values import OtherValues


@dataclass(slots=True)
class CopyDifferences:
    """What a copy says otherwise than its source, beside storage.

    Attributes
    ----------
    formats
        Zarr formats of the source and of the copy.
    changes
        By path in the source, what the copy says otherwise, in lines of text.
    losses
        By path in the source, what some reader will no longer see, with ``lossy``; also among the changes.
    """

    formats: tuple[ZarrFormat, ZarrFormat]
    changes: dict[str, list[str]] = field(default_factory=dict)
    losses: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CopyTarget:
    """Where a copy goes.

    Attributes
    ----------
    given
        The destination as it was given.
    store, path
        Its store, and the path in it.
    location
        What is there.
    reader
        Reader of the copy, which allows what was allowed of the source.
    """

    given: StoreLike
    store: Store
    path: str
    location: Location
    reader: NodeReader


class Copy:
    """A planned and checked copy; see :func:`gzarr.tools.copy.prepare_copy`. Nothing is written before :meth:`steps`.

    Attributes
    ----------
    target
        Where it goes.
    groups
        Metadata of each group by path in the target, parents first.
    arrays
        Copies of the arrays.
    differences
        What the copy says otherwise than the source.
    consolidated
        Paths in the target of the groups whose metadata is consolidated, as in the source.
    others
        The copy of values that are part of no node; None if there are none.
    by_name
        Paths in the source of the arrays whose chunks or shards were given by the names of their axes.
    """

    def __init__(self, target: CopyTarget, formats: tuple[ZarrFormat, ZarrFormat]) -> None:
        self.target: CopyTarget = target
        self._store, self._path, self._location = target.store, target.path, target.location
        self._erase = False
        self._strays: list[ArrayCopy] = []
        self._resume = self._overwrite = False
        self._made: set[str] = set()
        self.groups: dict[str, GroupMetadata] = {}
        self.arrays: list[ArrayCopy] = []
        self.differences: CopyDifferences = CopyDifferences(formats)
        self.consolidated: list[str] = []
        self.others: OtherValues | None = None
        self.by_name: set[str] = set()

    @property
    def total(self) -> int:
        """Upper limit of the number of steps."""
        return sum(part.total for part in self._parts)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements of all arrays."""
        return sum(array.source.nbytes for array in self.arrays)

    @property
    def written(self) -> int:
        """Number of regions (stored values, in arrays that are not decoded) and other values written so far."""
        return sum(part.written for part in self._parts)

    @property
    def kept(self) -> int:
        """Number of the same found equal so far, and not written."""
        return sum(part.kept for part in self._parts)

    @property
    def _parts(self) -> list[ArrayCopy | OtherValues]:
        return [*self.arrays, *([] if self.others is None else [self.others])]

    def groups_below(self) -> Iterator[tuple[str, GroupMetadata]]:
        """Yield the groups with their paths below the copied node, parents first."""
        for path, metadata in self.groups.items():
            yield path.removeprefix(self._path).lstrip("/"), metadata

    def check_free(self, *, overwrite: bool, resume: bool) -> None:
        """Refuse an occupied destination, unless it is to be erased or holds the beginning of this copy.

        Raises
        ------
        ArgumentError
            If the destination is occupied. The message names the node.
        """
        where = f"'/{self._path}' in {self._store!r}"
        self._resume, self._overwrite = resume, overwrite
        if resume:
            self._check_same()
            self._check_no_others()
            return
        self._erase = self._location.occupied
        if self._erase and not overwrite:
            raise ArgumentError(
                f"there is a node at {where} already; pass resume=True to continue an interrupted copy, or "
                "overwrite=True to erase it with everything below it"
            )
        self._strays = [] if self._erase else list(self._with_strays())
        if self._strays and not overwrite:
            raise ArgumentError(
                f"there are chunks without an array at '/{self._strays[0].path}' in {self._store!r} already; pass "
                "resume=True to continue an interrupted copy, or overwrite=True to erase such chunks"
            )
        if not overwrite and self.others is not None:
            self._check_no_values(self.others)

    def _with_strays(self) -> Iterator[ArrayCopy]:
        """Yield the arrays that have chunks already, where there is no node: these would become part of the copy."""
        if self._location.is_empty or not is_listable(self._store):
            return
        # For many arrays, one listing tells that there is nothing, where all chunks lie below the path.
        below = f"{self._path}/" if self._path else ""
        has_all = self.groups and not FORMATS[self._format].has_entry_point
        if has_all and next(iter(self._store.list_prefix(below)), None) is None:
            return
        for array in self.arrays:
            if stray_chunks(self._store, array.path, array.metadata):
                yield array

    def _check_no_values(self, others: OtherValues) -> None:
        """Refuse to replace values where there is no node."""
        if self._location.is_empty:
            return
        below = f"{self._path}/" if self._path else ""
        key = present_value(self._store, below, others.keys())
        if key is not None:
            raise ArgumentError(
                f"there is a value at {key!r} in {self._store!r} already; pass resume=True to continue an interrupted "
                "copy, or overwrite=True to replace such values"
            )

    def _check_same(self) -> None:
        """Refuse to resume a different copy."""
        for path, metadata in self.groups.items():
            present = self._present(path)
            if isinstance(present, GroupMetadata) and (present.implicit or _is_same(present, metadata)):
                continue
            if present is not None:
                raise _other(path, self._store)
        for array in self.arrays:
            self._check_array(array)

    def _check_array(self, array: ArrayCopy) -> None:
        """Refuse a path of an array that holds anything but the array to be resumed."""
        present = self._present(array.path)
        # Chunks of an array without documents may look like a group.
        if present is None or (self._resume and isinstance(present, GroupMetadata) and present.implicit):
            return
        if not self._resume or not isinstance(present, ArrayMetadata) or not array.is_described_by(present):
            raise self._taken(array.path)
        array.has_documents = True

    def _taken(self, path: str) -> ArgumentError:
        """Return the error for a node that is in the way; of what was to be overwritten, all is erased by now."""
        if not self._overwrite:
            return _other(path, self._store)
        return ArgumentError(
            f"there is a node at '/{path}' in {self._store!r} already, which another writer was creating at the same "
            "time; try again"
        )

    def _check_no_others(self) -> None:
        """Refuse to resume the copy of a group that has nodes the source lacks."""
        if not is_listable(self._store):
            return
        planned = {*self.groups, *(array.path for array in self.arrays)}
        reader = reader_of(self._store)
        for path, metadata in self.groups.items():
            others = [join_path(path, name) for name in reader.children(path, metadata.zarr_format)]
            others = [other for other in others if other not in planned]
            if others:
                raise ArgumentError(
                    f"'/{others[0]}' in {self._store!r} is not in the source, or no longer (one of {len(others)} in "
                    f"'/{path}'): resume=True erases no nodes; erase unwanted ones yourself, or pass "
                    "overwrite=True to start over"
                )

    def _present(self, path: str) -> NodeMetadata | None:
        try:
            entry = reader_of(self._store).node(path, None)
        except MetadataError as error:
            raise _other(path, self._store) from error
        if entry is None:
            return None
        assert not isinstance(entry.metadata, MetadataError)
        return entry.metadata

    def check_shared(self) -> None:
        """Refuse stores that other processes do not see.

        Raises
        ------
        ArgumentError
            If there is one.
        """
        check_shared(self._store, "the destination")
        for array in self.arrays:
            check_shared(array.source.store, "the source")
        if self.others is not None:
            check_shared(self.others.source, "the source")

    def steps(self, client: Any = None) -> Generator[int, None, None]:
        """Copy; yield the number of finished steps after each part. Iterate in one thread: it holds locks.

        ``client`` is as for :func:`gzarr.copy`.
        """
        executor = None
        if client is not None:
            executor = as_executor(client)
            self.check_shared()
        with flushing(self.target.given, self._store):
            yield from self._steps(executor)

    def _steps(self, executor: Any) -> Iterator[int]:
        with contextlib.ExitStack() as held:
            if not self.groups:
                # Other threads wait, and other processes are refused: they would wait for long.
                held.enter_context(hold_node(self._store, self._path))
            held.enter_context(claim(self._store, self._path))
            yield from self._claimed_steps(executor)

    def _claimed_steps(self, executor: Any) -> Iterator[int]:
        if self._erase:
            delete_node(self._store, self._path)
            self._location = inspect_location(self._store, self._path, self._format)
        for parent in self._location.parents:
            self._make_group(parent, GroupMetadata(zarr_format=self._format), may_exist=True)
        for path, metadata in self.groups.items():
            self._make_group(path, metadata, may_exist=self._resume)
        for array in self.arrays:
            # Its documents come last. Until then, only this lock keeps others from creating a node in its place.
            with hold_node(self._store, array.path):
                self._check_array(array)
                if array in self._strays:
                    erase_strays(self._store, array.path, array.metadata)
                yield from array.steps(executor)
        if self.others is not None:
            yield from self.others.steps(executor)
        self._consolidate()

    def consolidate(self) -> None:
        """Write the consolidated metadata once more, after nodes were added to the copy."""
        with flushing(self.target.given, self._store):
            self._consolidate()

    def _consolidate(self) -> None:
        # Those of groups below come first, for they make those above outdated.
        for path in sorted(self.consolidated, key=len, reverse=True):
            consolidate(self._store, path, self._format, as_found=True)

    def run(self, client: Any = None, *, progress: bool = True) -> None:
        """Run the whole copy; ``client`` and ``progress`` are as for :func:`gzarr.copy`."""
        # Closed if the bar is interrupted: a traceback that is kept would keep the place claimed.
        with contextlib.closing(self.steps(client)) as steps:
            watched = watch(steps, "copying", self.total, count=int, nbytes=self.nbytes) if progress else steps
            for _ in watched:
                pass

    @property
    def _format(self) -> ZarrFormat:
        return next(iter(self.groups.values())).zarr_format if self.groups else self.arrays[0].metadata.zarr_format

    def _make_group(self, path: str, metadata: GroupMetadata, *, may_exist: bool) -> None:
        with hold_node(self._store, path, below=False), hold_documents(self._store, path):
            # What this copy has just made need not be looked at again for each group in it.
            inspect = inspect_below if path.rpartition("/")[0] in self._made else inspect_location
            if self._resume and inspect is inspect_location:
                present = self._present(path)
                if isinstance(present, GroupMetadata) and not present.implicit:
                    # Nothing is written, so what is above does not matter.
                    return
            location = inspect(self._store, path, metadata.zarr_format)
            if location.occupied and not (isinstance(location.found, GroupMetadata) and location.found.implicit):
                if may_exist and isinstance(location.found, GroupMetadata):
                    return
                raise self._taken(path)
            # Keys without a document are the beginning of this copy.
            write_new_group(self._store, path, metadata, replace(location, occupied=False), overwrite=False)
            self._made.add(path)


def _is_same(present: GroupMetadata, metadata: GroupMetadata) -> bool:
    """Return whether an existing group has the format and the attributes of the one to be created."""
    format = FORMATS[metadata.zarr_format]
    return format.shares_hierarchy(FORMATS[present.zarr_format]) and dump(present.attributes) == dump(
        metadata.attributes
    )


def _other(path: str, store: ReadableStore) -> ArgumentError:
    return ArgumentError(
        f"'/{path}' in {store!r} is not a copy of the source made with these arguments; pass overwrite=True to erase it"
    )
