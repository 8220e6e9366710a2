"""The fingerprint of what determines a loader's order, and what differs between two of them.

It is short, to be kept in every state: ``samples:arrays:sampler:order:all``, as in
``500:1f3a.90bc:77ab:02d4:0123456789abcdef``. They must be equal; if they are not, their parts tell what has changed.

Options of samplers are compared by what they mean: as tuples, dicts in order, and numbers of Python. What is no default
is left out, so that fingerprints stay when options are added.
"""

from __future__ import annotations

import hashlib
import json
import numbers
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..arrays.read_options import as_dtype
from ..flags import plain_flag
from .arguments import several
from .order import ORDER_VERSION
from .samplers import Sampler, is_default

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..arrays.exporting import ExportedArray
    from .order import Order
    from .samples import Samples
    from .volumes import Volumes

#: Most arrays that have a part of their own.
MOST_ARRAYS: Final = 6
# How NumPy prints, unless someone has changed it: reprs of samplers of one's own may have arrays.
_PRINTED: Final[dict[str, Any]] = {
    "precision": 8,
    "threshold": 1000,
    "edgeitems": 3,
    "linewidth": 75,
    "suppress": False,
    "nanstr": "nan",
    "infstr": "inf",
    "sign": "-",
    "floatmode": "maxprec",
    "legacy": False,
}


@dataclass(frozen=True)
class ArrayFacts:
    """What determines the order, of one array.

    Attributes
    ----------
    volume
        Number of its volume.
    name
        Its name in the loader.
    node
        Path of the array.
    shape, chunks, dtype
        Those that it had when the loader was made.
    """

    volume: int
    name: str
    node: str
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: str

    def hash(self, shape: tuple[int, ...] | None = None) -> str:
        """Return a short hash; with a shape, that of the same array with this shape."""
        facts = self.volume, self.name, self.node, self.shape if shape is None else shape, self.chunks, self.dtype
        return _hash(facts, 4)

    def __str__(self) -> str:
        return f"{self.name or self.node!r}"


@dataclass(frozen=True)
class Fingerprint:
    """What determines a loader's order.

    Attributes
    ----------
    samples
        Samples of an epoch.
    arrays
        The arrays of all volumes.
    sampler, order
        Hashes of the sampler, and of how its samples are shuffled.
    """

    samples: int
    arrays: tuple[ArrayFacts, ...]
    sampler: str
    order: str

    @classmethod
    def of(
        cls, arrays: Sequence[dict[str, ExportedArray]], volumes: Volumes, sampler: Sampler, order: Order
    ) -> Fingerprint:
        """Return the fingerprint of a loader."""
        facts = tuple(
            ArrayFacts(i, name, a.name, a.shape, a.chunks, str(a.dtype))
            for i, volume in enumerate(arrays)
            for name, a in sorted(volume.items())
        )
        parts: list[Any] = [_meaning_of(sampler)]
        for volume in volumes.each:
            samples = volume.samples
            parts += [None if c is None else _hash(c.tobytes(), 64) for c in (samples.chosen, samples.weights)]
            parts.append(samples.share)
            if samples.classes is not None:
                parts.append(_hash(samples.classes.tobytes(), 64))
        if not _tells_all(sampler):
            parts.append([_where(volume.samples) for volume in volumes.each])
        # What is drawn in a way of its own says so, so that the other fingerprints stay.
        each = [volume.samples for volume in volumes.each]
        if len(each) > 1 and any(samples.is_drawn for samples in each):
            parts.append("drawn for each epoch")
        if any(samples.is_drawn_of_many for samples in each):
            parts.append("drawn of many")
        if any(samples.comes_in_rounds for samples in each):
            parts.append("in rounds")
        if any(samples.jitter is not None and (samples.chosen is not None or samples.is_weighed) for samples in each):
            parts.append(
                ["around what is chosen", *(None if s.shown is None else _hash(s.shown.tobytes(), 64) for s in each)]
            )
        if len(each) > 1 and any(samples.jitter is not None or samples.posed for samples in each):
            parts.append("of each volume")
        if any(samples.unit is not None for samples in each):
            parts.append(["where elements of all arrays begin", *(samples.unit for samples in each)])
        if any(samples.every != 1 for samples in each):
            parts.append("phases")
        if any(
            samples.jitter is not None
            and samples.posed
            and all(part.posed is None or part.posed.copies for part in samples.parts)
            for samples in each
        ):
            parts.append("flips within groups")
        if any(samples.are_in_places for samples in each):
            parts.append("all places as often")
        if any(samples.posed and samples.may_be_rounded_up for samples in each) and len(each) > 1:
            parts.append("a pose each time")
        if any(samples.classes is not None for samples in each):
            if len({samples.share for samples in each}) > 1:
                parts.append("classes and volumes")
            if volumes.shift_classes:
                parts.append("more of volumes that have too few")
            if any(samples.comes_in_rounds for samples in each):
                parts.append("classes, however often")
        if any(samples.posed for samples in each):
            parts.append("poses of samples, whatever their order")
        lengths = [volume.samples.lengths for volume in volumes.each]
        shuffling: list[Any] = [ORDER_VERSION, order.shuffle, order.block_bytes, order.streams, lengths]
        if order.shuffle == "blocks" and any(samples.may_repeat for samples in each):
            shuffling.append("several groups of a box")
        rows = [source for volume in volumes.each for source in volume.sources if source.is_rows]
        # Matrices without rows make no difference.
        rows = [source for source in rows if source.array.shape[0]]
        if rows and volumes.have_rows:
            # Groups are as large as their rows are in memory.
            shuffling.append([(int(source.row_offsets[-1]), source.entry_nbytes) for source in rows])
        return cls(volumes.count, facts, _hash(parts, 16), _hash(shuffling, 16))

    def __str__(self) -> str:
        hashes = [array.hash() for array in self.arrays]
        short = ".".join(hashes) if len(hashes) <= MOST_ARRAYS else _hash(hashes, 4)
        everything = _hash([repr(self.arrays), self.samples, self.sampler, self.order], 16)
        return f"{self.samples}:{short}:{self.sampler[:4]}:{self.order[:4]}:{everything}"

    def difference(self, other: str) -> str:
        """Return what is not as it was in a loader with another fingerprint, in words."""
        parts, own = other.split(":"), str(self).split(":")
        if len(parts) != len(own) or not parts[0].isdecimal():
            return "it is not a fingerprint of this version of gzarr"
        changed = []
        if parts[1] != own[1]:
            changed.append(self._changed_arrays(parts[1].split("."), int(parts[0])))
        if parts[0] != own[0]:
            changed.append(f"an epoch had {parts[0]} samples and has {own[0]} now")
        if parts[2] != own[2]:
            changed.append("the sampler has changed")
        if parts[3] != own[3]:
            changed.append("shuffle=, buffer_bytes=, streams= or the groups of samples have changed")
        return "; ".join(changed) or "it was made from other arrays or another sampler"

    def changed(self, shapes: Sequence[Mapping[str, tuple[int, ...]]]) -> list[tuple[str, bool]]:
        """Return what has become of the arrays' shapes in words, and whether that is no shorter along any axis.

        Parameters
        ----------
        shapes
            Those that arrays have now, by name, for each volume.
        """
        told = []
        for facts in self.arrays:
            now = shapes[facts.volume][facts.name]
            if now != facts.shape:
                grown = all(n >= before for n, before in zip(now, facts.shape, strict=True))
                told.append((_resized(facts, facts.shape, now), grown))
        return told

    def _changed_arrays(self, hashes: list[str], samples: int) -> str:
        if len(hashes) != len(self.arrays) or len(hashes) > MOST_ARRAYS:
            return "the arrays or their shapes have changed"
        told = []
        for array, found in zip(self.arrays, hashes, strict=True):
            if found != array.hash():
                more = self.samples - samples
                before = [(*array.shape[:d], n - more, *array.shape[d + 1 :]) for d, n in enumerate(array.shape)]
                old = next((shape for shape in before if array.hash(shape) == found), None)
                if old is None:
                    told.append(f"array {array} is another one or has another shape; it has shape {array.shape} now")
                else:
                    told.append(_resized(array, old, array.shape))
        return "; ".join(told)


