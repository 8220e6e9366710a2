"""Compares two runs of the tests of another library: what passed in the first has to pass in the second.

    python ci/compared_suites.py zarr.xml gzarr.xml

The files are of ``pytest --junitxml``, and are called by their names. The exit code is 1 if a test passed in the first
run only, or if none passed in the second.
"""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree


def passed(file: str) -> tuple[set[str], int]:
    """Return the tests that passed, and the number of all tests."""
    cases = list(ElementTree.parse(file).iter("testcase"))
    return {f"{case.get('classname')}::{case.get('name')}" for case in cases if len(case) == 0}, len(cases)


def main(files: list[str]) -> int:
    """Print the differences; return the exit code."""
    (first, first_count), (second, second_count) = map(passed, files)
    one, other = (Path(file).stem for file in files)
    lost = sorted(first - second)
    for what, tests in ((one, lost), (other, sorted(second - first))):
        for test in tests:
            print(f"passes only with {what}: {test}")
    counts = f"{one} {len(first)} of {first_count}, {other} {len(second)} of {second_count}"
    print(f"passed: {counts}; {len(lost)} only with {one}")
    return int(bool(lost) or not second)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
