"""Extension of Griffe: docstrings of gzarr as mkdocstrings wants them.

Docstrings are numpydoc's, for people who read them in a terminal: references are roles of Sphinx, and what a function
returns is described in a sentence, since its annotation says the type. Here roles become links to what the reference
has, and these sentences are put under the annotation.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any, Final

import griffe

PAGES: Final = Path(__file__).parents[2] / "docs" / "reference"

_ROLE = re.compile(r":(?:attr|class|exc|func|meth|mod):`(~?)([\w.]+)`")
_PARAMETERS = re.compile(r"(?m)^(?:Parameters|Attributes)\n-+\n(?:(?!\w[^\n]*\n--).*\n?)*")
_SEVERAL = re.compile(r"(?m)^(?P<names>\*{0,2}\w+(?:, \*{0,2}\w+)+)\n(?P<text>(?:(?: .*)?\n)*(?: .*)?)")
_RETURNS = re.compile(r"(?m)^(?P<head>(?:Returns|Yields)\n-+\n)(?P<text>(?:(?!\w[^\n]*\n--).*\n?)*)")


class Docstrings(griffe.Extension):
    """Rewrites the docstrings of gzarr when it is loaded."""

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        """Rewrite all docstrings of the package."""
        if pkg.name == "gzarr":
            _unhide(pkg)
            self._names = _documented(pkg)
            self._rewrite(pkg)

    def _rewrite(self, scope: griffe.Module | griffe.Class) -> None:
        for member in [scope, *scope.members.values()]:
            if member.is_alias:
                continue
            if member.docstring is not None:
                member.docstring.value = _returns(_one_by_one(self._roles(member.docstring.value, member)))
            if member is not scope and (member.is_module or member.is_class):
                self._rewrite(member)
            if member.is_class and "__new__" in member.members and "__init__" not in member.members:
                # Arguments of the class are those of __init__ for mkdocstrings.
                made = member.members.pop("__new__")
                made.name, made.docstring = "__init__", None
                member.set_member("__init__", made)

    def _roles(self, text: str, where: griffe.Object) -> str:
        """Return a docstring with roles as references of mkdocstrings."""

        def reference(match: re.Match[str]) -> str:
            short, name = match.groups()
            shown = name.rpartition(".")[2] if short else name
            path = self._path(name, where)
            # What other libraries have is not linked: their inventories are on other servers.
            return f"``{shown}``" if path is None else f"[`{shown}`][{path}]"

        return _ROLE.sub(reference, text)

    def _path(self, name: str, where: griffe.Object) -> str | None:
        """Return the path of what a role names: a member of the class, a name of the module, or a public name."""
        first, _, rest = name.partition(".")
        scope: griffe.Object | None = where
        while scope is not None and first != "gzarr":
            found = scope.all_members.get(first) if scope.is_class or scope.is_module else None
            if found is not None:
                path = found.target_path if found.is_alias else found.path
                if scope.is_class and found.is_alias:
                    # Inherited, and shown with the class.
                    path = f"{scope.path}.{first}"
                return self._public(f"{path}.{rest}".rstrip("."))
            # Packages around a module are not in its scope.
            scope = None if scope.is_module else scope.parent
        if first == "gzarr":
            return self._public(name)
        public = [path for path in self._names.values() if path.endswith(f".{first}")]
        same = [path for path in public if path.split(".")[:2] == where.path.split(".")[:2]]
        return f"{(same or public)[0]}.{rest}".rstrip(".") if public else None

    def _public(self, path: str) -> str | None:
        """Return a path as the reference spells it; None for one of another library."""
        for canonical, public in self._names.items():
            if path == canonical or path.startswith(f"{canonical}."):
                return public + path.removeprefix(canonical)
        return path if path.startswith("gzarr.") else None


def _unhide(package: griffe.Module) -> None:
    """Put functions in the place of the modules that they are in, and whose names they have, as imports do."""
    for name, module in list(package.members.items()):
        if module.is_alias or not module.is_module:
            continue
        _unhide(module)
        found = module.members.get(name)
        if found is not None and not found.is_alias and found.is_function and name in (package.exports or ()):
            found.parent = package
            package.set_member(name, found)


def _documented(pkg: griffe.Module) -> dict[str, str]:
    """Return the paths of the objects in the reference, each with the one that the reference gives it."""
    names = {}
    for page in sorted(PAGES.glob("*.md")):
        for path in re.findall(r"(?m)^::: gzarr\.([\w.]+)$", page.read_text()):
            names[pkg[path].canonical_path] = f"gzarr.{path}"
    return names


def _one_by_one(text: str) -> str:
    """Return a docstring in which parameters that are described together stand one by one.

    Griffe would give all of them the type and the default value of the first.
    """

    def each(match: re.Match[str]) -> str:
        return "".join(f"{name}\n{match['text'].rstrip()}\n" for name in match["names"].split(", ")) + "\n"

    return _PARAMETERS.sub(lambda section: _SEVERAL.sub(each, section[0]), text)


def _returns(text: str) -> str:
    """Return a docstring whose sentences about the result stand where a description without a type is expected."""

    def described(match: re.Match[str]) -> str:
        body = match["text"].rstrip("\n")
        # Named results have indented descriptions.
        if any(line.startswith(" ") for line in body.splitlines()):
            return match[0]
        return f"{match['head']}:\n{textwrap.indent(body, '    ')}\n\n"

    return _RETURNS.sub(described, text)
