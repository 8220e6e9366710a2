"""Images of OME-Zarr 0.6 with coordinate systems, and what relates these, written without :mod:`gzarr.ome`."""

from __future__ import annotations

from typing import Any

import numpy as np

import gzarr


def axes(names: str) -> list[dict[str, Any]]:
    return [{"name": name, "type": "space", "unit": "micrometer"} for name in names]


def system(name: str, names: str) -> dict[str, Any]:
    return {"name": name, "axes": axes(names)}


def put_image(
    values: dict[str, bytes],
    path: str,
    *,
    names: str = "yx",
    scale: tuple[float, ...] = (2.0, 0.5),
    further: list[Any] | None = None,
    systems: list[Any] | None = None,
    data: Any = None,
) -> None:
    """Put an image of version 0.6 into a store, whose levels are in the coordinate system "physical".

    Without data, it has 8 elements along each axis, which are 0. Level 1 has every second element of ``data``; its
    document says that it has the means of two.
    """
    whole = np.zeros((8,) * len(names), "u1") if data is None else data
    group = gzarr.open_group(values, path=path, mode="a")
    levels = []
    for level in range(2):
        group.create_array(str(level), data=whole[(slice(None, None, 1 << level),) * whole.ndim])
        factor = 1 << level
        steps = [
            {"type": "scale", "scale": [size * factor for size in scale]},
            {"type": "translation", "translation": [size * (factor - 1) / 2 for size in scale]},
        ]
        only = {
            "type": "sequence",
            "transformations": steps,
            "input": {"path": str(level)},
            "output": {"name": "physical"},
        }
        levels.append({"path": str(level), "coordinateTransformations": [only]})
    multiscale: dict[str, Any] = {
        "coordinateSystems": [system("physical", names), *(systems or [])],
        "datasets": levels,
    }
    if further:
        multiscale["coordinateTransformations"] = further
    group.attrs["ome"] = {"version": "0.6rc0", "multiscales": [multiscale]}


def link(source: Any, target: Any, **members: Any) -> dict[str, Any]:
    def end(name: Any) -> dict[str, str]:
        return {"name": name} if isinstance(name, str) else {"path": name[0], "name": name[1]}

    return {"input": end(source), "output": end(target), **members}
