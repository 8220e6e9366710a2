"""From selections to filled results: the plan, where its chunks are, and the engine that runs over them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .codecs.codec import ArrayRepresentation
from .engines import kernels
from .engines.cpu import CpuEngine
from .engines.few import SMALL_BYTES
from .engines.request import ReadRequest
from .plan import few_chunks, plan
from .program import analyse
from .sharding import ShardIndexCache, locate, whole_chunks

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from .engines.request import Missing
    from .metadata.model import ArrayMetadata
    from .program import Decoding
    from .selection import Selection
    from .stores.base import ReadableStore


class Reader:
    """Reads one array.

    Parameters
    ----------
    metadata, store
        The array, and where its chunks are.
    path
        Of the node, without leading slash.
    """

    __slots__ = ("_decoding", "_engine", "_indexes", "_metadata", "_name", "_prefix", "_store")

    def __init__(self, metadata: ArrayMetadata, store: ReadableStore, path: str) -> None:
        self._metadata = metadata
        self._store = store
        self._name = f"/{path}"
        self._prefix = f"{path}/" if path else ""
        self._indexes = ShardIndexCache()
        self._decoding: Decoding | None = None
        self._engine: CpuEngine | None = None

    @property
    def decoding(self) -> Decoding:
        """The codec chain, taken apart when first needed."""
        if self._decoding is None:
            whole = ArrayRepresentation(self._metadata.chunk_shape, self._metadata.dtype)
            self._decoding = analyse(self._metadata.codecs, whole, kernels.available())
        return self._decoding

    def fill(
        self,
        selections: Sequence[Selection],
        results: Sequence[npt.NDArray[Any]],
        field: str | None,
        missing: Missing,
    ) -> None:
        """Read each selection into its result.

        Parameters
        ----------
        selections
            One or more, all over boxes or one over points.
        results
            One array a selection: of its result's shape, of any strides; of the array's dtype, or of the field's.
        field
            Name of a field of a structured dtype, or None.
        missing
            What an absent chunk means.

        Raises
        ------
        ChunkError
            For the first chunk that fails; the results then hold some chunks and not others.
        """
        if len(selections) == 1 and field is None and self._fill_quickly(selections[0], results[0], missing):
            return
        views = []
        copies: list[tuple[npt.NDArray[Any], npt.NDArray[Any]]] = []
        for selection, result in zip(selections, results, strict=True):
            view = selection.view(result)
            if view is None:
                own = np.empty(result.shape, result.dtype)
                copies.append((own, result))
                view = selection.view(own)
                assert view is not None
            views.append(view)
        decoding = self.decoding
        the_plan = plan(selections, self._metadata.shape, decoding.chunk.shape)
        if not len(the_plan):
            return
        encoding = self._metadata.chunk_key_encoding
        if decoding.levels:
            sources = locate(decoding.levels, encoding, self._prefix, the_plan, self._store, self._name, self._indexes)
        else:
            sources = whole_chunks(encoding, self._prefix, the_plan)
        self._the_engine.read(
            ReadRequest(
                node=self._name,
                store=self._store,
                codecs=decoding.codecs,
                chunk=decoding.chunk,
                plan=the_plan,
                sources=sources,
                outputs=tuple(views),
                field=field,
                fill_value=self._metadata.fill_value,
                missing=missing,
                most_encoded=decoding.most_encoded,
            )
        )
        for own, result in copies:
            result[...] = own

    def _fill_quickly(self, selection: Selection, result: npt.NDArray[Any], missing: Missing) -> bool:
        """Read a box of few small chunks the short way; return whether that is how it was read."""
        chunk = self.decoding.chunk
        if chunk.nbytes > SMALL_BYTES:
            return False
        rows = few_chunks(selection, chunk.shape)
        if rows is None or len(rows) * chunk.nbytes > SMALL_BYTES:
            return False
        few = self._the_engine.few()
        view = selection.view(result)
        if few is None or view is None:
            return False
        return few.read(rows, selection.step, view, fill=missing == "fill")

    @property
    def _the_engine(self) -> CpuEngine:
        if self._engine is None:
            metadata = self._metadata
            self._engine = CpuEngine(
                self.decoding, metadata.fill_value, self._store, self._prefix, metadata.chunk_key_encoding
            )
        return self._engine
