"""The bindings of nvCOMP against its headers' declarations, for every known version, and against the library of the
installed wheel; none of it needs a GPU.

To check another version without installing it, put its unpacked wheel first on the path:
``PYTHONPATH=UNPACKED pytest tests/engines/cuda/test_nvcomp.py``.
"""

from __future__ import annotations

import ctypes
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

import nvidia.libnvcomp
import pytest
from gzarr_kernels.operations import ALGORITHMS
from support.nvcomp_declarations import Facts, declarations, known

from gzarr import DeviceError
from gzarr.cli import doctor
from gzarr.engines.cuda import nvcomp, nvcomp_compress
from gzarr.engines.cuda.arena import ALIGNMENT
from gzarr.engines.cuda.device_protocol import CoderBatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gzarr.engines.cuda.nvcomp import Library

INSTALLED, DECLARED = declarations(Path(next(iter(nvidia.libnvcomp.__path__))) / "include")
TABLE = known() | {INSTALLED: DECLARED}

versions = pytest.mark.parametrize("version", TABLE)
algorithms = pytest.mark.parametrize("algorithm", tuple(ALGORITHMS))


def parameters_of(facts: Facts, name: str) -> list[list[str]]:
    """Return the kind and the name of each parameter of a function."""
    return [parameter.split() for parameter in facts["functions"][name].split(", ")]


def declared_types(facts: Facts, name: str, options: Any) -> list[Any]:
    types = {"size_t": ctypes.c_size_t, "pointer": ctypes.c_void_p, "stream": ctypes.c_void_p, "options": options}
    return [types[kind] for kind, _ in parameters_of(facts, name)]


class DeclaredLibrary:
    """A library with the functions that a version declares; they record their arguments, by the headers' names."""

    def __init__(self, version: str) -> None:
        self._facts = TABLE[version]
        major, minor, patch = map(int, version.split("."))
        self._properties = (1000 * major + 100 * minor + patch, 1000 * (18 - major))
        self.answer = 0
        self.status = 0
        self.given: dict[str, Any] = {}
        self.options = b""

    def __getitem__(self, name: str) -> Any:
        if name not in self._facts["functions"]:
            raise AttributeError(f"undefined symbol: {name}")
        parameters = parameters_of(self._facts, name)
        types = declared_types(self._facts, name, nvcomp.Options if "Decompress" in name else nvcomp_compress.Options)
        names = [name for _, name in parameters]

        def called(*arguments: Any) -> int:
            self.given = dict(zip(names, arguments, strict=True))
            for kind, what in parameters:
                if kind == "options":
                    self.options = bytes(self.given.pop(what))
            if "properties" in names:
                self._put("properties", ctypes.c_uint32, *self._properties)
            if "alignment_requirements" in names:
                self._put("alignment_requirements", ctypes.c_size_t, 2, 4, 8)
            # In calls that encode or decode, temp_bytes is no pointer: it is given.
            for result in ("temp_bytes", "max_compressed_chunk_bytes"):
                if ["pointer", result] in parameters:
                    self._put(result, ctypes.c_size_t, self.answer)
            return self.status

        return ctypes.CFUNCTYPE(ctypes.c_int, *types)(called)

    def _put(self, name: str, kind: Any, *values: int) -> None:
        (kind * len(values)).from_address(self.given.pop(name))[:] = values


def nbytes_of(fields: str) -> int:
    arrays = [re.fullmatch(r"char \w+\[(\d+)\]", field) for field in fields.split(", ")]
    # Enumerations and int take four bytes.
    return sum(int(array[1]) if array else 4 for array in arrays)


def test_the_table_is_what_the_installed_headers_declare() -> None:
    assert {version.split(".")[0] for version in known()} == {str(major) for major in nvcomp.TEMP_SIZE}
    assert known().get(INSTALLED, DECLARED) == DECLARED


@versions
@algorithms
@pytest.mark.parametrize("module", [nvcomp, nvcomp_compress])
def test_functions_have_the_parameters_of_the_header(version: str, algorithm: str, module: Any) -> None:
    facts = TABLE[version]
    name = ALGORITHMS[algorithm].nvcomp
    direction = "Decompress" if module is nvcomp else "Compress"
    called = module.SIGNATURES | nvcomp.temp_size_signature(int(version.split(".")[0]), module.Options)
    for suffix, types in called.items():
        declared = declared_types(facts, f"nvcompBatched{name}{direction}{suffix}", module.Options)
        assert declared == list(types), suffix


