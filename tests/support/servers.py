"""Real servers on the loopback interface, started by the tests that need them."""

from __future__ import annotations

import base64
import contextlib
import email.utils
import hashlib
import hmac
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Options for the S3 server, which takes any keys. They must never be shown.
S3_SECRET: Final = "SECRETSECRETSECRET"
GCS_TOKEN: Final = "SECRETTOKENSECRETTOKEN"
#: Keys of a page of a listing of the GCS server.
GCS_PAGE: Final = 100
#: The account that Azurite has, and its key, which its documentation names.
AZURE_ACCOUNT: Final = "devstoreaccount1"
AZURE_KEY: Final = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_ROOT: Final = Path(__file__).parents[2]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


#: Storage options with time-outs that a busy server on a busy machine keeps: no request is sent twice.
PATIENT: Final[dict[str, Any]] = {"timeout": 60, "client_options": {"read_timeout": "20s", "connect_timeout": "20s"}}
#: Storage options that notice a stall soon, and have time for many attempts.
WATCHFUL: Final[dict[str, Any]] = {"timeout": 60, "client_options": {"read_timeout": "2s", "connect_timeout": "2s"}}


def s3_options(url: str, **others: Any) -> dict[str, Any]:
    """Return storage options for an S3 server."""
    return {
        "endpoint": url,
        "access_key_id": "ACCESS",
        "secret_access_key": S3_SECRET,
        "region": "us-east-1",
        **others,
    }


@contextlib.contextmanager
def s3_server(*, atomic: bool = False) -> Iterator[tuple[str, int]]:
    """Run moto's S3 server; yield its host and port. ``atomic``: conditional puts are, as Amazon's."""
    port = free_port()
    program = [str(Path(__file__).with_name("atomic_s3.py"))] if atomic else ["-m", "moto.server"]
    with running([sys.executable, *program, "-H", "127.0.0.1", "-p", str(port)], port):
        yield "127.0.0.1", port


@contextlib.contextmanager
def gcs_server() -> Iterator[tuple[str, int]]:
    """Run the server of Google Cloud Storage's dialect; yield its host and port."""
    port = free_port()
    program = str(Path(__file__).with_name("gcs_server.py"))
    with running([sys.executable, program, str(port), GCS_TOKEN, str(GCS_PAGE)], port):
        yield "127.0.0.1", port


@contextlib.contextmanager
def azure_server() -> Iterator[tuple[str, int]]:
    """Run Azurite's server of blobs, with everything in memory; yield its host and port."""
    command, port = found("azurite-blob"), free_port()
    options = ["--inMemoryPersistence", "--silent", "--disableTelemetry", "--skipApiVersionCheck"]
    with running([command, "--blobHost", "127.0.0.1", "--blobPort", str(port), *options], port):
        yield "127.0.0.1", port


@contextlib.contextmanager
def webdav_server(folder: Path, *options: str) -> Iterator[tuple[str, int]]:
    """Run rclone's WebDAV server over a folder, with further options; yield its host and port."""
    command, port = found("rclone"), free_port()
    usual = ["--addr", f"127.0.0.1:{port}", "--config", os.devnull, "--dir-cache-time", "0s"]
    with running([command, "serve", "webdav", str(folder), *usual, *options], port):
        yield "127.0.0.1", port


#: A folder behind nginx, and what else servers do.
_NGINX: Final = """
daemon off;
{user}
pid {work}/pid;
error_log {work}/error.log;
events {{ worker_connections 512; }}
http {{
    access_log off;
    default_type application/octet-stream;
    client_body_temp_path {work}/body;
    proxy_temp_path {work}/proxy;
    fastcgi_temp_path {work}/fastcgi;
    uwsgi_temp_path {work}/uwsgi;
    scgi_temp_path {work}/scgi;
    server {{
        listen 127.0.0.1:{port};
        root {folder};
        location /whole/ {{ alias {folder}/; max_ranges 0; }}
        location /untagged/ {{ alias {folder}/; etag off; }}
        location /undated/ {{ alias {folder}/; etag off; add_header Last-Modified ""; }}
        location /weak/ {{ alias {folder}/; etag off; add_header ETag 'W/"$sent_http_last_modified"'; }}
        location /moved/ {{ rewrite ^/moved/(.*)$ /$1 redirect; }}
        location /login/ {{ rewrite ^ /login.html redirect; }}
        location /app/ {{ rewrite ^/app/(.*)$ /$1 break; try_files $uri /login.html; }}
        location /gone/ {{ return 410; }}
        location /forbidden/ {{ return 403; }}
        location /silent/ {{ alias {folder}/; if ($request_method !~ ^(GET|HEAD)$) {{ return 404; }} }}
        location /pages/ {{ alias {folder}/; if ($request_method !~ ^(GET|HEAD)$) {{ return 200 "<html>Hi</html>"; }} }}
    }}
}}
"""


