"""First read and first write of a fresh installation, without any cache: ``python fresh.py WHEEL``.

For a wheel with compiled kernels: each at most 0.5 s after ``import gzarr`` in the best of three new processes, and no
compiler is imported.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

LIMIT_MS = 500
WRITE = """
import sys, time
import numpy as np
import gzarr
values = np.arange(1 << 20, dtype="u2").reshape(1024, 1024)
began = time.perf_counter()
gzarr.create_array(sys.argv[1], shape=values.shape, chunks=(256, 256), dtype="u2")[...] = values
print(1e3 * (time.perf_counter() - began), bool({"numba", "llvmlite"} & set(sys.modules)))
"""
READ = """
import sys, time
import gzarr
began = time.perf_counter()
values = gzarr.open(sys.argv[1])[...]
print(1e3 * (time.perf_counter() - began), bool({"numba", "llvmlite"} & set(sys.modules)))
assert values[1, 2] == 1026 and values[-1, -1] == 65535
"""

# What a read on a GPU loads before it needs the GPU.
DEVICE = """
import sys
from gzarr.engines.cuda import devices, engine, machine_code, wave, write_wave
from gzarr_kernels.device import assemble, rows
for kernel in (rows.place_rows, rows.place_planes, assemble.assemble):
    assert b".target sm_80" in machine_code.load(kernel, 4, (9, 0)).image
assert not {"numba", "llvmlite", "numba_cuda"} & set(sys.modules)
"""


def main() -> int:
    """Measure, print and judge."""
    compiled = "-none-any" not in sys.argv[1]
    failed = False
    if compiled:
        done = subprocess.run([sys.executable, "-c", DEVICE], capture_output=True, text=True, check=False)
        print(f"device kernels: {done.stderr or 'PTX, without numba-cuda'}")
        failed |= bool(done.returncode)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "a.zarr")
        for name, code in (("write", WRITE), ("read", READ)):
            times, compiler, said = [], False, ""
            for attempt in range(3 if compiled else 1):
                command = [sys.executable, "-c", code, f"{path}-{attempt}"]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode:
                    print(done.stderr)
                    return 1
                times.append(float(done.stdout.split()[0]))
                compiler |= done.stdout.split()[1] == "True"
                said += done.stderr
            shown = ", ".join(f"{elapsed_ms:.0f}" for elapsed_ms in times)
            print(f"first {name}: {shown} ms after `import gzarr`; a compiler was imported: {compiler}")
            sys.stdout.write(said)
            # The machine may be busy.
            failed |= compiled and (min(times) > LIMIT_MS or compiler or bool(said))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
