"""The CPU engine: the native loop for chains of native operations, host threads for all others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import threads

if TYPE_CHECKING:
    from ..program import Program
    from .native import NativeProgram
    from .request import ReadRequest


class CpuEngine:
    """Runs the reads of one array.

    Parameters
    ----------
    program
        Native operations of a planned chunk, or None for host codecs.
    """

    def __init__(self, program: Program | None) -> None:
        self._program = program
        self._prepared: NativeProgram | None = None

    def read(self, request: ReadRequest) -> None:
        """Read every chunk of ``request.plan`` into ``request.outputs``.

        Raises
        ------
        ChunkError
            For the first chunk that fails; the outputs then hold some chunks and not others.
        """
        if self._program is None:
            threads.read(request)
            return
        from . import kernels, native

        if self._prepared is None:
            kernels.load()
            self._prepared = native.prepare(self._program, request.chunk, request.fill_value)
        native.read(request, self._prepared)

    def __reduce__(self) -> tuple[type[CpuEngine], tuple[Program | None]]:
        return CpuEngine, (self._program,)
