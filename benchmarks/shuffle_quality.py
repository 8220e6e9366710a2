"""How well batches are mixed, against the memory that it takes: the loader's orders, simulated; nothing is read.

    python benchmarks/shuffle_quality.py                 all tables, about two minutes
    python benchmarks/shuffle_quality.py --table published

Rows lie in chunks of one class each, the worst case: labels that are sorted. A batch's entropy is that of the classes
of its samples. It loses some beside a batch of random samples: about (K − 1) / (2 ln 2 · R) bits for K classes, if it
is drawn at random out of R chunks. ``as random`` is the size of a batch of random samples of the same entropy, to the
batch's; by the formula, 1 / (1 + batch / R).

Tables: ``batch`` for R to the samples of a batch; ``formula`` for other chunks, classes and ranks; ``others`` for ways
to shuffle with the same memory; ``published`` for the figures of scDataset and annbatch, and the same parameters here;
``defaults`` for what the defaults of ``gzarr.Loader`` do with common arrays. The result does not depend on the machine.
"""

from __future__ import annotations

import argparse
import bisect
import itertools
import math
import sys
from typing import TYPE_CHECKING

import numpy as np
import shuffles

import gzarr
from gzarr.loader import Loader, Patches, Rows, Windows
from gzarr.stores import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    from gzarr.loader import Sampler

    IntArray = npt.NDArray[np.int64]

_SEED = 3
_CLASSES = 10
#: Batches of one measurement, about.
_BATCHES = 8000

# -- entropy


