"""C libraries that another package made global, with functions of the names that those of codecs have."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

#: Functions that codecs call in numcodecs' and zfpy's libraries, and functions that these call themselves.
_NAMES = {
    "ZSTD": ["decompress", "getFrameContentSize", "decompressDCtx", "freeDCtx", "decompress_usingDDict"],
    "blosc": ["decompress_ctx", "compress_ctx", "compress_context", "run_decompression_with_context"],
    "zfp": ["stream_open", "stream_maximum_size", "field_type", "type_size", "compress", "decompress"],
    "stream": ["open", "flush", "size"],
}
# Chunks of objects are decoded by codecs, in threads.
_USE = """
import gzarr
import numpy as np
words = ["one", "two", "three"] * 5000
for codec in ({"name": "zstd", "configuration": {"level": 3, "checksum": False}},
    {"name": "blosc", "configuration": {"cname": "zstd", "clevel": 3, "shuffle": "noshuffle", "blocksize": 0}}):
    array = gzarr.create_array({}, data=words, chunks=4000, dtype=str, compressors=[codec])
    assert array[...].tolist() == words
    # Numbers are by the compiled loop.
    numbers = np.linspace(0, 1, 5000, dtype="f4")
    array = gzarr.create_array({}, data=numbers, chunks=1000, compressors=[codec])
    assert np.array_equal(array[...], numbers)
zfp = {"name": "zfp", "configuration": {"mode": "reversible"}}
array = gzarr.create_array({}, data=numbers, chunks=1000, serializer=zfp, compressors=None)
assert np.array_equal(array[...], numbers)
"""
_PACKAGES = "import numcodecs.blosc, numcodecs.zstd, zfpy\n"


def _run(*parts: str) -> None:
    command = [sys.executable, "-X", "faulthandler", "-c", "".join(parts)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A statement that makes a library global all of whose functions end the process."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler to make another library")
    path = tmp_path_factory.mktemp("library") / "other.so"
    names = [f"{prefix}_{name}" for prefix, rest in _NAMES.items() for name in rest]
    code = "".join(f"void {name}(void) {{ __builtin_trap(); }}\n" for name in names)
    subprocess.run([compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", str(path)], input=code, text=True, check=True)
    return f"import ctypes\nctypes.CDLL({str(path)!r}, mode=ctypes.RTLD_GLOBAL)\n"


@pytest.mark.parametrize("order", ["before the packages", "after the packages", "before gzarr alone"])
def test_functions_of_a_global_library_are_not_called(other: str, order: str) -> None:
    parts = {"before the packages": (other, _PACKAGES), "after the packages": (_PACKAGES, other)}
    _run(*parts.get(order, (other,)), _USE)


def test_netcdf4_may_have_loaded_its_zstd_before(tmp_path: Path) -> None:
    written = f"""
import netCDF4
with netCDF4.Dataset("file://{tmp_path}/netcdf.zarr#mode=zarr,file", "w") as dataset:
    dataset.createDimension("t", 3)
    dataset.createVariable("w", "f4", ("t",), zlib=True)[:] = 1
"""
    used = """
encoded = numcodecs.zstd.compress(b"abc" * 100, 3)
assert numcodecs.zstd.decompress(encoded) == b"abc" * 100
import gzarr
assert gzarr.create_array({}, data=["a", "b"], dtype=str)[...].tolist() == ["a", "b"]
"""
    _run(written, "import numcodecs.zstd\n", used, _USE)
