"""Web servers: nginx as a plain one, with what such servers do and leave out, and rclone's WebDAV."""

from __future__ import annotations

import base64
import os
import pickle
import signal
import traceback
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr
from support import servers
from support.fault_proxy import FaultProxy, Seen

import gzarr
from gzarr.cli.main import main
from gzarr.errors import ChunkDecodeError, ChunkError, ChunkReadError, ChunkWriteError, MetadataError, StoreError
from gzarr.stores.base import is_listable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    Values = np.ndarray[Any, Any]

#: Time-outs for servers that fail for good.
QUICK = {"timeout": 3, "client_options": {"read_timeout": "500ms", "connect_timeout": "500ms"}}
SHARDED: dict[str, Any] = {"chunks": (10, 10), "shards": (60, 50)}


def elements() -> Values:
    return np.random.default_rng(5).integers(0, 100, (120, 100), dtype="i4")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of arrays and groups, with and without consolidated metadata, written by zarr-python."""
    made = tmp_path_factory.mktemp("served")
    data = elements()
    for name in ("known", "unknown"):
        group = zarr.create_group(made / name)
        group.create_array("chunked", data=data, chunks=(30, 25))
        group.create_array("sharded", data=data, **SHARDED)
        group.create_array("inner/empty", shape=(4, 4), chunks=(2, 2), dtype="i4", fill_value=7)
    gzarr.consolidate_metadata(made / "known")
    zarr.create_array(made / "v2", data=data, chunks=(30, 25), zarr_format=2)
    (made / "login.html").write_text("<html>Who are you?</html>")
    return made


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[tuple[str, int]]:
    with servers.web_server(folder) as address:
        yield address


@pytest.fixture
def proxy(server: tuple[str, int]) -> Iterator[FaultProxy]:
    with FaultProxy(server) as made:
        yield made


def node(proxy: FaultProxy, path: str, **arguments: Any) -> Any:
    return gzarr.open(f"{proxy.url}/{path}", **{"storage_options": servers.PATIENT, **arguments})


def methods(seen: list[Seen]) -> list[str]:
    return [one.method for one in seen]


# -- plain servers


@pytest.mark.parametrize("location", ["", "untagged/", "undated/", "weak/", "moved/"])
def test_reading(proxy: FaultProxy, location: str) -> None:
    data = elements()
    for path in ("known/chunked", "known/sharded", "v2"):
        array = node(proxy, location + path)
        np.testing.assert_array_equal(array[...], data)
        np.testing.assert_array_equal(array[17:40, 20:], data[17:40, 20:])
    assert (node(proxy, f"{location}known/inner/empty")[...] == 7).all()
    assert set(methods(proxy.seen)) == {"GET"}


@pytest.mark.parametrize("location", ["", "untagged/", "undated/", "weak/"])
def test_a_shard_that_is_replaced(proxy: FaultProxy, folder: Path, location: str) -> None:
    array = gzarr.create_array(folder / "changing", data=elements(), overwrite=True, **SHARDED)
    served = node(proxy, f"{location}changing")
    np.testing.assert_array_equal(served[...], elements())
    array[...] = elements() + 100_000
    # nginx makes tags from sizes and seconds.
    for shard in (folder / "changing/c").rglob("?"):
        if shard.is_file():
            os.utime(shard, (2_000_000_000, 2_000_000_000))
    np.testing.assert_array_equal(served[...], elements() + 100_000)


def test_a_server_that_sends_whole_values_only(proxy: FaultProxy) -> None:
    np.testing.assert_array_equal(node(proxy, "whole/known/chunked")[...], elements())
    with pytest.raises(ChunkReadError, match=r"sends whole values only.*supports range requests"):
        node(proxy, "whole/known/sharded")[:30]


@pytest.mark.parametrize(
    ("location", "message"),
    [("forbidden", "HTTP status 403.*default_headers"), ("gone", "HTTP status 410"), ("login", "not valid JSON")],
)
def test_what_is_refused_is_not_absent(proxy: FaultProxy, location: str, message: str) -> None:
    with pytest.raises((StoreError, MetadataError), match=message):
        node(proxy, f"{location}/known")
    array = node(proxy, "known/inner/empty")
    status = {"forbidden": 403, "gone": 410, "login": 405}[location]
    proxy.fault_of = lambda number, seen: f"status {status}"
    with pytest.raises(ChunkReadError, match=f"HTTP status {status}"):
        array[...]


def test_a_page_in_place_of_an_absent_value(proxy: FaultProxy) -> None:
    np.testing.assert_array_equal(node(proxy, "app/known/sharded")[...], elements())
    with pytest.raises(ChunkError):
        node(proxy, "app/known/inner/empty")[...]


def test_a_consolidated_hierarchy_is_one_request(proxy: FaultProxy) -> None:
    group = node(proxy, "known")
    assert sorted(path for path, _ in group.walk()) == ["chunked", "inner", "inner/empty", "sharded"]
    assert "sharded" in str(group.tree())
    assert methods(proxy.seen) == ["GET"]
    np.testing.assert_array_equal(group["sharded"][...], elements())
    # A server that cannot list has nothing else, also if it is to be written to.
    assert sorted(node(proxy, "known", mode="r+")) == ["chunked", "inner", "sharded"]


@pytest.mark.parametrize("location", ["", "silent/", "pages/"])
def test_a_hierarchy_that_cannot_be_listed(
    proxy: FaultProxy, location: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for mode in ("r", "r+"):
        group = node(proxy, f"{location}unknown", mode=mode)
        for work in (
            lambda: list(group.members()),  # noqa: B023
            lambda: group.tree(),  # noqa: B023
            lambda: len(group),  # noqa: B023
        ):
            with pytest.raises(StoreError, match=r"cannot list its keys.*no consolidated metadata.*opened by name"):
                work()
        np.testing.assert_array_equal(group["chunked"][...], elements())
        assert "cannot list" in str(group.info)
    array = node(proxy, f"{location}unknown/chunked")
    gzarr.copy(array, tmp_path / "copy")
    np.testing.assert_array_equal(gzarr.open(tmp_path / "copy")[...], elements())
    assert gzarr.verify(array.store).problems == 0
    with pytest.raises(StoreError, match="cannot list its keys"):
        gzarr.copy(f"{proxy.url}/{location}unknown", tmp_path / "group")
    with pytest.raises(gzarr.NodeNotFoundError):
        node(proxy, f"{location}unknown/chunks")
    assert main(["info", f"{proxy.url}/{location}unknown/chunked"]) == 0
    assert "does not report sizes" in capsys.readouterr().out


def test_whether_a_server_lists_is_asked_once_and_only_if_it_matters(proxy: FaultProxy) -> None:
    for mode in ("r", "r+"):
        array = node(proxy, "unknown/chunked", mode=mode)
        assert array[0, 0] == elements()[0, 0]
    assert "PROPFIND" not in methods(proxy.seen)
    group = node(proxy, "unknown")
    for _ in range(3):
        with pytest.raises(StoreError, match="cannot list"):
            list(group)
    assert methods(proxy.seen).count("PROPFIND") == 1


@pytest.mark.parametrize("fault", ["status 503", "status 429", "reset before", "stall", "cut body"])
def test_a_failure_to_ask_is_an_error(proxy: FaultProxy, fault: str) -> None:
    group = node(proxy, "unknown", storage_options=QUICK)
    proxy.stall_s = 1.5
    proxy.fault_of = lambda number, seen: fault if seen.method == "PROPFIND" else None
    with pytest.raises(StoreError, match=r"cannot list '': .*attempts in"):
        list(group)
    proxy.fault_of = lambda number, seen: None
    with pytest.raises(StoreError, match="cannot list its keys"):
        list(group)


def test_writing_is_refused(proxy: FaultProxy) -> None:
    array = node(proxy, "known/chunked", mode="r+")
    with pytest.raises(ChunkWriteError, match="cannot write 'c/0/0': HTTP status 405"):
        array[0, 0] = 1
    with pytest.raises(ChunkWriteError, match="cannot write 'c/0': HTTP status 405"):
        gzarr.create_array(f"{proxy.url}/new", data=[1], storage_options=servers.PATIENT)
    with pytest.raises(StoreError, match="cannot erase"):
        array.store.erase("c/0/0")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_reads(proxy: FaultProxy) -> None:
    array = node(proxy, "known/sharded")
    assert array[0, 0] == elements()[0, 0]
    pid = os.fork()
    if not pid:
        code = 1
        try:
            signal.alarm(30)
            np.testing.assert_array_equal(array[...], elements())
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


# -- WebDAV


@pytest.fixture
def webdav(tmp_path: Path) -> Iterator[FaultProxy]:
    with servers.webdav_server(tmp_path) as address, FaultProxy(address) as made:
        yield made


def test_what_a_webdav_server_takes_is_a_hierarchy_of_files(webdav: FaultProxy, tmp_path: Path) -> None:
    array = gzarr.create_array(f"{webdav.url}/a/b", data=elements(), storage_options=servers.PATIENT, **SHARDED)
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "a/b", mode="r")[...], elements())
    assert sorted(array.store.list()) == sorted(
        str(path.relative_to(tmp_path / "a/b")) for path in (tmp_path / "a/b").rglob("*") if path.is_file()
    )
    array.store.erase_prefix("")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_folders_that_another_writer_makes_meanwhile(webdav: FaultProxy) -> None:
    """A folder of a WebDAV server is made before the first value in it is stored."""
    store: Any = gzarr.open_store(f"{webdav.url}/a", read_only=False, storage_options=servers.PATIENT)
    other: Any = gzarr.open_store(f"http://127.0.0.1:{webdav.upstream[1]}/a", read_only=False)

    def interfere(number: int, seen: Seen) -> str | None:
        if seen.method != "MKCOL":
            return None
        other.set("b/c/other", b"1")
        # The answer that RFC 4918 has for it; rclone's is another one.
        return "status 405"

    webdav.fault_of = interfere
    store.set("b/c/key", b"2")
    assert "MKCOL" in methods(webdav.seen)
    assert sorted(store.list()) == ["b/c/key", "b/c/other"]


def test_the_root_of_a_webdav_server(webdav: FaultProxy, tmp_path: Path) -> None:
    # An empty folder tells nothing of what the server can do.
    store: Any = gzarr.open_store(webdav.url, read_only=False, storage_options=servers.PATIENT)
    assert not store.can_list()
    group = gzarr.create_group(store)
    assert store.can_list()
    group.create_array("a", data=[1, 2])
    assert list(group) == ["a"]
    with pytest.raises(gzarr.NodeNotFoundError, match="did you mean 'a'"):
        gzarr.open(store, path="aa")
    again = gzarr.create_group(store, overwrite=True)
    assert list(again) == []
    assert [path.name for path in tmp_path.iterdir()] == ["zarr.json"]


def test_what_is_left_after_erasing_is_an_error(webdav: FaultProxy) -> None:
    store: Any = gzarr.open_store(f"{webdav.url}/a", read_only=False, storage_options=servers.PATIENT)
    store.set("b/c", b"1")

    def restore(number: int, seen: Seen) -> None:
        # After the folder is erased, and before it is listed again.
        if seen.method == "PROPFIND" and webdav.seen[number - 1].method == "DELETE":
            gzarr.open_store(f"http://127.0.0.1:{webdav.upstream[1]}/a", read_only=False).set("b/c", b"1")

    webdav.fault_of = restore  # type: ignore[assignment]
    with pytest.raises(StoreError, match="cannot erase all below 'b/': 'b/c' is still there"):
        store.erase_prefix("b/")
    webdav.fault_of = lambda number, seen: None
    store.erase_prefix("b/")
    assert list(store.list()) == []


def test_a_server_that_cannot_copy(webdav: FaultProxy) -> None:
    webdav.fault_of = lambda number, seen: "status 501" if seen.method == "COPY" else None
    with pytest.raises(StoreError, match=r"cannot create 'zarr\.json' without the risk.*overwrite=True"):
        gzarr.create_array(f"{webdav.url}/a", data=[1, 2], storage_options=servers.PATIENT)
    array = gzarr.create_array(f"{webdav.url}/a", data=[1, 2], overwrite=True, storage_options=servers.PATIENT)
    assert array[...].tolist() == [1, 2]
    assert sorted(array.store.list()) == ["c/0", "zarr.json"]


def test_a_password(tmp_path: Path) -> None:
    secret = base64.b64encode(b"someone:SECRETPASSWORD").decode()
    options = {"timeout": 3, "client_options": {"default_headers": {"Authorization": f"Basic {secret}"}}}
    with servers.webdav_server(tmp_path, "--user", "someone", "--pass", "SECRETPASSWORD") as address:
        url = f"http://{address[0]}:{address[1]}/a"
        with pytest.raises(StoreError, match=r"HTTP status 401.*default_headers"):
            gzarr.create_array(url, data=[1, 2], storage_options=servers.PATIENT)
        array = gzarr.create_array(url, data=[1, 2], storage_options=options)
        assert pickle.loads(pickle.dumps(array))[...].tolist() == [1, 2]
        assert list(gzarr.open_store(url, storage_options=options).list()) == ["zarr.json", "c/0"]  # type: ignore[attr-defined]
    with pytest.raises(ChunkReadError) as caught:
        array[...]
    shown = "".join(traceback.format_exception(caught.value)) + repr(array.store)
    assert secret not in shown
    assert "SECRETPASSWORD" not in shown


def test_a_damaged_chunk(webdav: FaultProxy, tmp_path: Path) -> None:
    array = gzarr.create_array(f"{webdav.url}/a", data=elements(), chunks=(30, 25), storage_options=servers.PATIENT)
    (tmp_path / "a/c/0/0").write_bytes(b"damaged")
    with pytest.raises(ChunkDecodeError, match="c/0/0"):
        array[...]


class PartlyListable(gzarr.MemoryStore):
    """A store of a class of which only some can list."""

    def __init__(self, lists: bool) -> None:
        super().__init__({})
        self.lists = lists
        self.asked = 0

    def can_list(self) -> bool:
        self.asked += 1
        return self.lists


@pytest.mark.parametrize("lists", [False, True])
def test_other_stores_of_which_only_some_can_list(lists: bool) -> None:
    store = PartlyListable(lists)
    gzarr.create_group(store).create_array("a", data=[1, 2])
    group, asked = gzarr.open_group(store), store.asked
    assert group["a"][...].tolist() == [1, 2]
    assert not is_listable(store, ask=False)
    assert store.asked == asked
    assert is_listable(store) == lists
    if lists:
        assert list(group) == ["a"]
    else:
        with pytest.raises(StoreError, match="cannot list its keys"):
            list(group)
