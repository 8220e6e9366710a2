"""Declarations in nvCOMP's headers of the functions that gzarr calls, as a table by version.

``python tests/support/nvcomp_declarations.py INCLUDE...`` reads folders ``include`` of unpacked wheels and writes their
declarations to ``nvcomp_declarations.json``; other versions in it stay. So every version is checked wherever one is
installed. Headers of 5.0 do not state their version: ``5.0.0=INCLUDE``.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any, Final

TABLE: Final = Path(__file__).with_suffix(".json")
ALGORITHMS: Final = ("Zstd", "LZ4", "Snappy", "Deflate", "Gdeflate")
_CALLED: Final = r"GetRequiredAlignments|GetTempSize|GetTempSizeAsync|GetMaxOutputChunkSize|Async"

Facts = dict[str, dict[str, Any]]


def declarations(include: Path) -> tuple[str, Facts]:
    """Return the version of a folder of headers (``""`` if not stated), and their declarations by kind and name.

    ``functions``: parameters, each a kind (``pointer``, ``size_t``, ``options``, ``stream``) and its name;
    ``fields``: of structs; ``values``: of defaults and constants; ``said``: size of the largest chunk that the
    description of a function allows, in bytes.
    """
    text = "\n".join(path.read_text() for path in sorted(include.rglob("*.h")))
    code = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)
    parts = [re.search(rf"#define NVCOMP_VER_{part} (\d+)", code) for part in ("MAJOR", "MINOR", "PATCH")]
    version = ".".join(part[1] for part in parts if part)
    enumerators = {name: int(value, 0) for name, value in re.findall(r"\b(\w+) = (0x\w+|\d+),?\s", code)}
    structs = {name: body for body, name in re.findall(r"typedef struct\s*\{([^}]*)\}\s*(\w+);", code)}
    facts: Facts = {
        "functions": {"nvcompGetProperties": _parameters(_only(r"nvcompGetProperties\(([^)]*)\);", code))},
        "fields": {name: _fields(structs[name]) for name in ("nvcompAlignmentRequirements_t", "nvcompProperties_t")},
        "values": {"nvcompSuccess": enumerators["nvcompSuccess"]},
        "said": {},
    }
    for algorithm in ALGORITHMS:
        for direction in ("Compress", "Decompress"):
            prefix = f"nvcompBatched{algorithm}{direction}"
            for name, parameters in re.findall(rf"nvcompStatus_t ({prefix}(?:{_CALLED}))\(([^)]*)\);", code):
                facts["functions"][name] = _parameters(parameters)
            facts["fields"][f"{prefix}Opts_t"] = _fields(structs[f"{prefix}Opts_t"])
            default = _only(rf"{prefix}DefaultOpts =\s*\{{(.*?)\}};", code)
            facts["values"][f"{prefix}DefaultOpts"] = [
                enumerators[value] if value in enumerators else int(value) for value in re.findall(r"\w+", default)
            ]
            limit = f"nvcomp{algorithm}{direction}ionMaxAllowedChunkSize"
            if found := re.search(rf"\b{limit} = ([^;]+);", code):
                facts["values"][limit] = _value(found[1])
        # Only the descriptions of compression functions have these words.
        header = (include / "nvcomp" / f"{algorithm.lower()}.h").read_text()
        if found := re.search(r"Chunk sizes must not exceed (\d+) (MB|bytes)", header):
            facts["said"][f"nvcompBatched{algorithm}CompressAsync"] = int(found[1]) * (10**6 if found[2] == "MB" else 1)
    return version, facts


def _only(pattern: str, code: str) -> str:
    (found,) = set(re.findall(pattern, code, re.DOTALL))
    return str(found)


def _parameters(text: str) -> str:
    return ", ".join(f"{_kind(p)} {p.replace('*', ' ').split()[-1]}" for p in text.split(","))


def _kind(parameter: str) -> str:
    if "*" in parameter:
        return "pointer"
    kind = parameter.split()[0]
    return {"size_t": "size_t", "cudaStream_t": "stream"}.get(kind, "options" if kind.endswith("Opts_t") else kind)


def _fields(body: str) -> str:
    return ", ".join(" ".join(field.split()) for field in body.split(";") if field.strip())


def _value(expression: str) -> int:
    # Such as (1ULL << 32) + 288.
    terms = re.fullmatch(r"\(?\s*(\d+)[ul]*\s*<<\s*(\d+)[ul]*\s*\)?(?:\s*([+-]\s*\d+)[ul]*)?", expression.strip(), re.I)
    assert terms, expression
    return (int(terms[1]) << int(terms[2])) + int((terms[3] or "0").replace(" ", ""))


def known() -> dict[str, Facts]:
    """Return the table, by version."""
    table: list[dict[str, Any]] = json.loads(TABLE.read_text()) if TABLE.exists() else []
    return {version: entry["declared"] for entry in table for version in entry["versions"]}


def main(folders: list[str]) -> None:
    merged = known()
    for argument in folders:
        given, _, folder = argument.rpartition("=")
        version, declared = declarations(Path(folder))
        merged[version or given] = declared
    table: list[dict[str, Any]] = []
    for version in sorted(merged, key=lambda version: tuple(map(int, version.split(".")))):
        # Versions that declare the same follow each other.
        if table and table[-1]["declared"] == merged[version]:
            table[-1]["versions"].append(version)
        else:
            table.append({"versions": [version], "declared": merged[version]})
    TABLE.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
