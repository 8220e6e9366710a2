"""Extension of Griffe: docstrings of gzarr as mkdocstrings wants them.

Docstrings are numpydoc's, for people who read them in a terminal: references are roles of Sphinx, and what a function
returns is described in a sentence, since its annotation says the type. Here roles become links, and these sentences are
put under the annotation.
"""

from __future__ import annotations

import re
import textwrap
from typing import Any

import griffe

_ROLE = re.compile(r":(?:attr|class|exc|func|meth|mod):`(~?)([\w.]+)`")
# A section that is not typed: its lines are sentences.
_RETURNS = re.compile(r"(?m)^(?P<head>(?:Returns|Yields)\n-+\n)(?P<text>(?:(?!\w[^\n]*\n--).*\n?)*)")


class Docstrings(griffe.Extension):
    """Rewrites the docstrings of a package when it is loaded."""

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        """Rewrite all docstrings of the package."""
        self._rewrite(pkg)

    def _rewrite(self, scope: griffe.Module | griffe.Class) -> None:
        for member in [scope, *scope.members.values()]:
            if member.is_alias:
                continue
            if member.docstring is not None:
                member.docstring.value = _returns(_roles(member.docstring.value, member))
            if member is not scope and (member.is_module or member.is_class):
                self._rewrite(member)


def _roles(text: str, where: griffe.Object) -> str:
    """Return a docstring with roles as references of mkdocstrings."""

    def reference(match: re.Match[str]) -> str:
        short, name = match.groups()
        shown = name.rpartition(".")[2] if short else name
        return f"[`{shown}`][{_path(name, where)}]"

    return _ROLE.sub(reference, text)


def _path(name: str, where: griffe.Object) -> str:
    """Return the full path of a name in a docstring: a member of the object, of its class or its module, or a path."""
    first = name.partition(".")[0]
    scope: griffe.Object | None = where
    while scope is not None:
        if first in getattr(scope, "all_members", ()):
            return f"{scope.path}.{name}"
        scope = scope.parent
    return name


def _returns(text: str) -> str:
    """Return a docstring whose sentences about the result stand where a description without a type is expected."""

    def described(match: re.Match[str]) -> str:
        body = match["text"].rstrip("\n")
        lines = body.splitlines()
        # Named results have indented descriptions.
        if any(line.startswith(" ") for line in lines):
            return match[0]
        return f"{match['head']}:\n{textwrap.indent(body, '    ')}\n\n"

    return _RETURNS.sub(described, text)
