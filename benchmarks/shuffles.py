"""Orders of the samples of an epoch: those of gzarr's loader, and those of other ways to shuffle.

Ours come from ``gzarr.loader.order``, with the settings that ``gzarr.Loader`` makes of its arguments (a test compares
them with what a loader gives out). Those of others are simulated from what their documentation says they do. Samples
are rows, ``chunk`` of them in each chunk; nothing is read. Everything is hashed from the seed, so it is the same on
every machine and with every version of NumPy.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from gzarr.loader.order import EpochOrder, Order
from gzarr.loader.permutation import hashed, mix, uniform

if TYPE_CHECKING:
    import numpy.typing as npt

    from gzarr.loader.order import Shuffle

    IntArray = npt.NDArray[np.int64]

STREAMS = 64


def order(shuffle: Shuffle, chunks: int, chunk: int, buffer: int, *, seed: int = 0, epoch: int = 0) -> EpochOrder:
    """Return an epoch's order of gzarr's loader.

    Parameters
    ----------
    shuffle
        As for ``gzarr.Loader``.
    chunks, chunk
        Number of chunks, and samples of each.
    buffer
        Samples that fit ``buffer_bytes``, of which one half is mixed while the other is given out.
    """
    offsets = np.arange(0, chunks * chunk + 1, chunk)
    return EpochOrder(Order(shuffle, max(buffer // 2, 1), STREAMS, seed), epoch, offsets)


def ours(shuffle: Shuffle, chunks: int, chunk: int, buffer: int, *, seed: int = 0, epoch: int = 0) -> IntArray:
    """Return the samples of an epoch of gzarr's loader in their order; parameters as for :func:`order`."""
    found = order(shuffle, chunks, chunk, buffer, seed=seed, epoch=epoch)
    if shuffle != "blocks":
        return found.samples(np.arange(found.count))
    bounds = found.bounds.tolist()
    return np.concatenate([found.samples(np.arange(a, b)) for a, b in itertools.pairwise(bounds)])


def shuffled(samples: IntArray, *key: int) -> IntArray:
    """Return samples in a random order."""
    return samples[np.argsort(hashed(mix(*key), np.arange(len(samples))), kind="stable")]


def chunks_shuffled(chunks: int, chunk: int, *key: int) -> IntArray:
    """Return all samples, whole chunks in a random order."""
    return (shuffled(np.arange(chunks), *key)[:, np.newaxis] * chunk + np.arange(chunk)).ravel()


def through_buffer(samples: IntArray, buffer: int, *key: int) -> IntArray:
    """Return samples that went through a shuffle buffer, as those of tf.data, torchdata and MindSpore.

    It is filled first. Then each sample that is given out is drawn at random, and the next one takes its place.
    """
    held, rest = list(samples[:buffer].tolist()), samples[buffer:].tolist()
    drawn = uniform(mix(*key, 1), np.arange(len(rest)), len(held)).tolist()
    result = []
    for place, sample in zip(drawn, rest, strict=True):
        result.append(held[place])
        held[place] = sample
    return np.concatenate([np.array(result, np.int64), shuffled(np.array(held, np.int64), *key, 2)])


def fetched(chunks: int, chunk: int, at_once: int, *key: int) -> IntArray:
    """Return the samples of an epoch by blocks that are fetched together, as scDataset and annbatch do.

    The blocks (scDataset's ``block_size``, annbatch's ``chunk_size``) are permuted, ``at_once`` of them are fetched,
    and the samples of all these are permuted.
    """
    samples = chunks_shuffled(chunks, chunk, *key, 1)
    step = at_once * chunk
    return np.concatenate([shuffled(samples[i : i + step], *key, 2, i) for i in range(0, len(samples), step)])