@versions
@algorithms
@pytest.mark.parametrize("module", [nvcomp, nvcomp_compress])
def test_options_are_64_bytes_and_the_default_but_for_the_backend(version: str, algorithm: str, module: Any) -> None:
    facts = TABLE[version]
    prefix = f"nvcompBatched{ALGORITHMS[algorithm].nvcomp}{'Decompress' if module is nvcomp else 'Compress'}"
    assert nbytes_of(facts["fields"][f"{prefix}Opts_t"]) == ctypes.sizeof(module.Options) == 64
    options = module.options(algorithm)
    first, *others = facts["values"][f"{prefix}DefaultOpts"]
    if module is nvcomp and ALGORITHMS[algorithm].cuda_backend:
        assert facts["fields"][f"{prefix}Opts_t"].startswith("nvcompDecompressBackend_t backend")
        assert first == nvcomp.DEFAULT_BACKEND
        first = nvcomp.CUDA_BACKEND
    assert bytes(options) == first.to_bytes(4, sys.byteorder) + bytes(60)
    assert not any(others)


def test_backends_have_the_numbers_of_the_header() -> None:
    header = (Path(next(iter(nvidia.libnvcomp.__path__))) / "include/nvcomp/shared_types.h").read_text()
    numbers = dict(re.findall(r"NVCOMP_DECOMPRESS_BACKEND_(\w+) = (\d)", header))
    assert numbers["DEFAULT"] == str(nvcomp.DEFAULT_BACKEND)
    assert numbers["CUDA"] == str(nvcomp.CUDA_BACKEND)
    # Of damaged frames LZ4's hardware decoder says that it has decoded them.
    assert [name for name, row in ALGORITHMS.items() if row.cuda_backend] == ["lz4"]


@versions
def test_shared_types(version: str) -> None:
    facts = TABLE[version]
    assert facts["values"]["nvcompSuccess"] == 0
    names = {"size_t": ctypes.c_size_t, "uint32_t": ctypes.c_uint32}
    for struct, ours in [("AlignmentRequirements", nvcomp.Alignments), ("Properties", nvcomp.Properties)]:
        fields = [field.split() for field in facts["fields"][f"nvcomp{struct}_t"].split(", ")]
        assert [(name, names[kind]) for kind, name in fields] == list(ours._fields_)


@versions
@algorithms
def test_limits(version: str, algorithm: str) -> None:
    facts = TABLE[version]
    name = ALGORITHMS[algorithm].nvcomp
    library = nvcomp.identified(DeclaredLibrary(version))
    encoded = facts["values"][f"nvcomp{name}CompressionMaxAllowedChunkSize"]
    # Headers that do not say what is decoded at most say what is encoded.
    decoded = facts["values"].get(f"nvcomp{name}DecompressionMaxAllowedChunkSize", encoded)
    assert nvcomp.NvcompDecompressor(algorithm, library).max_frame_bytes == decoded
    # Of compressions what the description of the call says, where it says less.
    said = facts["said"].get(f"nvcompBatched{name}CompressAsync", encoded)
    assert nvcomp_compress.NvcompCompressor(algorithm, library).max_frame_bytes == min(said, encoded)


