"""Gather and check what ``ci/gpu check --wheels DIR`` needs on a machine without network: wheels, and kernels.

There is one version of each wheel. All requirements of gzarr and of the wheels must be among them, or on the machine
already. The kernels in ``DIR/kernels`` are compiled from this checkout. Everything that has to be brought to the
machine, this checkout included, must be small.
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

import gpu.kernels
from gpu.stages import KERNELS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).resolve().parents[2]
#: Most MiB of the wheels, the kernels and the files of the checkout together: transfers to such machines are limited.
MOST_MIB = 62.0

#: Wheels to download: nvCOMP's C library, gzarr's requirements, and packages that tests and the benchmark compare with.
PINS = (
    "nvidia-libnvcomp-cu13==6.0.0.12",
    "numcodecs==0.17.1",
    "blosc2==4.14.1",
    "deflate==0.9.0",
    "google-crc32c==1.9.0",
    "zarr==3.1.6",
    "dask==2026.8.0",
    "cramjam==2.14.0",
    "pcodec==1.1.0",
    "zfpy==1.0.1",
    "cast-value-rs==0.5.1",
    "kvikio-cu13==26.10.0",
    # Their requirements.
    "donfig==0.8.1.post1",
    "libkvikio-cu13==26.10.0",
    "locket==1.0.0",
    "partd==1.4.2",
    "rapids-logger==0.3.0",
)
#: Packages of the machine, with the version if it matters: never downloaded.
PRESENT = {
    "click": None,
    "cloudpickle": None,
    "cuda-pathfinder": None,
    # With cuFile.
    "cuda-toolkit": None,
    "cupy-cuda13x": "14.2.0",
    "fsspec": None,
    "hypothesis": None,
    "jax": None,
    "markdown-it-py": None,
    "mdurl": None,
    "ml-dtypes": None,
    "numba": None,
    "numba-cuda": None,
    "numpy": "2.5.2",
    "packaging": None,
    "pygments": None,
    "pytest": None,
    "pytest-timeout": None,
    "pyyaml": None,
    "rich": None,
    "tensorstore": None,
    "toolz": None,
    "torch": None,
    "typing-extensions": None,
    "xarray": None,
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


def check(
    folder: Path,
    pins: Sequence[str] = PINS,
    present: Mapping[str, str | None] = PRESENT,
    checkout: Path = ROOT,
) -> str:
    """Return a line for each file and for the checkout, the largest first, and their total size.

    Parameters
    ----------
    folder
        Folder of the wheels and kernels.
    pins, present
        Required wheels, and packages on the machine.
    checkout
        Folder of the sources, which are brought along.

    Raises
    ------
    WheelsError
        If a wheel is missing or superfluous, a requirement is not met, kernels are missing or made from other sources,
        or the total exceeds :data:`MOST_MIB`.
    """
    pinned = {canonicalize_name(r.name): str(r.specifier).removeprefix("==") for r in map(Requirement, pins)}
    gathered: dict[str, str] = {}
    required = {"gzarr": [Requirement(text) for text in _of_gzarr()]}
    sizes = {"the files of this checkout": checkout_nbytes(checkout)}
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
    device, libraries = gpu.kernels.present(folder / KERNELS)
    if not device or not libraries:
        raise WheelsError(f"{folder / KERNELS} has no kernels of these sources; ci/gpu-wheels {folder} compiles them")
    sizes |= {f"{KERNELS}/{path.name}": path.stat().st_size for path in (*device, *libraries)}
    total = sum(sizes.values()) / 2**20
    lines = [f"{size / 2**20:6.1f} MiB  {name}" for name, size in sorted(sizes.items(), key=lambda item: -item[1])]
    text = "\n".join([*lines, f"{total:6.1f} MiB together, {len(gathered)} wheels; at most {MOST_MIB:.0f}"])
    if total > MOST_MIB:
        raise WheelsError(f"{text}\ntoo large by {total - MOST_MIB:.1f} MiB")
    return text


def checkout_nbytes(folder: Path) -> int:
    """Return the bytes of all files of a checkout that git does not ignore; 0 if it is not one of git."""
    command = ["git", "-C", str(folder), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    paths = {folder / name for name in done.stdout.split("\0") if name}
    return sum(path.lstat().st_size for path in paths if path.is_file())


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
    parser.add_argument("--check", action="store_true", help="download and compile nothing")
    arguments = parser.parse_args(argv)
    try:
        if not arguments.check:
            download(arguments.folder)
            gpu.kernels.make(arguments.folder / KERNELS)
        print(check(arguments.folder))
    except (WheelsError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
