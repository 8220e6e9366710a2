"""Access to the values of a remote store: other threads send requests while the engine's decode what has arrived."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ...codecs.sharding import EMPTY
from ...errors import ValueReplacedError
from ...stores import io_threads
from ...stores.base import Answer, ByteRange, Request
from .. import pool
from ..monitor import spent
from .access import Access
from .answers import answered
from .fetching import Fetching
from .sources import ABSENT, WHOLE

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    import numpy as np
    import numpy.typing as npt

    from ...errors import ChunkError
    from ..monitor import AskedAhead
    from .access import LoopWay, ReadRequest
    from .shard import Index, Shard

    IntArray = npt.NDArray[np.int64]

#: Most bytes that a read asks for before they are decoded, unless the caller says otherwise, and of values that are
#: being written.
BUDGET_BYTES: Final = 256 << 20


class Requests(Access):
    """Access to the values of a remote store.

    Every request for a part of a shard names the version whose index was read.
    """

    way: LoopWay = "compiled loop, requests"
    remote: bool = True

    def replaced(self, versions: dict[str, Hashable], failure: ChunkError | None) -> set[str]:
        """As :meth:`Access.replaced`: a request failed since the value has another version."""
        if failure is None or not isinstance(failure.__cause__, ValueReplacedError) or failure.key is None:
            return set()
        self.indexes.drop((failure.key, 0, WHOLE))
        return {failure.key}

    def index(
        self, shard: Shard, name: tuple[str, int, int], entries: IntArray, versions: dict[str, Hashable]
    ) -> Index | None:
        """As :meth:`Access.index`, by one request, or none if the index is known.

        A kept index is used unchecked, because the requests for the chunks will name its version. So it is not used if
        none of the chunks to be read is in it: there would be no such request.
        """
        key, base, size = name
        version = versions.get(key)
        kept = self.indexes.last(name)
        if kept is not None and version in (None, kept[0]) and (kept[1][entries, 0] != EMPTY).any():
            versions[key] = kept[0]
            return kept[1]
        answers: list[Answer] = []

        def get(part: ByteRange) -> Any:
            answers.extend(answered(self.store, [Request(key, part, version)]))
            if answers[0].error is not None:
                raise answers[0].error
            return answers[0].value

        index = shard.read_index(get, base, size)
        if index is not None and answers[0].version is not None:
            versions[key] = answers[0].version
            self.indexes.put(name, answers[0].version, index)
        return index

    def each(
        self,
        request: ReadRequest,
        rows: IntArray,
        workers: int,
        use: Callable[[IntArray, list[Any]], bool],
        *,
        budget_bytes: int | None = None,
        least_batches: int = 1,
    ) -> None:
        """As :meth:`Access.each`."""
        absent = rows[request.sources.nbytes[rows] == ABSENT]
        if len(absent) and not use(absent, [None] * len(absent)):
            return
        wanted = rows[request.sources.nbytes[rows] != ABSENT]
        if not len(wanted):
            return
        monitor = request.monitor
        taken: AskedAhead | None = None
        if monitor is not None and monitor.ahead is not None:
            taken, wanted = monitor.ahead.take(self.store, request.node, request.plan.chunks, wanted, workers)
        fetching: Fetching | None = None
        if len(wanted):
            budget = BUDGET_BYTES if budget_bytes is None else budget_bytes
            fetching = Fetching(request, wanted, budget, workers)

        def taking() -> tuple[IntArray, list[Any], int] | None:
            if monitor is not None:
                monitor.check()
            with spent(monitor, "store"):
                found = None if taken is None else taken.take()
                return fetching.take() if found is None and fetching is not None else found

        def close() -> None:
            if taken is not None:
                taken.close()
            if fetching is not None:
                fetching.close()

        def work(_: int) -> None:
            try:
                while (found := taking()) is not None:
                    some, values, nbytes = found
                    if not use(some, values):
                        close()
                        return
                    # The bytes may be gone before room is made for others.
                    del values, found
                    if nbytes and fetching is not None:
                        fetching.release(nbytes)
            except BaseException:
                close()
                raise

        try:
            if fetching is not None:
                fetching.start()
            pool.run(work, workers)
        # An interrupt may come before anyone works; requests would wait for room for ever.
        except BaseException:
            close()
            raise

    def each_value(self, work: Callable[[int], object], items: int, value_nbytes: int, workers: int) -> None:
        """As :meth:`Access.each_value`."""
        most = max(workers, min(self.store.request_limits().calls, BUDGET_BYTES // max(value_nbytes, 1)))
        io_threads.each(work, items, most)
