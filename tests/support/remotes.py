"""Servers of several kinds, behind one face, for tests that all of them must pass."""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import gzarr

from . import servers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BUCKET: Final = "bucket"


@dataclass(frozen=True)
class Remote:
    """A running server.

    Attributes
    ----------
    address
        Host and port.
    scheme
        Scheme of URLs of its buckets; ``http`` for a server without buckets.
    options
        Function of the URL through which it is reached; returns storage options.
    change_bucket
        Function of a name and ``"PUT"`` or ``"DELETE"``: makes or drops a bucket.
    secrets
        Text that must never be shown.
    """

    address: tuple[str, int]
    scheme: str
    options: Callable[[str], dict[str, Any]]
    change_bucket: Callable[[str, str], None]
    secrets: tuple[str, ...] = ()

    def url(self, endpoint: str, root: str, bucket: str = BUCKET) -> str:
        """Return the URL of a root behind an endpoint."""
        return f"{endpoint}/{bucket}/{root}" if self.scheme == "http" else f"{self.scheme}://{bucket}/{root}"

    def store(self, endpoint: str, root: str, *, bucket: str = BUCKET, read_only: bool = False, **others: Any) -> Any:
        """Return a store."""
        options = {**self.options(endpoint), **others}
        return gzarr.open_store(self.url(endpoint, root, bucket), read_only=read_only, storage_options=options)


def azure_options(url: str) -> dict[str, Any]:
    """Return storage options for Azurite with its account key."""
    endpoint = f"{url}/{servers.AZURE_ACCOUNT}"
    return {"account_name": servers.AZURE_ACCOUNT, "account_key": servers.AZURE_KEY, "endpoint": endpoint}


def gcs_options(url: str) -> dict[str, Any]:
    """Return storage options for the GCS server."""
    return {"base_url": url, "bearer_token": servers.GCS_TOKEN}


@contextlib.contextmanager
def remote(kind: str) -> Iterator[Remote]:
    """Run a server of the kind ``"s3"``, ``"azure"``, ``"gcs"`` or ``"webdav"``, with a bucket."""
    with contextlib.ExitStack() as stack:
        made: Remote
        if kind == "s3":
            address = stack.enter_context(servers.s3_server())
            changes = {"PUT": servers.make_bucket, "DELETE": servers.drop_bucket}
            made = Remote(
                address,
                "s3",
                servers.s3_options,
                lambda name, method: changes[method](address, name),
                (servers.S3_SECRET,),
            )
        elif kind == "azure":
            address = stack.enter_context(servers.azure_server())
            made = Remote(
                address,
                "az",
                azure_options,
                lambda name, method: servers.azure_container(address, name, method),
                (servers.AZURE_KEY,),
            )
        elif kind == "gcs":
            address = stack.enter_context(servers.gcs_server())
            made = Remote(
                address,
                "gs",
                gcs_options,
                lambda name, method: servers.gcs_bucket(address, name, method),
                (servers.GCS_TOKEN,),
            )
        else:
            assert kind == "webdav"
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            address = stack.enter_context(servers.webdav_server(folder))
            made = Remote(address, "http", lambda url: {}, lambda name, method: (folder / name).mkdir())
        made.change_bucket(BUCKET, "PUT")
        yield made
