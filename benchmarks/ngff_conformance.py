"""Every case of the suites of OME-Zarr, as gzarr reads it: ``python benchmarks/ngff_conformance.py``.

A case is right if gzarr finds a broken rule where the suite says that the document is invalid, and none where it says
that it is valid. Beside it, what the JSON schemas of the same version say by jsonschema, and, with ``--peers``, what
ome-zarr-models and yaozarrs say, if they are installed.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support import ngff_suites

from gzarr.errors import GzarrError
from gzarr.ome.metadata import parse

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.ngff_suites import Case


def by_gzarr(case: Case) -> bool:
    """Return whether gzarr takes a document as valid."""
    try:
        attributes = case.attributes
    except ValueError:
        return False
    return not case.is_broken(parse(attributes, version=case.version, kind=case.kind))


def by_schema(case: Case) -> bool:
    """Return whether the schema takes a document as valid."""
    try:
        return bool(ngff_suites.validator(case.version, case.schema).is_valid(case.attributes))
    except ValueError:
        return False


def by_models(case: Case) -> bool | None:
    """Return whether ome-zarr-models takes a document as valid; None if it has no such version or kind."""
    import ome_zarr_models.v04 as v04
    import ome_zarr_models.v05 as v05

    names = {"image": "ImageAttrs", "label": "ImageLabelAttrs", "plate": "HCSAttrs", "well": "WellAttrs"}
    module = {"0.4": v04, "0.5": v05}.get(case.version)
    if module is None or case.schema not in names:
        return None
    submodule = {"image": "image", "label": "image_label", "plate": "hcs", "well": "well"}[case.schema]
    model = getattr(importlib.import_module(f"{module.__name__}.{submodule}"), names[case.schema])
    attributes = case.attributes
    return _accepts(lambda: model.model_validate(attributes if case.version == "0.4" else attributes["ome"]))


def by_yaozarrs(case: Case) -> bool | None:
    """Return whether yaozarrs takes a document as valid; None if it has no such version or kind."""
    import yaozarrs

    if case.version not in ("0.4", "0.5") or case.schema.startswith("strict_"):
        return None
    return _accepts(lambda: yaozarrs.validate_ome_object(case.attributes))


def _accepts(validate: Callable[[], Any]) -> bool:
    try:
        validate()
    except Exception:
        return False
    return True


PEERS = {"ome-zarr-models": by_models, "yaozarrs": by_yaozarrs}


def table(readers: dict[str, Callable[[Case], bool | None]]) -> tuple[list[str], list[Case]]:
    """Return the lines of the table, and the cases that gzarr has wrong."""
    right: dict[tuple[str, str], dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    wrong = []
    for case in ngff_suites.cases():
        for name, reader in readers.items():
            found = reader(case)
            if found is not None:
                right[case.version, case.suite][name].append(found == case.valid)
            if name == "gzarr" and found != case.valid:
                wrong.append(case)
    lines = [f"{'suite':18} " + " ".join(f"{name:>18}" for name in readers)]
    for (version, suite), found in sorted(right.items()):
        cells = [f"{sum(found[name])} of {len(found[name])}" if found[name] else "–" for name in readers]
        lines.append(f"{version + ' ' + suite:18} " + " ".join(f"{cell:>18}" for cell in cells))
    return lines, wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", action="store_true", help="also ask ome-zarr-models and yaozarrs")
    readers: dict[str, Callable[[Case], bool | None]] = {"gzarr": by_gzarr, "the schemas": by_schema}
    if parser.parse_args().peers:
        for name, reader in PEERS.items():
            readers[f"{name} {importlib.metadata.version(name)}"[:18]] = reader
    lines, wrong = table(readers)
    print("\n".join(lines))
    print(f"\nNot as the suite says: {len(wrong)}")
    for case in wrong:
        try:
            problems = [
                str(p) for p in parse(case.attributes, version=case.version, kind=case.kind).problems if p.is_rule
            ]
        except (ValueError, GzarrError):
            problems = ["no JSON"]
        schema = "valid" if by_schema(case) else "invalid"
        print(f"  {case}: the suite says {'valid' if case.valid else 'invalid'}, its schema {schema}; {problems[:1]}")


if __name__ == "__main__":
    main()
