"""Opening an array does not initialise CUDA; forked processes; with libraries that stand in for the driver."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.stand_in_driver import StandIn

import gzarr
from gzarr.engines.cuda import driver
from gzarr.engines.cuda.driver import Gpu, Machine, Visible

if TYPE_CHECKING:
    from pathlib import Path

if sys.platform != "linux":
    pytest.skip("the driver's libraries have these names on Linux", allow_module_level=True)

VALUES = np.arange(5000, dtype="<i4").reshape(50, 100)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> StandIn:
    pytest.importorskip("numba_cuda")
    pytest.importorskip("nvidia.libnvcomp")
    return StandIn(tmp_path_factory.mktemp("driver"))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("arrays") / "a.zarr"
    codecs = [
        {"name": "bytes", "configuration": {"endian": "little"}},
        {"name": "zstd", "configuration": {"level": 1, "checksum": False}},
    ]
    gzarr.create_array(path, data=VALUES, chunks=(10, 100), codecs=codecs, device="cpu")
    return str(path)


#: At the start of each process: ``cu_init`` is what CuPy, PyTorch or anybody else does in the end.
START = """
import ctypes, multiprocessing, os, pickle, sys, traceback, warnings
import numpy as np
import gzarr
from gzarr.engines.cuda.devices import get_device

def cu_init():
    assert ctypes.CDLL("libcuda.so.1").cuInit(0) == 0

def in_a_child(work):
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        try:
            work()
            sys.stdout.flush()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

def refused(call):
    try:
        call()
    except gzarr.DeviceError as error:
        assert '"spawn"' in str(error), error
        assert 'device="cpu"' in str(error), error
        return True
    return False
"""


# -- nothing initialises CUDA before it is used


def test_opening_and_showing_an_array_does_not_initialise_cuda(machine: StandIn, path: str) -> None:
    code = f"""
path = {path!r}
gzarr.open(path), gzarr.open(path, device="cuda")
assert "cupy" not in sys.modules
for device in ("auto", "cuda", "cuda:1"):
    a = gzarr.open(path, device=device)
    print(a.device, a.decode_path)
    repr(a), a.info, a._repr_html_(), pickle.loads(pickle.dumps(a)) == a, a.__dlpack_device__()
gzarr.open_array(path), gzarr.open_group(os.path.dirname(path), mode="r")
try:
    gzarr.open(path, device="cuda:2")
except gzarr.DeviceError as error:
    print(error)
"""
    lines = machine.run(START + code).splitlines()
    assert [line.partition(" ")[0] for line in lines[:3]] == ["cuda:0", "cuda:0", "cuda:1"]
    assert all(line.partition(" ")[2].startswith("cuda") and "zstd" in line for line in lines[:3])
    assert lines[3] == "there is no device 'cuda:2': CUDA sees 2, numbered from 0"
    assert not machine.callers("cuInit")
    # NVML was asked for the number, and let go of; once.
    assert len(machine.callers("nvmlInit_v2")) == len(machine.callers("nvmlShutdown")) == 1


def test_the_current_device_is_cupys_once_cuda_is_in_use(machine: StandIn, path: str) -> None:
    code = f"cu_init(); a = gzarr.open({path!r}); print(a.device)"
    # The stand-in for CuPy has cuda:1 as its current device.
    assert machine.run(START + code) == "cuda:1\n"
    assert not machine.callers("nvmlInit_v2")


#: Of the driver and of the machine that stands in, and the device that "auto" is then.
PARTED = {"STAND_IN_PARTITIONED": "0", "STAND_IN_PARTS": "2"}
MACHINES: list[tuple[dict[str, str], str]] = [
    ({}, "cuda:0"),
    ({"CUDA_VISIBLE_DEVICES": ""}, "cpu"),
    ({"CUDA_VISIBLE_DEVICES": "-1"}, "cpu"),
    ({"CUDA_VISIBLE_DEVICES": "1"}, "cuda:0"),
    ({"CUDA_VISIBLE_DEVICES": "GPU-1"}, "cuda:0"),
    ({"CUDA_VISIBLE_DEVICES": "GPU-2"}, "cpu"),
    # The driver's libraries are there, the driver is not: nodes of a cluster without GPUs.
    ({"STAND_IN_NVML_STATUS": "9"}, "cpu"),
    # Refused by a batch system.
    ({"STAND_IN_REFUSED": "0", "CUDA_VISIBLE_DEVICES": "1"}, "cpu"),
    ({"STAND_IN_REFUSED": "0", "CUDA_VISIBLE_DEVICES": "0"}, "cuda:0"),
    (PARTED, "cuda:0"),
    ({**PARTED, "CUDA_VISIBLE_DEVICES": "MIG-0-1-abc"}, "cuda:0"),
    ({**PARTED, "CUDA_VISIBLE_DEVICES": "MIG-0-2-abc"}, "cpu"),
    ({**PARTED, "STAND_IN_PARTS": "0", "CUDA_VISIBLE_DEVICES": "0"}, "cpu"),
]


def test_auto_counts_the_devices_that_cuda_would_show(machine: StandIn, path: str) -> None:
    code = f"""
