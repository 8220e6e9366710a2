"""Keyword-only arguments of functions that make or open nodes, for those that pass them on, and for type checkers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..engines.access.access import Missing, Verify
    from ..metadata.model import NewFormat, ZarrFormat


class FormArguments(TypedDict, total=False):
    """Arguments of :func:`gzarr.create_array` that describe an array, but for its dtype and fill value."""

    chunks: Any
    shards: Any
    codecs: Any
    filters: Any
    serializer: Any
    compressors: Any
    order: Literal["C", "F"]
    attributes: Mapping[str, Any] | None
    dimension_names: Any
    chunk_key_encoding: Any


class LayoutArguments(FormArguments, total=False):
    """Arguments of :func:`gzarr.create_array` that describe an array, but for its dtype."""

    fill_value: Any


class ArrayArguments(LayoutArguments, total=False):
    """Arguments of :func:`gzarr.create_array` that describe an array."""

    dtype: Any


class NewArrayArguments(ArrayArguments, total=False):
    """Arguments of a new array, for functions that open or create one."""

    shape: Any
    data: Any
    write_empty_chunks: bool | None
    fill_masked: bool


class FilledArguments(FormArguments, total=False):
    """Arguments of :func:`gzarr.create_array`, but for shape, dtype, data and fill value."""

    path: str
    name: str | None
    zarr_format: NewFormat
    overwrite: bool
    device: str
    missing: Missing
    verify: Verify
    write_empty_chunks: bool | None
    fill_masked: bool
    storage_options: Mapping[str, Any] | None


class EmptyArguments(FilledArguments, total=False):
    """Arguments of :func:`gzarr.create_array`, but for shape, dtype and data."""

    fill_value: Any


class FilledLikeArguments(FilledArguments, total=False):
    """Arguments of :func:`gzarr.full_like`, which takes what is not given from another array."""

    shape: Any
    dtype: Any


class LikeArguments(FilledLikeArguments, total=False):
    """Arguments of functions that take what is not given from data or from another array."""

    fill_value: Any


class MemberArguments(LayoutArguments, total=False):
    """Arguments of an array that is made in a group unless it is there."""

    data: Any
    write_empty_chunks: bool | None
    fill_masked: bool


class OpenArguments(TypedDict, total=False):
    """Arguments of all functions that open a node."""

    device: str
    missing: Missing
    verify: Verify
    allow_pickle: bool
    allow_fallback: bool
    storage_options: Mapping[str, Any] | None


class RequireArrayArguments(MemberArguments, OpenArguments, total=False):
    """Arguments of :func:`gzarr.require_array`."""

    zarr_format: NewFormat | None


class RequireGroupArguments(OpenArguments, total=False):
    """Arguments of :func:`gzarr.require_group`."""

    zarr_format: NewFormat | None
    use_consolidated: bool | None
    attributes: Mapping[str, Any] | None


class OpenGroupArguments(OpenArguments, total=False):
    """Arguments of :func:`gzarr.open_consolidated`."""

    path: str
    mode: Literal["r", "r+", "a", "w", "w-"]
    zarr_format: ZarrFormat | None
    attributes: Mapping[str, Any] | None
