"""A web server for the files of a directory that answers requests for ranges, which Python's own does not."""

from __future__ import annotations

import contextlib
import http.server
import re
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator
    from pathlib import Path


@contextlib.contextmanager
def range_server(folder: Path, *, versions: bool = True, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Serve a directory; yield the URL of its root. Without ``versions``, answers do not show that a file has changed.

    Requests for ranges are answered as they should be, a suffix longer than the file with all of it.
    """

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Without it, a body waits for the acknowledgement of its headers, which takes 40 ms.
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            path = folder / self.path.lstrip("/")
            if not path.is_file():
                self.answer(404, b"")
                return
            data, status = path.read_bytes(), path.stat()
            tag = f'"{status.st_ino:x}-{status.st_mtime_ns:x}"'
            headers = {"ETag": tag} if versions else {}
            if versions and self.headers.get("If-Match", tag) != tag:
                self.answer(412, b"")
                return
            wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
            if wanted is None:
                self.answer(200, data, headers)
                return
            first = int(wanted[1]) if wanted[1] else max(len(data) - int(wanted[2]), 0)
            last = min(int(wanted[2]), len(data) - 1) if wanted[1] and wanted[2] else len(data) - 1
            if first > last:
                self.answer(416, b"")
                return
            headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
            self.answer(206, data[first : last + 1], headers)

        do_HEAD = do_GET

        def answer(self, status: int, data: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in {**(headers or {}), "Content-Length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data)

        def log_message(self, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls is not None:
        # Handshakes are for the threads of the connections.
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
