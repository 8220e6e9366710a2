"""Trees of xarray of which only some groups are opened: the same groups as if all were, with fewer requests."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import xarray as xr
from support import servers
from support.fault_proxy import FaultProxy
from support.requests_of import LATENCY_S, requests_of, round_trips

import gzarr
from gzarr.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

VOLUMES = ("clear", "storm-1", "storm-2")
SWEEPS = 4


def tree() -> xr.DataTree:
    """Return volumes of a radar with sweeps, and something deeper."""
    groups: dict[str, xr.Dataset] = {"/": xr.Dataset(attrs={"site": "here"})}
    for v, volume in enumerate(VOLUMES):
        groups[f"/{volume}"] = xr.Dataset({"fixed": ("number", np.arange(3.0) + v)}, attrs={"v": v})
        for i in range(SWEEPS):
            data = np.full((4, 2), 10 * v + i, "f4")
            coordinates = {"range": np.arange(4) * 250.0}
            groups[f"/{volume}/sweep_{i}"] = xr.Dataset({"DBZH": (("range", "bin"), data)}, coords=coordinates)
    groups["/clear/old/sweep_0"] = xr.Dataset({"DBZH": ("x", np.arange(2.0))})
    return xr.DataTree.from_dict(groups)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("filtered")
    for zarr_format in (2, 3):
        tree().to_zarr(folder / f"{zarr_format}.zarr", zarr_format=zarr_format, consolidated=True)
    return folder


def check_groups(found: dict[str, xr.Dataset], path: Path, matched: Callable[[str], bool]) -> None:
    """Compare with the groups of xarray's own engine that match, and those above them."""
    theirs = xr.open_groups(path, engine="zarr")
    wanted = {above for one in theirs if matched(one) for above in [one, *map(str, PurePosixPath(one).parents)]}
    assert list(found) == [one for one in theirs if one in wanted]
    for one, dataset in found.items():
        xr.testing.assert_identical(dataset.load(), theirs[one].load())


@pytest.mark.parametrize("consolidated", [False, True])
@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize(
    "pattern",
    [
        "/*/sweep_0",
        "*/sweep_0",
        "sweep_0",
        "/storm-?",
        "storm-1/sweep_[!12]",
        "/storm-1/sweep_2",
        "/",
        "/*",
        "/clear/o*/*",
    ],
)
def test_patterns_of_pathlib(pattern: str, zarr_format: int, consolidated: bool, folder: Path) -> None:
    path = folder / f"{zarr_format}.zarr"
    found = xr.open_groups(path, engine="gzarr", group_filter=pattern, consolidated=consolidated)
    check_groups(found, path, lambda one: PurePosixPath(one).match(pattern))
    opened = xr.open_datatree(path, engine="gzarr", group_filter=pattern, consolidated=consolidated)
    assert list(opened.groups) == sorted(found, key=lambda one: (one.count("/") if one != "/" else 0, one))


@pytest.mark.parametrize(
    ("pattern", "matched"),
    {
        "/**/sweep_0": lambda one: one.endswith("/sweep_0"),
        "/**": lambda one: True,
        "**": lambda one: True,
        "/clear/**": lambda one: f"{one}/".startswith("/clear/"),
        "/clear/**/sweep_0": lambda one: one in ("/clear/sweep_0", "/clear/old/sweep_0"),
        "/**/o*/**": lambda one: "/old" in one,
    }.items(),
)
def test_any_number_of_names(pattern: str, matched: Callable[[str], bool], folder: Path) -> None:
    path = folder / "3.zarr"
    check_groups(xr.open_groups(path, engine="gzarr", group_filter=pattern), path, matched)


def test_a_tree(folder: Path) -> None:
    found = xr.open_datatree(folder / "3.zarr", engine="gzarr", group_filter="/storm-*/sweep_0", chunks={})
    whole = xr.open_datatree(folder / "3.zarr", engine="zarr", chunks={})
    assert found.groups == ("/", "/storm-1", "/storm-2", "/storm-1/sweep_0", "/storm-2/sweep_0")
    expected = xr.DataTree.from_dict({path: whole[path].to_dataset(inherit=False) for path in found.groups})
    assert found["storm-1/sweep_0/DBZH"].chunks == whole["storm-1/sweep_0/DBZH"].chunks
    xr.testing.assert_identical(found.load(), expected.load())
    assert found.attrs == {"site": "here"}
    assert list(found["storm-1"].children) == ["sweep_0"]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("", "must be a pattern"),
        (3, "must be a pattern"),
        (b"/*", "must be a pattern"),
        ("/a//b", "an empty name"),
        ("//", "an empty name"),
        ("a/../b", r"the name '\.\.'"),
        ("./a", r"the name '\.'"),
        ("/a**/b", r"'a\*\*', in which \*\* is only a part of a name"),
    ],
)
def test_what_is_no_pattern(pattern: Any, message: str, folder: Path) -> None:
    with pytest.raises(ArgumentError, match=message):
        xr.open_datatree(folder / "3.zarr", engine="gzarr", group_filter=pattern)