def _resized(array: ArrayFacts, old: tuple[int, ...], new: tuple[int, ...]) -> str:
    what = "grown" if all(n >= before for n, before in zip(new, old, strict=True)) else "shrunk"
    return f"array {array} has {what} from shape {old} to {new}"


def _meaning_of(sampler: Sampler) -> str:
    """Return a sampler with its options as they are meant, however they are typed."""
    kind = type(sampler)
    with np.printoptions(**_PRINTED):
        if kind.__repr__ is not Sampler.__repr__ or not is_dataclass(sampler):
            return _name_of(sampler)
        told = []
        for one in fields(sampler):
            value = getattr(sampler, one.name)
            if one.repr and (isinstance(value, str) or "hashed" not in one.metadata):
                meant = _meant(plain_flag(value) if isinstance(one.default, bool) else value)
                if not is_default(meant, one.default):
                    told.append(f"{one.name}={meant!r}")
        return f"{kind.__name__}({', '.join(told)})"


def _meant(value: Any) -> Any:
    """Return an option as tuples, dicts in order, and numbers and strings of Python."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    # An integer to NumPy, which has a unit.
    if isinstance(value, np.timedelta64):
        return str(value)
    if isinstance(value, numbers.Integral):
        integer = int(value)
        # Python refuses to print those of thousands of digits.
        return integer if integer.bit_length() < 2**13 else hex(integer)
    if isinstance(value, numbers.Real):
        number = float(value)
        return int(number) if number.is_integer() else number
    if isinstance(value, (type, np.dtype)):
        return str(as_dtype(value))
    if isinstance(value, Mapping):
        return {_meant(key): _meant(value[key]) for key in sorted(value, key=str)}
    if hasattr(value, "__array__"):
        # Those on a device are no arrays of NumPy before they are lists.
        return _meant(value.tolist() if hasattr(value, "tolist") else np.asarray(value).tolist())
    items = several(value)
    return value if items is None else tuple(map(_meant, items))


def _name_of(sampler: Sampler) -> str:
    """Return the sampler's repr, or its class if that names an address."""
    kind, said = type(sampler), repr(sampler)
    return f"{kind.__module__}.{kind.__qualname__}" if said == object.__repr__(sampler) else said


def _tells_all(sampler: Sampler) -> bool:
    """Return whether a sampler's meaning has all of its options: by a repr of its own, or as they are its fields."""
    kind = type(sampler)
    return kind.__repr__ is not Sampler.__repr__ or "__dataclass_fields__" in vars(kind)


def _where(samples: Samples) -> str:
    """Return where samples are, beside what is in each fingerprint, whatever their sampler says of itself."""
    parts = [[getattr(part, one.name) for one in fields(part)] for part in samples.parts]
    grid = samples.counts, samples.stride, samples.size, samples.begin, samples.posed
    with np.printoptions(**_PRINTED):
        return repr(_meant([grid, samples.jitter, samples.every, samples.number, samples.replace, parts]))


def _hash(value: Any, digits: int) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value, default=str).encode()
    return hashlib.sha256(data).hexdigest()[:digits]
