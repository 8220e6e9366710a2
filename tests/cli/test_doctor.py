"""``gzarr doctor``: its findings, its document, its exit codes; and that its tests of codecs detect errors."""

from __future__ import annotations

import ctypes
import importlib.util
import io
import json
import os
import re
import subprocess
import sys
import types
import zlib
from collections import Counter
from dataclasses import replace
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any
from unittest import mock

import cramjam
import numcodecs
import numpy as np
import pytest
from gzarr_kernels import ahead, compiled, libraries
from gzarr_kernels.device import ptx
from rich.console import Console
from support import devices as tested
from support.cuda_on_host.cupy_kernels import without_nvrtc

import gzarr
from gzarr.cli import doctor, selftest
from gzarr.cli.main import main
from gzarr.engines.cuda import devices, driver, nvcomp

if TYPE_CHECKING:
    from pathlib import Path

    from support.devices import TestedDevice

PARTS = [
    "python", "gzarr", "threads", "decoders", "driver", "gpu", "cuda", "cupy", "nvrtc", "numba_cuda", "nvcomp",
    "kvikio", "gds",
]  # fmt: skip
ON_GPU = pytest.mark.parametrize("device", tested.KINDS[1:], indirect=True)


def run(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the command as on a machine without a GPU, and like a user: without the simulator."""
    variables = {k: v for k, v in os.environ.items() if k != "NUMBA_ENABLE_CUDASIM"}
    command = [sys.executable, "-m", "gzarr", "doctor", *args]
    path = os.pathsep.join(sys.path)
    fixed = {"PYTHONPATH": path, "PYTHONIOENCODING": "utf-8", "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(command, capture_output=True, encoding="utf-8", env={**variables, **fixed, **env})


def doctor_json(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, dict[str, Any]]:
    code = main(["doctor", "--json", *args])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return code, document


class TestCommand:
    def test_tables_on_the_cpu(self) -> None:
        result = run("--device", "cpu")
        assert (result.returncode, result.stderr) == (0, "")
        assert "\x1b" not in result.stdout
        environment, codecs, summary = result.stdout.strip().split("\n\n")
        titles = [part.title for part in doctor.environment().values()]
        assert len(titles) == len(PARTS)
        for title, line in zip(titles, environment.splitlines()[1:], strict=True):
            assert line.startswith(title)
            assert any(f" {status} " in line for status in ("ok", "missing", "not usable"))
        assert f" {gzarr.__version__}" in environment
        names = [case.codec for case in selftest.cases()]
        for name, line in zip(names, codecs.splitlines()[1:], strict=True):
            assert line.startswith(name)
            assert line[len(name) :].split()[:2] == ["passed", "CPU"]
        assert summary == f"cpu: all {len(names)} codecs passed"

    def test_document(self, capsys: pytest.CaptureFixture[str]) -> None:
        code, document = doctor_json(capsys, "--device", "cpu")
        assert code == 0
        assert list(document) == ["device_asked", "device", "error", "ok", "environment", "codecs"]
        assert (document["device_asked"], document["device"], document["error"], document["ok"]) == (
            "cpu", "cpu", None, True,
        )  # fmt: skip
        assert list(document["environment"]) == PARTS
        for part in document["environment"].values():
            assert list(part) == ["title", "status", "found", "advice"]
            assert part["status"] in ("ok", "missing", "not usable")
            assert part["found"]
        for key in ("python", "gzarr", "threads", "decoders"):
            assert document["environment"][key]["status"] == "ok", key
        for codec in document["codecs"]:
            assert list(codec) == ["codec", "passed", "decoded_by", "decode_path", "message"]
            assert (codec["passed"], codec["decoded_by"], codec["message"]) == (True, "cpu", "")
            assert codec["decode_path"].startswith("cpu-")

    def test_automatic_device_without_a_gpu(self) -> None:
        result = run("--json")
        assert (result.returncode, result.stderr) == (0, "")
        document = json.loads(result.stdout)
        assert (document["device_asked"], document["device"], document["ok"]) == ("auto", "cpu", True)
        assert document["environment"]["gpu"]["status"] != "ok"
        assert document["environment"]["gds"]["status"] != "ok"

    def test_gpu_that_is_not_there(self) -> None:
        result = run("--device", "cuda:1")
        assert result.returncode == 1
        assert result.stderr.startswith("gzarr: error: no CUDA device can be used: ")
        assert result.stderr.count("\n") == 1
        not_installed = [title for module, title in devices._PARTS if not devices._has(module)]
        for missing in not_installed or ["no NVIDIA driver, or no GPU that it sees"]:
            assert missing in result.stderr
        assert "\nGPU " in result.stdout
        assert result.stdout.endswith("No codec was tested: the device cannot be used.\n")

    def test_document_of_a_gpu_that_is_not_there(self, capsys: pytest.CaptureFixture[str]) -> None:
        with mock.patch.object(driver, "visible", return_value=driver.Visible(0)):
            code, document = doctor_json(capsys, "--device", "cuda")
        assert code == 1
        assert (document["device_asked"], document["device"], document["ok"]) == ("cuda", None, False)
        assert document["error"].startswith("no CUDA device can be used: ")
        assert document["codecs"] == []
        assert list(document["environment"]) == PARTS

    @pytest.mark.parametrize("args", [("--device", "gpu"), ("--device", "cuda:x"), ("extra",), ("--device",)])
    def test_usage(self, args: tuple[str, ...]) -> None:
        result = run(*args)
        assert (result.returncode, result.stdout) == (2, "")
        assert result.stderr
        assert "Traceback" not in result.stderr

    def test_wrong_number_of_threads(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GZARR_THREADS", "many")
        code, document = doctor_json(capsys, "--device", "cpu")
        assert code == 1
        assert document["environment"]["threads"]["status"] == "not usable"
        assert "'many'" in document["environment"]["threads"]["found"]
        assert not any(codec["passed"] for codec in document["codecs"])

    def test_broken_packages(self, tmp_path: Path) -> None:
        """Any exception at a package's import is reported on one line, and does not end the command."""
        for name, code in [
            ("cupy", "raise RuntimeError('two CuPys\\n\\n[bold]are installed')"),
            ("numba_cuda", "import no_such_module"),
        ]:
            (tmp_path / name).mkdir()
            (tmp_path / name / "__init__.py").write_text(code)
        path = os.pathsep.join([str(tmp_path), *sys.path])
        # Without device kernels of a wheel, with which numba-cuda is not needed.
        host = tmp_path / "host"
        host.mkdir()
        for library in ahead.folder().glob(f"{sys.platform}-*"):
            (host / library.name).symlink_to(library.resolve())
        result = run("--device", "cpu", PYTHONPATH=path, GZARR_KERNELS=str(host))
        assert (result.returncode, result.stderr) == (0, "")
        found = {line[:19].strip(): line[19:] for line in result.stdout.splitlines()}
        for title in ("CuPy", "CUDA runtime"):
            assert found[title].startswith("not usable  RuntimeError: two CuPys [bold]are installed  "), title
            assert "gzarr[cuda" in found[title]
        assert found["numba-cuda"].startswith("not usable  ModuleNotFoundError: ")
        assert "no_such_module" in found["numba-cuda"]

    def test_packages_that_are_not_there(self) -> None:
        names = ("cupy", "numba_cuda", "nvidia", "nvidia.libnvcomp", "kvikio")
        others = {name: module for name, module in sys.modules.items() if name.partition(".")[0] not in names}
        nvcomp.load.cache_clear()
        with (
            mock.patch.dict(sys.modules, {**others, **dict.fromkeys(names)}, clear=True),
            mock.patch("importlib.util.find_spec", return_value=None),
            mock.patch.object(ctypes, "CDLL", side_effect=OSError("no such file")),
            # With kernels of a wheel, numba-cuda is not needed.
            mock.patch.object(ptx, "programs", return_value={}),
        ):
            found = doctor.environment()
        nvcomp.load.cache_clear()
        for key in ("driver", "cuda", "cupy", "nvrtc", "numba_cuda", "nvcomp", "kvikio"):
            assert found[key].status == "missing", key
            assert "install" in found[key].advice, key
        assert found["gpu"].status == found["gds"].status == "missing"


class FakeDriver:
    """``libcuda.so.1`` of a machine with one GPU."""

    def __init__(self, version: int, init: int = 0) -> None:
        self._version, self._init = version, init

    def cuInit(self, flags: int) -> int:
        return self._init

    def cuDriverGetVersion(self, version: Any) -> int:
        version._obj.value = self._version
        return 0

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = 1
        return 0

    def cuDeviceGet(self, handle: Any, ordinal: int) -> int:
        handle._obj.value = 70 + ordinal
        return 0

    def cuDeviceGetName(self, name: Any, length: int, handle: Any) -> int:
        name.value = f"GPU of handle {handle.value}".encode()[: length - 1]
        return 0

    def cuDeviceTotalMem_v2(self, nbytes: Any, handle: Any) -> int:
        nbytes._obj.value = 48 << 30
        return 0

    def cuDeviceGetAttribute(self, value: Any, attribute: int, handle: Any) -> int:
        value._obj.value = {75: 9, 76: 1}[attribute]
        return 0

    def cuGetErrorString(self, code: int, text: Any) -> int:
        text._obj.value = b"no CUDA-capable device is detected"
        return 0


class TestDriver:
    def test_gpu(self) -> None:
        with mock.patch.object(ctypes, "CDLL", return_value=FakeDriver(13020)):
            driver = doctor.probe_driver()
        assert (driver.cuda, driver.error) == (13020, "")
        assert driver.gpus == ("cuda:0 GPU of handle 70, 48.0 GiB, compute capability 9.1",)

    def test_no_gpu(self) -> None:
        with mock.patch.object(ctypes, "CDLL", return_value=FakeDriver(13020, init=100)):
            driver = doctor.probe_driver()
        assert (driver.cuda, driver.gpus) == (13020, ())
        assert driver.error == "no CUDA-capable device is detected (CUDA error 100)"
        with mock.patch.object(doctor, "probe_driver", return_value=driver):
            found = doctor.environment()
        assert found["driver"].status == "ok"
        assert "CUDA up to 13.2" in found["driver"].found
        assert (found["gpu"].status, found["gpu"].found) == ("not usable", driver.error)

    def test_driver_older_than_the_packages(self) -> None:
        """The runtime that CuPy brings is newer than an old driver supports; the advice is for that driver."""
        runtime = mock.Mock(runtimeGetVersion=lambda: 13020)
        cupy = mock.Mock(cuda=mock.Mock(runtime=runtime))
        driver = doctor.Driver("535.1", 12020, ("cuda:0",), "no GPU to speak to")
        with mock.patch.object(doctor, "probe_driver", return_value=driver), mock.patch.dict(sys.modules, cupy=cupy):
            found = doctor.environment()
        assert found["cuda"].status == "not usable"
        assert "13.2" in found["cuda"].found
        assert "12.2" in found["cuda"].found
        assert "gzarr[cuda12]" in found["cuda"].advice


class TestStorage:
    """GPUDirect Storage, as reported by kvikio."""

    @pytest.mark.parametrize(
        ("available", "compatible", "status", "found"),
        [
            (True, False, "ok", "on: "),
            (True, True, "not usable", "KVIKIO_COMPAT_MODE"),
            (False, True, "not usable", "cuFile has no access"),
            (OSError("libcufile.so: no such file"), False, "not usable", "OSError: libcufile.so: no such file"),
        ],
    )
    def test_kvikio(self, available: Any, compatible: bool, status: str, found: str) -> None:
        kvikio, driver_module, defaults = (
            types.ModuleType(name) for name in ("kvikio", "kvikio.cufile_driver", "kvikio.defaults")
        )
        kvikio.__spec__ = ModuleSpec("kvikio", None)
        answer = {"side_effect": available} if isinstance(available, Exception) else {"return_value": available}
        kvikio.__dict__.update(__version__="26.10", cufile_driver=driver_module, defaults=defaults)
        driver_module.__dict__.update(get=mock.Mock(**answer))
        defaults.__dict__.update(is_compat_mode_preferred=lambda: compatible)
        modules = {module.__name__: module for module in (kvikio, driver_module, defaults)}
        driver = doctor.Driver("580.1", 13000, ("cuda:0",), "")
        with mock.patch.object(doctor, "probe_driver", return_value=driver), mock.patch.dict(sys.modules, modules):
            parts = doctor.environment()
        assert (parts["kvikio"].status, parts["kvikio"].found) == ("ok", "26.10")
        assert parts["gds"].status == status
        assert found in parts["gds"].found
        assert bool(parts["gds"].advice) == (status != "ok")


class TestDecoders:
    def test_missing_function(self) -> None:
        fewer = {k: v for k, v in libraries.decoder_addresses().items() if k != "gzarr_lz4_decompress"}
        with mock.patch.object(libraries, "decoder_addresses", return_value=fewer):
            part = doctor.environment()["decoders"]
        assert part.status == "missing"
        assert "not found: LZ4_decompress_safe (looked for in blosc2, " in part.found
        assert "pip install" in part.advice

    def test_no_native_loop(self) -> None:
        with mock.patch.object(libraries, "available", return_value=frozenset({"zstd"})):
            assert doctor.environment()["decoders"].status == "not usable"

    def test_no_kernels(self) -> None:
        found = importlib.util.find_spec
        without = mock.patch.object(importlib.util, "find_spec", lambda name: None if name == "numba" else found(name))
        with without, mock.patch.object(compiled, "why_not", return_value="no Numba to compile them"):
            part = doctor.environment()["decoders"]
        assert part.status == "missing"
        assert "no Numba to compile them" in part.found
        assert "pip install 'gzarr[jit]'" in part.advice


def test_terminal_has_colours_and_its_width(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdout", terminal)
    for name, value in {"TERM": "xterm-256color", "COLUMNS": "80"}.items():
        monkeypatch.setenv(name, value)
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    doctor._print({"x": doctor.Finding("X", "ok", "much " * 40 + "\x1b]0;title")}, [], None)
    shown = terminal.getvalue()
    assert "\x1b[32mok" in shown
    assert "\x1b]" not in shown
    assert max(map(len, re.sub("\x1b\\[[0-9;]*m", "", shown).splitlines())) <= 80


class TestSelfTest:
    def test_every_codec_and_way_of_blosc_once(self) -> None:
        names = Counter(case.codec for case in selftest.cases())
        assert set(names.values()) == {1}
        assert set(names) >= {
            "uncompressed", "zstd", "lz4", "gzip", "zlib", "bz2", "lzma", "nvcomp_batch(deflate)",
            "nvcomp_batch(snappy)", "blosc(snappy, noshuffle)", "blosc(snappy, shuffle)", "delta", "shuffle",
            "fixedscaleoffset", "quantize", "bitround", "packbits", "astype", "crc32", "adler32", "fletcher32",
            "jenkins_lookup3", "crc32c", "sharding_indexed(zstd)", "cast_value", "scale_offset",
            "packbits of version 3",
        }  # fmt: skip
        for cname in ("lz4", "lz4hc", "zstd", "zlib", "blosclz"):
            for shuffle in ("noshuffle", "shuffle", "bitshuffle"):
                assert f"blosc({cname}, {shuffle})" in names

    def test_on_each_device(self, device: TestedDevice, capsys: pytest.CaptureFixture[str]) -> None:
        code, document = doctor_json(capsys, "--device", "cuda" if device.is_cuda else "cpu")
        assert [codec for codec in document["codecs"] if not codec["passed"]] == []
        assert (code, document["device"]) == (0, device.name)
        by_gpu = {codec["codec"] for codec in document["codecs"] if codec["decoded_by"] == "cuda"}
        wanted = {"uncompressed", "zstd", "lz4", "gzip", "zlib", "crc32c", "shuffle", "sharding_indexed(zstd)"}
        wanted |= {"cast_value", "scale_offset", "packbits of version 3"}
        wanted |= {case.codec for case in selftest.cases() if case.codec.startswith("blosc(")}
        wanted -= {f"blosc(blosclz, {shuffle})" for shuffle in ("noshuffle", "shuffle", "bitshuffle")}
        assert by_gpu >= wanted if device.is_cuda else not by_gpu
        for codec in document["codecs"]:
            path = codec["decode_path"]
            assert path.startswith("cpu-" if not device.is_cuda else "cuda: " if codec["codec"] in by_gpu else "cuda, ")

    @ON_GPU
    def test_automatic_device_is_the_gpu(self, device: TestedDevice, capsys: pytest.CaptureFixture[str]) -> None:
        cases = [case for case in selftest.cases() if case.codec in ("zstd", "bz2")]
        with mock.patch.object(selftest, "cases", return_value=cases):
            code, document = doctor_json(capsys)
        assert (code, document["device_asked"], document["device"]) == (0, "auto", device.name)
        assert [codec["decoded_by"] for codec in document["codecs"]] == ["cuda", "cpu"]

    def test_device_without_the_compiler_of_cupy(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Most reads need none: all codecs pass, but writes do not work."""
        cases = [case for case in selftest.cases() if case.codec in ("zstd", "bz2")]
        with mock.patch.object(selftest, "cases", return_value=cases), tested.on_host() as device:
            code, document = doctor_json(capsys, "--device", "cuda")
            part = document["environment"]["nvrtc"]
            assert (code, document["ok"], document["error"], part["status"]) == (0, True, None, "ok")
            with without_nvrtc():
                code, document = doctor_json(capsys, "--device", "cuda")
                assert main(["doctor", "--device", "cuda"]) == 1
                assert capsys.readouterr().err.startswith("gzarr: error: cuda:0 can only be read to")
            part = document["environment"]["nvrtc"]
            assert (code, document["ok"], document["device"], part["status"]) == (1, False, device.name, "missing")
            assert all(codec["passed"] for codec in document["codecs"])
            assert "pip install 'gzarr[cuda13]'" in document["error"]

            # There, but of no use: without CUDA's headers, or too new for the driver.
            def refuse(*_: Any) -> None:
                raise gzarr.DeviceError("CuPy cannot compile: no cuda_fp16.h")

            with mock.patch.object(device, "copy_array", refuse):
                code, document = doctor_json(capsys, "--device", "cuda")
            part = document["environment"]["nvrtc"]
            assert (code, part["status"]) == (1, "not usable")
            assert "cuda_fp16.h" in part["found"]

    def test_gpu_that_refuses_a_codec(self) -> None:
        """The CPU decodes its chunks, to the right elements; the test reports it nevertheless."""
        case = next(case for case in selftest.cases() if case.codec == "zstd")
        with tested.on_host() as device:
            accept = device.refuse
            device.refuse = lambda algorithm, frame: algorithm == "zstd"
            outcome = selftest.check(case, device.name)
            device.refuse = accept
            assert (outcome.passed, outcome.decoded_by) == (False, "cuda")
            assert "the GPU refused 4 chunks" in outcome.message
            assert selftest.check(case, device.name).passed

    @pytest.mark.parametrize(
        ("codec", "change", "message"),
        [
            ("uncompressed", lambda data: bytes([data[0] ^ 1]) + data[1:], "4 of 30000 elements differ"),
            ("zstd", lambda data: data[:-1], "chunk (0, 0)"),
            ("crc32c", lambda data: bytes([data[0] ^ 1]) + data[1:], "checksum"),
            ("blosc(lz4, shuffle)", lambda data: data[:20], "chunk (0, 0)"),
        ],
    )
    def test_wrong_chunks_fail(
        self, codec: str, change: Any, message: str, device: TestedDevice, capsys: pytest.CaptureFixture[str]
    ) -> None:
        good = next(case for case in selftest.cases() if case.codec == codec)
        bad = replace(good, encode=lambda chunk: change(good.encode(chunk)))
        with mock.patch.object(selftest, "cases", return_value=[good, bad]):
            code, document = doctor_json(capsys, "--device", device.name)
            assert main(["doctor", "--device", device.name]) == 1
        assert capsys.readouterr().out.rstrip().endswith(f"{device.name}: 1 of 2 codecs FAILED")
        assert (code, document["ok"], document["error"]) == (1, False, None)
        assert [outcome["passed"] for outcome in document["codecs"]] == [True, False]
        assert message in document["codecs"][1]["message"]

    def test_encoder_that_fails(self) -> None:
        case = next(selftest.cases())
        broken = replace(case, encode=lambda chunk: numcodecs.get_codec({"id": "no such codec"}).encode(chunk))
        outcome = selftest.check(broken, "cpu")
        assert (outcome.passed, outcome.decoded_by) == (False, None)
        assert outcome.message.startswith("could not be encoded for the test: ")
        assert "no such codec" in outcome.message


class TestEncoders:
    """Frames of codecs for which the requirements have no encoder, against other decoders."""

    @pytest.mark.parametrize("nbytes", [0, 1, 4, 12, 13, 100, 65_536, 65_537, 200_001])
    def test_snappy(self, nbytes: int) -> None:
        rng = np.random.default_rng(nbytes)
        data = rng.integers(0, 2, nbytes // 16 + 1).astype("<u2").repeat(8).tobytes()[:nbytes]
        data = data[: nbytes // 2] + rng.bytes(nbytes - nbytes // 2)
        encoded = selftest._snappy(data)
        assert bytes(cramjam.snappy.decompress_raw(encoded)) == data
        if nbytes > 1000:
            assert len(encoded) < 0.7 * nbytes

    @pytest.mark.parametrize("shuffle", [False, True])
    def test_blosc_with_snappy_has_raw_and_compressed_streams(self, shuffle: bool) -> None:
        rng = np.random.default_rng(0)
        chunk = np.concatenate([np.zeros(6000, "<i4"), rng.integers(-(2**31), 2**31, 6001).astype("<i4")])
        container = selftest._blosc_snappy(chunk, shuffle=shuffle)
        nbytes, blocksize, cbytes = np.frombuffer(container, "<u4", 3, 4).tolist()
        assert (nbytes, cbytes) == (chunk.nbytes, len(container))
        decoded, kinds = b"", set()
        for i, start in enumerate(np.frombuffer(container, "<u4", -(-nbytes // blocksize), 16).tolist()):
            size = int.from_bytes(container[start : start + 4], "little")
            stream = container[start + 4 : start + 4 + size]
            block_nbytes = min(blocksize, nbytes - i * blocksize)
            kinds.add("raw" if size == block_nbytes else "compressed")
            planes = stream if size == block_nbytes else bytes(cramjam.snappy.decompress_raw(stream))
            decoded += np.frombuffer(planes, "u1").reshape(4, -1).T.tobytes() if shuffle else planes
        assert decoded == chunk.tobytes()
        assert kinds == {"raw", "compressed"}

    def test_deflate(self) -> None:
        chunk = np.arange(5000)
        assert zlib.decompress(selftest._deflate(chunk), wbits=-15) == chunk.tobytes()


def test_doctor_is_loaded_for_doctor_only() -> None:
    code = (
        "import sys; from gzarr.cli import main as cli; cli.make_parser().parse_args(['doctor']); "
        "print('gzarr.cli.doctor' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"


def test_a_narrow_terminal_shows_every_word() -> None:
    long = "x" * 70
    out = io.StringIO()
    Console(width=40, file=out).print(doctor._table(("", "Status", "Found", "What to do"), [("A", "ok", long, long)]))
    assert out.getvalue().count("x") == 2 * len(long)
    assert max(map(len, out.getvalue().splitlines())) <= 40
