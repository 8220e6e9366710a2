"""Download and check the wheels that ``ci/gpu --wheels DIR`` installs on a machine without network.

There is one version of each. All requirements of gzarr and of the wheels must be among them, or on the machine already.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tomllib
import zipfile
from email.parser import BytesParser
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).resolve().parents[1]
MOST_MIB = 56.0

#: Wheels to download: nvCOMP's C library, gzarr's requirements, and packages that tests and the benchmark compare with.
PINS = (
    "nvidia-libnvcomp-cu13==6.0.0.12",
    "numcodecs==0.17.1",
    "blosc2==4.14.1",
    "deflate==0.9.0",
    "google-crc32c==1.9.0",
    "rich==15.0.0",
    "zarr==3.1.6",
    "zarrs==0.2.3",
    "dask==2026.8.0",
    "cramjam==2.14.0",
    "pcodec==1.1.0",
    "zfpy==1.0.1",
    "cast-value-rs==0.5.1",
    "pytest-timeout==2.4.0",
    # Their requirements.
    "click==8.5.1",
    "cloudpickle==3.1.2",
    "donfig==0.8.1.post1",
    "fsspec==2026.9.0",
    "locket==1.0.0",
    "markdown-it-py==4.3.0",
    "mdurl==0.1.2",
    "partd==1.4.2",
    "pyyaml==6.0.3",
    "toolz==1.2.0",
    "typing-extensions==4.16.0",
)
#: Packages of the machine, with the version if it matters: never downloaded.
PRESENT = {
    "cupy-cuda13x": "14.2.0",
    "hypothesis": None,
    "jax": None,
    "ml-dtypes": None,
    "numba": None,
    "numba-cuda": None,
    "numpy": "2.5.2",
    "packaging": None,
    "pygments": None,
    "pytest": None,
    "tensorstore": None,
    "torch": None,
}
#: gzarr loads the shared library of blosc2's wheel, and imports nothing of it.
REQUIRES_NOTHING = {"blosc2"}

PYTHON = "3.12"
PLATFORMS = tuple(f"manylinux{name}_x86_64" for name in ("_2_28", "_2_27", "_2_24", "_2_17", "2014", "1"))
_MARKERS = {
    "python_version": PYTHON,
    "python_full_version": f"{PYTHON}.0",
    "implementation_name": "cpython",
    "platform_python_implementation": "CPython",
    "sys_platform": "linux",
    "platform_system": "Linux",
    "platform_machine": "x86_64",
    "os_name": "posix",
}


class WheelsError(Exception):
    """The content of the folder is wrong."""


def download(folder: Path, pins: Sequence[str] = PINS) -> None:
    """Download the pinned wheels, for the machine's Python and platform."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
    command += ["--no-deps", "--only-binary=:all:", "--python-version", PYTHON, "--implementation", "cp"]
    command += [word for platform in PLATFORMS for word in ("--platform", platform)]
    if subprocess.run([*command, "--dest", str(folder), *pins], check=False).returncode:
        raise WheelsError("pip could not download them: see above")


def check(folder: Path, pins: Sequence[str] = PINS, present: Mapping[str, str | None] = PRESENT) -> str:
    """Return a line for each wheel, the largest first, and their total size.

    Parameters
    ----------
    folder
        Folder of the wheels.
    pins, present
        Required wheels, and packages on the machine.

    Raises
    ------
    WheelsError
        If a wheel is missing or superfluous, a requirement is not met, or the total exceeds :data:`MOST_MIB`.
    """
    pinned = {canonicalize_name(r.name): str(r.specifier).removeprefix("==") for r in map(Requirement, pins)}
    gathered: dict[str, str] = {}
    required = {"gzarr": [Requirement(text) for text in _of_gzarr()]}
    sizes: dict[str, int] = {}
    for wheel in sorted(folder.glob("*.whl")):
        name, version, requirements = _metadata(wheel)
        if name in gathered or pinned.get(name) != version:
            wanted = f"of {name}, {pinned[name]} is wanted" if name in pinned else f"{name} is not wanted"
            raise WheelsError(f"{wheel}: {wanted}, once; remove it")
        gathered[name], sizes[wheel.name] = version, wheel.stat().st_size
        required[name] = [] if name in REQUIRES_NOTHING else requirements
    if missing := sorted(pinned.keys() - gathered.keys()):
        raise WheelsError(f"{folder} has no wheel of {', '.join(missing)}")
    if lacking := _lacking(required, {**present, **gathered}):
        raise WheelsError("neither gathered nor on the machine:\n  " + "\n  ".join(lacking))
    total = sum(sizes.values()) / 2**20
    lines = [f"{size / 2**20:6.1f} MiB  {name}" for name, size in sorted(sizes.items(), key=lambda item: -item[1])]
    text = "\n".join([*lines, f"{total:6.1f} MiB in {len(sizes)} wheels; at most {MOST_MIB:.0f}"])
    if total > MOST_MIB:
        raise WheelsError(f"{text}\ntoo large by {total - MOST_MIB:.1f} MiB")
    return text


def _of_gzarr() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements: list[str] = project["dependencies"]
    return requirements


def _metadata(wheel: Path) -> tuple[str, str, list[Requirement]]:
    """Return a wheel's name, version and requirements, from its metadata."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            (member,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
            document = BytesParser().parsebytes(archive.read(member), headersonly=True)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise WheelsError(f"{wheel} is not a wheel: {error}") from error
    requirements = [Requirement(text) for text in document.get_all("Requires-Dist", [])]
    return canonicalize_name(document["Name"]), document["Version"], requirements


def _lacking(required: Mapping[str, Sequence[Requirement]], there: Mapping[str, str | None]) -> list[str]:
    """Return messages on missing requirements, including those of requested extras."""
    lacking: list[str] = []
    queue = [(name, "") for name in required]
    seen = set(queue)
    while queue:
        by, extra = queue.pop()
        for requirement in required.get(by, ()):
            if requirement.marker is not None and not requirement.marker.evaluate({**_MARKERS, "extra": extra}):
                continue
            name = canonicalize_name(requirement.name)
            version = there.get(name)
            if name not in there:
                lacking.append(f"{name}, required by {by}")
            elif version is not None and not requirement.specifier.contains(Version(version), prereleases=True):
                lacking.append(f"{requirement}, required by {by}: there is {version}")
            for asked in requirement.extras:
                if (name, asked) not in seen:
                    seen.add((name, asked))
                    queue.append((name, asked))
    return sorted(set(lacking))


def main(argv: Sequence[str] | None = None) -> int:
    """Gather and check; return 1 if something is not right."""
    parser = argparse.ArgumentParser(prog="ci/gpu-wheels", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--check", action="store_true", help="download nothing")
    arguments = parser.parse_args(argv)
    try:
        if not arguments.check:
            download(arguments.folder)
        print(check(arguments.folder))
    except WheelsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