# The last one because the root is no name.
@pytest.mark.parametrize("pattern", ["/*/sweep_9", "/Clear", "/clear/sweep_0/x", "storm", "*/clear"])
def test_no_group_matches(pattern: str, folder: Path) -> None:
    with pytest.raises(ArgumentError, match=r"matches no group of .*: there are '/clear', ") as caught:
        xr.open_datatree(folder / "3.zarr", engine="gzarr", group_filter=pattern)
    assert repr(pattern) in str(caught.value)
    assert str(caught.value).count("'/") <= 7
    if pattern == "/*/sweep_9":
        assert "'/clear/sweep_2' and 11 more; * stands for" in str(caught.value)


def test_no_groups_at_all() -> None:
    store: dict[str, bytes] = {}
    gzarr.create_group(store)
    with pytest.raises(ArgumentError, match="there are no groups below the root"):
        xr.open_datatree(store, engine="gzarr", group_filter="/x", consolidated=False)


def test_a_group_and_a_pattern(folder: Path) -> None:
    with pytest.raises(ArgumentError, match=r"exclude each other: begin the pattern with .*'/clear/'"):
        xr.open_datatree(folder / "3.zarr", engine="gzarr", group="clear", group_filter="sweep_0")
    found = xr.open_groups(folder / "3.zarr", engine="gzarr", group="/", group_filter="/clear")
    # As xarray names them relative to a group.
    assert list(found) == [".", "clear"]


# -- requests


@pytest.fixture(scope="module")
def proxy() -> Iterator[FaultProxy]:
    with servers.s3_server() as address, FaultProxy(address, counted_latency_s=LATENCY_S) as proxy:
        servers.make_bucket(address, "bucket")
        yield proxy


@pytest.mark.parametrize("consolidated", [False, True])
def test_only_what_is_needed_is_asked_for(consolidated: bool, folder: Path, proxy: FaultProxy) -> None:
    options = servers.s3_options(proxy.url, **servers.PATIENT)
    url = f"s3://bucket/filtered-{consolidated}"
    gzarr.copy(folder / "3.zarr", url, dest_options=options, progress=False)
    if consolidated:
        gzarr.consolidate_metadata(url, storage_options=options)
    opened: list[xr.DataTree] = []

    def open_tree(**more: Any) -> None:
        arguments = {"storage_options": options, "consolidated": consolidated, **more}
        opened.append(xr.open_datatree(url, engine="gzarr", **arguments))

    everything, _ = requests_of(proxy, open_tree)
    seen, _ = requests_of(proxy, lambda: open_tree(group_filter="/*/sweep_0"))
    asked = [one.path.partition("?")[0] for one in seen] + [one.path.partition("prefix=")[2] for one in seen]
    inside = [one for one in asked if "sweep_" in one and "sweep_0" not in one]
    # Whether they are groups, their documents tell; nothing in them is asked for, nor below what is no sweep.
    assert all(one.endswith(tuple(f"/sweep_{i}/zarr.json" for i in range(1, SWEEPS))) for one in inside)
    assert not any("old" in one and not one.endswith("/old/zarr.json") for one in asked)
    # Listings of the root, the volumes and their sweeps, documents, and the coordinates of the sweeps.
    coordinates = len(VOLUMES)
    if consolidated:
        assert len(seen) == 1 + coordinates
        assert len(everything) == 1 + coordinates * SWEEPS
    else:
        listings, documents = 1 + 2 * len(VOLUMES), 1 + len(VOLUMES) * (1 + 1 + SWEEPS + 2) + 1
        assert len(seen) == listings + documents + coordinates
        assert len(everything) >= 2 * len(seen)
    assert round_trips(seen) <= (2 if consolidated else 8)
    expected = xr.open_datatree(folder / "3.zarr", engine="gzarr", group_filter="/*/sweep_0")
    xr.testing.assert_identical(opened[1].load(), expected.load())
