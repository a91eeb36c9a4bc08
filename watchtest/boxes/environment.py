"""Prepare a box for tests: create its virtualenv and run the setup commands of the project.

The box stores the key of its setup, so an adopted box starts at once, and a box whose dependency files have changed is
recognised as outdated. The provider saves the result of setup for the next box.
"""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from watchtest.boxes.blocking_calls import in_daemon_thread
from watchtest.boxes.channel import FREE_DISK_HINT
from watchtest.boxes.protocols import (
    BoxProvider,
    BoxSession,
    Command,
    JobLimits,
    JobResult,
    JobSpec,
    Note,
    Recipe,
    StopSignal,
    no_python_error,
)
from watchtest.core.model import Provisional, ProvisionalCode
from watchtest.core.text import names
from watchtest.errors import BoxError, DiskFull, EngineError, WatchtestError

TAIL_LINES = 8
SAVE_LIMIT_S = 660.0
NETWORK_LIMIT_S = 120.0
SETUP_AGAIN = "(setup, on top of these changes)"
"""Recorded among the manual changes when setup has run in a box that already had some."""


class Standing(Enum):
    """What a box holds, compared with what its tree needs."""

    NEW = auto()
    """The content of its image or snapshot, without any setup yet."""
    CLEAN = auto()
    """Exactly the result of this setup."""
    OUTDATED = auto()
    """The result of another setup. Tests can run in it."""
    BROKEN = auto()
    """A setup that was interrupted or failed, or whose interpreter is gone."""


@dataclass(frozen=True, slots=True)
class PreparedBox:
    """A box that is ready for tests: its interpreter, and whether setup has just run."""

    python: str
    is_fresh: bool


