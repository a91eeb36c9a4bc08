"""A dashboard with its keys, and the programs that take its place for a while. The same over a watcher in this process
and over one elsewhere: `Scene` is all that it sees of either.

The programs that take the place of the dashboard for a while: a pager, and an editor at a line. Starts nothing.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Protocol, Self

from watchtest.core.model import Location
from watchtest.views.dashboard.key_reader import KeyReader, is_behind
from watchtest.views.dashboard.live_screen import LiveScreen
from watchtest.views.dashboard.navigation import Action, ViewState, press
from watchtest.views.dashboard.styled_rows import StyledRow

PLUS_LINE = frozenset(
    {"vi", "vim", "nvim", "gvim", "mvim", "nano", "pico", "emacs", "emacsclient", "kak", "micro", "joe", "ne", "mcedit"}
)
GOTO = frozenset({"code", "code-insiders", "codium", "vscodium", "cursor", "windsurf"})
COLON_LINE = frozenset({"subl", "sublime_text", "hx", "helix", "zed", "zeditor", "lapce"})
LINE_OPTION = frozenset({"idea", "pycharm", "charm", "goland", "clion", "webstorm", "rustrover"})
PAGERS = ("less", "more")
EDITORS = ("editor", "vi", "nano")


def pager(environ: Mapping[str, str], which: Callable[[str], str | None]) -> list[str]:
    """None: an empty list."""
    words = _words(environ.get("PAGER", "")) or _first(PAGERS, which)
    if words and _name(words[0]) == "less":
        words.append("-+F")  # which leaves at once where all fits on a screen, and nobody would see it
    return words


def editor(environ: Mapping[str, str], which: Callable[[str], str | None], file: str, line: int) -> list[str]:
    """The user's editor, at that line where it is known how to say so; an empty list if there is none."""
    words = _words(environ.get("VISUAL", "")) or _words(environ.get("EDITOR", "")) or _first(EDITORS, which)
    if not words:
        return []
    name = _name(words[0])
    if name in GOTO:
        return [*words, "--goto", f"{file}:{line}"]
    if name in COLON_LINE:
        return [*words, f"{file}:{line}"]
    if name in LINE_OPTION:
        return [*words, "--line", str(line), file]
    return [*words, f"+{line}", file] if name in PLUS_LINE or name == "editor" else [*words, file]


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # a quote without its other half
        return [command]


def _first(names: tuple[str, ...], which: Callable[[str], str | None]) -> list[str]:
    return next(([name] for name in names if which(name)), [])


def _name(program: str) -> str:
    return os.path.basename(program).removesuffix(".exe")  # noqa: PTH119  a word, not a path


log = logging.getLogger(__name__)
LEAVE_LIMIT_S = 2.0


def has_screen(environ: Mapping[str, str]) -> bool:
    """Whether a dashboard can be drawn on stdout."""
    return sys.stdout.isatty() and environ.get("TERM", "").lower() not in ("dumb", "unknown")


class DashboardBackend(Protocol):
    """What is looked at."""

    def rows(self, look: ViewState, height: int, now: float) -> Sequence[StyledRow]: ...

    def choices(self, look: ViewState) -> int:
        """How many failures can be chosen from."""

    def place(self, look: ViewState) -> Location | None:
        """Of the failure that was chosen, or of the first."""

    async def page(self, look: ViewState) -> str:
        """All that there is to read."""

    def wish(self, wish: Action, look: ViewState) -> None:
        """Neither output nor edit: those are done here."""


