"""The dashboard on a terminal: the screen, its keys, and the pager or editor that takes over the terminal for a while.

It works the same for a watcher in this process and for one elsewhere: it knows both only as a `DashboardBackend`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Protocol, Self

from watchtest.core.model import Location
from watchtest.views.dashboard.actions import Action
from watchtest.views.dashboard.key_reader import KeyReader, is_in_background
from watchtest.views.dashboard.live_screen import LiveScreen
from watchtest.views.dashboard.navigation import ViewState, press
from watchtest.views.dashboard.styled_rows import StyledRow
from watchtest.views.editor_and_pager import editor, pager

log = logging.getLogger(__name__)
TERMINATE_LIMIT_S = 2.0
"""How long a pager or editor has to end after SIGTERM."""


def has_screen(environ: Mapping[str, str]) -> bool:
    """Return whether a dashboard can be drawn on stdout."""
    return sys.stdout.isatty() and environ.get("TERM", "").lower() not in ("dumb", "unknown")


class DashboardBackend(Protocol):
    """The watcher behind a dashboard."""

    def rows(self, view: ViewState, height: int, now: float) -> Sequence[StyledRow]: ...

    def failure_count(self, view: ViewState) -> int:
        """Return how many failures can be selected."""

    def location(self, view: ViewState) -> Location | None:
        """Return the location of the selected failure, or of the first one."""

    async def output(self, view: ViewState) -> str:
        """Return the complete output of the selected failure, or of all failures."""

    def perform(self, action: Action, view: ViewState) -> None:
        """Perform any action but output and edit, which the dashboard performs itself."""


class Dashboard:
    """Owns the terminal while entered. `root` is the workspace; `say` shows the user what did not work."""

    def __init__(
        self, backend: DashboardBackend, root: str, environ: Mapping[str, str], say: Callable[[str], None]
    ) -> None:
        self._backend = backend
        self._root = root
        self._environ = environ
        self._say = say
        self.screen = LiveScreen(backend.rows)
        self._input = sys.stdin.fileno()
        self._keys = KeyReader(self._input, self._press)
        self._terminal = ExitStack()
        self._program: asyncio.Task[None] | None = None
        """Runs the pager or editor that has the terminal."""
        self._is_suspended = False
        """Another program has the terminal until we are in the foreground again."""
        self._has_left = False
        self._signals: dict[int, Callable[[], None]] = {}
        if hasattr(signal, "SIGTSTP"):
            self._signals = {signal.SIGTSTP: self._suspend, signal.SIGWINCH: lambda: self.screen.tick(time.time())}

    async def __aenter__(self) -> Self:
        self._take_terminal()
        if self._keys.unavailable:
            self._say(self._keys.unavailable)
        for number, handler in self._signals.items():
            asyncio.get_running_loop().add_signal_handler(number, handler)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._has_left = True
        for number in self._signals:
            asyncio.get_running_loop().remove_signal_handler(number)
        if self._program is not None and not self._program.done():
            self._program.cancel()
            await asyncio.wait({self._program}, timeout=TERMINATE_LIMIT_S + 1)
        self.release_terminal()

    @property
    def is_program_open(self) -> bool:
        """Whether a pager or editor has the terminal; Ctrl-C is then meant for that program."""
        return self._program is not None and not self._program.done()

    def tick(self, now: float) -> None:
        if self._is_suspended:
            self._take_terminal()
        self.screen.tick(now)

    def release_terminal(self) -> None:
        """Restore the terminal; also called before an immediate exit."""
        self._terminal.close()

    def _take_terminal(self) -> None:
        """Draw on the terminal, unless this process is in the background."""
        if self._has_left:
            return
        self._is_suspended = is_in_background(self._input)
        if self._is_suspended:
            return
        try:
            self._terminal.enter_context(self.screen)
            self._terminal.enter_context(self._keys)
        except BaseException:
            self.release_terminal()
            raise
        self.screen.draw(time.time())

    def _suspend(self) -> None:
        """Handle Ctrl-Z: give the terminal to the shell, and take it again when we are back in the foreground."""
        if not self.is_program_open:  # otherwise the pager or editor keeps the terminal, and stops together with us
            self.release_terminal()
        os.kill(os.getpid(), signal.SIGSTOP)
        if not self.is_program_open:
            self._take_terminal()

    # -- keys --------------------------------------------------------------------------------------

    def _press(self, key: str) -> None:
        before = self.screen.view
        view, action = press(before, key, self._backend.failure_count(before))
        if view != before:
            self.screen.change_view(view, time.time())
        match action:
            case None:
                pass
            case Action.OUTPUT | Action.EDIT:
                if not self.is_program_open:
                    task = self._open_program(action, view)
                    self._program = asyncio.get_running_loop().create_task(task, name=f"the {action}")
            case _:
                self._backend.perform(action, view)

    async def _open_program(self, action: Action, view: ViewState) -> None:
        """Give the terminal to a pager or an editor. The dashboard comes back however that ends."""
        try:
            await (self._page_output(view) if action is Action.OUTPUT else self._edit(view))
        except OSError as error:
            self._say(f"{action}: {error.strerror or error}")
        except Exception as error:
            log.exception("internal error in the action %s", action)
            self._say(f"{action}: internal error: {type(error).__name__}: {error}; see the log for details")

    async def _page_output(self, view: ViewState) -> None:
        text = await self._backend.output(view)
        command = pager(self._environ, shutil.which)
        if not command:
            self._say("no pager found: set $PAGER, or use `watchtest output`")
            return
        await self._run_program(command, text.encode("utf-8", "replace"))

    async def _edit(self, view: ViewState) -> None:
        location = self._backend.location(view)
        if location is None:
            self._say("nothing to edit: no failure has a file and line")
            return
        file = os.path.join(self._root, location.file)  # noqa: PTH118
        command = editor(self._environ, shutil.which, file, location.line)
        if not command:
            self._say("no editor found: set $EDITOR")
            return
        await self._run_program(command, None)

    async def _run_program(self, command: Sequence[str], text: bytes | None) -> None:
        self.release_terminal()
        try:
            stdin = None if text is None else asyncio.subprocess.PIPE
            child = await asyncio.create_subprocess_exec(*command, stdin=stdin, cwd=self._root)
            try:
                await child.communicate(text)
            finally:
                if child.returncode is None:  # the dashboard is being left while the program has the terminal
                    child.terminate()
                    try:
                        await asyncio.wait_for(child.wait(), TERMINATE_LIMIT_S)
                    except TimeoutError:
                        child.kill()
            if child.returncode not in (0, None):
                self._say(f"{command[0]} exited with code {child.returncode}")
        finally:
            self._take_terminal()
