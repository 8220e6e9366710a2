"""Batches of samples out of Zarr arrays, for training."""

from .batch import Batch
from .dataset import Dataset
from .loader import Loader
from .merging import Merge
from .runs import Windows
from .samplers import Patches, Rows, Sampler
from .samples import Geometry, Part, Samples
from .stats import Stats

__all__ = [
    "Batch",
    "Dataset",
    "Geometry",
    "Loader",
    "Merge",
    "Part",
    "Patches",
    "Rows",
    "Sampler",
    "Samples",
    "Stats",
    "Windows",
]