from gzarr.engines.cuda import devices, driver
for variables in {[variables for variables, _ in MACHINES]}:
    os.environ.update(variables)
    devices._complete = devices._visible = None
    driver.machine.cache_clear()
    print(gzarr.open({path!r}).device)
    for name in variables:
        del os.environ[name]
"""
    found = machine.run(START + code).splitlines()
    assert list(zip((variables for variables, _ in MACHINES), found, strict=True)) == MACHINES
    assert not machine.callers("cuInit")


def test_where_nothing_tells_a_process_of_its_own_asks_cuda(machine: StandIn) -> None:
    code = """
from pathlib import Path
from gzarr.engines.cuda import driver
driver._NVML, driver._MODULE = "libno-such-library.so", Path("/nowhere")
print(os.getpid())
print(driver.visible())
print(driver.visible() == driver.visible(), driver.is_initialised())
sys.frozen = True
print(driver.visible())
"""
    pid, *found = machine.run(START + code).splitlines()
    assert found == [f"{Visible(2)}", "True False", f"{Visible(1, exact=False)}"]
    assert len(machine.callers("cuInit")) == 3
    assert pid not in machine.callers("cuInit")
    # NVML that does not work, whatever the reason, tells nothing.
    code = "from gzarr.engines.cuda import driver; print(driver.visible())"
    assert machine.run(code, STAND_IN_NVML_STATUS="999") == f"{Visible(2)}\n"
    assert len(machine.callers("cuInit")) == 1
    # That no device is wanted needs no process.
    assert machine.run(code, STAND_IN_NVML_STATUS="999", CUDA_VISIBLE_DEVICES="") == f"{Visible(0)}\n"
    assert not machine.callers("cuInit")


def test_the_kernels_module_tells_what_containers_were_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for i, minor in enumerate((0, 1, 2)):
        folder = tmp_path / "gpus" / f"0000:0{i}:00.0"
        folder.mkdir(parents=True)
        text = f"Model: \t\t NVIDIA H200\nIRQ:   \t\t 16\nGPU UUID: \t GPU-{i}-abc\nDevice Minor: \t {minor}\n"
        (folder / "information").write_text(text)
    (tmp_path / "release").write_text("580.65.06\n")
    (tmp_path / "nvidia1").touch()
    monkeypatch.setattr(driver, "_MODULE", tmp_path / "gpus")
    monkeypatch.setattr(driver, "_RELEASE", tmp_path / "release")
    monkeypatch.setattr(driver, "_DEV", tmp_path)
    assert driver._by_module() == Machine((Gpu("NVIDIA H200", "GPU-1-abc"),), "580.65.06")
    monkeypatch.setattr(driver, "_MODULE", tmp_path / "none")
    assert driver._by_module() is None


WHOLE = (Gpu("a", "GPU-11-x"), Gpu("b", "GPU-12-x"), Gpu("c", "GPU-2-x"))
PARTS = (WHOLE[0], replace(WHOLE[1], slices=("MIG-5-x", "MIG-6-x")), replace(WHOLE[2], slices=()))


@pytest.mark.parametrize(
    ("gpus", "chosen", "count"),
    [
        (WHOLE, None, 3),
        ((), None, 0),
        (WHOLE, "", 0),
        (WHOLE, "0", 1),
        (WHOLE, "2,0", 2),
        (WHOLE, " 1 , 2 ", 2),
        # What comes behind the first that is none does not count.
        (WHOLE, "0,3,1", 1),
        (WHOLE, "0,-1,1", 1),
        (WHOLE, "-1", 0),
        (WHOLE, "NoDevFiles", 0),
        (WHOLE, "all", 0),
        (WHOLE, "1gpu2,2ampere", 2),
        (WHOLE, "99999999999999999999", 0),
        (WHOLE, "0,0", 0),
        (WHOLE, "0,,1", 1),
        (WHOLE, "GPU-2", 1),
        (WHOLE, "GPU-12-x,GPU-11-x", 2),
        # Which of two it is, nobody can tell.
        (WHOLE, "GPU-1", 0),
        (WHOLE, "GPU-2,GPU-1,GPU-11", 1),
        (WHOLE, "GPU-2,GPU-2-x", 0),
        (WHOLE, "gpu-2", 0),
        (WHOLE, "MIG-5-x", 0),
        (PARTS, None, None),
        (PARTS, "0", 1),
        (PARTS, "1", None),
        (PARTS, "2", 0),
        (PARTS, "MIG-6", None),
        (PARTS, "MIG-5-x,MIG-6-x", None),
        (PARTS, "MIG-7", 0),
        (PARTS, "MIG-GPU-12-x/1/0", None),
        (PARTS, "MIG-GPU-11-x/1/0", 0),
    ],
)
def test_what_the_variable_leaves(gpus: tuple[Gpu, ...], chosen: str | None, count: int | None) -> None:
    expected = Visible(1, exact=False) if count is None else Visible(count)
    assert driver.choose(gpus, chosen) == expected


def test_facts_are_json(machine: StandIn) -> None:
    code = "import json; from gzarr.engines.cuda import driver; print(json.dumps(driver.facts()))"
    found = json.loads(machine.run(code, CUDA_VISIBLE_DEVICES="0", STAND_IN_PARTITIONED="1", STAND_IN_PARTS="1"))
    assert found == {
        "gpu": "NVIDIA Stand-in",
        "uuids": [["GPU-0-abc"], ["GPU-1-abc", "MIG-1-0-abc"]],
        "chosen": "0",
        "order": None,
        "driver": "580.65.06",
    }


# -- forks


def test_a_child_uses_the_gpu_if_its_parent_has_not(machine: StandIn, path: str) -> None:
    code = f"""