@versions
@algorithms
def test_calls_give_every_parameter_what_its_name_says(version: str, algorithm: str) -> None:
    declared = DeclaredLibrary(version)
    library = nvcomp.identified(declared)
    assert (library.title, library.cuda) == (version, 18 - library.version[0])
    stream = SimpleNamespace(ptr=7)
    batch = CoderBatch(
        frames=3, largest=100, sources=11, source_nbytes=12, targets=13, target_nbytes=14, produced=15, statuses=16,
        temp=17, temp_nbytes=18,
    )  # fmt: skip
    query = {"num_chunks": 3, "max_uncompressed_chunk_bytes": 100, "max_total_uncompressed_bytes": 250}
    if library.version >= (6,):
        query["stream"] = None  # type: ignore[assignment]

    decoder = nvcomp.NvcompDecompressor(algorithm, library)
    assert (decoder.input_alignment, decoder.output_alignment, decoder.temp_alignment) == (2, 4, 8)
    declared.answer = 2**40 + 1
    assert decoder.temp_nbytes(3, 100, 250) == 2**40 + 1
    assert declared.given == query
    decoder.run(stream, batch)
    assert declared.given == {
        "device_compressed_chunk_ptrs": 11, "device_compressed_chunk_bytes": 12, "device_uncompressed_buffer_bytes": 14,
        "device_uncompressed_chunk_bytes": 15, "num_chunks": 3, "device_temp_ptr": 17, "temp_bytes": 18,
        "device_uncompressed_chunk_ptrs": 13, "device_statuses": 16, "stream": 7,
    }  # fmt: skip
    assert declared.options == bytes(nvcomp.options(algorithm))

    encoder = nvcomp_compress.NvcompCompressor(algorithm, library)
    assert (encoder.input_alignment, encoder.output_alignment, encoder.temp_alignment) == (2, 4, 8)
    assert encoder.temp_nbytes(3, 100, 250) == 2**40 + 1
    assert declared.given == query
    assert encoder.max_encoded_nbytes(100) == 2**40 + 1
    assert declared.given == {"max_uncompressed_chunk_bytes": 100}
    encoder.run(stream, batch)
    assert declared.given == {
        "device_uncompressed_chunk_ptrs": 11, "device_uncompressed_chunk_bytes": 12,
        "max_uncompressed_chunk_bytes": 100, "num_chunks": 3, "device_temp_ptr": 17, "temp_bytes": 18,
        "device_compressed_chunk_ptrs": 13, "device_compressed_chunk_bytes": 15, "device_statuses": 16, "stream": 7,
    }  # fmt: skip
    assert declared.options == bytes(nvcomp_compress.options(algorithm))

    declared.status = 12
    with pytest.raises(DeviceError, match=r"DecompressAsync failed with status 12"):
        decoder.run(stream, batch)
    with pytest.raises(DeviceError, match=r"CompressGetTempSize.* failed with status 12"):
        encoder.temp_nbytes(3, 100, 250)


# -- which library


@pytest.fixture
def fresh_load() -> Iterator[None]:
    nvcomp.load.cache_clear()
    yield
    nvcomp.load.cache_clear()


def loaded(tmp_path: Path, in_wheel: dict[str, str], on_system: dict[str, str]) -> tuple[Library, list[str]]:
    """Load where the wheel and the system have these sonames, each with a version (``""``: it fails to load)."""
    (tmp_path / "lib64").mkdir(exist_ok=True)
    paths = {str(tmp_path / "lib64" / name): version for name, version in in_wheel.items()}
    for path in paths:
        Path(path).touch()
    tried = []

    def cdll(name: str) -> DeclaredLibrary:
        tried.append(name.removeprefix(f"{tmp_path}/"))
        if not (version := (paths | on_system).get(name)):
            raise OSError(f"{name}: cannot open")
        return DeclaredLibrary(version)

    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    with mock.patch("importlib.util.find_spec", return_value=spec), mock.patch.object(ctypes, "CDLL", cdll):
        return nvcomp.load(), tried


