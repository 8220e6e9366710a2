"""What a loader says of itself is true: decoded chunks, mixing, memory."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.engines.cpu import native
from gzarr.loader import Loader, Patches, Rows, Windows

quiet = pytest.mark.filterwarnings("ignore:shuffling is coarse")


def volume(path: Path, shape: tuple[int, ...], chunks: tuple[int, ...]) -> gzarr.Array:
    data = np.arange(np.prod(shape), dtype="u2").reshape(shape)
    gzarr.create_array(path, data=data, chunks=chunks)
    return gzarr.open_array(path)


@quiet
@pytest.mark.parametrize(
    ("shape", "chunks", "sampler", "most"),
    [
        ((3000, 8), (10, 8), Rows(), 1.01),
        ((3000, 8), (1, 8), Rows(), 1.01),
        ((2000, 8), (1, 8), Windows(0, {"x": (-2, 0), "y": (1, 4)}), 1.1),
        ((2000, 8), (16, 8), Windows(0, {"x": (0, 3)}), 1.1),
        ((160, 160, 16), (16, 16, 16), Patches((16, 16, 16)), 1.01),
        ((160, 160, 16), (16, 16, 16), Patches((16, 16, 16), jitter=True, pad=None), 1.5),
    ],
)
def test_chunks_are_decoded_about_once_an_epoch(
    tmp_path: Path, shape: tuple[int, ...], chunks: tuple[int, ...], sampler: Any, most: float
) -> None:
    array = volume(tmp_path, shape, chunks)
    loader = Loader(array, sampler, batch_size=8, drop_last=False, buffer_bytes=400 << 10)
    explanation = loader.explain()
    native.take_stats()
    for _ in loader:
        pass
    decoded = native.take_stats()["chunks"] / array.nchunks
    assert decoded <= most
    assert explanation.amplification == pytest.approx(decoded, rel=0.1)


@quiet
def test_full_shuffling_is_said_to_decode_more(tmp_path: Path) -> None:
    array = volume(tmp_path, (3000, 8), (10, 8))
    loader = Loader(array, batch_size=8, shuffle="full", drop_last=False, buffer_bytes=8 << 10)
    explanation = loader.explain()
    native.take_stats()
    for _ in loader:
        pass
    decoded = native.take_stats()["chunks"] / array.nchunks
    assert decoded > 5
    assert explanation.amplification == pytest.approx(decoded, rel=0.15)


def test_little_mixing_is_warned_of_once(tmp_path: Path) -> None:
    array = volume(tmp_path, (3000, 8), (100, 8))
    loader = Loader(array, batch_size=8, buffer_bytes=16 << 10)
    with pytest.warns(UserWarning, match="shuffling is coarse") as caught:
        list(zip(iter(loader), iter(loader), strict=True))
    assert len(caught) == 1
    mixing = loader.explain().mixing
    assert not mixing.is_enough
    assert mixing.advice in str(loader.explain())
    assert loader.explain().lost_entropy(4) > 0.1
    better = Loader(array, batch_size=8, buffer_bytes=mixing.buffer_bytes_wanted)
    assert better.explain().mixing.is_enough
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        next(iter(better))
        next(iter(Loader(array, batch_size=8, buffer_bytes=16 << 10, shuffle=False)))
        next(iter(Loader(array, batch_size=8, buffer_bytes=16 << 10, shuffle="full")))


@pytest.mark.parametrize(("batch_size", "buffer"), [(8, 256 << 10), (64, 256 << 10), (8, 64 << 10)])
def test_rows_that_come_often_are_in_all_blocks(batch_size: int, buffer: int) -> None:
    """A rare class in neighbouring rows: half of each batch, in the mean, and no more uneven than groups are."""
    array = gzarr.create_array({}, data=np.zeros((2000, 64), "f4"), chunks=(8, 64))
    rare = np.arange(2000) // 8 == 100
    loader = Loader(
        {"x": array, "rare": rare}, Rows(balance="rare"), batch_size=batch_size, seed=1, buffer_bytes=buffer
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = np.array([int(batch["rare"].sum()) for batch in loader])
    # By chance, it would be a batch's square root of half its size; a part of a group has eight rows.
    assert found.std() < (8 * batch_size) ** 0.5 / 2
    assert np.mean(found == 0) < 0.03
    explanation = loader.explain()
    assert explanation.held_bytes < 1.2 * buffer + 4 * batch_size * 257
    assert explanation.amplification < 1.3


@quiet
@pytest.mark.parametrize("buffer_mib", [1, 8])
@pytest.mark.parametrize("batch_size", [2, 16])
@pytest.mark.parametrize(
    "sampler",
    [
        Patches((24, 24, 24)), Patches((16, 16, 16), halo=4, pad="edge"), Patches((16, 16, 16), 8),
        Patches((16, 16, 16), jitter=True), Patches((24, 16, 8), jitter=True, halo=(0, 2, 3), pad="reflect"),
        Patches((16, 16, 16), rotate=True), Windows(0, {"x": (-4, 0)}), Windows(0, {"x": (0, 3), "y": (20, 20)}),
    ],
    ids=str,
)  # fmt: skip
def test_the_advised_buffer_would_do(sampler: Any, batch_size: int, buffer_mib: int) -> None:
    """Also where groups grow with the buffer, as samples of one share chunks."""
    array = gzarr.create_array({}, shape=(128, 160, 144), dtype="u2", chunks=(16, 16, 16))
    options: dict[str, Any] = {"batch_size": batch_size, "drop_last": False}
    buffer = buffer_mib << 20
    mixing = Loader(array, sampler, buffer_bytes=buffer, **options).explain().mixing
    if mixing.buffer_bytes_wanted is None:
        assert mixing.groups >= mixing.wanted_groups or mixing.block_samples == mixing.samples
        return
    assert mixing.buffer_bytes_wanted > buffer
    better = Loader(array, sampler, buffer_bytes=mixing.buffer_bytes_wanted, **options).explain().mixing
    assert better.is_enough, better.advice


def noise(shape: tuple[int, ...], chunks: tuple[int, ...], dtype: str) -> gzarr.Array:
    """Return an array whose chunks take as many bytes as their elements, as they do not become smaller."""
    nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    data = np.frombuffer(np.random.default_rng(0).bytes(nbytes), dtype).reshape(shape)
    return gzarr.create_array({}, data=data, chunks=chunks, device="cpu")


def beside(samples: int, *others: tuple[tuple[int, ...], int, str]) -> dict[str, gzarr.Array]:
    """Return images of 512 B in chunks of one, and arrays beside them: a sample's shape, samples a chunk, dtype."""
    arrays = {"image": noise((samples, 64), (1, 64), "i8")}
    for i, (shape, length, dtype) in enumerate(others):
        arrays[f"{i}"] = noise((samples, *shape), (length, *shape), dtype)
    return arrays


