"""Arguments of a copy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ..arrays.device_choice import resolve_device
from ..errors import ArgumentError
from ..flags import check_flags
from ..metadata.formats import check_zarr_format
from ..positive import positive
from .copied_metadata import KEEP, ChunkStorage, check_lengths

if TYPE_CHECKING:
    from ..metadata.model import ZarrFormat

DEFAULT_BUDGET_BYTES: Final = 256 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOptions:
    """How a copy is made; each as for :func:`gzarr.copy`.

    Raises
    ------
    ArgumentError, DeviceError
        If one is wrong.
    """

    zarr_format: ZarrFormat | None = None
    chunks: Any = KEEP
    shards: Any = KEEP
    codecs: Any = KEEP
    device: str = "cpu"
    overwrite: bool = False
    resume: bool = False
    read_back: bool = False
    lossy: bool = False
    budget_bytes: int = DEFAULT_BUDGET_BYTES
    allow_pickle: bool = False

    def __post_init__(self) -> None:
        check_flags(
            overwrite=self.overwrite,
            resume=self.resume,
            read_back=self.read_back,
            lossy=self.lossy,
            allow_pickle=self.allow_pickle,
        )
        if self.overwrite and self.resume:
            raise ArgumentError("overwrite erases an existing copy, and resume continues it: pass only one of them")
        object.__setattr__(self, "budget_bytes", positive("budget_bytes", self.budget_bytes))
        check_zarr_format(self.zarr_format, optional=True, new=True)
        resolve_device(self.device)
        check_lengths("chunks", self.chunks)
        check_lengths("shards", self.shards)

    @property
    def storage(self) -> ChunkStorage:
        """The chunks, shards and codecs."""
        return ChunkStorage(self.chunks, self.shards, self.codecs)
