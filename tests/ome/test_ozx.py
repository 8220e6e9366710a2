"""OME-Zarr in one file (``.ozx``, RFC-9): written in its order, read like any other store, refused where it cannot be.

The order of a file is read here record by record, from its first byte on, and by the standard library.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.range_server import range_server

import gzarr
from gzarr.cli.main import main
from gzarr.errors import ArgumentError, NodeNotFoundError, StoreError
from gzarr.stores import zip_writer

if TYPE_CHECKING:
    from pathlib import Path

    from support.devices import TestedDevice

DATA = np.random.default_rng(1).integers(0, 4000, (2, 12, 70, 90), dtype=np.uint16)
CELLS = (DATA[0] // 800).astype("u2")
COMMENT = {"ome": {"version": "0.5", "zipFile": {"centralDirectory": {"jsonFirst": True}}}}


def make(path: Path, **options: Any) -> gzarr.ome.Image:
    return gzarr.ome.create(
        path, DATA, axes="czyx", scale=(1, 2, 0.5, 0.5), channels=["DAPI", "GFP"], chunks=(1, 4, 32, 32), **options
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.ozx"


def names_in_file(path: Path) -> list[str]:
    """Return the names of the entries as they stand in the file, which has nothing between them."""
    data, at, names = path.read_bytes(), 0, []
    while data[at : at + 4] == b"PK\3\4":
        needed, flags, method, *_, packed, size, name, extra = struct.unpack_from("<5H3L2H", data, at + 4)
        assert (needed, flags & ~0x800, method, packed, extra) == (45, 0, 0, size, 0)
        names.append(data[at + 30 : at + 30 + name].decode())
        at += 30 + name + packed
    assert data[at : at + 4] == b"PK\1\2", "the directory follows the last entry"
    return names


def check(path: Path, comment: Any = COMMENT) -> list[str]:
    """Check the order of a file; return the names of its entries."""
    names = names_in_file(path)
    data = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        infos = archive.infolist()
        assert [info.filename for info in infos] == names
        assert all(info.compress_type == zipfile.ZIP_STORED and info.extract_version == 45 for info in infos)
        assert json.loads(archive.comment or b"null") == comment
        found = len(archive.comment)
    # The records of zip64: the directory's, and the one that leads there.
    assert data[-22 - found - 20 : -22 - found - 16] == b"PK\6\7"
    assert data[-22 - found - 20 - 56 : -22 - found - 20 - 52] == b"PK\6\6"
    documents = [name.split("/")[:-1] for name in names if name.endswith("zarr.json")]
    assert documents == sorted(documents, key=lambda folder: (len(folder), folder))
    assert documents[0] == []
    assert all(name.endswith("zarr.json") for name in names[: len(documents)])
    return names


def test_an_image_is_written_in_order(path: Path) -> None:
    image = make(path, levels=3, shards=(1, 12, 64, 64))
    np.testing.assert_array_equal(image.read(), DATA)
    assert check(path)[:4] == ["zarr.json", "0/zarr.json", "1/zarr.json", "2/zarr.json"]
    gzarr.ome.create_labels(path, "cells", CELLS)
    names = check(path)
    assert names[:6] == ["zarr.json", "0/zarr.json", "1/zarr.json", "2/zarr.json", "labels/zarr.json", names[5]]
    assert names[5:7] == ["labels/cells/zarr.json", "labels/cells/0/zarr.json"]
    found = gzarr.ome.open(path, device="cpu")
    assert isinstance(found, gzarr.ome.Image)
    np.testing.assert_array_equal(found.read(c="GFP"), DATA[1])
    np.testing.assert_array_equal(found.labels["cells"].read(), CELLS)


def test_it_holds_what_a_folder_holds(path: Path, tmp_path: Path, device: TestedDevice) -> None:
    make(tmp_path / "x.zarr", levels=2)
    gzarr.copy(tmp_path / "x.zarr", path)
    check(path)
    files = {
        found.relative_to(tmp_path / "x.zarr").as_posix(): found.read_bytes()
        for found in (tmp_path / "x.zarr").rglob("*")
        if found.is_file()
    }
    with zipfile.ZipFile(path) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == files
    for spelling in (str(path), f"zip://{path}", path.as_uri()):
        np.testing.assert_array_equal(device.read(device.open(spelling, path="0")), DATA)


def test_changes_leave_nothing_behind(path: Path) -> None:
    """Bytes of values that were replaced or erased are not in the file."""
    make(path, levels=2)
    size = path.stat().st_size
    image = gzarr.ome.open(path, mode="r+")
    assert isinstance(image, gzarr.ome.Image)
    image.level(0)[...] = DATA[::-1]
    image.update_metadata(name="renamed")
    image.group.store.flush()  # type: ignore[attr-defined]
    check(path)
    assert abs(path.stat().st_size - size) < size // 10
    again = gzarr.ome.open(path)
    assert isinstance(again, gzarr.ome.Image)
    assert again.name == "renamed"
    np.testing.assert_array_equal(again.read(), DATA[::-1])
    gzarr.ome.create(path, DATA[0], axes="zyx", levels=1, overwrite=True)
    assert sum("zarr.json" in name for name in check(path)) == 2
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_names_are_known_in_any_case_and_through_links(tmp_path: Path) -> None:
    make(tmp_path / "A.OZX", levels=1)
    check(tmp_path / "A.OZX")
    (tmp_path / "blob").write_bytes(b"")
    (tmp_path / "blob").unlink()
    (tmp_path / "b.ozx").symlink_to(tmp_path / "blob")
    with gzarr.ZipStore(tmp_path / "b.ozx", mode="w") as store:
        make(store, levels=1)  # type: ignore[arg-type]
    check(tmp_path / "blob")
    # Archives of other names stay as they were.
    with gzarr.ZipStore(tmp_path / "x.zip", mode="w") as store:
        make(store, levels=1)  # type: ignore[arg-type]
    with zipfile.ZipFile(tmp_path / "x.zip") as archive:
        assert archive.comment == b""
        assert archive.infolist()[0].extract_version == 20


def test_what_is_no_ome_zarr_has_no_comment(path: Path) -> None:
    gzarr.create_group(path, attributes={"ome": 5}).create_array("a", data=DATA[0, 0])
    gzarr.open_group(path, mode="r+").store.flush()  # type: ignore[attr-defined]
    check(path, None)
    gzarr.ome.create(path, DATA[0], axes="zyx", levels=1, path="image")
    check(path, None)


def test_entries_of_other_writers_are_kept(path: Path, tmp_path: Path) -> None:
    """Compressed ones, ones whose sizes follow the data, with other fields, and without the order."""
    make(tmp_path / "x.zarr", levels=2)
    files = sorted((found for found in (tmp_path / "x.zarr").rglob("*") if found.is_file()), reverse=True)

    class Stream:
        def __init__(self, file: Any) -> None:
            self.write, self.flush = file.write, file.flush

    with path.open("wb") as file, zipfile.ZipFile(Stream(file), "w") as archive:  # type: ignore[arg-type]
        for i, found in enumerate(files):
            info = zipfile.ZipInfo(found.relative_to(tmp_path / "x.zarr").as_posix())
            info.compress_type = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2)[i % 3]
            info.extra = b"\xca\xfe\x03\0abc" * (i % 2)
            with archive.open(info, "w", force_zip64=i % 4 == 0) as entry:
                entry.write(found.read_bytes())
    np.testing.assert_array_equal(gzarr.ome.open(path, device="cpu").read(), DATA)  # type: ignore[union-attr]
    gzarr.ome.create_labels(path, "cells", CELLS)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        assert names[0] == "zarr.json"
        assert json.loads(archive.comment) == COMMENT
        methods = {info.compress_type for info in archive.infolist()}
        assert methods == {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2}
        for found in files:
            name = found.relative_to(tmp_path / "x.zarr").as_posix()
            assert archive.read(name) == found.read_bytes()
    image = gzarr.ome.open(path, device="cpu")
    assert isinstance(image, gzarr.ome.Image)
    np.testing.assert_array_equal(image.read(), DATA)
    np.testing.assert_array_equal(image.labels["cells"].read(), CELLS)


def test_damaged_entries_are_not_moved(path: Path) -> None:
    make(path, levels=1)
    data = bytearray(path.read_bytes())
    at = data.index(b"PK\3\4", 40)
    data[at : at + 4] = b"PK\3\5"
    path.write_bytes(data)
    store = gzarr.ZipStore(path, mode="r+")
    store.set("note", b"1")
    with pytest.raises(StoreError, match="cannot be kept"):
        store.flush()
    store.discard()
    assert path.read_bytes() == data
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("step", ["_move", "_write"])
def test_a_failed_flush_leaves_the_old_file(path: Path, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make(path, levels=1)
    before = path.read_bytes()
    store = gzarr.ZipStore(path, mode="r+")
    store.set("note", bytes(100_000))

    def fail(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(zip_writer, step, fail)
        for _ in range(2):
            with pytest.raises(StoreError, match="cannot complete it: No space left"):
                store.flush()
        assert path.read_bytes() == before
        assert store.get("note") == bytes(100_000)
    store.close()
    assert "note" in check(path)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_killed_writer_leaves_the_old_file(path: Path) -> None:
    make(path, levels=1)
    before = path.read_bytes()
    program = """
