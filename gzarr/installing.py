"""The commands that messages name to install what is missing. They are here only, and ``ci/newcomer`` runs them all.

``gzarr[NAME]`` works however gzarr was installed, from an index, the file of a wheel or a checkout: pip finds that
gzarr is there, and adds what the extra lists.
"""

from __future__ import annotations

from typing import Final

_EXTRAS: Final = (
    "completion", "cuda12", "cuda13", "dask", "fsspec", "imagecodecs", "jit", "ml-dtypes", "msgpack", "object",
    "pcodec", "sparse", "torch", "xarray", "zfp",
)  # fmt: skip

#: Commands by what they install: an extra of gzarr, or something else.
COMMANDS: Final[dict[str, str]] = {
    **{name: f"pip install 'gzarr[{name}]'" for name in _EXTRAS},
    "boto3": "pip install boto3",
    "cusparse-cu12": "pip install nvidia-cusparse-cu12",
    "cusparse-cu13": "pip install nvidia-cusparse",
    "decoders": "pip install --force-reinstall numcodecs blosc2 deflate google-crc32c",
    "distributed": "pip install 'dask[distributed]'",
    "google-crc32c": "pip install google-crc32c",
    "jax": "pip install jax",
    "kvikio-cu12": "pip install kvikio-cu12",
    "kvikio-cu13": "pip install kvikio-cu13",
    "newer nvcomp-cu12": "pip install --upgrade nvidia-libnvcomp-cu12",
    "newer nvcomp-cu13": "pip install --upgrade nvidia-libnvcomp-cu13",
    "newer zarr": "pip install --upgrade zarr",
    "numba-cuda-cu12": "pip install 'numba-cuda[cu12]'",
    "numba-cuda-cu13": "pip install 'numba-cuda[cu13]'",
    "pandas": "pip install pandas",
    "zarr": "pip install zarr",
}
