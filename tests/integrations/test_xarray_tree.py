"""Trees of xarray in S3: the same as xarray's own engine, with the groups and the coordinates read together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import xarray as xr
from support import servers
from support.fault_proxy import FaultProxy
from support.requests_of import LATENCY_S, requests_of, round_trips

import gzarr

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GROUPS = 8


@pytest.fixture(scope="module")
def proxy() -> Iterator[FaultProxy]:
    with servers.s3_server() as address, FaultProxy(address, counted_latency_s=LATENCY_S) as proxy:
        servers.make_bucket(address, "bucket")
        yield proxy


def tree() -> xr.DataTree:
    """Return sweeps of a radar: each with coordinates of its own, and times."""

    def sweep(i: int) -> xr.Dataset:
        times = np.array(["2024-01-01T00:00:00"], "M8[ns]") + np.arange(6) * np.timedelta64(i + 1, "s")
        return xr.Dataset(
            {"DBZH": (("time", "range"), np.full((6, 4), i, "f4")), "stamp": ("range", times[:4])},
            coords={"time": times, "range": np.arange(4) * 250.0, "elevation": ("time", np.full(6, i / 2))},
        )

    sweeps = {f"/volume/sweep_{i}": sweep(i) for i in range(GROUPS)}
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs={"site": "here"}), "/volume": xr.Dataset(), **sweeps})


@pytest.mark.parametrize("consolidated", [False, True])
def test_a_tree(consolidated: bool, tmp_path: Path, proxy: FaultProxy) -> None:
    tree().to_zarr(tmp_path / "x", zarr_format=3, consolidated=consolidated)
    options = servers.s3_options(proxy.url, **servers.PATIENT)
    url = f"s3://bucket/{consolidated}"
    gzarr.copy(tmp_path / "x", url, dest_options=options, progress=False)
    if consolidated:
        gzarr.consolidate_metadata(url, storage_options=options)
    opened: list[xr.DataTree] = []

    def open_tree() -> None:
        options_of = {"storage_options": options, "consolidated": consolidated}
        opened.append(xr.open_datatree(url, engine="gzarr", **options_of))

    seen, _ = requests_of(proxy, open_tree)
    # Once each: documents, and coordinates of one chunk. Times that are no coordinates are looked at to infer a type.
    asked = [one.path for one in seen if "/stamp/c/" not in one.path]
    assert len(asked) == len(set(asked))
    stamps = len(seen) - len(asked)
    # For each level of groups a listing and documents; the coordinates.
    assert round_trips([one for one in seen if "/stamp/c/" not in one.path]) <= (2 if consolidated else 10)
    assert stamps <= 2 * GROUPS
    xr.testing.assert_identical(
        opened[0].load(), xr.open_datatree(tmp_path / "x", engine="zarr", consolidated=consolidated).load()
    )
