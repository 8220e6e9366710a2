"""Values of web servers by fsspec's client, which looks neither at the status of an answer nor at its range."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ..errors import StoreError
from .content_encodings import content_encodings
from .object_errors import NO_RANGES
from .remote_answers import STATUSES, WHOLE, why_not_part, why_not_whole

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


#: Content encodings that aiohttp undoes, or raises an error for.
_UNDONE: Final = frozenset(("br", "deflate", "gzip"))


class NoRangesError(StoreError):
    """A server sends whole values only."""


def checked(cat_file: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Return a function that does as a filesystem's ``_cat_file``, and checks answers if that is of web servers.

    Parameters
    ----------
    cat_file
        Bound method of an asynchronous filesystem. Classes that have their own, of whatever kind, know best.
    """
    http = sys.modules.get("fsspec.implementations.http")
    if http is None or getattr(cat_file, "__func__", None) is not http.HTTPFileSystem._cat_file:
        return cat_file
    return partial(_cat_file, cat_file.__self__)  # type: ignore[attr-defined]


def trusts_any_page(fs: Any) -> bool:
    """Return whether a filesystem writes by fsspec's own client, for which a page for logging in is a success, too."""
    return str(getattr(getattr(type(fs), "_pipe_file", None), "__module__", "")).startswith("fsspec.")


def _encoding(response: Any) -> str:
    """Return the content encoding that aiohttp leaves as it is, without a word; empty if there is none."""
    encodings = content_encodings(response.headers.get("Content-Encoding", ""))
    # Later versions undo zstd, too, and then ask for it.
    undone = {"zstd"} if "zstd" in response.request_info.headers.get("Accept-Encoding", "") else set()
    return "" if len(encodings) == 1 and encodings[0] in _UNDONE | undone else ", ".join(encodings)


async def _cat_file(fs: Any, url: str, start: int | None = None, end: int | None = None) -> bytes:
    """Return the bytes of a file, or of a part of it; a negative ``start`` stands for the last bytes.

    Raises
    ------
    StoreError
        If the server sends others.
    """
    options = dict(fs.kwargs)
    if start is not None:
        part = f"{start}" if start < 0 else f"{start}-{'' if end is None else end - 1}"
        # A part of what was compressed for the way is no part of the value.
        options["headers"] = {"Accept-Encoding": "identity", **options.get("headers", {}), "Range": f"bytes={part}"}
    session = await fs.set_session()
    async with session.get(fs.encode_url(url), **options) as response:
        encoding = _encoding(response)
        status, stated = response.status, response.headers.get("Content-Range", "").encode("latin-1", "replace")
        # A whole value may be large, and is no use.
        ignored = start is not None and start > 0 and status < 300 and (status in WHOLE or status not in STATUSES)
        body: bytes = b"" if ignored else await response.read()
        fs._raise_not_found_for_status(response, url)
    if encoding and body:
        raise StoreError(f"the server sends it with the content encoding {encoding!r}, which fsspec does not undo")
    if start is None:
        wrong = why_not_whole(status, stated, len(body))
    else:
        wrong = why_not_part(status, stated, len(body), start, end)
    if wrong:
        raise NoRangesError(wrong) if wrong == NO_RANGES else StoreError(wrong)
    return body
