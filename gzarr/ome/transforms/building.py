"""From documents of transformations to maps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ...arrays.array import Array
from ...errors import MetadataError
from ...hierarchy.open import open as open_node
from ..levels import grid_of, in_image
from ..metadata.problems import DocumentPart
from ..nodes import place, read_metadata
from .fields import FieldMap
from .maps import AxesPart, CoordinateMap, Pair, affine, by_axes, chain

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...hierarchy.group import Group
    from ..levels import LevelGrid
    from ..metadata.model import Axis
    from .fields import Interpolation

_MAX_NESTED: Final = 16
#: An array this deep below a group is no level of its image.
_MAX_LEVEL_DEPTH: Final = 4
#: Largest number of elements of an array of parameters: more axes than NumPy has are none.
_MAX_PARAMETERS: Final = 64 * 65
_INTERPOLATIONS: Final[dict[str, Interpolation]] = {
    "nearest": "nearest",
    "linear": "linear",
    "cubic": "cubic",
    "bspline-cubic": "cubic",
}


@dataclass(frozen=True, slots=True)
class Builder:
    """Builds the maps of transformations in the metadata of a group.

    Attributes
    ----------
    group
        The group; arrays of parameters, and fields, are below it.
    """

    group: Group

    def map_of(self, document: Any, json_path: str, input_ndim: int, output_ndim: int) -> CoordinateMap:
        """Return the map of a transformation.

        Parameters
        ----------
        document
            Its JSON object.
        json_path
            Its place in the attributes.
        input_ndim, output_ndim
            Numbers of axes of the coordinate systems.

        Raises
        ------
        MetadataError
            If it cannot be read, or does not fit the coordinate systems.
        NodeNotFoundError, ChunkError, StoreError
            If parameters in an array cannot be read.
        """
        part = DocumentPart(document, json_path, [])
        try:
            found = self._map(part, input_ndim, 0)
        except MetadataError as error:
            raise MetadataError(f"{place(self.group)}: {error.message}", json_path=error.json_path) from error
        if found.output_ndim != output_ndim:
            raise MetadataError(
                f"{place(self.group)}: expected a transformation to {output_ndim} axes, got one to {found.output_ndim}",
                json_path=json_path,
            )
        return found

    def _map(self, part: DocumentPart, ndim: int, depth: int) -> CoordinateMap:
        if depth >= _MAX_NESTED:
            raise part.wrong(f"at most {_MAX_NESTED} transformations inside each other")
        kind = part.object().needed("type", lambda text: text.string())
        if kind not in _BUILDERS:
            raise part.at("type").wrong("a known type of transformation")
        return _BUILDERS[kind](self, part, ndim, depth)

    def _identity(self, part: DocumentPart, ndim: int, depth: int) -> CoordinateMap:
        return affine(np.eye(ndim))

    def _scale(self, part: DocumentPart, ndim: int, depth: int) -> CoordinateMap:
        return affine(np.diag(self._parameters(part, "scale", (ndim,))))

    def _translation(self, part: DocumentPart, ndim: int, depth: int) -> CoordinateMap:
        return affine(np.eye(ndim), self._parameters(part, "translation", (ndim,)))

    def _affine(self, part: DocumentPart, ndim: int, depth: int) -> CoordinateMap:
        whole = self._parameters(part, "affine", (None, ndim + 1))
        return affine(whole[:, :-1], whole[:, -1])

    def _rotation(self, part: DocumentPart, ndim: int, depth: int) -> CoordinateMap:
        return affine(self._parameters(part, "rotation", (ndim, ndim)))

    def _map_axis(self, part: DocumentPart, ndim: int, depth: int) -> CoordinateMap:
        axes = part.needed("mapAxis", lambda items: [item.integer(0, ndim - 1) for item in items.items(ndim, ndim)])
        if sorted(axes) != list(range(ndim)):
            raise part.at("mapAxis").wrong(f"each of the {ndim} axes once")
        return affine(np.eye(ndim)[axes])

    def _project_axis(self, part: DocumentPart, ndim: int, depth: int) -> CoordinateMap:
        dropped = self._axes(part, "droppedInputs", ndim)
        kept = [axis for axis in range(ndim) if axis not in dropped]
        created = self._axes(part, "createdOutputs", None)
        count = len(kept) + len(created)
        if any(axis >= count for axis in created):
            raise part.at("createdOutputs").wrong(f"indexes of the {count} axes of the output")
        linear = np.zeros((count, ndim))
        linear[[axis for axis in range(count) if axis not in created], kept] = 1
        return affine(linear)

    @staticmethod
    def _axes(part: DocumentPart, name: str, ndim: int | None) -> list[int]:
        most = None if ndim is None else ndim - 1
        axes = [] if name not in part else [item.integer(0, most) for item in part.at(name).items()]
        if len(set(axes)) < len(axes):
            raise part.at(name).wrong("indexes that all differ")
        return axes

    def _sequence(self, part: DocumentPart, ndim: int, depth: int) -> CoordinateMap:
        steps: list[CoordinateMap] = []
        for item in part.needed("transformations", lambda items: items.items(1)):
            steps.append(self._map(item, steps[-1].output_ndim if steps else ndim, depth + 1))
        return chain(steps)

    def _by_dimension(self, part: DocumentPart, ndim: int, depth: int) -> CoordinateMap:
        parts, used = [], []
        for item in part.needed("transformations", lambda items: items.items(1)):
            names, inner = ("inputAxes", "outputAxes"), item
            if "input_axes" in item.object() and "transformation" not in item:
                # Drafts before 0.6rc0 had the axes beside the members of the transformation.
                names = ("input_axes", "output_axes")
            else:
                inner = item.needed("transformation", lambda inner: inner)
            axes = item.needed(names[0], lambda items: [i.integer(0, ndim - 1) for i in items.items(1)])
            outputs = item.needed(names[1], lambda items: [i.integer(0) for i in items.items(1)])
            found = self._map(inner, len(axes), depth + 1)
            if found.output_ndim != len(outputs):
                raise item.at(names[1]).wrong(f"an axis for each of the {found.output_ndim} coordinates")
            parts.append(AxesPart(found, tuple(axes), tuple(outputs)))
            used += outputs
        if sorted(used) != list(range(len(used))):
            raise part.at("transformations").wrong("each axis of the output in one transformation")
        return by_axes(parts, ndim)

    def _bijection(self, part: DocumentPart, ndim: int, depth: int) -> CoordinateMap:
        forward = part.needed("forward", lambda inner: self._map(inner, ndim, depth + 1))
        backward = part.needed("inverse", lambda inner: self._map(inner, forward.output_ndim, depth + 1))
        if backward.output_ndim != ndim:
            raise part.at("inverse").wrong(f"a transformation to {ndim} axes")
        return Pair(ndim, forward.output_ndim, forward, backward)

    def _displacements(self, part: DocumentPart, ndim: int, depth: int) -> CoordinateMap:
        return self._field(part, ndim, adds=True)

    def _coordinates(self, part: DocumentPart, ndim: int, depth: int) -> CoordinateMap:
        return self._field(part, ndim, adds=False)

    def _field(self, part: DocumentPart, ndim: int, *, adds: bool) -> CoordinateMap:
        name = part.optional("interpolation", lambda text: text.string()) or "linear"
        if name not in _INTERPOLATIONS:
            raise part.at("interpolation").wrong(f"one of {', '.join(map(repr, _INTERPOLATIONS))}")
        where = part.at("path") if "path" in part else part
        array, axes, grid = self._image_at(part.needed("path", lambda text: text.string()), where)
        kind = "displacement" if adds else "coordinate"
        vectors = [i for i, axis in enumerate(axes) if axis.type == kind]
        if len(vectors) != 1 or len(axes) != ndim + 1:
            raise where.wrong(f"an image with an axis of type {kind!r} and {ndim} others")
        if array.ndim != len(axes) or array.dtype.kind not in "iuf" or not array.size:
            raise where.wrong(f"an image of real numbers with {len(axes)} axes")
        if adds and array.shape[vectors[0]] != ndim:
            raise where.wrong(f"{ndim} displacements along the axis of type {kind!r}")
        scale, first = (np.delete(numbers, vectors[0]) for numbers in (grid.scale, grid.translation))
        to_indexes = affine(np.diag(scale), first).inverse()
        return FieldMap(ndim, array.shape[vectors[0]], array, vectors[0], to_indexes, adds, _INTERPOLATIONS[name])

    def _image_at(self, path: str, where: DocumentPart) -> tuple[Array, tuple[Axis, ...], LevelGrid]:
        """Return the first level of the image at a path, or the level whose array is there; its axes and places."""
        above, found = self._node(path), ""
        while isinstance(above, Array) or not read_metadata(above).multiscales:
            # Some writers refer to the array of a level.
            parent, _, name = above.path.rpartition("/")
            found = f"{name}/{found}" if found else name
            if not above.path or found.count("/") >= _MAX_LEVEL_DEPTH:
                raise where.wrong("the path of an image")
            above = self._node(f"/{parent}")
        image = read_metadata(above).multiscales[0]
        levels = [dataset.path for dataset in image.datasets]
        if image.axes is None or (found and found not in levels):
            raise where.wrong("the path of an image with axes")
        level = levels.index(found) if found else 0
        array = above[levels[level]]
        grid = grid_of(image, level, len(image.axes), above.name)
        if not isinstance(array, Array) or grid is None:
            raise where.wrong("the path of an image whose levels are arrays with transformations")
        return array, image.axes, in_image(grid, image, above.name)

    def _node(self, path: str) -> Group | Array:
        """Return a node below the group, or below the root of its store, in host memory."""
        below = path.lstrip("/") if path.startswith("/") or not self.group.path else f"{self.group.path}/{path}"
        return open_node(self.group.store, path=below, mode="r", device="cpu")

    def _parameters(self, part: DocumentPart, kind: str, shape: tuple[int | None, ...]) -> Any:
        """Return numbers in the document, or in an array, as float64; None in ``shape`` stands for any length."""
        if kind in part or "path" not in part:
            where = part.needed(kind, lambda inner: inner)
            rows = _numbers(where, len(shape))
            # Rows of unequal lengths are no matrix.
            values = None if len(shape) == 2 and len({len(row) for row in rows}) > 1 else np.array(rows, np.float64)
        else:
            where = part.at("path")
            array = self._node(where.string())
            if not isinstance(array, Array) or array.size > _MAX_PARAMETERS or array.dtype.kind not in "iuf":
                raise where.wrong("the path of an array of real numbers, as many as a matrix has")
            values = array.read(dtype="f8")
        if values is None or not _fits(values.shape, shape):
            raise where.wrong(" × ".join("any" if n is None else str(n) for n in shape) + " numbers")
        if not np.isfinite(values).all():
            raise where.wrong("finite numbers")
        return values


def _fits(shape: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    return len(shape) == len(wanted) and all(m in (n, None) for n, m in zip(shape, wanted, strict=True))


def _numbers(part: DocumentPart, ndim: int) -> Any:
    """Return an array of numbers, or an array of such arrays."""
    return [item.number() if ndim == 1 else _numbers(item, ndim - 1) for item in part.items(1)]


_BUILDERS: Final[dict[str, Callable[[Builder, DocumentPart, int, int], CoordinateMap]]] = {
    "identity": Builder._identity,
    "scale": Builder._scale,
    "translation": Builder._translation,
    "mapAxis": Builder._map_axis,
    "projectAxis": Builder._project_axis,
    "affine": Builder._affine,
    "rotation": Builder._rotation,
    "bijection": Builder._bijection,
    "sequence": Builder._sequence,
    "byDimension": Builder._by_dimension,
    "displacements": Builder._displacements,
    "coordinates": Builder._coordinates,
}