a = gzarr.open({path!r})
repr(a)

def work():
    assert (a.device, gzarr.open({path!r}).device) == ("cuda:0", "cuda:0")
    with get_device(a.device):
        print("child")

in_a_child(work)
in_a_child(work)
with get_device(a.device):
    print("parent")
"""
    assert machine.run(START + code) == "child\nchild\nparent\n"


USERS = {
    "others": "cu_init()",
    "gzarr": "get_device('cuda:0').__enter__()",
}


def test_a_driver_that_does_not_start_is_told_by_the_first_read(machine: StandIn, path: str) -> None:
    code = f"""
a = gzarr.open({path!r})
for call in (lambda: a[...], lambda: a.read(slice(3)), lambda: a.read(decode="cpu")):
    try:
        call()
    except gzarr.DeviceError as error:
        print(error)
"""
    out = machine.run(START + code, STAND_IN_BROKEN="1")
    text = 'cuda:0 cannot be used: error 803 of CUDA; run "gzarr doctor" for details, or open with device="cpu"\n'
    assert out == 3 * text
    code = "import sys; from gzarr.cli.doctor import _resolve; print(*_resolve('auto'))"
    assert machine.run(code, STAND_IN_BROKEN="1") == f"None {text}"


@pytest.mark.parametrize("user", USERS)
def test_a_child_of_a_user_of_cuda_reads_on_the_cpu(machine: StandIn, path: str, user: str) -> None:
    code = f"""
