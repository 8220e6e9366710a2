"""Where names of files are not in UTF-8, nodes may have any names but in directories."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import sys
import gzarr

if sys.getfilesystemencoding() == "utf-8":
    print("UTF-8")
    raise SystemExit

for store in (gzarr.MemoryStore(), sys.argv[1] + "/x.zip"):
    g = gzarr.create_group(store)
    a = g.create_array("\\u6f22/b", data=[1, 2, 3], chunks=(2,))
    a[1] = 7
    a.append([8])
    a.attrs["x"] = 1
    assert list(g) == ["\\u6f22"]
    assert gzarr.open_array(store, path="\\u6f22/b")[...].tolist() == [1, 7, 3, 8]
g = gzarr.create_group({})
g.create_array("a", data=[1])
g.move("a", "\\u6f22")
gzarr.consolidate_metadata(g.store)
assert g["\\u6f22"][0] == 1
del g["\\u6f22"]

folder = sys.argv[1] + "/x"
g = gzarr.create_group(folder)
g.create_array("a", data=[1])
source = {}
gzarr.create_group(source).create_array("\\u6f22", data=[1])
for refused in (
    lambda: g.create_array("\\u6f22", data=[1]),
    lambda: g.create_array("\\u6f22", shape=(1,), dtype="i4"),
    lambda: g.create_group("\\u6f22"),
    lambda: g["\\u6f22"],
    lambda: g.move("a", "\\u6f22"),
    lambda: g.store.get("\\u6f22"),
    lambda: g.store.set("\\u6f22", b""),
    lambda: g.store.versions(["\\u6f22"]),
    lambda: g.store.list_prefix("\\u6f22/"),
    lambda: gzarr.copy(source, sys.argv[1] + "/copy", progress=False),
    lambda: gzarr.open_array(folder + "/\\u6f22"),
    lambda: gzarr.create_array(folder + "/\\u6f22.zip", data=[1]),
):
    try:
        refused()
    except gzarr.ArgumentError as error:
        assert "encoded as ASCII" in str(error) and "PYTHONUTF8=1" in str(error), ascii(str(error))
    else:
        raise AssertionError("nothing was refused")
assert list(gzarr.open_group(folder)) == ["a"]
print("done")
"""


def test_names_in_a_locale_without_them(tmp_path: object) -> None:
    env = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.stdout == "UTF-8\n":
        pytest.skip("names of files are in UTF-8 in every locale here")
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr
