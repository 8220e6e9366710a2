"""Repositories of Icechunk for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import icechunk

if TYPE_CHECKING:
    from pathlib import Path


def of_files_below(folder: Path) -> icechunk.Repository:
    """Return a new repository in memory, whose virtual chunks may be in the files of a folder."""
    prefix = f"file://{folder}/"
    config = icechunk.RepositoryConfig.default()
    config.set_virtual_chunk_container(
        icechunk.VirtualChunkContainer(prefix, icechunk.local_filesystem_store(str(folder)))
    )
    return icechunk.Repository.create(
        icechunk.in_memory_storage(),
        config=config,
        authorize_virtual_chunk_access=icechunk.containers_credentials({prefix: None}),
    )
