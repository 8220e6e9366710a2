"""Copies of Python objects: their codec is kept, and what comes after it may change."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numcodecs import JSON, Categorize, MsgPack, Pickle, VLenArray, Zstd
from support.servers import web_server

import gzarr
from gzarr.cli.main import main
from gzarr.errors import ArgumentError, UnsupportedError
from gzarr.stores.local import LocalStore
from gzarr.tools.comparing import identical
from gzarr.tools.copy import prepare_copy
from gzarr.tools.copy_options import CopyOptions

if TYPE_CHECKING:
    from collections.abc import MutableMapping
    from pathlib import Path

    Values = MutableMapping[str, Any]

ROWS = [np.arange(i % 5 + 1, dtype="i4") for i in range(1000)]
MIXED: list[Any] = ["a", float("nan"), {"x": [1, float("nan")]}, None]
OTHER_CODECS: list[Any] = ["auto", "zstd", [{"name": "zstd", "configuration": {"level": 3}}], [], None]


class Plain:
    """Without equality of its own."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Table(Plain):
    """Which compares element by element, as tables do."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> Any:
        return np.array([True, False])

    def __ne__(self, other: object) -> Any:
        return np.array([True, False])


class Unknown(Plain):
    """Whose comparison is an error."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise TypeError("boolean value is ambiguous")


def put(store: Values, path: str, items: list[Any], codec: Any, *, chunks: int, fill_value: Any = None) -> None:
    """Write a column as zarr-python 2 writes it."""
    compressor = Zstd(1)
    document = {
        "zarr_format": 2, "shape": [len(items)], "chunks": [chunks], "dtype": "|O", "fill_value": fill_value,
        "order": "C", "filters": [codec.get_config()], "compressor": compressor.get_config(),
    }  # fmt: skip
    store[f"{path}/.zarray"] = json.dumps(document).encode()
    for i in range(0, len(items), chunks):
        chunk = np.empty(chunks, object)
        chunk[:] = items[i : i + chunks]
        store[f"{path}/{i // chunks}"] = bytes(compressor.encode(codec.encode(chunk)))


def columns(store: Values, *, pickled: bool = False) -> Values:
    store[".zgroup"] = b'{"zarr_format": 2}'
    put(store, "spikes", ROWS, VLenArray("i4"), chunks=250, fill_value=0)
    store["spikes/.zattrs"] = b'{"_ARRAY_DIMENSIONS": ["n"]}'
    put(store, "j", MIXED, JSON(), chunks=2)
    put(store, "m", ["a", 2.5, {"x": 1}, None], MsgPack(), chunks=2)
    put(store, "c", ["a", "b", "b", "a"], Categorize(["a", "b"], dtype=object), chunks=2, fill_value="")
    if pickled:
        put(store, "p", ["a", {"x"}, None, 3], Pickle(), chunks=2)
    traces = np.arange(8000, dtype="i2").reshape(1000, 8)
    gzarr.create_array(store, path="traces", data=traces, zarr_format=2)
    return store


def files(folder: Path, *, pickled: bool = False) -> Path:
    store = LocalStore(folder)
    for key, value in columns({}, pickled=pickled).items():
        store.set(key, value)
    return folder


def check_same(copied: gzarr.Group, source: Values) -> None:
    one = gzarr.open_group(source, allow_pickle=True)
    assert list(copied) == list(one)
    for name in one:
        a, b = one[name], copied[name]
        assert isinstance(a, gzarr.Array)
        assert isinstance(b, gzarr.Array)
        assert a.codecs[0] == b.codecs[0] or name == "traces"
        assert identical(np.asarray(a[...]), np.asarray(b[...]))


# -- codecs and chunks


@pytest.mark.parametrize("codecs", OTHER_CODECS, ids=str)
@pytest.mark.parametrize("chunks", ["keep", "auto"])
def test_other_codecs_come_after_that_of_objects(codecs: Any, chunks: str) -> None:
    source = columns({}, pickled=True)
    options: dict[str, Any] = {"codecs": codecs, "chunks": chunks, "allow_pickle": True}
    target: dict[str, Any] = {}
    copied = gzarr.copy(source, target, read_back=True, **options)
    assert isinstance(copied, gzarr.Group)
    check_same(copied, source)
    for name in ("spikes", "j", "m", "c", "p"):
        labels = [codec.label for codec in copied[name].codecs]  # type: ignore[union-attr]
        assert labels[1:] == ([] if codecs in ([], None) else ["zstd"])
    resumed = gzarr.copy(source, target, resume=True, **options)
    assert isinstance(resumed, gzarr.Group)
    check_same(resumed, source)


