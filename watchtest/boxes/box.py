"""The box as the pipeline uses it: a provider, and a session that is reopened whenever it was lost.

Also builds the zip of the agent's source and the command that starts the agent from it.
"""

from __future__ import annotations

import contextlib
import io
import zipfile
from collections.abc import Callable
from dataclasses import replace
from enum import IntEnum
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

from watchtest.boxes.blocking_calls import in_daemon_thread
from watchtest.boxes.channel import AgentChannel
from watchtest.boxes.no_python.shell_session import ShellSession
from watchtest.boxes.protocols import BoxConnection, BoxProvider, BoxSession, Note, OpenBox, OpenShellBox, Recipe
from watchtest.boxes.session import Session
from watchtest.core.model import BoxInfo
from watchtest.errors import BoxDamaged, BoxError, ChannelLost, EngineError, WatchtestError

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
RENEW_LIMIT_S = 120.0
CLOSE_LIMIT_S = 5.0
REVIVE_LIMIT_S = 5.0
KILL_LIMIT_S = 30.0
DISCARD_LIMIT_S = 60.0
RECREATED = "it is recreated from its image automatically"
TAKEN = "taken"
"""The agent's code for a box that another process holds and does not leave."""


class Repair(IntEnum):
    """What to do with the box before it is used again."""

    NONE = 0
    KILL = 1
    """Kill everything that runs in it."""
    DISCARD = 2
    """Also delete it, so that it is created again."""


class Box:
    """The box of one lane. Call `ensure` before every run; it returns at once while the session is alive."""

    def __init__(self, provider: BoxProvider) -> None:
        self.provider = provider
        self.session: BoxSession | None = None
        self.info: BoxInfo | None = None
        self.on_lost: Callable[[str], None] = lambda _reason: None
        """Called when an established session ends although we did not close it."""
        self.on_revived: Callable[[], None] = lambda: None
        """Called when the processes of the box had been stopped and continue."""
        self._repair = Repair.NONE
        self._repair_because = ""
        self._failures = 0
        """How often in a row the agent could not be reached."""
        self._channel: BoxConnection | None = None
        self.recipe: Recipe | None = None
        """The recipe that the box was last opened with."""

    @property
    def is_open(self) -> bool:
        return self.session is not None and not self.session.channel.is_lost

    async def ensure(self, recipe: Recipe, note: Note) -> tuple[BoxSession, BoxInfo]:
        has_same_image = self.recipe is not None and self.recipe.image == recipe.image
        is_sound = self._repair is Repair.NONE and has_same_image
        if self.session is not None and self.info is not None and self.is_open and is_sound:
            return self.session, self.info
        await self.disconnect()
        await self._carry_out_repair(note)
        try:
            session, info = await self._open(recipe, note)
        except (BoxDamaged, ChannelLost) as error:
            self._note_failure(error)
            raise
        except BoxError as error:
            if error.code == TAKEN:
                error.is_transient = True
                self._note_failure(error)
            raise
        self._failures = 0
        return session, info

    async def _open(self, recipe: Recipe, note: Note) -> tuple[BoxSession, BoxInfo]:
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
            if session.is_empty and not opened.info.is_new:
                raise BoxDamaged("the box has lost what was stored about its tree", hint=RECREATED)
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
                channel.revive = self._revive
                channel.on_revived = lambda: self.on_revived()
                await channel.open()
                return Session(channel)
            case OpenShellBox(tools=tools):
                return ShellSession(tools, self.provider.root, self.provider.home)

    # -- repair ------------------------------------------------------------------------------------

    @property
    def is_condemned(self) -> bool:
        return self._repair is not Repair.NONE

    def condemn(self, reason: str, repair: Repair = Repair.DISCARD) -> None:
        """Repair the box before it is used again. A box without an image is deleted only if that is asked for."""
        self._repair = max(self._repair, repair)
        self._repair_because = reason

    async def kill(self, reason: str) -> None:
        """Kill everything in the box now, because a run in it cannot be stopped. The next run gets a new box."""
        self.condemn(reason, Repair.DISCARD if self.provider.restores_from_image else Repair.KILL)
        with contextlib.suppress(WatchtestError, TimeoutError):  # it is killed again before the box is used
            await in_daemon_thread(self.provider.kill, KILL_LIMIT_S)

    def _note_failure(self, error: BoxError) -> None:
        """Choose a repair after the agent could not be reached; the caller tries again."""
        self._failures += 1
        if isinstance(error, BoxDamaged) or self._failures == 2:
            self.condemn(error.message)
        elif self._failures == 1:
            self.condemn(error.message, Repair.KILL)

    async def _carry_out_repair(self, note: Note) -> None:
        repair, reason = self._repair, self._repair_because
        if repair is Repair.NONE:
            return
        note(f"{reason}: {'recreating' if repair is Repair.DISCARD else 'restarting'} the box")
        try:
            with contextlib.suppress(WatchtestError):  # not running: there is nothing to kill
                await in_daemon_thread(self.provider.kill, KILL_LIMIT_S)
            if repair is Repair.DISCARD:
                await in_daemon_thread(self.provider.discard, DISCARD_LIMIT_S)
        except TimeoutError as error:
            raise EngineError("the box could not be repaired in time") from error
        self._repair, self._repair_because = Repair.NONE, ""

    async def _revive(self) -> bool:
        try:
            is_stopped = await in_daemon_thread(self.provider.is_stopped, REVIVE_LIMIT_S)
        except (WatchtestError, TimeoutError):
            return False
        if is_stopped:
            with contextlib.suppress(WatchtestError, TimeoutError):  # it is stopped again at once
                await in_daemon_thread(self.provider.revive, REVIVE_LIMIT_S)
        return is_stopped

    async def disconnect(self) -> None:
        if self._channel is not None:
            self._channel.on_lost = lambda _reason: None
            await self._channel.close()
        self._channel = None
        self.session = None

    async def renew(self, recipe: Recipe, key: str) -> None:
        """Give up the box; the next `ensure` opens a new one."""
        await self.disconnect()
        try:
            await in_daemon_thread(lambda: self.provider.renew(recipe, key), RENEW_LIMIT_S)
        except TimeoutError as error:
            raise EngineError(f"the old box was not removed within {RENEW_LIMIT_S:g} s") from error

    async def close(self) -> None:
        await self.disconnect()
        await in_daemon_thread(self.provider.close, CLOSE_LIMIT_S)
