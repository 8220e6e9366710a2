"""The real CuPy over the CUDA runtime in host memory, for this folder."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import pytest
from support import cuda_on_host
from support.cuda_on_host import build
from support.cuda_on_host.c_types import address
from support.cuda_on_host.cupy_kernels import CupyKernels
from support.cuda_on_host.resolver import Resolver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.cuda_on_host import HostCuda


@pytest.fixture(scope="session")
def installed() -> HostCuda:
    """The runtime, put in the place of CUDA's."""
    if reason := cuda_on_host.why_not():
        pytest.skip(reason)
    return cuda_on_host.install()


@pytest.fixture(scope="module")
def kernels(installed: HostCuda) -> CupyKernels:
    """CuPy's kernels; what the compiler refused is in ``refused``."""
    return CupyKernels(build.CACHE, address(installed.library.coh_find))


@pytest.fixture(scope="module")
def cuda(installed: HostCuda, kernels: CupyKernels) -> Iterator[HostCuda]:
    """The runtime, with CuPy's kernels and no others."""
    undo = kernels.install()
    resolver = Resolver(kernels.resolve)
    installed.set_resolver(resolver.pointer)
    installed.reset()
    yield installed
    assert not resolver.errors
    installed.reset(visible=0)
    installed.set_resolver(None)
    undo()


@pytest.fixture(scope="module")
def cupy(cuda: HostCuda) -> Any:
    import cupy

    return cupy


@pytest.fixture(autouse=True)
def nothing_wrong(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test in which the device or a kernel noted a fault, and let the next begin anew."""
    yield
    if "cuda" in request.fixturenames:
        cuda: HostCuda = request.getfixturevalue("cuda")
        notes = cuda.notes()
        cuda.reset(seed=zlib.crc32(request.node.name.encode()))
        assert not notes
