"""The CPU engine: the native loop for chains of native operations, host threads for all other chains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import kernels
from . import native, native_program, small_reads, threads

if TYPE_CHECKING:
    from ...metadata.model import ChunkKeyEncoding
    from ...plan.decode_program import Decoding
    from ..access.access import Access, ReadRequest
    from .native_program import NativeProgram
    from .small_reads import SmallReads


class CpuEngine:
    """Runs the reads of one array.

    Parameters
    ----------
    decoding
        The array's analysed chain.
    fill_value
        Fill value of absent chunks.
    access, prefix, encoding
        Location of chunks or shards: access to them, the node's path with a trailing slash, the chunk key encoding.
    """

    def __init__(
        self,
        decoding: Decoding,
        fill_value: Any,
        access: Access,
        prefix: str,
        encoding: ChunkKeyEncoding,
    ) -> None:
        self._decoding = decoding
        self._fill_value = fill_value
        self._where = (access, prefix, encoding)
        self._prepared: NativeProgram | None = None
        self._small_reads: SmallReads | None = None
        self._small_reads_known = False

    def read(self, request: ReadRequest) -> None:
        """Read every chunk of ``request.plan`` into ``request.outputs``.

        Raises
        ------
        ChunkError
            If a chunk fails; the outputs then hold some of the chunks.
        """
        request.refuse_large()
        program = self._program()
        if program is None:
            threads.read(request)
            return
        native.read(request, program)

    def small_reads(self) -> SmallReads | None:
        """Return the fast path for small reads of whole elements, or None if the array has none."""
        if not self._small_reads_known:
            program = self._program()
            if program is not None:
                self._small_reads = small_reads.small_reads_of(program, self._decoding, *self._where)
            self._small_reads_known = True
        return self._small_reads

    def _program(self) -> NativeProgram | None:
        if self._prepared is None and self._decoding.program is not None:
            kernels.load()
            self._prepared = native_program.prepare(self._decoding.program, self._decoding.chunk, self._fill_value)
        return self._prepared
