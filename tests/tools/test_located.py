"""Nodes below groups in stores that cannot list: they are known from the consolidated metadata of a group above."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.servers import web_server

import gzarr
from gzarr.cli.main import main
from gzarr.errors import NodeNotFoundError, StoreError
from gzarr.tools.located import locate
from gzarr.tools.verify import verify

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from gzarr.stores.base import ByteRange


class Unlisted:
    """A store that cannot list its keys, like a web server."""

    read_only = True

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values

    def get(self, key: str, max_bytes: int | None = None) -> Any:
        return self.values.get(key)

    def get_partial_values(self, requests: Sequence[tuple[str, ByteRange]]) -> list[Any]:
        # Only documents are read, as a whole.
        return [self.values.get(key) for key, _ in requests]


@pytest.fixture(params=[2, 3, "implicit"])
def values(request: pytest.FixtureRequest) -> dict[str, Any]:
    store: dict[str, Any] = {}
    root = gzarr.create_group(store, zarr_format=3 if request.param == 3 else 2)
    root.create_array("units/deep/y", data=np.arange(5))
    root.create_array("units/x", data=np.arange(100))
    if request.param == "implicit":
        # zarr-python 2 may leave them out.
        del store["units/.zgroup"], store["units/deep/.zgroup"]
    gzarr.consolidate_metadata(store)
    return store


@pytest.fixture
def url(values: dict[str, Any], tmp_path: Path) -> Iterator[str]:
    folder = tmp_path / "served"
    for key, value in values.items():
        path = folder / "h.zarr" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(value))
    with web_server(folder) as (host, port):
        yield f"http://{host}:{port}/h.zarr"


def test_copies_below_the_root(url: str) -> None:
    root = gzarr.open_group(url)
    for copied in (
        gzarr.copy(root["units"], {}),
        gzarr.copy(url, {}, path="units"),
        gzarr.copy(root, {})["units"],  # type: ignore[index]
    ):
        assert isinstance(copied, gzarr.Group)
        assert [path for path, _ in copied.walk()] == ["deep", "deep/y", "x"]
        assert copied["deep/y"][...].tolist() == list(range(5))  # type: ignore[union-attr, index]
    assert [path for path, _ in gzarr.copy(url, {}, path="units/deep").walk()] == ["y"]  # type: ignore[union-attr]
    with pytest.raises(NodeNotFoundError, match="'/none'"):
        gzarr.copy(url, {}, path="none")


def test_verification(url: str) -> None:
    for path, arrays in (("", 2), ("units", 2), ("units/deep", 1), ("units/x", 1)):
        verification = verify(url, path=path)
        assert list(verification) == []
        assert verification.arrays == arrays


def test_commands(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("tree", "info", "verify"):
        assert main([command, url, "--path", "units"]) == 0
    assert "y (5,) int64" in capsys.readouterr().out
    assert main(["info", url, "--path", "units", "--strict"]) == 0
    assert main(["bench", url, "--path", "units", "--rounds", "1", "--peer", "none"]) == 0
    for command in ("copy", "optimize"):
        assert main([command, url, str(tmp_path / command), "--path", "units"]) == 0
        assert gzarr.open_array(tmp_path / command, path="deep/y")[...].tolist() == list(range(5))
    capsys.readouterr()
    assert main(["tree", url, "--path", "none"]) == 1
    assert "no array or group at '/none'" in capsys.readouterr().err


def test_an_array_without_its_document_departs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    group = gzarr.create_group(tmp_path / "h.zarr")
    group.create_array("a", data=[1, 2])
    gzarr.consolidate_metadata(tmp_path / "h.zarr")
    (tmp_path / "h.zarr/a/zarr.json").unlink()
    with web_server(tmp_path) as (host, port):
        assert main(["info", f"http://{host}:{port}/h.zarr", "--strict"]) == 1
    assert "'/a'" in capsys.readouterr().out


def test_what_nothing_tells(values: dict[str, Any]) -> None:
    for key in (".zmetadata", "zarr.json"):
        values.pop(key, None)
    if "units/zarr.json" in values or "units/.zgroup" in values:
        with pytest.raises(StoreError, match="cannot list its keys"):
            gzarr.copy(Unlisted(values), {}, path="units")  # type: ignore[arg-type]
    else:
        with pytest.raises(NodeNotFoundError):
            gzarr.copy(Unlisted(values), {}, path="units")  # type: ignore[arg-type]


def test_a_damaged_group_above_does_not_matter(values: dict[str, Any]) -> None:
    for key in (".zmetadata", ".zgroup", "zarr.json"):
        if key in values:
            values[key] = b"{"
    found = locate(Unlisted(values), path="units/x")  # type: ignore[arg-type]
    assert found.node().name == "/units/x"
    if "units/zarr.json" in values or "units/.zgroup" in values:
        assert locate(Unlisted(values), path="units").entry.children is None  # type: ignore[arg-type]