class Dashboard:
    """Has the terminal while entered. `root` is the workspace; `say` tells the user what did not work."""

    def __init__(
        self, scene: DashboardBackend, root: str, environ: Mapping[str, str], say: Callable[[str], None]
    ) -> None:
        self._scene = scene
        self._root = root
        self._environ = environ
        self._say = say
        self._dashboard = LiveScreen(scene.rows)
        self._input = sys.stdin.fileno()
        self._keys = KeyReader(self._input, self._press)
        self._terminal = ExitStack()
        self._away: asyncio.Task[None] | None = None
        self._is_asleep = False
        """Somebody else has the terminal until we are in front again."""
        self._has_left = False
        self._signals: dict[int, Callable[[], None]] = {}
        if hasattr(signal, "SIGTSTP"):
            self._signals = {
                signal.SIGTSTP: self._sleep,
                signal.SIGWINCH: lambda: self._dashboard.tick(time.time()),
            }

    async def __aenter__(self) -> Self:
        self._take()
        if self._keys.unavailable:
            self._say(self._keys.unavailable)
        for number, react in self._signals.items():
            asyncio.get_running_loop().add_signal_handler(number, react)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._has_left = True
        for number in self._signals:
            asyncio.get_running_loop().remove_signal_handler(number)
        if self._away is not None and not self._away.done():
            self._away.cancel()
            await asyncio.wait({self._away}, timeout=LEAVE_LIMIT_S + 1)
        self.give_back()

    @property
    def is_away(self) -> bool:
        """Another program has the terminal: Ctrl-C is for that one."""
        return self._away is not None and not self._away.done()

    def refresh(self, now: float) -> None:
        self._dashboard.refresh(now)

    def tick(self, now: float) -> None:
        if self._is_asleep:
            self._take()
        self._dashboard.tick(now)

    def give_back(self) -> None:
        """The terminal, as it was; also for those who leave in a hurry."""
        self._terminal.close()

    def _take(self) -> None:
        """The terminal, once it is ours to take."""
        if self._has_left:
            return
        self._is_asleep = is_behind(self._input)
        if self._is_asleep:
            return
        try:
            self._terminal.enter_context(self._dashboard)
            self._terminal.enter_context(self._keys)
        except BaseException:
            self.give_back()
            raise
        self._dashboard.draw(time.time())

    def _sleep(self) -> None:
        """Ctrl-Z: the shell gets its terminal, and we take it again when we are back in front."""
        if not self.is_away:  # else a pager or an editor, which sleeps with us, has it before and after
            self.give_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        if not self.is_away:
            self._take()

    # -- keys --------------------------------------------------------------------------------------

    def _press(self, key: str) -> None:
        look, wish = press(self._dashboard.look, key, self._scene.choices(self._dashboard.look))
        if look != self._dashboard.look:
            self._dashboard.look_as(look, time.time())
        match wish:
            case None:
                pass
            case Action.OUTPUT | Action.EDIT:
                if not self.is_away:
                    self._away = asyncio.get_running_loop().create_task(self._go_away(wish, look), name=f"the {wish}")
            case _:
                self._scene.wish(wish, look)

    async def _go_away(self, wish: Action, look: ViewState) -> None:
        """Let a pager or an editor have the terminal; whatever becomes of it, the dashboard comes back."""
        try:
            await (self._page(look) if wish is Action.OUTPUT else self._edit(look))
        except OSError as error:
            self._say(f"{wish}: {error.strerror or error}")
        except Exception as error:
            log.exception("the %s failed by a bug", wish)
            self._say(f"{wish} failed by a bug: {type(error).__name__}: {error}; the log has the details")

    async def _page(self, look: ViewState) -> None:
        text = await self._scene.page(look)
        words = pager(self._environ, shutil.which)
        if not words:
            self._say("there is no pager: set $PAGER; `watchtest output` prints the same")
            return
        await self._in_front(words, text.encode("utf-8", "replace"))

    async def _edit(self, look: ViewState) -> None:
        place = self._scene.place(look)
        if place is None:
            self._say("nothing to edit: no failure here names a line")
            return
        words = editor(self._environ, shutil.which, os.path.join(self._root, place.file), place.line)  # noqa: PTH118
        if not words:
            self._say("there is no editor: set $EDITOR")
            return
        await self._in_front(words, None)

    async def _in_front(self, words: Sequence[str], text: bytes | None) -> None:
        self.give_back()
        try:
            stdin = None if text is None else asyncio.subprocess.PIPE
            child = await asyncio.create_subprocess_exec(*words, stdin=stdin, cwd=self._root)
            try:
                await child.communicate(text)
            finally:
                if child.returncode is None:  # we are leaving, and it has our terminal
                    child.terminate()
                    try:
                        await asyncio.wait_for(child.wait(), LEAVE_LIMIT_S)
                    except TimeoutError:
                        child.kill()
            if child.returncode not in (0, None):
                self._say(f"{words[0]} ended with code {child.returncode}")
        finally:
            self._take()
