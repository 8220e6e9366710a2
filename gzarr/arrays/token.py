"""The token of an array: by it, dask knows that two of its tasks read the same elements.

It covers the place of the array, its metadata, and the versions of its stored values where the store can list them
(:class:`gzarr.stores.base.VersionedListing`): local files, object stores and WebDAV, zip archives, memory. So it is the
same each time that the array is opened, in any process, and another one after a write. Other stores cannot tell: there
it stays the same after a write.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from itertools import islice
from typing import TYPE_CHECKING, Final

from ..stores.base import LocatedStore, VersionedListing, is_listable

if TYPE_CHECKING:
    from ..metadata.model import ArrayMetadata
    from ..stores.base import ReadableStore

#: Stored values that are listed at most: a listing of an object store takes a request for each thousand of them.
MOST_VALUES: Final = 100_000


def token_of(store: ReadableStore, path: str, metadata: ArrayMetadata, reading: str) -> str:
    """Return the token of an array.

    A new one for each call, if nothing says which array it is: the store has no name and no versions, or the array has
    more than ``MOST_VALUES`` stored values, whose listing would take too long.

    Parameters
    ----------
    store, path, metadata
        Store, path and metadata of the array.
    reading
        What else decides what is read from it.

    Raises
    ------
    StoreError
        If the store fails to list its keys.
    """
    place = store.location() if isinstance(store, LocatedStore) else None
    versions = None
    if isinstance(store, VersionedListing) and is_listable(store):
        versions = _versions(store, metadata.key_prefix(path))
    # Versions in a store without a name (memory, zip archives) are digests of values or of the archive: name enough.
    if (place is None and versions is None) or versions == "":
        return uuid.uuid4().hex
    document = json.dumps(metadata.document, sort_keys=True, default=repr)
    parts = (place, path, metadata.shape, document, reading, versions)
    return hashlib.blake2b(repr(parts).encode(errors="surrogatepass"), digest_size=16).hexdigest()


def _versions(store: VersionedListing, prefix: str) -> str | None:
    """Return a digest of the versions of all values; None if one is unknown, ``""`` if there are too many."""
    digest = hashlib.blake2b(digest_size=16)
    found = list(islice(store.list_versions(prefix), MOST_VALUES + 1))
    if len(found) > MOST_VALUES:
        return ""
    # Some stores list in any order.
    for key, version in sorted(found, key=lambda one: one[0]):
        if version is None:
            return None
        digest.update(f"{key}\0{version}\0".encode(errors="surrogatepass"))
    return digest.hexdigest()
