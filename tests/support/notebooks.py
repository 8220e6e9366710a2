"""Notebooks, run by a kernel. ``python -m support.notebooks NOTEBOOK...`` runs some and stores their outputs anew.

What differs from run to run is masked in the outputs: the folder is ``/data``, addresses in memory are zero, and there
are neither progress bars, which only slow work has, nor what is said when kernels are compiled.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import PIL.Image
from nbclient import NotebookClient

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]


def run(cells: Sequence[str], folder: Path, *, allow_errors: bool = False) -> list[list[dict[str, Any]]]:
    """Run code in a new kernel, and return the outputs of each cell."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in cells])
    _run(notebook, folder, allow_errors=allow_errors)
    return [cell["outputs"] for cell in notebook.cells]


def executed(path: Path, folder: Path) -> Any:
    """Return a notebook with the outputs of a run in a folder."""
    notebook = nbformat.read(path, as_version=4)
    metadata = dict(notebook.metadata)
    _run(notebook, folder)
    # Without the version of this Python.
    notebook.metadata = nbformat.from_dict(metadata)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = nbformat.from_dict(_masked(cell.outputs, folder))
    return notebook


def _run(notebook: Any, folder: Path, *, allow_errors: bool = False) -> None:
    client = NotebookClient(
        notebook,
        timeout=100,
        kernel_name="python3",
        allow_errors=allow_errors,
        record_timing=False,
        resources={"metadata": {"path": str(folder)}},
    )
    with tempfile.TemporaryDirectory() as settings:
        # The kernel finds this checkout, and leaves no history in the home of whoever runs this.
        paths = [str(ROOT), str(ROOT / "kernels"), os.environ.get("PYTHONPATH", "")]
        own = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "IPYTHONDIR": settings, "MPLCONFIGDIR": settings}
        client.execute(env={**os.environ, **own})


def _masked(outputs: Any, folder: Path) -> Any:
    text = json.dumps([output for output in outputs if not _is_passing(output)])
    for name in {str(folder), str(folder.resolve())}:
        text = text.replace(json.dumps(name)[1:-1], "/data")
    return json.loads(re.sub(r"\b0x[0-9a-f]{6,}\b", "0x0", text))


def _is_passing(output: Any) -> bool:
    """Return whether an output is a progress bar, or what gzarr says once after it was installed."""
    is_bar = "gzarr-progress" in output.get("data", {}).get("text/html", "")
    return is_bar or output.get("text", "").startswith("gzarr: compiling its kernels")


def texts(notebook: Any) -> list[list[str]]:
    """Return the texts of the outputs of each cell, without the sizes of compressed data."""
    return [[_comparable(text) for output in cell.outputs for text in _texts(output)] for cell in _code(notebook)]


def _code(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def _texts(output: Any) -> list[str]:
    if output.output_type == "stream":
        return [f"{output.name}: {output.text}"]
    return [f"{kind}: {text}" for kind, text in output.get("data", {}).items() if kind.startswith("text/")]


def _comparable(text: str) -> str:
    text = re.sub(r"[\d.]+ [KMG]?i?B(ytes)?, ratio [\d.]+", "SIZE, ratio RATIO", text)
    return re.sub(r"(?<=data:image/png;base64,)[A-Za-z0-9+/=]+", lambda data: _pixels(data[0]), text)


def _pixels(data: str) -> str:
    """Return a digest of a PNG file's pixels: versions of zlib compress them differently."""
    with PIL.Image.open(io.BytesIO(base64.b64decode(data))) as image:
        return hashlib.sha256(image.tobytes()).hexdigest()


def main(paths: Sequence[str]) -> None:
    """Run notebooks, and store them with their outputs."""
    for path in map(Path, paths):
        with tempfile.TemporaryDirectory() as folder:
            notebook = executed(path, Path(folder))
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")
        print(f"{path}: {len(_code(notebook))} cells, {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
