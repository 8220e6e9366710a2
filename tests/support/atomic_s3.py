"""moto's S3 server, one request at a time: its conditional puts look and write without a lock, and so are not atomic.

Run as a program with the arguments of ``moto.server``.
"""

from __future__ import annotations

import threading
from typing import Any

import moto.server

_ONE_REQUEST = threading.Lock()


class _Atomic(moto.server.DomainDispatcherApplication):  # type: ignore[misc]
    def __call__(self, environ: Any, start_response: Any) -> Any:
        with _ONE_REQUEST:
            return super().__call__(environ, start_response)


if __name__ == "__main__":
    moto.server.DomainDispatcherApplication = _Atomic
    moto.server.main()
