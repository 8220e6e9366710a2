"""What a ``__del__`` does when no other thread can run any more: it ends at once, and remote stores refuse."""

from __future__ import annotations

import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

START = """
import sys, time, gzarr
url, path = sys.argv[1:]
works = {}
class Last:
    refused, clock = gzarr.GzarrError, time.monotonic
    def __init__(self, works):
        self.works = works
    def __del__(self):
        for name, work in self.works.items():
            begin = self.clock()
            try:
                found = work()
            except self.refused as error:
                found = "refused" if "while the interpreter shuts down" in str(error) else error
            late = " late" if self.clock() - begin > 8 else ""
            print(f"{name}: {found}{late}", flush=True)
"""
LOCAL = """
a = gzarr.open_array(path, device="cpu")
b = gzarr.create_array(path + "w", shape=40, dtype="i4", chunks=5)
b[:] = 1
rows = gzarr.Loader(a, gzarr.loader.Rows(), batch_size=10)
works["read"] = lambda: int(a[...].sum())
works["write"] = lambda: (b.__setitem__(slice(3, 25), 2), int(b[...].sum()))[1]
works["loader"] = lambda: sum(1 for _ in rows)
works["blocks"] = lambda: int(gzarr.map_blocks(lambda x: x, a, out={}, block=10)[...].sum())
"""
REMOTE = """
a = gzarr.open(store, device="cpu")
a[0, 0]
works["all"] = lambda: a[...]
"""
HTTP = """
rows = gzarr.Loader(a, gzarr.loader.Rows(), batch_size=10)
works["element"] = lambda: a[3, 4]
works["loader"] = lambda: list(rows)
works["open"] = lambda: gzarr.open(store)
"""
REFUSED: dict[str, Any] = dict.fromkeys(("all", "element", "loader", "open"), "refused")
#: Imports what the work needs, which is too late at the end.
WARM = "\nfor work in works.values(): work()"
PROGRAMS: dict[str, tuple[str, dict[str, Any]]] = {
    "local files": (LOCAL + WARM, {"read": 1000, "write": 62, "loader": 10, "blocks": 1000}),
    "http": ("store = url" + REMOTE + HTTP + WARM, REFUSED),
    "fsspec": (
        "import fsspec\nstore = gzarr.FsspecStore(fsspec.filesystem('http'), url)" + REMOTE,
        {"all": "refused"},
    ),
    "cache": ("store = gzarr.CachedStore(url, path + 'c', 10**6)" + REMOTE, {"all": "refused"}),
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    folder = tmp_path_factory.mktemp("served")
    gzarr.create_array(folder / "x", data=np.ones((100, 10), "u2"), chunks=(10, 10))
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/x", folder
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("name", PROGRAMS)
def test_work_of_a_finalizer(name: str, served: tuple[str, Path], tmp_path: Path) -> None:
    url, folder = served
    program, expected = PROGRAMS[name]
    (tmp_path / "x").symlink_to(folder / "x")
    command = [sys.executable, "-c", f"{START}\n{program}\nlast = Last(works)", url, str(tmp_path / "x")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:-1] == [f"{work}: {found}" for work, found in expected.items()]
