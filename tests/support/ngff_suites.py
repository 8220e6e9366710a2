"""The suites of the OME-Zarr specification, in ``tests/data/ngff.zip``, and its schemas."""

from __future__ import annotations

import contextlib
import json
import zipfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gzarr.ome.metadata import OmeMetadata

ARCHIVE = Path(__file__).parents[1] / "data" / "ngff.zip"
#: Version as gzarr names it, and the folder.
FOLDERS = {"0.4": "0.4", "0.5": "0.5", "0.6": "0.6rc0"}


@dataclass(frozen=True)
class Case:
    """A document of a suite.

    Attributes
    ----------
    version
        Version of the specification, as gzarr names it.
    suite
        ``"suites"``; of 0.6 ``"attributes"`` or ``"hierarchies"``.
    schema
        Name of the schema: ``"image"``, ``"strict_plate"``, …
    name
        Name of the case.
    text
        The document, which need not be JSON.
    valid
        What the suite says.
    """

    version: str
    suite: str
    schema: str
    name: str
    text: str = field(repr=False)
    valid: bool

    def __str__(self) -> str:
        return f"{self.version} {self.suite} {self.schema} {self.name}"

    @property
    def attributes(self) -> Any:
        """The document; raises ValueError if it is no JSON."""
        return json.loads(self.text)

    @property
    def kind(self) -> str:
        """What the document must describe."""
        return self.schema.removeprefix("strict_")

    def is_broken(self, metadata: OmeMetadata) -> bool:
        """Return whether a problem found by gzarr is one of this suite's rules."""
        levels = ("schema", "text", "strict") if self.schema.startswith("strict_") else ("schema", "text")
        return any(problem.level in levels for problem in metadata.problems)


@cache
def files() -> dict[str, str]:
    """Return all files of the archive by name."""
    with zipfile.ZipFile(ARCHIVE) as archive:
        return {name: archive.read(name).decode() for name in sorted(archive.namelist())}


def example(version: str, name: str) -> Any:
    """Return an example of the specification, by its path below ``examples``."""
    return json.loads(files()[f"{FOLDERS[version]}/examples/{name}"])


@cache
def cases() -> tuple[Case, ...]:
    """Return all cases of all suites."""
    return (*_suites(), *_attributes(), *_hierarchies())


def _suites() -> Iterator[Case]:
    for name, text in files().items():
        version, folder, *_ = name.split("/") if "/" in name else ("", "")
        if version in ("0.4", "0.5") and folder == "tests":
            suite = json.loads(text)
            schema = suite["schema"]["id"].removeprefix("schemas/").removesuffix(".schema")
            for test in suite["tests"]:
                yield Case(version, "suites", schema, test["formerly"], json.dumps(test["data"]), test["valid"])


def _attributes() -> Iterator[Case]:
    for name, text in files().items():
        if name.startswith("0.6rc0/tests/attributes/"):
            document = json.loads(text)
            said = document.get("_conformance")
            where = name.removeprefix("0.6rc0/tests/attributes/")
            # One case does not say which schema it is for, nor that it is valid: its folders do.
            schema = where.split("/")[2] if said is None else said["schema"]["id"].removeprefix("schemas/")
            valid = where.split("/")[1] == "valid" if said is None else said.get("valid", True)
            yield Case("0.6", "attributes", schema.removesuffix(".schema"), where, text, valid)


def _hierarchies() -> Iterator[Case]:
    for name, text in files().items():
        if name.startswith("0.6rc0/tests/zarr/"):
            level, said, kind, *_ = name.removeprefix("0.6rc0/tests/zarr/").split("/")
            schema = f"strict_{kind}" if level == "strict" else kind
            # Two of them are no JSON: a text in them has a line break.
            with contextlib.suppress(ValueError):
                text = json.dumps(json.loads(text)["attributes"])
            yield Case("0.6", "hierarchies", schema, name.removeprefix("0.6rc0/tests/zarr/"), text, said == "valid")


@cache
def _registry() -> Any:
    from referencing import Registry, Resource
    from referencing.jsonschema import DRAFT202012

    schemas = [json.loads(text) for name, text in files().items() if "/schemas/" in name]
    return Registry().with_resources(
        (schema["$id"], Resource.from_contents(schema, default_specification=DRAFT202012)) for schema in schemas
    )


@cache
def validator(version: str, schema: str) -> Any:
    """Return a validator of jsonschema for one of the schemas."""
    from jsonschema import Draft202012Validator

    document = json.loads(files()[f"{FOLDERS[version]}/schemas/{schema}.schema"])
    return Draft202012Validator(document, registry=_registry())
