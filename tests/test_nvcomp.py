"""The bindings of nvCOMP against the headers and the library of its wheel; none of it needs a GPU."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import nvidia.libnvcomp
import pytest

from gzarr.engines.cuda import nvcomp, nvcomp_compress
from gzarr.engines.cuda.wave import ALIGNMENT

INCLUDE = Path(next(iter(nvidia.libnvcomp.__path__))) / "include" / "nvcomp"


def header(algorithm: str) -> str:
    text = (INCLUDE / f"{algorithm}.h").read_text()
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)


def c_type(parameter: str) -> object:
    if "*" in parameter or "cudaStream_t" in parameter:
        return ctypes.c_void_p
    if "DecompressOpts_t" in parameter:
        return nvcomp.Options
    if "CompressOpts_t" in parameter:
        return nvcomp_compress.Options
    assert re.match(r"size_t \w+$", parameter), parameter
    return ctypes.c_size_t


@pytest.mark.parametrize("algorithm", nvcomp.ALGORITHMS)
def test_functions_have_the_parameters_of_the_header(algorithm: str) -> None:
    text = header(algorithm)
    name, most = nvcomp.ALGORITHMS[algorithm]
    for suffix, types in nvcomp.SIGNATURES.items():
        found = re.search(rf"nvcompStatus_t nvcompBatched{name}Decompress{suffix}\(([^)]*)\);", text)
        assert found, suffix
        parameters = [" ".join(p.split()) for p in found[1].split(",")]
        assert [c_type(p) for p in parameters] == list(types), suffix
    order = re.search(rf"nvcompBatched{name}DecompressAsync\(([^)]*)\);", text)
    assert order
    assert re.findall(r"(\w+)\s*(?:,|$)", order[1].strip()) == [
        "device_compressed_chunk_ptrs",
        "device_compressed_chunk_bytes",
        "device_uncompressed_buffer_bytes",
        "device_uncompressed_chunk_bytes",
        "num_chunks",
        "device_temp_ptr",
        "temp_bytes",
        "device_uncompressed_chunk_ptrs",
        "decompress_opts",
        "device_statuses",
        "stream",
    ]
    order = re.search(rf"nvcompBatched{name}DecompressGetTempSize\(([^)]*)\);", text)
    assert order
    names = re.findall(r"(\w+)\s*(?:,|$)", order[1].strip())
    assert names[:2] == ["num_chunks", "max_uncompressed_chunk_bytes"]
    assert names[3:5] == ["temp_bytes", "max_total_uncompressed_bytes"]
    limit = re.search(rf"nvcomp{name}DecompressionMaxAllowedChunkSize = ([^;]+);", text)
    assert limit
    assert eval(re.sub(r"(\d)[uUlL]+", r"\1", limit[1])) == most


@pytest.mark.parametrize("algorithm", nvcomp.ALGORITHMS)
def test_options_are_64_bytes_of_which_zeros_are_the_default(algorithm: str) -> None:
    text = header(algorithm)
    name = nvcomp.ALGORITHMS[algorithm][0]
    structs = re.findall(r"typedef struct\s*\{([^}]*)\}\s*(\w+);", text)
    fields = next(body for body, struct in structs if struct == f"nvcompBatched{name}DecompressOpts_t")
    # Enumerations and int take four bytes.
    nbytes = sum(
        int(array[1]) if (array := re.search(r"char reserved\[(\d+)\]", field)) else 4
        for field in fields.split(";")
        if field.strip()
    )
    assert nbytes == ctypes.sizeof(nvcomp.Options) == 64
    default = re.search(rf"nvcompBatched{name}DecompressDefaultOpts =\s*\{{(.*?)\}};", text, re.DOTALL)
    assert default
    shared = (INCLUDE / "shared_types.h").read_text()
    for value in re.findall(r"NVCOMP_\w+", default[1]):
        assert re.search(rf"{value} = 0\b", shared), value


def test_statuses_are_four_bytes_and_zero_is_success() -> None:
    shared = (INCLUDE / "shared_types.h").read_text()
    assert re.search(r"nvcompSuccess = 0,", shared)
    fields = re.search(r"typedef struct\s*\{([^}]*)\}\s*nvcompAlignmentRequirements_t;", shared)
    assert fields
    assert re.findall(r"size_t (\w+);", fields[1]) == ["input", "output", "temp"]


@pytest.mark.parametrize("algorithm", nvcomp.ALGORITHMS)
def test_alignments_are_what_waves_give(algorithm: str) -> None:
    decoder = nvcomp.NvcompDecompressor(algorithm)
    # Containers begin at 16 or better, and what lies elsewhere is moved there; decoded frames lie where they belong.
    assert 16 % decoder.input_alignment == 0
    assert decoder.output_alignment == 1
    assert ALIGNMENT % decoder.temp_alignment == 0


@pytest.mark.parametrize("algorithm", nvcomp.ALGORITHMS)
def test_scratch_grows_with_the_batch(algorithm: str) -> None:
    decoder = nvcomp.NvcompDecompressor(algorithm)
    sizes = [decoder.temp_nbytes(n, 1 << 16, n << 16) for n in (1, 2, 100, 1000, 10_000)]
    assert sizes == sorted(sizes)
    assert all(size <= (4 * n << 16) + (64 << 20) for size, n in zip(sizes, (1, 2, 100, 1000, 10_000), strict=True))


# -- compression


@pytest.mark.parametrize("algorithm", nvcomp_compress.ALGORITHMS)
def test_compressions_have_the_parameters_of_the_header(algorithm: str) -> None:
    text = header(algorithm)
    name, most = nvcomp_compress.ALGORITHMS[algorithm]
    names = {}
    for suffix, types in nvcomp_compress.SIGNATURES.items():
        found = re.search(rf"nvcompStatus_t nvcompBatched{name}Compress{suffix}\(([^)]*)\);", text)
        assert found, suffix
        parameters = [" ".join(p.split()) for p in found[1].split(",")]
        assert [c_type(p) for p in parameters] == list(types), suffix
        names[suffix] = re.findall(r"(\w+)\s*(?:,|$)", found[1].strip())
    assert names["Async"] == [
        "device_uncompressed_chunk_ptrs",
        "device_uncompressed_chunk_bytes",
        "max_uncompressed_chunk_bytes",
        "num_chunks",
        "device_temp_ptr",
        "temp_bytes",
        "device_compressed_chunk_ptrs",
        "device_compressed_chunk_bytes",
        "compress_opts",
        "device_statuses",
        "stream",
    ]
    assert names["GetTempSize"][:2] == ["num_chunks", "max_uncompressed_chunk_bytes"]
    assert names["GetTempSize"][3:5] == ["temp_bytes", "max_total_uncompressed_bytes"]
    assert names["GetMaxOutputChunkSize"][::2] == ["max_uncompressed_chunk_bytes", "max_compressed_chunk_bytes"]
    limit = re.search(rf"nvcomp{name}CompressionMaxAllowedChunkSize = ([^;]+);", text)
    assert limit
    assert most <= eval(re.sub(r"(\d)[uUlL]+", r"\1", limit[1]))
    # What the description of the call itself says, where it says less.
    said = re.search(r"Chunk sizes must not exceed (\d+) (MB|bytes)", (INCLUDE / f"{algorithm}.h").read_text())
    if said:
        assert most == int(said[1]) * {"MB": 1_000_000, "bytes": 1}[said[2]]


@pytest.mark.parametrize("algorithm", nvcomp_compress.ALGORITHMS)
def test_options_of_compressions_are_their_defaults(algorithm: str) -> None:
    text = header(algorithm)
    name = nvcomp_compress.ALGORITHMS[algorithm][0]
    structs = re.findall(r"typedef struct\s*\{([^}]*)\}\s*(\w+);", text)
    fields = next(body for body, struct in structs if struct == f"nvcompBatched{name}CompressOpts_t")
    nbytes = sum(
        int(array[1]) if (array := re.search(r"char reserved\[(\d+)\]", field)) else 4
        for field in fields.split(";")
        if field.strip()
    )
    assert nbytes == ctypes.sizeof(nvcomp_compress.Options) == 64
    default = re.search(rf"nvcompBatched{name}CompressDefaultOpts =\s*\{{(.*?)\}};", text, re.DOTALL)
    assert default
    shared = (INCLUDE / "shared_types.h").read_text()
    first = re.match(r"\s*(?:\{\s*)?(\w+)", default[1])
    assert first
    value = int(first[1]) if first[1].isdigit() else 0
    for constant in re.findall(r"NVCOMP_\w+", default[1]):
        assert re.search(rf"{constant} = 0\b", shared), constant
    options = nvcomp_compress.options(algorithm)
    assert options.first == value
    assert bytes(options)[4:] == bytes(60)


@pytest.mark.parametrize("algorithm", nvcomp_compress.ALGORITHMS)
def test_a_wave_of_a_write_gives_encoders_what_they_ask_for(algorithm: str) -> None:
    encoder = nvcomp_compress.NvcompCompressor(algorithm)
    # Streams of Blosc begin at multiples of 8 bytes, whole chunks and slots of frames at more.
    assert 8 % encoder.input_alignment == 0
    assert 16 % encoder.output_alignment == 0
    assert ALIGNMENT % encoder.temp_alignment == 0
    sizes = [encoder.max_encoded_nbytes(n) for n in (1, 100, 1 << 12, 1 << 16)]
    assert sizes == sorted(sizes)
    assert all(size > n for size, n in zip(sizes, (1, 100, 1 << 12, 1 << 16), strict=True))


@pytest.mark.parametrize("algorithm", [name for name in nvcomp_compress.ALGORITHMS if name != "zstd"])
def test_scratch_of_a_compression_grows_with_the_batch(algorithm: str) -> None:
    """Of zstd's encoder nvCOMP says it with a GPU only."""
    encoder = nvcomp_compress.NvcompCompressor(algorithm)
    sizes = [encoder.temp_nbytes(n, 1 << 16, n << 16) for n in (1, 2, 100, 1000)]
    assert sizes == sorted(sizes)