def test_a_codec_of_objects_of_the_callers_is_taken() -> None:
    source = columns({})
    copied = gzarr.copy(source, {}, path="m", codecs=[{"id": "json2"}, "zstd"])
    assert isinstance(copied, gzarr.Array)
    assert [codec.label for codec in copied.codecs] == ["numcodecs.json2", "zstd"]
    assert copied[...].tolist() == ["a", 2.5, {"x": 1}, None]


def test_absent_rows_are_kept_or_refused() -> None:
    source = columns({})
    del source["spikes/1"]
    kept = gzarr.copy(source, {}, path="spikes", chunks="auto", codecs="auto")
    assert isinstance(kept, gzarr.Array)
    assert kept[300] == 0
    assert kept.chunks == (250,)
    target: dict[str, Any] = {}
    with pytest.raises(ArgumentError, match=r"'/spikes' cannot be copied without loss.*no rows.*lossy=True"):
        gzarr.copy(source, target, path="spikes", chunks=100)
    assert not target
    gzarr.copy(source, target, path="spikes", chunks=100, lossy=True)


def test_absent_rows_where_nothing_is_listed(tmp_path: Path) -> None:
    source = columns({})
    del source["spikes/1"]
    with pytest.raises(ArgumentError, match=r"cannot be copied without loss.*no rows"):
        gzarr.copy(gzarr.open_array(source, path="spikes").view[100:400], {})
    kept = gzarr.copy(gzarr.open_array(source, path="spikes").view[100:200], {})
    assert kept.shape == (100,)
    folder = tmp_path / "served"
    for key, value in source.items():
        path = folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(value))
    with web_server(folder) as (host, port):
        url = f"http://{host}:{port}/spikes"
        with pytest.raises(ArgumentError, match=r"cannot be copied without loss.*no rows"):
            gzarr.copy(url, {}, chunks=100)
        gzarr.copy(url, {}, chunks=100, lossy=True)


@pytest.mark.parametrize("fill_value", [0, None, ""])
def test_absent_categories(fill_value: Any) -> None:
    source: dict[str, Any] = {}
    put(source, "c", ["a", "b", "b", "a"], Categorize(["a", "b"], dtype=object), chunks=2, fill_value=fill_value)
    del source["c/1"]
    before = gzarr.open_array(source, path="c")[...].tolist()
    assert gzarr.copy(source, {}, path="c")[...].tolist() == before  # type: ignore[union-attr, index]
    if fill_value == "":
        assert gzarr.copy(source, {}, path="c", chunks=4)[...].tolist() == before  # type: ignore[union-attr, index]
    else:
        with pytest.raises(ArgumentError, match=r"cannot be copied without loss.*categories"):
            gzarr.copy(source, {}, path="c", chunks=4)


def test_optimize_of_rows_of_which_some_are_absent(tmp_path: Path) -> None:
    source = files(tmp_path / "a")
    (source / "spikes/1").unlink()
    assert main(["optimize", str(source), str(tmp_path / "b"), "--read-back"]) == 0
    assert gzarr.open_array(tmp_path / "b", path="spikes")[300] == 0


