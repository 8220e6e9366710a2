"""Coordinate systems of images and scenes as a graph, in which the map from one to another is found."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ...errors import ArgumentError, MetadataError, UnsupportedError
from ...integers import as_integer
from ..metadata.model import PHYSICAL
from ..nodes import place
from .building import Builder
from .maps import CoordinateMap, affine, chain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...hierarchy.group import Group
    from ..image_levels import ImageLevels
    from ..levels import LevelGrid
    from ..metadata.model import SceneMetadata, SystemLink, SystemReference

#: Name of a coordinate system, or index of a level; with the path of the image that has it, if that is another.
SystemName: TypeAlias = str | int | tuple[str, str | int]
#: Path of an image, "" for the image or the scene itself, and a coordinate system of it.
_Vertex: TypeAlias = tuple[str, str | int]


@dataclass(frozen=True, slots=True)
class _Edge:
    """A transformation, from one coordinate system to another."""

    source: _Vertex
    target: _Vertex
    make: Callable[[], CoordinateMap]


class SystemGraph:
    """Coordinate systems, and the transformations between them.

    Parameters
    ----------
    group
        Group of the image or the scene.
    open_image
        Opens an image by its path in the group.
    image
        The image, None for a scene.
    scene
        The scene, None for an image.
    """

    def __init__(
        self,
        group: Group,
        open_image: Callable[[str], ImageLevels],
        image: ImageLevels | None = None,
        scene: SceneMetadata | None = None,
    ) -> None:
        self._group = group
        self._open_image = open_image
        self._edges: dict[_Vertex, list[_Edge]] = {}
        self._ndims: dict[_Vertex, int] = {}
        self._known = {""}
        if image is not None:
            self._add_image("", image)
        if scene is not None:
            self._ndims.update({("", system.name): len(system.axes) for system in scene.coordinate_systems})
            self._add_links("", self._group, scene.links)

    def _add_image(self, path: str, image: ImageLevels) -> None:
        """Add the coordinate systems of an image, and its transformations."""
        multiscale = image.multiscale
        named = bool(multiscale.coordinate_systems)
        own, grid = (multiscale.system, image._own_grid) if named else (PHYSICAL, image.grid)
        for system in multiscale.coordinate_systems:
            self._ndims[path, system.name] = len(system.axes)
        if own is not None:
            self._ndims[path, own] = image.ndim
        for level in range(len(multiscale.datasets)):
            self._ndims[path, level] = image.ndim
            if own is not None:
                self._add(_Edge((path, level), (path, own), partial(_map_of_level, grid, level)))
        self._add_links(path, image.group, multiscale.further)

    def _add_links(self, path: str, group: Group, links: tuple[SystemLink, ...]) -> None:
        for link in links:
            if link.input is not None and link.output is not None:
                source, target = _vertex(path, link.input), _vertex(path, link.output)
                self._add(_Edge(source, target, partial(self._map_of_link, group, link, source, target)))

    def _add(self, edge: _Edge) -> None:
        for end in (edge.source, edge.target):
            self._edges.setdefault(end, []).append(edge)

    def _map_of_link(self, group: Group, link: SystemLink, source: _Vertex, target: _Vertex) -> CoordinateMap:
        for end in (source, target):
            self._open(end[0])
            if end not in self._ndims:
                raise MetadataError(
                    f"{place(group)}: there is no coordinate system {_text(end)}", json_path=link.json_path
                )
        return Builder(group).map_of(link.document, link.json_path, self._ndims[source], self._ndims[target])

    def _open(self, path: str) -> None:
        """Add the coordinate systems of an image, if they are not there; one request."""
        if path not in self._known:
            self._known.add(path)
            self._add_image(path, self._open_image(path))

    def find(self, source: SystemName, target: SystemName) -> CoordinateMap:
        """Return the map from one coordinate system to another; see :meth:`gzarr.ome.Image.coordinate_map`."""
        first, last = self._named(source, "source"), self._named(target, "target")
        barred: set[tuple[int, bool]] = set()
        refusal: UnsupportedError | None = None
        # Other images are opened only if no way leads past them: each costs a request.
        everywhere = False
        while True:
            way = self._way(first, last, barred, everywhere=everywhere)
            if way is None:
                if everywhere:
                    break
                everywhere = True
                continue
            steps = []
            for edge, backward in way:
                try:
                    steps.append(edge.make().inverse() if backward else edge.make())
                except UnsupportedError as error:
                    refusal = error if refusal is None else refusal
                    barred.add((id(edge), backward))
                    break
            else:
                return chain(steps or [affine(np.eye(self._ndims[first]))])
        between = f"{place(self._group)}: between the coordinate systems {_text(first)} and {_text(last)}"
        if refusal is not None:
            raise UnsupportedError(f"{between}: {refusal.message}", json_path=refusal.json_path)
        raise ArgumentError(f"{between}, there is no chain of transformations")

    def _named(self, name: SystemName, what: str) -> _Vertex:
        """Return the coordinate system that an argument names."""
        path: Any
        system: Any
        path, system = name if isinstance(name, tuple) and len(name) == 2 else ("", name)
        if not isinstance(system, str):
            system = as_integer(system)
        if not isinstance(path, str) or system is None:
            raise ArgumentError(
                f"{what}= needs the name of a coordinate system or the index of a level, or the path of an image and "
                f"either, got {name!r:.100}"
            )
        path = path.strip("/")
        self._open(path)
        levels = sum(1 for there, one in self._ndims if there == path and isinstance(one, int))
        if isinstance(system, int) and -levels <= system < 0:
            system += levels
        if (path, system) not in self._ndims:
            known = [repr(one) for there, one in self._ndims if there == path]
            raise ArgumentError(
                f"{place(self._group)} has no coordinate system {_text((path, system))}; "
                f"{'that image has' if path else 'it has'} {', '.join(known) or 'none'}"
            )
        return path, system

    def _way(
        self, first: _Vertex, last: _Vertex, barred: set[tuple[int, bool]], *, everywhere: bool
    ) -> list[tuple[_Edge, bool]] | None:
        """Return the fewest transformations from one to another, each with whether it is inverted; None if none.

        ``everywhere`` opens the images that are met on the way, for the transformations that these have.
        """
        came: dict[_Vertex, tuple[_Edge, bool] | None] = {first: None}
        waiting = deque([first])
        while waiting and last not in came:
            vertex = waiting.popleft()
            if everywhere:
                self._open(vertex[0])
            for edge, backward, other in self._steps(vertex):
                if other not in came and (id(edge), backward) not in barred:
                    came[other] = edge, backward
                    waiting.append(other)
        if last not in came:
            return None
        way: list[tuple[_Edge, bool]] = []
        at = last
        while (step := came[at]) is not None:
            way.append(step)
            at = step[0].target if step[1] else step[0].source
        return way[::-1]

    def _steps(self, vertex: _Vertex) -> Iterator[tuple[_Edge, bool, _Vertex]]:
        """Yield what leads away from a coordinate system: first what needs no inverse."""
        edges = self._edges.get(vertex, ())
        yield from ((edge, False, edge.target) for edge in edges if edge.source == vertex)
        yield from ((edge, True, edge.source) for edge in edges if edge.target == vertex)


def _map_of_level(grid: Callable[[int], LevelGrid], level: int) -> CoordinateMap:
    found = grid(level)
    return affine(np.diag(found.scale), found.translation)


def _vertex(path: str, reference: SystemReference) -> _Vertex:
    below = (reference.path or "").strip("/")
    joined = f"{path}/{below}" if path and below else path or below
    return joined, reference.name or ""


def _text(vertex: _Vertex) -> str:
    path, system = vertex
    name = f"of level {system}" if isinstance(system, int) else repr(system[:200])
    return f"{name} of {path[:200]!r}" if path else name