@pytest.mark.usefixtures("fresh_load")
class TestLoad:
    @pytest.mark.parametrize(
        ("in_wheel", "on_system", "version"),
        [
            ({"libnvcomp.so.5": "5.3.0", "libnvcomp.so.6": "6.0.0"}, {}, (6, 0, 0)),
            ({"libnvcomp.so.5": "5.1.0", "libnvcomp.so.6": ""}, {"libnvcomp.so.6": "6.0.0"}, (5, 1, 0)),
            ({"libnvcomp.so.5": "5.3.0"}, {"libnvcomp.so.6": "6.0.0"}, (5, 3, 0)),
            ({}, {"libnvcomp.so.5": "5.2.0", "libnvcomp.so.6": "6.0.0"}, (6, 0, 0)),
            ({"libnvcomp.so.7": "6.0.0"}, {"libnvcomp.so.5": "5.0.0"}, (5, 0, 0)),
        ],
    )
    def test_the_newest_of_the_wheel_before_the_system(
        self, tmp_path: Path, in_wheel: dict[str, str], on_system: dict[str, str], version: tuple[int, int, int]
    ) -> None:
        assert loaded(tmp_path, in_wheel, on_system)[0].version == version

    def test_none(self, tmp_path: Path) -> None:
        with pytest.raises(DeviceError, match=rf"nvCOMP 5 or 6 .*\({tmp_path}/lib64/libnvcomp.so.6: .*gzarr\[cuda13\]"):
            loaded(tmp_path, {"libnvcomp.so.6": ""}, {})

    def test_versions_that_are_not_known(self) -> None:
        for version in ("4.2.0", "7.0.0"):
            with mock.patch.dict(TABLE, {version: DECLARED}), pytest.raises(DeviceError, match=f"{version}.* 5 to 6"):
                nvcomp.identified(DeclaredLibrary(version))
        with (
            mock.patch.dict(TABLE, {"6.0.0": {"functions": {}}}),
            pytest.raises(DeviceError, match=r"report its version: undefined symbol: nvcompGetProperties"),
        ):
            nvcomp.identified(DeclaredLibrary("6.0.0"))

    @algorithms
    def test_functions_that_are_not_there(self, algorithm: str) -> None:
        # Says it is 6, and has the functions of 5.
        with mock.patch.dict(TABLE, {"6.0.0": known()["5.3.0"]}):
            library = nvcomp.identified(DeclaredLibrary("6.0.0"))
            for make in (nvcomp.NvcompDecompressor, nvcomp_compress.NvcompCompressor):
                with pytest.raises(DeviceError, match=r"nvCOMP \(6\.0\.0\) lacks .*GetTempSize$"):
                    make(algorithm, library)

    def test_doctor_says_what_a_version_lacks(self) -> None:
        found = {}
        for version in known():
            library = nvcomp.identified(DeclaredLibrary(version))
            with (
                mock.patch.object(nvcomp, "load", return_value=library),
                mock.patch.object(nvcomp_compress, "load", return_value=library),
            ):
                found[version] = doctor.environment()["nvcomp"]
            assert found[version].status == "ok"
        assert found["6.0.0"].found == "6.0.0, for CUDA 12"
        assert found["5.3.0"].found == "5.3.0, for CUDA 13"
        assert found["5.1.0"].found == (
            "5.1.0, for CUDA 13; decoded on the CPU, for nvCOMP older than 5.2: lz4 frames above 16 MiB, "
            "deflate frames above 2048 MiB, gdeflate frames above 2048 MiB"
        )
        assert found["5.1.0"].advice == "pip install --upgrade nvidia-libnvcomp-cu13"
        assert found["5.3.0"].advice == found["6.0.0"].advice == ""


# -- the library that is installed


def test_the_library_is_of_the_version_of_its_headers() -> None:
    assert nvcomp.load().title == INSTALLED


@algorithms
def test_alignments_are_what_waves_give(algorithm: str) -> None:
    decoder = nvcomp.NvcompDecompressor(algorithm)
    # Containers begin at 16 or better, and what lies elsewhere is moved there; decoded frames lie where they belong.
    assert 16 % decoder.input_alignment == 0
    assert decoder.output_alignment == 1
    assert ALIGNMENT % decoder.temp_alignment == 0


@algorithms
def test_scratch_grows_with_the_batch(algorithm: str) -> None:
    decoder = nvcomp.NvcompDecompressor(algorithm)
    sizes = [decoder.temp_nbytes(n, 1 << 16, n << 16) for n in (1, 2, 100, 1000, 10_000)]
    assert sizes == sorted(sizes)
    assert all(size <= (4 * n << 16) + (64 << 20) for size, n in zip(sizes, (1, 2, 100, 1000, 10_000), strict=True))


@algorithms
def test_a_wave_of_a_write_gives_encoders_what_they_ask_for(algorithm: str) -> None:
    encoder = nvcomp_compress.NvcompCompressor(algorithm)
    # Streams of Blosc begin at multiples of 8 bytes, whole chunks and slots of frames at more.
    assert 8 % encoder.input_alignment == 0
    assert 16 % encoder.output_alignment == 0
    assert ALIGNMENT % encoder.temp_alignment == 0
    sizes = [encoder.max_encoded_nbytes(n) for n in (1, 100, 1 << 12, 1 << 16)]
    assert sizes == sorted(sizes)
    assert all(size > n for size, n in zip(sizes, (1, 100, 1 << 12, 1 << 16), strict=True))


@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if name != "zstd"])
def test_scratch_of_a_compression_grows_with_the_batch(algorithm: str) -> None:
    """nvCOMP needs a GPU to tell this for zstd's encoder."""
    encoder = nvcomp_compress.NvcompCompressor(algorithm)
    sizes = [encoder.temp_nbytes(n, 1 << 16, n << 16) for n in (1, 2, 100, 1000)]
    assert sizes == sorted(sizes)