_FTP: Final = """
import sys
from pyftpdlib.authorizers import DummyAuthorizer
from pyftpdlib.handlers import FTPHandler
from pyftpdlib.servers import FTPServer
users = DummyAuthorizer()
users.add_user("user", sys.argv[3], sys.argv[2], perm="elradfmwMT")
FTPHandler.authorizer = users
FTPServer(("127.0.0.1", int(sys.argv[1])), FTPHandler).serve_forever()
"""


@contextlib.contextmanager
def web_server(folder: Path) -> Iterator[tuple[str, int]]:
    """Run nginx over a folder; yield its host and port."""
    command, port = found("nginx"), free_port()
    with tempfile.TemporaryDirectory() as work:
        config = Path(work, "nginx.conf")
        user = "user root;" if os.geteuid() == 0 else ""
        config.write_text(_NGINX.format(user=user, work=work, port=port, folder=folder))
        with running([command, "-c", str(config), "-e", f"{work}/error.log"], port):
            yield "127.0.0.1", port


def found(command: str) -> str:
    """Return the path of a server's program; skip the test if it is not installed, or fail in CI."""
    folders = [os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin", str(_ROOT / ".servers/node_modules/.bin")]
    path = shutil.which(command, path=os.pathsep.join(folders))
    if path is None:
        message = f"{command} is not installed; ci/servers installs it"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return path


def azure_container(address: tuple[str, int], name: str, method: str) -> None:
    """Make a container ("PUT") or drop it ("DELETE")."""
    path = f"/{AZURE_ACCOUNT}/{name}"
    headers = {"x-ms-date": email.utils.formatdate(usegmt=True), "x-ms-version": "2021-12-02"}
    signed = "".join(f"{key}:{value}\n" for key, value in headers.items())
    text = f"{method}{chr(10) * 12}{signed}/{AZURE_ACCOUNT}{path}\nrestype:container"
    headers["Authorization"] = f"SharedKey {AZURE_ACCOUNT}:{_azure_signature(text)}"
    url = f"http://{address[0]}:{address[1]}{path}?restype=container"
    with urllib.request.urlopen(urllib.request.Request(url, method=method, headers=headers), timeout=30):
        pass


def azure_sas(permissions: str = "rwdlac") -> str:
    """Return a shared access signature for the account."""
    fields = {"sv": "2019-12-12", "ss": "b", "srt": "sco", "sp": permissions, "se": "2099-01-01T00:00:00Z"}
    text = "\n".join([AZURE_ACCOUNT, permissions, "b", "sco", "", fields["se"], "", "", fields["sv"], ""])
    return urlencode({**fields, "sig": _azure_signature(text)})


def _azure_signature(text: str) -> str:
    return base64.b64encode(hmac.digest(base64.b64decode(AZURE_KEY), text.encode(), hashlib.sha256)).decode()


def gcs_bucket(address: tuple[str, int], name: str, method: str) -> None:
    """Make a bucket ("PUT") or drop it ("DELETE")."""
    _ask(address, name, method, {"Authorization": f"Bearer {GCS_TOKEN}"})


@contextlib.contextmanager
def ftp_server(folder: str) -> Iterator[tuple[str, int]]:
    """Run pyftpdlib's FTP server over a folder, for the user "user"; yield its host and port."""
    port = free_port()
    with running([sys.executable, "-c", _FTP, str(port), folder, S3_SECRET], port):
        yield "127.0.0.1", port


_WEB: Final = """
import sys
from aiohttp import web
application = web.Application()
application.router.add_static("/", sys.argv[2], show_index=True)
web.run_app(application, host="127.0.0.1", port=int(sys.argv[1]), print=None)
"""


@contextlib.contextmanager
def listing_web_server(folder: str) -> Iterator[tuple[str, int]]:
    """Run aiohttp's web server over a folder; yield its host and port."""
    port = free_port()
    with running([sys.executable, "-c", _WEB, str(port), folder], port):
        yield "127.0.0.1", port


def make_bucket(address: tuple[str, int], name: str) -> None:
    _ask(address, name, "PUT")


def drop_bucket(address: tuple[str, int], name: str) -> None:
    _ask(address, name, "DELETE")


def _ask(address: tuple[str, int], name: str, method: str, headers: dict[str, str] | None = None) -> None:
    request = urllib.request.Request(f"http://{address[0]}:{address[1]}/{name}", method=method, headers=headers or {})
    with urllib.request.urlopen(request, timeout=30):
        pass


@contextlib.contextmanager
def running(command: list[str], port: int, timeout_s: float = 60) -> Iterator[None]:
    """Run a server until the block ends; wait until it listens on ``port``."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        try:
            _wait(process, port, timeout_s, output)
            yield
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(process: subprocess.Popen[bytes], port: int, timeout_s: float, output: Any) -> None:
    end = time.monotonic() + timeout_s
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        if process.poll() is not None or time.monotonic() > end:
            output.seek(0)
            raise RuntimeError(f"{process.args}: no server on port {port}: {output.read()[-2000:]!r}")
        time.sleep(0.05)