def volume_and_labels(chunks: tuple[int, ...]) -> dict[str, gzarr.Array]:
    return {"image": noise((64, 128, 128), (8, 8, 8), "u2"), "label": noise((64, 128, 128), chunks, "u1")}


COLUMNS = [((), 8192, "i8")] * 4
BESIDE: list[Any] = [
    (beside, (8192, *COLUMNS), Rows(), 1 << 20, 400, 1.6),
    # A block is not read whole, but a few samples at a time.
    (beside, (8192, ((), 8192, "i8")), Rows(), 1 << 20, 900, 1.3),
    (beside, (8192, ((16,), 64, "i4")), Rows(), 1 << 20, 64, 1.5),
    (beside, (8192, ((16,), 512, "i4")), Rows(), 1 << 20, 64, 2.1),
    (beside, (8192, ((32,), 16, "i4")), Windows(0, {"x": (-1, 0), "y": (1, 1)}), 1 << 20, 30, 1.3),
    (volume_and_labels, ((32, 32, 32),), Patches((8, 8, 8)), 2 << 20, 64, 2.1),
    (volume_and_labels, ((1, 128, 128),), Patches((8, 8, 8)), 2 << 20, 64, 2.1),
]
BESIDE_IDS = ["columns", "label", "embeddings", "long chunks", "runs", "labels in larger chunks", "labels in slices"]


@quiet
@pytest.mark.parametrize(("made", "how", "sampler", "buffer", "groups", "most"), BESIDE, ids=BESIDE_IDS)
def test_arrays_beside_the_main_one_leave_groups(
    made: Any, how: Any, sampler: Any, buffer: int, groups: int, most: float
) -> None:
    """Larger groups would decode their chunks once, and mix a few groups; each block decodes them anyway."""
    arrays = made(*how)
    loader = Loader(arrays, sampler, batch_size=16, drop_last=False, buffer_bytes=buffer)
    explanation = loader.explain()
    assert explanation.mixing.groups >= groups
    assert explanation.amplification < most
    native.take_stats()
    for _ in loader:
        pass
    decoded = native.take_stats()["encoded_bytes"]
    assert explanation.amplification == pytest.approx(decoded / sum(a.nbytes for a in arrays.values()), rel=0.1)


@quiet
@pytest.mark.parametrize(("made", "how", "sampler", "buffer", "groups", "most"), BESIDE, ids=BESIDE_IDS)
@pytest.mark.parametrize("batch_size", [16, 128])
def test_the_buffer_that_is_advised_beside_other_arrays(
    made: Any, how: Any, sampler: Any, buffer: int, groups: int, most: float, batch_size: int
) -> None:
    """Such a buffer would do, and is not one for groups that are as large as any array asks for."""
    arrays = made(*how)
    mixing = Loader(arrays, sampler, batch_size=batch_size, buffer_bytes=buffer).explain().mixing
    if mixing.buffer_bytes_wanted is not None:
        assert buffer < mixing.buffer_bytes_wanted <= 2.5 * sum(a.nbytes for a in arrays.values())
        better = Loader(arrays, sampler, batch_size=batch_size, buffer_bytes=mixing.buffer_bytes_wanted)
        assert better.explain().mixing.is_enough


