"""How fast reads to a GPU can be: the limit of each stage, by figures of the hardware and the router's rates.

    python benchmarks/gpu model

Needs no GPU, and measures nothing: the table of ``docs/gpu-limits.md`` is its output. ``gpu.limits``
measures the stages on a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from gzarr.engines.cuda.budget import Budget
from gzarr.engines.cuda.device_program import DeviceProgram
from gzarr.engines.cuda.nvcomp import NvcompDecompressor
from gzarr.engines.cuda.router import ASSUMED_RATIO, blosc_frames, default_rates
from gzarr.engines.cuda.staging import FrameFormat
from gzarr.engines.cuda.wave_plan import WavePlanner, expected

#: Bytes per second: a PCIe 4 NVMe drive, sequentially (its makers' figure); copies of files from the page cache to
#: page-locked memory, 16 threads at about 1.5 GB/s each (assumed); the memory of an H100 (NVIDIA's figure).
STORAGE: Final = 7e9
STAGING: Final = 24e9
DEVICE_MEMORY: Final = 3.35e12
#: Free device memory, and decoded bytes of the read.
FREE_BYTES: Final = 80 << 30
READ_BYTES: Final = 16 << 30

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Layout:
    """Chunks of one array: their decoded bytes, frames each, compressor (None for none), and algorithm."""

    title: str
    chunk_nbytes: int
    frames: int
    compressor: str | None
    algorithm: str | None


LAYOUTS: Final = (
    Layout("64 KiB, zstd", 64 * KIB, 1, "zstd", "zstd"),
    Layout("1 MiB, zstd", MIB, 1, "zstd", "zstd"),
    Layout("4 MiB, Blosc lz4, float32", 4 * MIB, blosc_frames(4 * MIB, 4, "lz4", 5).count, "blosc", "lz4"),
    Layout("8 MiB, uncompressed", 8 * MIB, 0, None, None),
)


class _Empty:
    """A device of which only the free memory is asked."""

    def free_bytes(self) -> int:
        return FREE_BYTES


def limits(layout: Layout) -> dict[str, float]:
    """Return decoded bytes per second of each stage, and the frames of a wave and in flight."""
    rates = default_rates()
    form = FrameFormat(layout.compressor, layout.algorithm, 0, layout.chunk_nbytes)
    program = DeviceProgram(form, 0, 0, (4,), bits=False)
    decoder = NvcompDecompressor(layout.algorithm) if layout.algorithm is not None else None
    n = READ_BYTES // layout.chunk_nbytes
    ratio = ASSUMED_RATIO if layout.algorithm is not None else 1
    most_encoded = 2 * layout.chunk_nbytes + 64 * KIB if layout.algorithm is not None else layout.chunk_nbytes
    planner = WavePlanner(program, decoder, most_encoded, np.ones(n, np.int64), 3, 1, direct=False)
    stored = np.full(n, layout.chunk_nbytes // ratio)
    waves = planner.plan(expected(program, layout.frames, stored), Budget(_Empty(), None))  # type: ignore[arg-type]
    frames = waves.shape.chunks * layout.frames
    found = {
        "frames of a wave": float(frames),
        "held": float(waves.shape.nbytes * waves.flight),
        "storage": STORAGE * ratio,
        "staging": STAGING * ratio,
        "pinned copy": rates.host_to_device * ratio,
        # Read once and written once.
        "placing": DEVICE_MEMORY / 2,
    }
    if layout.algorithm is not None:
        # One frame of ``chunk / frames`` bytes after the other in each place, as the router reckons.
        at_once = frames * waves.flight * rates.frame[layout.algorithm]
        found["nvCOMP"] = min(rates.gpu[layout.algorithm], at_once)
    return found


def main() -> None:
    """Print a table of the limits."""
    stages = ("storage", "staging", "pinned copy", "nvCOMP", "placing")
    print("| chunks | frames a wave | memory held |", " | ".join(stages), "| slowest |")
    print("|---" * 9 + "|")
    for layout in LAYOUTS:
        found = limits(layout)
        cells = [f"{found[stage] / 1e9:.0f}" if stage in found else "-" for stage in stages]
        slowest = min((stage for stage in stages if stage in found), key=lambda stage: found[stage])
        held = f"{found['held'] / (1 << 30):.1f} GiB"
        print(f"| {layout.title} | {found['frames of a wave']:.0f} | {held} |", " | ".join(cells), f"| {slowest} |")


if __name__ == "__main__":
    main()
