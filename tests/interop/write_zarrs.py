"""Write stores of versions 2 and 3 with zarrs, through zarr-python, for ``ci/interop zarrs``: ``SCRIPT DIRECTORY``.

The arrays are those of ``write_zarr_python_3.py`` that zarrs encodes and decodes itself.
"""

import sys
import tempfile
import warnings
from pathlib import Path

import zarr
import zarrs  # noqa: F401  registers its pipeline
from write_zarr_python_3 import cases_v2, cases_v3, write


def by_zarrs_alone(zarr_format, cases):
    """Yield the cases that zarrs does not leave to zarr-python."""
    for case in cases:
        with tempfile.TemporaryDirectory() as directory:
            try:
                write(directory, "store", zarr_format, [case])
            except Exception as error:
                print(f"v{zarr_format}/{case[0]}: {type(error).__name__}", file=sys.stderr)
            else:
                yield case


def main():
    """Write both hierarchies."""
    warnings.simplefilter("ignore")
    zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline", "codec_pipeline.strict": True})
    directory = Path(sys.argv[1])
    write(directory, "v2", 2, by_zarrs_alone(2, cases_v2()))
    write(directory, "v3", 3, by_zarrs_alone(3, cases_v3()))


if __name__ == "__main__":
    main()
