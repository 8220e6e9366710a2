"""Take pictures of pages: ``python ci/site/screenshots.py SITE FOLDER BROWSER``, called by ``ci/screenshots``."""

from __future__ import annotations

import contextlib
import functools
import http.server
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Final

ATTEMPTS: Final = 3
WIDE: Final = (1400, 740)
NARROW: Final = (420, 900)
#: Name of the picture, page, window, colour scheme.
PAGES: Final = [
    ("home", "", WIDE, "light"),
    ("reading-narrow", "reading/", NARROW, "light"),
    ("loader-dark", "loader/", WIDE, "dark"),
    ("imaging-narrow-dark", "imaging/", NARROW, "dark"),
    ("array", "reference/array/", WIDE, "light"),
]


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        """Log nothing."""


def take(browser: str, address: str, target: Path, window: tuple[int, int], scheme: str) -> None:
    """Take one picture.

    Parameters
    ----------
    browser
        Command of Chromium.
    address
        URL of the page.
    target
        PNG file to write.
    window
        Width and height of the window, in pixels.
    scheme
        ``"light"`` or ``"dark"``, as the system prefers.
    """
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    command += [f"--window-size={window[0]},{window[1]}", f"--screenshot={target}"]
    if scheme == "dark":
        command.append("--blink-settings=preferredColorScheme=0")
    for attempt in range(ATTEMPTS):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile, contextlib.ExitStack() as stack:
            # Chromium now and then does not end.
            if attempt < ATTEMPTS - 1:
                stack.enter_context(contextlib.suppress(subprocess.TimeoutExpired))
            subprocess.run(
                [*command, f"--user-data-dir={profile}", address],
                check=True,
                timeout=60,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            return


def main(site: str, folder: str, browser: str) -> None:
    """Serve the site on this machine, and take all pictures."""
    handler = functools.partial(_Quiet, directory=site)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for name, page, window, scheme in PAGES:
            target = Path(folder) / f"{name}.png"
            take(browser, f"http://127.0.0.1:{server.server_port}/{page}", target, window, scheme)
            print(target, target.stat().st_size)
        server.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
