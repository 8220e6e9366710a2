"""The example in docs/ray.md runs as it stands, on a Ray of this machine, and tasks take arrays."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

import gzarr

PAGE = Path(__file__).parents[2] / "docs" / "ray.md"

PROGRAM = """
import sys

import gzarr
import numpy as np
import ray

folder, place, code = sys.argv[1:]
ray.init(
    address="local",
    num_cpus=2,
    include_dashboard=False,
    object_store_memory=256 << 20,
    log_to_driver=False,
    _node_ip_address="127.0.0.1",
    _temp_dir=folder,
)
try:
    seen = []
    exec(compile(code, "ray.md", "exec"), {"train": seen.append})
    rows = np.concatenate(seen)
    array = gzarr.open_array(place)
    rows = rows[np.argsort(rows[:, 0, 0])]
    assert rows.dtype == array.dtype
    assert np.array_equal(rows, array[:])
    assert len(seen) > 1
    total = ray.remote(lambda given: int(given[10:20].sum()))
    assert ray.get(total.remote(array)) == array[10:20].sum()
finally:
    ray.shutdown()
print("done")
"""


@pytest.mark.slow  # Ray takes 20 s to start.
@pytest.mark.timeout(300)
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="Ray is installed on one Python only")
def test_the_example_of_the_page(tmp_path: Path) -> None:
    import psutil

    place = str(tmp_path / "images.zarr")
    gzarr.create_array(place, data=np.arange(600 * 16, dtype="u2").reshape(600, 4, 4), chunks=(50, 4, 4))
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert code.count("s3://bucket/images.zarr") == 1
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment |= {
        # Tells nobody, and kills no task of a machine that is busy with other tests.
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_memory_monitor_refresh_ms": "0",
        "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
    }
    # Ray's sockets are in this folder, and their names may not be long.
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder:
        arguments = [folder, place, code.replace("s3://bucket/images.zarr", place)]
        # If it is killed, so are the processes that it has started.
        result = subprocess.run(
            [sys.executable, "-c", PROGRAM, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert result.returncode == 0, result.stderr[-3000:]
        assert result.stdout.endswith("done\n")
        commands = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
        assert not [command for command in commands if any(folder in word for word in command)]
