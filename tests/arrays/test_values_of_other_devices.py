"""Arrays of CuPy that are brought to host memory while another device is the thread's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support import devices as tested

import gzarr
from gzarr.arrays.host_copies import host_copy
from gzarr.blocks.scratch import OnHost
from gzarr.engines.cuda import devices
from gzarr.ome import coloring
from gzarr.sparse import block

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.watched_device import WatchedDevice

cupy = pytest.importorskip("cupy")

VALUES = np.arange(12, dtype="f4").reshape(3, 4)
WANTED = VALUES + 1


@pytest.fixture
def other() -> Iterator[WatchedDevice]:
    """The second of two devices; the first one is the thread's."""
    with tested.on_host():
        yield devices.get_device("cuda:1")  # type: ignore[misc]


def _written(array: Any) -> Any:
    target = gzarr.create_array({}, data=np.zeros_like(VALUES), device="cpu")
    target[...] = array
    return target[...]


def _written_beside_a_device(array: Any) -> Any:
    store = gzarr.create_array({}, data=np.zeros_like(VALUES), device="cpu").store
    gzarr.open_array(store, mode="r+", device="cuda:0")[...] = array
    return gzarr.open_array(store, device="cpu")[...]


def _made(array: Any) -> Any:
    return gzarr.create_array({}, data=array, device="cpu")[...]


def _with_levels(array: Any) -> Any:
    store = gzarr.MemoryStore()
    gzarr.ome.create(store, array, axes="yx", levels=2)
    image = gzarr.ome.open(store, device="cpu")
    np.testing.assert_array_equal(image.levels[1].array[:1], WANTED[:2].reshape(1, 2, 2, 2).mean((1, 3)))
    return image.levels[0].array[...]


def _of_blocks(array: Any) -> Any:
    return OnHost(lambda block: block)(array, block_info=None)  # type: ignore[arg-type]


WAYS: dict[str, Callable[[Any], Any]] = {
    "blocks": _of_blocks,
    "created": _made,
    "images": coloring.on_host,
    "images with levels": _with_levels,
    "written": _written,
    "written beside a device": _written_beside_a_device,
}


def _matrix(array: Any) -> Any:
    # This format is CuPy's own: others need cuSPARSE.
    from cupyx.scipy.sparse import coo_matrix

    rows, columns = (cupy.asarray(places.astype("i4")) for places in np.nonzero(WANTED))
    return coo_matrix((array.reshape(-1), (rows, columns)), shape=VALUES.shape)


def _check(
    other: WatchedDevice, copied: Callable[[Any], Any], made: Callable[[Any], Any] = lambda array: array
) -> None:
    with other:
        array, added = cupy.asarray(VALUES), cupy.asarray(np.ones_like(VALUES))
        value = made(array)
        cupy.cuda.Device().synchronize()
        stream = cupy.cuda.Stream(non_blocking=True)
        stream.use()
    try:
        with other.held_back(other.as_stream(stream)) as gate:
            with other:
                cupy.add(array, added, out=array)
            assert cupy.cuda.Device().id == 0
            gate.open_after(0.1)
            np.testing.assert_array_equal(copied(value), WANTED)
            assert gate.passed
        assert cupy.cuda.Device().id == 0
    finally:
        with other:
            cupy.cuda.Stream.null.use()


@pytest.mark.parametrize("way", WAYS)
def test_they_are_copied_when_their_own_device_has_made_them(way: str, other: WatchedDevice) -> None:
    _check(other, WAYS[way])


def test_matrices_too(other: WatchedDevice) -> None:
    _check(other, lambda matrix: block.on_host(matrix, "csr", "X").toarray(), _matrix)


def test_arrays_that_tell_no_device() -> None:
    class Other:
        def get(self) -> Any:
            return VALUES

    assert host_copy(Other()) is VALUES


def test_arrays_that_tell_the_name_of_a_device() -> None:
    class Data:
        device = "cpu"

    class Other:
        data = Data()

        def get(self) -> Any:
            return VALUES

    assert host_copy(Other()) is VALUES
