"""Check what is in the files of a release: ``distribution_files.py FILE...``, wheels and a source distribution."""

from __future__ import annotations

import re
import sys
import tarfile
import zipfile
from email import message_from_string
from pathlib import Path

#: Largest size in bytes.
LIMITS = {".whl": 5_000_000, ".gz": 5_000_000}
#: A wheel has nothing else at its top.
PACKAGES = {"gzarr", "gzarr_kernels"}
#: Of a wheel, beside the modules.
NEEDED = ("gzarr/__init__.py", "gzarr/py.typed", "gzarr_kernels/py.typed")
#: Of a source distribution: what builds and tests it.
SOURCES = (
    "PKG-INFO", "pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff",
    "ci/project.py",
    "gzarr/__init__.py", "kernels/gzarr_kernels/__init__.py", "tests/conftest.py", "ci/test",
)  # fmt: skip
UNWANTED = re.compile(
    r"(^|/)(\.venv|\.servers|\.git/|__pycache__|\.pytest_cache|\.mypy_cache|dist/|\.newcomer)|\.py[co]$|\.nb[ic]$"
)
ENTRY_POINTS = ("[console_scripts]", "[xarray.backends]", "[zarr.codec_pipeline]")
FIELDS = (
    "Name",
    "Version",
    "Summary",
    "Requires-Python",
    "License-Expression",
    "License-File",
    "Description-Content-Type",
)


def of_wheel(path: Path) -> list[str]:
    """Return what is wrong with a wheel."""
    wrong = []
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        info = next(name.partition("/")[0] for name in names if ".dist-info/" in name)
        tops = {name.partition("/")[0] for name in names}
        if tops != PACKAGES | {info}:
            wrong.append(f"it has {sorted(tops)} at its top")
        compiled = [name for name in names if "/compiled_kernels/" in name]
        if bool(compiled) == path.name.endswith("-none-any.whl"):
            wrong.append(f"it has {len(compiled)} files of compiled kernels")
        wrong += [f"it lacks {name}" for name in (*NEEDED, f"{info}/licenses/LICENSE") if name not in names]
        entries = wheel.read(f"{info}/entry_points.txt").decode()
        wrong += [f"it lacks the entry points {group}" for group in ENTRY_POINTS if group not in entries]
        wrong += of_metadata(wheel.read(f"{info}/METADATA").decode(), path)
    return wrong + of_names(names)


def of_sources(path: Path) -> list[str]:
    """Return what is wrong with a source distribution."""
    with tarfile.open(path) as archive:
        root = path.name.removesuffix(".tar.gz")
        members = archive.getmembers()
        names = [member.name.removeprefix(f"{root}/") for member in members]
        information = archive.extractfile(f"{root}/PKG-INFO")
        assert information is not None
        wrong = of_metadata(information.read().decode(), path)
    wrong += [f"it lacks {name}" for name in SOURCES if name not in names]
    wrong += [f"{member.name} is a link" for member in members if member.issym() or member.islnk()]
    return wrong + of_names(names)


def of_metadata(text: str, path: Path) -> list[str]:
    """Return what is wrong with the metadata."""
    metadata = message_from_string(text)
    wrong = [f"its metadata lack {field}" for field in FIELDS if not metadata[field]]
    wrong += [f"its description links to {link}" for link in relative_links(str(metadata.get_payload()))]
    if f"gzarr-{metadata['Version']}" not in path.name:
        wrong.append(f"its metadata say {metadata['Version']}")
    return wrong


def relative_links(text: str) -> list[str]:
    """Return links and pictures in Markdown that lead nowhere on a package index."""
    text = re.sub(r"(?ms)^ *(```|~~~).*?^ *\1 *$|`[^`\n]*`", "", text)
    links = re.findall(
        r"\]\(([^)\s]+)\)|<(?:a|img|source)\b[^>]*\b(?:href|src|srcset)=\"([^\"\s]+)\"|^\[[^\]]+\]: +(\S+)", text, re.M
    )
    return [link for link in map("".join, links) if not re.match(r"https?://|mailto:|#", link)]


def of_names(names: list[str]) -> list[str]:
    """Return what should not be in an archive."""
    return [f"it has {name}" for name in names if UNWANTED.search(name)]


def main() -> int:
    """Print sizes and what is wrong; return 1 if anything is."""
    failed = False
    for path in map(Path, sys.argv[1:]):
        wrong = of_wheel(path) if path.suffix == ".whl" else of_sources(path)
        nbytes, limit = path.stat().st_size, LIMITS[path.suffix]
        if nbytes > limit:
            wrong.append(f"it is larger than {limit:,} bytes")
        print(f"{path.name}: {nbytes:,} bytes")
        for what in wrong:
            print(f"error: {path.name}: {what}")
        failed |= bool(wrong)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
