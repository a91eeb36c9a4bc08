"""Sleeps until something stirs in a few folders, or for a while. A hint and no more: its user looks for itself."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

if sys.platform == "linux":
    from watchtest.sources.inotify import Inotify

MOST_SECONDS_TO_CLOSE = 5.0


class Stirring:
    """Where the kernel wakes it, it sleeps for `rest_s` at most, and `look_s` once woken; elsewhere for `look_s`."""

    def __init__(self, look_s: float, rest_s: float) -> None:
        self._look_s = look_s
        self._rest_s = rest_s
        self._folders: tuple[str, ...] = ()
        self._source: Inotify | None = None
        self._call: asyncio.Future[frozenset[str]] | None = None

    async def subscribe(self, folders: Sequence[str]) -> None:
        """To be called before each look: what changes from then on ends the next sleep."""
        if tuple(folders) == self._folders and (self._source is not None or sys.platform != "linux"):
            return
        await self.close()
        self._folders = tuple(folders)
        if sys.platform == "linux":
            try:
                self._source = Inotify("", _relative(self._folders))
            except OSError:
                return  # gone for a moment, or no more watches to be had: it looks more often then

    async def sleep(self) -> None:
        if self._source is None:
            await asyncio.sleep(self._look_s)
            return
        if self._call is None:
            self._call = asyncio.get_running_loop().run_in_executor(None, self._source.wait)
        await asyncio.wait({self._call}, timeout=self._rest_s)
        if self._call.done():
            call, self._call = self._call, None
            if not call.result().isdisjoint(_relative(self._folders)):
                self._folders = ()  # one of them is gone, and another may have taken its place
            await asyncio.sleep(self._look_s)  # what stirs once mostly stirs again

    async def close(self) -> None:
        source, call = self._source, self._call
        self._source, self._call, self._folders = None, None, ()
        if source is None:
            return
        source.end()
        if call is not None:
            await asyncio.wait({call}, timeout=MOST_SECONDS_TO_CLOSE)
            if not call.done():
                return  # still in use; it goes with its thread
            call.exception()
        source.close()


def _relative(folders: Sequence[str]) -> list[str]:
    return [folder.removeprefix("/") for folder in folders]
