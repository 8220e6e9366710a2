"""Where the project is: what a release switches, from ``[tool.gzarr]`` in ``pyproject.toml``, which is the only place.

    python ci/project.py    writes the parts of README.md, docs/start.md and CITATION.cff that depend on it

The build asks here for the long description and the URLs of packages (``hatch_build.py``), the site for its repository
(``ci/site/files.py``). Relative links of README.md lead nowhere on a package index: there, they lead to the repository
as it was tagged, and pictures are loaded from it. While no repository is known, links are texts and pictures are what
they show, in words. (The plug-in hatch-fancy-pypi-readme replaces texts, too, but would have the address once more in
each of its patterns, and leaves URLs alone.)
"""

from __future__ import annotations

import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]

#: Blocks and spans of code, which stay as they are.
_CODE: Final = re.compile(r"(?ms)(^ *(?:```|~~~).*?^ *(?:```|~~~) *$|`[^`\n]*`)")
_TEXT: Final = r"((?:[^\[\]]|\[[^\[\]]*\])*)"
#: Relative ones; their texts may have brackets in pairs.
_PICTURE: Final = re.compile(rf"!\[{_TEXT}\]\((?![a-z]+:|#)([^()\s]+)\)")
_LINK: Final = re.compile(rf"(?<!!)\[{_TEXT}\]\((?![a-z]+:|#)([^()\s]+)\)")
_PART: Final = re.compile(r"(?ms)^(<!-- by ci/project\.py: (?P<name>[\w ]+) -->\n).*?(^<!-- end -->$)")


@dataclass(frozen=True)
class Project:
    """What is known.

    Attributes
    ----------
    published
        Whether a package index has gzarr.
    repository, documentation
        Addresses without a slash at the end; ``""`` for one that is not known.
    links, pictures
        Addresses of a file, for readers and as it is, with ``{repository}``, ``{version}`` and ``{path}``.
    version
        Version of this checkout.
    """

    published: bool
    repository: str
    documentation: str
    links: str
    pictures: str
    version: str

    @classmethod
    def of(cls, root: Path = ROOT) -> Project:
        """Read ``pyproject.toml``, and the version."""
        settings = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["tool"]["gzarr"]
        version = re.findall(r'(?m)^__version__ = "(.*)"$', (root / "gzarr/__init__.py").read_text("utf-8"))[0]
        return cls(**settings, version=version)

    def urls(self) -> dict[str, str]:
        """Return the URLs of a package; none without a repository."""
        if not self.repository:
            return {}
        found = {
            "Repository": self.repository,
            "Issues": f"{self.repository}/issues",
            "Changelog": self._file(self.links, "CHANGELOG.md"),
            "Documentation": self.documentation or self._file(self.links, "docs/index.md"),
        }
        return dict(sorted(found.items()))

    def description(self, text: str) -> str:
        """Return README.md as a package index shows it."""
        code: list[str] = []

        def put_aside(match: re.Match[str]) -> str:
            code.append(match[0])
            return f"\0{len(code) - 1}\0"

        def picture(match: re.Match[str]) -> str:
            return f"![{match[1]}]({self._file(self.pictures, match[2])})" if self.repository else f"*{match[1]}*"

        def link(match: re.Match[str]) -> str:
            return f"[{match[1]}]({self._file(self.links, match[2])})" if self.repository else match[1]

        # Texts of links may be code.
        text = _LINK.sub(link, _PICTURE.sub(picture, _CODE.sub(put_aside, text)))
        text = re.sub(r"(?m)^<!-- (?:by ci/project\.py: .*|end) -->\n", "", text)
        return re.sub("\0(\\d+)\0", lambda match: code[int(match[1])], text)

    def _file(self, template: str, path: str) -> str:
        return template.format(repository=self.repository, version=self.version, path=path)

    def written(self, root: Path = ROOT) -> dict[str, str]:
        """Return the texts of the files that depend on the settings, as they should be."""
        found = {}
        for name in ("README.md", "docs/start.md"):
            text = (root / name).read_text("utf-8")
            found[name] = _PART.sub(lambda part: part[1] + self._part(part["name"]) + part[3], text)
        citation = (root / "CITATION.cff").read_text("utf-8")
        citation = re.sub(r"(?m)^(repository-code|url): .*\n", "", citation)
        for key, address in (("repository-code", self.repository), ("url", self.documentation)):
            citation += f"{key}: {address}\n" if address else ""
        found["CITATION.cff"] = citation
        return found

    def _part(self, name: str) -> str:
        return _PARTS[name][self.published]


#: Parts of pages: before there is a package on an index, and after.
_PARTS: Final = {
    "install in README": (
        """\
From a checkout, on any machine with Python 3.11 or newer:

```bash
pip install .                  # or '.[cuda13]', '.[cuda12]' with CuPy and nvCOMP; '.[object]' for S3, GCS, Azure, HTTP
gzarr doctor                   # what is there, what is missing, and a test of every codec
```
""",
        """\
On any machine with Python 3.11 or newer:

```bash
pip install gzarr              # or 'gzarr[cuda13]', 'gzarr[cuda12]' with CuPy and nvCOMP; 'gzarr[object]' for S3 …
gzarr doctor                   # what is there, what is missing, and a test of every codec
```
""",
    ),
    "install": (
        """\
In a checkout of gzarr, which is not published on an index yet (or with the file of a wheel instead of the dot):

```console
$ pip install .
```
""",
        """\
```console
$ pip install gzarr
```
""",
    ),
}


def main() -> int:
    """Write the files."""
    for name, text in Project.of().written().items():
        if (ROOT / name).read_text("utf-8") != text:
            (ROOT / name).write_text(text, "utf-8")
            print(name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
