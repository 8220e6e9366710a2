"""The files of a folder, served by nginx on this machine."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def nginx(folder: Path) -> Iterator[str]:
    """Serve a folder; yield HOST:PORT."""
    binary = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if binary is None:
        raise SystemExit("nginx is needed, and not installed")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = "127.0.0.1:{1}".format(*listener.getsockname())
    with tempfile.TemporaryDirectory() as home:
        user = "user root;" if os.geteuid() == 0 else ""
        Path(home, "nginx.conf").write_text(
            f"daemon off; {user} pid {home}/pid; error_log {home}/error.log; worker_processes 1;\n"
            "events { worker_connections 4096; }\n"
            "http { access_log off; sendfile on; tcp_nodelay on; keepalive_requests 1000000; default_type text/plain;\n"
            f"  client_body_temp_path {home}/a; proxy_temp_path {home}/b; fastcgi_temp_path {home}/c;\n"
            f"  uwsgi_temp_path {home}/d; scgi_temp_path {home}/e;\n"
            f"  server {{ listen {address} backlog=4096; root {folder}; }} }}\n"
        )
        server = subprocess.Popen([binary, "-c", f"{home}/nginx.conf", "-p", home], stderr=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + 10
            while time.monotonic() < deadline:
                try:
                    urllib.request.urlopen(f"http://{address}/", timeout=1).close()
                    break
                except urllib.error.HTTPError:
                    break
                except OSError:
                    time.sleep(0.05)
            yield address
        finally:
            server.terminate()
            server.wait()