def test_optimize_of_columns_of_objects(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = files(tmp_path / "a")
    assert main(["optimize", str(source), str(tmp_path / "b"), "--dry-run"]) == 0
    assert "numcodecs.vlen-array + zstd" in capsys.readouterr().out
    assert not (tmp_path / "b").exists()
    assert main(["optimize", str(source), str(tmp_path / "b"), "--read-back"]) == 0
    check_same(gzarr.open_group(tmp_path / "b"), columns({}))
    for number, codecs in enumerate(("zstd:3", "auto", "none")):
        assert main(["copy", str(source), str(tmp_path / f"c{number}"), "--codecs", codecs, "--read-back"]) == 0


# -- other formats


@pytest.mark.parametrize("lossy", [False, True])
@pytest.mark.parametrize("codecs", ["keep", "auto"])
def test_the_reason_that_is_final_comes_first(codecs: str, *, lossy: bool) -> None:
    with pytest.raises(ArgumentError, match="vlen-array, which only Zarr format 2 has; zarr_format=2") as error:
        gzarr.copy(columns({}), {}, path="spikes", zarr_format=3, codecs=codecs, lossy=lossy)
    assert "lossy" not in str(error.value)
    assert "dtype" not in str(error.value)


# -- what was allowed


def test_what_a_node_was_opened_with_holds_for_its_copy() -> None:
    source = columns({}, pickled=True)
    root = gzarr.open_group(source, allow_pickle=True)
    for node in (root, root["p"], root["p"].view[:3]):  # type: ignore[union-attr]
        copied = gzarr.copy(node, {})
        found = copied["p"] if isinstance(copied, gzarr.Group) else copied
        assert isinstance(found, gzarr.Array)
        assert found[...].tolist()[:3] == ["a", {"x"}, None]
    assert gzarr.copy(gzarr.open(source), {}, allow_pickle=True)["p"][0] == "a"  # type: ignore[index, union-attr]
    for refused in (source, gzarr.open(source)):
        with pytest.raises(UnsupportedError, match="copy with allow_pickle=True"):
            gzarr.copy(refused, {})
    with pytest.raises(UnsupportedError, match="copy with allow_pickle=True"):
        gzarr.copy(source, {}, path="p")


def test_a_pickled_array_in_place_of_another_is_not_allowed() -> None:
    source = columns({}, pickled=True)
    given = gzarr.open(source, path="m")
    source["m/.zarray"] = source["p/.zarray"]
    with pytest.raises(UnsupportedError, match="allow_pickle=True"):
        gzarr.copy(given, {})


def test_the_format_of_a_node_holds_for_its_copy() -> None:
    source: dict[str, Any] = {}
    gzarr.create_array(source, data=[1, 2], zarr_format=2)
    node = gzarr.open(source, zarr_format=2)
    gzarr.create_array(other := {}, data=[3, 4, 5])  # type: ignore[var-annotated]
    source.update(other)
    assert gzarr.copy(node, {})[...].tolist() == [1, 2]  # type: ignore[index, union-attr]


def test_new_pickled_arrays_are_still_refused() -> None:
    with pytest.raises(ArgumentError, match="allow_pickle"):
        gzarr.create_array({}, shape=3, dtype=object, zarr_format=2, filters=[{"id": "pickle"}])


# -- command line


def test_commands_allow_pickle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = str(files(tmp_path / "a", pickled=True))
    for command in ("copy", "optimize"):
        target = str(tmp_path / command)
        assert main([command, source, target]) == 1
        assert "copy with --allow-pickle" in capsys.readouterr().err
        assert main([command, source, target, "--allow-pickle"]) == 0
        check_same(gzarr.open_group(target, allow_pickle=True), columns({}, pickled=True))
    assert main(["verify", source]) == 1
    assert main(["verify", source, "--allow-pickle"]) == 0
    assert main(["info", source, "--path", "p"]) == 1
    assert "open with --allow-pickle" in capsys.readouterr().err
    for command in ("info", "tree"):
        assert main([command, source, "--path", "p", "--allow-pickle"]) == 0
    assert main(["bench", source, "--path", "p", "--allow-pickle", "--rounds", "1", "--peer", "none"]) == 0
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["verify", "--help"])
    assert "runs code" in " ".join(capsys.readouterr().out.split())


def test_what_is_not_read_departs_from_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = str(files(tmp_path / "a", pickled=True))
    assert main(["info", source, "--strict"]) == 0
    _, _, rest = capsys.readouterr().out.partition("No departures from the specification.")
    assert "\n\nNot read" in rest
    assert "/p 'p/.zarray'" in rest
    assert main(["info", source, "--strict", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["departures"] == []
    assert [one["node"] for one in found["unsupported"]] == ["/p"]
    assert main(["info", source, "--strict", "--json", "--allow-pickle"]) == 0
    assert json.loads(capsys.readouterr().out)["unsupported"] == []


def test_levels_that_cannot_be_are_refused_before_the_copy(tmp_path: Path) -> None:
    gzarr.create_array(tmp_path / "a", data=np.zeros((4, 4)))
    for flags in ([], ["--dry-run"]):
        for levels in ("0", "65"):
            with pytest.raises(SystemExit) as ended:
                main(["optimize", str(tmp_path / "a"), str(tmp_path / "b"), "--levels", levels, *flags])
            assert ended.value.code == 2
    assert not (tmp_path / "b").exists()


def test_stores_that_workers_do_not_see_are_refused_in_a_dry_run(tmp_path: Path) -> None:
    gzarr.create_array(tmp_path / "a", data=[1])
    arguments = ["copy", str(tmp_path / "a"), str(tmp_path / "b.zip"), "--dask", "tcp://127.0.0.1:1", "--dry-run"]
    assert main(arguments) == 2


@pytest.mark.parametrize("kind", [Plain, Table, Unknown])
def test_objects_without_a_comparison(kind: Any) -> None:
    """Those are equal that are stored alike."""
    source: Values = {}
    put(source, "o", [kind(1), kind([2, 3]), kind("x"), None], Pickle(), chunks=2)
    target: Values = {}
    for options in ({"read_back": True}, {"resume": True}):
        copied = gzarr.copy(source, target, path="o", chunks=1, allow_pickle=True, **options)
        assert isinstance(copied, gzarr.Array)
        assert [getattr(element, "value", None) for element in copied[...].tolist()] == [1, [2, 3], "x", None]
    again = prepare_copy(source, target, CopyOptions(chunks=1, allow_pickle=True, resume=True), path="o")
    again.run(progress=False)
    assert (again.kept, again.written) == (1, 0)
    one, other = np.empty(1, object), np.empty(1, object)
    one[0], other[0] = kind(1), kind(2)
    assert not identical(one, other)
