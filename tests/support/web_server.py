"""A web server of the standard library to which many connections can be made at a time."""

from __future__ import annotations

import http.server
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


class WebServer(http.server.ThreadingHTTPServer):
    """With room for the connections of all I/O threads: with five, the sixth waits for a second on a busy machine."""

    request_queue_size = 256


@contextmanager
def running(handler: Any) -> Iterator[str]:
    """Run a server in a thread; yield its URL."""
    with WebServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
