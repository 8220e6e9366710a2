"""The examples for xarray in ``docs/integrations.md`` run as they stand; the one for a GPU on a simulated device."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import xarray as xr
from support import devices
from xarray.backends import common, plugins

from gzarr.integrations.xarray import GzarrBackendEntrypoint

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).parents[2] / "docs" / "integrations.md"


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let xarray know the engine by name, as where gzarr's entry points are installed."""
    monkeypatch.setitem(common.BACKEND_ENTRYPOINTS, "gzarr", (None, GzarrBackendEntrypoint))
    plugins.list_engines.cache_clear()
    yield
    plugins.list_engines.cache_clear()


@pytest.mark.filterwarnings("ignore:Consolidated metadata is currently not part")
def test_the_examples(engine: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    section = PAGE.read_text("utf-8").partition("\n## xarray\n")[2].partition("\n## ")[0]
    on_host, on_device = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    values = np.arange(3 * 19 * 4, dtype="f4").reshape(3, 19, 4)
    sides = {"time": np.arange(3), "latitude": np.linspace(90, -90, 19), "longitude": np.arange(4)}
    names = ("time", "latitude", "longitude")
    packed = {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -1}
    dataset = xr.Dataset({"t2m": (names, values), "u10": (names, values)}, coords=sides)
    dataset.u10.encoding = packed
    dataset.to_zarr("era5.zarr", encoding={"t2m": {"chunks": (1, 19, 4)}}, consolidated=True)
    found: dict[str, Any] = {}
    exec(on_host, found)
    np.testing.assert_array_equal(found["field"].data, values[0, 3:6])
    assert found["chunked"].t2m.chunks[0] == (1, 1, 1)
    assert list(found["tree"].data_vars) == ["t2m", "u10"]
    np.testing.assert_array_equal(xr.open_zarr("doubled.zarr").t2m.values, values[0, 3:6] * 2)

    if not devices.SIMULATED:
        pytest.skip("the example for a GPU is also run by tests of the device")
    from support import cupy_like

    with devices.use("simulated"), cupy_like.results():
        exec(on_device, found)
        assert type(found["wind"]) is cupy_like.CupyLike
        np.testing.assert_array_equal(found["wind"].get(), values[0])
        assert type(found["mean"]._meta) is cupy_like.CupyLike
        np.testing.assert_array_equal(found["mean"].compute().get(), values.mean(0))
