"""Limits in bytes that calls take: integers of Python and NumPy, and nothing else; and messages about other values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.engines.cuda.budget import Budget
from gzarr.loader import Merge, Patches

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pd = pytest.importorskip("pandas")
DATA = np.arange(64, dtype="u2").reshape(8, 8)
DEVICE: Any = None


def mapped(limit: Any, path: Path) -> Any:
    return gzarr.map_blocks(lambda block: block, gzarr.array(DATA), out={}, budget_bytes=limit, progress=False)


def copied(limit: Any, path: Path) -> Any:
    return gzarr.copy(gzarr.array(DATA), {}, budget_bytes=limit, progress=False)


def merged(limit: Any, path: Path) -> Any:
    sampler = Patches((4, 4))
    return Merge(gzarr.array(DATA.astype("f4")), sampler, budget_bytes=limit)


CALLS: dict[str, Callable[[Any, Path], Any]] = {
    "map_blocks": mapped,
    "copy": copied,
    "Merge": merged,
    "image": lambda limit, path: gzarr.ome.create({}, DATA, axes="yx", budget_bytes=limit, progress=False),
    "reads on a device": lambda limit, path: Budget(DEVICE, limit),
    "CachedStore": lambda limit, path: gzarr.CachedStore(path, path / "cache", limit),
}


@pytest.mark.parametrize("name", CALLS)
def test_integers_of_both_kinds(tmp_path: Path, name: str) -> None:
    for limit in (1 << 30, np.int64(1 << 30), np.uint32(1 << 30)):
        CALLS[name](limit, tmp_path)
    for limit in (0, np.int64(-1), True, np.bool_(True), 1e9, "1GB", np.timedelta64(1 << 30, "s")):
        with pytest.raises(gzarr.ArgumentError, match="_bytes must be a positive integer, not "):
            CALLS[name](limit, tmp_path)


def test_a_small_type_does_not_wrap() -> None:
    # Its multiples are beyond the type.
    assert gzarr.copy(gzarr.array(DATA), {}, budget_bytes=np.uint8(200), progress=False)[...].tolist() == DATA.tolist()


@pytest.mark.parametrize(
    "value", [pd.Series([1, 2]), np.eye(3), pd.DataFrame({"a": [1], "b": [2]})], ids=["1", "2", "3"]
)
def test_messages_are_one_line(value: Any) -> None:
    a = gzarr.array(DATA)
    calls: list[Callable[[], Any]] = [
        lambda: a.read(budget_bytes=value),
        lambda: a.view[value],
        lambda: mapped(value, DEVICE),
        lambda: gzarr.open(value),
    ]
    for call in calls:
        with pytest.raises(gzarr.GzarrError) as caught:
            call()
        assert "\n" not in str(caught.value)
        assert repr(value).split()[1] in str(caught.value) or type(value).__name__ in str(caught.value)