class Environment:
    """The virtualenv and the setup of one box.

    It is a function of its inputs: setup runs once, in a new box. Only a box that the user has changed by hand is never
    replaced: there, setup runs again on top, and is recorded as another such change.
    """

    def __init__(
        self,
        provider: BoxProvider,
        *,
        timeout_s: float,
        grace_s: float,
        python: str,
        env: Mapping[str, str],
        manual_changes: Callable[[], tuple[str, ...]] = tuple,
        record_change: Callable[[str], None] = lambda _change: None,
    ) -> None:
        """`manual_changes` returns what the user has changed by hand since the box was created."""
        self._manual_changes = manual_changes
        self._record_change = record_change
        self._provider = provider
        self._limits = JobLimits(timeout_s, timeout_s, grace_s)
        self._python = python
        self.env = dict(env)
        self._prepared: BoxSession | None = None
        self._begun: BoxSession | None = None
        """The session in which setup was begun."""

    def beside(self, provider: BoxProvider) -> Environment:
        """Return the same environment for another box, which the user does not reach."""
        limits = self._limits
        return Environment(provider, timeout_s=limits.run_s, grace_s=limits.grace_s, python=self._python, env=self.env)

    @property
    def root(self) -> str:
        """The path of the workspace inside the box."""
        return self._provider.root

    @property
    def venv(self) -> str:
        return f"{self._provider.home}/venv"

    @property
    def path_first(self) -> tuple[str, ...]:
        return (f"{self.venv}/bin",)

    @property
    def is_changed_by_hand(self) -> bool:
        return bool(self._manual_changes())

    def key(self, recipe: Recipe) -> str:
        """Return a key of everything that the content of a clean environment depends on, except the engine."""
        return f"{self._provider.image_name(recipe)} {recipe.key}"

    def _setup_key(self, session: BoxSession, recipe: Recipe) -> str:
        return f"{self.key(recipe)} {self._python or session.executable}"

    async def standing(self, session: BoxSession, recipe: Recipe, *, is_new: bool) -> Standing:
        """Return what the box holds. `is_new` means that it was created with this session."""
        state = session.saved_state
        python = state.get("python")
        is_set_up = isinstance(python, str) and "setup" in state
        if is_set_up and not await self._has_python(session, str(python)):
            return Standing.BROKEN
        if is_set_up and state["setup"] == self._setup_key(session, recipe) and state.get("is_clean") is True:
            return Standing.CLEAN
        if (is_new or not state) and session not in (self._begun, self._prepared):
            return Standing.NEW
        return Standing.OUTDATED if is_set_up else Standing.BROKEN

    def provisional(self, standing: Standing) -> Provisional | None:
        """Return why a verdict from this box is provisional."""
        changes = self._manual_changes()
        keeps = "`watchtest snapshot` keeps what was changed; " if self._provider.restores_from_image else ""
        by_hand = names([change for change in changes if change != SETUP_AGAIN])
        if standing is Standing.OUTDATED:
            return Provisional(ProvisionalCode.DEPENDENCIES, "tested with the dependencies of before")
        if SETUP_AGAIN in changes:
            return Provisional(
                ProvisionalCode.DEPENDENCIES,
                f"the dependencies have changed in a box changed by hand: {by_hand}",
                f"{keeps}`watchtest reset` makes a box without these changes",
            )
        if changes:
            return Provisional(
                ProvisionalCode.BY_HAND,
                f"changed by hand: {by_hand}",
                f"{keeps}`watchtest reset` discards it",
            )
        return None

    async def prepare(
        self, session: BoxSession, recipe: Recipe, standing: Standing, note: Note, stop: StopSignal
    ) -> PreparedBox | None:
        """Set up the box unless tests can run in it as it stands. Return None if the run was stopped."""
        base = self._python or session.executable
        if not base and recipe.needs_pytest:
            raise no_python_error()
        is_by_hand = self.is_changed_by_hand
        if standing is Standing.CLEAN or (standing is Standing.OUTDATED and not is_by_hand):
            if self._prepared is not session:
                await self._allow_network(False)  # a killed watcher may have left it on
                self._prepared = session
            return PreparedBox(str(session.saved_state["python"]), is_fresh=False)
        if is_by_hand and standing is not Standing.NEW:
            note(
                "the dependencies have changed: running setup again in the existing box, because it was changed by hand"
            )
            self._record_change(SETUP_AGAIN)
        # An interrupted setup must not pass for a completed one.
        without_setup = {name: value for name, value in session.saved_state.items() if name != "setup"}
        self._begun = session
        await session.save_state({**without_setup, "is_clean": False})
        await self._allow_network(True)
        try:
            python = await self._set_up(session, recipe, base, note, stop)
        except WatchtestError:
            with contextlib.suppress(WatchtestError):
                await self._allow_network(False)
            raise
        await self._allow_network(False)
        if python is None:
            return None
        setup = self._setup_key(session, recipe)
        # What was done by hand is recorded outside the box, so that the user can keep it.
        await session.save_state({"setup": setup, "python": python, "base": base, "is_clean": True})
        await self._save(recipe, note)
        self._prepared = session
        return PreparedBox(python, is_fresh=True)

    async def _has_python(self, session: BoxSession, python: str) -> bool:
        """Return whether the interpreter is still there. It is checked once per session."""
        if self._prepared is session or not python:
            return True
        return (await self._job(session, f"test -x {shlex.quote(python)}")).exit_code == 0

    async def refresh_index(self, session: BoxSession) -> None:
        """Let git in the box note which files are unchanged: plumbing like `git diff-index` relies on it."""
        await self._job(session, "command -v git >/dev/null && exec git update-index -q --refresh >/dev/null 2>&1")

    async def _set_up(self, session: BoxSession, recipe: Recipe, base: str, note: Note, stop: StopSignal) -> str | None:
        if base and session.saved_state.get("base", base) != base:
            note(f"the box's Python is now {base}: recreating its virtualenv")
            await self._job(session, f"rm -rf {shlex.quote(self.venv)}")
        python = await self._make_virtualenv(session, base, note, stop) if base else ""
        for command in recipe.commands:
            if not await self._run(session, command, note, stop):
                return None
        if recipe.needs_pytest:
            check = await self._job(session, f"{shlex.quote(python)} -c 'import pytest'")
            if check.exit_code != 0 and not await self._run(session, "pip install pytest", note, stop):
                return None
        return None if stop.is_set else python

    async def _save(self, recipe: Recipe, note: Note) -> None:
        """Save the box for the next one, unless it is changed by hand. A failure is only reported: this box works."""
        if self.is_changed_by_hand:
            return
        try:
            await in_daemon_thread(lambda: self._provider.save_environment(recipe, note), SAVE_LIMIT_S)
        except (WatchtestError, TimeoutError) as error:
            note(f"the environment could not be saved, so a new box will need setup again: {error}")

    async def _allow_network(self, is_allowed: bool) -> None:
        try:
            await in_daemon_thread(lambda: self._provider.allow_network(is_allowed), NETWORK_LIMIT_S)
        except TimeoutError as error:
            raise EngineError("the engine did not change the box's network in time") from error

    async def _make_virtualenv(self, session: BoxSession, base: str, note: Note, stop: StopSignal) -> str:
        options = "" if self._provider.shares_host_python else "--system-site-packages"
        venv, python = shlex.quote(self.venv), shlex.quote(f"{self.venv}/bin/python")
        # The pip wrapper is written last and atomically: a virtualenv without it is incomplete.
        script = f"""
            test -x {python} && test -x {venv}/bin/pip && exit 0
            {shlex.quote(base)} -m venv --clear --without-pip {options} {venv} || exit 1
            printf '#!/bin/sh\\n"%s" -c "import pip" 2>/dev/null || "%s" -m ensurepip >/dev/null || exit 1\\n'"""
        script += f"""'exec "%s" -m pip "$@"\\n' {python} {python} {python} > {venv}/bin/pip.new
            chmod 755 {venv}/bin/pip.new && mv {venv}/bin/pip.new {venv}/bin/pip
        """
        note("creating the box's virtualenv")
        result = await self._job(session, script, stop=stop)
        if result.exit_code != 0 and result.stopped is None:
            note(f"cannot create a virtualenv ({_tail(result, 1)}): using the image's own Python")
            return base
        return f"{self.venv}/bin/python"

    async def _run(self, session: BoxSession, command: str, note: Note, stop: StopSignal) -> bool:
        """Run a command of the setup. Return False if the run was stopped."""
        if stop.is_set:
            return False
        note(f"setup: {command}")
        result = await self._job(session, command, note, stop)
        if result.stopped in ("cancelled", "killed"):
            return False
        if result.exit_code != 0 and result.full_disk:
            raise DiskFull(
                f"setup failed: {command}: the box has no space left in {result.full_disk}", hint=FREE_DISK_HINT
            )
        if result.exit_code != 0:
            why = result.reason or f"exit code {result.exit_code}"
            raise BoxError(
                f"setup failed: {command} ({why})\n{_tail(result, TAIL_LINES)}",
                hint="fix it and save, try it by hand with `watchtest exec -- …`, or set box.setup",
            )
        return True

    async def _job(
        self, session: BoxSession, script: str, note: Note | None = None, stop: StopSignal | None = None
    ) -> JobResult:
        def show(text: str) -> None:
            lines = [line for line in text.splitlines() if line.strip()]
            if lines and note is not None:
                note(f"setup: {lines[-1].strip()[:200]}")

        job = JobSpec(Command(("/bin/sh", "-c", script)), self._limits, self.variables, self.path_first)
        return await session.run(job, lambda _rows: None, show, stop.job_stops if stop is not None else None)

    @property
    def variables(self) -> dict[str, str]:
        return {**self._provider.variables, **self.env, "VIRTUAL_ENV": self.venv, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def completed_setup(saved_state: bytes) -> str:
    """Return the key of the setup that has completed in a box with this saved state; "" if none has."""
    try:
        return str(json.loads(saved_state).get("setup", ""))
    except (ValueError, AttributeError):
        return ""  # nothing saved yet, or cut off


def has_clean_environment(saved_state: bytes, key: str) -> bool:
    """Return whether a box with this saved state holds the clean environment of a recipe (see `Environment.key`)."""
    return completed_setup(saved_state).startswith(f"{key} ") and json.loads(saved_state).get("is_clean") is True


def _tail(result: JobResult, count: int) -> str:
    lines = [line for line in result.output.splitlines() if line.strip()]
    return "\n".join(lines[-count:])
