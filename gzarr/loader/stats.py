"""Where the time of an epoch goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..engines.monitor import Activity


#: What may limit the speed of an epoch.
STAGES: Final = ("store", "decoder", "device", "transform", "consumer")


@dataclass(eq=False)
class Stats:
    """Counters of an epoch, of one iterator; times in seconds.

    The stages of a loader run side by side, so their times may add up to more than ``elapsed_s``. The one that takes
    nearly all of it is what limits the speed.

    Attributes
    ----------
    samples, batches
        How many were given out.
    skipped
        Samples that were left out, since they cannot be read.
    store_s
        Reading, while it waited for the store: for answers, or for the system to read files.
    decoder_s
        Reading otherwise: planning, decoding, and placing elements in batches.
    device_s
        Reading, while the host waited for the device.
    transform_s
        Making batches ready, in ``transform`` mostly.
    consumer_s
        What the consumer did between batches.
    waiting_s
        What the consumer waited for batches: 0 if the loader keeps up.
    chunks
        Chunks that were decoded.
    uses
        Chunks that samples needed, counted for each sample.
    """

    samples: int = 0
    batches: int = 0
    skipped: int = 0
    store_s: float = 0.0
    decoder_s: float = 0.0
    device_s: float = 0.0
    transform_s: float = 0.0
    consumer_s: float = 0.0
    waiting_s: float = 0.0
    chunks: int = 0
    uses: int = 0

    @property
    def elapsed_s(self) -> float:
        """Seconds from the first batch that was asked for to the last one given out."""
        return self.waiting_s + self.consumer_s

    @property
    def samples_per_s(self) -> float:
        """Samples given out per second; 0 before the first batch."""
        return self.samples / self.elapsed_s if self.elapsed_s else 0.0

    @property
    def hit_rate(self) -> float:
        """Share of the chunks that samples needed which had been decoded for another sample already."""
        return 1 - self.chunks / self.uses if self.uses else 0.0

    @property
    def slowest(self) -> str:
        """The stage that takes longest: ``"store"``, ``"decoder"``, ``"device"``, ``"transform"`` or ``"consumer"``."""
        return max(STAGES, key=self.seconds_of)

    def seconds_of(self, stage: str) -> float:
        """Return the seconds of a ``stage``, as :attr:`slowest` names it."""
        return float(getattr(self, f"{stage}_s"))

    def __str__(self) -> str:
        stages = ", ".join(f"{stage} {self.seconds_of(stage):.1f} s" for stage in STAGES)
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        return (
            f"{self.samples} samples in {self.elapsed_s:.1f} s, {self.samples_per_s:.0f} a second{skipped}; "
            f"waited {self.waiting_s:.1f} s; {stages}; "
            f"{self.hit_rate:.0%} of chunks decoded already"
        )

    def add_read(self, elapsed_s: float, of_threads: Mapping[Activity, float]) -> None:
        """Add the time of a read, ``elapsed_s``, divided like the time ``of_threads``."""
        total = sum(of_threads.values())
        store = elapsed_s * of_threads["store"] / total if total else 0.0
        device = elapsed_s * of_threads["device"] / total if total else 0.0
        self.store_s += store
        self.device_s += device
        self.decoder_s += elapsed_s - store - device
