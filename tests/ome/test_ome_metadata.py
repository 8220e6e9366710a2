"""OME metadata: the suites and schemas of the specification, writing what was read, and documents of any content."""

from __future__ import annotations

import copy
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import ngff_suites

from gzarr.errors import ArgumentError, MetadataError
from gzarr.ome.metadata import (
    Acquisition,
    Axis,
    Dataset,
    Multiscale,
    OmeMetadata,
    PlateMetadata,
    Scale,
    SceneMetadata,
    Translation,
    UnknownTransform,
    WellEntry,
    parse,
    to_attributes,
)

VERSIONS = ("0.4", "0.5", "0.6")


def parsed(case):
    return parse(case.attributes, version=case.version, kind=case.kind)


def is_json(case):
    try:
        return isinstance(case.attributes, dict)
    except ValueError:
        return False


DOCUMENTS = [case for case in ngff_suites.cases() if is_json(case)]
IMAGES = {
    version: [c for c in DOCUMENTS if (c.version, c.kind, c.valid) == (version, "image", True)] for version in VERSIONS
}


class TestSuites:
    @pytest.mark.parametrize(("version", "suite"), [("0.4", "suites"), ("0.5", "suites"), ("0.6", "attributes")])
    def test_every_case_is_as_the_suite_says(self, version, suite):
        cases = [case for case in DOCUMENTS if (case.version, case.suite) == (version, suite)]
        assert len(cases) == {"0.4": 92, "0.5": 86, "0.6": 143}[version]
        wrong = {str(case): parsed(case).problems for case in cases if case.is_broken(parsed(case)) == case.valid}
        assert not wrong

    def test_hierarchies_of_0_6_are_as_their_schema_says(self):
        cases = [case for case in DOCUMENTS if case.suite == "hierarchies"]
        assert len(cases) == 83
        valid = {case: ngff_suites.validator("0.6", case.schema).is_valid(case.attributes) for case in cases}
        assert [case for case in cases if case.is_broken(parsed(case)) == valid[case]] == []
        # Ten cases have texts for input and output, which the other suite of the same version forbids.
        assert sum(case.valid != valid[case] for case in cases) == 10

    def test_what_a_file_in_the_wild_breaks_is_named(self):
        document = {"multiscales": [{"axes": [{"name": "y", "type": "space"}, {"name": "x", "type": "space"}],
                                     "datasets": [{"path": "0"}]}]}  # fmt: skip
        metadata = parse(document)
        (problem,) = [problem for problem in metadata.problems if problem.is_rule]
        assert str(problem) == "$.multiscales[0].datasets[0]: lacks 'coordinateTransformations'"
        assert metadata.multiscales[0].datasets == (Dataset("0"),)


def _places(value, place=()):
    yield place
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in items:
        yield from _places(item, (*place, name))


VALUES = [
    None,
    True,
    False,
    0,
    1,
    2,
    3,
    5,
    -1,
    2.0,
    0.5,
    "",
    "x",
    "space",
    "time",
    "scale",
    "0.4",
    "A/1",
    "a b",
    [],
    {},
]
VALUES += [[1, 1], [1, 2, 3], ["x"], [None], {"name": "x"}, {"path": "0"}, {"type": "scale", "scale": [1, 1]}]


def damaged(document, seed):
    """Return a document with one to three members replaced, erased, or repeated."""
    source = random.Random(seed)
    result = copy.deepcopy(document)
    for _ in range(source.randint(1, 3)):
        places = [place for place in _places(result) if place]
        if not places:
            break
        place = source.choice(places)
        holder = result
        for name in place[:-1]:
            holder = holder[name]
        action = source.randrange(4)
        if action == 0:
            del holder[place[-1]]
        elif action == 1 and isinstance(holder, list):
            holder.append(copy.deepcopy(source.choice(holder)))
        else:
            holder[place[-1]] = copy.deepcopy(source.choice(VALUES))
    return result


def _spaces_differ(document):
    """Return whether an axis is one of space to the schemas of 0.4 and 0.5 only: its type or its unit is wrong."""
    for place in _places(document):
        if place and place[-1] == "axes":
            holder = document
            for name in place:
                holder = holder[name]
            for axis in holder if isinstance(holder, list) else ():
                if isinstance(axis, dict) and ("type" not in axis or not isinstance(axis.get("unit", ""), str)):
                    return True
    return False


