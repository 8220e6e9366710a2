"""Look at an installation of gzarr, with its Python: ``installed.py sizes`` and ``installed.py extra NAME``.

``sizes`` prints the size on disk of each distribution in the environment and why it is there; one without a reason is
an error, and so is a base installation that is larger than it should be. ``extra`` uses what an extra is for, in an
environment that has no other.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from importlib.metadata import distributions
from pathlib import Path

#: Why the base installation has a distribution.
REASONS = {
    "blosc2": "decoders and encoders of Blosc 1 containers, and zlib-ng, as C functions",
    "deflate": "libdeflate: gzip, zlib and CRC-32, as C functions",
    "google-crc32c": "CRC-32C, as a C function",
    "gzarr": "its Python code and compiled kernels",
    "annotated-types": "of pydantic",
    "anyio": "of httpx",
    "h11": "of httpx",
    "h2": "of httpx",
    "hpack": "of httpx",
    "httpcore": "of httpx",
    "httpx": "of blosc2, for its remote arrays; not imported",
    "hyperframe": "of httpx",
    "pydantic": "of blosc2",
    "pydantic-core": "of pydantic",
    "threadpoolctl": "of blosc2",
    "typing-inspection": "of pydantic",
    "llvmlite": "of numba",
    "markdown-it-py": "of rich",
    "mdurl": "of rich",
    "msgpack": "of blosc2",
    "ndindex": "of blosc2",
    "numba": "compiles kernels where no wheel has them",
    "numcodecs": "Zstandard, LZ4 and Blosc as C functions, and every codec without a native operation",
    "numexpr": "of blosc2",
    "numpy": "arrays",
    "pygments": "of rich",
    "requests": "of blosc2",
    "certifi": "of requests",
    "charset-normalizer": "of requests",
    "idna": "of requests",
    "urllib3": "of requests",
    "rich": "tables and progress bars of the commands",
    "typing-extensions": "of numcodecs",
}
INSTALLER = {"pip", "setuptools", "wheel"}
#: Largest base installation on Linux, in MB, with what pip compiles. The last numcodecs for Python 3.11 is larger.
LIMIT_MB = 180 if sys.version_info < (3, 12) else 155


def sizes() -> int:
    """Print a table; return 1 if a distribution is there without a reason, or if all are too large."""
    found = {}
    for distribution in distributions():
        files = distribution.files or []
        nbytes = sum(Path(path).stat().st_size for path in map(distribution.locate_file, files) if Path(path).is_file())
        found[distribution.name.lower().replace("_", "-")] = (distribution.version, nbytes)
    found = {name: row for name, row in found.items() if name not in INSTALLER}
    for name, (version, nbytes) in sorted(found.items(), key=lambda item: -item[1][1]):
        print(f"{name:20} {version:>12} {nbytes / 1e6:8.1f} MB  {REASONS.get(name, 'NO REASON IS KNOWN')}")
    whole = sum(nbytes for _, nbytes in found.values()) / 1e6
    print(f"{'all':20} {'':12} {whole:8.1f} MB")
    too_large = sys.platform == "linux" and "numba" not in found and whole > LIMIT_MB
    if too_large:
        print(f"error: that is more than {LIMIT_MB} MB")
    return int(too_large or bool(set(found) - set(REASONS)))


def _array(folder: str) -> str:
    import numpy as np

    import gzarr

    path = f"{folder}/a.zarr"
    gzarr.create_array(path, data=np.arange(24, dtype="u2").reshape(4, 6), chunks=(2, 3), dimension_names=("y", "x"))
    return path


def _base(folder: str) -> None:
    """Without any extra, each of them is named by the error that asks for it."""
    import gzarr

    array = gzarr.open_array(_array(folder))
    assert array[1, 2] == 8
    zfp = {"name": "zfp", "configuration": {"mode": "reversible"}}
    png = {"id": "imagecodecs_png"}
    asked = {
        "dask": lambda: array.to_dask(),
        "torch": lambda: array.to_torch(),
        "xarray": lambda: gzarr.ome.create({}, array, axes="yx").to_xarray(),
        "object": lambda: gzarr.open("s3://bucket/key"),
        "fsspec": lambda: gzarr.open("simplecache::file:///data"),
        "ml-dtypes": lambda: gzarr.create_array({}, shape=3, dtype="bfloat16"),
        "pcodec": lambda: gzarr.create_array({}, shape=3, dtype="i4", codecs=[{"name": "numcodecs.pcodec"}]),
        "zfp": lambda: gzarr.create_array({}, shape=3, dtype="f4", codecs=[zfp]),
        "imagecodecs": lambda: gzarr.create_array({}, shape=3, dtype="u1", zarr_format=2, compressors=png),
    }
    for extra, ask in asked.items():
        said = ""
        try:
            ask()
        except gzarr.GzarrError as error:
            said = str(error)
        if f"'gzarr[{extra}]'" not in said:
            raise SystemExit(f"error: without the extra {extra}: {said or 'no error'}")
    names: dict[str, object] = {}
    exec("from gzarr import *", names)
    assert names["to_dask"]


def _dask(folder: str) -> None:
    import gzarr

    lazy = gzarr.open_array(_array(folder)).to_dask()
    gzarr.from_dask(lazy * 2, f"{folder}/b.zarr")
    assert gzarr.open_array(f"{folder}/b.zarr")[1, 2] == 16


def _xarray(folder: str) -> None:
    import numpy as np
    import xarray as xr

    import gzarr

    group = gzarr.create_group(f"{folder}/set.zarr")
    gzarr.create_array(
        f"{folder}/set.zarr", path="t", data=np.arange(6.0).reshape(2, 3), dimension_names=("y", "x"),
        attributes={"units": "K"},
    )  # fmt: skip
    assert group["t"].attrs["units"] == "K"
    gzarr.consolidate_metadata(f"{folder}/set.zarr")
    dataset = xr.open_dataset(f"{folder}/set.zarr", engine="gzarr")
    assert dataset.t.dims == ("y", "x")
    assert dataset.t.isel(y=1).values.tolist() == [3, 4, 5]


def _torch(folder: str) -> None:
    import torch

    import gzarr

    tensor = gzarr.open_array(_array(folder)).to_torch()
    assert tensor.dtype == torch.uint16
    assert tensor[1, 2].item() == 8


def _ome(folder: str) -> None:
    import numpy as np

    import gzarr

    values = np.arange(64, dtype="u2").reshape(8, 8)
    image = gzarr.ome.create(f"{folder}/i.ome.zarr", values, axes="yx", scale=(0.5, 0.5), units="micrometer", levels=2)
    field = image.to_xarray(level=0)
    assert field.sel(x=1.0, y=0.5).values == values[1, 2]


def _object(folder: str) -> None:
    import obstore.store

    import gzarr

    _array(folder)
    assert gzarr.open_array(obstore.store.LocalStore(f"{folder}/a.zarr"))[1, 2] == 8


def _curl(folder: str) -> None:
    import pycurl

    from gzarr.stores import curl_threads

    # libcurl is there, and new enough.
    assert pycurl.version
    assert curl_threads.available()


def _fsspec(folder: str) -> None:
    import fsspec

    import gzarr

    source = fsspec.filesystem("local")
    assert gzarr.open_array(gzarr.FsspecStore(source, _array(folder)))[1, 2] == 8
    assert gzarr.open_array(f"simplecache::file://{folder}/a.zarr")[1, 2] == 8


def _round_trip(dtype: str, **options: object) -> None:
    import numpy as np

    import gzarr

    store: dict[str, bytes] = {}
    array = gzarr.create_array(store, shape=(4,), dtype=dtype, **options)  # type: ignore[arg-type]
    array[...] = np.arange(4).astype(array.dtype)
    assert gzarr.open_array(store)[...].astype(int).tolist() == [0, 1, 2, 3]


def _ml_dtypes(folder: str) -> None:
    for dtype in ("bfloat16", "float8_e4m3fn", "int4"):
        _round_trip(dtype)


def _pcodec(folder: str) -> None:
    _round_trip("i4", codecs=[{"name": "numcodecs.pcodec"}])


def _zfp(folder: str) -> None:
    _round_trip("f4", codecs=[{"name": "zfp", "configuration": {"mode": "reversible"}}])


def _msgpack(folder: str) -> None:
    import gzarr

    store: dict[str, bytes] = {}
    gzarr.create_array(store, shape=2, dtype=object, zarr_format=2, filters=[{"id": "msgpack2"}])[...] = ["a", "b"]
    assert gzarr.open_array(store)[...].tolist() == ["a", "b"]


def _imagecodecs(folder: str) -> None:
    """Read: gzarr does not write by these codecs."""
    import imagecodecs
    import numpy as np

    import gzarr

    store: dict[str, bytes] = {}
    values = np.arange(12, dtype="u1").reshape(3, 4)
    gzarr.create_array(
        store, shape=(3, 4), dtype="u1", chunks=(3, 4), zarr_format=2, compressors={"id": "imagecodecs_png"}
    )
    store["0.0"] = bytes(imagecodecs.png_encode(values))
    assert np.array_equal(gzarr.open_array(store)[...], values)


def _cuda(folder: str) -> None:
    """Without a driver: the packages are imported, and the error names what is missing on the machine, not an extra."""
    import cupy
    from nvidia import libnvcomp  # noqa: F401

    import gzarr
    from gzarr.engines.cuda import engine, nvcomp  # noqa: F401

    assert cupy.__version__
    path, said = _array(folder), ""
    try:
        gzarr.open_array(path, device="cuda")[...]
    except gzarr.DeviceError as error:
        said = str(error)
    print(f"device='cuda': {said or 'works'}")
    if "not installed" in said:
        raise SystemExit("error: something is missing that the extra should bring")
    assert gzarr.open_array(path)[1, 2] == 8


def _all(folder: str) -> None:
    for name in ("dask", "xarray", "ome", "object", "fsspec", "ml-dtypes", "pcodec", "zfp", "msgpack", "imagecodecs"):
        with tempfile.TemporaryDirectory() as own:
            USES[name](own)


USES = {
    "base": _base,
    "dask": _dask,
    "xarray": _xarray,
    "torch": _torch,
    "ome": _ome,
    "object": _object,
    "curl": _curl,
    "fsspec": _fsspec,
    "ml-dtypes": _ml_dtypes,
    "pcodec": _pcodec,
    "zfp": _zfp,
    "msgpack": _msgpack,
    "imagecodecs": _imagecodecs,
    "cuda12": _cuda,
    "cuda13": _cuda,
    "all": _all,
}


def main() -> int:
    """Run the command."""
    if sys.argv[1] == "sizes":
        return sizes()
    warnings.simplefilter("error")
    with tempfile.TemporaryDirectory() as folder:
        USES[sys.argv[2]](folder)
    print(f"{sys.argv[2]}: works")
    return 0


if __name__ == "__main__":
    sys.exit(main())
