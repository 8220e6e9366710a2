"""The examples of dask in docs/integrations.md run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import zarr
from distributed import LocalCluster

import gzarr

PAGE = Path(__file__).parents[2] / "docs" / "integrations.md"


def test_the_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    section = PAGE.read_text().partition("\n## dask\n")[2].partition("\n## ")[0]
    alone, cluster = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    data = np.random.default_rng(1).random((30, 40, 50)).astype("f4")
    zarr.create_array("temperature.zarr", data=data, chunks=(7, 10, 50))
    names: dict[str, object] = {}
    exec(alone, names)
    np.testing.assert_allclose(names["mean"], data.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(zarr.open_array("anomaly.zarr", mode="r")[...], data - data.mean(axis=0), atol=1e-5)
    np.testing.assert_array_equal(zarr.open_array("blocks.zarr", mode="r")[...], data)
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0", memory_limit=0) as made:
        names["address"] = made.scheduler_address
        exec(cluster, names)
        names["client"].close()  # type: ignore[attr-defined]
    assert names["total"] == pytest.approx(data.sum(), rel=1e-4)
    np.testing.assert_array_equal(gzarr.open_array("copy.zarr")[...], data)
