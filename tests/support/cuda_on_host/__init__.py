"""The real CuPy over a CUDA runtime in host memory, whose streams run late: a device for tests, without a GPU."""

from .build import Unavailable, why_not
from .device import HostCuda, install

__all__ = ["HostCuda", "Unavailable", "install", "why_not"]
