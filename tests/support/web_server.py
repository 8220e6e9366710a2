"""A web server of the standard library to which many connections can be made at a time."""

from __future__ import annotations

import http.server


class WebServer(http.server.ThreadingHTTPServer):
    """With room for the connections of all I/O threads: with five, the sixth waits for a second on a busy machine."""

    request_queue_size = 256