def test_columns_do_not_make_the_advised_buffer_larger() -> None:
    arrays = beside(8192, *COLUMNS)
    mixing = Loader(arrays, batch_size=64, buffer_bytes=128 << 10).explain().mixing
    alone = Loader(arrays["image"], batch_size=64, buffer_bytes=128 << 10).explain().mixing
    assert alone.buffer_bytes_wanted is not None
    assert mixing.buffer_bytes_wanted is not None
    assert mixing.buffer_bytes_wanted < 3 * alone.buffer_bytes_wanted


@quiet
@pytest.mark.parametrize("jitter", [False, True])
def test_flips_alone_need_no_more(tmp_path: Path, jitter: bool) -> None:
    """They copy elements: the groups of unposed patches, and on a grid each chunk once."""
    array = volume(tmp_path, (64, 64, 64), (16, 16, 16))
    options: dict[str, Any] = {"batch_size": 4, "drop_last": False, "buffer_bytes": 512 << 10}
    plain = Loader(array, Patches((16, 16, 16), jitter=jitter), **options).explain().mixing.groups
    loader = Loader(array, Patches((16, 16, 16), jitter=jitter, flip=True), **options)
    explanation = loader.explain()
    assert explanation.mixing.groups == plain
    native.take_stats()
    for _ in loader:
        pass
    decoded = native.take_stats()["chunks"] / array.nchunks
    assert decoded <= (2.5 if jitter else 1.0)
    assert explanation.amplification == pytest.approx(decoded, rel=0.15)


PEAK = """
    import sys
    import gzarr
    from gzarr.loader import Loader, Patches, Windows
    from support.peak_memory import peak_nbytes

    array = gzarr.open_array(sys.argv[1], device="cpu")
    options = {"batch_size": 16, "buffer_bytes": int(sys.argv[2]), "shuffle": eval(sys.argv[4])}
    loader = Loader(array, eval(sys.argv[3]), **options)
    array[:16, :64, :64]
    before = peak_nbytes()
    count = sum(len(batch.samples) for _ in range(2) for batch in loader)
    print(count, peak_nbytes() - before, loader.explain().held_bytes)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="the module resource is Unix's")
@pytest.mark.parametrize(
    ("shape", "sampler", "shuffle", "samples", "sample_nbytes"),
    [
        ((512, 512, 512), "Patches((16, 64, 64))", "blocks", 2048, 16 * 64 * 64 * 2),
        # Of eight steps each: 511 MiB an epoch, of which the buffer has 32 MiB that many of them share.
        ((1024, 64, 512), "Windows(0, {'x': (0, 7)})", "blocks", 1008, 8 * 64 * 512 * 2),
        # Of 128 KiB in chunks of 128 KiB, of which 24 MiB and more stay decoded.
        ((512, 512, 512), "Patches((16, 64, 64), halo=(4, 0, 0), pad='edge')", "full", 2048, 24 * 64 * 64 * 2),
        ((512, 512, 512), "Patches((16, 64, 64), halo=(4, 0, 0), pad='edge')", False, 2048, 24 * 64 * 64 * 2),
    ],
    ids=["patches", "runs", "full", "in order"],
)
def test_memory_is_as_said(
    tmp_path: Path, shape: Any, sampler: str, shuffle: Any, samples: int, sample_nbytes: int
) -> None:
    """Two epochs of much more than the buffer, which has 32 MiB."""
    volume(tmp_path, shape, (16, 64, 64))
    code = textwrap.dedent(PEAK)
    command = [sys.executable, "-W", "ignore", "-c", code, os.fspath(tmp_path), str(32 << 20), sampler, repr(shuffle)]
    result = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1])
    count, grown, said = map(int, result.stdout.split())
    assert count == 2 * samples
    assert said <= (32 << 20) + 3 * 16 * sample_nbytes
    # Decoders, threads and the allocator take the rest.
    assert grown <= said + (24 << 20)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_group_that_is_larger_than_the_buffer(ranks: int) -> None:
    """A chunk of many rows is a group, and read whole."""
    rows = gzarr.create_array({}, data=np.zeros((3000, 1000), "f4"), chunks=(1500, 1000), device="cpu")
    loader = Loader(rows, batch_size=10, buffer_bytes=1 << 20, world_size=ranks)
    assert loader.explain().held_bytes >= 1500 * 4000 / ranks
    small = gzarr.create_array({}, data=np.zeros((3000, 1000), "f4"), chunks=(10, 1000), device="cpu")
    assert Loader(small, batch_size=10, buffer_bytes=1 << 20, world_size=ranks).explain().held_bytes < 1.3e6
