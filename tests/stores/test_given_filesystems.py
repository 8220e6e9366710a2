"""References of kerchunk read where the filesystems reach that were given for them, and no more than they need."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar

import fsspec
import numpy as np
import pytest
from fsspec.implementations.local import LocalFileSystem

import gzarr
from gzarr.errors import ChunkError, StoreError

if TYPE_CHECKING:
    from pathlib import Path

DATA = np.arange(4, dtype="<i4")
ZARRAY = json.dumps(
    {
        "zarr_format": 2, "shape": [4], "chunks": [4], "dtype": "<i4", "order": "C", "fill_value": 0, "filters": None,
        "compressor": None,
    }
)  # fmt: skip


class Recorded(LocalFileSystem):  # type: ignore[misc]
    """Local files, and what was asked of them."""

    asked: ClassVar[list[tuple[str, int | None, int | None]]] = []

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        self.asked.append((path, start, end))
        found: bytes = super().cat_file(path, start, end, **options)
        return found


@pytest.fixture
def recorded() -> Recorded:
    Recorded.asked.clear()
    return Recorded()


def references(chunk: object) -> dict[str, Any]:
    return {".zarray": ZARRAY, "0": chunk}


def of_memory() -> Any:
    return fsspec.filesystem("memory")


#: Options that say which filesystems references may use, none of which reaches local files.
GIVEN: dict[str, Any] = {
    "object": lambda: {"fs": of_memory()},
    "dict": lambda: {"fs": {"memory": of_memory()}},
    "dict of options": lambda: {"fs": {"memory": {}}},
    "protocol": lambda: {"remote_protocol": "memory"},
    "web servers": lambda: {"fs": fsspec.filesystem("http")},
    "web protocol": lambda: {"remote_protocol": "http"},
    "files kept": lambda: {"fs": fsspec.filesystem("simplecache", fs=of_memory())},
}


@pytest.mark.parametrize("scheme", ["file", "local"])
@pytest.mark.parametrize("given", GIVEN)
def test_no_other_filesystem_is_made(given: str, scheme: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(DATA.tobytes())
    url = f"{scheme}://{tmp_path}/secret"
    options = {"fo": references([url, 0, 16]), **GIVEN[given]()}
    fs = fsspec.filesystem("reference", **options, skip_instance_cache=True)
    had = dict(fs.fss)
    for store in (gzarr.FsspecStore(fs), gzarr.open_store("reference://", storage_options=options)):
        with pytest.raises(ChunkError, match=rf"'0'.* no filesystem for '{scheme}', .*{url}'.* '{scheme}': \.\.\.}}"):
            gzarr.open_array(store, device="cpu")[...]
        with pytest.raises(StoreError, match="no other is made"):
            gzarr.open_store(store).get("0")
    assert fs.fss == had


@pytest.mark.parametrize("given", ["dict", "dict of options"])
def test_paths_without_a_protocol(given: str, tmp_path: Path, recorded: Recorded) -> None:
    """fsspec takes them for local files, whatever the dictionary has."""
    (tmp_path / "secret").write_bytes(DATA.tobytes())
    fo = references([str(tmp_path / "secret"), 0, 16])
    options = GIVEN[given]()
    store: Any = gzarr.open_store("reference://", storage_options={"fo": fo, **options})
    with pytest.raises(StoreError, match=r"no filesystem for paths without a protocol, .* None: \.\.\.}"):
        store.get("0")
    for name in (None, "file"):
        allowed = {"fs": {**options["fs"], name: recorded}}
        store = gzarr.open_store("reference://", storage_options={"fo": fo, **allowed})
        assert store.get("0") == DATA.tobytes()
    assert len(recorded.asked) == 2


def test_filesystems_given_by_position(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(DATA.tobytes())
    fo = references([f"file://{tmp_path}/secret", 0, 16])
    kind = fsspec.get_filesystem_class("reference")
    store = gzarr.FsspecStore(kind(fo, None, None, None, None, None, None, of_memory()))
    with pytest.raises(StoreError, match="no filesystem for 'file'"):
        store.get("0")


@pytest.mark.parametrize("scheme", ["file", "local"])
@pytest.mark.parametrize("given", ["object", "dict", "files kept"])
def test_other_spellings_of_a_protocol(given: str, scheme: str, tmp_path: Path, recorded: Recorded) -> None:
    """They are read by the filesystem that was given."""
    (tmp_path / "x").write_bytes(b"head" + DATA.tobytes())
    fs: Any = fsspec.filesystem("simplecache", fs=recorded, cache_storage=str(tmp_path / "kept"))
    fs = {"object": recorded, "dict": {"local": recorded}, "files kept": fs}[given]
    fo = references([f"{scheme}://{tmp_path}/x", 4, 16])
    array = gzarr.open_array("reference://", device="cpu", storage_options={"fo": fo, "fs": fs})
    np.testing.assert_array_equal(array[...], DATA)
    if given == "files kept":
        assert len(list((tmp_path / "kept").iterdir())) == 1
    else:
        assert recorded.asked == [(f"{scheme}://{tmp_path}/x", 4, 20)]


def test_without_filesystems_any_is_made(tmp_path: Path) -> None:
    of_memory().pipe_file("/given/x", DATA.tobytes())
    (tmp_path / "x").write_bytes(DATA.tobytes())
    fo = {"a/.zarray": ZARRAY, "a/0": [f"file://{tmp_path}/x", 0, 16], "b/.zarray": ZARRAY, "b/0": ["memory://given/x"]}
    fs = fsspec.filesystem("reference", fo=fo, skip_instance_cache=True)
    had = dict(fs.fss)
    for store in (gzarr.FsspecStore(fs), gzarr.open_store("reference://", storage_options={"fo": fo})):
        for path in ("a", "b"):
            np.testing.assert_array_equal(gzarr.open_array(store, path=path, device="cpu")[...], DATA)
    # It is the user's: fsspec itself reaches no more than before.
    assert fs.fss == had


def test_whole_files_are_read_to_the_size_of_a_chunk(tmp_path: Path, recorded: Recorded) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(1 << 25)
    options = {"fo": references([str(path)]), "fs": recorded}
    array = gzarr.open_array("reference://", device="cpu", storage_options=options)
    with pytest.raises(ChunkError, match="at most 16 "):
        array[...]
    assert set(recorded.asked) == {(str(path), 0, 17)}
    path.write_bytes(DATA.tobytes())
    np.testing.assert_array_equal(array[...], DATA)
    path.write_bytes(b"")
    with pytest.raises(ChunkError, match="0"):
        array[...]


def test_local_files_only(tmp_path: Path) -> None:
    (tmp_path / "near").write_bytes(DATA.tobytes())
    options = {"remote_protocol": "file"}
    for target in (f"file://{tmp_path}/near", f"{tmp_path}/near"):
        near = references([target, 0, 16])
        assert gzarr.open("reference://", storage_options={"fo": near, **options})[...].tolist() == DATA.tolist()
    of_memory().pipe_file("/far", DATA.tobytes())
    far = references(["memory://far", 0, 16])
    # Without the option, it is any filesystem: also after, and before, one with it.
    for _ in range(2):
        array = gzarr.open("reference://", storage_options={"fo": far, **options})
        with pytest.raises(ChunkError, match="there is no filesystem for 'memory'"):
            array[...]
        assert gzarr.open("reference://", storage_options={"fo": far})[...].tolist() == DATA.tolist()


class Known(fsspec.get_filesystem_class("memory")):  # type: ignore[misc]
    """A filesystem that is registered by more names than it says: adlfs says "abfs", and takes "az", too."""

    protocol = "known"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        stripped: str = super()._strip_protocol(path.removeprefix("alias://").removeprefix("known://"))
        return stripped


def test_names_that_a_filesystem_does_not_say() -> None:
    for name in ("known", "alias"):
        fsspec.register_implementation(name, Known, clobber=True)
    fsspec.filesystem("known").pipe_file("/far", DATA.tobytes())
    options = {"fo": references(["alias:///far", 0, 16]), "remote_protocol": "known"}
    assert gzarr.open("reference://", storage_options=options)[...].tolist() == DATA.tolist()
    options["fo"] = references(["file:///far", 0, 16])
    with pytest.raises(ChunkError, match=r"pass fs=\{'known': ..., 'file': ...\}"):
        gzarr.open("reference://", storage_options=options)[...]
