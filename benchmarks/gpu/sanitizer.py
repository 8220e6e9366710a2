"""Every device kernel once under NVIDIA's compute-sanitizer: small arrays that are written and read on a GPU.

    python benchmarks/gpu sanitizer --seconds 60 --json sanitizer.json

It runs itself again below the program, ``memcheck`` first: accesses out of bounds and misaligned ones. Where the
program does not exist, the document says so, and nothing has failed.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib
import json
import os
import pkgutil
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import programs
from report import save

import gpu.facts
import gpu.steps
import gzarr

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gzarr.engines.cuda.device_protocol import Device

PROGRAM: Final = "compute-sanitizer"
#: Its tools, in order: accesses; races for shared memory.
TOOLS: Final = ("memcheck", "racecheck")
#: Exit code if it has found something.
FOUND: Final = 86
#: Time with less than which no tool begins.
LEAST_S: Final = 10.0
TAIL_LINES: Final = 60

_LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}
_BIG = {"name": "bytes", "configuration": {"endian": "big"}}
_ZSTD = {"name": "zstd", "configuration": {"level": 1, "checksum": False}}
_GZIP = {"name": "gzip", "configuration": {"level": 1}}
_CRC32C = {"name": "crc32c"}
_TURNED = {"name": "transpose", "configuration": {"order": [1, 0]}}


def _blosc(cname: str, shuffle: str, typesize: int) -> dict[str, Any]:
    settings = {"cname": cname, "clevel": 5, "shuffle": shuffle, "typesize": typesize, "blocksize": 0}
    return {"name": "blosc", "configuration": settings}


def _numcodecs(name: str, **configuration: Any) -> dict[str, Any]:
    return {"name": f"numcodecs.{name}", "configuration": configuration}


def _shards(*codecs: dict[str, Any]) -> dict[str, Any]:
    settings = {"chunk_shape": [16, 16], "codecs": list(codecs), "index_codecs": [_LITTLE, _CRC32C]}
    return {"name": "sharding_indexed", "configuration": {**settings, "index_location": "end"}}


#: By name: type of the elements, chunk shape, codecs. Together they take every kernel.
ARRAYS: Final[dict[str, tuple[str, tuple[int, int], list[dict[str, Any]]]]] = {
    "rows": ("u4", (32, 32), [_LITTLE]),
    "rows of zstd": ("u2", (32, 32), [_LITTLE, _ZSTD]),
    "planes": ("u4", (32, 32), [_LITTLE, _blosc("lz4", "shuffle", 4)]),
    "bits": ("u2", (32, 32), [_LITTLE, _blosc("zstd", "bitshuffle", 2)]),
    "turned": ("f8", (32, 32), [_TURNED, _BIG, _GZIP]),
    "shards": ("f4", (32, 32), [_shards(_LITTLE, _ZSTD, _CRC32C)]),
    "differences": ("i4", (32, 32), [_numcodecs("delta", dtype="<i4"), _LITTLE, _blosc("lz4", "shuffle", 4)]),
    "narrow differences": (
        "i4",
        (32, 32),
        [_numcodecs("delta", dtype="<i4"), _numcodecs("astype", encode_dtype="<i2", decode_dtype="<i4"), _LITTLE],
    ),
    "scaled": ("f4", (32, 32), [_numcodecs("fixedscaleoffset", offset=0, scale=8, dtype="<f4", astype="<i4"), _ZSTD]),
    "packed": ("bool", (32, 32), [{"name": "packbits"}, _ZSTD]),
    "shuffled": ("u4", (32, 32), [_LITTLE, _numcodecs("shuffle", elementsize=4), _ZSTD]),
}
SHAPE: Final = (70, 65)


def elements(dtype: str) -> np.ndarray[Any, Any]:
    """Return elements of a type, the same each time."""
    values = np.random.default_rng(1).integers(-2, 4, SHAPE).cumsum(axis=1)
    return (values % 2 == 0) if dtype == "bool" else np.abs(values).astype(dtype)


def kernels() -> list[str]:
    """Return the names of all device kernels."""
    import gzarr_kernels.device as folder
    from gzarr_kernels.device import target

    # In Numba's simulator, a kernel is another object.
    kind = type(importlib.import_module("gzarr_kernels.device.copies").copy_frames)
    names = set()
    for module in pkgutil.iter_modules(folder.__path__):
        if module.name not in ("build", "compiler"):
            for value in vars(importlib.import_module(f"{folder.__name__}.{module.name}")).values():
                if isinstance(value, (target.Kernel, kind)) and hasattr(value, "py_func"):
                    names.add(value.py_func.__name__)
    return sorted(names)


@contextlib.contextmanager
def launched(device: Device) -> Iterator[dict[str, int]]:
    """Count the launches of each kernel on a device."""
    counts: dict[str, int] = {}
    launch = device.launch

    def counted(kernel: Any, *arguments: Any, **more: Any) -> None:
        name = getattr(kernel, "py_func", kernel).__name__
        counts[name] = counts.get(name, 0) + 1
        launch(kernel, *arguments, **more)

    device.launch = counted  # type: ignore[method-assign]
    try:
        yield counts
    finally:
        del device.launch


def use(device: Device, folder: Path) -> dict[str, Any]:
    """Write and read every array on a device; return the launches of each kernel, those without one, and errors."""
    errors: dict[str, str] = {}
    with device, launched(device) as counts:
        stream = device.current_stream()
        for name, (dtype, chunks, codecs) in ARRAYS.items():
            try:
                _use(device, folder / name, dtype, chunks, codecs)
            except Exception as error:  # the other kernels may be right
                errors[name] = gpu.steps.sentence(error)
        for name, used in (("matrix", _use_matrix), ("poses", _use_poses)):
            try:
                used(device, folder / name)
            except Exception as error:
                errors[name] = gpu.steps.sentence(error)
        stream.synchronize()
    return {"launches": counts, "not launched": [k for k in kernels() if k not in counts], "errors": errors}


def _use(device: Device, path: Path, dtype: str, chunks: tuple[int, int], codecs: Sequence[dict[str, Any]]) -> None:
    values = elements(dtype)
    gzarr.create_array(path, shape=SHAPE, dtype=dtype, chunks=chunks, codecs=codecs, device="cpu")[...] = values
    array = gzarr.open_array(path, mode="r+", device=device.name)
    stream = device.current_stream()
    for turn in range(2):
        for selection in (..., (slice(3, None), slice(None, None, -2))):
            found = device.to_host(array.read(selection, decode="cuda"), stream)
            if not np.array_equal(found, values[selection]):
                raise AssertionError(f"WRONG RESULT, {'as written on the device' if turn else 'as written on the CPU'}")
        if not turn:
            array.write(..., array.read(decode="cuda"))


def _use_matrix(device: Device, path: Path) -> None:
    """Read rows and columns of a sparse matrix, in three types of values."""
    values = np.where(elements("u4") % 3 == 0, elements("u4") + 1, 0)
    rows, columns = np.nonzero(values)
    for number, dtype in enumerate(("u1", "f4", "f8")):
        group = gzarr.create_group(path / str(number), attributes={"encoding-type": "csr_matrix", "shape": list(SHAPE)})
        group.create_array("data", data=values[rows, columns].astype(dtype), chunks=500)
        group.create_array("indices", data=columns.astype("i4"), chunks=500)
        group.create_array("indptr", data=np.concatenate([[0], np.count_nonzero(values, axis=1).cumsum()]))
        matrix = gzarr.sparse.open(path / str(number), device=device.name)
        stream = device.current_stream()
        some = [60, 3, 3, 17], [64, 0, 7]
        for chosen, expected in ((some, values[np.ix_(*some)]), ((None, None), values)):
            if not np.array_equal(device.to_host(matrix.to_dense(*chosen), stream), expected.astype(dtype)):
                raise AssertionError(f"WRONG RESULT of a matrix of {dtype}")
        matrix.read_parts(*some)
        if np.dtype(dtype).kind == "f":
            scaled = device.to_host(matrix.dense(normalize=100, log1p=True)[:], stream)
            totals = values.sum(axis=1, keepdims=True)
            if not np.allclose(scaled, np.log1p(100 * values / np.maximum(totals, 1)), rtol=1e-5):
                raise AssertionError(f"WRONG RESULT of a scaled matrix of {dtype}")


def _use_poses(device: Device, path: Path) -> None:
    """Read boxes in a pose, of which some lie beyond the ends."""
    for dtype in ("u2", "f4"):
        values = elements(dtype)
        gzarr.create_array(path / dtype, data=values, chunks=(32, 32), device="cpu")
        array = gzarr.open_array(path / dtype, device=device.name)
        for interpolation in ("nearest", "linear", "cubic"):
            way: dict[str, Any] = {"centre": (9, 30), "shape": (40, 41), "interpolation": interpolation}
            pose = [[0.8, 0.6], [-0.6, 0.8]]
            found = device.to_host(gzarr.read_affine(array, pose, **way), device.current_stream())
            if not np.array_equal(found, gzarr.read_affine(values, pose, device="cpu", **way)):
                raise AssertionError(f"WRONG RESULT of a box in a pose, {interpolation}, of {dtype}")


def program(environment: Sequence[str] = (os.environ.get("CUDA_HOME", ""), str(gpu.facts.CUDA_HOME))) -> str | None:
    """Return the path of compute-sanitizer, or None."""
    folders = [os.environ.get("PATH", ""), *(f"{home}/bin" for home in environment if home)]
    return shutil.which(PROGRAM, path=os.pathsep.join(folders))


def checked(path: str, tool: str, seconds: float) -> dict[str, Any]:
    """Run one tool over everything; return its outcome."""
    with tempfile.TemporaryDirectory(prefix="gzarr-sanitizer-") as folder:
        said = Path(folder) / "said.json"
        command = [path, "--tool", tool, "--error-exitcode", str(FOUND), "--print-limit", "20"]
        command += [*programs.command("gpu", "sanitizer"), "--use", str(said)]
        start = time.monotonic()
        try:
            done = subprocess.run(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds, check=False
            )
            code, text = done.returncode, done.stdout
        except subprocess.TimeoutExpired as late:
            code = -1
            text = (
                (late.stdout or b"").decode(errors="replace") if isinstance(late.stdout, bytes) else late.stdout or ""
            )
        use_of = json.loads(said.read_text()) if said.exists() else None
    outcome = {0: "nothing found", FOUND: "found something", -1: f"ended after {seconds:.0f} s"}
    return {
        "outcome": outcome.get(code, f"exit code {code}"),
        "seconds": round(time.monotonic() - start, 1),
        "use": use_of,
        "output": text.splitlines()[-TAIL_LINES:],
    }


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--seconds", type=float, default=120.0, help="time limit (default 120)")
    found.add_argument("--json", type=Path, metavar="FILE")
    found.add_argument("--use", type=Path, metavar="FILE", help=argparse.SUPPRESS)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Run every tool; return 1 if one has found something, or could not run."""
    arguments = parser().parse_args(argv)
    if arguments.use is not None:
        with tempfile.TemporaryDirectory(prefix="gzarr-sanitizer-") as folder:
            used = use(gpu.steps.device(), Path(folder))
        arguments.use.write_text(json.dumps(used))
        return int(bool(used["errors"]))
    deadline = time.monotonic() + arguments.seconds
    document: dict[str, Any] = {
        "command": shlex.join(["python", "benchmarks/gpu", "sanitizer", *(sys.argv[1:] if argv is None else argv)]),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "program": program(),
        "tools": {},
    }

    def keep() -> None:
        save(arguments.json, document)

    if document["program"] is None:
        document["not run"] = f"there is no {PROGRAM} here"
        print(document["not run"])
        keep()
        return 0
    for tool in TOOLS:
        left = deadline - time.monotonic()
        if left < LEAST_S:
            document["tools"][tool] = {"outcome": "left out: no time left"}
        else:
            document["tools"][tool] = checked(document["program"], tool, left)
        print(f"{tool}: {document['tools'][tool]['outcome']}")
        keep()
    right = ("nothing found", "left out: no time left")
    return int(any(one["outcome"] not in right for one in document["tools"].values()))


if __name__ == "__main__":
    sys.exit(main())
