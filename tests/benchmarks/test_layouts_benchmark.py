"""The benchmark of layouts, on a volume small enough for a test: it compares itself what it reads."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_a_small_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    layouts = importlib.import_module("layouts")
    found, shape = layouts.measure(tmp_path, 1, 0.125)
    assert shape == (64, 64, 64)
    assert {one.codecs for one in found} == set(layouts.CODECS)
    for one in found:
        assert one.files == (1 if one.sharded else math.prod(-(-n // one.side) for n in shape))
        assert one.chunk_nbytes == 2 * min(one.side, 64) ** 3
        assert (one.stored_nbytes < 2 * math.prod(shape)) == (one.codecs != "none")
        assert set(one.read_ms) == {"whole", "plane z", "plane x", "window"}
    assert layouts.table(found, shape).count("\n") == len(found) + 1