def entropies(samples: IntArray, chunk: int, classes: int, batch: int) -> npt.NDArray[np.float64]:
    """Return the entropy of each whole batch in bits; chunk ``i`` has class ``i % classes``."""
    labels = samples[: len(samples) // batch * batch] // chunk % classes
    rows = np.repeat(np.arange(len(labels) // batch), batch)
    counts = np.bincount(rows * classes + labels, minlength=(len(labels) // batch) * classes).reshape(-1, classes)
    share = counts / batch
    return -(share * np.log2(np.where(share > 0, share, 1))).sum(axis=1)


def predicted(classes: int, groups: float) -> float:
    """Return the bits that a batch out of some groups loses, by the formula."""
    return (classes - 1) / (2 * math.log(2) * groups)


def entropy_of_random(classes: int, batch: int) -> float:
    """Return the mean entropy of batches of random samples in bits, exactly: those of a class are binomial."""
    chosen = [math.lgamma(batch + 1) - math.lgamma(k + 1) - math.lgamma(batch - k + 1) for k in range(batch + 1)]
    one, other = -math.log(classes), math.log1p(-1 / classes)
    mean = sum(math.exp(chosen[k] + k * one + (batch - k) * other) * k * math.log2(k) for k in range(1, batch + 1))
    return math.log2(batch) - classes / batch * mean


def as_random(classes: int, batch: int, entropy: float) -> float:
    """Return the size of a batch of random samples that has some entropy, to ``batch``; 1 at most."""
    sizes = range(1, batch + 1)
    return (
        sizes[min(bisect.bisect_left(sizes, entropy, key=lambda n: entropy_of_random(classes, n)), batch - 1)] / batch
    )


# -- tables: each yields lines


def by_batch(batches: int) -> Iterator[str]:
    """Yield the loss of entropy for each number of groups to a sample of a batch."""
    yield f"K = {_CLASSES} classes, chunks of 16 samples; R = chunks mixed with each other; loss in bits"
    yield "batch   R / batch       R   measured   formula   of log2 K   as random   formula"
    for batch in (16, 64, 256, 1024):
        for ratio in (0.25, 1, 4, 16):
            groups = round(batch * ratio)
            entropy = _of_blocks(groups, 16, _CLASSES, batch, batches)
            lost = entropy_of_random(_CLASSES, batch) - entropy
            yield (
                f"{batch:5}   {ratio:9g}   {groups:5}   {lost:8.3f}   {predicted(_CLASSES, groups):7.3f}   "
                f"{lost / math.log2(_CLASSES):9.1%}   {as_random(_CLASSES, batch, entropy):9.2f}   "
                f"{1 / (1 + batch / groups):7.2f}"
            )
    yield "a batch takes its samples from all 64 streams in turn, and chunks are divided among these: so those of up to"
    yield "64 samples lose less than the formula says from R = batch on; several together are as one of as many samples"


def _of_blocks(groups: int, chunk: int, classes: int, batch: int, batches: int, ranks: int = 1) -> float:
    """Return the mean entropy of a rank's batches out of blocks of some groups."""
    # Batches of one block are alike, so many blocks are needed; the more groups they have, the fewer.
    block = groups * chunk
    blocks = max(-(-batches * batch * ranks // (4 * block)), min(batches, 250 * batches // block), 12)
    # As in most arrays, half of the blocks have a group less: else, streams might have whole groups, which mix better.
    less = int(groups >= 16)
    # The loader makes as few blocks as fit half of the buffer, all of about one size: with more, fewer were less full.
    each = min(blocks, 2 * groups - 1) if less else blocks
    found = []
    for epoch in range(-(-blocks // each)):
        chunks = each * groups - less * (each // 2)
        samples = shuffles.ours("blocks", chunks, chunk, 2 * groups * chunk, seed=_SEED, epoch=epoch)
        found += [entropies(samples[r::ranks], chunk, classes, batch).mean() for r in range(ranks)]
    return float(np.mean(found))


def formula(batches: int) -> Iterator[str]:
    """Yield the loss for other chunks, classes and numbers of ranks."""
    yield "batches of 256 a rank; R = chunks mixed with each other, of all ranks; loss of a rank's batches in bits"
    yield "samples a chunk     K   ranks     R   measured   formula   measured / formula"
    cases = [(chunk, 10, 1, 64) for chunk in (8, 16, 64)] + [(16, classes, 1, 64) for classes in (2, 14, 100)]
    cases += [(16, 10, ranks, 128) for ranks in (1, 2, 4)]
    for chunk, classes, ranks, groups in cases:
        lost = entropy_of_random(classes, 256) - _of_blocks(groups, chunk, classes, 256, batches, ranks)
        # A rank has whole streams, and groups are divided among these.
        wanted = predicted(classes, groups / ranks)
        yield f"{chunk:15}   {classes:3}   {ranks:5}   {groups:3}   {lost:8.3f}   {wanted:7.3f}   {lost / wanted:18.2f}"


def others(batches: int) -> Iterator[str]:
    """Yield the loss of several ways to shuffle with a buffer of as many samples."""
    chunk = 16
    yield f"K = {_CLASSES} classes, chunks of {chunk} samples; loss in bits, and by the formula for the R in brackets"
    yield "batch   chunks the buffer holds   blocks               shuffle buffer        fetched"
    for batch, held in itertools.product((64, 256), (32, 128, 512)):
        buffer = held * chunk
        chunks = max(batches * batch // chunk, 12 * held) // held * held
        ways: list[tuple[Callable[[], IntArray], float]] = [
            (lambda n=chunks, b=buffer: shuffles.ours("blocks", n, chunk, b, seed=_SEED), held / 2),
            (
                lambda n=chunks, b=buffer: shuffles.through_buffer(shuffles.chunks_shuffled(n, chunk, _SEED), b, _SEED),
                held * 2,
            ),
            (lambda n=chunks, h=held: shuffles.fetched(n, chunk, h, _SEED), held),
        ]
        cells = []
        for way, groups in ways:
            lost = entropy_of_random(_CLASSES, batch) - float(entropies(way(), chunk, _CLASSES, batch).mean())
            cells.append(f"{lost:5.3f}, {predicted(_CLASSES, groups):5.3f} ({groups:4.0f})")
        yield f"{batch:5}   {held:23}   {'   '.join(cells)}"
    yield "blocks: gzarr; one half of the buffer is mixed while the other is given out"
    yield "shuffle buffer: chunks in random order, then a buffer that gives out one sample and takes the next one"
    yield "fetched: as scDataset and annbatch; the whole buffer is mixed, and nothing is read while it is given out"


#: Mean entropy of plates in bits, published for batches of 64 cells from 14 plates, by block size and fetch factor:
#: https://github.com/scDataset/scDataset/blob/41fe1e2fb2466afedf900faad9baf553fcff57a1/benchmarks/experiments/
#: block_size_fetch_factor_eval_anncollection_random.csv (BlockShuffling, all with 4 to 1024 blocks at once);
#: these are the figures of arXiv 2506.01883.
SCDATASET = {
    (4, 1): 3.1378, (4, 4): 3.4989, (4, 16): 3.5966, (4, 64): 3.6116,
    (16, 1): 1.7569, (16, 4): 3.0539, (16, 16): 3.4779, (16, 64): 3.5825, (16, 256): 3.6126,
    (64, 4): 1.7542, (64, 16): 2.9999, (64, 64): 3.4532, (64, 256): 3.5828, (64, 1024): 3.6094,
    (256, 16): 1.7731, (256, 64): 2.9790, (256, 256): 3.4794, (256, 1024): 3.5848,
    (1024, 64): 1.7247, (1024, 256): 2.9817, (1024, 1024): 3.4746,
}  # fmt: skip
#: The same of random samples: block size 1 and fetch factor 1024.
SCDATASET_RANDOM = 3.6217
#: Published for annbatch without shuffling the data first, by chunk size: batches of 4096 cells, 16384 cells held
#: (chunk_size × preload_nchunks), 14 plates. Read off the line of the vector graphic, which has more digits:
#: https://github.com/theislab/annbatch_paper/blob/2e37780e53598af35181e58d5354111b79a76887/revision/figures/
#: revision_diversity_plate.svg
ANNBATCH = {
    16: 3.6577, 32: 3.6498, 64: 3.6316, 128: 3.5976, 256: 3.5197, 512: 3.3618, 1024: 3.0312, 2048: 2.4873, 4096: 1.7703,
}  # fmt: skip
#: The same for chunks of one cell.
ANNBATCH_RANDOM = 3.6657
_PLATES = 14


def published(batches: int) -> Iterator[str]:
    """Yield what scDataset and annbatch lose by their own figures, by the formula, and by simulation."""
    yield "K = 14 plates; loss beside random samples in bits; simulated: blocks fetched as they do; gzarr: blocks of R"
    yield "            block   fetched   batch      R   published   formula   simulated    gzarr"
    rows = [("scDataset", b, 64 * f, 64, SCDATASET_RANDOM - h) for (b, f), h in SCDATASET.items()]
    rows += [("annbatch", b, 16384, 4096, ANNBATCH_RANDOM - h) for b, h in ANNBATCH.items()]
    for who, block, held, batch, lost in rows:
        groups = held // block
        fetches = max(batches * batch // (4 * held), min(batches // 16, 1000 * batches // held), 12)
        random = entropy_of_random(_PLATES, batch)
        # Which blocks have a class makes no difference, as all blocks are shuffled.
        samples = shuffles.fetched(fetches * groups, block, groups, _SEED)
        theirs = random - float(entropies(samples, block, _PLATES, batch).mean())
        same = random - _of_blocks(groups, block, _PLATES, batch, batches)
        yield (
            f"{who:<9}   {block:5}   {held:7}   {batch:5}   {groups:4}   {lost:9.3f}   "
            f"{predicted(_PLATES, groups):7.3f}   {theirs:9.3f}   {same:6.3f}"
        )


#: Arrays as users have them: shape, chunks, dtype, sampler, size of a batch.
LAYOUTS: dict[str, tuple[tuple[int, ...], tuple[int, ...], str, Sampler, int]] = {
    "images, chunks of 1": ((50_000, 3, 224, 224), (1, 3, 224, 224), "u1", Rows(), 64),
    "images, chunks of 32": ((50_000, 3, 224, 224), (32, 3, 224, 224), "u1", Rows(), 64),
    "images f4, chunks of 32": ((50_000, 3, 224, 224), (32, 3, 224, 224), "f4", Rows(), 64),
    "volume, grid of 64³": ((1024, 1024, 1024), (64, 64, 64), "u2", Patches((64, 64, 64)), 16),
    "volume, grid of 32³": ((1024, 1024, 1024), (64, 64, 64), "u2", Patches((32, 32, 32)), 16),
    "volume, anywhere 64³": ((1024, 1024, 1024), (64, 64, 64), "u2", Patches((64, 64, 64), jitter=True, pad=None), 16),
    "weather, 1 step": ((8_000, 181, 360), (1, 181, 360), "f4", Windows(0, {"x": (0, 1), "y": (2, 2)}), 32),
    "weather, 24 steps": ((8_000, 181, 360), (24, 181, 360), "f4", Windows(0, {"x": (0, 1), "y": (2, 2)}), 32),
    "table, chunks of 100": ((1_000_000, 2000), (100, 2000), "f4", Rows(), 256),
    "table, chunks of 1000": ((1_000_000, 2000), (1000, 2000), "f4", Rows(), 256),
}


def defaults(batches: int) -> Iterator[str]:
    """Yield what the defaults of a loader do with common arrays, by its own explanation."""
    yield f"buffer_bytes of 256 MiB; K = {_CLASSES} classes, one to a group of neighbouring samples; loss in bits"
    yield (
        "array                     batch   samples a group     R   R / batch   simulated   formula   as random   "
        "aim needs"
    )
    for name, (shape, chunks, dtype, sampler, batch) in LAYOUTS.items():
        array = gzarr.create_array(MemoryStore(), shape=shape, chunks=chunks, dtype=dtype, device="cpu")
        mixing = Loader(array, sampler, batch_size=batch).explain().mixing
        groups, each = mixing.groups, mixing.block_samples / mixing.groups
        entropy = _of_blocks(round(groups), round(each), _CLASSES, batch, batches)
        wanted = "reached" if mixing.is_enough else f"{mixing.buffer_bytes_wanted / 2**30:.1f} GiB"
        yield (
            f"{name:<23}   {batch:5}   {each:15.1f}   {groups:3.0f}   {groups / batch:9.2f}   "
            f"{entropy_of_random(_CLASSES, batch) - entropy:9.3f}   {predicted(_CLASSES, groups):7.3f}   "
            f"{as_random(_CLASSES, batch, entropy):9.2f}   {wanted:>9}"
        )
    yield "the loader aims at R of 4 × batch; the last column is the buffer_bytes that would reach it"


TABLES = {"batch": by_batch, "formula": formula, "others": others, "published": published, "defaults": defaults}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", choices=TABLES, action="append", help="only this one; may be given several times")
    parser.add_argument("--batches", type=int, default=_BATCHES, help="batches of one measurement, about")
    options = parser.parse_args(arguments)
    for name in options.table or TABLES:
        print(f"== {name}")
        for line in TABLES[name](options.batches):
            print(line)
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