class TestSchemas:
    @pytest.mark.parametrize("version", VERSIONS)
    @settings(max_examples=400, deadline=None, derandomize=True)
    @given(data=st.data())
    def test_damaged_documents(self, version, data):
        """What a schema refuses breaks a rule; what breaks a rule of the schemas is refused by them."""
        case = data.draw(st.sampled_from([case for case in DOCUMENTS if case.version == version]))
        document = damaged(case.attributes, data.draw(st.integers(0, 2**32)))
        valid = ngff_suites.validator(version, case.schema).is_valid(document)
        metadata = parse(document, version=version, kind=case.kind)
        levels = {problem.level for problem in metadata.problems}
        strict = {"strict"} if case.schema.startswith("strict_") else set()
        if not valid and not _spaces_differ(document):
            assert levels & {"schema", "text", *strict}, document
        if valid:
            assert not levels & {"schema", *strict}, (document, metadata.problems)


class TestWriting:
    @pytest.mark.parametrize("version", ["0.4", "0.5"])
    def test_what_was_read_is_written(self, version):
        """Documents that are valid, also as the other version, which its schema takes."""
        count = 0
        for case in DOCUMENTS:
            if case.version not in ("0.4", "0.5") or not case.valid:
                continue
            metadata = parsed(case)
            kinds = [type(t) for image in metadata.multiscales for d in image.datasets for t in d.transforms]
            attributes = to_attributes(metadata, version)
            again = parse(attributes, version=version, kind=case.kind)
            assert again == OmeMetadata(**{**_fields(metadata), "version": version}), case
            if case.kind != "image" or len(kinds):
                # Version 0.4 needs members of channels that 0.5 does not.
                refused = list(ngff_suites.validator(version, case.schema).iter_errors(attributes))
                assert not refused or "channels" in str(refused[0].absolute_path), (case, refused[0].message)
            count += 1
        assert count == 43

    def test_example(self):
        axes = (Axis("c", "channel"), Axis("y", "space", "micrometer"), Axis("x", "space", "micrometer"))
        transforms = Scale((1.0, 0.5, 0.5)), Translation((0.0, 0.25, 0.25))
        image = Multiscale(axes, (Dataset("0", transforms),), "cells")
        assert to_attributes(OmeMetadata("0.5", (image,))) == {
            "ome": {
                "version": "0.5",
                "multiscales": [
                    {
                        "name": "cells",
                        "axes": [
                            {"name": "c", "type": "channel"},
                            {"name": "y", "type": "space", "unit": "micrometer"},
                            {"name": "x", "type": "space", "unit": "micrometer"},
                        ],
                        "datasets": [
                            {
                                "path": "0",
                                "coordinateTransformations": [
                                    {"type": "scale", "scale": [1.0, 0.5, 0.5]},
                                    {"type": "translation", "translation": [0.0, 0.25, 0.25]},
                                ],
                            }
                        ],
                    }
                ],
            }
        }

    @pytest.mark.parametrize("version", ["0.4", "0.5"])
    def test_a_plate_that_is_not_square(self, version):
        wells = (WellEntry("A/3", 0, 2), WellEntry("B/1", 1, 0))
        plate = PlateMetadata(("A", "B"), ("1", "2", "3"), wells, (Acquisition(4, "first", 2),), "screen", 2)
        metadata = OmeMetadata(version, plate=plate)
        attributes = to_attributes(metadata)
        written = (attributes if version == "0.4" else attributes["ome"])["plate"]
        assert written["wells"][0] == {"path": "A/3", "rowIndex": 0, "columnIndex": 2}
        again = parse(attributes)
        assert (again, again.problems) == (metadata, ())

    def test_what_cannot_be_written_is_refused(self):
        axes = (Axis("y", "space"), Axis("x", "space"))
        image = Multiscale(axes, (Dataset("0", (UnknownTransform("affine", {}),)),))
        for metadata, version, message in [
            (OmeMetadata("0.4", (image,)), None, "no transformation of type 'affine'"),
            (OmeMetadata("0.4", (Multiscale(None, (Dataset("0"),)),)), None, "with its axes"),
            (OmeMetadata("0.6"), None, "versions 0.4 and 0.5"),
            (OmeMetadata("0.6", scene=SceneMetadata()), "0.5", "no scenes"),
            (
                OmeMetadata("0.4", (Multiscale(axes, (Dataset("0", (Translation((1, 1)), Scale((1, 1)))),)),)),
                None,
                "expected a scale, and perhaps a translation",
            ),
        ]:
            with pytest.raises(ArgumentError, match=message):
                to_attributes(metadata, version)


