"""An asynchronous filesystem of fsspec, in memory: as object stores have it, directories are parts of names only."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from fsspec.asyn import AsyncFileSystem


class AsynchronousFiles(AsyncFileSystem):  # type: ignore[misc]
    """Files in a dict of this process."""

    protocol = "asynchronous"
    files: ClassVar[dict[str, bytes]] = {}

    async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        await asyncio.sleep(0)
        return self._file(path)[start:end]

    async def _pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        await asyncio.sleep(0)
        self.files[self._strip_protocol(path)] = bytes(value)

    async def _rm_file(self, path: str, **_: Any) -> None:
        await asyncio.sleep(0)
        self._file(path)
        del self.files[self._strip_protocol(path)]

    async def _info(self, path: str, **_: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        if path in self.files:
            return {"name": path, "size": len(self.files[path]), "type": "file"}
        if any(name.startswith(f"{path}/") for name in self.files):
            return {"name": path, "size": 0, "type": "directory"}
        raise FileNotFoundError(path)

    async def _ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        path = self._strip_protocol(path)
        below = {name[len(path) + 1 :].partition("/")[0] for name in self.files if name.startswith(f"{path}/")}
        found = [await self._info(f"{path}/{name}") for name in sorted(below)]
        if not found:
            found = [await self._info(path)]
        return found if detail else [entry["name"] for entry in found]

    def _file(self, path: str) -> bytes:
        try:
            return self.files[self._strip_protocol(path)]
        except KeyError:
            raise FileNotFoundError(path) from None
