"""Parts of ``ci/lowest``: ``constraints`` prints the lowest versions, ``check`` looks at an installation of them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# Arrays of other writers that need no extra, at least.
_ARRAYS = 850


def constraints() -> list[str]:
    """Return the lowest version of each package that every installation needs, and of ml_dtypes, for pip."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    everywhere = [requirement for requirement in project["dependencies"] if ";" not in requirement]
    everywhere += project["optional-dependencies"]["ml-dtypes"]
    return [re.sub(r">=([\w.]+).*", r"==\1", requirement) for requirement in everywhere]


def check() -> int:
    """Run ``gzarr doctor``, and read the arrays of other writers; return 1 if anything is missing or wrong."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "gzarr", "doctor", "--device", "cpu", "--json"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    report = json.loads(done.stdout)
    wrong = [f"{codec['codec']}: {codec['message']}" for codec in report["codecs"] if not codec["passed"]]
    decoders = report["environment"]["decoders"]
    if decoders["status"] != "ok" or "kernels of this wheel" not in decoders["found"]:
        wrong.append(f"CPU decoders: {decoders['found']}")
    print(f"gzarr doctor: {len(report['codecs'])} codecs; {decoders['found']}")

    sys.path.insert(0, str(ROOT / "tests"))
    from support.golden_stores import GOLDEN, V2_V3, golden_arrays

    import gzarr

    read = 0
    for golden in [*golden_arrays(GOLDEN / "v1"), *golden_arrays(V2_V3)]:
        try:
            found = gzarr.open_array(golden.keys, path=golden.node, device="cpu").read()
        except gzarr.GzarrError as error:
            # Some need a package of an extra.
            if "pip install" not in str(error):
                wrong.append(f"{golden}: {error}")
            continue
        if not _same(found, golden.expected):
            wrong.append(f"{golden}: other elements")
        read += 1
    print(f"{read} arrays of other writers read")
    print("\n".join(wrong))
    return int(bool(wrong) or done.returncode != 0 or read < _ARRAYS)


def _same(found: Any, expected: Any) -> bool:
    """Return whether two arrays have the same elements, NaN among them; byte orders may differ."""
    if found.shape != expected.shape or expected.dtype.hasobject:
        return repr(found.tolist()) == repr(expected.tolist())
    return bool(found.astype(expected.dtype).tobytes() == expected.tobytes())


if __name__ == "__main__":
    if sys.argv[1:] == ["constraints"]:
        print("\n".join(constraints()))
    elif sys.argv[1:] == ["check"]:
        raise SystemExit(check())
    else:
        raise SystemExit(__doc__)
