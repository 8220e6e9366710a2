"""Write OME-Zarr images and plates with ome-zarr-py, ngff-zarr and iohub: ``python write_ome_zarr.py DIRECTORY``.

``expected/STORE.json`` is what ngff-zarr's reader says about each image: axes, and scale, translation and file of the
elements of each level.
"""

import json
import sys
import warnings
from pathlib import Path

import iohub.ngff
import ngff_zarr
import numpy as np
import zarr
from ome_zarr import writer
from ome_zarr.format import FormatV04, FormatV05

FORMATS = {"0.4": FormatV04(), "0.5": FormatV05()}
SHAPE = (2, 2, 3, 14, 18)
DATA = (np.arange(np.prod(SHAPE)).reshape(SHAPE) * 7 % 4001).astype("u2")
CHANNELS = ("DAPI", "GFP")


def with_ome_zarr_py(directory, version):
    group = zarr.open_group(directory / f"ome-zarr-py-{version}", mode="w", zarr_format=FORMATS[version].zarr_format)
    axes = [{"name": "t", "type": "time", "unit": "second"}, {"name": "c", "type": "channel"}]
    axes += [{"name": name, "type": "space", "unit": "nanometer"} for name in "zyx"]
    shown = {"start": 0, "end": 4000, "min": 0, "max": 65535}
    channels = [{"label": label, "color": "00FF00", "window": shown, "active": True} for label in CHANNELS]
    writer.write_image(
        DATA,
        group,
        axes=axes,
        fmt=FORMATS[version],
        scale_factors=[2],
        scale={"t": 0.5, "c": 1, "z": 1000.0, "y": 250.0, "x": 250.0},
    )
    # Its argument for this has changed with every release.
    attributes = dict(group.attrs)
    holder = attributes if version == "0.4" else attributes["ome"]
    holder["omero"] = {"channels": channels}
    group.attrs.update(attributes)
    writer.write_labels((DATA[0, 0] > 2000).astype("u1"), group, "nuclei", axes="zyx", fmt=FORMATS[version])


def plate_with_ome_zarr_py(directory):
    group = zarr.open_group(directory / "ome-zarr-py-plate", mode="w", zarr_format=3)
    writer.write_plate_metadata(group, ["A", "B"], ["1", "2", "3"], ["A/1", "B/3"], name="demo")
    for number, well in enumerate(("A/1", "B/3")):
        inside = group.require_group(well)
        writer.write_well_metadata(inside, ["0", "1"])
        for field in range(2):
            image = DATA[number, field]
            writer.write_image(image, inside.require_group(str(field)), axes="zyx", scale_factors=[2])


def with_ngff_zarr(directory, version):
    image = ngff_zarr.to_ngff_image(
        DATA[0, 0],
        dims=["z", "y", "x"],
        scale={"z": 2.0, "y": 0.5, "x": 0.25},
        translation={"z": 0.0, "y": 10.0, "x": 20.0},
        axes_units=dict.fromkeys("zyx", "micrometer"),
    )
    scales = ngff_zarr.to_multiscales(image, scale_factors=[2], method=ngff_zarr.Methods.ITKWASM_BIN_SHRINK)
    ngff_zarr.to_ngff_zarr(str(directory / f"ngff-zarr-{version}"), scales, version=version)


def with_iohub(directory, version):
    path = directory / f"iohub-{version}"
    scale = iohub.ngff.TransformationMeta(type="scale", scale=[1, 1, 2.0, 0.5, 0.5])
    with iohub.ngff.open_ome_zarr(
        path, layout="fov", mode="w-", channel_names=list(CHANNELS), version=version
    ) as found:
        found.create_image("0", DATA, transform=[scale])


def plate_with_iohub(directory):
    path = directory / "iohub-plate"
    with iohub.ngff.open_ome_zarr(path, layout="hcs", mode="w-", channel_names=list(CHANNELS), version="0.4") as plate:
        for number, where in enumerate((("A", "1", "0"), ("A", "1", "1"), ("H", "12", "0"))):
            plate.create_position(*where).create_image("0", DATA + number)


def expect(directory, store):
    """Save what ngff-zarr's reader says."""
    levels = []
    for level, image in enumerate(ngff_zarr.from_ngff_zarr(str(directory / store)).images):
        name = f"{store.replace('/', '-')}-{level}.npy"
        (directory / "expected").mkdir(exist_ok=True)
        np.save(directory / "expected" / name, image.data.compute())
        units = image.axes_units or {}
        levels.append(
            {
                "file": name,
                "axes": list(image.dims),
                "scale": [image.scale.get(dim, 1.0) for dim in image.dims],
                "translation": [image.translation.get(dim, 0.0) for dim in image.dims],
                "units": [units.get(dim) for dim in image.dims],
            }
        )
    document = {"store": store, "levels": levels}
    (directory / "expected" / f"{store.replace('/', '-')}.json").write_text(json.dumps(document))


def main(directory):
    warnings.simplefilter("ignore")
    directory.mkdir()
    for version in ("0.4", "0.5"):
        with_ome_zarr_py(directory, version)
        with_iohub(directory, version)
        with_ngff_zarr(directory, version)
    with_ngff_zarr(directory, "0.6")
    plate_with_ome_zarr_py(directory)
    plate_with_iohub(directory)
    images = [path.name for path in directory.iterdir() if "plate" not in path.name and path.name != "expected"]
    images += ["ome-zarr-py-0.5/labels/nuclei", "ome-zarr-py-plate/B/3/1", "iohub-plate/H/12/0"]
    for store in images:
        expect(directory, store)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