before = gzarr.open({path!r})
by_name = gzarr.open({path!r}, device="cuda")
group = gzarr.open_group(os.path.dirname({path!r}), mode="r")
pickled = pickle.dumps(before)
held = get_device("cuda:0")
{USERS[user]}
after = gzarr.open({path!r}, device="auto")
expected = np.arange(5000, dtype="<i4").reshape(50, 100)

def work():
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert before[0, 1] == 1
        assert len(said) == 1
        arrays = [before, gzarr.open({path!r}), after, group["a.zarr"], pickle.loads(pickled)]
        arrays.append(pickle.loads(pickle.dumps(after)))
        for a in arrays:
            assert a.device == "cpu", a.device
            assert type(a[...]) is np.ndarray and (a[...] == expected).all()
            assert (a.read_many([np.s_[0:3], np.s_[7:10]])[1] == expected[7:10]).all()
            assert a.decode_path.startswith("cpu-native"), a.decode_path
            assert a.__dlpack_device__() == (1, 0)
            np.asarray(a), repr(a)
    assert [w.category for w in said] == [RuntimeWarning], said
    assert '"spawn"' in str(said[0].message)
    # Who names the device is told.
    assert by_name.device == "cuda:0"
    assert refused(lambda: by_name[...])
    assert refused(held.__enter__)
    assert refused(lambda: gzarr.open({path!r}, device="cuda"))
    assert refused(lambda: gzarr.open({path!r}, device="cuda:1"))
    assert refused(lambda: pickle.loads(pickle.dumps(by_name)))
    assert '"spawn"' in by_name.decode_path and '"spawn"' in repr(by_name)
    print("child", os.getppid() == parent)

parent = os.getpid()
in_a_child(work)
# A child of the child is no better off.
in_a_child(lambda: in_a_child(lambda: print(gzarr.open({path!r}, device="auto").device)))
process = multiprocessing.get_context("fork").Process(target=work)
process.start()
process.join()
assert process.exitcode == 0
# Nothing has changed for the parent.
assert (before.device, after.device) == ("cuda:0", "cuda:1")
"""
    out = machine.run(START + code)
    assert out == "child True\ncpu\nchild True\n"
    # No child has called anything of CUDA.
    assert len({*machine.callers("cuInit"), *machine.callers("cuDeviceGetCount")}) == 1


def test_writing_in_a_child(machine: StandIn, path: str, tmp_path: Path) -> None:
    code = f"""
a = gzarr.open({str(tmp_path / "w.zarr")!r}, mode="r+")
assert a.device == "cuda:0"
cu_init()

def work():
    a[3:5] = np.full((2, 8), 7, "<i4")
    a.resize((12, 8))

in_a_child(work)
"""
    gzarr.create_array(tmp_path / "w.zarr", data=np.zeros((10, 8), "<i4"), chunks=(4, 8), device="cpu")
    machine.run(START + code)
    found = gzarr.open_array(tmp_path / "w.zarr", device="cpu")
    assert found.shape == (12, 8)
    assert (found[3:5] == 7).all()
    assert len(machine.callers("cuInit")) == 1


def test_without_packages_for_a_gpu_a_fork_is_not_spoken_of(machine: StandIn, path: str) -> None:
    code = f"""
from gzarr.engines.cuda import devices
devices._PARTS = (("no_such_module", "Nothing"),)
cu_init()

def work():
    warnings.simplefilter("error")
    print(gzarr.open({path!r})[0, 1])

in_a_child(work)
"""
    assert machine.run(START + code) == "1\n"
