"""dask on a real scheduler with two worker processes: directories and S3, copies, and workers that are killed."""

from __future__ import annotations

import os
import threading
import uuid
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import dask.array as da
import numpy as np
import pytest
import scipy.ndimage
import zarr
from distributed import Client, LocalCluster
from support import remotes
from support.dying_store import DyingStore

import gzarr
from gzarr.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

DATA = np.random.default_rng(1).integers(-999, 999, (120, 90)).astype("i4")


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """A scheduler with two worker processes of one thread."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", memory_limit=0) as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def s3() -> Iterator[remotes.Remote]:
    with remotes.remote("s3") as remote:
        yield remote


@pytest.fixture(params=["directory", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Any]:
    """Make a place for an array: a directory, or a store of S3."""
    if request.param == "directory":
        return lambda: gzarr.LocalStore(tmp_path / uuid.uuid4().hex)
    remote: remotes.Remote = request.getfixturevalue("s3")
    endpoint = "http://{}:{}".format(*remote.address)
    return lambda: remote.store(endpoint, uuid.uuid4().hex)


def where(block: Any) -> Any:
    """Return the id of the process that computes a block, in an array of its shape."""
    return np.full(block.shape, os.getpid())


def test_there_and_back(client: Client, place: Callable[[], Any]) -> None:
    a = gzarr.create_array(place(), data=DATA, chunks=(20, 15), device="cpu")
    x = gzarr.to_dask(a, {})
    assert int(x.sum().compute()) == DATA.sum()
    np.testing.assert_array_equal(x[5:70:3, [4, 80, 2]].compute(), DATA[5:70:3, [4, 80, 2]])
    pids = set(np.unique(x.map_blocks(where, dtype="i8").compute()).tolist())
    assert len(pids) == 2
    assert os.getpid() not in pids
    b = gzarr.from_dask(x * 2, place(), attributes={"twice": True})
    np.testing.assert_array_equal(b[...], DATA * 2)
    # Blocks of (40, 30): 2 by 2 chunks each. Those of x would share them.
    c = gzarr.create_array(place(), DATA.shape, "i4", chunks=(8, 9), shards=(40, 45), device="cpu")
    with pytest.raises(gzarr.ArgumentError, match="meet at 20 in dimension 0"):
        gzarr.store(x, c)
    gzarr.store(x, c, rechunk=True)
    np.testing.assert_array_equal(c[...], DATA)
    gzarr.store(x[:40, :45] + 1, c, region=np.s_[80:, 45:], rechunk=True)
    np.testing.assert_array_equal(c[80:, 45:], DATA[:40, :45] + 1)
    np.testing.assert_array_equal(c[:, :45], DATA[:, :45])


def test_arrays_are_shared_by_their_tokens(client: Client, place: Callable[[], Any]) -> None:
    store = place()
    a = gzarr.create_array(store, data=DATA, chunks=(60, 90), device="cpu")
    kept = client.persist(a.to_dask({}))
    again = gzarr.open_array(store, mode="r+", device="cpu")
    assert again.to_dask({}).name == kept.name
    again[3, 4] = 12345
    assert again.to_dask({}).name != kept.name
    assert int(again.to_dask({})[3, 4].compute()) == 12345


def test_zarr_python_reads_what_workers_wrote(client: Client, tmp_path: Path) -> None:
    x = da.from_array(DATA, chunks=(40, 45))
    gzarr.from_dask(x, tmp_path / "a", shards="auto")
    np.testing.assert_array_equal(np.asarray(zarr.open_array(tmp_path / "a", mode="r")[...]), DATA)


def test_locks_between_workers(client: Client, tmp_path: Path) -> None:
    a = gzarr.create_array(tmp_path / "a", DATA.shape, "i4", chunks=(120, 90), device="cpu")
    # All blocks are in one chunk, so without locks most would be lost.
    gzarr.store(da.from_array(DATA, chunks=(10, 90)), a, lock=True)
    np.testing.assert_array_equal(a[...], DATA)


def test_a_worker_killed_while_it_writes(client: Client, tmp_path: Path) -> None:
    marker = tmp_path / "killed"
    store = DyingStore(tmp_path / "a", "c/4/3", marker)
    a = gzarr.create_array(store, DATA.shape, "i4", chunks=(10, 15), device="cpu")
    # Chunk (4, 3) is one of twelve of its block.
    gzarr.store(da.from_array(DATA, chunks=(40, 45)), a)
    assert int(marker.read_text()) != os.getpid()
    np.testing.assert_array_equal(np.asarray(zarr.open_array(tmp_path / "a", mode="r")[...]), DATA)


def test_errors_of_workers_arrive(client: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    a = gzarr.create_array(tmp_path / "a", data=DATA, chunks=(20, 15), device="cpu")
    (tmp_path / "a/c/1/2").write_bytes(b"broken")
    with pytest.raises(gzarr.ChunkDecodeError, match="c/1/2"):
        a.to_dask({}).compute()
    with pytest.raises(gzarr.ArgumentError, match="memory of this process"):
        gzarr.store(da.from_array(DATA), gzarr.create_array({}, DATA.shape, "i4", device="cpu"))
    # It is known before distributed tries to send the graph, which logs pages of tracebacks.
    assert not [record for record in caplog.records if record.name.startswith("distributed.protocol")]


# -- copies


@pytest.mark.parametrize("changes", [{}, {"chunks": 16, "codecs": "auto"}], ids=["as it is", "other chunks"])
@pytest.mark.parametrize("place", ["directory", "s3"], indirect=True)
def test_copies(client: Client, place: Callable[[], Any], changes: dict[str, Any], tmp_path: Path) -> None:
    group = gzarr.create_group(tmp_path / "g", attributes={"a": 1})
    group.create_array("x/y", data=DATA, chunks=(20, 15), fill_value=3)
    group["z"] = DATA[0]
    dest = place()
    copied = gzarr.copy(group, dest, client=client, budget_bytes=1 << 14, read_back=True, **changes)
    assert copied.attrs["a"] == 1
    np.testing.assert_array_equal(copied["x/y"][...], DATA)
    np.testing.assert_array_equal(copied["z"][...], DATA[0])
    assert copied["x/y"].fill_value == 3
    # Some chunks are gone, and one is another: resuming repairs them.
    dest.erase("x/y/c/0/0")
    gzarr.open_array(dest, path="x/y", mode="r+", device="cpu")[119, 89] += 1
    again = gzarr.copy(group, dest, client=client, budget_bytes=1 << 14, resume=True, **changes)
    np.testing.assert_array_equal(again["x/y"][...], DATA)


def test_a_worker_killed_while_it_copies(client: Client, tmp_path: Path) -> None:
    gzarr.create_array(tmp_path / "a", data=DATA, chunks=(20, 15), device="cpu")
    marker = tmp_path / "killed"
    gzarr.copy(tmp_path / "a", DyingStore(tmp_path / "b", "c/3/3", marker), client=client, chunks=(30, 9))
    assert int(marker.read_text()) != os.getpid()
    np.testing.assert_array_equal(np.asarray(zarr.open_array(tmp_path / "b", mode="r")[...]), DATA)


def test_failed_copies_have_no_documents(client: Client, tmp_path: Path) -> None:
    gzarr.create_array(tmp_path / "a", data=DATA, chunks=(20, 15), device="cpu")
    (tmp_path / "a/c/1/2").write_bytes(b"broken")
    with pytest.raises(gzarr.ChunkDecodeError, match="c/1/2"):
        gzarr.copy(tmp_path / "a", tmp_path / "b", client=client, chunks=(30, 9))
    with pytest.raises(gzarr.NodeNotFoundError):
        gzarr.open_array(tmp_path / "b")


def test_any_executor_copies(tmp_path: Path) -> None:
    gzarr.create_array(tmp_path / "a", data=DATA, chunks=(20, 15), device="cpu")
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        copied = gzarr.copy(tmp_path / "a", tmp_path / "b", client=pool, chunks=(30, 9))
    np.testing.assert_array_equal(copied[...], DATA)
    with ThreadPoolExecutor(2) as threads:
        for source, dest in ((tmp_path / "a", {}), ({**_in_memory()}, tmp_path / "c")):
            with pytest.raises(gzarr.ArgumentError, match="memory of this process"):
                gzarr.copy(source, dest, client=threads)
    with pytest.raises(gzarr.ArgumentError, match=r"distributed\.Client or"):
        gzarr.copy(tmp_path / "a", tmp_path / "d", client="tcp://127.0.0.1:1")


# -- blocks


def test_blocks_in_other_processes(client: Client, tmp_path: Path) -> None:
    source = gzarr.create_array(tmp_path / "a", data=DATA, chunks=(20, 15), device="cpu")
    marker, out = tmp_path / "killed", tmp_path / "b"
    gzarr.create_array(out, shape=DATA.shape, dtype="i4", chunks=(30, 9))
    dying = gzarr.open_array(DyingStore(out, "c/3/3", marker), mode="r+", device="cpu")
    found, total = gzarr.map_blocks(
        lambda x: (scipy.ndimage.maximum_filter(x, 5), x[2:-2, 2:-2].sum()),
        source,
        out=dying,
        halo=2,
        block=(30, 9),
        client=client,
        reduce=lambda a, b: a + b,
    )
    assert int(marker.read_text()) != os.getpid()
    np.testing.assert_array_equal(found[...], scipy.ndimage.maximum_filter(DATA, 5))
    assert total == DATA.sum()


def test_blocks_whose_results_decide_the_data_type(client: Client, tmp_path: Path) -> None:
    source = gzarr.create_array(tmp_path / "a", data=DATA, chunks=(20, 15), device="cpu")
    out = gzarr.map_blocks(lambda x: x / 4, source, out=tmp_path / "b", block=(20, 15), client=client)
    assert out.dtype == np.float64
    np.testing.assert_array_equal(out[...], DATA / 4)


def test_any_executor_works_on_blocks(tmp_path: Path) -> None:
    source = gzarr.create_array(tmp_path / "a", data=DATA, chunks=(20, 15), device="cpu")
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        found = gzarr.map_blocks(np.negative, source, out=tmp_path / "b", block=(20, 15), client=pool)
        with pytest.raises(ZeroDivisionError) as caught:
            gzarr.map_blocks(lambda x: 1 / 0, source, out=tmp_path / "c", block=(20, 15), client=pool)
    assert "block (" in "".join(caught.value.__notes__)
    np.testing.assert_array_equal(found[...], -DATA)
    with ThreadPoolExecutor(2) as threads:
        with pytest.raises(gzarr.ArgumentError, match="memory of this process"):
            gzarr.map_blocks(np.negative, source, out=gzarr.create_array({}, DATA.shape, "i4"), client=threads)
        with pytest.raises(gzarr.ArgumentError, match="not in memory"):
            gzarr.map_blocks(np.negative, source, client=threads)
        lock = threading.Lock()
        with pytest.raises(gzarr.ArgumentError, match="cannot be given the work"):
            gzarr.map_blocks(lambda x: lock and x, source, out=tmp_path / "d", client=threads)
        # It is still usable.
        assert threads.submit(int, "5").result() == 5


def _in_memory() -> dict[str, bytes]:
    store: dict[str, bytes] = {}
    gzarr.save(store, DATA)
    return store


@pytest.mark.parametrize("command", ["copy", "optimize"])
def test_command_line(command: str, client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gzarr.create_array(tmp_path / "a", data=DATA, chunks=(20, 15), device="cpu")
    address = client.scheduler.address
    assert main([command, f"{tmp_path}/a", f"{tmp_path}/b", "--dask", address, "--read-back"]) == 0
    assert "1 array and 0 groups" in capsys.readouterr().out
    np.testing.assert_array_equal(np.asarray(zarr.open_array(tmp_path / "b", mode="r")[...]), DATA)
    ran = client.run(_copies_made)
    assert sum(ran.values()) > 0


def _copies_made() -> int:
    """Return how many copies this process has taken part in."""
    from gzarr.tools import processes

    return processes._unpickled.cache_info().currsize


def test_no_scheduler(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    gzarr.save(tmp_path / "a", DATA)
    import dask

    with dask.config.set({"distributed.comm.timeouts.connect": "1s"}):
        assert main(["copy", f"{tmp_path}/a", f"{tmp_path}/b", "--dask", "tcp://127.0.0.1:9"]) == 2
    assert "no scheduler of dask at 'tcp://127.0.0.1:9'" in capsys.readouterr().err