import os, signal, sys, gzarr
from gzarr.stores import zip_writer
store = gzarr.ZipStore(sys.argv[1], mode="a")
store.set("note", bytes(100_000))
move, calls = zip_writer._move, []
def killed(*arguments):
    calls.append(1)
    if len(calls) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    move(*arguments)
zip_writer._move = killed
store.close()
"""
    assert subprocess.run([sys.executable, "-c", program, str(path)], check=False).returncode == -9
    assert path.read_bytes() == before
    # The next process that writes there removes what was left.
    program = "import gzarr, sys; gzarr.save(sys.argv[1], [1])"
    subprocess.run([sys.executable, "-c", program, str(path.parent / "other.ozx")], check=True)
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["other.ozx", "x.ozx"]


def test_large_values_are_copied_whole(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    value = np.random.default_rng(2).bytes(9_000_000)
    for without in (False, True):
        if without:
            monkeypatch.delattr(os, "copy_file_range", raising=False)
        with gzarr.ZipStore(path, mode="w") as store:
            store.set("large", value)
            store.set("small", value[:100])
            store.set("zarr.json", b"{}")
        assert names_in_file(path) == ["zarr.json", "large", "small"]
        assert gzarr.ZipStore(path).get("large") == value


# -- reading


def test_commands(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(path, levels=1)
    for command in (["info"], ["info", "--strict"], ["tree"], ["verify"], ["consolidate"]):
        assert main([command[0], str(path), *command[1:]]) == 0, command
    assert "OME image 0.5: c z y x, 1 level" in capsys.readouterr().out
    check(path)
    assert main(["pyramid", str(path), "--levels", "2"]) == 0
    assert "1/zarr.json" in check(path)
    assert main(["info", f"{path}#1"]) == 0
    assert main(["copy", str(path), str(tmp_path / "y.ozx"), "--codecs", "zstd:1", "--read-back"]) == 0
    check(tmp_path / "y.ozx")
    assert main(["optimize", str(path), str(tmp_path / "z.ozx"), "--levels", "2"]) == 0
    check(tmp_path / "z.ozx")
    assert main(["copy", str(tmp_path / "y.ozx"), str(tmp_path / "back.zarr")]) == 0
    image = gzarr.ome.open(tmp_path / "back.zarr", device="cpu")
    assert isinstance(image, gzarr.ome.Image)
    np.testing.assert_array_equal(image.read(), DATA)
    assert main(["bench", str(path), "--rounds", "1", "--peer", "none"]) == 0


def test_loader_and_blocks(path: Path, tmp_path: Path, device: TestedDevice) -> None:
    make(path, levels=1)
    array = device.open(str(path), path="0")
    loader = gzarr.Loader({"x": array}, gzarr.loader.Rows(), batch_size=2, shuffle=False)
    for batch in loader:
        np.testing.assert_array_equal(device.to_numpy(batch["x"]), DATA)
    gzarr.map_blocks(lambda block: block + 1, array, out=str(tmp_path / "y.ozx"))
    np.testing.assert_array_equal(device.read(device.open(str(tmp_path / "y.ozx"))), DATA + 1)


def test_a_web_server_is_asked_as_seldom_as_for_a_zip(path: Path, tmp_path: Path) -> None:
    """Data begin right after names, so nobody asks for headers."""
    make(path, levels=1, shards=(1, 12, 64, 64))
    with range_server(tmp_path) as url:
        image = gzarr.ome.open(f"{url}/x.ozx", device="cpu")
        assert isinstance(image, gzarr.ome.Image)
        array = image.level(0)
        before = gzarr.stats()
        np.testing.assert_array_equal(array[1, 5:6, 40:42, 70:80], DATA[1, 5:6, 40:42, 70:80])
        after = gzarr.stats()
    assert after["requests"] - before["requests"] <= 2


# -- what is refused


def test_old_versions_are_refused_before_anything_is_made(path: Path, tmp_path: Path) -> None:
    make(tmp_path / "old.zarr", levels=1, version="0.4")
    for work in (
        lambda: make(path, levels=1, version="0.4"),
        lambda: gzarr.create_array(path, data=DATA[0], zarr_format=2),
        lambda: gzarr.create_group(path, zarr_format=2),
        lambda: gzarr.copy(tmp_path / "old.zarr", path),
        lambda: gzarr.copy(tmp_path / "old.zarr", path, path="0"),
        lambda: gzarr.save(path, DATA[0], zarr_format=2),
        lambda: gzarr.ome.create_plate(path, rows="A", columns=[1], version="0.4"),
    ):
        with pytest.raises(ArgumentError, match=r"an \.ozx file holds OME-Zarr 0\.5 or later"):
            work()
        assert [entry.name for entry in tmp_path.iterdir()] == ["old.zarr"]
    gzarr.copy(tmp_path / "old.zarr", path, zarr_format=3)
    check(path)
    np.testing.assert_array_equal(gzarr.ome.open(path, device="cpu").read(), DATA)  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["y.tar", "y.zarr.tar.gz", "y.TGZ", "y.7z", "y.rar", "y.zarr.zst", "y.zipx"])
def test_other_archives_are_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gzarr.save(tmp_path / "x.zarr", DATA[0])
    place = tmp_path / name
    for work in (
        lambda: gzarr.copy(tmp_path / "x.zarr", place),
        lambda: gzarr.create_array(place, data=DATA[0]),
        lambda: gzarr.create_group(place.as_uri()),
        lambda: gzarr.ome.create(place, DATA[0], axes="zyx"),
        lambda: gzarr.open_group(place, mode="w"),
    ):
        with pytest.raises(ArgumentError, match=r"named \.zip .* or \.ozx"):
            work()
    assert main(["copy", str(tmp_path / "x.zarr"), str(place)]) == 2
    assert "of a kind that gzarr does not write" in capsys.readouterr().err
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.zarr"]
    # A directory of that name is one.
    place.mkdir()
    gzarr.copy(tmp_path / "x.zarr", place)
    np.testing.assert_array_equal(gzarr.open_array(place, device="cpu")[...], DATA[0])


def test_other_archives_in_a_bucket_are_refused(tmp_path: Path) -> None:
    # It cannot list, so nothing is known about it; that it is read-only is said.
    with range_server(tmp_path) as url, pytest.raises(gzarr.GzarrError):
        gzarr.create_group(f"{url}/y.tar")


def test_a_file_that_is_no_zip(path: Path, tmp_path: Path) -> None:
    path.write_bytes(b"text")
    with pytest.raises(StoreError, match="does not end as a zip file does"):
        gzarr.ome.open(path)
    with pytest.raises(NodeNotFoundError, match="does not exist"):
        gzarr.ome.open(tmp_path / "none.ozx")
    (tmp_path / "y.tar").write_bytes(b"text")
    with pytest.raises(NodeNotFoundError, match="no other archives are read"):
        gzarr.open(tmp_path / "y.tar")


def test_a_folder_of_that_name_is_read(path: Path, tmp_path: Path) -> None:
    make(tmp_path / "x.zarr", levels=1)
    (tmp_path / "x.zarr").rename(path)
    np.testing.assert_array_equal(gzarr.ome.open(path, device="cpu").read(), DATA)  # type: ignore[union-attr]


def _rewritten(
    path: Path, *, comment: bytes, order: Any = None, compress: bool = False, more: dict[str, bytes] | None = None
) -> None:
    """Write the file again by the standard library, which uses zip64 for large files only."""
    with zipfile.ZipFile(path) as archive:
        values = {name: archive.read(name) for name in archive.namelist()} | (more or {})
    method = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    with zipfile.ZipFile(path, "w", method) as archive:
        for name in sorted(values, key=order) if order else values:
            archive.writestr(name, values[name])
        archive.comment = comment


ORDERED = json.dumps(COMMENT).encode()
FIRST = "but some zarr.json comes later"


@pytest.mark.parametrize(
    ("change", "rules"),
    [
        # What is only recommended: zip64, a comment, an order, no compression.
        ({"comment": ORDERED}, []),
        ({"comment": ORDERED, "compress": True}, []),
        ({"comment": b""}, []),
        ({"comment": b'{"ome": 5}'}, []),
        ({"comment": b'{"ome": {"version": "0.5", "zipFile": 1}}', "order": lambda name: name}, []),
        ({"comment": ORDERED, "order": lambda name: name}, [FIRST]),
        ({"comment": ORDERED + b"\0", "order": lambda name: name[::-1]}, [FIRST]),
        ({"comment": b"", "more": {"more/x.zip": b"?"}}, ["must not be an archive, as 'more/x.zip'"]),
    ],
)
def test_broken_rules(
    path: Path, change: dict[str, Any], rules: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    make(path, levels=2)
    assert main(["info", str(path), "--strict"]) == 0
    _rewritten(path, **change)
    capsys.readouterr()
    assert main(["info", str(path), "--strict", "--json"]) == bool(rules)
    found = json.loads(capsys.readouterr().out)["departures"]
    assert len(found) == len(rules)
    for one, rule in zip(found, rules, strict=True):
        assert one["node"] == "/"
        assert rule in one["departure"]
    # The same of a file on a server; an archive of another name has other rules.
    with range_server(tmp_path) as url:
        assert main(["info", f"{url}/{path.name}", "--strict", "--json"]) == bool(rules)
    assert json.loads(capsys.readouterr().out)["departures"] == found
    path.rename(tmp_path / "x.zip")
    assert main(["info", str(tmp_path / "x.zip"), "--strict"]) == 0


def test_a_hierarchy_in_a_folder_of_the_file_breaks_a_rule(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(path, levels=1)
    with zipfile.ZipFile(path) as archive:
        values = {f"inner/{name}": archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, value in values.items():
            archive.writestr(name, value)
    assert main(["info", f"{path}#inner", "--strict"]) == 1
    assert "the root of the file must be that of the hierarchy" in capsys.readouterr().out
