"""Samples of few bytes: groups of them are read whole, in the same order and with the same elements as one by one."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.loader import Loader, Rows, Windows
from gzarr.loader.order import EpochOrder
from gzarr.loader.slabs import PLANNED

if TYPE_CHECKING:
    from gzarr.loader import Sampler

pytestmark = pytest.mark.filterwarnings("ignore:shuffling is coarse")

ROWS = 3000
TABLE = np.arange(ROWS * 3, dtype="f4").reshape(ROWS, 3)
LABELS = np.arange(ROWS, dtype="i8")


def made(tmp_path: Path, **layout: Any) -> dict[str, Any]:
    for name, data, chunks in (("table", TABLE, (10, 3)), ("labels", LABELS, (20,))):
        shards = tuple(3 * n for n in chunks) if layout.get("shards") else None
        gzarr.create_array(tmp_path / name, data=data, chunks=chunks, **(layout | {"shards": shards}))
    return {name: gzarr.open_array(tmp_path / name, device="cpu") for name in ("table", "labels")}


@pytest.mark.parametrize("sampler", [Rows(), Windows(0, {"x": (0, 0)})])
@pytest.mark.parametrize(("layout", "prefetch"), [({}, 0), ({}, 2), ({"shards": True}, 2), ({"codecs": None}, 0)])
@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_batches_are_the_same(
    sampler: Sampler, layout: dict[str, Any], world_size: int, prefetch: int, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    arrays = made(tmp_path, **layout)
    volumes = [arrays, arrays]
    groups = []

    def batches() -> list[Any]:
        found = []
        for rank in range(world_size):
            loader = Loader(
                volumes, sampler, batch_size=7, rank=rank, world_size=world_size, buffer_bytes=60_000, streams=12,
                prefetch=prefetch, drop_last=False,
            )  # fmt: skip
            groups.append(loader._of_epoch(0).reads_groups)
            for _ in range(2):
                for batch in loader:
                    table, labels = (batch[name] if isinstance(sampler, Rows) else batch["x"][name] for name in arrays)
                    found.append((batch.samples, batch.origins, table, labels))
        return found

    narrow = batches()
    monkeypatch.setattr("gzarr.loader.volumes._NARROW_BYTES", 0)
    wide = batches()
    assert len(narrow) == len(wide)
    for one, other in zip(narrow, wide, strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)
        origins = one[1][:, 0]
        np.testing.assert_array_equal(one[2].reshape(-1, 3), TABLE[origins])
        np.testing.assert_array_equal(one[3].reshape(-1), LABELS[origins])
    # Of three ranks, each would need most groups.
    assert set(groups[:world_size]) == {world_size < 3}
    assert not any(groups[world_size:])


def test_chunks_are_decoded_once_and_counted(tmp_path: Path) -> None:
    arrays = made(tmp_path)
    loader = Loader(arrays, batch_size=10, buffer_bytes=20_000, prefetch=0)
    explanation = loader.explain()
    assert sum(1 for _ in loader) == 300
    stats = loader.stats()
    assert stats.chunks == pytest.approx(explanation.amplification * (300 + 150), rel=0.3)
    assert stats.uses == 2 * ROWS


@pytest.mark.parametrize("where", [np.arange(0, ROWS, 7), None])
def test_a_chunk_that_cannot_be_read(where: Any, tmp_path: Path) -> None:
    arrays = made(tmp_path)
    (tmp_path / "table/c/15/0").write_bytes(b"damage")
    bad: list[int] = []
    loader = Loader(
        arrays, Rows(where=where), batch_size=10, buffer_bytes=1 << 20, drop_last=False,
        on_error=lambda error, number: bad.append(number),
    )  # fmt: skip
    seen = np.concatenate([batch["labels"] for batch in loader])
    numbers = np.arange(ROWS) if where is None else where
    broken = (numbers >= 150) & (numbers < 160)
    assert sorted(seen) == numbers[~broken].tolist()
    assert len(bad) == broken.sum()


def test_the_first_batch_takes_no_order_of_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    array = gzarr.create_array({}, shape=(10**9, 10), dtype="f4", chunks=(10**5, 10), device="cpu")
    asked: list[int] = []
    samples = EpochOrder.samples

    def counted(order: EpochOrder, positions: Any) -> Any:
        asked.append(len(positions))
        return samples(order, positions)

    monkeypatch.setattr(EpochOrder, "samples", counted)
    for options in ({}, {"rank": 3, "world_size": 8}):
        asked.clear()
        loader = Loader(array, batch_size=256, prefetch=0, **options)
        assert loader._of_epoch(0).reads_groups
        next(iter(loader))
        assert 256 <= sum(asked) <= 4 * PLANNED
        # The order of a billion rows, of which a block has three million.
        assert loader.explain().planning_bytes < 16 << 20


def test_memory_is_as_said() -> None:
    """Of three million rows, and not only of the samples themselves."""
    array = gzarr.create_array({}, shape=(3_000_000, 4), dtype="f4", chunks=(10_000, 4), device="cpu")
    loader = Loader(array, batch_size=64, buffer_bytes=32 << 20, prefetch=1)
    explanation = loader.explain()
    next(iter(loader))
    tracemalloc.start()
    try:
        batches = iter(loader)
        for _ in range(2000):
            next(batches)
        peak = tracemalloc.get_traced_memory()[1]
        batches.close()  # type: ignore[attr-defined]
    finally:
        tracemalloc.stop()
    # Slabs are mapped, which is not traced.
    assert peak < explanation.planning_bytes + (1 << 20)
    assert explanation.planning_bytes < explanation.held_bytes / 2


PEAK = """
    import gzarr
    from gzarr.loader import Loader
    from support.peak_memory import peak_nbytes

    array = gzarr.create_array({}, shape=(10**9, 10), dtype="f4", chunks=(10_000, 10), device="cpu")
    array[:10_000]
    before = peak_nbytes()
    loader = Loader(array, batch_size=2048, buffer_bytes=64 << 20)
    batches = iter(loader)
    for _ in range(1000):
        next(batches)
    said = loader.explain()
    print(peak_nbytes() - before, said.held_bytes, said.planning_bytes)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="the module resource is Unix's")
def test_resident_memory_is_as_said() -> None:
    """More than two blocks of a billion rows."""
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(PEAK)]
    result = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1])
    grown, held, planning = map(int, result.stdout.split())
    assert held <= (64 << 20) + 3 * 2048 * 40
    # Decoders, threads and the allocator take the rest.
    assert grown <= held + planning + (24 << 20)
