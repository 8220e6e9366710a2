"""The examples in docs/integrations.md, and those for other libraries in README.md, run as they stand.

Each section is one test: its code blocks, in their order, in an empty directory with what they need. ``device="cuda"``
is a simulated device.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr
from support import devices
from zarr.core.config import config

import gzarr

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[1]
Names = dict[str, Any]


def _volume() -> np.ndarray[Any, Any]:
    return np.random.default_rng(5).random((200, 64, 64), "f4")


def _stored_volume() -> np.ndarray[Any, Any]:
    stored: np.ndarray[Any, Any] = gzarr.open_array("volume.zarr", device="cpu")[...]
    return stored


# -- what examples need, and what they did: a function that makes files and names, and checks the names that are left


def _zarr(names: Names) -> Iterator[None]:
    data = np.random.default_rng(5).random((30, 50), "f4")
    zarr.create_array("temperature.zarr", data=data, chunks=(10, 20))
    yield
    np.testing.assert_array_equal(names["b"], data[10:20, ::5])
    assert (zarr.open_array("temperature.zarr")[0] == data[10, 0]).all()
    assert type(names["a"].async_array.codec_pipeline) is gzarr.integrations.zarr.CodecPipeline  # type: ignore[attr-defined]


def _zarr_in_readme(names: Names) -> Iterator[None]:
    import gzarr.integrations.zarr

    data = _volume()
    zarr.create_array("volume.zarr", data=data, chunks=(64, 64, 64))
    names.update(zarr=zarr, gzarr=gzarr)
    yield
    np.testing.assert_array_equal(names["x"], data[100:200])
    assert config.get("codec_pipeline.path") == "gzarr.integrations.zarr.CodecPipeline"


def _torch_and_jax(names: Names) -> Iterator[None]:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    data = _volume()
    zarr.create_array("volume.zarr", data=data, chunks=(64, 64, 64))
    zarr.create_array("float64.zarr", data=np.array([1 + 1e-12, 2.0]))
    names["buffer"] = torch.zeros(16, 64, 64)
    yield
    doubled = data[:16, ::2] * 2
    for name, expected in {"t": data[:16, ::2], "u": data[:16, ::2], "x": doubled, "y": doubled}.items():
        np.testing.assert_array_equal(np.asarray(names[name]), expected)
    np.testing.assert_array_equal(names["buffer"][:, ::2].numpy(), doubled)
    doubled[0] = 1
    stored = _stored_volume()
    np.testing.assert_array_equal(stored[:16, ::2], doubled)
    np.testing.assert_array_equal(stored[16:200], data[16:])
    np.testing.assert_array_equal(stored[200:], 0)
    assert names["z"].tolist() == [1 + 1e-12, 2.0]


def _first_rows_are_replaced(names: Names, result: str) -> Iterator[None]:
    data = _volume()
    zarr.create_array("volume.zarr", data=data, chunks=(64, 64, 64))
    names["gzarr"] = gzarr
    yield
    np.testing.assert_array_equal(np.asarray(names[result]), data)
    np.testing.assert_array_equal(_stored_volume(), np.concatenate([data[10:20], data[10:]]))


def _torch_in_readme(names: Names) -> Iterator[None]:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    return _first_rows_are_replaced(names, "t")


def _jax_in_readme(names: Names) -> Iterator[None]:
    return _first_rows_are_replaced(names, "x")


def _xarray_in_readme(names: Names) -> Iterator[None]:
    import xarray as xr
    from xarray.backends import common, plugins

    from gzarr.integrations.xarray import GzarrBackendEntrypoint

    values = np.arange(60, dtype="f4").reshape(3, 4, 5)
    with pytest.MonkeyPatch.context() as patch:
        # As where gzarr's entry points are installed.
        patch.setitem(common.BACKEND_ENTRYPOINTS, "gzarr", (None, GzarrBackendEntrypoint))
        plugins.list_engines.cache_clear()
        xr.Dataset({"t2m": (("time", "y", "x"), values)}).to_zarr("era5.zarr", zarr_format=2)
        names["xr"] = xr
        yield
        plugins.list_engines.cache_clear()
    np.testing.assert_array_equal(names["field"].data, values[0])


def _dask_in_readme(names: Names) -> Iterator[None]:
    data = _volume()
    zarr.create_array("volume.zarr", data=data, chunks=(64, 64, 64))
    names["gzarr"] = gzarr
    yield
    np.testing.assert_array_equal(zarr.open_array("doubled.zarr")[...], data * 2)


#: By page and heading of the section.
SECTIONS: dict[tuple[str, str], Callable[[Names], Iterator[None]]] = {
    ("docs/integrations.md", "zarr-python"): _zarr,
    ("docs/integrations.md", "PyTorch and JAX"): _torch_and_jax,
    ("README.md", "zarr-python"): _zarr_in_readme,
    ("README.md", "xarray"): _xarray_in_readme,
    ("README.md", "dask"): _dask_in_readme,
    ("README.md", "PyTorch"): _torch_in_readme,
    ("README.md", "JAX"): _jax_in_readme,
}

#: Run by tests of their own, integrations/test_xarray_docs.py and test_dask_page.py: xarray, dask.
ELSEWHERE = {("docs/integrations.md", "xarray"), ("docs/integrations.md", "dask")}

# -- running them


def _blocks(page: str) -> dict[str, list[str]]:
    """Return the Python code of each section of a page, each behind as many empty lines as there are above it."""
    text = (ROOT / page).read_text()
    found: dict[str, list[str]] = {}
    for block in re.finditer(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        heading = re.findall(r"^#+ (.*)$", text[: block.start()], re.MULTILINE)[-1]
        found.setdefault(heading, []).append("\n" * text.count("\n", 0, block.start(1)) + block[1])
    return found


def _sections() -> list[Any]:
    """Return page and heading of each section with examples: those of one library, and the list in README.md."""
    found = [("docs/integrations.md", heading) for heading in _blocks("docs/integrations.md")]
    # test_readme.py has the first.
    found += [("README.md", heading) for heading in list(_blocks("README.md"))[1:]]
    return [pytest.param(*section, id="-".join(section)) for section in found if section not in ELSEWHERE]


@pytest.mark.parametrize(("page", "heading"), _sections())
def test_examples(page: str, heading: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (page, heading) in SECTIONS, "say in SECTIONS what the examples of this section need"
    monkeypatch.chdir(tmp_path)
    names: Names = {"__name__": "__main__"}
    setting = {key: config.get(key, None) for key in ("codec_pipeline.path", "gzarr.strict")}
    # Examples may change zarr-python's configuration: this restores it.
    codes = _blocks(page)[heading]
    # Only then, as "auto" would be that device.
    kind = "simulated" if any('"cuda' in code for code in codes) else "cpu"
    with config.set(setting), devices.use(kind):
        around = SECTIONS[page, heading](names)
        next(around)
        for code in codes:
            # With the page's own line numbers, which show in tracebacks.
            exec(compile(code, str(ROOT / page), "exec"), names)
        assert next(around, "done") == "done"


def test_sections_have_examples() -> None:
    for page, heading in {*SECTIONS, *ELSEWHERE}:
        assert _blocks(page)[heading], (page, heading)


def test_examples_are_short() -> None:
    """As README.md promises: ten lines at most."""
    for page in ("README.md", "docs/integrations.md"):
        for heading, codes in list(_blocks(page).items())[page == "README.md" :]:
            for code in codes:
                assert len(code.strip().splitlines()) <= 10, (page, heading)
