"""The CPU engine."""

from ..kernels import import_with_loop

import_with_loop(f"{__name__}.job_slots")
