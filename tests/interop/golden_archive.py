"""Parts that the scripts here share: values to write, the form of expected results, and archives of both.

A writer makes a directory with stores and, in ``expected``, what its own reader reads from them::

    STORE/...                    a hierarchy or an array
    expected/STORE/NODE.npy      elements of NumPy types
    expected/STORE/NODE.json     others, and Python objects; expected/STORE.json for an array without a name

An extension type is ``{"dtype": "bfloat16", "shape": [2], "bytes": "<base64>"}``, little-endian. Objects are
``{"dtype": "object", "shape": [2], "items": [...]}`` in C order, where ``{"b64": ...}`` is a byte string and
``{"arr": [...], "dtype": ...}`` an array.

``python golden_archive.py DIRECTORY ARCHIVE`` packs such a directory; the same files give the same archive. Existing
archives are never replaced. Runs with every NumPy since 1.26.
"""

import base64
import io
import json
import sys
import tarfile
from pathlib import Path

import numpy as np

SHAPE, CHUNKS = (7, 5), (4, 3)
TEXTS = ("", "a", "né", "漢字", "word𝄞", 'with "quotes" and \\')


def sample(dtype, shape=SHAPE):
    """Return elements including extremes, NaN, infinities, negative zero and NaT if the type has them."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape))
    steps = np.arange(count)
    if dtype.fields is not None:
        result = np.zeros(shape, dtype)
        for name in dtype.names:
            base, inner = dtype[name].base, dtype[name].shape
            result[name] = sample(base, (*shape, *inner))
        return result
    if dtype.kind == "b":
        values = steps % 3 == 0
    elif dtype.kind in "iu":
        values = (steps * 2654435761 // 7).astype(dtype)
        values[:2] = np.iinfo(dtype).min, np.iinfo(dtype).max
    elif dtype.kind == "f":
        values = (steps / 8 - 2).astype(dtype)
        values[:4] = np.nan, np.inf, -np.inf, -0.0
    elif dtype.kind == "c":
        values = (steps / 8 - 2 - 1j * steps).astype(dtype)
        values[:2] = complex(np.nan, 1), complex(-0.0, -np.inf)
    elif dtype.kind in "mM":
        values = (steps * 1000 - 5).astype("i8").view(np.dtype(dtype).newbyteorder("="))
        values[1] = np.array("NaT", dtype)
    elif dtype.kind == "S":
        values = np.array([b"x" * (i % (dtype.itemsize + 1)) for i in steps], dtype)
    elif dtype.kind == "U":
        values = np.array([TEXTS[i % len(TEXTS)][: dtype.itemsize // 4] for i in steps], dtype)
    elif dtype.kind == "V":
        values = (np.arange(count * dtype.itemsize) % 251).astype("u1").view(dtype)
    else:
        raise TypeError(dtype)
    return values.astype(dtype, copy=False).reshape(shape)


def objects(items, shape):
    """Return an array of Python objects, which may be arrays themselves."""
    array = np.empty(len(items), object)
    for i, item in enumerate(items):
        array[i] = item
    return array.reshape(shape)


def texts(shape=SHAPE):
    """Return an array of strings of any length."""
    return objects([TEXTS[i % len(TEXTS)] * (1 + i % 3) for i in range(int(np.prod(shape)))], shape)


def byte_strings(shape=SHAPE):
    """Return an array of byte strings of any length."""
    return objects([bytes(range(i % 7)) for i in range(int(np.prod(shape)))], shape)


def _to_json(item):
    if isinstance(item, bytes):
        return {"b64": base64.b64encode(item).decode()}
    if isinstance(item, np.ndarray):
        return {"arr": item.tolist(), "dtype": item.dtype.str}
    return item.item() if isinstance(item, np.generic) else item


def save_expected(directory, name, values):
    """Write a reader's result for the array ``STORE/NODE`` (or ``STORE``)."""
    values = np.asarray(values)
    target = Path(directory) / "expected" / name
    target.parent.mkdir(parents=True, exist_ok=True)
    shape = list(values.shape)
    if values.dtype.hasobject or values.dtype.kind == "T":
        document = {"dtype": "object", "shape": shape, "items": [_to_json(item) for item in values.ravel().tolist()]}
    elif values.dtype.isbuiltin == 2:
        data = base64.b64encode(values.tobytes()).decode()
        document = {"dtype": values.dtype.name, "shape": shape, "bytes": data}
    else:
        np.save(target.with_name(f"{target.name}.npy"), values)
        return
    target.with_name(f"{target.name}.json").write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")


def pack(directory, archive):
    """Pack a writer's directory."""
    directory, archive = Path(directory), Path(archive)
    if archive.exists():
        raise SystemExit(f"{archive} exists: golden data are added to, never replaced")
    archive.parent.mkdir(parents=True, exist_ok=True)
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    with tarfile.open(archive, "w:xz", preset=9) as target:
        for path in files:
            data = path.read_bytes()
            # Without a date or an owner.
            entry = tarfile.TarInfo(path.relative_to(directory).as_posix())
            entry.size = len(data)
            target.addfile(entry, io.BytesIO(data))


if __name__ == "__main__":
    pack(*sys.argv[1:])
