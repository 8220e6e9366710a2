"""Environment variables that are numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import gzarr
from gzarr.engines.pool import thread_count
from gzarr.engines.result_memory import recycle_bytes
from gzarr.stores.io_threads import io_thread_count

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    ("name", "kind", "number"),
    [
        ("GZARR_THREADS", "a positive integer", thread_count),
        ("GZARR_IO_THREADS", "a positive integer", io_thread_count),
        ("GZARR_RECYCLE_BYTES", "a whole number of bytes", recycle_bytes),
    ],
    ids=["threads", "I/O threads", "recycled"],
)
def test_what_is_no_number_is_refused(
    name: str, kind: str, number: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Python converts at most 4300 digits.
    for text in ("-1", "1.5", "many", "9" * 5000):
        monkeypatch.setenv(name, text)
        with pytest.raises(gzarr.ArgumentError, match=f"^{name} must be {kind}, not ") as raised:
            number()
        assert len(str(raised.value)) < 200
    monkeypatch.setenv(name, " 12 ")
    assert number() == 12
    monkeypatch.setenv(name, "0")
    if number is recycle_bytes:
        assert number() == 0
    else:
        with pytest.raises(gzarr.ArgumentError, match=f"^{name} must be {kind}, not '0'"):
            number()
