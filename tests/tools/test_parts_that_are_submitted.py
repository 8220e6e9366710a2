"""Parts of a work whose submission ends in an error: nothing is written after it has been raised."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.errors import StoreError
from gzarr.tools.processes import in_processes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

done: list[int] = []


class Work:
    def work_on(self, part: int) -> int:
        done.append(part)
        return part


class Refusing(ThreadPoolExecutor):
    """An executor that is closed after some parts, and begins none before it is let go."""

    def __init__(self) -> None:
        super().__init__(1)
        self.go = threading.Event()
        super().submit(self.go.wait, 10)
        self.left = 5

    def submit(self, *arguments: Any, **named: Any) -> Future[Any]:
        self.left -= 1
        if self.left < 0:
            raise RuntimeError("closed")
        return super().submit(*arguments, **named)


def broken(parts: int) -> Iterator[int]:
    yield from range(parts)
    raise StoreError("page 2 of a listing", key=None)


@pytest.mark.parametrize(("parts", "error"), [(3, StoreError), (100, RuntimeError)], ids=["parts", "submission"])
def test_what_was_submitted_is_given_up(parts: int, error: type[Exception]) -> None:
    done.clear()
    with Refusing() as executor:
        with pytest.raises(error):
            list(in_processes(executor, Work(), broken(parts)))
        executor.go.set()
    assert not done


def test_a_copy_writes_nothing_after_its_source_could_not_be_listed(tmp_path: Path) -> None:
    gzarr.create_array(tmp_path / "a", data=np.arange(300), chunks=1, codecs=[])

    class Listing(gzarr.LocalStore):
        def list_prefix(self, prefix: str) -> Iterator[str]:
            for i, key in enumerate(super().list_prefix(prefix)):
                if i == 250:
                    raise StoreError("page 2 of the listing", key=None)
                yield key

    with Refusing() as executor:
        executor.left = 1000
        with pytest.raises(StoreError, match="page 2"):
            gzarr.copy(Listing(tmp_path / "a"), tmp_path / "b", client=executor, progress=False)
        executor.go.set()
    assert not [file for file in (tmp_path / "b").rglob("*") if file.is_file()]
