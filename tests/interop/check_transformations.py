"""The conformance cases of coordinate transformations, by ``gzarr.ome.Scene.coordinate_map``.

    python tests/interop/check_transformations.py CASES

CASES is the folder ``cases`` of ome-zarr-transformations-conformance (or of its wheel). Each case is a scene, with
points, where they are mapped to, and how exactly; or with coordinate systems that have no map. Prints a line for each
case, and exits with 1 if one differs.
"""

from __future__ import annotations

import sys
import tomllib
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import gzarr


def judged(path: Path) -> str:
    """Return what is wrong with the result of a case, empty if nothing is."""
    case: dict[str, Any] = tomllib.loads((path / "conformance.toml").read_text())
    source, target = case["source"], case["target"]
    try:
        with warnings.catch_warnings():
            # Cases have no images, and some documents break rules that do not matter here.
            warnings.simplefilter("ignore", gzarr.ome.MetadataWarning)
            scene = gzarr.ome.open(path)
            if not isinstance(scene, gzarr.ome.Scene):
                return f"is no scene, but {scene!r}"
            found = scene.coordinate_map(source["name"], target["name"])(source["coordinates"])
    except gzarr.GzarrError as error:
        return "" if case["should_error"] else f"{type(error).__name__}: {error}"
    if case["should_error"]:
        return "should be refused"
    exact = {"rtol": case["relative_tolerance"], "atol": case["absolute_tolerance"]}
    if found.shape == np.shape(target["coordinates"]) and np.allclose(found, target["coordinates"], **exact):
        return ""
    return f"is {found.tolist()}, should be {target['coordinates']}"


def main() -> int:
    folder = Path(sys.argv[1])
    cases = sorted(found.parent for found in folder.glob("*/conformance.toml"))
    wrong = 0
    for path in cases:
        problem = judged(path)
        wrong += bool(problem)
        print(f"{path.name.removesuffix('.ome.zarr'):28} {problem or 'right'}")
    print(f"{len(cases) - wrong} of {len(cases)} are right")
    return 1 if wrong or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
