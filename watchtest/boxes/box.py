"""The box as the pipeline uses it: a provider, and a session that is reopened whenever it was lost.

Also builds the zip of the agent's source and the command that starts the agent from it.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

from watchtest.boxes.blocking_calls import in_daemon_thread
from watchtest.boxes.channel import AgentChannel
from watchtest.boxes.no_python.shell_session import ShellSession
from watchtest.boxes.protocols import BoxConnection, BoxProvider, BoxSession, Note, OpenBox, OpenShellBox, Recipe
from watchtest.boxes.session import Session
from watchtest.core.model import BoxInfo
from watchtest.errors import EngineError

PACKAGE = "watchtest_agent"


@cache
def agent_zip() -> bytes:
    """Return a zip of every module of watchtest.agent, under the package name used inside the box."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        _add(archive, resources.files("watchtest.agent"), PACKAGE)
    return buffer.getvalue()


def _add(archive: zipfile.ZipFile, folder: Traversable, name: str) -> None:
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.is_dir():
            _add(archive, file, f"{name}/{file.name}")
        elif file.name.endswith(".py"):
            archive.writestr(f"{name}/{file.name}", file.read_bytes())


def start_command(python: str, home: str, root: str, agent: bytes) -> list[str]:
    """Return the command that starts the agent.

    Python runs in isolated mode: neither the workspace nor the user's environment can shadow what the agent imports.
    """
    bootstrap = resources.files("watchtest.agent").joinpath("bootstrap.py").read_text(encoding="utf-8")
    return [python, "-I", "-c", bootstrap, home, root, str(len(agent))]


OPEN_LIMIT_S = 1200.0
"""Long, because it may include pulling an image."""
CLOSE_LIMIT_S = 5.0


class Box:
    """The box of one lane. Call `ensure` before every run; it returns at once while the session is alive."""

    def __init__(self, provider: BoxProvider) -> None:
        self.provider = provider
        self.session: BoxSession | None = None
        self.info: BoxInfo | None = None
        self.on_lost: Callable[[str], None] = lambda _reason: None
        """Called when an established session ends although we did not close it."""
        self._channel: BoxConnection | None = None
        self.recipe: Recipe | None = None
        """The recipe that the box was last opened with."""

    @property
    def is_open(self) -> bool:
        return self.session is not None and not self.session.channel.is_lost

    async def ensure(self, recipe: Recipe, note: Note) -> tuple[BoxSession, BoxInfo]:
        has_same_image = self.recipe is not None and self.recipe.image == recipe.image
        if self.session is not None and self.info is not None and self.is_open and has_same_image:
            return self.session, self.info
        await self.disconnect()
        try:
            opened = await in_daemon_thread(
                lambda: self.provider.open(agent_zip(), recipe, note), OPEN_LIMIT_S, lambda late: late.close()
            )
        except TimeoutError as error:
            raise EngineError(f"the box was not ready within {OPEN_LIMIT_S:g} s") from error
        self.recipe = recipe
        session = await self._session(opened)
        self._channel = session.channel
        try:
            await session.open()
        except BaseException:
            await self.disconnect()
            raise
        self.session, self.info = session, replace(opened.info, python=session.python)
        self._channel.on_lost = self.on_lost
        return session, self.info

    async def _session(self, opened: OpenBox | OpenShellBox) -> BoxSession:
        match opened:
            case OpenBox(stream=stream):
                channel = AgentChannel(stream)
                await channel.open()
                return Session(channel)
            case OpenShellBox(tools=tools):
                return ShellSession(tools, self.provider.root, self.provider.home)

    async def disconnect(self) -> None:
        if self._channel is not None:
            self._channel.on_lost = lambda _reason: None
            await self._channel.close()
        self._channel = None
        self.session = None

    async def close(self) -> None:
        await self.disconnect()
        await in_daemon_thread(self.provider.close, CLOSE_LIMIT_S)
