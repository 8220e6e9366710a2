"""Where the engine of xarray finds datasets: mappings that are read as needed, paths that look like others."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import xarray as xr
import zarr.storage

if TYPE_CHECKING:
    from pathlib import Path

ENGINE = "gzarr"
DATA = xr.Dataset({"a": (("y", "x"), np.arange(12).reshape(3, 4))})


class Remote(MutableMapping[str, bytes]):
    """A mapping that notes which of its values are read."""

    def __init__(self, path: Path) -> None:
        self.path, self.keys_read = path, set[str]()

    def __getitem__(self, key: str) -> bytes:
        if not (self.path / key).is_file():
            raise KeyError(key)
        self.keys_read.add(key)
        return (self.path / key).read_bytes()

    def __iter__(self) -> Iterator[str]:
        return (str(file.relative_to(self.path)) for file in self.path.rglob("*") if file.is_file())

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __setitem__(self, key: str, value: bytes) -> None:
        raise NotImplementedError

    def __delitem__(self, key: str) -> None:
        raise NotImplementedError


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_only_documents_of_a_mapping_are_read(tmp_path: Path, zarr_format: Any) -> None:
    DATA.to_zarr(tmp_path, zarr_format=zarr_format, consolidated=False)
    for function in (xr.open_dataset, xr.open_datatree, xr.open_groups):
        remote = Remote(tmp_path)
        function(remote, engine=ENGINE, consolidated=False)  # type: ignore[operator]
        assert {key.rpartition("/")[2] for key in remote.keys_read} <= {"zarr.json", ".zgroup", ".zarray", ".zattrs"}
    xr.testing.assert_identical(xr.open_dataset(Remote(tmp_path), engine=ENGINE, consolidated=False).load(), DATA)


@pytest.mark.parametrize("kind", [dict, UserDict])
def test_mappings_that_zarr_python_has_filled(kind: Any) -> None:
    mapping = kind()
    DATA.to_zarr(zarr.storage.MemoryStore(mapping), consolidated=False)
    xr.testing.assert_identical(xr.open_dataset(mapping, engine=ENGINE, consolidated=False).load(), DATA)


def test_a_name_that_begins_with_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    DATA.to_zarr(tmp_path / "~no user.zarr", consolidated=False)
    xr.testing.assert_identical(xr.open_dataset("~no user.zarr", engine=ENGINE, consolidated=False).load(), DATA)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_masked_datasets_with_strings_are_written(zarr_format: Any) -> None:
    text = np.array(["a", "bb", ""], dtype=np.dtypes.StringDType())
    first, second = zarr.storage.MemoryStore(), zarr.storage.MemoryStore()
    data = xr.Dataset({"text": ("x", text), "number": ("x", np.array([1, 2, 0]))})
    data.to_zarr(first, zarr_format=zarr_format, consolidated=False)
    options: dict[str, Any] = {"engine": ENGINE, "consolidated": False, "use_zarr_fill_value_as_mask": True}
    masked = xr.open_dataset(first, **options).load()
    assert masked.text.values.tolist() == ["a", "bb", ""]
    masked.to_zarr(second, zarr_format=zarr_format, consolidated=False)
    xr.testing.assert_identical(xr.open_dataset(second, **options).load(), masked)