def _fields(metadata):
    names = ("multiscales", "omero", "image_label", "labels", "plate", "well", "layout", "series", "scene")
    return {name: getattr(metadata, name) for name in names}


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
NAMES = st.sampled_from(
    (
        *("ome", "version", "multiscales", "axes", "datasets", "path", "name", "type"),
        *("unit", "plate", "wells", "rows", "columns", "well", "images", "omero"),
        *("channels", "window", "image-label", "colors", "labels", "series", "scene", "coordinateTransformations"),
        *("coordinateSystems", "scale", "translation", "input", "output", "transformations"),
    )
)
ANY = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES | st.text(max_size=4), inner, max_size=5)
)


class TestAnyDocument:
    @settings(max_examples=300, deadline=None, derandomize=True)
    @given(document=st.dictionaries(NAMES, ANY, max_size=5), version=st.sampled_from([None, *VERSIONS, "0.1", "0.3"]))
    def test_any_json(self, document, version):
        metadata = parse(document, version=version, zarr_format=3)
        assert all(isinstance(error, MetadataError) for error in metadata.errors.values())

    @settings(max_examples=200, deadline=None, derandomize=True)
    @given(case=st.sampled_from(DOCUMENTS), seed=st.integers(0, 2**32))
    def test_damaged_documents_of_an_unknown_version(self, case, seed):
        metadata = parse(damaged(case.attributes, seed))
        assert set(metadata.errors) <= {"multiscales", "omero", "image-label", "labels", "plate", "well", "series",
                                        "bioformats2raw.layout", "scene"}  # fmt: skip

    @pytest.mark.parametrize("number", [10**400, math.inf, -math.inf, math.nan, True])
    def test_numbers_that_are_none(self, number):
        document = copy.deepcopy(IMAGES["0.5"][0].attributes)
        document["ome"]["multiscales"][0]["datasets"][0]["coordinateTransformations"][0]["scale"] = [number] * 3
        (image,) = parse(document).multiscales
        assert isinstance(image.datasets[0].transforms[0], UnknownTransform)

    def test_the_number_of_problems_is_bounded(self):
        metadata = parse({"plate": {"rows": [{"name": "A"}], "columns": [{"name": "1"}], "wells": [{}] * 100_000}})
        assert len(metadata.problems) == 1000
        assert metadata.plate.wells == ()

    def test_transformations_that_are_nested_deeply(self):
        nested = {"type": "identity"}
        for _ in range(100):
            nested = {"type": "bijection", "forward": nested, "inverse": {"type": "identity"}}
        document = copy.deepcopy(next(case for case in IMAGES["0.6"]).attributes)
        nested |= {"input": {"name": "a"}, "output": {"name": "b"}}
        document["ome"]["multiscales"][0]["coordinateTransformations"] = [nested]
        problems = parse(document).problems
        assert any("inside each other" in problem.text for problem in problems)


class TestOldVersions:
    def test_0_3_names_axes_by_texts(self):
        document = {"multiscales": [{"version": "0.3", "axes": ["t", "y", "x"], "datasets": [{"path": "0"}]}]}
        metadata = parse(document, zarr_format=2)
        assert metadata.version == "0.3"
        assert metadata.multiscales[0].axes == (Axis("t", "time"), Axis("y", "space"), Axis("x", "space"))
        assert not [problem for problem in metadata.problems if problem.is_rule]

    @pytest.mark.parametrize("version", ["0.1", "0.2"])
    def test_older_ones_have_none(self, version):
        document = {"multiscales": [{"version": version, "datasets": [{"path": "0"}, {"path": "1"}]}]}
        metadata = parse(document, zarr_format=2)
        assert metadata.multiscales[0].axes is None
        assert not [problem for problem in metadata.problems if problem.is_rule]

    def test_0_4_in_zarr_3_is_noted(self):
        metadata = parse(IMAGES["0.4"][0].attributes, zarr_format=3)
        assert "version 0.4 is for version 2 of Zarr" in str(metadata.problems[0])
        assert metadata.multiscales
